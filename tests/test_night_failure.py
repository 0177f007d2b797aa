"""What a failed test has to say, and how it is printed."""

from pathlib import Path

import pytest
from explained import ACCEPTANCE, DELAY, SINCE_TUESDAY, TORCH
from gate_values import EVEN, METRIC, TIME, accepted, end, judge, measured
from msgspec.structs import replace
from results_makers import STARTED

from pytest_dlperf.gate.rules import Terms
from pytest_dlperf.gate.verdicts import GateInput, GateResult
from pytest_dlperf.model.judgement import Difference, DifferenceKind, Explanation
from pytest_dlperf.model.measurement import Run, RunStatus
from pytest_dlperf.report.facts import Fact, failure_of, why_facts
from pytest_dlperf.report.failure import FailureText, failure_message

GOLDEN = Path(__file__).parent / "data" / "failure.txt"
LOSS = measured(*(0.9 * one for one in EVEN))


def failure(
    measurement,
    explanation,
    *,
    metric=METRIC,
):
    """The failure by runs that were accepted as 1000, by Ana."""
    baseline = replace(accepted(EVEN, metric=metric), acceptance=ACCEPTANCE)
    gate_input = GateInput(metric, end(measurement, baseline), Terms(tolerance_percent=5.0))
    settled = GateResult(
        input=gate_input, judgement=judge(measurement, baseline, tolerance_percent=5.0)
    )
    return failure_of(settled, explanation, cluster="office", tonight=STARTED)


def test_a_failure_has_all_that_is_needed_to_act():
    """Exactly this is printed; the test's id names the case, so the first line does not."""
    runs = tuple(replace(run, log=f"logs/tonight/{run.run}.log") for run in LOSS.runs)
    said = failure_message(failure(replace(LOSS, runs=runs), SINCE_TUESDAY))
    assert said == GOLDEN.read_text(encoding="utf-8").rstrip("\n")


def test_of_a_metric_that_is_better_the_lower_it_is_the_sign_is_the_numbers():
    slower = measured(*(1.06 * one for one in EVEN), metric=TIME)
    said = failure(slower, SINCE_TUESDAY, metric=TIME).head
    assert str(said).startswith("regressed +6.0 % since Tuesday: step_time;")


@pytest.mark.parametrize(
    ("before", "tonight", "news"),
    [
        # Not tonight's commit, for Tuesday's loss.
        ("9f8e7d6c5b4a", "c4196e5a9b78", "a new commit of bench"),
        ("c4196e5a9b78", "c4196e5a9b78+train.py", "uncommitted changes in train.py"),
        ("c4196e5a9b78+lib/a.py", "c4196e5a9b78", "undone changes in lib/a.py"),
        ("9f8e7d6c5b4a+b", "c4196e5a9b78+train.py",
         "a new commit of bench and uncommitted changes in train.py"),
    ],
)  # fmt: skip
def test_the_first_line_says_what_of_a_checkout_is_new(before, tonight, news):
    commit = Difference(
        kind=DifferenceKind.COMMIT, name="working_directory", checkout="bench",
        last_good=before, tonight=tonight, came_with_it=True,
    )  # fmt: skip
    said = failure(LOSS, replace(SINCE_TUESDAY, differences=(commit,))).head
    assert str(said).endswith(f"; {news} came with the loss")


def test_what_was_there_on_a_good_night_is_no_suspect_of_the_first_line():
    known = replace(SINCE_TUESDAY, differences=(TORCH, replace(DELAY, came_with_it=False)))
    assert str(failure(LOSS, known).head) == "regressed -10.0 % since Tuesday: throughput"


def broken(reason):
    whole = measured(*EVEN)
    run = Run(run=6, status=RunStatus.FAILED, reason=reason)
    return failure(replace(whole, runs=(*whole.runs, run)), SINCE_TUESDAY)


def test_a_reason_stands_in_the_first_line_and_below_only_where_that_has_not_all_of_it():
    short = broken("exited with 3")
    assert str(short.head) == "failed since Tuesday: throughput; run 6: exited with 3"
    assert "reason" not in {fact.label for fact in short.facts}
    assert not short.runs[0].runs[-1].reason

    of_a_log = broken("exited with 3\nthe last line\nof a log")
    assert str(of_a_log.head) == "failed since Tuesday: throughput; run 6: exited with 3 of a log"
    assert of_a_log.facts[0].label == "reason"
    first, *lines = map(str, of_a_log.facts[0].lines)
    assert first.endswith("run 6: exited with 3")
    assert lines == ["the last line", "of a log"]

    with_remedy = broken(f"no logs of it; give {'them ' * 50}")
    assert str(with_remedy.head) == "failed since Tuesday: throughput; run 6: no logs of it"
    assert with_remedy.facts[0] == Fact.of("more", f"give {'them ' * 50}")

    long = broken(f"exited with {'3' * 300}")
    assert str(long.head).endswith("3...")
    assert str(long.facts[0].lines[0]).endswith("3" * 300)


def test_a_text_of_its_own_is_followed_by_since_when():
    judgement = judge(measured(900.0), accepted(EVEN), tolerance_percent=5.0)
    assert list(why_facts(judgement, None, STARTED)) == []
    [since] = why_facts(judgement, Explanation(last_good=SINCE_TUESDAY.last_good), STARTED)
    assert since == Fact.of("last good", "Monday 2026-11-16, commit 9f8e7d6")


def test_no_line_of_it_is_a_command_to_a_ci():
    odd = replace(DELAY, name="::error::x", tonight="a\n::error::y ##[error]z")
    run = Run(
        run=6, status=RunStatus.FAILED, reason="::error::x\n##[error]y", log="::a/##[error]z\x1b"
    )
    for measurement in (measured(900.0), replace(LOSS, runs=(*LOSS.runs, run))):
        said = failure_message(failure(measurement, replace(SINCE_TUESDAY, differences=(odd,))))
        text = str(FailureText(said, ("test_x.py", 3, "test_x")))
        assert "##[" not in text
        assert "\x1b" not in text
        assert not [line for line in text.split("\n") if line.lstrip().startswith("::")]
