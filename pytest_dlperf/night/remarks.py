"""What all cases show together: scaling, where a loss is, alarms to expect, logs left out."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from pytest_dlperf.model import numbers
from pytest_dlperf.model.case import SINGLE_DEVICE, Topology
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.measurement import WitnessKind
from pytest_dlperf.model.metric import SPEEDUP, SPEEDUP_METRIC, Source
from pytest_dlperf.night import texts
from pytest_dlperf.night.case_status import CaseStatus, status_of
from pytest_dlperf.night.figures import alike, by_training, scaling_of
from pytest_dlperf.night.pieces import Listing, Text, cases_named, join, number, phrase, strong

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_dlperf.model.results import CaseResult, IgnoredLog

IGNORED_SHOWN: Final = 20
"""Left-out logs that are listed; the results file has all of them."""
SUPER_LINEAR: Final = 1.05
"""Times the ideal up to which a speedup may be noise, or caches that hold more."""


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
    return result.measurement is None and status_of(result) is CaseStatus.SKIPPED


def absences(
    cases: Iterable[CaseResult], statuses: Sequence[CaseStatus], *, most: int
) -> list[Text]:
    """Say why cases of these statuses have no verdict; what differs by the case stands once.

    The most frequent reason comes first; ``most`` cases of each are named.
    """
    found: dict[tuple[CaseStatus, str], dict[str, str]] = {}
    for result in cases:
        status = status_of(result)
        if status in statuses:
            every = [judged.reason for judged in result.judgements.values() if judged.reason]
            reason = texts.in_short("; ".join(dict.fromkeys(every)))
            members = found.setdefault((status, alike(reason, result)), {})
            members[result.case.id] = reason.removeprefix(result.case.id).lstrip()
    told = []
    for (status, _), members in sorted(found.items(), key=lambda one: -len(one[1])):
        reason, *others = dict.fromkeys(members.values())
        reason += f"; and {len(others)} more like it" * bool(others and most > 1)
        told.append(join(": ", [strong(status.value), cases_named(members, most), reason]))
    return told


def suspicion_lines(results: Iterable[CaseResult], *, every: bool = False) -> Iterator[str]:
    """Yield remarks that may need action: where losses come from, then odd scaling.

    With ``every``, all speedups above the ideal are odd, not only those beyond noise and caches.
    """
    super_linear = 1.0 if every else SUPER_LINEAR
    whole = (r for r in results if r.measurement is not None and not r.measurement.broken_runs)
    trainings = by_training(whole).items()
    for name, members in trainings:
        yield from _places_of_losses(name, members)
    for name, members in trainings:
        yield from _odd_scaling(name, members, super_linear)


def to_be_expected(results: Iterable[CaseResult], *, with_alarms: bool = True) -> Iterator[str]:
    """Yield what is so every night: nothing has seen some logs, and some alarms are false."""
    results = list(results)
    yield from _unwitnessed(results)
    if with_alarms:
        yield from _alarms(results)


def left_out_logs(logs: Sequence[IgnoredLog]) -> Iterator[str]:
    """Count the logs that were left out, then name the first ones, each with its reason."""
    if logs:
        yield f"logs that were left out: {len(logs)}"
    for item in logs[:IGNORED_SHOWN]:
        yield f"  {texts.printable(item.log)}: {item.reason}"
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


def _odd_scaling(name: str, results: Sequence[CaseResult], super_linear: float) -> Iterator[str]:
    medians: dict[str, dict[Topology, float]] = {}
    unit = None
    for result in results:
        for metric, known in result.metrics().items():
            if known.median is not None:
                medians.setdefault(metric, {})[result.case.topology] = known.median
            if metric == SPEEDUP_METRIC.ratio_of:
                unit = known.metric.unit
    reference = results[0].case.reference_topology
    work = medians.get(SPEEDUP_METRIC.ratio_of or "", {})
    ratios = medians.get(SPEEDUP_METRIC.name, {})
    for oddity in oddities(work, ratios, reference=reference, unit=unit, super_linear=super_linear):
        yield f"{name}: {texts.printable(oddity)}"


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


def _unwitnessed(results: Iterable[CaseResult]) -> Iterator[str]:
    """Say once what existing logs cannot show."""
    measured = (r.measurement for r in results if r.measurement is not None)
    runs = [run for each in measured if each.available_runs is not None for run in each.runs]
    alone = sum(run.witness is WitnessKind.NONE for run in runs)
    if alone:
        yield (
            f"no second witness for {alone} of the {len(runs)} runs that were read from existing "
            "logs: when their lines came is known of launched runs only, and they bear no time "
            "stamps that say enough; what they print of their speed was believed"
        )


def _alarms(results: Iterable[CaseResult]) -> Iterator[str]:
    """Add up the probabilities of false alarms; without a comparison there is none."""
    every = [judged for result in results for judged in result.judgements.values()]
    compared = [judged.false_alarm for judged in every if judged.decision is not None]
    known = [chance for chance in compared if chance is not None]
    if known:
        unknown = len(compared) - len(known)
        more = f"; {unknown} more have too few runs to say" if unknown else ""
        yield (
            f"false alarms to expect, by the noise of runs and nights: {_few(math.fsum(known))} in "
            f"a session with {numbers.counted(len(known), 'verdict')}{more}"
        )


def _few(number: float) -> str:
    return "fewer than 0.01" if number < 0.01 else f"{number:.2g}"  # noqa: PLR2004 - what is printed
