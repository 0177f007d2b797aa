"""The steps of a verdict after its decision: control arm, acceptance, withdrawal, excuse."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from gate_values import (
    EVEN,
    METRIC,
    SINGLE,
    TIME,
    accepted,
    accepted_speedup,
    end,
    interleaved,
    measured,
    mirrored,
)

from pytest_dlperf.gate.control import ControlRuns
from pytest_dlperf.gate.rules import Terms
from pytest_dlperf.gate.verdicts import (
    Asked,
    Question,
    Settled,
    detectable_percent,
    excuse,
    settle,
    withdraw,
)
from pytest_dlperf.model.judgement import Judgement, Verdict
from pytest_dlperf.model.metric import SPEEDUP_METRIC, Better

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_dlperf.model.baseline import Baseline
    from pytest_dlperf.model.metric import Metric

TERMS = Terms(tolerance_percent=5.0)
UPDATE = Asked(updates=True)


def no_control(_: Question) -> ControlRuns:
    raise AssertionError("nobody asked for the control arm")


def judged(level: float, baseline: Baseline | None, asked: Asked) -> Judgement:
    """The verdict on even runs about this level."""
    runs = [level * run / 1000 for run in EVEN]
    return settle(about(runs, baseline), asked, no_control).judgement


def about(runs: Sequence[float], baseline: Baseline | None, metric: Metric = METRIC) -> Question:
    """What to make of these runs."""
    return Question(metric, end(measured(*runs, metric=metric), baseline), TERMS)


@pytest.mark.parametrize("asked", [Asked(creates=True), UPDATE])
def test_a_number_that_is_missing_is_recorded_where_that_was_asked(asked: Asked) -> None:
    found = judged(1000, None, asked)
    assert (found.verdict, found.recorded) == (Verdict.PASS, True)
    assert judged(1000, None, Asked()).verdict is Verdict.NO_BASELINE


def test_a_number_is_replaced_with_update_alone_and_a_lower_one_with_a_reason() -> None:
    baseline = accepted(EVEN)
    better = judged(1100, baseline, UPDATE)
    assert (better.verdict, better.recorded) == (Verdict.IMPROVED, True)
    assert not judged(1100, baseline, Asked(creates=True)).recorded
    lower = judged(900, baseline, UPDATE)
    assert (lower.verdict, lower.recorded) == (Verdict.REGRESSED, False)
    assert "--dlperf-reason" in (lower.refused or "")
    told = judged(900, baseline, replace(UPDATE, reason="a new driver"))
    assert (told.verdict, told.recorded, told.refused) == (Verdict.REGRESSED, True, None)


def test_what_lies_inside_the_tolerance_stays_as_it_is() -> None:
    found = judged(1020, accepted(EVEN), UPDATE)
    assert (found.verdict, found.recorded, found.refused) == (Verdict.PASS, False, None)


@pytest.mark.parametrize(("metric", "sign"), [(METRIC, 1), (TIME, -1)])
def test_a_gain_over_the_last_sessions_alone_is_not_written_down(metric: Metric, sign: int) -> None:
    """The last sessions have become worse by 2 %; tonight is better than they, and as accepted."""
    sessions = [[run - sign * 20 for run in EVEN]] * 6
    baseline = accepted(*sessions, number=1000.0, metric=metric)
    for gain, is_recorded in ((20, False), (60, True)):
        runs = [run + sign * gain for run in EVEN]
        found = settle(about(runs, baseline, metric), UPDATE, no_control).judgement
        assert (found.verdict, found.recorded) == (Verdict.IMPROVED, is_recorded)


def test_runs_that_lie_too_far_apart_are_not_recorded() -> None:
    found = settle(about((1000, 1380), None), Asked(creates=True), no_control).judgement
    assert found.verdict is Verdict.NO_BASELINE
    assert "38.0 % apart" in (found.refused or "")


def test_a_speedup_over_a_device_that_has_become_slower_is_not_accepted() -> None:
    many = end(measured(8800, 8810, 8790), accepted([8000.0] * 3), accepted_speedup(8.0))
    single = end(measured(900, 901, 899, name=SINGLE), accepted([1000.0] * 3))
    question = Question(SPEEDUP_METRIC, many, TERMS, single)
    found = settle(question, UPDATE, no_control).judgement
    assert not found.recorded


def test_the_control_arm_runs_after_the_verdicts_that_were_named() -> None:
    asked = Asked(control_after=frozenset({Verdict.REGRESSED}))
    taken: list[Question] = []

    def run_control(question: Question) -> ControlRuns:
        taken.append(question)
        return ControlRuns(interleaved=(interleaved(900, 900),))

    def settled(level: float) -> Settled:
        return settle(about([level] * 3, accepted([1000.0] * 3)), asked, run_control)

    assert settled(1000).control is None
    slower = settled(900)
    assert taken == [slower.question]
    assert slower.control is not None
    assert slower.judgement.decision is not None
    assert slower.judgement.decision.verdict is Verdict.REGRESSED


def test_what_could_not_be_written_is_withdrawn() -> None:
    first = judged(1000, None, UPDATE)
    assert withdraw(first).verdict is Verdict.NO_BASELINE
    other = judged(1100, accepted(EVEN), UPDATE)
    withdrawn = withdraw(other)
    assert (withdrawn.verdict, withdrawn.recorded) == (Verdict.IMPROVED, False)
    assert withdrawn.reason
    never = judged(1000, accepted(EVEN), UPDATE)
    assert withdraw(never) == never


def test_only_a_failure_is_excused() -> None:
    verdicts = {
        verdict: excuse(Judgement(metric=METRIC, verdict=verdict)).excused
        for verdict in (Verdict.REGRESSED, Verdict.FAILED, Verdict.PASS, Verdict.SKIPPED)
    }
    assert verdicts == {
        Verdict.REGRESSED: True, Verdict.FAILED: True, Verdict.PASS: False, Verdict.SKIPPED: False,
    }  # fmt: skip


def test_noisy_first_runs_tell_what_they_let_see() -> None:
    quiet = detectable_percent(EVEN, 5.0, Better.HIGHER)
    assert 5.0 < (quiet or 0) < 10.0
    runs = (1000.0, 1380.0, 1100.0, 900.0, 1250.0)
    assert (detectable_percent(runs, 60.0, Better.HIGHER) or 0) > 80.0
    assert detectable_percent((1000.0,), 5.0, Better.HIGHER) is None
    assert detectable_percent(runs, 90.0, Better.HIGHER) is None
    assert (detectable_percent(runs, 90.0, Better.LOWER) or 0) > 100.0


def test_a_larger_number_is_accepted_with_a_reason_where_lower_is_better() -> None:
    baseline = accepted(mirrored(EVEN), metric=TIME)

    def settled(level: float, asked: Asked) -> Judgement:
        runs = [level * run / 1000 for run in EVEN]
        return settle(about(runs, baseline, TIME), asked, no_control).judgement

    assert settled(900, UPDATE).recorded
    worse = settled(1100, UPDATE)
    assert (worse.verdict, worse.recorded) == (Verdict.REGRESSED, False)
    assert "--dlperf-reason" in (worse.refused or "")
    assert settled(1100, replace(UPDATE, reason="more samples a step")).recorded


def test_what_is_checked_and_not_compared_asks_for_no_control_and_is_not_recorded() -> None:
    asked = Asked(control_after=frozenset(Verdict), creates=True, updates=True)
    loss = replace(TIME, better=None)
    found = settle(about((2.0, 2.5), None, loss), asked, no_control)
    assert (found.judgement.verdict, found.judgement.recorded) == (Verdict.PASS, False)


# ---------------------------------------------------------------- losses that need confirming

AFTER_FAIL = Asked(control_after=frozenset({Verdict.REGRESSED}))
SMALL = Terms(tolerance_percent=5.0, min_loss_percent=1.2)
QUIET = accepted(*[[1000 + (run - 1000) / 3 for run in EVEN]] * 6)


def small_loss(
    asked: Asked, control: ControlRuns, *, level: float = 983.0, baseline: Baseline = QUIET
) -> Judgement:
    """The verdict on nine runs that lost between 1.2 and 2 %, where a control arm can follow."""
    question = Question(METRIC, end(measured(*[level] * 9), baseline), SMALL)
    return settle(question, asked, lambda _: control).judgement


def test_a_small_loss_is_an_alarm_once_the_control_arm_confirms_it() -> None:
    lost, shifted = (
        ControlRuns(interleaved=(interleaved(983, control),)) for control in (1000, 983)
    )
    assert small_loss(AFTER_FAIL, lost).verdict is Verdict.REGRESSED
    assert small_loss(AFTER_FAIL, shifted).verdict is Verdict.ENVIRONMENT_SHIFT


@pytest.mark.parametrize(
    "silent",
    [ControlRuns(problem="no host is free"), ControlRuns(interleaved=(interleaved(0, 1000),))],
)
def test_a_small_loss_that_nothing_could_confirm_is_no_alarm(silent: ControlRuns) -> None:
    found = small_loss(AFTER_FAIL, silent)
    assert (found.verdict, found.tolerance_percent) == (Verdict.PASS, 2.0)
    assert found.notes[-1] == silent.problem or "control arm says nothing" in found.notes[-1]
    # A larger one is, and so is what the entry itself does not tolerate.
    assert small_loss(AFTER_FAIL, silent, level=970.0).verdict is Verdict.REGRESSED
    own = replace(QUIET, tolerance_percent=1.0)
    assert small_loss(AFTER_FAIL, silent, baseline=own).verdict is Verdict.REGRESSED


def test_a_small_loss_passes_where_no_control_arm_would_follow() -> None:
    assert small_loss(Asked(), ControlRuns()).verdict is Verdict.PASS
