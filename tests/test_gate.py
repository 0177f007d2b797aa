"""The gate: which numbers give which verdict, and that nothing unmeasured passes."""

import pytest
from gate_values import (
    EVEN,
    METRIC,
    SINGLE,
    TIME,
    accepted,
    accepted_speedup,
    end,
    judge_speedup,
    measured,
    mirrored,
)
from gate_values import judge as judge_by
from msgspec import convert, to_builtins
from msgspec.structs import replace

from pytest_dlperf.gate.rules import Terms
from pytest_dlperf.gate.verdicts import GateInput, decide
from pytest_dlperf.model.baseline import Acceptance
from pytest_dlperf.model.judgement import Judgement, Verdict
from pytest_dlperf.model.measurement import Estimator, Fingerprint, Run, RunStatus
from pytest_dlperf.model.metric import SPEEDUP_METRIC, Better, Metric, RuleName, Sanity, Source

BASELINE = accepted((), number=1000.0)
FASTER = accepted((), number=8000.0)


def with_broken_run(status):
    broken = Run(run=3, status=status, reason="the reason")
    sound = measured(1000.0, 1001.0)
    return replace(sound, runs=(*sound.runs, broken))


def judge(measurement, baseline=BASELINE):
    return judge_by(measurement, baseline, tolerance_percent=5)


@pytest.mark.parametrize(
    ("median", "verdict"),
    [
        (1000.0, Verdict.PASS),
        (950.0, Verdict.PASS),
        (949.99, Verdict.REGRESSED),
        (1.0, Verdict.REGRESSED),
        (1050.0, Verdict.PASS),
        (1050.01, Verdict.IMPROVED),
    ],
)
def test_the_median_is_held_against_the_tolerance(median, verdict):
    assert judge(measured(median)).verdict is verdict


def test_one_stray_run_does_not_move_the_verdict():
    assert judge(measured(1000, 1001, 300, 999, 1002)).verdict is Verdict.PASS


def test_slower_is_never_improved_and_faster_never_regressed():
    for percent in range(1, 100):
        assert judge(measured(1000 * (1 - percent / 100))).verdict is not Verdict.IMPROVED
        assert judge(measured(1000 * (1 + percent / 100))).verdict is not Verdict.REGRESSED


def test_a_baseline_brings_its_own_tolerance():
    own = replace(BASELINE, tolerance_percent=20.0)
    assert judge(measured(850), own).verdict is Verdict.PASS
    assert judge(measured(799), own).verdict is Verdict.REGRESSED


@pytest.mark.parametrize("status", [RunStatus.FAILED, RunStatus.HUNG, RunStatus.INVALID])
def test_one_broken_run_is_the_verdict(status):
    judgement = judge(with_broken_run(status))
    assert judgement.verdict.value == status.value
    assert "run 3: the reason" in (judgement.reason or "")


def test_no_run_at_all_is_invalid():
    assert judge(measured()).verdict is Verdict.INVALID


def test_without_a_baseline_nothing_passes():
    judgement = judge(measured(1000), None)
    assert judgement.verdict is Verdict.NO_BASELINE
    assert judgement.measured == 1000
    assert judgement.decision is None


@pytest.mark.parametrize(
    "other",
    [
        replace(BASELINE, unit="sentences/s"),
        replace(BASELINE, better=Better.LOWER),
        replace(BASELINE, estimator=Estimator.PUBLISHED),
    ],
    ids=["unit", "direction", "estimator"],
)
def test_numbers_of_another_kind_are_no_baseline(other):
    judgement = judge_by(measured(1000), other, tolerance_percent=5)
    assert judgement.verdict is Verdict.NO_BASELINE
    assert other.place in (judgement.reason or "")


@pytest.mark.parametrize(
    ("throughput", "verdict"),
    [(8000, Verdict.PASS), (7599, Verdict.REGRESSED), (8500, Verdict.IMPROVED)],
)
def test_the_speedup_is_held_against_its_own_baseline(throughput, verdict):
    judgement = judge_speedup(measured(throughput), measured(1000), FASTER, tolerance_percent=5)
    assert judgement.verdict is verdict
    assert judgement.measured == throughput / 1000


@pytest.mark.parametrize("broken_end", ["many", "single"])
def test_a_speedup_needs_both_ends(broken_end):
    broken, sound = with_broken_run(RunStatus.INVALID), measured(1000)
    ends = (broken, sound) if broken_end == "many" else (sound, broken)
    assert judge_speedup(*ends, FASTER, tolerance_percent=5).verdict is Verdict.INVALID


def test_a_speedup_needs_a_baseline_of_its_own_and_one_of_what_it_is_over():
    for known, speedup in ((FASTER, None), (None, 8.0)):
        judgement = judge_speedup(
            measured(8000), measured(1000), known, speedup=speedup, tolerance_percent=5
        )
        assert judgement.verdict is Verdict.NO_BASELINE
    assert METRIC.name in (judgement.reason or "")


# ------------------------------------------------------------------- what is told beside it


def test_the_tolerance_tells_what_it_sees_by_the_runs_of_both_sides():
    known = replace(BASELINE, runs=dict(enumerate(EVEN, 1)))
    judgement = judge(measured(*EVEN), known)
    assert judgement.decision.rule is RuleName.TOLERANCE
    assert judgement.decision.tolerance_percent == 5
    # Two medians of five runs each, which differ by 1.2 %: an error of 0.90 %, known by eight
    # differences: 1.40 and 2.31 errors take the place of 1.28 and 1.96.
    assert judgement.decision.min_detectable_percent == pytest.approx(5 + 1.40 * 0.90, abs=0.02)
    assert judgement.decision.interval_percent == pytest.approx((-2.08, 2.08), abs=0.02)
    assert judgement.decision.false_alarm is not None
    assert judgement.decision.false_alarm < 0.001
    noisy = replace(known, runs={1: 900.0, 2: 950.0, 3: 1000.0, 4: 1050.0, 5: 1100.0})
    assert 0.1 < (judge(measured(1000), noisy).decision.false_alarm or 0) < 0.4


def test_the_tolerance_tells_what_it_sees_by_tonight_where_the_baseline_cannot():
    judgement = judge(measured(*EVEN))
    # Known by four differences only.
    assert judgement.decision.min_detectable_percent == pytest.approx(5 + 1.53 * 0.90, abs=0.02)


def test_a_baseline_of_many_runs_tells_the_noise_alone():
    many = replace(lasting(1000), tolerance_percent=11.0)
    for tonight in (EVEN, [1000.0] * 5):
        judgement = judge(measured(*tonight), many)
        assert judgement.decision.rule is RuleName.TOLERANCE
        assert judgement.decision.min_detectable_percent == pytest.approx(
            11 + 1.31 * 0.90, abs=0.02
        )


def test_no_interval_tells_of_a_loss_of_more_than_all():
    judgement = judge(measured(20.0, 500.0, 1500.0))
    assert judgement.verdict is Verdict.REGRESSED
    assert (judgement.decision.interval_percent or (0, 0))[0] == -100


def test_a_number_without_runs_is_taken_for_the_median_of_five_at_most():
    few, many = (judge(measured(*EVEN * times)) for times in (1, 4))
    # Twenty runs tonight take their own half of the error away, not the accepted number's.
    assert (few.decision.interval_percent or (0, 0))[1] == pytest.approx(2.78 * 0.90, abs=0.02)
    assert (many.decision.interval_percent or (0, 0))[1] == pytest.approx(2.09 * 0.66, abs=0.02)


def test_a_run_that_is_an_accident_does_not_blur_what_is_seen():
    judgement = judge(measured(*EVEN[:4], 300.0), replace(BASELINE, runs=dict(enumerate(EVEN, 1))))
    assert (judgement.decision.min_detectable_percent or 0) < 6.5


def test_what_too_few_runs_cannot_tell_is_left_open():
    judgement = judge(measured(1000, 1001))
    assert judgement.decision.min_detectable_percent is None
    assert judgement.decision.interval_percent is None
    assert judgement.decision.false_alarm is None


def test_medians_are_rounded_as_their_estimator_rounds():
    published = replace(BASELINE, estimator=Estimator.PUBLISHED)
    measurement = replace(measured(949.998), estimator=Estimator.PUBLISHED)
    judgement = judge(measurement, published)
    assert judgement.measured == 950.0
    assert judgement.verdict is Verdict.PASS


def test_many_sessions_are_judged_by_the_sequential_rule():
    judgement = judge(measured(*[1030.0] * 7), SEQUENTIAL)
    assert judgement.decision.rule is RuleName.SEQUENTIAL
    assert judgement.verdict is Verdict.REGRESSED
    assert (judgement.measured, judgement.accepted) == (1030.0, 1000.0)
    assert judgement.decision.reference == pytest.approx(1060)
    assert judgement.decision.difference_percent == pytest.approx(-2.83, abs=0.01)
    forced = judge_by(measured(1030.0), SEQUENTIAL, tolerance_percent=5, forced=RuleName.TOLERANCE)
    assert (forced.verdict, forced.decision.reference) == (Verdict.PASS, 1000.0)


# ----------------------------------------------------------------------- machine, software


def on(machine, software=None):
    taken_on = Fingerprint(machine=machine, software=software or {}, hosts=("node1",))
    return replace(measured(1000, 1000, 1000), fingerprint=taken_on)


def test_fewer_runs_to_be_had_let_less_be_seen():
    seen = {
        available: judge(
            replace(measured(*EVEN[1:4]), available_runs=available), lasting(1000)
        ).decision.min_detectable_percent
        for available in (3, 5, 9, 30, None)
    }
    assert seen[9] == seen[30] == seen[None] == pytest.approx(2.70, abs=0.1)
    assert seen[3] == pytest.approx(3.26, abs=0.1)
    assert 2.7 < (seen[5] or 0) < 3.2


def test_another_machine_is_no_baseline_and_both_are_shown():
    known = replace(BASELINE, machine={"device": "V100", "interconnect": "nvlink"})
    judgement = judge(on({"device": "A100", "interconnect": "nvlink"}), known)
    assert judgement.verdict is Verdict.NO_BASELINE
    for told in (known.place, "'A100'", "'V100'", "another --dlperf-cluster, or accept"):
        assert told in (judgement.reason or "")
    assert "nvlink" not in (judgement.reason or "")


def test_machines_are_compared_by_what_both_sides_know():
    known = replace(BASELINE, machine={"device": "V100"})
    assert judge(on({"device": "V100", "network": "ethernet"}), known).verdict is Verdict.PASS
    assert judge(on({"network": "ethernet"}), known).verdict is Verdict.PASS
    assert judge(measured(1000), known).verdict is Verdict.PASS


def test_other_software_changes_no_verdict_and_is_no_remark():
    known = replace(
        BASELINE, acceptance=Acceptance(at="2026-11-01", software={"nccl": "2.7.3", "cuda": "11.0"})
    )
    judgement = judge(on({}, {"nccl": "2.18.5", "cuda": "11.0", "driver": "535"}), known)
    assert judgement.verdict is Verdict.PASS
    assert judgement.notes == ()


# -------------------------------------------------------------------------------- speedup


def lasting(level):
    """A baseline of six sessions around a level."""
    return accepted(*[[run * level / 1000 for run in EVEN]] * 6)


MANY, ONE = lasting(8000), lasting(1000)
SEQUENTIAL = replace(lasting(1060), accepted=1000.0)


def speedup_of(
    many,
    single,
    known=MANY,
    single_known=ONE,
    *,
    speedup=8.0,
):
    return judge_speedup(
        measured(*[many] * 7),
        measured(*[single] * 7, name=SINGLE),
        known,
        single_known,
        speedup=speedup,
        tolerance_percent=5,
    )


def test_a_speedup_of_two_lasting_ends_is_judged_by_the_sequential_rule():
    judgement = speedup_of(8000, 1000)
    assert (judgement.verdict, judgement.decision.rule) == (Verdict.PASS, RuleName.SEQUENTIAL)
    assert judgement.measured == 8.0
    # Errors of both ends: more than one end's 2 % is needed.
    assert judgement.decision.tolerance_percent == pytest.approx(2.11, abs=0.02)
    assert 0.0006 < (judgement.decision.false_alarm or 0) < 0.002
    low, high = judgement.decision.interval_percent or (0, 0)
    assert low == pytest.approx(-high)
    assert speedup_of(7700, 1000).verdict is Verdict.REGRESSED
    assert speedup_of(7900, 1000).verdict is Verdict.PASS


def test_a_speedup_may_lose_what_its_own_tolerance_allows():
    own = accepted_speedup(8.0, own=4.0)
    assert speedup_of(7700, 1000, speedup=own).verdict is Verdict.PASS
    assert speedup_of(7600, 1000, speedup=own).verdict is Verdict.REGRESSED


@pytest.mark.parametrize("lasting_end", ["many", "single"])
def test_a_speedup_with_one_lasting_end_has_the_errors_of_two_medians(lasting_end):
    few = tuple(replace(end, sessions=()) for end in (MANY, ONE))
    many, single = (MANY, few[1]) if lasting_end == "many" else (few[0], ONE)
    runs = [tuple(run * level for run in EVEN) for level in (8.0, 1.0)]
    judgement = judge_speedup(
        measured(*runs[0]), measured(*runs[1]), many, single, tolerance_percent=5
    )
    assert judgement.decision.rule is RuleName.TOLERANCE
    # Each end 0.90 % as above; 29 and 8 differences, together some 13.
    assert judgement.decision.min_detectable_percent == pytest.approx(5 + 1.35 * 1.27, abs=0.08)


def test_a_speedup_with_one_lasting_end_is_judged_by_the_tolerance():
    assert speedup_of(7700, 1000, single_known=BASELINE).decision.rule is RuleName.TOLERANCE
    assert speedup_of(7700, 1000, single_known=None).verdict is Verdict.PASS


def test_a_speedup_that_crept_away_from_the_accepted_one_is_regressed():
    judgement = speedup_of(8000, 1000, speedup=8.6)
    assert judgement.verdict is Verdict.REGRESSED
    assert judgement.reason == (
        "drift: the last 6 sessions pass, but tonight lies 7.0 % below the speedup accepted, "
        "8.60 x; allowed are 5.0 %"
    )
    assert (judgement.accepted, judgement.decision.reference) == (8.6, 8.6)
    assert judgement.decision.difference_percent == pytest.approx(-6.98, abs=0.01)
    assert judgement.decision.tolerance_percent == pytest.approx(5)


def test_both_ends_are_shown_beside_every_speedup():
    for single in (ONE, None):
        ends = "\n".join(speedup_of(7900, 990, single_known=single).ends)
        assert "1n8g: 7900.00 images/s, -1.2 % from its reference 8000.00" in ends
        assert "1n1g: 990.00 images/s, -1.0 % from" in ends


@pytest.mark.parametrize("sequential", [True, False])
def test_a_slower_single_device_is_no_better_scaling(*, sequential):
    many = MANY if sequential else FASTER
    single = ONE if sequential else BASELINE
    judgement = speedup_of(8000, 900, many, single)
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert f"because {SINGLE} is worse" in (judgement.reason or "")
    assert "8000" in (judgement.reason or "")
    assert "900" in (judgement.reason or "")


def test_a_slower_single_device_is_seen_without_a_baseline_of_its_own():
    assert speedup_of(8000, 900, single_known=None).verdict is Verdict.INCONCLUSIVE


def test_a_gain_is_one_if_the_many_devices_account_for_it():
    assert speedup_of(8800, 1000).verdict is Verdict.IMPROVED
    assert speedup_of(8400, 970).verdict is Verdict.IMPROVED


def test_a_gain_of_two_small_changes_passes_with_a_note():
    judgement = speedup_of(8060, 982)
    assert judgement.verdict is Verdict.PASS
    assert any("less than half" in note for note in judgement.notes)


def test_a_single_device_on_another_machine_has_no_speedup_to_compare():
    single = replace(
        measured(1000, name=SINGLE),
        fingerprint=Fingerprint(machine={"device": "A100"}),
    )
    known = replace(ONE, machine={"device": "V100"})
    judgement = judge_speedup(measured(8000), single, MANY, known, tolerance_percent=5)
    assert judgement.verdict is Verdict.NO_BASELINE


@pytest.mark.parametrize("end", ["many", "single"])
def test_strays_on_one_end_leave_a_speedup_open(end):
    strays = measured(*[950.0] * 5, 500.0, 400.0, 300.0, 1200.0)
    usual = measured(*[1000.0] * 9)
    ends = (strays, usual) if end == "many" else (usual, strays)
    judgement = judge_speedup(*ends, ONE, ONE, speedup=1.0, tolerance_percent=5)
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert "4 of 9 runs are gross outliers" in (judgement.reason or "")


@pytest.mark.parametrize("sequential", [True, False])
def test_the_direction_of_a_speedup_cannot_be_turned_round(*, sequential):
    many = MANY if sequential else FASTER
    single = ONE if sequential else BASELINE
    for percent in range(6, 60):
        slow = speedup_of(8000 * (1 - percent / 100), 1000, many, single)
        fast = speedup_of(8000 * (1 + percent / 100), 1000, many, single)
        assert (slow.verdict, fast.verdict) == (Verdict.REGRESSED, Verdict.IMPROVED)


@pytest.mark.parametrize("sequential", [True, False])
def test_a_ratio_may_be_better_the_lower_it_is(*, sequential):
    """Seconds on many devices over those on one: what was a gain above is a loss here."""
    ratio = replace(SPEEDUP_METRIC, name="slowdown", better=Better.LOWER, ratio_of=TIME.name)
    sessions = [mirrored(EVEN)] * (6 if sequential else 1)
    known = accepted(*sessions, metric=TIME)

    def verdict(case_ms, over_ms):
        case = measured(*[case_ms] * 7, metric=TIME)
        over = measured(*[over_ms] * 7, metric=TIME, name=SINGLE)
        ends = end(case, known, accepted((), number=1.0, metric=ratio)), end(over, known)
        return decide(GateInput(ratio, ends[0], Terms(tolerance_percent=5), ends[1])).verdict

    assert verdict(1100, 1000) is Verdict.REGRESSED
    assert verdict(900, 1000) is Verdict.IMPROVED
    assert verdict(1000, 1100) is Verdict.INCONCLUSIVE
    assert verdict(1010, 1000) is Verdict.PASS


# -------------------------------------------------------------------- the lower, the better


@pytest.mark.parametrize(
    ("median", "verdict"),
    [
        (1000.0, Verdict.PASS),
        (1050.0, Verdict.PASS),
        (1050.01, Verdict.REGRESSED),
        (9000.0, Verdict.REGRESSED),
        (950.0, Verdict.PASS),
        (949.99, Verdict.IMPROVED),
    ],
)
def test_more_of_what_is_better_the_lower_is_a_loss(median, verdict):
    judgement = judge(measured(median, metric=TIME), accepted((), number=1000.0, metric=TIME))
    assert judgement.verdict is verdict
    assert judgement.loss_percent == pytest.approx((median - 1000) / 10)


def test_more_than_all_can_be_lost_of_what_is_better_the_lower():
    runs = (20.0, 500.0, 1500.0, 1600.0)
    one, other = (judge(measured(*runs, metric=metric), None) for metric in (METRIC, TIME))
    assert one.verdict is other.verdict is Verdict.NO_BASELINE
    seen = [
        judge(measured(*runs, metric=metric), accepted((), number=900.0, metric=metric))
        for metric in (METRIC, TIME)
    ]
    assert seen[0].decision.min_detectable_percent == 100
    assert (seen[1].decision.min_detectable_percent or 0) > 100


# ------------------------------------------------------------------------ what does not differ

MEMORY = Metric(name="peak_memory", unit="MB", better=Better.LOWER, source=Source.LOG)
ALIKE = accepted([23456.0, 23456.0, 23456.5], metric=MEMORY)


def test_what_does_not_differ_is_judged_from_one_run_by_its_tolerance():
    for level, verdict in ((1.0, Verdict.PASS), (1.06, Verdict.REGRESSED), (0.9, Verdict.IMPROVED)):
        judgement = judge(measured(23456.0 * level, metric=MEMORY), ALIKE)
        assert (judgement.verdict, judgement.decision.rule) == (verdict, RuleName.TOLERANCE)
        assert "one run is enough" in judgement.notes[0]
        assert (judgement.decision.false_alarm, judgement.decision.min_detectable_percent) == (
            0.0,
            5.0,
        )


def test_what_differs_tonight_alone_is_told_and_judged_by_its_own_noise():
    judgement = judge(measured(23456.0, 23000.0, 23456.0, 24000.0, metric=MEMORY), ALIKE)
    assert judgement.verdict is Verdict.PASS
    assert "4.35 % apart" in judgement.notes[0]
    assert (judgement.decision.min_detectable_percent or 0) > 6
    assert judgement.decision.false_alarm


# --------------------------------------------------------------------- missing, sanity, zero


def test_a_metric_that_the_log_lacks_is_invalid_and_what_was_looked_for_is_told():
    lacking = Run(run=2, status=RunStatus.OK, missing={MEMORY.name: "no line has 'max allocated'"})
    sound = measured(23456.0, metric=MEMORY)
    judgement = judge(replace(sound, runs=(*sound.runs, lacking)), ALIKE)
    assert judgement.verdict is Verdict.INVALID
    assert "run 2 has no peak_memory: no line has 'max allocated'" in (judgement.reason or "")


def test_what_is_checked_and_not_compared_passes_with_every_sound_run():
    loss = replace(MEMORY, name="loss", better=None, sanity=Sanity(falls=True, below=10.0))
    judgement = judge(measured(2.5, -1.0, metric=loss), None)
    assert (judgement.verdict, judgement.decision) == (Verdict.PASS, None)
    assert "checked" in judgement.notes[0]
    broken = Run(run=3, status=RunStatus.INVALID, reason="loss is nan in step 7")
    measurement = measured(2.5, metric=loss)
    unsound = judge(replace(measurement, runs=(*measurement.runs, broken)), None)
    assert unsound.verdict is Verdict.INVALID
    assert judge(measured(metric=loss), None).verdict is Verdict.INVALID


@pytest.mark.parametrize("value", [0.0, -3.0])
def test_a_loss_is_a_part_of_a_number_above_nothing(value):
    judgement = judge(measured(1000.0, value, metric=TIME), accepted(EVEN, metric=TIME))
    assert judgement.verdict is Verdict.INVALID
    assert f"{value:.4g} ms" in (judgement.reason or "")
    for known in (accepted((), number=value), accepted((1000.0, value, 1000.0))):
        unusable = judge(measured(1000.0), known)
        assert unusable.verdict is Verdict.NO_BASELINE
        assert f"{known.place} accepts {value:g} as {METRIC.name}" in (unusable.reason or "")


def test_judgements_pass_between_processes_unchanged():
    for judgement in (
        judge(measured(900)),
        judge(measured(900), None),
        judge(measured()),
        speedup_of(8000, 900),
    ):
        assert convert(to_builtins(judgement), Judgement) == judgement
