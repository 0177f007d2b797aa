"""The control arm: a loss that the accepted software has too is none of the candidate's."""

import random

import pytest
from gate_values import CASE, METRIC, TIME, accepted, interleaved, measured
from msgspec.structs import replace

from pytest_dlperf.gate.control import confirm
from pytest_dlperf.model.judgement import Decision, Judgement, Verdict
from pytest_dlperf.model.measurement import InterleavedRuns, Run, RunStatus
from pytest_dlperf.model.metric import SPEEDUP_METRIC


def baseline(deviation=0.01, runs=30, *, metric=METRIC):
    steps = [1000 * (1 + deviation * step) for step in (-1.3, -0.7, 0.0, 0.7, 1.3)]
    return accepted((steps * 6)[:runs], number=1000.0, metric=metric)


def judgement(metric=METRIC, difference=-4.0):
    return Judgement(
        metric=metric,
        verdict=Verdict.REGRESSED,
        measured=1000.0 + 10 * difference,
        accepted=1000.0,
        decision=Decision(
            verdict=Verdict.REGRESSED,
            reference=1000.0,
            difference_percent=difference,
            tolerance_percent=2.0,
        ),
    )


def confirm_by(judgement, arms, known, *, least=2.0):
    """The verdict after these arms."""
    return confirm(judgement, arms, known, min_loss_percent=least, without_control=judgement)


def confirmed(arms, known=None, *, least=2.0):
    return confirm_by(judgement(), arms, known or baseline(), least=least)


def test_a_loss_against_the_accepted_software_stands():
    found = confirmed(interleaved(960, 1000))
    assert found.verdict is Verdict.REGRESSED
    assert found.reason == (
        "confirmed by the control arm: interleaved, the candidate is 4.0 % worse, a loss counts "
        f"from 1.5 % on, 7 runs each: {CASE} 960.00 against 1000.00 images/s (+0.0 % from the "
        "accepted number)"
    )


def test_a_loss_that_the_accepted_software_has_too_is_the_environment():
    found = confirmed(interleaved(960, 960))
    assert found.verdict is Verdict.ENVIRONMENT_SHIFT
    assert (found.reason or "").startswith(
        "not confirmed by the control arm: interleaved, the candidate is 0.0 % better, a loss"
    )


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
def test_the_smaller_the_loss_that_counts_the_less_confirms_it(least, candidate, verdict):
    arms = interleaved(candidate, 1000)
    assert confirmed(arms, baseline(0.002), least=least).verdict is verdict


@pytest.mark.parametrize(
    ("candidate", "control", "expected"),
    [
        (1040, 1000, Verdict.REGRESSED),
        (1040, 1040, Verdict.ENVIRONMENT_SHIFT),
        (960, 1000, Verdict.ENVIRONMENT_SHIFT),
    ],
)
def test_what_is_better_the_lower_is_confirmed_the_other_way_round(candidate, control, expected):
    arms = interleaved(candidate, control, metric=TIME)
    found = confirm_by(judgement(TIME, 4.0), arms, baseline(metric=TIME))
    assert found.verdict is expected


def test_an_arm_that_lacks_the_metric_says_nothing():
    arms = replace(interleaved(960, 960), control=measured())
    found = confirmed(arms)
    assert found.verdict is Verdict.REGRESSED
    assert f"no run of the control has a {METRIC.name}" in found.notes[-1]


def test_more_is_needed_where_the_noise_is_large_or_the_runs_are_few():
    arms = interleaved(975, 1000)
    assert confirmed(arms).verdict is Verdict.REGRESSED
    noisy = confirmed(arms, baseline(0.04))
    assert noisy.verdict is Verdict.ENVIRONMENT_SHIFT
    few = interleaved(975, 1000, runs=1)
    assert confirmed(few, baseline(0.02)).verdict is Verdict.ENVIRONMENT_SHIFT


def test_strays_of_both_arms_do_not_count():
    arms = InterleavedRuns(
        candidate=measured(960, 961, 959, 960, 300), control=measured(1000, 400, 1001, 999, 1000)
    )
    found = confirmed(arms)
    assert found.verdict is Verdict.REGRESSED
    assert "4.0 % worse" in (found.reason or "")


@pytest.mark.parametrize("drift", [0.01, -0.01])
def test_a_drift_through_the_night_is_no_difference_between_the_arms(drift):
    candidate = []
    control = []
    for place, arm in enumerate([candidate, control, control, candidate] * 2):
        arm.append(1000 * (1 - drift * place))
    arms = InterleavedRuns(candidate=measured(*candidate), control=measured(*control))
    found = confirmed(arms, baseline(0.002))
    assert found.verdict is Verdict.ENVIRONMENT_SHIFT
    assert "0.0 %" in (found.reason or "")


def test_false_confirmations_are_as_rare_as_they_are_meant_to_be():
    choose = random.Random(3)  # noqa: S311 - noise
    trials = 1500

    def arm():
        return measured(*[choose.gauss(1000, 25) for _ in range(4)])

    found = sum(
        confirm_by(judgement(), InterleavedRuns(candidate=arm(), control=arm()), None).verdict
        is Verdict.REGRESSED
        for _ in range(trials)
    )
    assert 0.03 < found / trials < 0.07


def with_broken_run(arm):
    broken = Run(run=3, status=RunStatus.HUNG, reason="no step for 60 s")
    return replace(arm, runs=(*arm.runs[:2], broken))


def test_a_broken_control_takes_nothing_back():
    sound = interleaved(960, 960)
    arms = replace(sound, control=with_broken_run(sound.control))
    found = confirmed(arms)
    assert found.verdict is Verdict.REGRESSED
    assert "run 3" in found.notes[-1]
    assert "no step for 60 s" in found.notes[-1]


def test_a_candidate_that_breaks_beside_the_control_is_broken():
    sound = interleaved(960, 960)
    found = confirmed(replace(sound, candidate=with_broken_run(sound.candidate)))
    assert found.verdict is Verdict.HUNG
    assert "run 3" in (found.reason or "")


def test_a_control_that_cannot_be_run_takes_nothing_back():
    first = judgement()
    found = confirm(
        first, "no host is free", baseline(), min_loss_percent=2.0, without_control=first
    )
    assert (found.verdict, found.notes) == (Verdict.REGRESSED, ("no host is free",))


@pytest.mark.parametrize(
    ("control", "verdict"), [(8000, Verdict.REGRESSED), (7600, Verdict.ENVIRONMENT_SHIFT)]
)
def test_a_speedup_is_confirmed_by_the_runs_of_its_case(control, verdict):
    known = replace(baseline(), accepted=8000.0)
    found = confirm_by(judgement(SPEEDUP_METRIC), interleaved(7600, control), known)
    assert found.verdict is verdict
