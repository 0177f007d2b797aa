"""Cases that are launched inside a Slurm allocation, as steps of it."""

from __future__ import annotations

import json
import shlex
import sys
from typing import TYPE_CHECKING

import pytest
from trainers import LAST_RANK, SYSTEM, TinySystem, accept, shorter_training

from pytest_dlperf.logs.arrivals import Arrivals

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clusters.slurm import Allocation, Slurm
    from suites import Suite

NOTHING = "nothing was printed on node 0"
RECORDED = ("--dlperf-repeats", "1", "--dlperf-create-baselines")


@pytest.fixture
def allocation(suite: Suite, slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[Allocation]:
    """Four nodes with two GPUs each, which the sessions of a test run in."""
    del suite  # it clears the environment, so it comes first
    with slurm.allocation() as allocated:
        for name, value in allocated.environment.items():
            if name.startswith("SLURM"):
                monkeypatch.setenv(name, value)
        yield allocated


@pytest.mark.training
@pytest.mark.usefixtures("allocation")
def test_real_training_on_several_nodes_is_judged(suite: Suite, slurm: Slurm) -> None:
    """On two devices of each node."""
    system = shorter_training(suite, "2n2g")
    runs = suite.path / "night"

    result, results = suite.judge(
        "-k", f"throughput and {system}", "--dlperf-repeats", "1",
        "--dlperf-run-dir", runs, cluster="local",
    )  # fmt: skip

    assert result.ret == 0
    [case] = results["cases"]
    assert (case["system"], case["topology"]) == (system, "2n2g")
    assert case["metrics"]["throughput"]["verdict"] == "improved"
    [run] = case["runs"]
    assert (run["status"], run["reason"]) == ("ok", None)
    [file] = runs.glob("*/*/*/command.json")
    record = json.loads(file.read_text(encoding="utf-8"))
    for log in (file.parent.with_suffix(".log"), file.parent / "node1.log"):
        arrivals = Arrivals(log)
        arrivals.refresh()
        assert arrivals.known >= log.read_bytes().rfind(b"dlperf step")
    assert record["launcher"] == "slurm"
    assert [node["host"] for node in record["nodes"]] == slurm.names[:2]
    assert [node["address"] for node in record["nodes"]] == slurm.addresses[:2]
    assert slurm.processes() == []


@pytest.mark.usefixtures("allocation")
def test_a_run_of_which_the_last_rank_alone_prints_is_judged(suite: Suite) -> None:
    """It would go on for minutes, and its first node says nothing."""
    tiny = TinySystem(suite, log=LAST_RANK)
    tiny.behave("0.01 last-rank-prints stay")
    accept(suite, {"2n1g": 1131}, system=SYSTEM, variant="fp32-b4", unit="samples/s")

    result, results = suite.judge(
        "-k", "throughput and tiny and 2n1g", "--dlperf-repeats", "1",
        "--dlperf-run-dir", suite.path / "night", cluster="local",
    )  # fmt: skip

    assert result.ret == 0
    [case] = results["cases"]
    assert case["metrics"]["throughput"]["verdict"] == "pass"
    [run] = case["runs"]
    # slurmstepd may have written into the log of node 0 that the step was cancelled.
    assert (run["status"], run["reason"] or NOTHING) == ("ok", NOTHING)
    assert run["log"].endswith("/2n1g/mlp_b4_fp32_1/node1.log")
    assert len({line.split()[3] for line in tiny.hosts()}) == 2


@pytest.mark.usefixtures("allocation")
def test_the_allocation_s_nodes_and_devices_are_the_hosts(suite: Suite, slurm: Slurm) -> None:
    """All of it is used, and a case that needs more is skipped: one node, or one device."""
    tiny = TinySystem(suite, topologies=["1n1g", "4n2g", "5n1g", "1n3g"], devices="gpu")
    tiny.behave("0.01 work-0.2")

    result = suite.run("-k", "throughput and tiny", *RECORDED, "-n", "auto", "-rs")

    result.stdout.fnmatch_lines(["4 workers*"])
    assert {kind: result.parseoutcomes()[kind] for kind in ("passed", "skipped")} == {
        "passed": 2,
        "skipped": 2,
    }
    there_is = f"there is node[[]{slurm.names[0][4:]}-{slurm.names[3][4:]}[]]:2."
    result.stdout.fnmatch_lines_random(
        [f"*-5n1g needs 5 nodes of 1 device; {there_is}*", f"*-1n3g needs * 3 dev*; {there_is}*"]
    )
    starts = [line.split() for line in tiny.hosts()]
    assert sorted(host for topology, _, _, host in starts if topology == "4n2g") == slurm.addresses
    assert tiny.overlaps() == []


def test_a_batch_job_ends_green_or_red_as_the_session_does(suite: Suite, slurm: Slurm) -> None:
    """The second session is reached only if the first one is green, and gives the exit code."""
    tiny = TinySystem(suite)
    accept(suite, {"2n1g": 1131}, system="tiny-mlp", variant="fp32-b4", unit="samples/s")
    select = ["-k", "throughput and tiny and 2n1g", "--dlperf-repeats", "1"]
    session = shlex.join([sys.executable, "-m", "pytest", "bench_tests", *select])

    with pytest.raises(RuntimeError, match=r"regressed -\S+ % tonight: throughput") as red:
        slurm.batch(
            f"#!/bin/sh\nset -e\ncd {shlex.quote(str(suite.path))}\n"
            f"{session}\necho 0.1 > trainer/behaviour.txt\nexec {session}\n"
        )

    assert "ended with 1" in str(red.value)
    assert "1 passed" in str(red.value)
    assert len({line.split()[3] for line in tiny.hosts()}) == 2
    assert sorted(tiny.starts()) == ["2n1g 0 1"] * 2 + ["2n1g 1 1"] * 2
