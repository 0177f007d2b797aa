"""One case in words, for all reports: its metrics, since when, what differs, who accepted."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_dlperf.model import numbers
from pytest_dlperf.model.commits import COMMITS_LISTED
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.metric import Better
from pytest_dlperf.report import explanation_words as words
from pytest_dlperf.report import texts
from pytest_dlperf.report.case_status import decisive_metric, metric_words, word_of
from pytest_dlperf.report.families import in_short
from pytest_dlperf.report.figures import (
    accepted,
    difference_percent,
    lost,
    metric_cells,
    rule_view,
    with_unit,
)
from pytest_dlperf.report.pieces import (
    Listing,
    Text,
    case,
    code,
    join,
    number,
    phrase,
    word,
)
from pytest_dlperf.report.runs import RUNS_LISTED, runs_text
from pytest_dlperf.report.session import (
    difference_text,
    difference_texts,
    first_differences,
    side_piece,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from pytest_dlperf.model.judgement import Difference, Judgement
    from pytest_dlperf.model.measurement import Measurement
    from pytest_dlperf.model.results import CaseResult, MetricResult

_SIMPLY: Final = (Verdict.PASS, Verdict.RECORDED)


class Row(Struct, frozen=True, kw_only=True):
    """A row of the summary: a metric of a case, or several at once, and the status of it."""

    metric: str
    """Its name; empty where the case has none."""
    status: Verdict
    cells: dict[str, str]


class DifferenceRow(Struct, frozen=True, kw_only=True):
    """One thing that differs."""

    name: Text
    sides: tuple[Text, ...]
    blame: Text
    """What is said of one that came with the change; nothing of others."""
    line: Text
    """The same in a line, without sides that repeat another."""


class DifferenceTable(Struct, frozen=True, kw_only=True):
    """What differs, alike for some metrics, the most suspicious first."""

    metrics: Text
    """Whose it is; nothing where all share it."""
    sides: tuple[str, ...]
    """Headings of the sides."""
    rows: tuple[DifferenceRow, ...]


class CaseText(Struct, frozen=True):
    """A case in words; each is made when it is asked for."""

    result: CaseResult
    tonight: str
    """When the session began, ISO 8601."""

    @property
    def title(self) -> Text:
        """For instance ``regressed -9.9 % since Tuesday: <case>``."""
        said, metric = words.case_subject(self.result, self.tonight)
        about = phrase("{} of {}" if metric else "{}{}", metric, case(self.result.case.id))
        return phrase("{}: {}", word(str(said)), about)  # a heading is strong as a whole

    @property
    def gaps(self) -> tuple[Text, ...]:
        """What has not been judged of it."""
        return tuple(_gaps(self.result))

    @property
    def measured(self) -> tuple[Text, ...]:
        """A line for each metric that is not good: its verdict, its numbers and its reason."""
        return (*map(_measured, _not_good(self.result)), *self.gaps)

    @property
    def judged(self) -> list[Row]:
        """A row for each judged metric that has a number, tonight or accepted."""
        words = metric_words(self.result)
        return [
            _row(self.result, known.metric.name, *words[known.metric.name])
            for known in in_short(self.result.metrics().values())
            if (one := known.judgement) and (one.measured, one.accepted) != (None, None)
        ]

    @property
    def since(self) -> tuple[Text, ...]:
        """Since when, and what probes on its hosts say; by metric where that differs."""
        found = _not_good(self.result)
        return (
            *_by_metric(found, lambda known: words.since_line(known.explanation, self.tonight)),
            *_by_metric(found, lambda known: words.probed_line(known.explanation)),
        )

    @property
    def found(self) -> tuple[Text, ...]:
        """What hunts have found."""
        every = map(words.found_texts, (one.explanation for one in _not_good(self.result)))
        return tuple(dict.fromkeys(line for lines in every for line in lines))

    @property
    def remarks(self) -> tuple[Text, ...]:
        """Reasons, how the rules see it, and what is worth knowing."""
        return tuple(dict.fromkeys((*self.gaps, *_remarks(self.result))))

    @property
    def accepted(self) -> tuple[Text, ...]:
        """Who accepted the numbers that it was held against."""
        return tuple(_by_metric(_not_good(self.result), lambda it: _accepted(it, self.tonight)))

    @property
    def differences(self) -> tuple[DifferenceTable, ...]:
        """What is not as it was in the last good night, or when the number was accepted."""
        return tuple(_tables(_worst_first(self.result)))

    @property
    def commits_title(self) -> str:
        """What ``commits`` are."""
        known = decisive_metric(self.result)
        return f"Commits that {words.came_with(known.judgement if known else None)}"

    def commits(self, most: int = words.COMMITS_SHOWN) -> tuple[Text, ...]:
        """Return the commits that came with it, at most so many of each checkout."""
        found = (words.commit_texts(one.explanation, most) for one in _worst_first(self.result))
        return tuple(dict.fromkeys(line for lines in found for line in lines))

    @property
    def all_commits(self) -> tuple[Text, ...]:
        """All of them that are known."""
        return self.commits(COMMITS_LISTED)

    def rows(self, *, every: bool = False) -> list[Row]:
        """Choose the metrics that are worth a row, the worst first; or ``every`` judged one.

        Worth a row is what does not simply pass. Of a case of which nothing is, or that broke as a
        whole, the first metric stands for all. The verdict of the last row counts the others.
        """
        result = self.result
        known, verdicts, status = result.metrics(), metric_words(result), result.status
        names = sorted(verdicts, key=[*known, *verdicts].index)
        if not names or status in (Verdict.LOST, Verdict.NOT_MEASURED):
            return [_row(result, next(iter(known), ""), status.value, status)]
        judgements = result.judgements.values()
        if every:
            shown = names
        elif len(set(verdicts.values())) == 1 and all(one.measured is None for one in judgements):
            shown = []  # one cause, and no number of any of them to show
        else:
            shown = [name for name in names if verdicts[name][1] not in _SIMPLY]
        told = {one.metric.name for one in in_short(known[n] for n in shown if n in known)}
        shown = [name for name in shown if name in told or name not in known]
        shown = sorted(shown, key=lambda name: (verdicts[name][1].rank, *_in_family(known, name)))
        names = sorted(names, key=lambda name: verdicts[name][1].rank)
        others = Counter(verdicts[name][0] for name in names if name not in shown)
        is_one = len(names) == 1
        counted = "; ".join(said if is_one else f"{count} {said}" for said, count in others.items())
        if not shown:
            return [_row(result, names[0], counted, status)]
        rows = [_row(result, name, *verdicts[name]) for name in shown]
        rows[-1].cells["verdict"] += f"; {counted}" if counted else ""
        return rows

    def below(self, rows: Sequence[Row], *, every: bool = False) -> tuple[Text | Listing, ...]:
        """Return what stands below ``rows``: since when, the runs, and what is to be noted."""
        return tuple(self._below(rows, every=every)) if rows else ()

    def _below(self, rows: Sequence[Row], *, every: bool) -> Iterator[Text | Listing]:
        told, measurement = {row.metric for row in rows}, self.result.measurement
        known = [one for name, one in self.result.metrics().items() if name in told]
        yield from _why(known, self.tonight)
        with_runs = every
        if measurement is not None:
            with_runs = every or bool(measurement.broken_runs)
            shown = {row.metric for row in rows if with_runs or not row.status.is_good}
            yield from _runs(self.result, measurement, shown)
        judgements = [one.judgement for one in known if one.judgement is not None]
        for judgement in judgements:
            if with_runs or not judgement.status.is_good:
                yield from _rule(judgement)
        yield from _notes(judgements, with_standing=with_runs)


def _in_family(known: Mapping[str, MetricResult], name: str) -> tuple[bool, float]:
    """Order the names of a family behind the other metrics, the largest loss first."""
    if name not in known or not known[name].metric.family:
        return False, 0.0
    return True, -(lost(known[name].judgement) or 0.0)


def has_failure(result: CaseResult, row: Row, *, strict: bool) -> bool:
    """Tell whether a test of a row's metric has failed, and its message says what is wrong."""
    judgement = result.judgements.get(row.metric)
    return judgement is not None and judgement.fails(strict=strict) and not judgement.excused


def _is_not_good(known: MetricResult) -> bool:
    return known.judgement is not None and not known.judgement.status.is_good


def _not_good(result: CaseResult) -> list[MetricResult]:
    return in_short(filter(_is_not_good, result.metrics().values()))


def _worst_first(result: CaseResult) -> list[MetricResult]:
    return sorted(in_short(result.metrics().values()), key=lambda known: not _is_not_good(known))


def _gaps(result: CaseResult) -> Iterator[Text]:
    if not result.is_whole:
        yield phrase("a test of the case was lost with its worker")
    if not result.judgements:
        yield phrase("no test of the case has come to a verdict")
    else:
        for metric in result.unfinished:
            yield phrase("the test of the metric {} has not come to its end", metric)


# ------------------------------------------------------------------------- by metric


def _by_metric(metrics: list[MetricResult], write: Callable[[MetricResult], str]) -> Iterator[Text]:
    """Yield what is written of each metric, once where it is the same for all."""
    lines: dict[str, list[MetricResult]] = {}
    for known in metrics:
        lines.setdefault(write(known), []).append(known)
    for line, members in lines.items():
        if line:
            yield phrase("{}", line) if len(lines) == 1 else phrase("{}: {}", _names(members), line)


def _names(metrics: list[MetricResult]) -> Text:
    return join(", ", (known.metric.name for known in metrics))


def _accepted(known: MetricResult, tonight: str) -> str:
    by = words.accepted_by(known.accepted.acceptance if known.accepted else None, tonight)
    return f"reference accepted {by}" if by else ""


def _tables(metrics: list[MetricResult]) -> Iterator[DifferenceTable]:
    tables: dict[tuple[Difference, ...], list[MetricResult]] = {}
    for known in metrics:
        if known.judgement is not None and known.explanation and known.explanation.differences:
            tables.setdefault(known.explanation.differences, []).append(known)
    for found, members in tables.items():
        told = list(map(words.told_difference, found))
        judgement = members[0].judgement
        if judgement is not None:
            yield DifferenceTable(
                metrics=_names(members) if len(tables) > 1 else Text(),
                sides=words.SIDES,
                rows=tuple(
                    DifferenceRow(
                        name=phrase("{}", code(one.name)),
                        sides=tuple(
                            phrase("{}", side_piece(one.values[side])) for side in words.SIDES
                        ),
                        blame=phrase("{}", words.blame(one, judgement)),
                        line=difference_text(one, judgement),
                    )
                    for one in told
                ),
            )


def _measured(known: MetricResult) -> Text:
    judgement = known.judgement
    if judgement is None:
        return Text()
    reason = texts.in_short(judgement.reason) if judgement.reason else ""
    return join("; ", [_numbers(judgement, known), reason])


def _numbers(judgement: Judgement, known: MetricResult) -> Text:
    metric, measured, decision = judgement.metric, judgement.measured, judgement.decision
    said = phrase("{} {}", metric.name, word(word_of(judgement)))
    if measured is None:
        return said
    parts = [phrase("{}: {}", said, numbers.quantity(measured, metric.unit))]
    if decision is not None:
        difference = numbers.signed_percent(difference_percent(judgement))
        reference = numbers.number(decision.reference, metric.unit)
        parts = [phrase("{}, reference {} ({})", *parts, number(reference), number(difference))]
        parts += [phrase("lower is better")] * (metric.better is Better.LOWER)
    if known.efficiency_percent is not None:
        parts.append(phrase("{} of the ideal", number(numbers.percent(known.efficiency_percent))))
    return join("; ", [*parts, word(rule_view(judgement) or "")])


def _remarks(result: CaseResult) -> Iterator[Text]:
    known = in_short(result.metrics().values())
    judgements = [one.judgement for one in known if one.judgement]
    for judgement in judgements:
        # A log's last lines stand with its run.
        if judgement.reason:
            reason = first_line(judgement.reason).removeprefix(f"{result.case.id}, ")
            yield phrase("{}", reason)
        elif judgement.verdict is Verdict.NO_BASELINE:
            yield phrase(
                "no number is accepted; {} records what is measured",
                code("--dlperf-create-baselines"),
            )
    for judgement in judgements:
        name, compared = judgement.metric.name, [rule_view(judgement) or ""]
        decision = judgement.decision
        if decision is not None and judgement.verdict is Verdict.REGRESSED:
            allowed = numbers.percent(decision.tolerance_percent)
            compared.append(f"a loss of up to {allowed} passes")
        if any(compared):
            yield phrase("{}: {}", name, join("; ", map(word, compared)))
        if not judgement.status.is_good:
            over = judgement.metric.ratio_of or ""
            yield from (phrase("{} {}", over, end) for end in judgement.ends)
            yield from (phrase("note: {}", note) for note in judgement.notes)


def first_line(reason: str) -> str:
    """Cut a reason to its first line, without what announces the lines below it."""
    head, has_tail, _ = reason.partition("\n")
    return head.rpartition("; the log of node")[0] or head if has_tail else head


# ------------------------------------------------------------------------- the summary


def _row(result: CaseResult, name: str, verdict: str, status: Verdict) -> Row:
    cells = {**metric_cells(result, name), "verdict": verdict}
    return Row(metric=name, status=status, cells=cells)


def _why(metrics: Iterable[MetricResult], tonight: str) -> Iterator[Text]:
    """Yield since when a case is as it is and what came with that, once for all its metrics."""
    lines: list[Text] = []
    # A gain has its age in the note that says how to accept it.
    for known in filter(_is_not_good, metrics):
        differences = known.explanation.differences if known.explanation else ()
        suspects = [one for one in differences if one.came_with_it]
        lines.append(phrase("{}", words.since_line(known.explanation, tonight)))
        lines.append(phrase("{}", words.probed_line(known.explanation)))
        lines += words.found_texts(known.explanation)
        lines += first_differences(difference_texts(suspects, known.judgement), 1)
    yield from dict.fromkeys(filter(None, lines))


def _runs(
    result: CaseResult, measurement: Measurement, shown: Collection[str]
) -> Iterator[Text | Listing]:
    """Yield the numbers of the runs, then what kept a run from one."""
    names = _run_metrics(measurement, result, shown)
    found = runs_text(result.case.id, measurement, names, most=RUNS_LISTED)
    left = found.left_out
    more = [phrase("… and {} more", left)] if left else []
    for at, metric in enumerate(found.metrics):
        pieces = [
            phrase("{}: {}", number(run.label), word(run.cells[at]))
            for run in found.runs
            if run.label.isdigit()
        ]
        yield Listing(head=phrase("{}", with_unit(metric, "in")), pieces=(*pieces, *more))
    for run in found.runs:
        if run.reason:
            yield phrase("run {}: {}", number(run.label), run.in_short)
    if left and all(run.reason for run in found.runs):
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
    held, metric = accepted(judgement), judgement.metric
    told = [rule_view(judgement) or ""]
    told += [f"accepted {numbers.number(held, metric.unit)}"] if held is not None else []
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
