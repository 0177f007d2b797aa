"""Cases that are submitted as jobs of their own, from outside any allocation of a real Slurm."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from trainers import SYSTEM, TinySystem, accept

from pytest_dlperf.logs.arrivals import Arrivals

if TYPE_CHECKING:
    from clusters.slurm import Slurm
    from suites import Suite


@pytest.fixture
def submitting(suite: Suite, slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    """A Slurm that the sessions of a test submit to."""
    del suite  # it clears the environment, so it comes first
    for name, value in slurm.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DLPERF_LAUNCHER", "sbatch")
    return slurm


def test_a_run_is_a_job_of_its_own(suite: Suite, submitting: Slurm) -> None:
    """It goes on until it is cancelled, as soon as it has shown what is needed."""
    tiny = TinySystem(suite)
    tiny.behave("0.01 stay")
    accept(suite, {"2n1g": 1131}, system=SYSTEM, variant="fp32-b4", unit="samples/s")

    result, results = suite.judge(
        "-k", "throughput and tiny and 2n1g", "--dlperf-repeats", "1",
        "--dlperf-run-dir", suite.path / "a night's 7%j", cluster="local",
    )  # fmt: skip

    [case] = results["cases"]
    [run] = case["runs"]
    assert (run["status"], run["reason"]) == ("ok", None)
    assert result.ret == 0
    assert submitting.jobs() == []
    assert submitting.processes() == []
    [file] = suite.path.glob("a night's 7%j/*/*/*/command.json")
    assert (file.parent / "job" / "output.log").exists()
    record = json.loads(file.read_text(encoding="utf-8"))
    assert record["launcher"] == case["fingerprint"]["launch"]["launcher"] == "sbatch"
    # Not of a port or folder of its own.
    assert case["fingerprint"]["launch"]["environment"] == {"TINY_HOST": "{address0}"}
    assert not (file.parent / "job" / "program.py").exists()
    assert [node["host"] for node in record["nodes"]] == submitting.names[:2]
    assert [node["address"] for node in record["nodes"]] == submitting.addresses[:2]
    assert [line.split()[3] for line in sorted(tiny.hosts())] == submitting.addresses[:2]
    arrivals = Arrivals(file.parent / "node1.log")
    arrivals.refresh()
    assert arrivals.known


def test_what_a_job_waits_for_is_told_and_has_a_limit_of_its_own(
    suite: Suite, submitting: Slurm
) -> None:
    """Nothing of a run that has not begun counts towards its own limits."""
    TinySystem(suite, time_limit_s=1)

    with submitting.allocation():
        result, results = suite.judge(
            "-k", "throughput and tiny and 1n1g", "--dlperf-repeats", "1",
            "--dlperf-wait-limit", "4", "--dlperf-run-dir", suite.path / "night", cluster="local",
        )  # fmt: skip
        assert len(submitting.jobs()) == 1  # the allocation

    assert result.ret == 1
    [run] = results["cases"][0]["runs"]
    assert run["status"] == "failed"
    told = r"sbatch job \d+ had not begun after 4 s \(Resources\); --dlperf-wait-limit .*"
    assert re.match(told, run["reason"])
    result.stdout.re_match_lines([r".*waiting: sbatch job \d+ is queued: Resources .*4 s at most"])


def test_a_trainer_s_own_end_is_told(suite: Suite, submitting: Slurm) -> None:
    """And what its log ends with; the options that the cluster sets reach Slurm."""
    tiny = TinySystem(suite)
    tiny.behave("0.01 second-node-dies-at-3")
    options = "--partition=all --reservation="

    _, results = suite.judge(
        "-k", "throughput and tiny and 2n1g", "--dlperf-repeats", "1",
        "--dlperf-set", f"*.slurm.sbatch={options}", cluster="local",
    )  # fmt: skip

    [run] = results["cases"][0]["runs"]
    assert run["status"] == "failed"
    assert run["reason"].startswith("the trainer ended with exit code 3 on node 1")
    assert "MemoryError: node 1 has no more" in run["reason"]
    assert submitting.jobs() == []


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("sbatch=--partition=nowhere", "sbatch: sbatch: error: invalid partition .*: nowhere"),
        ("srun=--bogus", r"sbatch job \d+ was over before it began: FAILED .*option '--bogus'"),
    ],
)
def test_what_slurm_refuses_is_told(
    option: str, told: str, suite: Suite, submitting: Slurm
) -> None:
    del submitting
    TinySystem(suite)

    _, results = suite.judge(
        "-k", "throughput and tiny and 1n1g", "--dlperf-repeats", "1",
        "--dlperf-set", f"*.slurm.{option}", cluster="local",
    )  # fmt: skip

    [run] = results["cases"][0]["runs"]
    assert run["status"] == "failed"
    assert re.match(told, run["reason"])


def test_a_dry_run_shows_the_script(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLPERF_LAUNCHER", "sbatch")
    TinySystem(suite, devices="gpu")

    result = suite.run(
        "-k", "throughput and tiny and 2n1g", "--dlperf-dry-run", "--dlperf-cluster", "local",
        "--dlperf-set", "*.slurm.sbatch=--account=bench",
    )  # fmt: skip

    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "  node 1 on node 1 of the job: *train.py 2 1 1 *",
            "  | sbatch *--nodes=2 *--exclusive*--gpus-per-node=1*--time=*--account=bench *",
            "  | exec srun --nodes=2 --ntasks=2 *",
        ]
    )
