"""The shipped trainer, really run: its records, its options, and its quiet end."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from launches import run_spec
from msgspec.structs import replace

from pytest_dlperf.config.systems import load_systems
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import Window

pytestmark = pytest.mark.training

SYSTEM = (
    Path(__file__).resolve().parent.parent / "bench_tests" / "systems" / "pytorch-resnet18.yaml"
)
MODULE = "pytest_dlperf.trainers.resnet"
WINDOW = Window(warmup_steps=1, measured_steps=4)
STEPS = WINDOW.warmup_steps + WINDOW.measured_steps
STEP_RECORD = re.compile(
    r"dlperf step rank=(\d+) step=(\d+) time=(\d+\.\d{6}) loss=\d+\.?\d* peak_memory_mb=\d+\.\d"
)


def launch_entry(*more):
    """The launch entry of the shipped system, with more arguments."""
    [system] = load_systems([SYSTEM], BUILTIN_FORMATS).values()
    return replace(system.launch, more_arguments=(*system.launch.more_arguments, *more))


def train(log, topology, *more):
    case = Case.from_id(f"pytorch-resnet18-fp32-b2-{topology}")
    return run_spec(launch_entry(*more), case, WINDOW, log)


def step_times(log):
    """Times by rank; steps have to be complete and in order."""
    times = {}
    for line in log.read_text(encoding="utf-8").splitlines():
        if line.startswith("dlperf step"):
            match = STEP_RECORD.fullmatch(line)
            assert match is not None, f"not a record of its own: {line!r}"
            own = times.setdefault(int(match[1]), [])
            own.append(float(match[3]))
            assert int(match[2]) == len(own)
    assert all(len(own) == STEPS and own == sorted(own) for own in times.values())
    return times


def lines_with(log, beginning):
    lines = log.read_text(encoding="utf-8").splitlines()
    return {line for line in lines if line.startswith(beginning)}


def test_on_one_node_with_two_devices_each_rank_writes_all_of_its_records(tmp_path):
    log = tmp_path / "r18_b2_fp32_1.log"
    outcome = train(log, "1n2g")
    assert outcome.succeeded, log.read_text(encoding="utf-8")
    size = "world_size=2 nodes=1 devices_per_node=2 batch_per_device=2 precision=fp32"
    assert lines_with(log, "dlperf run") == {f"dlperf run rank={rank} {size}" for rank in (0, 1)}
    assert lines_with(log, "dlperf end") == {"dlperf end rank=0", "dlperf end rank=1"}
    times = step_times(log)
    assert sorted(times) == [0, 1]


def test_on_two_nodes_each_has_its_own_log_and_repeated_steps_count_once(tmp_path):
    log = tmp_path / "r18_b2_fp32_1.log"
    outcome = train(log, "2n1g", "--repeat-step=3")
    assert outcome.succeeded, log.read_text(encoding="utf-8")
    assert outcome.exit_codes == (0, 0)
    size = "world_size=2 nodes=2 devices_per_node=1 batch_per_device=2 precision=fp32"
    for rank, own_log in enumerate((log, tmp_path / "r18_b2_fp32_1" / "node1.log")):
        assert lines_with(own_log, "dlperf run") == {f"dlperf run rank={rank} {size}"}
        assert lines_with(own_log, "dlperf end") == {f"dlperf end rank={rank}"}
        times = step_times(own_log)
        assert list(times) == [rank]


def test_without_a_launcher_it_trains_alone():
    arguments = (
        "--batch-per-device=1 --image-size=33 --warmup-steps=0 --measured-steps=2 --precision=bf16"
    )
    result = subprocess.run(
        [sys.executable, "-m", MODULE, *arguments.split()],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert result.returncode == 0, result.stderr
    records = result.stdout.splitlines()
    size = "world_size=1 nodes=1 devices_per_node=1 batch_per_device=1 precision=bf16"
    assert records[0] == f"dlperf run rank=0 {size}"
    steps = [STEP_RECORD.fullmatch(record) for record in records[1:-1]]
    assert [match and match[2] for match in steps] == ["1", "2"]
    assert records[-1] == "dlperf end rank=0"
