"""The summary at the end of a session: a table of the cases, the worst first, and what counts."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from pytest_dlperf.gate.scaling import SUPER_LINEAR
from pytest_dlperf.model import numbers
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.results import CaseResult, merge
from pytest_dlperf.night import explanation_words as words
from pytest_dlperf.night import texts
from pytest_dlperf.night.case_status import (
    CaseStatus,
    case_counts,
    of_judgement,
    status_of,
    worst_first,
)
from pytest_dlperf.night.figures import (
    CHANGE_HEADINGS,
    accepted,
    alike,
    change_row,
    decisive,
    difference_percent,
    listed_runs,
    rule_view,
    run_number,
    with_unit,
)
from pytest_dlperf.night.remarks import suspicion_lines, to_be_expected
from pytest_dlperf.reports.report import Line, Report
from pytest_dlperf.reports.tables import aligned, listed, wrapped
from pytest_dlperf.reports.terminal_table import Row, case_rows, case_table, scaling_lines

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from pytest_dlperf.model.judgement import Judgement
    from pytest_dlperf.model.measurement import Measurement
    from pytest_dlperf.model.results import IgnoredLog, Results, TestRecord
    from pytest_dlperf.reports.report import Note, TestStatus

LETTERS: Final = {
    CaseStatus.IMPROVED: "+",
    CaseStatus.ENVIRONMENT_SHIFT: "~",
    CaseStatus.REGRESSED: "R",
    CaseStatus.INCONCLUSIVE: "?",
    CaseStatus.NO_BASELINE: "N",
    CaseStatus.HUNG: "H",
    CaseStatus.INVALID: "I",
}
"""What pytest prints for a test that ran, by its verdict; for the others what it always prints."""
_RAN: Final = ("passed", "failed", "xfailed", "xpassed")

IGNORED_SHOWN: Final = 20
"""Left-out logs that the terminal lists; the results file has all of them."""
REASONS_SHOWN: Final = 3
"""Different reasons for skipped cases that a session tells that is not asked for all."""


class TerminalReport(Report):
    """A word for each test, and a summary at the session's end."""

    name = "summary"

    def __init__(self, config: Any, *, strict: bool) -> None:
        """Take pytest's configuration, which knows the terminal."""
        self._config = config
        self._strict = strict

    def status(self, record: TestRecord, given: TestStatus) -> TestStatus:
        """Return the verdict instead of "passed" or "failed", with ``-v`` the number too."""
        return verdict_status(record, given, strict=self._strict)

    def summary(self, results: Results, notes: Sequence[Note]) -> Iterator[Line]:
        """Return the table of the cases, what is worth saying of all, the notes, the counts."""
        cases, strict = results.cases, results.strict
        width = self._config.get_terminal_writer().fullwidth
        verbosity = self._config.get_verbosity()
        option = self._config.option
        has_failures = option.tbstyle not in ("no", "line") and not option.no_summary
        yield from summary_lines(
            cases,
            results.ignored_logs,
            tonight=results.started,
            width=width,
            verbosity=verbosity,
            strict=strict,
            with_failures=verbosity > 0 or not has_failures,
        )
        if verbosity >= 0:
            super_linear = 1.0 if verbosity > 0 else SUPER_LINEAR
            for text in suspicion_lines(cases, super_linear=super_linear):
                yield from map(Line, wrapped(text, width, indent=4))
        yield from note_lines(notes, width=width if sys.stdout.isatty() else None)
        if verbosity >= 0:
            is_red = any(status_of(result).fails(strict=strict) for result in cases)
            for text in to_be_expected(cases, with_alarms=is_red or verbosity > 0):
                yield from map(Line, wrapped(text, width, indent=4))
        changes = results.baseline_changes
        # First numbers stand in the table above.
        if verbosity > 0 or any(change.old is not None for change in changes):
            rows = [CHANGE_HEADINGS, *map(change_row, changes)]
            yield from map(Line, aligned(rows, "lllrrrll"))
        yield counts_line(cases, notes, strict=strict, interrupted=results.interrupted)


def verdict_status(record: TestRecord, given: TestStatus, *, strict: bool) -> TestStatus:
    """Say a test's verdict. Its category stays what it is, and with it all that pytest counts."""
    if given.category not in _RAN or not given.letter:
        return given  # the setup of a test that goes on, a repetition, what others invent
    judgement = decisive(record)
    number = _number(record, judgement)
    if judgement is None or judgement.verdict is Verdict.SKIPPED:
        is_skip = judgement is not None and given.category == "failed"
        return replace(given, word=f"{given.word}{' (skipped)' if is_skip else number}")
    passes = judgement.passes(strict=strict)
    if passes and given.category == "failed":
        return replace(given, word=f"{given.word}{number}")  # the test failed, not its number
    status = of_judgement(judgement)
    if given.category in ("xfailed", "xpassed"):
        word, letter = (
            f"{given.word}{'' if passes else f' {judgement.verdict.value}'}",
            given.letter,
        )
        colour = "red" if strict and not passes else "yellow"
    else:
        word = given.word if status is CaseStatus.PASS else status.value.upper()
        letter = LETTERS.get(status, given.letter)
        # A number that was given up for another is good, and still worth a look.
        is_good = status.is_good and status is not CaseStatus.ACCEPTED
        colour = ("green" if is_good else "yellow") if passes else "red"
    return replace(given, letter=letter, word=f"{word}{number}", markup=(colour,))


def _number(record: TestRecord, judgement: Judgement | None) -> str:
    """Write what was measured and how far it lies from what it was held against, if anything."""
    if judgement is None:
        known = merge(CaseResult(case=record.case), record).metrics().get(record.metric)
        is_known = known is not None and known.median is not None
        return f" {numbers.quantity(known.median, known.metric.unit)}" if known and is_known else ""
    if judgement.measured is None:
        return ""
    difference = difference_percent(judgement)
    told = "" if difference is None else f" {numbers.signed_percent(difference)}"
    return f" {numbers.quantity(judgement.measured, judgement.metric.unit)}{told}"


def note_lines(notes: Iterable[Note], *, width: int | None = None) -> Iterator[Line]:
    """Say what was written and what could not be; a line each where no width is given."""
    for note in notes:
        markup = ("red",) if note.is_bad else ()
        text = texts.printable(note.text)
        for line in [text] if width is None else wrapped(text, width, indent=4):
            yield Line(line, markup)


def summary_lines(  # noqa: PLR0913 - what it shows, and how, by name
    results: Sequence[CaseResult],
    ignored_logs: Sequence[IgnoredLog],
    *,
    tonight: str,
    width: int,
    verbosity: int = 0,
    strict: bool = False,
    with_failures: bool = True,
) -> Iterator[Line]:
    """Yield the table of the measured cases, their scaling, what others lack, the logs left out.

    ``verbosity`` -1 has the cases that are not good, without their runs; 0 every measured case,
    with the runs of what is not good; 1 every judged metric; -2 nothing. In a ``strict`` session
    a skipped case is as bad as one that failed. ``tonight`` is when the session began, ISO 8601.
    Without ``with_failures`` what a failure's message says above is not said again below its row.
    """
    judged = [result for result in results if result.judgements or result.measurement]
    skipped = [result for result in judged if _only_skipped(result)]
    is_in_table = strict or verbosity > 0
    shown = worst_first(r for r in judged if is_in_table or not _only_skipped(r))
    if verbosity < 0:
        shown = [r for r in shown if not status_of(r).is_good] if verbosity == -1 else []
    if shown:
        cases = [(result, case_rows(result, every=verbosity > 0)) for result in shown]
        (head, *lines), legend = case_table(cases, width)
        yield from (Line(text, ("bold",)) for text in head)
        left = iter(lines)
        for result, rows in cases:
            for row, lines_of_row in zip(rows, left):  # noqa: B905 - the lines of the next stay
                colour = _colour(row.status, strict=strict)
                yield from (Line(text, (colour,)) for text in lines_of_row)
            if verbosity >= 0:
                told = [row for row in rows if with_failures or not _is_told(result, row, strict)]
                for text in _below(result, told, tonight, width, with_runs=verbosity > 0):
                    yield from map(Line, wrapped(text, width, indent=6))
        if legend and verbosity >= 0:
            yield from (Line(line, ("light",)) for line in wrapped(legend, width, indent=4))
    if verbosity >= 0:
        yield from map(Line, scaling_lines(results, width=width))
        with_all = verbosity > 0 or len(skipped) == len(results)
        yield from _skipped(skipped, width=width, with_all=with_all)
        yield from _ignored(ignored_logs)


def _only_skipped(result: CaseResult) -> bool:
    return result.measurement is None and status_of(result) is CaseStatus.SKIPPED


def _is_told(result: CaseResult, row: Row, strict: bool) -> bool:
    """Whether a failure's message has what there is to say of a row."""
    judgement = result.judgements.get(row.metric)
    return judgement is not None and judgement.fails(strict=strict) and not judgement.excused


def _below(
    result: CaseResult, rows: Sequence[Row], tonight: str, width: int, *, with_runs: bool
) -> Iterator[str]:
    """Yield what is to be said of the rows of a case."""
    if rows:
        broken = result.measurement is not None and result.measurement.broken_runs
        yield from _why(result, {row.metric for row in rows}, tonight)
        yield from _details(result, rows, width, with_runs=with_runs or bool(broken))


def _colour(status: CaseStatus, *, strict: bool) -> str:
    if status.fails(strict=strict):
        return "red"
    return "green" if status.is_good else "yellow"


def _why(result: CaseResult, told: Collection[str], tonight: str) -> Iterator[str]:
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
    yield from (f"    {line}" for line in dict.fromkeys(filter(None, lines)))


def _details(
    result: CaseResult, rows: Sequence[Row], width: int, *, with_runs: bool
) -> Iterator[str]:
    """Yield what stands below a case: the runs of what is not good or of all rows, and notes."""
    measurement = result.measurement
    told = {row.metric for row in rows}
    if measurement is not None:
        runs, left = listed_runs(measurement)
        shown = {row.metric for row in rows if with_runs or not row.status.is_good}
        for name in _run_metrics(measurement, result, shown):
            metric = measurement.metric(name)
            pieces = [f" {name}: {run_number(run, metric)}" for name, run in runs if name.isdigit()]
            more = [f" … and {left} more"] if left else []
            yield from listed(f"    {with_unit(metric, 'in')}", pieces + more, width)
        for name, run in runs:
            if run.reason:
                yield f"    run {name}: {texts.in_short(run.reason)}"
        if left and all(run.reason for _, run in runs):
            yield f"    … and {left} more runs; --dlperf-json FILE has all of them"
        read, available = len(measurement.runs), measurement.available_runs
        if available is not None and read < available:
            yield f"    {read} of {available} logs were read: they decide"
    judgements = [
        known.judgement
        for name, known in result.metrics().items()
        if name in told and known.judgement is not None
    ]
    for judgement in judgements:
        if with_runs or not of_judgement(judgement).is_good:
            yield from _rule(judgement)
    yield from _notes(judgements, with_standing=with_runs)


def _notes(judgements: Iterable[Judgement], *, with_standing: bool) -> Iterator[str]:
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
        yield f"    {', '.join(names)}: {note}"


def _run_metrics(measurement: Measurement, result: CaseResult, told: Collection[str]) -> list[str]:
    """Name what to show of each run: of a ratio what it is over, of what broke the first metric."""
    known = result.metrics()
    metrics = [known[name].metric for name in told if name in known]
    names = {metric.ratio_of or metric.name for metric in metrics}
    found = [metric.name for metric in measurement.metrics if metric.name in names]
    return found or [metric.name for metric in measurement.metrics[:1] if told]


def _rule(judgement: Judgement) -> Iterator[str]:
    """Yield the rule's own number where the table shows another, and the accepted one."""
    number, metric = accepted(judgement), judgement.metric
    told = [view] if (view := rule_view(judgement)) else []
    told += [f"accepted {numbers.number(number, metric.unit)}"] if number is not None else []
    if told:
        yield f"    {metric.name}: {'; '.join(told)}"


def _skipped(skipped: Sequence[CaseResult], *, width: int, with_all: bool) -> Iterator[Line]:
    """Say why cases were skipped; a reason that differs by the case alone stands once."""
    found: dict[str, dict[str, str]] = {}
    for result in skipped:
        for judgement in result.judgements.values():
            reason = texts.in_short(judgement.reason or "no reason was given")
            found.setdefault(alike(reason, result.case), {})[result.case.id] = reason
    told = sorted(found.values(), key=len, reverse=True)
    for members in told if with_all else told[:REASONS_SHOWN]:
        case_id, reason = next(iter(members.items()))
        others = f" and {len(members) - 1} more" if len(members) > 1 else ""
        text = f"skipped: {case_id}{others}: {reason.removeprefix(case_id).lstrip()}"
        yield from (Line(line, ("yellow",)) for line in wrapped(text, width, indent=4))
    if not with_all and len(told) > REASONS_SHOWN:
        yield Line(f"  … and {len(told) - REASONS_SHOWN} more reasons; -rs shows all", ("yellow",))


def _ignored(ignored_logs: Sequence[IgnoredLog]) -> Iterator[Line]:
    if not ignored_logs:
        return
    yield Line(f"logs that were left out: {len(ignored_logs)}", ("yellow",))
    for item in ignored_logs[:IGNORED_SHOWN]:
        yield Line(f"  {texts.printable(item.log)}: {item.reason}")
    more = len(ignored_logs) - IGNORED_SHOWN
    if more > 0:
        yield Line(f"  … and {more} more; --dlperf-json FILE has all of them")


def counts_line(
    results: Sequence[CaseResult],
    notes: Iterable[Note] = (),
    *,
    strict: bool = False,
    interrupted: bool = False,
) -> Line:
    """Count the cases per status, and name other faults; ``interrupted`` is never green."""
    faults = [note.text.partition(":")[0] for note in notes if note.is_bad]
    colours = {_colour(status_of(result), strict=strict) for result in results}
    colours |= {"red"} if faults else {"yellow"} if interrupted else set()
    worst = next(colour for colour in ("red", "yellow", "green") if colour in colours)
    begin = "interrupted: " if interrupted else ""
    failed = f"; failed: {texts.printable(numbers.named(faults, 1))}" if faults else ""
    return Line(f"{begin}{case_counts(results, strict=strict)}{failed}", ("bold", worst))
