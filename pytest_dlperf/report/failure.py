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
from pytest_dlperf.report.facts import Fact, Weight, facts
from pytest_dlperf.report.runs import RUNS_LISTED, RunsText, interleaved_arms, runs_text
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
    judgement, case_id = settled.judgement, settled.input.case.measurement.case_id
    head = headline(judgement, explanation, now, case_id=case_id)
    known = _known(settled, explanation)
    every = (
        *reason_facts(judgement, head, case_id=case_id),
        *(fact for fact in facts(known, now) if fact.label != "reason"),
        *_beside(judgement.metric, settled.input.case),
        *_gone(settled),
    )
    lines = [str(head), *fact_lines(every)]
    metric = judgement.metric.ratio_of or judgement.metric.name
    measured = {end.measurement.case_id: end.measurement for end in settled.input.ends}
    measured |= interleaved_arms(settled.control)
    for name, measurement in measured.items():
        found = runs_text(name, measurement, [metric], most=RUNS_LISTED)
        lines += _run_lines(found, told=judgement.reason or "")
    return "\n".join(lines)


def _known(settled: GateResult, explanation: Explanation | None) -> MetricResult:
    judgement, reference = settled.judgement, settled.input.reference
    known = MetricResult(
        metric=judgement.metric,
        accepted=settled.input.baseline,
        judgement=judgement,
        explanation=explanation,
    )
    if reference is None or judgement.measured is None:
        return known
    ends = (settled.input.case, reference)
    case, over = (Case.from_id(end.measurement.case_id).topology for end in ends)
    ideal = case.world_size / over.world_size
    return replace(known, efficiency_percent=100 * judgement.measured / ideal)


def headline(
    judgement: Judgement, explanation: Explanation | None, now: str, *, case_id: str
) -> Text:
    """Say verdict, difference, age and metric in a line, and what comes next to a cause."""
    subject = words.subject(judgement, explanation, now)
    said = phrase("{}: {}", subject, judgement.metric.name)
    if judgement.reason and not words.moved(judgement):
        reason = _in_head(judgement.reason, case_id)
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
    """Say what the first line has left out of the reason."""
    reason = judgement.reason or ""
    said, _, rest = _in_head(reason, case_id).partition("; ")
    # A reason of several lines ends with those of a log.
    if "\n" not in reason and printing.printable(_in_head(reason, case_id)) in str(head):
        return
    is_begun = "\n" not in reason and str(head).endswith(f"; {printing.printable(said)}")
    label, told = ("more", rest) if is_begun else ("reason", reason)
    yield Fact(label, tuple(phrase("{}", line) for line in told.split("\n")))


def _in_head(reason: str, case_id: str) -> str:
    """Write a reason in one line, without the case, which the test's id names."""
    return printing.in_short(reason).removeprefix(case_id).lstrip(", :")


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
        if (
            metric.family
            or there is None
            or name in (judged.name, judged.ratio_of)
            or not there.accepted
        ):
            continue
        median = case.measurement.samples(name).median
        if median is not None and there.why_incomparable(metric, case.measurement) is None:
            percent = number(numbers.signed_percent(difference_percent(median, there.accepted)))
            amount = number(numbers.quantity(median, metric.unit))
            told.append(phrase("{} {} ({})", name, amount, percent))
    if told:
        yield Fact("also", (join(", ", told),))


def _run_lines(found: RunsText, *, told: str) -> Iterator[str]:
    """List the runs; a reason that stands above is not repeated."""
    for metric, summed_up in zip(found.metrics, found.sums, strict=True):
        yield f"  {found.name}: {metric.name} {summed_up}"
    if found.folder:
        yield f"    logs in {found.folder}"
    for run in found.runs:
        reason = f" ({run.in_short})" if run.reason and run.reason not in told else ""
        yield f"    run {run.label}: {', '.join(run.cells)}{reason}  {run.log}"
    if found.left_out:
        yield f"    … and {found.left_out} more; --dlperf-json FILE has all of them"
