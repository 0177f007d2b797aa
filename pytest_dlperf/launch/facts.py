"""What a case was measured on, put together from what its hosts tell of themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_dlperf.launch.probe import NO_VERSION
from pytest_dlperf.model.measurement import Fingerprint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_dlperf.launch.hosts import Host
    from pytest_dlperf.launch.preflight import HostReport, Requirements
    from pytest_dlperf.model.case import Topology


def fingerprint_of(
    topology: Topology,
    hosts: Sequence[tuple[Host, HostReport]],
    needed: Requirements,
    *,
    on_one_machine: bool,
) -> Fingerprint:
    """The fingerprint of a case of this topology on these hosts, as far as they can tell.

    They were looked at for what is ``needed``. With ``on_one_machine`` all of them are the same.
    """
    machine = _agreed([_machine(host, report, needed) for host, report in hosts])
    if topology.devices_per_node == 1:
        machine.pop("interconnect", None)
    if topology.nodes == 1:
        machine.pop("network", None)
    elif len(hosts) == 1 or on_one_machine:
        machine["network"] = "loopback"
    return Fingerprint(
        machine=machine,
        software=_agreed([_software(report, needed) for _, report in hosts]),
        hosts=tuple(host.name for host, _ in hosts),
    )


def _machine(host: Host, report: HostReport, needed: Requirements) -> dict[str, str]:
    """The machine facts of one host, for a trainer that needs this."""
    facts = report.facts
    network = {"network": facts["network"]} if "network" in facts else {}
    if not needed.accelerators:
        named = {"device": facts.get("processor"), "devices_per_node": facts.get("processors")}
        return {name: fact for name, fact in named.items() if fact} | network
    # A host that shows no devices may have some of a kind that is not known here.
    devices = report.devices or host.devices
    count = {"devices_per_node": str(devices)} if devices else {}
    known = {name: facts[name] for name in ("device", "interconnect") if name in facts}
    return known | count | network


def _software(report: HostReport, needed: Requirements) -> dict[str, str]:
    """The versions of what takes part in a training on one host."""
    names = ("driver", "cuda", "nccl") if needed.accelerators else ()
    system = {name: report.facts[name] for name in names if name in report.facts}
    packages = {**report.packages, **report.versions}
    packages = {name: version for name, version in packages.items() if version != NO_VERSION}
    bundled = [name for name in packages if name.startswith("nvidia-nccl-")]
    if bundled and needed.accelerators:
        # A framework that brings its own library uses that one.
        system["nccl"] = packages[bundled[0]]
    others = {name: version for name, version in packages.items() if name not in bundled}
    return {**system, **others}


def _agreed(facts: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """What hosts say of themselves, put together; where they differ, all that they say."""
    names = dict.fromkeys(name for one in facts for name in one)
    return {name: " + ".join(sorted({o[name] for o in facts if name in o})) for name in names}
