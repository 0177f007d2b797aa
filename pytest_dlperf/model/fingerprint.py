"""What a measurement was taken on: the machine, which must match, and the software."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

MACHINE_FACTS: Final = {
    "device": "model of the accelerators, or of the processors where a system needs none",
    "devices_per_node": "how many of them a node has",
    "interconnect": "what joins the devices of a node: nvlink, pcie",
    "network": "what joins the nodes: infiniband, ethernet",
}
"""What has to be equal for two numbers to be compared. Precision and world size are the case's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """The machines and the software that a case was measured on.

    ``machine`` has the keys of ``MACHINE_FACTS`` as far as they are known. ``software`` are
    versions by name (``driver``, ``cuda``, ``nccl``, packages of the trainer's Python). ``hosts``
    are names, node 0 first. Clocks and load are no part of it.
    """

    machine: Mapping[str, str] = field(default_factory=dict)
    software: Mapping[str, str] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()

    def to_plain(self) -> dict[str, Any]:
        """The fingerprint as builtins."""
        return {
            "machine": dict(self.machine),
            "software": dict(self.software),
            "hosts": list(self.hosts),
        }

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Fingerprint:
        """The inverse of ``to_plain``."""
        return cls(
            machine=plain["machine"], software=plain["software"], hosts=tuple(plain["hosts"])
        )


def differences(
    measured: Mapping[str, str], accepted: Mapping[str, str]
) -> dict[str, tuple[str, str]]:
    """Facts that both sides know and that differ: measured, then accepted, by name."""
    return {
        name: (measured[name], accepted[name])
        for name in measured
        if name in accepted and measured[name] != accepted[name]
    }
