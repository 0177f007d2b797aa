"""The message of a test that fails: all that a reader needs to act on, without another file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.gate.inputs import MeasuredCase
from pytest_dlperf.gate.verdicts import GateResult
from pytest_dlperf.model import numbers
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.judgement import DifferenceKind, Explanation, Judgement
from pytest_dlperf.model.metric import Metric
from pytest_dlperf.model.results import MetricResult
from pytest_dlperf.model.statistics import difference_percent
from pytest_dlperf.report import printing, words
from pytest_dlperf.report.facts import Fact, Weight, facts, reason_beside
from pytest_dlperf.report.runs import RUNS_LISTED, interleaved_arms, runs_text, summed_up
from pytest_dlperf.report.text import Text, code, join, number, phrase, word

TEXTS_SHOWN: Final = 5
"""Texts of a fact that a message lists; the results file has all of them."""
LABEL: Final = 10
"""Columns of a label."""
_LONGEST_REASON: Final = 200
"""Characters of a reason in the first line."""


class _Crash(Struct, frozen=True):
    """The place and text of a failure, for pytest's short summary, JUnit and annotations."""

    path: str
    lineno: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.lineno}: {self.message}"


class FailureText:
    """A failure's message as pytest's reports take it: its first line alone, or as a whole."""

    def __init__(
        self, text: str, location: tuple[str, int | None, str], judgement: Judgement | None = None
    ) -> None:
        self.gist = "" if judgement is None else words.moved(judgement) or judgement.verdict.value
        """How far the number has moved, or the verdict: what has room before a test's name."""
        # A log's lines stand in it, and a line may be a command to what runs the session.
        self._text = text = printing.plain(text)
        path, line, _ = location
        self.reprcrash = _Crash(path, (line or 0) + 1, text.partition("\n")[0])

    def __str__(self) -> str:
        return self._text

    def toterminal(self, writer: Any) -> None:
        """Print the whole message, the verdict so that it is seen."""
        verdict, _, rest = self._text.partition("\n")
        writer.line(verdict, red=True, bold=True)
        if rest:
            writer.line(rest)


def failure_message(settled: GateResult, explanation: Explanation | None, now: str) -> str:
    """Write a verdict: the first line, what there is to know, then the runs and their logs.

    The first line is for pytest's short summary, JUnit and the like, where the test's id stands
    before it: it leaves out the case. ``now`` is when the session began, ISO 8601.
    """
    judgement, given = settled.judgement, settled.input
    case_id = given.case.measurement.case_id
    known = MetricResult(
        metric=judgement.metric,
        accepted=given.baseline,
        judgement=judgement,
        explanation=explanation,
    )
    if given.reference is not None and judgement.measured is not None:
        over = Case.from_id(given.reference.measurement.case_id).topology
        ideal = Case.from_id(case_id).topology.world_size / over.world_size
        known = replace(known, efficiency_percent=100 * judgement.measured / ideal)
    head = headline(judgement, explanation, now, case_id=case_id)
    every = (
        *reason_facts(judgement, head, case_id=case_id),
        *(fact for fact in facts(known, now) if fact.label != "reason"),
        *_beside(judgement.metric, given.case),
        *_gone(settled),
    )
    lines = [str(head), *fact_lines(every)]
    metric = judgement.metric.ratio_of or judgement.metric.name
    measured = {end.measurement.case_id: end.measurement for end in given.ends}
    measured |= interleaved_arms(settled.control)
    for name, measurement in measured.items():
        found = runs_text(name, measurement, [metric], most=RUNS_LISTED)
        lines += [f"  {name}: {it.metric.name} {summed_up(it)}" for it in found.samples]
        lines += [f"    logs in {found.folder}"] * bool(found.folder)
        for one in found.runs:
            # A reason that stands above is not repeated.
            reason = one.run.reason
            is_told = not reason or reason in (judgement.reason or "")
            why = "" if is_told or not reason else f" ({printing.in_short(reason)})"
            lines.append(f"    run {one.label}: {', '.join(one.cells)}{why}  {one.log}")
        if found.left_out:
            lines.append(f"    … and {found.left_out} more; --dlperf-json FILE has all of them")
    return "\n".join(lines)


def headline(
    judgement: Judgement, explanation: Explanation | None, now: str, *, case_id: str
) -> Text:
    """Say verdict, difference, age and metric in a line, and what comes next to a cause."""
    subject = words.subject(judgement, explanation, now)
    said = phrase("{}: {}", subject, judgement.metric.name)
    if judgement.reason and not words.moved(judgement):
        reason = reason_beside(judgement, case_id)
        if len(reason) > _LONGEST_REASON:
            # A remedy follows the fault.
            reason = printing.cut(reason.partition("; ")[0], _LONGEST_REASON)
        return phrase("{}; {}", said, reason)
    suspect = explanation.differences[0] if explanation and explanation.differences else None
    if suspect is None or not suspect.came_with_it:
        return said
    # The commit of now may be a later one than that which it came with.
    if suspect.kind is DifferenceKind.COMMIT:
        what = phrase("{}", code(words.news(suspect)))
    else:
        now_value = words.side_values(suspect)[-1]
        what = phrase("{} {}", code(words.difference_name(suspect)), words.side_piece(now_value))
    return phrase("{}; {} {}", said, what, word(words.came_with(judgement)))


def reason_facts(judgement: Judgement, head: Text, *, case_id: str) -> Iterator[Fact]:
    """Yield the reason, unless the first line has all of it."""
    reason = judgement.reason or ""
    # A reason of several lines ends with those of a log.
    if "\n" in reason or printing.printable(reason_beside(judgement, case_id)) not in str(head):
        yield Fact("reason", tuple(phrase("{}", line) for line in reason.split("\n")))


def why_facts(judgement: Judgement, explanation: Explanation | None, now: str) -> Iterator[Fact]:
    """Yield what stands below a message of other words: since when, and what differs."""
    known = MetricResult(metric=judgement.metric, judgement=judgement, explanation=explanation)
    for fact in facts(known, now):
        if fact.weight is Weight.BRIEF and fact.label != "reason":
            yield fact


def fact_lines(every: Iterable[Fact]) -> Iterator[str]:
    """Write facts below a message, their labels in a column."""
    for fact in every:
        # The end of a log stands as it is.
        shown = fact.texts if fact.label == "reason" else fact.first(TEXTS_SHOWN)
        for at, text in enumerate(shown):
            yield f"  {'' if at else fact.label:{LABEL}} {text}"


def _gone(settled: GateResult) -> Iterator[Fact]:
    """Say where an accepted name stands that no run has any more."""
    metric, measurement = settled.judgement.metric, settled.input.case.measurement
    baseline = settled.input.baseline
    if metric.family is None or baseline is None:
        return
    has_others = any(run.metrics for run in measurement.runs)
    if has_others and not measurement.samples(metric.name).values:
        text = "if it is gone for good, delete its number: {}"
        yield Fact("delete", (phrase(text, code(baseline.place)),))


def _beside(judged: Metric, case: MeasuredCase) -> Iterator[Fact]:
    """Say how far the case's other metrics moved: what moves together often has one cause."""
    told = []
    for metric in case.measurement.metrics:
        name, there = metric.name, case.baselines.get(metric.name)
        # A family would be a page; the names that fail stand in the note.
        is_told = metric.family or name in (judged.name, judged.ratio_of)
        median = case.measurement.samples(name).median
        if is_told or there is None or not there.accepted or median is None:
            continue
        if there.why_incomparable(metric, case.measurement) is None:
            percent = number(numbers.signed_percent(difference_percent(median, there.accepted)))
            amount = number(numbers.quantity(median, metric.unit))
            told.append(phrase("{} {} ({})", name, amount, percent))
    if told:
        yield Fact("also", (join(", ", told),))
