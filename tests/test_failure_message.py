"""The message of a test that fails: what its first line says, and what stands below it."""

from __future__ import annotations

from explained import ACCEPTANCE, DELAY, SINCE_TUESDAY, TORCH
from gate_values import CASE, EVEN, METRIC, TIME, accepted, end, judge, measured
from msgspec.structs import replace
from results_makers import STARTED

from pytest_dlperf.gate.rules import Terms
from pytest_dlperf.gate.verdicts import GateInput, GateResult
from pytest_dlperf.model.judgement import DifferenceKind, Explanation
from pytest_dlperf.model.measurement import Measurement, Run, RunStatus
from pytest_dlperf.model.metric import Metric
from pytest_dlperf.reports.failure import FailureText, failure_message, why_lines


def message(
    measurement: Measurement, explanation: Explanation | None, *, metric: Metric = METRIC
) -> list[str]:
    """The lines of a failure by runs that were accepted as 1000, by Ana."""
    baseline = replace(accepted(EVEN, metric=metric), acceptance=ACCEPTANCE)
    gate_input = GateInput(metric, end(measurement, baseline), Terms(tolerance_percent=5.0))
    settled = GateResult(
        input=gate_input, judgement=judge(measurement, baseline, tolerance_percent=5.0)
    )
    return failure_message(settled, explanation, cluster="office", tonight=STARTED).split("\n")


def test_it_begins_with_how_much_and_since_when_and_tells_what_differs_and_who() -> None:
    lines = message(measured(*(0.9 * one for one in EVEN)), SINCE_TUESDAY)

    assert lines[0] == (
        "regressed -10.0 % since Tuesday: throughput; --step-delay-ms 1000 came with the loss"
    )
    assert lines[1:4] == [
        (
            "  since      Tuesday 2026-11-17, commit 1a2b3c4; last good Monday 2026-11-16, "
            "commit 9f8e7d6, 4 nights ago"
        ),
        "  differs    --step-delay-ms  accepted not set, tonight 1000   came with the loss",
        "             software torch   accepted 2.12, last good 2.13, tonight 2.14",
    ]
    [who] = [line for line in lines if line.startswith("  accepted ")]
    assert who.split(maxsplit=1)[1] == (
        "by Ana Diaz on Tuesday 2026-11-03, commit abcdef1: the new loader"
    )
    # The test's id names the case; below, the runs are named by it.
    assert [CASE in line for line in lines].count(True) == 1


def test_of_a_metric_that_is_better_the_lower_it_is_the_sign_is_the_numbers() -> None:
    slower = measured(*(1.06 * one for one in EVEN), metric=TIME)
    assert message(slower, SINCE_TUESDAY, metric=TIME)[0].startswith(
        "regressed +6.0 % since Tuesday: step_time;"
    )


def test_the_first_line_does_not_blame_tonights_commit_for_tuesdays_loss() -> None:
    commit = replace(DELAY, kind=DifferenceKind.COMMIT, name="suite", tonight="c4196e5a9b78")
    first = message(
        measured(*(0.9 * one for one in EVEN)), replace(SINCE_TUESDAY, differences=(commit,))
    )[0]
    assert first.endswith("; a new commit of suite came with the loss")


def test_what_was_there_on_a_good_night_is_no_suspect_of_the_first_line() -> None:
    known = replace(SINCE_TUESDAY, differences=(TORCH, replace(DELAY, came_with_it=False)))
    assert message(measured(*(0.9 * one for one in EVEN)), known)[0] == (
        "regressed -10.0 % since Tuesday: throughput"
    )


def test_what_has_no_number_has_its_reason_in_the_first_line() -> None:
    whole = measured(*EVEN)
    broken = Run(run=6, status=RunStatus.FAILED, reason="exited with 3\nthe last line\nof a log")
    lines = message(replace(whole, runs=(*whole.runs, broken)), SINCE_TUESDAY)
    assert lines[0] == "failed since Tuesday: throughput; run 6: exited with 3 of a log"
    assert any(line.endswith("came with it") for line in lines[1:])


def test_a_text_of_its_own_is_followed_by_since_when() -> None:
    judgement = judge(measured(900.0), accepted(EVEN), tolerance_percent=5.0)
    assert list(why_lines(judgement, None, STARTED)) == []
    [since] = why_lines(judgement, Explanation(last_good=SINCE_TUESDAY.last_good), STARTED)
    assert since == "  last good  Monday 2026-11-16, commit 9f8e7d6"


def test_no_line_of_it_is_a_command_to_a_ci() -> None:
    odd = replace(DELAY, name="::error::x", tonight="a\n::error::y ##[error]z")
    lines = message(measured(900.0), replace(SINCE_TUESDAY, differences=(odd,)))
    text = str(FailureText("\n".join(lines), ("test_x.py", 3, "test_x")))
    assert "##[" not in text
    assert not [line for line in text.split("\n") if line.lstrip().startswith("::")]
