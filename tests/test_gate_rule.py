"""The rule: each of its sentences, and what no run may change."""

from itertools import permutations

import pytest
from gate_values import EVEN, METRIC, TIME, accepted, mirrored
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_dlperf.baselines.accepting import spread_after
from pytest_dlperf.baselines.recording import ChangeKind
from pytest_dlperf.gate.rule import Rule
from pytest_dlperf.gate.terms import Terms
from pytest_dlperf.model.baseline import Acceptance, Loss, Spread
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.metric import Better

SIX = accepted(*[EVEN] * 6, number=1000.0)
AS_EVER = Spread(losses=(Loss(0.1, 0.6), Loss(-0.4, 0.6), Loss(0.3, 0.6), Loss(-0.1, 0.6)))
KNOWN = replace(SIX, spread=AS_EVER)
"""Six sessions that differ by no more than their runs explain."""
UNEVEN = replace(SIX, spread=Spread(losses=tuple(Loss(part, 0.6) for part in (2, -3, 1, -2, 3))))


def rule(baseline=KNOWN, *, metric=METRIC, **terms):
    return Rule(metric, baseline, Terms(**{"tolerance_percent": 5.0, **terms}))


def decide(level, by=None, runs=9):
    """The decision by runs that differ by 1 % around a level."""
    values = [level * run / 1000 for run in (*EVEN, 988.0, 996.0, 1004.0, 1012.0)[:runs]]
    return (by or rule()).decide(values)


def enough(level, by=None):
    """After how many equal runs it has decided."""
    by = by or rule()
    return next(count for count in range(1, 10) if by.is_enough([level] * count))


# ----------------------------------------------------------------------------- how many runs


def test_a_usual_night_takes_three_runs_and_a_loss_five_or_seven():
    assert enough(1000.0) == 3
    assert enough(900.0) == 5
    assert enough(970.0) == 7
    assert enough(1030.0) == 7


def test_what_lies_near_the_limit_takes_nine():
    assert enough(1000 - 0.8 * 10 * decide(1000).tolerance_percent) == 9


def test_a_fixed_number_is_looked_at_once_and_tells_what_it_sees():
    fixed = rule(repeats=3)
    assert enough(1000.0, fixed) == enough(900.0, fixed) == 3
    few, many = (decide(1000, by, 3).min_detectable_percent for by in (fixed, rule()))
    assert few > many
    assert decide(940, fixed, 3).verdict is Verdict.REGRESSED


def test_as_many_runs_as_there_are_decide():
    baseline = SIX
    by = Rule(METRIC, baseline, Terms(tolerance_percent=5.0), available=4)
    assert by.is_enough([970.0] * 4)
    assert by.at_most == 4


# ------------------------------------------------------------------------------ the verdict


@pytest.mark.parametrize(
    ("level", "verdict"),
    [
        (1000.0, Verdict.PASS),
        (985.0, Verdict.PASS),
        (965.0, Verdict.REGRESSED),
        (1040.0, Verdict.IMPROVED),
    ],
)
def test_a_loss_and_a_gain_are_judged_by_one_limit(level, verdict):
    assert decide(level).verdict is verdict


def test_sessions_that_differ_widen_the_limit_unless_a_control_arm_follows():
    alone, controlled = rule(UNEVEN), rule(UNEVEN, has_control=True)
    assert decide(965, alone).verdict is Verdict.PASS
    assert decide(965, controlled).verdict is Verdict.REGRESSED
    told = decide(1000, alone)
    assert told.min_detectable_percent > 2 * told.controlled_percent
    assert told.controlled_percent == pytest.approx(decide(1000, controlled).min_detectable_percent)
    assert decide(1000).controlled_percent is None


def test_a_young_baseline_sees_less_and_finds_what_is_large():
    young = accepted(EVEN, number=1000.0)
    assert decide(900, rule(young)).verdict is Verdict.REGRESSED
    seen = [rule(one).min_detectable_percent for one in (young, SIX, KNOWN)]
    assert seen == sorted(seen, reverse=True)


def test_a_number_without_noise_is_judged_from_two_percent():
    constant = rule(accepted([812.0] * 5, [812.0] * 5))
    assert constant.decide([812.0] * 3).verdict is Verdict.PASS
    assert constant.decide([792.0] * 9).verdict is Verdict.REGRESSED


def test_a_number_without_runs_is_judged_by_its_tolerance():
    bare = rule(accepted((), number=1000.0))
    for number, verdict in (
        (950.0, Verdict.PASS),
        (949.9, Verdict.REGRESSED),
        (1060.0, Verdict.IMPROVED),
    ):
        assert bare.decide([number]).verdict is verdict
    assert bare.decide([1000.0]).min_detectable_percent is None


def test_twenty_sessions_know_how_far_the_worst_lies():
    losses = tuple(Loss(part, 0.1) for part in [0.0] * 18 + [-5.0, -5.0])
    known = replace(SIX, spread=Spread(losses=losses))
    fewer = replace(SIX, spread=Spread(losses=losses[1:]))
    assert decide(970, rule(known)).verdict is Verdict.REGRESSED
    assert decide(970, rule(fewer)).verdict is Verdict.PASS


def test_a_little_lost_every_night_is_drift():
    crept = replace(KNOWN, accepted=1060.0, acceptance=Acceptance(at="2026-11-01T02:00:00+00:00"))
    found = decide(1000, rule(crept))
    assert (found.verdict, found.reference) == (Verdict.REGRESSED, 1060.0)
    assert found.difference_percent == pytest.approx(-5.66, abs=0.05)
    assert found.reason.startswith(
        "drift: the last 6 sessions passed, but this one lies 5.7 % below"
    )
    assert decide(1000, rule(crept, tolerance_percent=8.0)).verdict is Verdict.PASS


def test_a_tolerance_of_its_own_is_the_least_loss():
    assert decide(965, rule(metric=replace(METRIC, tolerance_percent=4.0))).verdict is Verdict.PASS
    quiet = accepted(*[[1000.0, 1001.0, 999.0]] * 6)
    assert rule(quiet, has_control=True).decide([985.0] * 9).verdict is Verdict.REGRESSED
    assert rule(quiet).decide([985.0] * 9).verdict is Verdict.PASS


def test_members_of_a_family_share_the_false_alarms():
    noisy = accepted(*[[1000 + 3 * (run - 1000) for run in EVEN]] * 6)
    one, many = (rule(noisy, members=members) for members in (1, 60))
    assert decide(1000, many).tolerance_percent > 1.3 * decide(1000, one).tolerance_percent


# --------------------------------------------------------------------- accidents and noise


def test_a_run_that_is_an_accident_is_told_and_does_not_count():
    found = rule().decide([1000.0, 995.0, 1005.0, 700.0])
    assert (found.verdict, found.difference_percent) == (Verdict.PASS, pytest.approx(0, abs=0.1))
    assert found.notes == ("1 of 4 runs do not count: 700.00",)


def test_many_accidents_leave_a_loss_open():
    runs = [940.0] * 5 + [500.0] * 4
    assert not rule().is_enough(runs[2:7])
    found = rule().decide(runs)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "4 of 9 runs lie far from the others" in found.reason


def test_a_green_night_that_sees_less_says_so():
    noisy = [1000 + 6 * (run - 1000) for run in EVEN + EVEN[:4]]
    found = rule().decide(noisy)
    assert found.verdict is Verdict.PASS
    assert found.min_detectable_percent > 2 * rule().min_detectable_percent
    assert "in the baseline: the gate sees losses from" in found.notes[-1]


# ---------------------------------------------------------------------- what sessions leave


def test_a_session_that_joins_leaves_its_loss():
    by = rule()
    joined = spread_after(ChangeKind.EXTEND, by, [980.0] * 5)
    assert joined.losses[:-1] == AS_EVER.losses
    assert joined.losses[-1].percent == pytest.approx(2.0 / (1 + 1 / 6) ** 0.5, abs=0.05)
    assert 0 < joined.losses[-1].error < 1


def test_of_a_changed_streak_the_first_counts_once_it_is_over():
    first = spread_after(ChangeKind.NOTE, rule(), [950.0] * 5)
    again = replace(KNOWN, spread=first)
    assert spread_after(ChangeKind.NOTE, rule(again), [900.0] * 5) == first
    over = spread_after(ChangeKind.EXTEND, rule(again), [1000.0] * 5)
    assert over.losses[-2] == first.changed
    assert over.changed is None


def test_an_accepted_number_keeps_noise_and_spread():
    noisy = replace(SIX, spread=spread_after(ChangeKind.NOTE, rule(UNEVEN), [950.0] * 5))
    kept = spread_after(ChangeKind.ACCEPT, rule(noisy), [950.0] * 5)
    assert (kept.losses, kept.changed) == (UNEVEN.spread.losses, None)
    new = rule(replace(accepted([950.0] * 3), spread=kept))
    assert new.noise.deviation == pytest.approx(rule(SIX).noise.deviation, rel=0.1)


# -------------------------------------------------------------------------- for any numbers

runs_of_a_night = st.lists(
    st.floats(min_value=500, max_value=1500, allow_nan=False), min_size=3, max_size=9
)


@given(st.floats(min_value=0.01, max_value=0.96))
def test_a_clear_loss_never_passes(factor):
    assert decide(1000 * factor).verdict is Verdict.REGRESSED


@given(st.floats(min_value=1.0, max_value=2.0))
def test_what_is_no_worse_never_regresses(factor):
    assert decide(1000 * factor).verdict in (Verdict.PASS, Verdict.IMPROVED)


@given(runs_of_a_night, st.sampled_from([0.125, 1024.0]))
def test_the_unit_changes_no_verdict(runs, unit):
    plain = rule(SIX).decide(runs)
    scaled = accepted(*[[run * unit for run in EVEN]] * 6, number=1000 * unit)
    other = rule(scaled).decide([run * unit for run in runs])
    assert other.verdict is plain.verdict
    assert other.difference_percent == pytest.approx(plain.difference_percent, abs=1e-6)
    assert other.tolerance_percent == pytest.approx(plain.tolerance_percent)


def test_the_order_of_the_runs_changes_nothing():
    runs = [960.0, 940.0, 500.0, 985.0, 971.0]
    found = [replace(rule().decide(order), notes=()) for order in permutations(runs)]
    assert len({one.verdict for one in found}) == 1
    assert max(one.difference_percent for one in found) == pytest.approx(
        min(one.difference_percent for one in found)
    )


def test_a_metric_that_is_better_the_lower_is_judged_alike():
    times = accepted(*[mirrored(EVEN)] * 6, number=1000.0, metric=TIME)
    down = rule(times, metric=TIME)
    assert down.better is Better.LOWER
    for level in (900, 970, 985, 1000, 1015, 1030, 1100):
        up = decide(level, rule(SIX)).verdict
        assert down.decide(mirrored([level * run / 1000 for run in EVEN + EVEN[:4]])).verdict is up
    tripled = down.decide([3000.0] * 7)
    assert tripled.difference_percent == pytest.approx(200.0, abs=0.1)


def test_a_loss_beyond_the_tolerance_that_no_rule_could_see_is_no_pass():
    lonely = accepted((1000.0,), number=1000.0)
    wild = rule(lonely).decide([330.0, 980.0, 640.0, 450.0, 800.0])
    assert wild.verdict is Verdict.INCONCLUSIVE
    assert wild.difference_percent < -30
    assert "no loss can be told from chance" in wild.reason
    assert rule(lonely).decide([630.0, 1480.0, 970.0, 750.0, 1250.0]).verdict is Verdict.PASS
