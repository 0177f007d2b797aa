"""Metrics of launched runs: printed by any node, computed from the steps, or read off the clock."""

import pytest
from msgspec.structs import replace
from trainers import CASES, TinySystem, measurer

from pytest_dlperf.config.cluster import published_peak
from pytest_dlperf.measure.run import with_derived
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import FixedRepeats, Run, RunStatus

pytestmark = pytest.mark.in_process

ONE, TWO_DEVICES, TWO_NODES = map(Case.from_id, CASES)
PEAK = "  peak_memory: {record: 'rank (?P<rank>[0-9]+): (?P<value>[0-9]+) MB', unit: MB, %s}"


def launched(suite, case=ONE):
    measurement = measurer(suite, repeats=lambda _: FixedRepeats(1)).measure(case)
    [run] = measurement.runs
    assert {*run.metrics, *run.missing} <= {metric.name for metric in measurement.metrics}
    return run


def test_a_number_that_is_printed_at_the_end_is_waited_for(suite):
    tiny = TinySystem(suite, keys=["metrics:", PEAK % "over: run, better: lower"])
    tiny.behave("0.01 step-by-step-0.02 peak-512")
    run = launched(suite)
    assert run.status is RunStatus.OK
    assert run.metrics["peak_memory"] == 512


def test_a_loss_that_does_not_fall_ends_a_case(suite):
    TinySystem(suite, keys=["metrics:", "  loss: {record: 'loss=(?P<value>.+)', sanity: falls}"])
    run = launched(suite)
    assert (run.status, run.metrics) == (RunStatus.INVALID, {})
    assert "loss does not fall" in (run.reason or "")


def test_what_follows_from_steps_and_clock_is_recorded(suite):
    keys = ["flops_per_sample: 2.0e+10", "metrics:", "  step_time_p95: {judged: false}"]
    tiny = TinySystem(suite, keys=keys)
    tiny.behave("0.01 step-by-step-0.05")
    measure = measurer(suite, repeats=lambda _: FixedRepeats(1), peak_tflops={"fp32": 20.0})
    [case] = (case for case in measure.systems[TWO_DEVICES.system].cases if case == TWO_DEVICES)
    [run] = measure.measure(case).runs
    throughput = run.metrics["throughput"]
    assert run.metrics["throughput_per_device"] == throughput / 2
    assert run.metrics["mfu"] == pytest.approx(100 * 2e10 * throughput / (2 * 20e12))
    assert run.metrics["step_time_p95"] == pytest.approx(8 / throughput, rel=1e-3)
    assert 0.05 <= run.metrics["first_step_time"] < 30
    assert run.missing == {}


@pytest.mark.parametrize(
    ("device", "precision", "peak"),
    [
        ("Tesla V100-SXM2-16GB", "fp16", 125),
        ("NVIDIA A100 80GB PCIe", "tf32", 156),
        ("NVIDIA H100 80GB HBM3", "fp8", 1978.9),
        ("NVIDIA H20", "bf16", None),
        ("AMD gfx942 (0x74a1)", "bf16", 1307.4),
        ("tpu 0x0063", "bf16", 197),
        ("Tesla V100-SXM2-16GB", "bf16", None),
        ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", "bf16", None),
        ("NVIDIA A100-SXM4-40GB + NVIDIA T400 4GB", "bf16", None),
        (None, "bf16", None),
    ],
)
def test_a_peak_is_that_of_the_whole_device_without_sparsity(device, precision, peak):
    assert published_peak(device, precision) == peak


def test_mfu_is_a_part_of_the_clusters_own_peak_or_else_of_the_published_one(suite):
    TinySystem(suite, keys=["flops_per_sample: 2.0e+10"])
    measure = measurer(suite)
    system = measure.systems[TWO_DEVICES.system]
    [case] = (case for case in system.cases if case == TWO_DEVICES)
    run = Run(run=1, status=RunStatus.OK, metrics={"throughput": 1000.0})
    h100 = "NVIDIA H100 80GB HBM3"  # 66.9 TFLOP/s in fp32

    def derived(device, **peaks):
        cluster = replace(measure.cluster, peak_tflops=peaks)
        return with_derived(run, system, case, cluster, device=device)

    published, declared = derived(h100), derived(h100, fp32=62)
    assert published.metrics["mfu"] == pytest.approx(100 * 2e13 / (2 * 66.9e12))
    assert declared.metrics["mfu"] == pytest.approx(100 * 2e13 / (2 * 62e12))
    assert "mfu" not in derived(None).metrics


def test_what_is_judged_and_cannot_be_computed_says_why(suite):
    TinySystem(suite, keys=["flops_per_sample: 2.0e+10", "metrics: {mfu: {}}"])
    measure = measurer(suite, repeats=lambda _: FixedRepeats(1))
    [case] = (case for case in measure.systems[ONE.system].cases if case == ONE)
    [run] = measure.measure(case).runs
    assert "peak_tflops of fp32" in run.missing["mfu"]


def test_logs_tell_no_time_of_a_launch(suite):
    TinySystem(suite, keys=["metrics: {first_step_time: {}}"])
    suite.run("-k", "throughput and tiny and 1n1g", "--dlperf-run-dir", suite.path / "night")
    result, results = suite.judge(
        "--dlperf-logs", f"tiny-mlp={suite.path / 'night'}", "-k", "tiny and 1n1g", cluster="local"
    )
    [case] = results["cases"]
    metric = case["metrics"]["first_step_time"]
    assert (metric["verdict"], metric["median"]) == ("invalid", None)
    assert "launch" in metric["reason"]
    assert result.ret == 1
