"""The steps of a verdict after its decision: control arm, acceptance, withdrawal, excuse."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from gate_values import EVEN, SINGLE, accepted, interleaved, measured

from pytest_dlperf.gate.control import ControlRuns
from pytest_dlperf.gate.rules import Terms
from pytest_dlperf.gate.verdicts import (
    Asked,
    End,
    Question,
    Settled,
    detectable_percent,
    excuse,
    settle,
    withdraw,
)
from pytest_dlperf.model.judgement import Judgement, Quantity, Verdict

if TYPE_CHECKING:
    from pytest_dlperf.model.baseline import Baseline

TERMS = Terms(tolerance_percent=5.0)
UPDATE = Asked(updates=True)


def no_control(_: Question) -> ControlRuns:
    raise AssertionError("nobody asked for the control arm")


def judged(level: float, baseline: Baseline | None, asked: Asked) -> Judgement:
    """The verdict on even runs about this level."""
    runs = [level * run / 1000 for run in EVEN]
    return settle(Question(End(measured(*runs), baseline), TERMS), asked, no_control).judgement


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


def test_runs_that_lie_too_far_apart_are_not_recorded() -> None:
    question = Question(End(measured(1000, 1380), None), TERMS)
    found = settle(question, Asked(creates=True), no_control).judgement
    assert found.verdict is Verdict.NO_BASELINE
    assert "38.0 % apart" in (found.refused or "")


def test_a_speedup_over_a_device_that_has_become_slower_is_not_accepted() -> None:
    many = End(measured(8800, 8810, 8790), accepted([8000.0] * 3, speedup=8.0))
    single = End(measured(900, 901, 899, name=SINGLE), accepted([1000.0] * 3, speedup=1.0))
    found = settle(Question(many, TERMS, single), UPDATE, no_control).judgement
    assert not found.recorded


def test_the_control_arm_runs_after_the_verdicts_that_were_named() -> None:
    asked = Asked(control_after=frozenset({Verdict.REGRESSED}))
    taken: list[Question] = []

    def run_control(question: Question) -> ControlRuns:
        taken.append(question)
        return ControlRuns(interleaved=(interleaved(900, 900),))

    def settled(level: float) -> Settled:
        end = End(measured(*[level] * 3), accepted([1000.0] * 3))
        return settle(Question(end, TERMS), asked, run_control)

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
        verdict: excuse(Judgement(quantity=Quantity.THROUGHPUT, verdict=verdict)).excused
        for verdict in (Verdict.REGRESSED, Verdict.FAILED, Verdict.PASS, Verdict.SKIPPED)
    }
    assert verdicts == {
        Verdict.REGRESSED: True, Verdict.FAILED: True, Verdict.PASS: False, Verdict.SKIPPED: False,
    }  # fmt: skip


def test_noisy_first_runs_tell_what_they_let_see() -> None:
    quiet = detectable_percent(EVEN, 5.0)
    assert 5.0 < quiet < 10.0
    noisy = detectable_percent((1000.0, 1380.0, 1100.0, 900.0, 1250.0), 60.0)
    assert noisy > 80.0
    assert detectable_percent((1000.0,), 5.0) == 100.0
