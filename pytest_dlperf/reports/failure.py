"""The message of a test that fails: the verdict first, then the numbers, then the logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from pytest_dlperf.model import numbers
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.judgement import DifferenceKind, Verdict
from pytest_dlperf.model.statistics import difference_percent
from pytest_dlperf.night import explanation_words as words
from pytest_dlperf.night import texts
from pytest_dlperf.night.figures import (
    interleaved_arms,
    listed_runs,
    log_folder,
    rule_view,
    run_number,
    summed_up,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_dlperf.gate.verdicts import GateInput, GateResult, MeasuredCase
    from pytest_dlperf.model.judgement import Explanation, Judgement
    from pytest_dlperf.model.measurement import Measurement
    from pytest_dlperf.model.metric import Metric

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
        """Keep the text; ``location`` is the test's: file, line from 0 on, and name."""
        self.gist = "" if judgement is None else words.moved(judgement) or judgement.verdict.value
        """How far the number has moved, or the verdict: what has room before a test's name."""
        # A log's lines stand in it, and a line may be a command to what runs the session.
        self._text = text = texts.plain(text)
        path, line, _ = location
        self.reprcrash = _Crash(path, (line or 0) + 1, text.partition("\n")[0])

    def __str__(self) -> str:
        """Return the whole message."""
        return self._text

    def toterminal(self, writer: Any) -> None:
        """Print the whole message, the verdict so that it is seen."""
        verdict, _, rest = self._text.partition("\n")
        writer.line(verdict, red=True, bold=True)
        if rest:
            writer.line(rest)


def failure_message(
    result: GateResult, explanation: Explanation | None, *, cluster: str, tonight: str
) -> str:
    """Say all that a reader needs to act on a verdict, without ``-vv`` or another file.

    The first line is for pytest's short summary, JUnit and the like, where the test's id stands
    before it: it leaves out the case. ``tonight`` is when the session began, ISO 8601.
    """
    judgement, gate_input = result.judgement, result.input
    metric = judgement.metric
    lines = [headline(judgement, explanation, tonight, case_id=gate_input.case.measurement.case_id)]
    reason = judgement.reason or ""
    # A reason of several lines ends with those of a log.
    if "\n" in reason or _in_head(reason, gate_input.case.measurement.case_id) not in lines[0]:
        lines.append(f"  reason     {texts.in_full(reason, 15)}")
    lines += why_lines(judgement, explanation, tonight)
    lines += _comparison(result, cluster, tonight)
    lines += _scaling(judgement, gate_input)
    lines += [f"  {metric.ratio_of:10} {texts.in_full(end, 13)}" for end in judgement.ends]
    lines += _beside(metric, gate_input.case)
    lines += [f"  note       {texts.in_full(note, 13)}" for note in judgement.notes]
    lines += _way_out(judgement)
    interleaved = {
        both.candidate.case_id: both
        for both in (result.control.interleaved if result.control else ())
    }
    of_runs = metric.ratio_of or metric.name
    for measured in (end.measurement for end in gate_input.ends):
        lines += _runs(measured, measured.case_id, of_runs, told=judgement.reason or "")
        for name, arm in interleaved_arms(interleaved.get(measured.case_id)):
            lines += _runs(arm, name, of_runs, told="")
    return "\n".join(lines)


def headline(
    judgement: Judgement, explanation: Explanation | None, tonight: str, *, case_id: str
) -> str:
    """Say verdict, difference, age and metric in a line, and what comes next to a cause."""
    said = f"{words.subject(judgement, explanation, tonight)}: {judgement.metric.name}"
    if judgement.reason and not words.moved(judgement):
        return f"{said}; {texts.cut(_in_head(judgement.reason, case_id), _LONGEST_REASON)}"
    suspect = explanation.differences[0] if explanation and explanation.differences else None
    if suspect is None or not suspect.came_with_it:
        return said
    told = words.told_difference(suspect)
    # Tonight's commit may be a later one than that which it came with.
    is_commit = suspect.kind is DifferenceKind.COMMIT
    what = f"a new {told.name}" if is_commit else f"{told.name} {told.tonight}"
    return f"{said}; {what} {words.came_with(judgement)}"


def _in_head(reason: str, case_id: str) -> str:
    """Write a reason in one line, without the case, which the test's id names."""
    return texts.in_short(reason).removeprefix(case_id).lstrip(", :")


def why_lines(judgement: Judgement, explanation: Explanation | None, tonight: str) -> Iterator[str]:
    """Say below a message since when it is so, and what differs."""
    since = words.since_line(explanation, tonight)
    labels = ("last good", "noted")
    label = next((label for label in labels if since.startswith(f"{label} ")), "since")
    if since:
        yield f"  {label:10} {since.removeprefix(f'{label} ')}"
    differences = explanation.differences if explanation else ()
    for at, line in enumerate(words.difference_lines(differences, judgement)):
        yield f"  {'' if at else 'differs':10} {line}"
    for at, commit in enumerate(words.told_commits(explanation)):
        yield f"  {'' if at else 'commits':10} {commit.plain}"


def _comparison(result: GateResult, cluster: str, tonight: str) -> Iterator[str]:
    judgement, measurement = result.judgement, result.input.case.measurement
    metric = judgement.metric
    if judgement.measured is not None:
        better = f"; {metric.better.value} is better" if metric.better else ""
        measured = numbers.quantity(judgement.measured, metric.unit)
        yield f"  measured   {measured} ({measurement.estimator.value}{better})"
    if judgement.accepted is not None:
        yield from _judged(result, cluster, tonight)
    elif judgement.verdict is Verdict.NO_BASELINE and judgement.reason is None:
        yield (
            f"  baseline   cluster {cluster} has none of this metric of this case; "
            "--dlperf-create-baselines records what is measured and passes"
        )


def _judged(result: GateResult, cluster: str, tonight: str) -> Iterator[str]:
    """Say what was compared with what, who accepted that, and how small a change is found."""
    judgement = result.judgement
    accepted, reference = judgement.accepted, judgement.reference
    if accepted is None or reference is None or judgement.measured is None:
        yield from _accepted(result, tonight)
        return
    unit, allowed = judgement.metric.unit, judgement.tolerance_percent
    tolerance = f", tolerance {allowed:g} %" if allowed is not None else ""
    view = rule_view(judgement)
    of = "" if reference == accepted else ", of the last sessions"
    held = f"{numbers.quantity(reference, unit)} of cluster {cluster}{of}"
    yield f"  reference  {held}: {_how_far(judgement, reference)}{'' if view else tolerance}"
    yield from _accepted(result, tonight)
    if view is not None:
        is_decided = judgement.verdict is not Verdict.INCONCLUSIVE and allowed is not None
        limit = f"; a loss of up to {numbers.percent(allowed)} passes" if is_decided else ""
        yield f"  compared   {view}{limit}"
    if judgement.rule is not None:
        yield f"  gate       {judgement.rule.value}: {sees(judgement)}"


def _accepted(result: GateResult, tonight: str) -> Iterator[str]:
    """Say the accepted number where tonight was held against another, and who accepted it."""
    judgement, baseline = result.judgement, result.input.baseline
    accepted = judgement.accepted
    by = words.accepted_by(baseline.acceptance if baseline else None, tonight)
    is_other = accepted is not None and judgement.reference not in (None, accepted)
    number = ""
    if accepted is not None and is_other:
        far = "" if judgement.measured is None else f": {_how_far(judgement, accepted)}"
        number = f"{numbers.quantity(accepted, judgement.metric.unit)}{far}"
    if number or by:
        yield f"  accepted   {'; '.join(filter(None, (number, by)))}"


def _scaling(judgement: Judgement, gate_input: GateInput) -> Iterator[str]:
    """Say how much of the ideal a ratio is, and over which topology."""
    if gate_input.reference is None or judgement.measured is None:
        return
    case, over = (Case.from_id(end.measurement.case_id) for end in gate_input.ends)
    ideal = case.topology.ideal_speedup(over.topology)
    efficiency = numbers.percent(100 * judgement.measured / ideal)
    yield (
        f"  scaling    {efficiency} of the ideal {ideal:g} over {over.topology}, "
        f"{case.scaling.value} scaling"
    )


def _how_far(judgement: Judgement, held: float) -> str:
    """Say how far the measured number lies from another, and which way that is."""
    if judgement.measured is None or not held:
        return numbers.ABSENT
    percent = difference_percent(judgement.measured, held)
    told, better = numbers.signed_percent(percent), judgement.metric.better
    if told == "+0.0 %" or better is None:
        return told
    word = "better" if percent * better.sign > 0 else "worse"
    return f"{word} by {numbers.percent(abs(percent))}"


def sees(judgement: Judgement) -> str:
    """Say the minimum detectable change."""
    visible = judgement.min_detectable_percent
    if visible is None:
        return "what it sees cannot be said from so few runs"
    if visible >= 100:  # noqa: PLR2004 - percent
        return "sees no loss at all: the runs differ too much"
    return f"sees a loss of {numbers.percent(visible)} or more, 9 times out of 10"


def _way_out(judgement: Judgement) -> Iterator[str]:
    is_worse = (judgement.loss_percent or 0.0) > 0
    if is_worse and judgement.verdict in (Verdict.REGRESSED, Verdict.ENVIRONMENT_SHIFT):
        yield (
            "  accept     if this is how it is from now on: --dlperf-update-baselines "
            "--dlperf-reason 'TEXT'"
        )


def _beside(judged: Metric, case: MeasuredCase) -> Iterator[str]:
    """Say how far the case's other metrics moved: what moves together often has one cause."""
    told = []
    for metric in case.measurement.metrics:
        name, there = metric.name, case.baselines.get(metric.name)
        if there is None or name in (judged.name, judged.ratio_of) or not there.accepted:
            continue
        median = case.measurement.samples(name).median
        if median is not None and there.why_incomparable(metric, case.measurement) is None:
            moved = numbers.signed_percent(difference_percent(median, there.accepted))
            told.append(f"{name} {numbers.quantity(median, metric.unit)} ({moved})")
    if told:
        yield f"  beside     {', '.join(told)}"


def _runs(measurement: Measurement, name: str, metric: str, *, told: str) -> Iterator[str]:
    """List a metric of the runs with their logs; a reason that stands above is not repeated."""
    samples = measurement.samples(metric)
    yield f"  {name}: {metric} {summed_up(samples)}"
    folder = log_folder(measurement)
    if folder:
        yield f"    logs in {texts.printable(folder)}"
    runs, left = listed_runs(measurement)
    for label, run in runs:
        log = (run.log or "").removeprefix(folder)
        new = run.reason and run.reason not in told
        reason = f" ({texts.in_short(run.reason or '')})" if new else ""
        found = run_number(run, samples.metric)
        yield f"    run {label}: {found}{reason}  {texts.printable(log)}"
    if left:
        yield f"    … and {left} more; --dlperf-json FILE has all of them"
