"""Looks at all hosts at once before anything runs on them, and says what a case ran on."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, convert, field, to_builtins
from msgspec.structs import replace

from pytest_dlperf.files.checkouts import described
from pytest_dlperf.files.masking import in_message
from pytest_dlperf.launch.containers import ImageProbe
from pytest_dlperf.launch.hosts import Accelerators, Host
from pytest_dlperf.launch.launchers import Launcher, lock_name, lock_scope
from pytest_dlperf.launch.remote_call import ask_hosts, source_of
from pytest_dlperf.model.case import Topology
from pytest_dlperf.model.commits import Checkout
from pytest_dlperf.model.measurement import Fingerprint
from pytest_dlperf.node import checkouts, probe
from pytest_dlperf.node.nvidia import CAPS as DEVICE_SETTINGS
from pytest_dlperf.node.nvidia import SLICED

LIMIT_S: Final = 60.0
"""Seconds in which a host has to answer."""
IMAGE: Final = "image"
"""The name under which an image is a version of software."""

_OF_DEVICES: Final = ("driver", "cuda", "rocm", "vbios")
_OF_HOSTS: Final = ("nic_firmware", "kernel", "bios")

_ANSWER: Final = "dlperf-probe "
_OTHER: Final = "name another by --dlperf-set SYSTEM.python=/path/to/python"


class Requirements(Struct, frozen=True, kw_only=True):
    """The needs of a system on each host.

    ``python`` runs the trainer, ``modules`` have to be importable there. ``folders`` and ``files``
    are paths by what the user calls them, ``checkouts`` those of folders that the trainer may run
    from, whose commits are asked for. ``accelerators`` says whether devices are looked for,
    those of one ``kind`` or of any, and ``device`` is how ``cluster.yaml`` calls them: it counts
    where a host does not say it. ``engine`` are options of the launcher, and ``image`` what the
    trainer runs in, by its name; ``inside`` says how to look into it from the host. Then ``python``
    and the paths are those that it has.
    """

    python: str
    folders: Mapping[str, str] = {}
    files: Mapping[str, str] = {}
    checkouts: Mapping[str, str] = {}
    modules: tuple[str, ...] = ()
    accelerators: bool = True
    kind: str | None = None
    device: str | None = None
    engine: Mapping[str, tuple[str, ...]] = {}
    image: str | None = None
    inside: ImageProbe | None = None

    @property
    def key(self) -> str:
        """A short name for exactly these requirements."""
        text = json.dumps(to_builtins(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class HostReport(Struct, frozen=True, kw_only=True):
    """What a look at a host has printed (``node.probe``), and what is wrong with the host.

    ``fault`` is why it cannot be used, ``None`` where it can. It ``is_silent`` where it gave no
    answer, though no option or image was asked of it. ``used_by`` are processes behind the place of
    the device that each uses. ``versions`` are those of the modules that are needed, ``packages``
    those of the distributions that the trainer's Python has besides. ``facts`` are the host's, as
    far as they could be found out; those of ``accelerators`` go before. ``checkouts`` are by what
    the user calls them.
    """

    fault: str | None = None
    is_silent: bool = False
    accelerators: Accelerators = field(default_factory=Accelerators)
    used_by: tuple[tuple[int, str], ...] = ()
    versions: dict[str, str | None] = {}
    packages: dict[str, str] = {}
    facts: dict[str, str] = {}
    checkouts: dict[str, dict[str, Any]] = {}
    image: str | None = None
    """What the image is made of."""
    python: str | None = None
    """Why the trainer's Python does not run."""
    outside: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    hidden: str = ""
    slices: bool = False
    refused: str | None = None
    failed: str | None = None

    def fault_of(self, devices: int | None) -> str | None:
        """Say why a run on its first devices, or with ``None`` on any, cannot use the host."""
        users: dict[str, list[str]] = {}
        for device, process in self.used_by:
            if devices is None or device < devices:
                users.setdefault(process, []).append(str(device))
        shown = [
            f"{process} (device{'s' if used[1:] else ''} {', '.join(used)})"
            for process, used in users.items()
        ]
        in_use = f"its devices are in use by {', '.join(shown)}" if shown else None
        return "; ".join(filter(None, (self.fault, in_use))) or None


def look_at_hosts(
    launcher: Launcher,
    hosts: Sequence[Host],
    needed: Requirements,
    *,
    lock: str,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, HostReport]:
    """Look at all hosts at once; a report for each, by its name.

    What runs the image fetches it where it is not there; ``say`` tells of it.
    """
    order = to_builtins(needed)
    orders = {
        host: {**order, "lock": lock_name(lock_scope(lock, host, launcher), "")} for host in hosts
    }
    # A host that is itself started from the image has it.
    may_fetch = needed.image is not None and not launcher.has_own_files

    def fetches(late: list[str]) -> None:
        if may_fetch:
            say(f"waiting for {', '.join(late)}, which may have to fetch the image {needed.image}")

    found = ask_hosts(
        launcher.taking(needed.engine),
        orders,
        source_of(probe),
        begin=_ANSWER,
        limit_s=LIMIT_S + (probe.FETCH_LIMIT_S if may_fetch else 0.0),
        late=fetches,
    )
    is_plain = not (needed.engine or needed.image)
    reports = {
        host.name: HostReport(fault=answer, is_silent=is_plain)
        if isinstance(answer, str)
        else _judged(host, needed, convert(answer, HostReport))
        for host, answer in found.items()
    }
    return _with_one_version(reports, (*needed.modules, IMAGE))


def checkout_here(folder: Path) -> tuple[str | None, Checkout]:
    """Return the commit of a folder of this machine, if it is a checkout, and what else is known.

    Behind a ``+`` the commit names files that differ from it.
    """
    known = checkouts.checkout_at(str(folder.absolute())) or {}
    return (known["commit"] if "commits" in known else None), described(known)


def _judged(host: Host, needed: Requirements, report: HostReport) -> HostReport:
    """Say what is wrong with a host by what the look at it has found."""
    versions = report.versions
    if needed.image is not None:
        digest = f" ({report.image})" if report.image else ""
        versions = {**versions, IMAGE: f"{needed.image}{digest}"}
    faults = "; ".join(_faults(host, needed, report))
    return replace(report, fault=in_message(faults) or None, versions=versions)


def _faults(host: Host, needed: Requirements, report: HostReport) -> Iterator[str]:
    yield from report.outside
    if report.python is not None:
        place = "there" if needed.image is None else f"in the image {needed.image} there"
        problem = f"does not run {place}: {report.python}"
        yield f"the trainer's Python {needed.python!r} {problem}; {_OTHER}"
    for kind, paths in (("folder", needed.folders), ("file", needed.files)):
        for name, path in paths.items():
            if path in report.missing:
                yield f"{name}: there is no {kind} {path!r}"
    missing = [name for name in needed.modules if report.versions.get(name, "") is None]
    if missing:
        yield f"{needed.python!r} there has no module {', '.join(missing)}; {_OTHER}"
    if needed.accelerators:
        yield from _device_faults(host, needed, report)


def _device_faults(host: Host, needed: Requirements, report: HostReport) -> Iterator[str]:
    shown, declared = len(report.accelerators.ids), host.devices
    # A host that shows none may have devices of a kind that is not known here.
    if declared is not None and report.accelerators.kind is not None and shown < declared:
        hidden = f" ({report.hidden} is set there)" if report.hidden else ""
        yield f"{declared} devices were declared, and it shows {shown}{hidden}"
    if report.refused:
        yield report.refused
    if report.slices and needed.device is None:
        yield SLICED
    if declared and not shown and report.failed:
        yield f"{report.failed}; {declared} devices were declared, and none is found"


def _with_one_version(
    reports: Mapping[str, HostReport], modules: Iterable[str]
) -> dict[str, HostReport]:
    """Find fault with hosts that have another version of something than most."""
    result = dict(reports)
    for name in modules:
        usable = {host: r for host, r in result.items() if r.fault is None and r.versions.get(name)}
        counts = Counter(report.versions[name] for report in usable.values())
        if len(counts) < 2:  # noqa: PLR2004 - two differ
            continue
        usual, _ = counts.most_common(1)[0]
        with_usual = [host for host, report in usable.items() if report.versions[name] == usual]
        for host, report in usable.items():
            version = report.versions[name]
            if version != usual:
                fault = f"has {name} {version}, and {', '.join(with_usual)} {usual}"
                result[host] = replace(report, fault=fault)
    return result


def fingerprint_of(
    topology: Topology,
    hosts: Sequence[tuple[Host, HostReport, Sequence[int]]],
    needed: Requirements,
    *,
    on_one_machine: bool,
) -> Fingerprint:
    """Take the fingerprint of a case of this topology, as far as its hosts can tell.

    With each host come the places of the devices that the case runs on.
    """
    machines, software = [], []
    for host, report, places in hosts:
        each = report.accelerators.facts
        devices = [each[place] for place in places if place < len(each)]
        facts = {**report.facts, **_agreed(devices)}
        machines.append(_machine(host, report, facts, needed))
        software.append(_software(report, facts, needed))
    machine = _agreed(machines)
    if topology.nodes == 1:
        machine.pop("network", None)
    elif len(hosts) == 1 or on_one_machine:
        machine["network"] = "loopback"
    return Fingerprint(
        machine=machine,
        software=_agreed(software),
        hosts=tuple(host.name for host, _, _ in hosts),
        commits={name: one["commit"] for name, one in hosts[0][1].checkouts.items()},
    )


def _machine(
    host: Host, report: HostReport, facts: Mapping[str, str], needed: Requirements
) -> dict[str, str]:
    network = {"network": facts["network"]} if "network" in facts else {}
    if not needed.accelerators:
        named = {"device": facts.get("processor"), "devices_per_node": facts.get("processors")}
        return {name: fact for name, fact in named.items() if fact} | network
    # A host that shows no devices may have some of a kind that is not known here.
    devices = len(report.accelerators.ids) or host.devices
    count = {"devices_per_node": str(devices)} if devices else {}
    device = facts.get("device", needed.device)
    return ({"device": device} if device else {}) | count | network


def _software(report: HostReport, facts: Mapping[str, str], needed: Requirements) -> dict[str, str]:
    names = (*_OF_DEVICES, *DEVICE_SETTINGS) if needed.accelerators else ()
    system = {name: facts[name] for name in names if name in facts}
    below = {name: facts[name] for name in _OF_HOSTS if name in facts}
    packages = {
        name: version
        for name, version in {**report.packages, **report.versions}.items()
        if version and version != probe.NO_VERSION
    }
    bundled = [name for name in packages if name.startswith("nvidia-nccl-")]
    if bundled and needed.accelerators:
        # A framework that brings its own library uses that one.
        system["nccl"] = packages[bundled[0]]
    others = {name: version for name, version in packages.items() if name not in bundled}
    return {**system, **others, **below}


def _agreed(facts: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Merge the facts of hosts; where they differ, all values are kept."""
    names = dict.fromkeys(name for one in facts for name in one)
    return {name: " + ".join(sorted({o[name] for o in facts if name in o})) for name in names}
