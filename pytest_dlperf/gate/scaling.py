"""All topologies of a training side by side: where a loss comes from, oddities in scaling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_dlperf.model import numbers
from pytest_dlperf.model.case import SINGLE_DEVICE, Topology

if TYPE_CHECKING:
    from collections.abc import Mapping


SUPER_LINEAR: Final = 1.05
"""Times the ideal up to which a speedup may be noise, or caches that hold more."""


def where_lost(
    losses: Mapping[Topology, float | None], *, smallest: Topology = SINGLE_DEVICE
) -> str | None:
    """Return where the loss of a training comes from: computing, inside the node or between nodes.

    ``losses`` has the loss of every measured topology in percent, or ``None`` where nothing was
    lost. ``smallest`` is the training's reference topology. ``None`` when a larger topology did not
    lose what a smaller one did: such a loss does not follow from the scale. One that lost alone may
    be odd, unless it is the only one with several nodes, or with several devices.
    """
    measured = sorted(losses)
    lost = [topology for topology in measured if losses[topology] is not None]
    if not lost or len(measured) < 2:  # noqa: PLR2004 - one has nothing to be compared with
        return None
    first = lost[0]
    smaller = measured[: measured.index(first)]
    like_it = (one.nodes > 1 if first.nodes > 1 else one.devices_per_node > 1 for one in smaller)
    if measured != smaller + lost or (len(lost) == 1 and any(like_it)):
        return None
    suspects = [] if smaller else ["compute or data"]
    joined = any(topology.devices_per_node > 1 for topology in smaller)
    if first.devices_per_node > 1 and (first.nodes == 1 or not joined):
        suspects.append("inside the node")
    if first.nodes > 1:
        suspects.append("between nodes")
    sizes = [loss for loss in losses.values() if loss is not None]
    loss_range = numbers.percent_range(min(sizes), max(sizes))
    if first <= smallest:
        return f"{' or '.join(suspects)} (every topology lost {loss_range})"
    if first.nodes > 1:
        since = f"from {first.nodes} nodes on"
    else:
        since = f"from {first.devices_per_node} devices on"
    # The topology that has all suspects but one would tell that one from the others.
    without = [] if smaller else [smallest]
    inside = Topology(1, first.devices_per_node)
    if suspects[-2:] == ["inside the node", "between nodes"] and inside > smallest:
        without.append(inside)
    missing = f"; {' and '.join(map(str, without))} not measured" if without else ""
    return f"{' or '.join(suspects)} ({since}, lost {loss_range}{missing})"


def oddities(
    throughputs: Mapping[Topology, float],
    speedups: Mapping[Topology, float],
    *,
    reference: Topology | None = SINGLE_DEVICE,
    unit: str | None = None,
    super_linear: float = SUPER_LINEAR,
) -> list[str]:
    """Find oddities in the scaling of a training that change no verdict.

    They are a speedup of more than ``super_linear`` times the ideal, and a topology slower than one
    with fewer devices. ``throughputs`` are medians in the unit, ``speedups`` are over the reference
    topology.
    """
    found = [
        f"{topology}: speedup {speedup:.2f} over {reference} is above the ideal {ideal:g} "
        f"(super-linear); is {reference} slowed by something?"
        for topology, speedup in sorted(speedups.items())
        if reference is not None
        and topology > reference
        and speedup > super_linear * (ideal := topology.ideal_speedup(reference))
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
                f"{topology}: {numbers.quantity(throughput, unit)} is less than {other} reaches "
                f"with fewer devices, {numbers.quantity(best, unit)} (negative scaling)"
            )
    return found
