"""The control arm: a loss that the accepted software has too is none of the candidate's."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from gate_values import CASE, METRIC, SINGLE, TIME, accepted, interleaved, measured
from msgspec.structs import replace

from pytest_dlperf.gate.control import ControlRuns, confirm
from pytest_dlperf.model.baseline import Baseline
from pytest_dlperf.model.judgement import Decision, Judgement, Verdict
from pytest_dlperf.model.measurement import InterleavedRuns, Measurement, Run, RunStatus
from pytest_dlperf.model.metric import SPEEDUP_METRIC, Metric, RuleName


def baseline(
    deviation: float = 0.01, runs: int = 30, *, own: float | None = None, metric: Metric = METRIC
) -> Baseline:
    steps = [1000 * (1 + deviation * step) for step in (-1.3, -0.7, 0.0, 0.7, 1.3)]
    return accepted((steps * 6)[:runs], number=1000.0, own=own, metric=metric)


def judgement(verdict: Verdict, metric: Metric = METRIC, difference: float = -4.0) -> Judgement:
    return Judgement(
        metric=metric,
        verdict=verdict,
        measured=1000.0 + 10 * difference,
        accepted=1000.0,
        decision=Decision(
            rule=RuleName.SEQUENTIAL,
            verdict=verdict,
            reference=1000.0,
            difference_percent=difference,
            tolerance_percent=2.0,
        ),
    )


def confirm_by(
    judgement: Judgement,
    *arms: InterleavedRuns,
    baselines: Sequence[Baseline | None],
    least: float = 2.0,
) -> Judgement:
    """The verdict after these arms, of a metric or of both ends of a ratio."""
    runs = ControlRuns(interleaved=arms)
    return confirm(judgement, runs, baselines, min_loss_percent=least, without_control=judgement)


def confirmed(
    verdict: Verdict, arms: InterleavedRuns, known: Baseline | None = None, *, least: float = 2.0
) -> Judgement:
    return confirm_by(judgement(verdict), arms, baselines=[known or baseline()], least=least)


def test_a_loss_against_the_accepted_software_stands() -> None:
    found = confirmed(Verdict.REGRESSED, interleaved(960, 1000))
    assert found.verdict is Verdict.REGRESSED
    assert found.reason == (
        "confirmed by the control arm: interleaved, the candidate is 4.0 % worse, a loss counts "
        f"from 1.5 % on, 7 runs each: {CASE} 960.00 against 1000.00 images/s (+0.0 % from the "
        "accepted number)"
    )


def test_a_loss_that_the_accepted_software_has_too_is_the_environment() -> None:
    found = confirmed(Verdict.REGRESSED, interleaved(960, 960))
    assert found.verdict is Verdict.ENVIRONMENT_SHIFT
    assert (found.reason or "").startswith(
        "not confirmed by the control arm: tonight the accepted software is no better: -4.0 % from "
        "its reference; interleaved, the candidate is 0.0 % better"
    )


def test_a_loss_that_does_not_come_again_is_not_put_on_the_accepted_software() -> None:
    found = confirmed(Verdict.REGRESSED, interleaved(1000, 1000))
    assert found.verdict is Verdict.ENVIRONMENT_SHIFT
    assert "the loss was gone when both were run again" in (found.reason or "")
    assert "no better" not in (found.reason or "")


@pytest.mark.parametrize(
    ("least", "candidate", "verdict"),
    [
        (1.0, 991.0, Verdict.REGRESSED),
        (1.0, 993.0, Verdict.ENVIRONMENT_SHIFT),
        (1.2, 990.0, Verdict.REGRESSED),
        (1.2, 992.0, Verdict.ENVIRONMENT_SHIFT),
        (2.0, 987.0, Verdict.ENVIRONMENT_SHIFT),
        (8.0, 980.0, Verdict.REGRESSED),
    ],
)
def test_the_smaller_the_loss_that_counts_the_less_confirms_it(
    least: float, candidate: float, verdict: Verdict
) -> None:
    arms = interleaved(candidate, 1000)
    assert confirmed(Verdict.REGRESSED, arms, baseline(0.002), least=least).verdict is verdict


def test_a_loss_that_does_not_count_is_none_by_the_ratio_alone() -> None:
    for candidate, verdict in ((950, Verdict.PASS), (910, Verdict.REGRESSED)):
        assert confirmed(Verdict.PASS, interleaved(candidate, 1000), least=8.0).verdict is verdict


@pytest.mark.parametrize(
    ("verdict", "candidate", "control", "expected"),
    [
        (Verdict.REGRESSED, 1040, 1000, Verdict.REGRESSED),
        (Verdict.REGRESSED, 1040, 1040, Verdict.ENVIRONMENT_SHIFT),
        (Verdict.REGRESSED, 960, 1000, Verdict.ENVIRONMENT_SHIFT),
        (Verdict.PASS, 1000, 950, Verdict.REGRESSED),
        (Verdict.PASS, 1000, 1050, Verdict.PASS),
    ],
)
def test_what_is_better_the_lower_is_confirmed_the_other_way_round(
    verdict: Verdict, candidate: float, control: float, expected: Verdict
) -> None:
    first = judgement(verdict, TIME, 4.0)
    arms = interleaved(candidate, control, metric=TIME)
    found = confirm_by(first, arms, baselines=[baseline(metric=TIME)])
    assert found.verdict is expected
    if (candidate, control) == (1040, 1040):
        assert "the accepted software is no better: +4.0 % from" in (found.reason or "")


def test_an_arm_that_lacks_the_metric_says_nothing() -> None:
    arms = replace(interleaved(960, 960), control=measured())
    found = confirmed(Verdict.REGRESSED, arms)
    assert found.verdict is Verdict.REGRESSED
    assert f"no run of the control has a {METRIC.name}" in found.notes[-1]


def test_the_tolerance_rule_lends_its_tolerance_to_the_ratio_alone() -> None:
    passed = judgement(Verdict.PASS)
    assert passed.decision is not None
    decision = replace(passed.decision, rule=RuleName.TOLERANCE, tolerance_percent=5.0)
    passed = replace(passed, decision=decision)
    for candidate, verdict in ((960, Verdict.PASS), (940, Verdict.REGRESSED)):
        found = confirm_by(passed, interleaved(candidate, 1000), baselines=[baseline()])
        assert found.verdict is verdict


@pytest.mark.parametrize(
    ("candidate", "verdict"),
    [(986.0, Verdict.ENVIRONMENT_SHIFT), (984.0, Verdict.REGRESSED)],
)
def test_a_percent_and_a_half_confirms_where_the_noise_is_small(
    candidate: float, verdict: Verdict
) -> None:
    assert confirmed(Verdict.REGRESSED, interleaved(candidate, 1000)).verdict is verdict


def test_more_is_needed_where_the_noise_is_large_or_the_runs_are_few() -> None:
    arms = interleaved(975, 1000)
    assert confirmed(Verdict.REGRESSED, arms).verdict is Verdict.REGRESSED
    noisy = confirmed(Verdict.REGRESSED, arms, baseline(0.04))
    assert noisy.verdict is Verdict.ENVIRONMENT_SHIFT
    few = interleaved(975, 1000, runs=1)
    assert confirmed(Verdict.REGRESSED, few, baseline(0.02)).verdict is Verdict.ENVIRONMENT_SHIFT


def test_strays_of_both_arms_do_not_count() -> None:
    arms = InterleavedRuns(
        candidate=measured(960, 961, 959, 960, 300), control=measured(1000, 400, 1001, 999, 1000)
    )
    found = confirmed(Verdict.REGRESSED, arms)
    assert found.verdict is Verdict.REGRESSED
    assert "4.0 % worse" in (found.reason or "")


def test_a_baseline_of_few_runs_leaves_the_noise_to_both_arms() -> None:
    quiet = InterleavedRuns(
        candidate=measured(974, 975, 976, 975, 975), control=measured(999, 1000, 1001, 1000, 1000)
    )
    noisy = InterleavedRuns(
        candidate=measured(925, 950, 975, 1000, 1025), control=measured(950, 975, 1000, 1025, 1050)
    )
    few = baseline(0.04, runs=5)
    assert confirmed(Verdict.REGRESSED, quiet, few).verdict is Verdict.REGRESSED
    assert confirmed(Verdict.REGRESSED, noisy, few).verdict is Verdict.ENVIRONMENT_SHIFT


def test_the_noise_of_a_few_pairs_confirms_only_what_is_clear() -> None:
    """Three pairs know their noise by four differences: 2.13 errors take the place of 1.645."""
    candidate, control = (975.0, 950.0, 1000.0), (1000.0, 975.0, 1025.0)
    arms = InterleavedRuns(candidate=measured(*candidate), control=measured(*control))
    found = confirmed(Verdict.REGRESSED, arms, baseline(runs=5))
    assert found.verdict is Verdict.ENVIRONMENT_SHIFT
    assert "a loss counts from 4.4 % on, 3 runs each" in (found.reason or "")
    # As many runs as a baseline of the sequential rule has do know it.
    known = confirmed(Verdict.REGRESSED, arms, baseline(runs=20))
    assert known.verdict is Verdict.REGRESSED


def test_one_run_of_each_takes_nothing_back() -> None:
    found = confirmed(Verdict.REGRESSED, interleaved(1000, 1000, runs=1), baseline(runs=5))
    assert found.verdict is Verdict.REGRESSED
    assert found.notes[-1].endswith("too few runs of each to estimate their noise")


@pytest.mark.parametrize("drift", [0.01, -0.01])
def test_a_drift_through_the_night_is_no_difference_between_the_arms(drift: float) -> None:
    candidate: list[float] = []
    control: list[float] = []
    for place, arm in enumerate([candidate, control, control, candidate] * 2):
        arm.append(1000 * (1 - drift * place))
    arms = InterleavedRuns(candidate=measured(*candidate), control=measured(*control))
    found = confirmed(Verdict.REGRESSED, arms, baseline(0.002))
    assert found.verdict is Verdict.ENVIRONMENT_SHIFT
    assert "0.0 %" in (found.reason or "")


def test_false_confirmations_are_as_rare_as_they_are_meant_to_be() -> None:
    choose = random.Random(3)  # noqa: S311 - noise
    trials = 1500

    def arm() -> Measurement:
        return measured(*[choose.gauss(1000, 25) for _ in range(4)])

    found = sum(
        confirm_by(
            judgement(Verdict.REGRESSED),
            InterleavedRuns(candidate=arm(), control=arm()),
            baselines=[None],
        ).verdict
        is Verdict.REGRESSED
        for _ in range(trials)
    )
    assert 0.03 < found / trials < 0.07


def test_what_lies_between_the_arms_is_no_noise() -> None:
    arms = InterleavedRuns(
        candidate=measured(700, 701, 699, 700), control=measured(1000, 1001, 999, 1000)
    )
    found = confirmed(Verdict.REGRESSED, arms, baseline(0.04, runs=5))
    assert "30.0 % worse" in (found.reason or "")
    assert "a loss counts from 1.5 % on" in (found.reason or "")


def with_broken_run(arm: Measurement) -> Measurement:
    broken = Run(run=3, status=RunStatus.HUNG, reason="no step for 60 s")
    return replace(arm, runs=(*arm.runs[:2], broken))


def test_a_broken_control_takes_nothing_back_and_lets_nothing_pass() -> None:
    sound = interleaved(960, 960)
    arms = replace(sound, control=with_broken_run(sound.control))
    found = confirmed(Verdict.REGRESSED, arms)
    assert found.verdict is Verdict.REGRESSED
    assert "run 3" in found.notes[-1]
    assert "no step for 60 s" in found.notes[-1]
    assert confirmed(Verdict.PASS, arms).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("verdict", [Verdict.REGRESSED, Verdict.PASS])
def test_a_candidate_that_breaks_beside_the_control_is_broken(verdict: Verdict) -> None:
    sound = interleaved(960, 960)
    found = confirmed(verdict, replace(sound, candidate=with_broken_run(sound.candidate)))
    assert found.verdict is Verdict.HUNG
    assert "run 3" in (found.reason or "")


def test_a_control_that_cannot_be_run_takes_nothing_back_and_lets_nothing_pass() -> None:
    def confirmed_by_nothing(verdict: Verdict) -> Judgement:
        runs = ControlRuns(problem="no host is free")
        first = judgement(verdict)
        return confirm(first, runs, [baseline()], min_loss_percent=2.0, without_control=first)

    found = confirmed_by_nothing(Verdict.REGRESSED)
    assert (found.verdict, found.notes) == (Verdict.REGRESSED, ("no host is free",))
    passed = confirmed_by_nothing(Verdict.PASS)
    assert (passed.verdict, passed.reason) == (Verdict.INCONCLUSIVE, "no host is free")


@pytest.mark.parametrize("verdict", [Verdict.PASS, Verdict.IMPROVED])
def test_a_loss_that_the_night_hides_is_found(verdict: Verdict) -> None:
    found = confirmed(verdict, interleaved(1000, 1050))
    assert found.verdict is Verdict.REGRESSED
    assert "the control arm shows a loss" in (found.reason or "")


def test_a_first_alarm_by_the_ratio_needs_what_any_first_alarm_needs() -> None:
    assert confirmed(Verdict.PASS, interleaved(982, 1000)).verdict is Verdict.PASS
    assert confirmed(Verdict.REGRESSED, interleaved(982, 1000)).verdict is Verdict.REGRESSED
    noisy = baseline(0.025)
    assert confirmed(Verdict.PASS, interleaved(970, 1000), noisy).verdict is Verdict.PASS
    assert confirmed(Verdict.REGRESSED, interleaved(970, 1000), noisy).verdict is Verdict.REGRESSED


def test_a_night_as_usual_passes_and_tells_of_the_control_arm() -> None:
    found = confirmed(Verdict.PASS, interleaved(1001, 1000))
    assert found.verdict is Verdict.PASS
    assert "0.1 % better" in found.notes[-1]


@pytest.mark.parametrize("verdict", [Verdict.INCONCLUSIVE, Verdict.NO_BASELINE, Verdict.FAILED])
def test_other_verdicts_stand(verdict: Verdict) -> None:
    assert confirmed(verdict, interleaved(900, 1000)).verdict is verdict


@pytest.mark.parametrize(
    ("candidate", "single", "verdict"),
    [
        ((7600, 8000), (1000, 1000), Verdict.REGRESSED),
        ((7600, 7600), (1000, 1000), Verdict.ENVIRONMENT_SHIFT),
        # Slower on both ends alike: the scaling is the accepted one.
        ((7600, 8000), (950, 1000), Verdict.ENVIRONMENT_SHIFT),
        # The single device has become faster, the many have not.
        ((8000, 8000), (1050, 1000), Verdict.REGRESSED),
    ],
)
def test_a_speedup_is_confirmed_by_the_speedups_of_both_arms(
    candidate: tuple[float, float], single: tuple[float, float], verdict: Verdict
) -> None:
    found = confirm_by(
        judgement(Verdict.REGRESSED, SPEEDUP_METRIC),
        interleaved(*candidate),
        interleaved(*single, name=SINGLE),
        baselines=[replace(baseline(), accepted=8000.0), baseline()],
    )
    assert found.verdict is verdict
    assert SINGLE in (found.reason or "")


def test_a_speedup_tells_whether_the_accepted_software_scales_as_badly() -> None:
    first = judgement(Verdict.REGRESSED, SPEEDUP_METRIC)
    assert first.decision is not None
    slow = replace(
        first,
        accepted=8.0,
        decision=replace(first.decision, reference=8.0, difference_percent=-5.0),
    )
    single = interleaved(1000, 1000, name=SINGLE)
    for level, told in (
        (7600, "tonight the accepted software is no better: -5.0 % from its reference"),
        (8000, "the loss was gone when both were run again"),
    ):
        arms = interleaved(level, level)
        found = confirm_by(slow, arms, single, baselines=[baseline(), baseline()])
        assert told in (found.reason or "")


def test_the_noise_of_both_ends_blurs_a_speedup() -> None:
    verdicts = [
        confirm_by(
            judgement(Verdict.REGRESSED, SPEEDUP_METRIC),
            interleaved(968, 1000),
            interleaved(1000, 1000, name=SINGLE),
            baselines=[baseline(0.03), baseline(of_single)],
        ).verdict
        for of_single in (0.003, 0.03)
    ]
    assert verdicts == [Verdict.REGRESSED, Verdict.ENVIRONMENT_SHIFT]


def test_a_broken_single_device_confirms_no_speedup() -> None:
    broken = Run(run=1, status=RunStatus.FAILED, reason="it died")
    single = interleaved(1000, 1000, name=SINGLE)
    single = replace(single, control=replace(single.control, runs=(broken,)))
    first = judgement(Verdict.REGRESSED, SPEEDUP_METRIC)
    found = confirm_by(first, interleaved(960, 960), single, baselines=[None, None])
    assert found.verdict is Verdict.REGRESSED
    assert "it died" in found.notes[-1]
