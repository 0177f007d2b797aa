"""What all cases show together: scaling, where a loss is, logs left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from pytest_dlperf.model import numbers
from pytest_dlperf.model.case import SINGLE_DEVICE, Topology
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.metric import SPEEDUP, Source
from pytest_dlperf.model.results import CaseResult, IgnoredLog
from pytest_dlperf.report import printing
from pytest_dlperf.report.columns import alike, by_training, scaling_of
from pytest_dlperf.report.text import Listing, Text, cases_named, join, number, phrase, strong

IGNORED_SHOWN: Final = 20
"""Left-out logs that are listed; the results file has all of them."""


def scaling(results: Iterable[CaseResult]) -> Iterator[Listing]:
    """Yield what each training reaches over its reference, of the ideal."""
    for training, members in by_training(results).items():
        pieces: dict[str, list[Text]] = {}
        members.sort(key=lambda member: (member.case.topology.world_size, member.case.topology))
        for result in members:
            scaled = result.case
            for known in result.metrics().values():
                if known.metric.ratio_of is None or known.median is None:
                    continue
                percent = known.efficiency_percent
                reached = numbers.number(known.median, known.metric.unit)
                told = phrase("{} {}", str(scaled.topology), number(reached))
                if percent is not None:
                    ideal = (number(f"{scaled.ideal_speedup:g}"), number(f"{percent:.0f} %"))
                    told = phrase("{} of {} ({})", told, *ideal)
                name = known.metric.name
                of_other = "" if name == SPEEDUP else f", {name}"
                head = f"{training}{of_other}{scaling_of(scaled)}:"
                pieces.setdefault(head, []).append(told)
        for head, members_told in pieces.items():
            yield Listing(head=phrase("{}", head), pieces=tuple(members_told))


def is_only_skipped(result: CaseResult) -> bool:
    """Whether a case was skipped, and nothing of it measured."""
    return result.measurement is None and result.status is Verdict.SKIPPED


def absences(cases: Iterable[CaseResult], statuses: Sequence[Verdict], *, most: int) -> list[Text]:
    """Say why cases of these statuses have no verdict; what differs by the case stands once.

    The most frequent reason comes first; ``most`` cases of each are named.
    """
    found: dict[tuple[Verdict, str], dict[str, str]] = {}
    for result in cases:
        status = result.status
        if status in statuses:
            every = [judged.reason for judged in result.judgements.values() if judged.reason]
            reason = printing.in_short("; ".join(dict.fromkeys(every)))
            members = found.setdefault((status, alike(reason, result)), {})
            members[result.case.id] = reason.removeprefix(result.case.id).lstrip()
    told = []
    for (status, _), members in sorted(found.items(), key=lambda one: -len(one[1])):
        reason, *others = dict.fromkeys(members.values())
        reason += f"; and {len(others)} more like it" * bool(others and most > 1)
        told.append(join(": ", [strong(status.value), cases_named(members, most), reason]))
    return told


def suspicion_lines(results: Iterable[CaseResult]) -> Iterator[str]:
    """Yield remarks that may need action: where losses come from."""
    whole = (r for r in results if r.measurement is not None and not r.measurement.broken_runs)
    for name, members in by_training(whole).items():
        yield from _places_of_losses(name, members)


def left_out_logs(logs: Sequence[IgnoredLog]) -> Iterator[str]:
    """Count the logs that were left out, then name the first ones, each with its reason."""
    if logs:
        yield f"logs that were left out: {len(logs)}"
    for item in logs[:IGNORED_SHOWN]:
        yield f"  {printing.printable(item.log)}: {item.reason}"
    if len(logs) > IGNORED_SHOWN:
        more = len(logs) - IGNORED_SHOWN
        yield f"  … and {more} more; --dlperf-json FILE has all of them"


def _places_of_losses(name: str, results: Sequence[CaseResult]) -> Iterator[str]:
    losses: dict[str, dict[Topology, float | None]] = {}
    for result in results:
        topology = result.case.topology
        for metric, known in result.metrics().items():
            judged = known.judgement
            # Only what takes time takes it somewhere; a ratio's loss follows from its ends.
            is_timed = known.metric.source is Source.STEPS
            if is_timed and judged and judged.loss_percent is not None:
                loss = judged.loss_percent
                is_lost = judged.verdict is Verdict.REGRESSED and not judged.recorded and loss > 0
                losses.setdefault(metric, {})[topology] = loss if is_lost else None
    reference = results[0].case.reference_topology
    for metric, lost in losses.items():
        place = where_lost(lost, smallest=reference or min(lost))
        if place is not None:
            yield f"{name}: the loss of {metric} comes from {place}"


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
