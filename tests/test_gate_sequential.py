"""The sequential rule: each of its sentences, and what no run may change."""

import random
from itertools import permutations

import pytest
from gate_values import METRIC, TIME, mirrored
from gate_values import accepted as accepted_runs_of
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_dlperf.gate.noise import (
    QUANTILE_97_5,
    StandardError,
    are_unstable,
    gross_outliers,
    location,
    noise,
    outliers,
    pooled_noise,
    t_quantile,
    t_sf,
)
from pytest_dlperf.gate.sequential import MIN_LOSS_PERCENT, SequentialRule
from pytest_dlperf.model.baseline import Acceptance
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.metric import Better
from pytest_dlperf.model.statistics import mad_deviation, median

# Thirty runs with a deviation of 1.0 % around 1000.
EVEN = [985.0, 992.0, 1000.0, 1008.0, 1015.0]
SESSIONS = [EVEN] * 6


def rule(  # noqa: PLR0913 - what a baseline says, by name
    sessions=SESSIONS,
    *,
    metric=METRIC,
    accepted=1000.0,
    accepted_runs=5,
    tolerance=5.0,
    least=None,
    repeats=None,
    available=None,
):
    baseline = replace(
        accepted_runs_of(*sessions, number=accepted, metric=metric),
        acceptance=Acceptance(at="2026-11-01T02:00:00+00:00"),
    )
    made = SequentialRule.of(
        baseline,
        tolerance_percent=tolerance,
        min_loss_percent=MIN_LOSS_PERCENT if least is None else least,
        repeats=repeats,
        available=available,
    )
    return replace(made, accepted_runs=accepted_runs)


def verdict(by, runs, *, is_last=False):
    decision = by.decide(runs, is_last=is_last)
    return decision.verdict if decision else None


def looks(by, run):
    """The verdict after each of nine equal runs."""
    return [verdict(by, [run] * count) for count in range(1, 10)]


# ------------------------------------------------------------------------------- noise


def test_the_noise_leaves_out_what_lies_far_from_the_median():
    runs = EVEN * 6
    assert noise(runs) == pytest.approx(0.0109, abs=0.0002)
    assert noise([*runs, 400.0, 300.0]) == noise(runs)


def test_the_noise_is_never_below_a_fifth_of_a_percent():
    assert noise([1000.0] * 30) == 0.002
    assert noise([1000.0]) == 0.002


def test_many_equal_runs_do_not_hide_how_much_the_others_differ():
    assert noise([1000.0] * 16 + [1006.0] * 14) == pytest.approx(0.003, abs=0.0002)


@pytest.mark.parametrize("count", [5, 9, 10, 30])
def test_the_deviation_from_the_median_is_corrected_for_small_samples(count):
    choose = random.Random(count)  # noqa: S311 - noise
    samples = ([choose.gauss(1000, 10) for _ in range(count)] for _ in range(3000))
    average = sum(map(mad_deviation, samples)) / 3000
    assert average == pytest.approx(10, rel=0.04)


def test_the_location_is_the_mean_without_gross_outliers():
    assert location([990, 1000, 1010, 700], 0.01) == 1000
    assert location([990, 1000, 1013], 0.01) == pytest.approx(1001)


def test_the_location_is_the_median_where_fewer_than_half_are_near_it():
    assert location([1000, 700, 500, 1300, 1600], 0.01) == 1000


def test_strays_lie_three_percent_away_at_least():
    assert gross_outliers([1000, 1000, 1000, 975], 0.002) == []
    assert gross_outliers([1000, 1000, 1000, 965], 0.002) == [965]
    assert gross_outliers([1000, 1000, 1000, 965], 0.01) == []


def test_runs_are_unstable_with_more_than_a_third_of_gross_outliers():
    assert not are_unstable([1000] * 6 + [500] * 3, 0.01)
    assert are_unstable([1000] * 5 + [500] * 3, 0.01)


def test_every_run_that_the_location_leaves_out_is_an_outlier():
    runs = [1000.0, 1000.0, 1000.0, 1000.0, 985.0]
    assert outliers(runs, 0.003) == [985.0]
    assert gross_outliers(runs, 0.003) == []
    assert location(runs, 0.003) == 1000.0


def test_the_noise_of_short_sessions_is_pooled_around_their_own_means():
    found = pooled_noise([[99.0, 100.0, 101.0], [990.0, 1000.0, 1010.0], [5.0], []])
    assert found.deviation == pytest.approx(0.01)
    assert found.dof == 4
    assert pooled_noise([[100.0, 101.0], [5.0]]) is None
    assert pooled_noise([]) is None
    quiet = [[100.0, 100.5, 99.5, 100.2, 99.8]]
    assert pooled_noise([*quiet, [50.0, 100.0]]) == pooled_noise(quiet)


def test_the_pooled_noise_leaves_out_accidents_only():
    choose = random.Random(1)  # noqa: S311 - noise
    found = []
    for _ in range(2000):
        sessions = [[choose.gauss(1000, 10) for _ in range(5)] for _ in range(2)]
        if pooled := pooled_noise(sessions):
            found.append(pooled.deviation**2)
    assert (sum(found) / 2000) ** 0.5 == pytest.approx(0.01, rel=0.03)
    stray = pooled_noise([EVEN, [*EVEN[:4], 300.0]])
    assert stray.deviation < 0.013


@pytest.mark.parametrize(
    ("dof", "quantile"), [(1, 12.706), (2, 4.303), (3, 3.182), (8, 2.306), (29, 2.045)]
)
def test_estimated_deviations_are_widened_as_in_the_tables(dof, quantile):
    assert t_sf(quantile, dof) == pytest.approx(0.025, rel=1e-3)
    assert t_quantile(QUANTILE_97_5, dof) == pytest.approx(quantile, rel=1e-3)
    assert t_sf(0.0, dof) == pytest.approx(0.5)


def test_a_ratio_has_the_errors_of_both_ends():
    end = StandardError(value=0.03, dof=4)
    both = StandardError.combined([end, StandardError(value=0.04, dof=4)])
    assert both.value == pytest.approx(0.05)
    assert both.dof == 7
    assert StandardError.combined([end, StandardError(value=1e-6, dof=29)]).dof == 4


def test_without_runs_there_is_neither_median_nor_noise():
    with pytest.raises(ValueError, match="no values"):
        median([])
    with pytest.raises(ValueError, match="positive"):
        noise([0.0, 0.0, 0.0])


# ------------------------------------------------------------------- how many runs, and when


def test_a_night_as_usual_passes_with_the_third_run():
    assert looks(rule(), 1000.0)[:3] == [None, None, Verdict.PASS]


def test_a_loss_fails_with_the_seventh_run():
    assert looks(rule(), 970.0) == [None] * 6 + [Verdict.REGRESSED] * 3


def test_a_loss_below_two_percent_passes_when_it_is_sure_enough():
    found = looks(rule(), 981.5)
    assert found[2] is None
    assert Verdict.REGRESSED not in found
    assert found[-1] is Verdict.PASS


def test_a_large_loss_of_every_run_fails_with_the_fifth():
    assert looks(rule(), 910.0)[:5] == [None] * 4 + [Verdict.REGRESSED]


def test_a_loss_of_less_than_eight_percent_waits_for_the_seventh():
    assert looks(rule(), 930.0)[4:7] == [None, None, Verdict.REGRESSED]


def test_a_large_loss_with_one_run_near_the_reference_waits_for_the_seventh():
    runs = [900.0, 900.0, 955.0, 900.0, 900.0, 900.0, 900.0]
    assert [verdict(rule(), runs[:count]) for count in (5, 6, 7)] == [
        None,
        None,
        Verdict.REGRESSED,
    ]


def test_by_the_ninth_run_there_is_a_verdict():
    for run in range(900, 1100):
        assert looks(rule(), float(run))[-1] is not None


def test_a_fixed_number_of_runs_is_looked_at_once():
    fixed = rule(repeats=5)
    assert looks(fixed, 970.0)[:5] == [None] * 4 + [Verdict.REGRESSED]
    assert looks(fixed, 1000.0)[:5] == [None] * 4 + [Verdict.PASS]
    assert verdict(rule(repeats=8), [970.0] * 7) is None


def test_a_series_cut_short_is_decided_by_what_there_is():
    short = rule().decide([970.0] * 4, is_last=True)
    whole = rule().decide([970.0] * 7, is_last=True)
    assert short.verdict is Verdict.REGRESSED
    assert (short.min_detectable_percent or 0) > (whole.min_detectable_percent or 0)


def test_fewer_than_three_runs_decide_nothing():
    decision = rule().decide([500.0, 500.0], is_last=True)
    assert decision.verdict is Verdict.INCONCLUSIVE
    assert "2 runs cannot tell an outlier from a loss" in (decision.reason or "")


def test_a_decision_tells_what_it_sees_and_how_often_it_is_wrong():
    decision = rule().decide([1000.0] * 3, is_last=True)
    assert decision.reference == 1000
    assert decision.tolerance_percent == pytest.approx(2.15, abs=0.05)
    assert decision.min_detectable_percent == pytest.approx(2.68, abs=0.05)
    assert 0 < (decision.false_alarm or 0) < 0.002
    assert decision.interval_percent == pytest.approx((-1.3, 1.3), abs=0.1)


def test_a_series_of_as_many_runs_as_there_are_sees_what_they_see():
    few = rule(available=5)
    assert few.at_most == 5
    assert looks(few, 970.0)[:5] == [None] * 4 + [Verdict.REGRESSED]
    seen = [
        decision.min_detectable_percent or 0
        for by in (rule(available=3), few, rule(available=9), rule(available=50))
        if (decision := by.decide([1000.0] * 3, is_last=True))
    ]
    assert seen[0] > seen[1] > seen[2] == seen[3]
    assert rule(available=0).at_most == 1


def test_the_false_alarms_are_those_of_all_looks_and_of_drift():
    noisy = [[1000 + 2.5 * (run - 1000) for run in EVEN]] * 6

    def false_alarm(by):
        decision = by.decide([1000.0] * 3, is_last=True)
        return decision.false_alarm or 0

    # Each of the runs 7 to 9 is an alarm in 1.5 of 1,000 nights, by a noise known from 30 runs.
    assert false_alarm(rule(noisy, tolerance=50.0)) == pytest.approx(0.0044, abs=0.0002)
    assert false_alarm(rule(noisy, repeats=3, tolerance=50.0)) == pytest.approx(0.0015, abs=1e-4)
    drifts = false_alarm(rule(noisy, tolerance=3.0))
    assert drifts == pytest.approx(0.0059, abs=0.0003)
    assert false_alarm(rule(noisy, tolerance=7.0)) < drifts
    # With a noise of 4 % large losses come by chance at the fifth and sixth run too.
    wild = [[1000 + 4 * (run - 1000) for run in EVEN]] * 6
    assert false_alarm(rule(wild, tolerance=50.0)) > false_alarm(rule(noisy, tolerance=50.0))


def test_faster_by_more_than_the_threshold_is_improved():
    assert looks(rule(), 1030.0)[2] is Verdict.IMPROVED
    assert looks(rule(), 1015.0)[2] is Verdict.PASS


# ------------------------------------------------------------------------ the accepted number


def test_what_the_last_sessions_pass_may_still_be_drift():
    """The last sessions have come down to 1000 from an accepted 1060, step by step."""
    crept = rule(accepted=1060.0)
    assert looks(crept, 1000.0) == [None] * 6 + [Verdict.REGRESSED] * 3
    decision = crept.decide([1000.0] * 7, is_last=False)
    assert decision.reason.startswith("drift: the last 6 sessions pass")
    assert "tonight lies 5.7 % below the throughput accepted 2026-11-01T" in decision.reason
    assert decision.reason.endswith("; allowed are 5.0 %")
    assert decision.reference == 1060
    assert decision.difference_percent == pytest.approx(-5.66, abs=0.01)
    assert decision.tolerance_percent == pytest.approx(5)
    # Of this loss no less is seen than what is allowed.
    assert decision.min_detectable_percent is not None
    assert 5.5 < decision.min_detectable_percent < 7


def test_drift_is_what_the_case_does_not_tolerate():
    assert looks(rule(accepted=1050.0), 1000.0)[2] is Verdict.PASS
    assert looks(rule(accepted=1050.0, tolerance=3.0), 1000.0)[6] is Verdict.REGRESSED


def test_what_the_noise_hides_is_no_drift():
    assert looks(rule(accepted=1015.0, tolerance=0.5), 1000.0)[2] is Verdict.PASS
    assert looks(rule(accepted=1025.0, tolerance=0.5), 1000.0)[6] is Verdict.REGRESSED


def test_a_number_of_few_runs_is_held_to_less():
    """An accepted number of five runs may itself lie 0.6 % too high by chance, one of 40 not."""
    assert looks(rule(accepted=1022.0, tolerance=0.5), 1000.0)[2] is Verdict.PASS
    assert (
        looks(rule(accepted=1022.0, tolerance=0.5, accepted_runs=40), 1000.0)[6]
        is Verdict.REGRESSED
    )


def test_a_tolerance_of_its_own_replaces_the_least_loss():
    assert looks(rule(least=4.0), 970.0)[-1] is Verdict.PASS
    assert looks(rule(least=4.0), 955.0)[-1] is Verdict.REGRESSED
    quiet = [[1000.0, 1001.0, 999.0, 1000.0, 1000.0]] * 6
    assert looks(rule(quiet, least=1.0), 985.0)[6] is Verdict.REGRESSED
    assert looks(rule(quiet), 985.0)[2] is Verdict.PASS


# ------------------------------------------------------------------------------ inconclusive


@pytest.mark.parametrize(
    ("sessions", "told"),
    [
        ([EVEN] * 3, "the baseline has 15 runs"),
        ([[1000, 1005, 995, 500, 400]] * 6, "12 of the baseline's 30 runs are gross outliers"),
        ([[1000 + 8 * run for run in (-15, -8, 0, 8, 15)]] * 6, "differ by 8.7 %"),
    ],
    ids=["few", "strays", "noise"],
)
def test_a_baseline_that_tells_nothing_decides_nothing(sessions, told):
    by = rule(sessions)
    assert looks(by, 1000.0)[:3] == [None, None, Verdict.INCONCLUSIVE]
    assert looks(by, 500.0)[2] is Verdict.INCONCLUSIVE
    decision = by.decide([1000.0] * 3, is_last=True)
    assert told in (decision.reason or "")


def test_a_tolerance_of_its_own_makes_no_baseline_inconclusive():
    assert looks(rule(least=12.0), 1000.0)[2] is Verdict.PASS


def test_a_fail_among_many_strays_is_inconclusive():
    runs = [960.0, 960.0, 960.0, 960.0, 960.0, 500.0, 400.0, 300.0, 1200.0]
    assert verdict(rule(), runs) is Verdict.INCONCLUSIVE
    assert verdict(rule(), runs[:7]) is Verdict.REGRESSED
    decision = rule().decide(runs, is_last=True)
    assert "4 of 9 runs are gross outliers" in (decision.reason or "")


def test_strays_that_more_runs_may_outnumber_are_waited_for():
    runs = [960.0, 960.0, 960.0, 960.0, 500.0, 400.0, 300.0, 960.0, 960.0]
    assert verdict(rule(), runs[:7]) is None
    assert verdict(rule(), runs) is Verdict.REGRESSED


def test_a_stray_is_told_and_does_not_count():
    decision = rule().decide([1000.0, 600.0, 1002.0], is_last=False)
    assert decision.verdict is Verdict.PASS
    assert decision.notes == ("1 of 3 runs do not count: 600.00",)


def test_all_runs_that_do_not_count_are_told():
    quiet = [[1000.0, 1001.0, 999.0, 1000.0, 1000.0]] * 6
    decision = rule(quiet).decide([1000.0, 1000.0, 985.0, 1001.0, 999.0], is_last=True)
    assert decision.notes == ("1 of 5 runs do not count: 985.00",)
    assert decision.difference_percent == pytest.approx(0)
    many = rule(quiet).decide([1000.0, 985.0, 1015.0, 970.0, 1030.0], is_last=True)
    assert "runs differ by 2.4 % tonight, 0.2 % in the baseline" in many.notes


def test_the_interval_is_that_of_the_runs_that_count():
    low, high = (
        (decision.interval_percent or (0, 0))[1]
        for runs in ([1000.0] * 7, [1000.0] * 5 + [900.0] * 2)
        if (decision := rule().decide(runs, is_last=True))
    )
    assert high > low


# ------------------------------------------------------------------------------ a noisy night

NOISY = [1000.0 + 30 * step for step in (-1.5, -0.9, -0.4, 0.0, 0.4, 0.9, 1.5)]


def test_a_night_noisier_than_the_baseline_goes_by_its_own_noise():
    quiet = rule([[1000 + (run - 1000) / 3 for run in EVEN]] * 6)
    usual = quiet.decide([1000.0] * 7, is_last=True)
    noisy = quiet.decide(NOISY, is_last=True)
    assert usual.tolerance_percent == 2
    assert noisy.tolerance_percent > 5
    assert (noisy.min_detectable_percent or 0) > noisy.tolerance_percent
    assert noisy.notes[-1] == "runs differ by 3.1 % tonight, 0.4 % in the baseline"
    assert verdict(quiet, [run * 0.97 for run in NOISY]) is None
    assert verdict(quiet, [run * 0.97 for run in NOISY], is_last=True) is Verdict.PASS
    assert verdict(quiet, [run * 0.90 for run in NOISY]) is Verdict.REGRESSED


def test_a_night_that_hides_every_usual_loss_decides_nothing():
    wild = [1000 + 3 * (run - 1000) for run in NOISY]
    decision = rule().decide([run * 0.93 for run in wild], is_last=True)
    assert decision.verdict is Verdict.INCONCLUSIVE
    assert "runs differ by 9.3 % tonight, 1.1 % in the baseline: no loss below" in (
        decision.reason or ""
    )


def test_a_night_twice_as_noisy_by_chance_is_as_usual():
    decision = rule().decide([980.0, 1000.0, 1020.0, 990.0, 1010.0], is_last=True)
    assert decision.notes == ()


# -------------------------------------------------------------------------- for any numbers

runs_of_a_night = st.lists(
    st.floats(min_value=500, max_value=1500, allow_nan=False), min_size=3, max_size=9
)


@given(runs_of_a_night, st.floats(min_value=0.5, max_value=1.0))
def test_slower_runs_are_never_better(runs, factor):
    before = rule().decide(runs, is_last=True)
    after = rule().decide([run * factor for run in runs], is_last=True)
    assert (after.difference_percent or 0) <= (before.difference_percent or 0) + 1e-9
    if before.verdict is not Verdict.IMPROVED:
        assert after.verdict is not Verdict.IMPROVED


@given(st.floats(min_value=1.0, max_value=2.0))
def test_a_candidate_without_loss_never_regresses(factor):
    assert Verdict.REGRESSED not in looks(rule(), 1000.0 * factor)


@given(st.floats(min_value=0.01, max_value=0.97))
def test_a_loss_of_three_percent_never_passes_without_noise(factor):
    found = looks(rule(), 1000.0 * factor)
    assert Verdict.PASS not in found
    assert Verdict.IMPROVED not in found


@given(runs_of_a_night, st.sampled_from([1e-6, 0.125, 1024.0, 1e6]))
def test_the_unit_changes_no_verdict(runs, unit):
    # Powers of two and of ten, the latter with a hair's breadth: no run lies on a limit then.
    plain = rule().decide([run + 1e-4 for run in runs], is_last=True)
    scaled = rule([[run * unit for run in session] for session in SESSIONS], accepted=1000 * unit)
    other = scaled.decide([(run + 1e-4) * unit for run in runs], is_last=True)
    assert other.verdict is plain.verdict
    assert other.difference_percent == pytest.approx(plain.difference_percent, abs=1e-6)
    assert other.tolerance_percent == pytest.approx(plain.tolerance_percent)


def test_the_order_of_the_runs_changes_nothing():
    runs = [960.0, 940.0, 500.0, 985.0, 971.0]
    decisions = {
        replace(decision, notes=())
        for order in permutations(runs)
        if (decision := rule().decide(list(order), is_last=True))
    }
    assert len(decisions) == 1


# ---------------------------------------------------------------------- the lower, the better


@pytest.mark.parametrize("accepted", [1000.0, 1022.0, 1060.0])
def test_a_metric_that_is_better_the_lower_is_judged_alike(accepted):
    up = rule(accepted=accepted)
    mirror = replace(up.baseline, metric=TIME.name, better=Better.LOWER, accepted=2000 - accepted)
    down = replace(up, baseline=mirror)
    for tenths in range(8805, 11205, 10):
        level = tenths / 10
        # What is allowed is a part of the accepted number, which here is another.
        if accepted == 1000 or not 0.94 < level / accepted < 0.96:
            assert looks(down, 2000 - level) == looks(up, level), level


def test_more_than_all_can_be_lost_of_what_is_better_the_lower():
    times = rule([mirrored(EVEN)] * 6, metric=TIME)
    tripled = times.decide([3000.0] * 7, is_last=False)
    assert (tripled.verdict, tripled.difference_percent) == (Verdict.REGRESSED, 200.0)


def test_drift_of_what_is_better_the_lower_lies_above():
    crept = rule([mirrored(EVEN)] * 6, metric=TIME, accepted=940.0)
    decision = crept.decide([1000.0] * 7, is_last=False)
    assert decision.verdict is Verdict.REGRESSED
    for told in ("drift", "lies 6.4 % above the step_time accepted", "allowed are 5.0 %"):
        assert told in (decision.reason or "")
    assert looks(rule([mirrored(EVEN)] * 6, metric=TIME, accepted=1060.0), 1000.0)[2] is (
        Verdict.PASS
    )


def test_runs_that_do_not_differ_divide_by_nothing():
    for level in (970.0, 1000.0, 1030.0):
        decision = rule([[1000.0] * 5] * 6).decide([level] * 9, is_last=True)
        assert 0 <= (decision.false_alarm or 0) < 0.01
