"""The gate: which numbers give which verdict, and that nothing unmeasured passes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_dlperf.baselines.entry import Baseline
from pytest_dlperf.gate.judge import judge_speedup, judge_throughput
from pytest_dlperf.gate.verdict import Judgement, Verdict
from pytest_dlperf.measurement import Estimator, Measurement, Run, RunStatus

BASELINE = Baseline(
    throughput=1000.0,
    speedup=8.0,
    unit="images/s",
    estimator=Estimator.STEADY,
    tolerance_percent=None,
    mean=None,
    runs={},
    strays={},
    note=None,
    place="baselines/x/y.yaml:7",
)


def measured(*throughputs: float, name: str = "paddle-resnet50-fp32-b128-1n8g") -> Measurement:
    return Measurement(
        case_id=name,
        unit="images/s",
        estimator=Estimator.STEADY,
        runs=tuple(
            Run(run=number, throughput=throughput, status=RunStatus.OK)
            for number, throughput in enumerate(throughputs, 1)
        ),
    )


def with_broken_run(status: RunStatus) -> Measurement:
    broken = Run(run=3, throughput=None, status=status, reason="the reason")
    sound = measured(1000.0, 1001.0)
    return replace(sound, runs=(*sound.runs, broken))


def judge(measurement: Measurement, baseline: Baseline | None = BASELINE) -> Judgement:
    return judge_throughput(measurement, baseline, tolerance_percent=5)


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
def test_the_median_is_held_against_the_tolerance(median: float, verdict: Verdict) -> None:
    assert judge(measured(median)).verdict is verdict


def test_one_stray_run_does_not_move_the_verdict() -> None:
    assert judge(measured(1000, 1001, 300, 999, 1002)).verdict is Verdict.PASS


def test_slower_is_never_improved_and_faster_never_regressed() -> None:
    for percent in range(1, 100):
        assert judge(measured(1000 * (1 - percent / 100))).verdict is not Verdict.IMPROVED
        assert judge(measured(1000 * (1 + percent / 100))).verdict is not Verdict.REGRESSED


def test_a_baseline_brings_its_own_tolerance() -> None:
    own = replace(BASELINE, tolerance_percent=20.0)
    assert judge(measured(850), own).verdict is Verdict.PASS
    assert judge(measured(799), own).verdict is Verdict.REGRESSED


@pytest.mark.parametrize("status", [RunStatus.FAILED, RunStatus.HUNG, RunStatus.INVALID])
def test_one_broken_run_is_the_verdict(status: RunStatus) -> None:
    judgement = judge(with_broken_run(status))
    assert judgement.verdict.value == status.value
    assert "run 3: the reason" in (judgement.reason or "")


def test_no_run_at_all_is_invalid() -> None:
    assert judge(measured()).verdict is Verdict.INVALID


def test_without_a_baseline_nothing_passes_unless_it_is_recorded() -> None:
    assert judge(measured(1000), None).verdict is Verdict.NO_BASELINE
    recorded = judge_throughput(measured(1000), None, tolerance_percent=5, record=True)
    assert recorded.verdict is Verdict.PASS
    assert recorded.recorded


def test_recording_never_touches_a_case_that_has_a_baseline() -> None:
    slow = judge_throughput(measured(500), BASELINE, tolerance_percent=5, record=True)
    assert slow.verdict is Verdict.REGRESSED
    assert not slow.recorded


@pytest.mark.parametrize(
    "other",
    [replace(BASELINE, unit="sentences/s"), replace(BASELINE, estimator=Estimator.PUBLISHED)],
    ids=["unit", "estimator"],
)
def test_numbers_of_another_kind_are_no_baseline(other: Baseline) -> None:
    judgement = judge_throughput(measured(1000), other, tolerance_percent=5, record=True)
    assert judgement.verdict is Verdict.NO_BASELINE
    assert other.place in (judgement.reason or "")


@pytest.mark.parametrize(
    ("throughput", "verdict"),
    [(8000, Verdict.PASS), (7599, Verdict.REGRESSED), (8500, Verdict.IMPROVED)],
)
def test_the_speedup_is_held_against_its_own_baseline(throughput: float, verdict: Verdict) -> None:
    judgement = judge_speedup(measured(throughput), measured(1000), BASELINE, tolerance_percent=5)
    assert judgement.verdict is verdict
    assert judgement.measured == throughput / 1000


@pytest.mark.parametrize("broken_end", ["many", "single"])
def test_a_speedup_needs_both_ends(broken_end: str) -> None:
    broken, sound = with_broken_run(RunStatus.INVALID), measured(1000)
    ends = (broken, sound) if broken_end == "many" else (sound, broken)
    assert judge_speedup(*ends, BASELINE, tolerance_percent=5).verdict is Verdict.INVALID


def test_a_baseline_without_speedup_judges_no_speedup() -> None:
    without = replace(BASELINE, speedup=None)
    judgement = judge_speedup(measured(8000), measured(1000), without, tolerance_percent=5)
    assert judgement.verdict is Verdict.NO_BASELINE


def test_judgements_pass_between_processes_unchanged() -> None:
    for judgement in (judge(measured(900)), judge(measured(900), None), judge(measured())):
        assert Judgement.from_plain(judgement.to_plain()) == judgement
