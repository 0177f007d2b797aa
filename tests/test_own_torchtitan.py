"""torchtitan in a repository of one's own, with tensor parallelism: its own lines and flags."""

import json
import re
import shutil

import pytest
from repositories import SCRIPTS

SYSTEM_FILE = """\
extends: torchtitan
model: tiny
window: {warmup_steps: 4, measured_steps: 16}
repeats: 1
tolerance_percent: 50
metrics: {peak_memory: {tolerance_percent: 15}}
launch:
  devices: cpu
  variables: {program: {default: titan_on_cpu}}
  arguments:
    - --module=titan_tiny
    - --config=llama
    - --metrics.log_freq=1
    # The default needs a newer PyTorch.
    - --parallelism.spmd_backend=partial_dtensor
  environment: {OMP_NUM_THREADS: 1, PYTHONPATH: .}
  time_limit_s: 180
cases:
  - precision: fp32
    global_batch: 4
    sequence_length: 64
    parallel: {tp: 2}
    topologies: [1n2g, 2n1g]
    reference: 1n2g
  # What the same training would be taken for if its layout were not known.
  - precision: fp32
    batch_per_device: 4
    sequence_length: 64
    topologies: [1n2g]
    reference: none
"""
STEP = re.compile(r"step: +([0-9]+) .*tps: ([0-9,]+) ")


def judge(pytester, *arguments):
    result = pytester.runpytest_subprocess(
        "bench_tests", "--dlperf-json", "results.json", *arguments
    )
    text = (pytester.path / "results.json").read_text(encoding="utf-8")
    return int(result.ret), json.loads(text)["cases"]


def printed(log):
    """The tokens per second of one device, by step."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", log.read_text(encoding="utf-8"))
    return {int(step): float(tps.replace(",", "")) for step, tps in STEP.findall(text)}


@pytest.mark.minutes(1)
@pytest.mark.trainers
@pytest.mark.slow
@pytest.mark.usefixtures("own_environment")
def test_two_devices_that_share_a_model_are_no_two_replicas(pytester):
    systems = pytester.path / "bench_tests" / "systems"
    systems.mkdir(parents=True)
    (systems / "titan.yaml").write_text(SYSTEM_FILE, encoding="utf-8")
    for script in ("titan_tiny.py", "titan_on_cpu.py"):
        shutil.copyfile(SCRIPTS / script, pytester.path / script)

    ret, cases = judge(pytester, "-k", "tp2", "--dlperf-create-baselines")
    assert ret == 0
    assert [case["topology"] for case in cases] == ["1n2g", "2n1g"]
    for case in cases:
        metrics = case["metrics"]
        for name in ("throughput", "peak_memory", "loss"):
            assert metrics[name]["verdict"] == "pass", (case["id"], name)
        assert 0.1 < metrics["peak_memory"]["median"] < 5
        assert case["batch"] == {"per_replica": 4, "global": 4}
        # Both devices work on the same tokens; torchtitan counts half of them for each.
        speeds = printed(pytester.path / case["measurement"]["runs"][0]["log"])
        one_device = 16 / sum(1 / speeds[step] for step in range(5, 21))
        assert metrics["throughput"]["median"] == pytest.approx(2 * one_device, rel=0.1)
    assert cases[1]["metrics"]["speedup"]["verdict"] == "pass"

    # Its log is none of a training of two replicas, which would seem twice as fast.
    other = f"torchtitan-tiny-fp32-b4-s64-1n2g={cases[0]['measurement']['runs'][0]['log']}"
    ret, (taken_for,) = judge(pytester, "-k", "not tp2 and throughput", "--dlperf-logs", other)
    assert ret == 1
    (run,) = taken_for["measurement"]["runs"]
    assert run["status"] == "invalid"
    assert "tp 2" in run["reason"]
