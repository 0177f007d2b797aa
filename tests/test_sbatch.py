"""Cases that are submitted as jobs of their own, from outside any allocation of a real Slurm."""

from __future__ import annotations

import json
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
        "--dlperf-run-dir", suite.path / "night", cluster="local",
    )  # fmt: skip

    [case] = results["cases"]
    [run] = case["runs"]
    assert (run["status"], run["reason"]) == ("ok", None)
    assert result.ret == 0
    assert submitting.jobs() == []
    assert submitting.processes() == []
    [file] = suite.path.glob("night/*/*/*/command.json")
    record = json.loads(file.read_text(encoding="utf-8"))
    assert record["launcher"] == "sbatch"
    assert [node["host"] for node in record["nodes"]] == submitting.names[:2]
    assert [node["address"] for node in record["nodes"]] == submitting.addresses[:2]
    assert [line.split()[3] for line in sorted(tiny.hosts())] == submitting.addresses[:2]
    arrivals = Arrivals(file.parent / "node1.log")
    arrivals.refresh()
    assert arrivals.known
