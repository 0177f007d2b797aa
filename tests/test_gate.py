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

from pytest_dlperf.gate.inputs import GateInput
from pytest_dlperf.gate.terms import Terms
from pytest_dlperf.gate.verdicts import decide
from pytest_dlperf.model.baseline import Acceptance, Loss, Spread
from pytest_dlperf.model.judgement import Judgement, Verdict
from pytest_dlperf.model.measurement import Estimator, Fingerprint, Run, RunStatus
from pytest_dlperf.model.metric import SPEEDUP_METRIC, Better, Metric, Sanity, Source

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
        (1052.0, Verdict.PASS),
        (1053.0, Verdict.IMPROVED),
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


def test_runs_that_show_nothing_say_so():
    judgement = judge(measured(20.0, 500.0, 1500.0))
    assert judgement.notes[-1].endswith("now: the gate sees no loss")
    assert (judgement.decision.interval_percent or (0, 0))[0] >= -100


def test_what_too_few_runs_cannot_tell_is_left_open():
    judgement = judge(measured(1000, 1001))
    assert judgement.decision.min_detectable_percent is None
    assert judgement.decision.interval_percent is None


def test_medians_are_rounded_as_their_estimator_rounds():
    published = replace(BASELINE, estimator=Estimator.PUBLISHED)
    measurement = replace(measured(949.998), estimator=Estimator.PUBLISHED)
    assert judge(measurement, published).measured == 950.0


# ----------------------------------------------------------------------- machine, software


def on(machine, software=None):
    taken_on = Fingerprint(machine=machine, software=software or {}, hosts=("node1",))
    return replace(measured(1000, 1000, 1000), fingerprint=taken_on)


def test_fewer_runs_to_be_had_let_less_be_seen():
    known = replace(lasting(1000), spread=Spread(losses=(Loss(0.0, 0.6),) * 12))
    seen = {
        available: judge(
            replace(measured(*EVEN[1:4]), available_runs=available), known
        ).decision.min_detectable_percent
        for available in (3, 5, 9, 30, None)
    }
    assert seen[9] == seen[30] == seen[None]
    assert seen[None] < seen[5] < seen[3]


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


def test_a_speedup_may_lose_what_its_own_tolerance_allows():
    own = accepted_speedup(8.0, own=4.0)
    assert speedup_of(7700, 1000, speedup=own).verdict is Verdict.PASS
    assert speedup_of(7600, 1000, speedup=own).verdict is Verdict.REGRESSED


def test_a_speedup_is_judged_by_its_tolerance():
    assert speedup_of(7700, 1000).verdict is Verdict.PASS
    assert speedup_of(7500, 1000).verdict is Verdict.REGRESSED
    assert speedup_of(8500, 1000).verdict is Verdict.IMPROVED
    assert speedup_of(7700, 1000, single_known=None).verdict is Verdict.PASS


def test_both_ends_are_shown_beside_every_speedup():
    ends = "\n".join(speedup_of(7900, 990).ends)
    assert "1n8g: 7900.00 images/s, -1.2 % from the accepted 8000.00" in ends
    assert "1n1g: 990.00 images/s, -1.0 % from the accepted 1000.00" in ends
    assert speedup_of(7900, 990, single_known=None).ends[1].endswith("990.00 images/s")


def test_a_speedup_of_noisy_ends_is_allowed_what_their_runs_explain():
    noisy = [
        accepted([level * (1 + 4 * (run / 1000 - 1)) for run in EVEN]) for level in (8000, 1000)
    ]
    judgement = speedup_of(7500, 1000, *noisy)
    assert judgement.verdict is Verdict.PASS
    assert judgement.decision.tolerance_percent > 6.3


def test_a_single_device_on_another_machine_has_no_speedup_to_compare():
    single = replace(
        measured(1000, name=SINGLE),
        fingerprint=Fingerprint(machine={"device": "A100"}),
    )
    known = replace(ONE, machine={"device": "V100"})
    judgement = judge_speedup(measured(8000), single, MANY, known, tolerance_percent=5)
    assert judgement.verdict is Verdict.NO_BASELINE


@pytest.mark.parametrize(("many", "single"), [(MANY, ONE), (FASTER, BASELINE)])
def test_the_direction_of_a_speedup_cannot_be_turned_round(many, single):
    for percent in range(6, 60):
        slow = speedup_of(8000 * (1 - percent / 100), 1000, many, single)
        fast = speedup_of(8000 * (1 + percent / 100), 1000, many, single)
        assert (slow.verdict, fast.verdict) == (Verdict.REGRESSED, Verdict.IMPROVED)


@pytest.mark.parametrize("count", [1, 6])
def test_a_ratio_may_be_better_the_lower_it_is(count):
    """Seconds on many devices over those on one: what was a gain above is a loss here."""
    ratio = replace(SPEEDUP_METRIC, name="slowdown", better=Better.LOWER, ratio_of=TIME.name)
    sessions = [mirrored(EVEN)] * count
    known = accepted(*sessions, metric=TIME)

    def verdict(case_ms, over_ms):
        case = measured(*[case_ms] * 7, metric=TIME)
        over = measured(*[over_ms] * 7, metric=TIME, name=SINGLE)
        ends = end(case, known, accepted((), number=1.0, metric=ratio)), end(over, known)
        return decide(GateInput(ratio, ends[0], Terms(tolerance_percent=5), ends[1])).verdict

    assert verdict(1100, 1000) is Verdict.REGRESSED
    assert verdict(900, 1000) is Verdict.IMPROVED
    assert verdict(1010, 1000) is Verdict.PASS


# -------------------------------------------------------------------- the lower, the better


@pytest.mark.parametrize(
    ("median", "verdict"),
    [
        (1000.0, Verdict.PASS),
        (1050.0, Verdict.PASS),
        (1050.01, Verdict.REGRESSED),
        (9000.0, Verdict.REGRESSED),
        (953.0, Verdict.PASS),
        (952.0, Verdict.IMPROVED),
    ],
)
def test_more_of_what_is_better_the_lower_is_a_loss(median, verdict):
    judgement = judge(measured(median, metric=TIME), accepted((), number=1000.0, metric=TIME))
    assert judgement.verdict is verdict
    assert judgement.loss_percent == pytest.approx((median - 1000) / 10)


def test_more_than_all_can_be_lost_of_what_is_better_the_lower():
    runs = (20.0, 500.0, 1500.0, 2600.0)
    one, other = (judge(measured(*runs, metric=metric), None) for metric in (METRIC, TIME))
    assert one.verdict is other.verdict is Verdict.NO_BASELINE
    seen = [
        judge(measured(*runs, metric=metric), accepted((), number=900.0, metric=metric))
        for metric in (METRIC, TIME)
    ]
    assert seen[0].decision.min_detectable_percent == 100
    assert (seen[1].decision.min_detectable_percent or 0) > 100


MEMORY = Metric(name="peak_memory", unit="MB", better=Better.LOWER, source=Source.LOG)
ALIKE = accepted([23456.0, 23456.0, 23456.5], metric=MEMORY)


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


def test_judgements_pass_between_processes_unchanged():
    for judgement in (
        judge(measured(900)),
        judge(measured(900), None),
        judge(measured()),
        speedup_of(8000, 900),
    ):
        assert convert(to_builtins(judgement), Judgement) == judgement
