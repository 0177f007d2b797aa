"""What all cases of a session come to: a sentence, its facts, scaling, where a loss is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from pytest_dlperf.model import numbers
from pytest_dlperf.model.case import SINGLE_DEVICE, Topology
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.metric import SPEEDUP, Source
from pytest_dlperf.model.results import CaseResult, MetricResult, Results
from pytest_dlperf.report import printing, words
from pytest_dlperf.report.status import (
    NOTHING_MEASURED,
    by_training,
    decisive_metric,
    reason_without_names,
    recovered_from,
    scaling_of,
    worst_first,
)
from pytest_dlperf.report.text import Text, cases_named, join, number, phrase, strong, word

_VERBS: Final = {
    Verdict.PASS: ("passes", "pass"),
    Verdict.RECORDED: ("has its first baseline", "have their first baseline"),
    Verdict.ACCEPTED: ("has a newly accepted number", "have newly accepted numbers"),
    Verdict.REGRESSED: ("slower", "worse"),
    Verdict.INCONCLUSIVE: ("is undecided", "are undecided"),
    Verdict.NO_BASELINE: ("has no baseline", "have no baseline"),
    Verdict.NOT_STARTED: (
        "was not started, for a probe that it needs",
        "were not started, for probes that they need",
    ),
    Verdict.ENVIRONMENT_SHIFT: (
        "is worse, and so is the accepted software",
        "are worse, and so is the accepted software",
    ),
    Verdict.NOT_JUDGED: ("was not judged", "were not judged"),
    Verdict.NOT_MEASURED: ("was not measured", "were not measured"),
    Verdict.SKIPPED: ("was skipped", "were skipped"),
    Verdict.EXPECTED: ("failed as expected", "failed as expected"),
    Verdict.IMPROVED: ("faster", "better"),
    Verdict.FAILED: ("failed", "failed"),
    Verdict.HUNG: ("hung", "hung"),
    Verdict.INVALID: ("has no valid number", "have no valid number"),
    Verdict.LOST: ("was lost with its worker", "were lost with their workers"),
}
"""What is said of one case, and of more than one, in this order; of a number that moved, what is
said of a speed, and of others."""

_NUMBERLESS: Final = (Verdict.FAILED, Verdict.HUNG, Verdict.INVALID, Verdict.LOST)
"""Statuses of cases that gave no number: more than one are summed up."""


def sentence_of(results: Results) -> Text:
    """Say what a session has come to.

    For instance ``6 of 115 cases got slower, 3 of them new; worst -6.4 %``. Of a red session
    only what makes it red is counted.
    """
    by_status: dict[Verdict, list[CaseResult]] = {}
    for result in worst_first(results.cases):
        by_status.setdefault(result.status, []).append(result)
    bad = {s: cases for s, cases in by_status.items() if s.fails(strict=results.strict)}
    told = bad or by_status
    groups = [
        (_verb(status, told[status], results.started), told[status])
        for status in _VERBS
        if status in told and status not in _NUMBERLESS
    ]
    broken = [status for status in told if status in _NUMBERLESS]
    if broken:
        cases = [result for status in broken for result in told[status]]
        verb = phrase("gave no number")
        if len(broken) == 1:
            verb = _verb(broken[0], cases, results.started)
        groups.append((verb, cases))
    parts = [
        phrase("{} {}", len(cases) if at else _of_all(len(cases), len(results.cases)), verb)
        for at, (verb, cases) in enumerate(groups)
    ]
    nothing = not any(result.is_measured for result in results.cases)
    limits = ["interrupted"] * results.interrupted + [NOTHING_MEASURED] * nothing
    return join(": ", [word(", ".join(limits)), join("; ", parts)])


def _of_all(count: int, total: int) -> Text:
    if count < total:
        return phrase("{} of {} cases", count, total)
    few = {1: "the only case", 2: "both cases"}
    return phrase("{}", word(few[total])) if total in few else phrase("all {} cases", total)


def _verb(status: Verdict, members: Sequence[CaseResult], now: str) -> Text:
    one, more = _VERBS[status]
    known = [it for it in map(decisive_metric, members) if it is not None]
    if status in (Verdict.REGRESSED, Verdict.IMPROVED):
        is_time = all(it.metric.source in (Source.STEPS, Source.RATIO) for it in known)
        said = phrase("got {}{}", word(one if is_time else more), _age(known, now))
        sizes = [it.judgement for it in known if it.judgement and it.judgement.loss_percent]
        if not sizes:
            return said
        extreme = max(sizes, key=lambda judgement: abs(judgement.loss_percent or 0.0))
        worst = "; worst" if status is Verdict.REGRESSED else "; most"
        percent = number(numbers.signed_percent(extreme.difference_percent))
        return phrase("{}{} {}", said, word(worst if len(members) > 1 else ","), percent)
    said = phrase("{}", word(one if len(members) == 1 else more))
    if status in _NUMBERLESS:
        return phrase("{}{}", said, _age(known, now))
    again = sum(recovered_from(result) is not None for result in members)
    if 0 < again < len(members):
        return phrase("{}, {} of them again", said, again)
    return phrase("{} again", said) if again else said


def _age(known: Sequence[MetricResult], now: str) -> Text:
    ages = [words.since_words(one.explanation, now) for one in known]
    if len(set(ages)) == 1 and ages[0]:
        return phrase(" {}", ages[0])  # a file may say a day that is none
    fresh = sum(words.is_new(one.explanation, now) for one in known)
    return phrase(", {} of them new", fresh) if fresh else phrase("")


# ---------------------------------------------------------------- when, how and on what


def session_facts(results: Results) -> list[tuple[str, str]]:
    """Name what a session is and what it could find."""
    facts = [
        ("cluster", results.cluster),
        ("estimator", results.estimator.value),
        ("started", results.started.replace("T", " ")),
    ]
    took = results.elapsed
    if took is not None:
        facts.append(("took", str(timedelta(seconds=round(took.total_seconds())))))
    judged = (one.decision for result in results.cases for one in result.judgements.values())
    seen = [one.min_detectable_percent for one in judged if one and one.min_detectable_percent]
    if seen:
        ends = dict.fromkeys(map(numbers.detectable_loss, (min(seen), max(seen))))
        facts.append(("minimum detectable change", " to ".join(ends)))
    facts.append(("session", results.session))
    return facts


def environment_facts(environment: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Name what the session ran on, and say it in text, whatever the results file holds."""
    return ((name, _text(value)) for name, value in environment.items())


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        value = [f"{key} {_text(item)}" for key, item in value.items()]
    if isinstance(value, (list, tuple)):
        value = ", ".join(map(_text, value)) or None
    return numbers.ABSENT if value is None else str(value)


def scaling(results: Iterable[CaseResult]) -> dict[str, list[str]]:
    """Say what each training reaches over its reference, of the ideal, by what it is."""
    told: dict[str, list[str]] = {}
    for training, members in by_training(results).items():
        for result in members:
            for name, known in result.metrics().items():
                if known.metric.ratio_of is None or known.median is None:
                    continue
                reached = f"{result.case.topology} {numbers.number(known.median, 'x')}"
                if known.efficiency_percent is not None:
                    ideal = f"{result.case.ideal_speedup:g}"
                    reached += f" of {ideal} ({known.efficiency_percent:.0f} %)"
                of_other = "" if name == SPEEDUP else f", {name}"
                head = f"{training}{of_other}{scaling_of(result.case)}:"
                told.setdefault(head, []).append(reached)
    return told


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
            members = found.setdefault((status, reason_without_names(reason, result)), {})
            members[result.case.id] = reason.removeprefix(result.case.id).lstrip()
    told = []
    for (status, _), members in sorted(found.items(), key=lambda one: -len(one[1])):
        reason, *others = dict.fromkeys(members.values())
        reason += f"; and {len(others)} more like it" * bool(others and most > 1)
        told.append(join(": ", [strong(status.value), cases_named(members, most), reason]))
    return told


def places_of_losses(results: Iterable[CaseResult]) -> Iterator[Text]:
    """Say where the losses of each training come from."""
    whole = (r for r in results if r.measurement is not None and not r.measurement.broken_runs)
    for name, members in by_training(whole).items():
        losses: dict[str, dict[Topology, float | None]] = {}
        for result in members:
            for metric, known in result.metrics().items():
                judged = known.judgement
                # Only what takes time takes it somewhere; a ratio's loss follows from its ends.
                is_timed = known.metric.source is Source.STEPS
                if is_timed and judged and judged.loss_percent is not None:
                    is_lost = judged.verdict is Verdict.REGRESSED and not judged.recorded
                    loss = judged.loss_percent if is_lost and judged.loss_percent > 0 else None
                    losses.setdefault(metric, {})[result.case.topology] = loss
        reference = members[0].case.reference_topology
        for metric, lost in losses.items():
            place = where_lost(lost, smallest=reference or min(lost))
            if place is not None:
                yield phrase("{}: the loss of {} comes from {}", name, metric, place)


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
    since = f"{first.nodes} nodes" if first.nodes > 1 else f"{first.devices_per_node} devices"
    # The topology that has all suspects but one would tell that one from the others.
    without = [] if smaller else [smallest]
    inside = Topology(1, first.devices_per_node)
    if suspects[-2:] == ["inside the node", "between nodes"] and inside > smallest:
        without.append(inside)
    missing = f"; {' and '.join(map(str, without))} not measured" if without else ""
    return f"{' or '.join(suspects)} (from {since} on, lost {loss_range}{missing})"
