"""Looks over all topologies of a case: where a loss comes from, and what is odd in the scaling."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_dlperf.gate import wording
from pytest_dlperf.model.case import SINGLE_DEVICE, Topology

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def where_lost(losses: Mapping[Topology, float | None]) -> str | None:
    """Say where the loss of a case comes from: computing, inside the node or between nodes.

    ``losses`` has every topology that was measured, with its loss in percent, or ``None`` where
    nothing was lost. ``None`` when fewer than two topologies lost, and when a larger topology
    did not lose what a smaller one did: then it does not follow from the scale.
    """
    measured = sorted(losses)
    lost = [topology for topology in measured if losses[topology] is not None]
    if len(lost) < 2:  # noqa: PLR2004 - one topology has nothing to be compared with
        return None
    first = lost[0]
    smaller = measured[: measured.index(first)]
    if measured != smaller + lost:
        return None
    sizes = _range([loss for loss in losses.values() if loss is not None])
    if first == SINGLE_DEVICE:
        return f"compute (all topologies lost {sizes})"
    inside = Topology(1, first.devices_per_node)
    suspects = [] if smaller else ["compute"]
    if first.nodes == 1 or (inside != SINGLE_DEVICE and set(smaller) <= {SINGLE_DEVICE}):
        suspects.append("inside the node")
    if first.nodes > 1:
        suspects.append("between nodes")
        since = f"from {first.nodes} nodes on"
    else:
        since = f"from {first.devices_per_node} devices on"
    # What would tell one suspect from the next is the topology that has all but that one.
    without = [] if smaller else [str(SINGLE_DEVICE)]
    if suspects[-2:] == ["inside the node", "between nodes"]:
        without.append(str(inside))
    missing = f"; {' and '.join(without)} not measured" if len(suspects) > 1 else ""
    return f"{' or '.join(suspects)} ({since}, lost {sizes}{missing})"


def _range(losses: Sequence[float]) -> str:
    least, most = f"{min(losses):.1f}", f"{max(losses):.1f}"
    return f"{least} %" if least == most else f"{least} to {most} %"


def oddities(
    throughputs: Mapping[Topology, float],
    speedups: Mapping[Topology, float],
    unit: str | None = None,
) -> list[str]:
    """Find what is worth a look in the scaling of a case, and no fault.

    A speedup above the number of devices, and a topology that is slower than one with fewer
    devices. ``throughputs`` are medians in the unit, ``speedups`` are over one device.
    """
    found = [
        f"{topology}: speedup {speedup:.2f} is above its {topology.world_size} devices "
        "(super-linear); is the single device slowed by something?"
        for topology, speedup in sorted(speedups.items())
        if speedup > topology.world_size
    ]
    for topology, throughput in sorted(throughputs.items()):
        faster = [
            (other_throughput, other)
            for other, other_throughput in throughputs.items()
            if other != topology
            and other.nodes <= topology.nodes
            and other.devices_per_node <= topology.devices_per_node
            and other_throughput > throughput
        ]
        if faster:
            best, other = max(faster)
            found.append(
                f"{topology}: {wording.number(throughput, unit)} is less than {other} reaches with "
                f"fewer devices, {wording.number(best, unit)} (negative scaling)"
            )
    return found
