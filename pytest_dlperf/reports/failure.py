"""The message of a test that fails: the verdict first, then the numbers, then the logs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_dlperf.model.judgement import Quantity, Verdict
from pytest_dlperf.model.measurement import RunStatus
from pytest_dlperf.reports import numbers
from pytest_dlperf.reports.figures import (
    difference_percent,
    interleaved_arms,
    log_folder,
    named_runs,
    rule_view,
    summed_up,
    writer,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_dlperf.gate.verdicts import Settled
    from pytest_dlperf.model.judgement import Judgement
    from pytest_dlperf.model.measurement import Measurement


@dataclass(frozen=True, slots=True)
class _Crash:
    """The place and text of a failure, for pytest's short summary, JUnit and annotations."""

    path: str
    lineno: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.lineno}: {self.message}"


class FailureText:
    """A failure's message as pytest's reports take it: its first line alone, or as a whole."""

    def __init__(self, text: str, location: tuple[str, int | None, str]) -> None:
        """Keep the text; ``location`` is the test's: file, line from 0 on, and name."""
        # A log's lines stand in it, and a line may be a command to what runs the session.
        self._text = text = numbers.inert(text)
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


def failure_message(settled: Settled, *, cluster: str) -> str:
    """Say all that a reader needs to act on a verdict, without ``-vv`` or another file."""
    judgement, question = settled.judgement, settled.question
    measurement = question.case.measurement
    lines = [f"{judgement.verdict.value}: {judgement.quantity.value} of {measurement.case_id}"]
    if judgement.reason:
        lines.append(f"  reason     {numbers.in_full(judgement.reason, 15)}")
    lines += _comparison(judgement, measurement, cluster)
    lines += [f"  throughput {numbers.in_full(end, 13)}" for end in judgement.ends]
    lines += [f"  note       {numbers.in_full(note, 13)}" for note in judgement.notes]
    lines += _way_out(judgement)
    interleaved = {
        both.candidate.case_id: both
        for both in (settled.control.interleaved if settled.control else ())
    }
    for measured in (end.measurement for end in question.ends):
        lines += _runs(measured, measured.case_id, told=judgement.reason or "")
        for name, arm in interleaved_arms(interleaved.get(measured.case_id)):
            lines += _runs(arm, name, told="")
    return "\n".join(lines)


def _comparison(judgement: Judgement, measurement: Measurement, cluster: str) -> Iterator[str]:
    written = writer(judgement.quantity)
    unit = f" {measurement.unit}" if judgement.quantity is Quantity.THROUGHPUT else "x"
    if judgement.measured is not None:
        yield f"  measured   {written(judgement.measured)}{unit} ({measurement.estimator.value})"
    if judgement.accepted is not None:
        yield from _judged(judgement, written, unit, cluster)
    elif judgement.verdict is Verdict.NO_BASELINE and judgement.reason is None:
        yield (
            f"  baseline   cluster {cluster} has none for this case; "
            "--dlperf-create-baselines records what is measured and passes"
        )


def _judged(
    judgement: Judgement, written: Callable[[float], str], unit: str, cluster: str
) -> Iterator[str]:
    """Say what was compared with what, and how small a change is found."""
    accepted, reference = judgement.accepted, judgement.reference
    if accepted is None or reference is None or judgement.measured is None:
        return
    allowed = judgement.tolerance_percent
    tolerance = f", tolerance {allowed:g} %" if allowed is not None else ""
    view = rule_view(judgement)
    of = "" if reference == accepted else ", of the last sessions"
    difference = numbers.signed_percent(difference_percent(judgement))
    limit = "" if view else tolerance
    yield f"  reference  {written(reference)}{unit} of cluster {cluster}{of}: {difference}{limit}"
    if reference != accepted:
        from_accepted = numbers.signed_percent((judgement.measured / accepted - 1) * 100)
        yield f"  accepted   {written(accepted)}{unit}: {from_accepted}"
    if view is not None:
        is_decided = judgement.verdict is not Verdict.INCONCLUSIVE and allowed is not None
        limit = f"; a loss of up to {allowed:.1f} % passes" if is_decided else ""
        yield f"  compared   {view}{limit}"
    if judgement.rule is not None:
        yield f"  gate       {judgement.rule.value}: {sees(judgement)}"


def sees(judgement: Judgement) -> str:
    """Say the minimum detectable change."""
    visible = judgement.min_detectable_percent
    if visible is None:
        return "what it sees cannot be said from so few runs"
    if visible >= 100:  # noqa: PLR2004 - percent
        return "sees no loss at all: the runs differ too much"
    return f"sees a drop of {visible:.1f} % or more, 9 times out of 10"


def _way_out(judgement: Judgement) -> Iterator[str]:
    is_lower = (judgement.difference_percent or 0.0) < 0
    if is_lower and judgement.verdict in (Verdict.REGRESSED, Verdict.ENVIRONMENT_SHIFT):
        yield (
            "  accept     if this is how fast it is from now on: --dlperf-update-baselines "
            "--dlperf-reason 'TEXT'"
        )


def _runs(measurement: Measurement, name: str, *, told: str) -> Iterator[str]:
    """List the runs with their logs; a reason that stands above is not repeated."""
    yield f"  {name}: {summed_up(measurement)}"
    folder = log_folder(measurement)
    if folder:
        yield f"    logs in {numbers.printable(folder)}"
    for label, run in named_runs(measurement):
        log = (run.log or "").removeprefix(folder)
        ok = run.status is RunStatus.OK
        found = numbers.throughput(run.throughput) if ok else run.status.value
        new = run.reason and run.reason not in told
        reason = f" ({numbers.in_short(run.reason or '')})" if new else ""
        yield f"    run {label}: {found}{reason}  {numbers.printable(log)}"
