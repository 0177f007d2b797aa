"""What a summary shows of each case: rows of its metrics, what stands below them, its scaling."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_dlperf.model import numbers
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.metric import SPEEDUP
from pytest_dlperf.night import explanation_words as words
from pytest_dlperf.night import texts
from pytest_dlperf.night.case_status import CaseStatus, metric_words, of_judgement, status_of
from pytest_dlperf.night.figures import (
    accepted,
    alike,
    by_training,
    listed_runs,
    metric_cells,
    rule_view,
    run_number,
    scaling_of,
    with_unit,
)
from pytest_dlperf.night.pieces import NOTHING, Text, case, code, join, phrase, word

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from pytest_dlperf.model.judgement import Judgement
    from pytest_dlperf.model.measurement import Measurement
    from pytest_dlperf.model.results import CaseResult

_SIMPLY: Final = (CaseStatus.PASS, CaseStatus.RECORDED)


class Row(Struct, frozen=True, kw_only=True):
    """A row of the summary: a metric of a case, or several at once, and the status of it."""

    metric: str
    """Its name; empty where the case has none."""
    status: CaseStatus
    cells: dict[str, str]


def case_rows(result: CaseResult, *, every: bool) -> list[Row]:
    """Choose the metrics of a case that are worth a row, the worst first; or ``every`` judged one.

    Worth a row is what does not simply pass. Of a case of which nothing is, or that broke as a
    whole, the first metric stands for all. The verdict of the last row counts the others.
    """
    known, words, status = result.metrics(), metric_words(result), status_of(result)
    names = sorted(words, key=[*known, *words].index)
    if not names or status in (CaseStatus.LOST, CaseStatus.NOT_MEASURED):
        return [_row(result, next(iter(known), ""), status.value, status)]
    judgements = result.judgements.values()
    if every:
        shown = names
    elif len(set(words.values())) == 1 and all(one.measured is None for one in judgements):
        shown = []  # one cause, and no number of any of them to show
    else:
        shown = [name for name in names if words[name][1] not in _SIMPLY]
    shown = sorted(shown, key=lambda name: words[name][1].rank)
    others = Counter(words[name][0] for name in names if name not in shown)
    is_one = len(names) == 1
    counted = "; ".join(word if is_one else f"{count} {word}" for word, count in others.items())
    if not shown:
        return [_row(result, names[0], counted, status)]
    rows = [_row(result, name, *words[name]) for name in shown]
    rows[-1].cells["verdict"] += f"; {counted}" if counted else ""
    return rows


def _row(result: CaseResult, name: str, word: str, status: CaseStatus) -> Row:
    cells = {**metric_cells(result, name, result.metrics()), "verdict": word}
    return Row(metric=name, status=status, cells=cells)


class Listing(Struct, frozen=True, kw_only=True):
    """A head and what belongs to it, for as many lines as it takes."""

    head: Text
    pieces: tuple[Text, ...]


class CaseView(Struct, frozen=True, kw_only=True):
    """A case of a table."""

    case_id: str
    rows: tuple[Row, ...]
    """The worst first."""
    below: tuple[Text | Listing, ...]
    """Since when it is so, its runs, and what is to be noted."""


def case_view(
    result: CaseResult,
    tonight: str,
    *,
    every: bool = False,
    strict: bool = False,
    with_failures: bool = True,
) -> CaseView:
    """Put a case into words: ``every`` judged metric, or those that do not simply pass.

    Without ``with_failures`` nothing is said below of a metric whose test has failed: the failure
    has it. ``tonight`` is when the session began, ISO 8601.
    """
    rows = case_rows(result, every=every)
    told = [row for row in rows if with_failures or not _has_failure(result, row, strict=strict)]
    broken = result.measurement is not None and bool(result.measurement.broken_runs)
    below = _below(result, told, tonight, with_runs=every or broken) if told else ()
    return CaseView(case_id=result.case.id, rows=tuple(rows), below=tuple(below))


def _has_failure(result: CaseResult, row: Row, *, strict: bool) -> bool:
    judgement = result.judgements.get(row.metric)
    return judgement is not None and judgement.fails(strict=strict) and not judgement.excused


def _below(
    result: CaseResult, rows: Sequence[Row], tonight: str, *, with_runs: bool
) -> Iterator[Text | Listing]:
    told = {row.metric for row in rows}
    yield from _why(result, told, tonight)
    if result.measurement is not None:
        shown = {row.metric for row in rows if with_runs or not row.status.is_good}
        yield from _runs(result, result.measurement, shown)
    judgements = [
        known.judgement
        for name, known in result.metrics().items()
        if name in told and known.judgement is not None
    ]
    for judgement in judgements:
        if with_runs or not of_judgement(judgement).is_good:
            yield from _rule(judgement)
    yield from _notes(judgements, with_standing=with_runs)


def _why(result: CaseResult, told: Collection[str], tonight: str) -> Iterator[Text]:
    """Yield since when a case is as it is and what came with that, once for all its metrics."""
    lines = []
    for name, known in result.metrics().items():
        explanation, judgement = known.explanation, known.judgement
        if explanation is None or judgement is None or name not in told:
            continue
        if of_judgement(judgement).is_good:
            continue  # a gain has its age in the note that says how to accept it
        lines.append(words.since_line(explanation, tonight))
        suspects = [one for one in explanation.differences if one.came_with_it]
        lines += words.difference_lines(suspects, judgement, most=1)
    yield from (phrase("{}", line) for line in dict.fromkeys(filter(None, lines)))


def _runs(
    result: CaseResult, measurement: Measurement, shown: Collection[str]
) -> Iterator[Text | Listing]:
    """Yield the numbers of the runs, then what kept a run from one."""
    runs, left = listed_runs(measurement)
    more = [phrase("… and {} more", left)] if left else []
    for name in _run_metrics(measurement, result, shown):
        metric = measurement.metric(name)
        pieces = [
            phrase("{}: {}", word(name), word(run_number(run, metric)))
            for name, run in runs
            if name.isdigit()
        ]
        yield Listing(head=phrase("{}", with_unit(metric, "in")), pieces=(*pieces, *more))
    for name, run in runs:
        if run.reason:
            yield phrase("run {}: {}", word(name), texts.in_short(run.reason))
    if left and all(run.reason for _, run in runs):
        yield phrase("… and {} more runs; {} has all of them", left, code("--dlperf-json FILE"))
    read, available = len(measurement.runs), measurement.available_runs
    if available is not None and read < available:
        yield phrase("{} of {} logs were read: they decide", read, available)


def _run_metrics(measurement: Measurement, result: CaseResult, told: Collection[str]) -> list[str]:
    """Name what to show of each run: of a ratio what it is over, of what broke the first metric."""
    known = result.metrics()
    metrics = [known[name].metric for name in told if name in known]
    names = {metric.ratio_of or metric.name for metric in metrics}
    found = [metric.name for metric in measurement.metrics if metric.name in names]
    return found or [metric.name for metric in measurement.metrics[:1] if told]


def _rule(judgement: Judgement) -> Iterator[Text]:
    """Yield the rule's own number where the table shows another, and the accepted one."""
    number, metric = accepted(judgement), judgement.metric
    told = [rule_view(judgement) or ""]
    told += [f"accepted {numbers.number(number, metric.unit)}"] if number is not None else []
    if said := join("; ", told):
        yield phrase("{}: {}", metric.name, said)


def _notes(judgements: Iterable[Judgement], *, with_standing: bool) -> Iterator[Text]:
    """Yield each note once, behind the metrics that have it."""
    notes: dict[str, list[str]] = {}
    for judgement in judgements:
        # Of a ratio that passes, the rows of both ends tell enough.
        ends = () if judgement.verdict is Verdict.PASS else judgement.ends
        # What fails says its reason above, in full; what passes in spite of one says it here.
        is_shift = judgement.verdict is Verdict.ENVIRONMENT_SHIFT
        shifted = [judgement.reason] if is_shift and judgement.reason else []
        standing = judgement.standing_notes if with_standing else ()
        for note in (*shifted, *ends, *judgement.notes, *standing):
            notes.setdefault(texts.in_short(note), []).append(judgement.metric.name)
    for note, names in notes.items():
        yield phrase("{}: {}", ", ".join(names), note)


# ----------------------------------------------------------------------------- all cases


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
                of = (
                    f" of {scaled.ideal_speedup:g} ({percent:.0f} %)" if percent is not None else ""
                )
                name = known.metric.name
                of_other = "" if name == SPEEDUP else f", {name}"
                head = f"{training}{of_other}{scaling_of(scaled)}:"
                pieces.setdefault(head, []).append(
                    phrase("{} {}", word(str(scaled.topology)), word(f"{reached}{of}"))
                )
        for head, told in pieces.items():
            yield Listing(head=phrase("{}", head), pieces=tuple(told))


def is_only_skipped(result: CaseResult) -> bool:
    """Whether a case was skipped, and nothing of it measured."""
    return result.measurement is None and status_of(result) is CaseStatus.SKIPPED


def skip_reasons(skipped: Iterable[CaseResult]) -> list[Text]:
    """Say why cases were skipped, the most frequent first; what differs by the case stands once."""
    found: dict[str, dict[str, str]] = {}
    for result in skipped:
        for judgement in result.judgements.values():
            reason = texts.in_short(judgement.reason or "no reason was given")
            found.setdefault(alike(reason, result.case), {})[result.case.id] = reason
    told = []
    for members in sorted(found.values(), key=len, reverse=True):
        case_id, reason = next(iter(members.items()))
        others = phrase(" and {} more", len(members) - 1) if len(members) > 1 else NOTHING
        said = reason.removeprefix(case_id).lstrip()
        told.append(phrase("skipped: {}{}: {}", case(case_id), others, said))
    return told
