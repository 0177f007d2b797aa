"""What accepted sessions show: runs or nights in two groups, and a session that does not count."""

import math
import re
from itertools import cycle, islice

import pytest
from gate_values import EVEN, METRIC, TIME, accepted, end, judge, measured
from msgspec.structs import replace

from pytest_dlperf.gate.noise import noise, pooled_noise
from pytest_dlperf.gate.reference import Groups, Reference
from pytest_dlperf.gate.rules import Terms
from pytest_dlperf.gate.scatter import needed_tolerance, remedy_for_scatter, why_noisier
from pytest_dlperf.gate.sequential import MIN_LOSS_PERCENT, SequentialRule
from pytest_dlperf.gate.verdicts import GateInput, GateOptions, accept, decide
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.metric import Better, RuleName, Source

TIGHT = (999.0, 999.5, 1000.0, 1000.5, 1001.0)
"""Five runs of one tight mode."""


def scaled(part):
    return [run * part for run in TIGHT]


MIXED = [[*TIGHT[:3], 974.0, 974.5], [TIGHT[0], 973.5, 974.0, 974.5, 974.0]] * 3
"""Runs in two modes 2.6 % apart; more than half of them in the slower one."""


def judged(sessions, tonight, metric=METRIC):
    baseline = accepted(*sessions, number=1000.0, metric=metric)
    return judge(measured(*tonight, metric=metric), baseline, tolerance_percent=5.0)


def test_runs_in_two_modes_differ_by_both():
    runs = [run for session in MIXED for run in session]
    assert noise(runs) == pytest.approx(0.013, abs=0.0015)
    pooled = pooled_noise(MIXED)
    assert pooled.deviation == pytest.approx(0.013, abs=0.002)


def test_a_few_runs_away_from_the_others_are_no_mode():
    runs = [*TIGHT * 6][:28]
    assert noise([*runs, 960.0, 961.0]) < 0.003
    assert noise([*runs, 700.0, 720.0, 650.0, 690.0, 710.0]) < 0.003


def test_a_night_in_one_of_two_modes_is_no_loss_and_the_modes_are_told():
    judgement = judged(MIXED, [974.0] * 9)
    assert judgement.verdict is Verdict.PASS
    told = "runs of this case lie in two groups 2.5 % apart; see which, and what they share"
    assert judgement.notes == ()
    assert any(note.startswith(told) for note in judgement.standing_notes)
    lost = judged(MIXED, [974.0 * 0.96] * 9)
    assert lost.verdict is Verdict.REGRESSED
    assert any(note.startswith(told) for note in lost.notes)


def test_groups_are_told_when_a_number_is_accepted():
    def notes(*runs):
        gate_input = GateInput(METRIC, end(measured(*runs)), Terms(tolerance_percent=5.0))
        options = GateOptions(creates=True)
        return accept(decide(gate_input), gate_input, options, reference=None).notes

    assert any("runs of this case lie in two groups" in note for note in notes(*MIXED[0]))
    assert notes(*EVEN) == ()


@pytest.mark.parametrize("apart", [0.035, 0.05, 0.08])
def test_modes_far_apart_are_decided(apart):
    sessions = [[1000.0, 1000.5, 999.5, 1000 * (1 - apart), 1000 * (1 - apart)]] * 6
    assert judged(sessions, sessions[0]).verdict is Verdict.PASS
    assert judged(sessions, [run * 0.9 for run in sessions[0]] * 2).verdict is Verdict.REGRESSED


def test_the_false_alarms_of_two_modes_are_those_of_the_draws():
    def drawn(worse, count):
        return [960.0] * worse + [1000.0] * (count - worse)

    def decision(accepted_worse, worse):
        rule = SequentialRule.of(
            accepted(drawn(accepted_worse, 30), number=1000.0, metric=METRIC),
            tolerance_percent=5.0,
            min_loss_percent=MIN_LOSS_PERCENT,
            repeats=7,
        )
        decided = rule.decide(drawn(worse, 7), is_last=True)
        assert decided is not None
        return decided

    def chance(worse, count):
        part = 16 / 32
        return math.comb(count, worse) * part**worse * (1 - part) ** (count - worse)

    alarms = [
        chance(known, 30) * chance(worse, 7)
        for known in range(30)
        for worse in range(8)
        if decision(known, worse).verdict is Verdict.REGRESSED
    ]
    assert decision(15, 0).false_alarm == pytest.approx(math.fsum(alarms), rel=0.05)


@pytest.mark.parametrize("metric", [METRIC, TIME])
@pytest.mark.parametrize("worse_nights", [2, 3, 4])
def test_a_night_in_the_worse_of_two_groups_is_held_against_that(metric, worse_nights):
    worse = 1 - metric.better.sign * 0.03 if metric.better else 1.0
    sessions = [scaled(worse)] * worse_nights + [scaled(1.0)] * (6 - worse_nights)
    night = judged(sessions, scaled(worse) * 2, metric)
    assert night.verdict is Verdict.PASS
    assert night.notes == ()
    assert any("nights of this case lie in two groups" in note for note in night.standing_notes)
    told = f"tonight is like {worse_nights} of the 6 accepted sessions"
    assert any(told in note for note in night.standing_notes) is (worse_nights < 4)
    assert judged(sessions, scaled(1.0) * 2, metric).verdict.passes
    below_both = [run * worse * worse for run in TIGHT] * 2
    assert judged(sessions, below_both, metric).verdict is Verdict.REGRESSED


def test_what_is_seen_is_more_than_the_distance_of_two_groups_of_nights():
    sessions = [scaled(0.97)] * 3 + [scaled(1.0)] * 3
    seen = judged(sessions, scaled(1.0)).decision.min_detectable_percent
    assert seen is not None
    assert 5.0 < seen < 5.5
    in_the_worse = judged(sessions, scaled(0.97) * 2).decision.min_detectable_percent
    assert in_the_worse is not None
    assert in_the_worse < 2.5


def test_a_loss_between_two_groups_of_nights_is_found():
    sessions = [scaled(0.955)] * 2 + [scaled(1.0)] * 4
    assert judged(sessions, scaled(0.977) * 2).verdict is Verdict.REGRESSED
    assert judged(sessions, scaled(0.955) * 2).verdict is Verdict.PASS


def test_one_session_far_from_the_others_does_not_count():
    sessions = [scaled(1.0)] * 3 + [scaled(0.95)] + [scaled(1.0)] * 2
    judgement = judged(sessions, scaled(1.0))
    assert judgement.decision.reference == pytest.approx(1000.0)
    told = "an accepted session lies -5.0 % from the others, and does not count"
    assert told in judgement.standing_notes
    assert judged(sessions, scaled(0.97) * 2).verdict is Verdict.REGRESSED
    assert judged(sessions, scaled(0.95) * 2).verdict is Verdict.REGRESSED


@pytest.mark.parametrize(("sessions", "runs"), [(4, 5), (5, 4), (5, 5)])
def test_a_baseline_too_small_without_its_far_session_is_judged_by_the_tolerance(sessions, runs):
    known = [scaled(1.0)[:runs]] * (sessions - 1)
    night = judged([known[0], scaled(0.955)[:runs], *known[1:]], scaled(1.0))
    assert night.verdict is Verdict.PASS
    is_enough = sum(map(len, known)) >= 20
    assert night.decision.rule is (RuleName.SEQUENTIAL if is_enough else RuleName.TOLERANCE)


def test_nights_that_differ_evenly_are_no_two_groups():
    sessions = [scaled(1 + part / 100) for part in (-2, -1, 0, 0, 1, 2)]
    found = Reference.of(sessions, Better.HIGHER)
    assert found.other is None
    assert found.nights == pytest.approx(0.0141, abs=0.0005)


def test_runs_in_two_modes_are_no_two_groups_of_nights():
    chosen = islice(cycle([1000.0, 974.0, 974.0, 1000.0, 1000.0, 974.0, 1000.0]), 30)
    runs = list(chosen)
    found = Reference.of([runs[start : start + 5] for start in range(0, 30, 5)], Better.HIGHER)
    assert found.other is None
    assert found.modes.apart == pytest.approx(0.026)


def test_a_gap_among_few_runs_makes_no_groups():
    assert Groups.of([1000.0]) is None
    assert Groups.of([1000.0] * 5) is None
    assert Groups.of_runs([*[1000.0] * 29, 970.0]) is None
    assert Groups.of_runs([*[1000.0] * 20, *[800.0] * 10]) is None


def test_a_session_noisier_than_the_baseline_is_not_added():
    known = [scaled(1.0)] * 6
    assert why_noisier(scaled(0.99), known) is None
    assert why_noisier([990.0, 1000.0, 1010.0, 1003.0], known) == (
        "its runs differ by 0.8 %, those of the baseline by 0.2 %"
    )
    one_stray = [*TIGHT[:4], 700.0]
    assert why_noisier(one_stray, known) is not None
    # Where most sessions have one, it is how the case is.
    assert why_noisier(one_stray, [one_stray] * 6) is None


MEMORY = replace(TIME, name="memory", unit="GB", source=Source.LOG, tolerance_percent=2.0)


def test_a_value_that_one_of_few_runs_shows_is_accepted():
    def verdict(known, metric=MEMORY, tonight=41.0):
        night = measured(*[tonight] * 5, metric=metric)
        return judge(night, accepted(known, metric=metric), tolerance_percent=2.0).verdict

    assert verdict([40.0, 40.0, 41.0, 40.0, 40.0]) is Verdict.PASS
    assert verdict([40.0, 40.0, 41.0, 40.0, 40.0], tonight=42.0) is Verdict.REGRESSED
    assert verdict([40.0] * 5) is Verdict.REGRESSED
    # Far away, or among runs that differ, it is an accident.
    assert verdict([40.0, 40.0, 46.0, 40.0, 40.0], tonight=46.0) is Verdict.REGRESSED
    assert verdict([40.0, 40.1, 41.0, 40.0, 40.0]) is Verdict.REGRESSED
    assert verdict([40.0, 40.0, 41.0, 40.0, 40.0], TIME) is Verdict.REGRESSED


@pytest.mark.parametrize("metric", [METRIC, TIME])
def test_a_group_of_nights_that_misses_the_accepted_number_is_drift_and_claimed(
    metric,
):
    worse = 1 - metric.better.sign * 0.06 if metric.better else 1.0
    sessions = [scaled(1.0), scaled(worse)] * 3
    good, bad = (judged(sessions, scaled(part) * 2, metric) for part in (1.0, worse))
    assert good.verdict is Verdict.PASS
    assert bad.verdict is Verdict.REGRESSED
    assert str(bad.reason).startswith("drift")
    for night in (good, bad):
        assert night.decision.false_alarm == pytest.approx(0.5, abs=0.05)
    nearer = judged([scaled(1.0), scaled(0.97)] * 3, scaled(0.97) * 2)
    assert nearer.verdict is Verdict.PASS
    assert nearer.decision.false_alarm is not None
    assert nearer.decision.false_alarm < 0.05


@pytest.mark.parametrize(("deviations", "is_told"), [(1.0, False), (2.0, False), (4.0, True)])
def test_a_tolerance_too_small_for_the_runs_is_told_when_they_are_accepted(deviations, *, is_told):
    runs = [1000.0 + deviations * (run - 1000.0) for run in EVEN]
    gate_input = GateInput(METRIC, end(measured(*runs)), Terms(tolerance_percent=5.0))
    done = accept(decide(gate_input), gate_input, GateOptions(creates=True), reference=None)
    assert done.recorded
    told = [note for note in done.notes if "more than one in 100 would be a false alarm" in note]
    assert bool(told) is is_told
    assert all("such as 'tolerance_percent: " in note for note in told)


def test_noisy_sessions_do_not_keep_a_case_undecided():
    noisy = [700.0, *TIGHT[1:4], 650.0]
    assert judged([scaled(1.0)] * 2 + [noisy] * 4, scaled(1.0)).decision.rule is RuleName.TOLERANCE
    mostly_quiet = [scaled(1.0)] * 2 + [noisy] * 2 + [scaled(1.0)] * 2
    assert judged(mostly_quiet, scaled(1.0)).decision.rule is RuleName.SEQUENTIAL
    assert judged([noisy] * 6, scaled(1.0)).verdict is Verdict.INCONCLUSIVE


def test_what_a_number_takes_that_scatters_is_told():
    seconds = [2.0, 1.5, 1.0, 3.0, 5.0]
    needed = needed_tolerance(seconds, Better.LOWER)
    assert needed is not None
    assert needed > 1
    told = remedy_for_scatter(replace(TIME, unit="s"), seconds)
    [amount] = re.findall(r"tolerance_at_least: ([0-9.]+) s", told)
    assert 2.0 * needed <= float(amount) <= 2.2 * needed
    # Nor does it suggest 0 where the runs of a metric with a tiny tolerance differ at all.
    assert "tolerance_percent: 0.0" in remedy_for_scatter(METRIC, [1e5, 1e5, 1e5 + 1, 1e5, 1e5])
    assert not remedy_for_scatter(METRIC, [1e5, 1e5, 1e5 + 1]).endswith("0'")
    rates = [run * 1.05**power for power, run in enumerate([1000.0] * 5)]
    assert "such as 'tolerance_percent: " in remedy_for_scatter(METRIC, rates)
    # As much as nights of these runs differ by, and not as far as their extremes lie apart.
    percent = 100 * (needed_tolerance(rates, Better.HIGHER) or 0)
    assert 15 < percent < 30
    assert remedy_for_scatter(METRIC, [500.0, 900.0]).endswith("in the system file")
