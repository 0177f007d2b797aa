"""The steps of a verdict after its decision: control arm, acceptance, withdrawal."""

import re
from datetime import UTC, datetime, timedelta

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
from msgspec.structs import replace

from pytest_dlperf.baselines.accepting import why_not_added
from pytest_dlperf.gate.accepting import (
    GateOptions,
    needed_tolerance,
    remedy_for_scatter,
    withdraw,
)
from pytest_dlperf.gate.inputs import GateInput
from pytest_dlperf.gate.terms import Terms
from pytest_dlperf.gate.verdicts import decide, run_gate
from pytest_dlperf.model.baseline import AcceptedSession, Loss, Spread
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.metric import SPEEDUP_METRIC, Better

TERMS = Terms(tolerance_percent=5.0)
UPDATE = GateOptions(updates=True)


def no_control(_):
    raise AssertionError("nobody asked for the control arm")


def judged(level, baseline, options):
    """The verdict on even runs about this level."""
    runs = [level * run / 1000 for run in EVEN]
    return run_gate(about(runs, baseline), options, no_control).judgement


def about(runs, baseline, metric=METRIC):
    """What to make of these runs."""
    return GateInput(metric, end(measured(*runs, metric=metric), baseline), TERMS)


@pytest.mark.parametrize("options", [GateOptions(creates=True), UPDATE])
def test_a_number_that_is_missing_is_recorded_where_that_was_asked(options):
    found = judged(1000, None, options)
    assert (found.verdict, found.recorded) == (Verdict.PASS, True)
    assert judged(1000, None, GateOptions()).verdict is Verdict.NO_BASELINE


def test_a_number_is_replaced_with_update_alone_and_a_lower_one_with_a_reason():
    baseline = accepted(EVEN)
    better = judged(1100, baseline, UPDATE)
    assert (better.verdict, better.recorded) == (Verdict.IMPROVED, True)
    assert not judged(1100, baseline, GateOptions(creates=True)).recorded
    lower = judged(900, baseline, UPDATE)
    assert (lower.verdict, lower.recorded) == (Verdict.REGRESSED, False)
    assert "--dlperf-reason" in (lower.refused or "")
    told = judged(900, baseline, replace(UPDATE, reason="a new driver"))
    assert (told.verdict, told.recorded, told.refused) == (Verdict.REGRESSED, True, None)


def test_what_lies_inside_the_tolerance_stays_as_it_is():
    found = judged(1020, accepted(EVEN), UPDATE)
    assert (found.verdict, found.recorded, found.refused) == (Verdict.PASS, False, None)


def test_a_gain_joins_only_when_a_person_accepts_it():
    baseline = accepted(*[EVEN] * 6)
    for level, verdict in ((1000, Verdict.PASS), (1040, Verdict.IMPROVED)):
        runs = [level * run / 1000 for run in EVEN + EVEN[:4]]
        gate_input = about(runs, baseline)
        found = decide(gate_input)
        assert found.verdict is verdict
        assert (why_not_added(found, gate_input) is None) is (verdict is Verdict.PASS)
        settled = run_gate(gate_input, UPDATE, no_control).judgement
        assert settled.recorded is (verdict is Verdict.IMPROVED)


def test_a_session_noisier_than_the_baseline_does_not_join():
    gate_input = about([1000 + 4 * (run - 1000) for run in EVEN], accepted(*[EVEN] * 6))
    found = decide(gate_input)
    assert found.verdict is Verdict.PASS
    assert why_not_added(found, gate_input) == (
        "its runs differ by 4.8 %, those of the baseline by 1.2 %"
    )


def test_runs_in_two_groups_are_told_when_they_are_accepted():
    gate_input = about((1000, 1001, 970, 1000, 971), None)
    [note] = run_gate(gate_input, UPDATE, no_control).judgement.notes
    assert note.startswith("runs of this case lie in two groups 3.0 % apart")


def test_runs_that_lie_too_far_apart_are_not_recorded():
    found = run_gate(about((1000, 1380), None), GateOptions(creates=True), no_control).judgement
    assert found.verdict is Verdict.NO_BASELINE
    assert "38.0 % apart" in (found.refused or "")
    assert "set a wider tolerance" in (found.remedy or "")


def test_a_speedup_over_a_device_that_has_become_slower_is_not_accepted():
    many = end(measured(8800, 8810, 8790), accepted([8000.0] * 3), accepted_speedup(8.0))
    single = end(measured(900, 901, 899, name=SINGLE), accepted([1000.0] * 3))
    gate_input = GateInput(SPEEDUP_METRIC, many, TERMS, single)
    found = run_gate(gate_input, UPDATE, no_control).judgement
    assert (found.recorded, found.refused) == (False, "its reference is regressed")


def test_the_control_arm_runs_after_a_regression():
    terms = replace(TERMS, has_control=True)
    taken = []

    def run_control(measurement):
        taken.append(measurement)
        return interleaved(900, 900)

    def settled(level):
        gate_input = replace(about([level] * 3, accepted([1000.0] * 3)), terms=terms)
        return run_gate(gate_input, GateOptions(), run_control)

    assert settled(1000).control is None
    slower = settled(900)
    assert taken == [slower.input.case.measurement]
    assert slower.control is not None
    assert slower.judgement.decision.verdict is Verdict.REGRESSED


def test_what_could_not_be_written_is_withdrawn():
    first = judged(1000, None, UPDATE)
    assert withdraw(first).verdict is Verdict.NO_BASELINE
    other = judged(1100, accepted(EVEN), UPDATE)
    withdrawn = withdraw(other)
    assert (withdrawn.verdict, withdrawn.recorded) == (Verdict.IMPROVED, False)
    assert withdrawn.reason
    never = judged(1000, accepted(EVEN), UPDATE)
    assert withdraw(never) == never


def test_what_it_takes_to_accept_runs_that_scatter_is_told():
    seconds = [2.0, 1.5, 1.0, 3.0, 5.0]
    needed = needed_tolerance(seconds, Better.LOWER)
    told = remedy_for_scatter(replace(TIME, unit="s"), seconds)
    [amount] = re.findall(r"tolerance_at_least: ([0-9.]+) s", told)
    assert 2.0 * needed <= float(amount) <= 2.2 * needed
    # Nor does it suggest 0 where the runs of a metric with a tiny tolerance differ at all.
    assert "tolerance_percent: 0.0" in remedy_for_scatter(METRIC, [1e5, 1e5, 1e5 + 1, 1e5, 1e5])
    assert not remedy_for_scatter(METRIC, [1e5, 1e5, 1e5 + 1]).endswith("0'")
    assert remedy_for_scatter(METRIC, [500.0, 900.0]).endswith("in the system file")


def test_a_larger_number_is_accepted_with_a_reason_where_lower_is_better():
    baseline = accepted(mirrored(EVEN), metric=TIME)

    def settled(level, options):
        runs = [level * run / 1000 for run in EVEN]
        return run_gate(about(runs, baseline, TIME), options, no_control).judgement

    assert settled(900, UPDATE).recorded
    worse = settled(1100, UPDATE)
    assert (worse.verdict, worse.recorded) == (Verdict.REGRESSED, False)
    assert "--dlperf-reason" in (worse.refused or "")
    assert settled(1100, replace(UPDATE, reason="more samples a step")).recorded


def test_what_is_checked_and_not_compared_asks_for_no_control_and_is_not_recorded():
    options = GateOptions(creates=True, updates=True)
    loss = replace(TIME, better=None)
    gate_input = replace(about((2.0, 2.5), None, loss), terms=SMALL)
    found = run_gate(gate_input, options, no_control)
    assert (found.judgement.verdict, found.judgement.recorded) == (Verdict.PASS, False)


# ---------------------------------------------------------------- losses that need confirming

SMALL = Terms(tolerance_percent=5.0, has_control=True)
QUIET = replace(
    accepted(*[[1000 + (run - 1000) / 3 for run in EVEN]] * 6),
    spread=Spread(losses=(Loss(0.0, 0.2),) * 12),
)


def small_loss(control, *, level=983.0, baseline=QUIET, terms=SMALL):
    """The verdict on nine runs that lost between 1.2 and 2 %, where a control arm can follow."""
    gate_input = GateInput(METRIC, end(measured(*[level] * 9), baseline), terms)
    return run_gate(gate_input, GateOptions(), lambda _: control).judgement


def test_a_small_loss_is_an_alarm_once_the_control_arm_confirms_it():
    lost, shifted = (interleaved(983, one) for one in (1000, 983))
    assert small_loss(lost).verdict is Verdict.REGRESSED
    assert small_loss(shifted).verdict is Verdict.ENVIRONMENT_SHIFT


@pytest.mark.parametrize(
    "silent",
    ["no host is free", interleaved(0, 1000)],
)
def test_a_small_loss_that_nothing_could_confirm_is_no_alarm(silent):
    found = small_loss(silent)
    assert (found.verdict, found.decision.tolerance_percent) == (Verdict.PASS, pytest.approx(2.0))
    assert found.notes[-1] == silent or "control arm is inconclusive" in found.notes[-1]
    # A larger one is, and so is what the entry itself does not tolerate.
    assert small_loss(silent, level=970.0).verdict is Verdict.REGRESSED
    own = replace(QUIET, tolerance_percent=1.0)
    assert small_loss(silent, baseline=own).verdict is Verdict.REGRESSED


def test_a_small_loss_passes_where_no_control_arm_would_follow():
    assert small_loss("", terms=TERMS).verdict is Verdict.PASS


@pytest.mark.parametrize(("days", "is_told"), [(3, False), (31, True)])
def test_a_loss_after_a_gap_is_told_as_such(days, is_told):
    last = datetime(2026, 11, 1, 2, tzinfo=UTC)
    session = AcceptedSession(at=last.isoformat(), runs=EVEN)
    known = replace(accepted(EVEN), sessions=(session,))

    def notes(level, now):
        case = end(measured(*[level] * 5), known)
        terms = Terms(tolerance_percent=5.0)
        return decide(GateInput(METRIC, case, terms, now=now)).notes

    tonight = last + timedelta(days=days)
    assert any("31 days old" in note for note in notes(900.0, tonight)) is is_told
    assert not notes(1000.0, tonight)
    assert not notes(900.0, None)
