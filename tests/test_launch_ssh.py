"""Cases that are launched over ssh, on hosts with a real sshd each."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from sessions import in_background
from trainers import LAST_RANK, SYSTEM, TinySystem, accept

from pytest_dlperf.logs.arrivals import Arrivals

if TYPE_CHECKING:
    from clusters.ssh import SshHosts
    from suites import Suite

RECORDED = ("--dlperf-repeats", "1", "--dlperf-create-baselines")


@pytest.mark.training
def test_real_training_on_several_hosts_is_judged(suite: Suite, over_ssh: SshHosts) -> None:
    """The shipped one, as it ships."""
    system, topology = "pytorch-resnet18", "2n1g"
    accept(suite, {topology: 0.001}, system=system, variant="fp32-b8", unit="images/s")
    runs = suite.path / "night"

    result, results = suite.judge(
        "-m", "smoke", "-k", f"throughput and {topology}", "--dlperf-repeats", "1",
        "--dlperf-run-dir", runs, cluster="local",
    )  # fmt: skip

    assert result.ret == 0
    [case] = results["cases"]
    assert (case["system"], case["topology"]) == (system, topology)
    assert case["metrics"]["throughput"]["verdict"] == "improved"
    [run] = case["runs"]
    assert (run["status"], run["reason"]) == ("ok", None)
    [file] = runs.glob("*/*/*/command.json")
    record = json.loads(file.read_text(encoding="utf-8"))
    assert record["launcher"] == "ssh"
    assert [node["host"] for node in record["nodes"]] == over_ssh.names[:2]
    log, node = file.parent.with_suffix(".log"), file.parent / "node1.log"
    assert "rank=0 " in log.read_text(encoding="utf-8")
    assert "rank=1 " in node.read_text(encoding="utf-8")
    for each in (log, node):
        arrivals = Arrivals(each)
        arrivals.refresh()
        assert arrivals.known >= each.read_bytes().rfind(b"dlperf step")
    assert over_ssh.processes() == []


@pytest.mark.usefixtures("over_ssh")
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
    assert (run["status"], run["reason"]) == ("ok", "nothing was printed on node 0")
    assert run["log"].endswith("/2n1g/mlp_b4_fp32_1/node1.log")
    assert len({line.split()[3] for line in tiny.hosts()}) == 2


def test_auto_is_one_worker_per_host_and_each_case_is_launched_once(
    suite: Suite, over_ssh: SshHosts
) -> None:
    """Also the single device that speedups are taken over, which was not selected."""
    tiny = TinySystem(suite, topologies=["1n1g", "1n2g", "2n1g", "4n1g"])
    tiny.behave("0.01 work-0.2")

    result, results = suite.judge(
        "-k", "tiny and (1n2g or 2n1g or 4n1g)", "-n", "auto", *RECORDED, cluster="local"
    )

    assert result.ret == 0
    result.stdout.fnmatch_lines([f"{len(over_ssh.names)} workers*"])
    assert Counter(line.split()[0] for line in tiny.starts()) == {
        "1n1g": 1,
        "1n2g": 1,
        "2n1g": 2,
        "4n1g": 4,
    }
    assert tiny.overlaps() == []
    speedups = {case["topology"]: case["metrics"]["speedup"]["median"] for case in results["cases"]}
    assert speedups == {
        "1n2g": pytest.approx(2 * 2**0.5, rel=1e-4),
        "2n1g": pytest.approx(2 * 2**0.5, rel=1e-4),
        "4n1g": pytest.approx(8, rel=1e-4),
    }


def test_the_largest_gangs_are_launched_first(suite: Suite, over_ssh: SshHosts) -> None:
    tiny = TinySystem(suite, topologies=["1n1g", "2n1g", "4n1g", "3n1g"])
    suite.run("-k", "tiny", *RECORDED)
    launched = list(dict.fromkeys(line.split()[0] for line in tiny.starts()))
    assert launched == ["4n1g", "3n1g", "2n1g", "1n1g"]
    assert {line.split()[3] for line in tiny.hosts()} == set(over_ssh.names)


def claims(suite: Suite) -> list[dict[str, Any]]:
    """Who holds hosts, and which."""
    [file] = (suite.path / "tmp").glob("pytest-dlperf-hosts/hosts.json")
    granted = json.loads(file.read_text(encoding="utf-8"))["claims"]
    return [claim for claim in granted if claim["granted"]]


def test_a_worker_that_is_killed_frees_its_hosts(suite: Suite, over_ssh: SshHosts) -> None:
    """Its trainings would wait for ever, and the next gang needs three of the four hosts."""
    tiny = TinySystem(suite, topologies=["3n1g", "4n1g"])
    tiny.behave("0.01 wait")

    with in_background(suite, "-k", "throughput and tiny", "-n", "1", *RECORDED) as session:
        session.wait_until(lambda: len(tiny.starts()) == 4, what="the first run")
        [claim] = claims(suite)
        assert set(claim["granted"]) == set(over_ssh.names)
        os.kill(claim["pid"], signal.SIGKILL)
        session.wait_until(lambda: len(tiny.starts()) == 7, what="the next run")
        tiny.go()
        assert session.result() == 1

    assert tiny.overlaps() == []
    assert "crashed while running" in session.output
    assert "1 failed, 1 passed" in session.output
    assert claims(suite) == []
    assert over_ssh.processes() == []


def test_logs_of_distant_nodes_lie_in_the_benchmark_s_tree(
    suite: Suite, over_ssh: SshHosts
) -> None:
    TinySystem(suite)
    runs = suite.path / "night"
    suite.run("-k", "throughput and tiny and 2n1g", *RECORDED, "--dlperf-run-dir", runs)
    folder = runs / SYSTEM / "2n1g"
    assert "rank=0 step=10 " in (folder / "mlp_b4_fp32_1.log").read_text(encoding="utf-8")
    node = (folder / "mlp_b4_fp32_1" / "node1.log").read_text(encoding="utf-8")
    assert "rank=1 step=10 " in node
    record = json.loads((folder / "mlp_b4_fp32_1" / "command.json").read_text(encoding="utf-8"))
    assert [node["address"] for node in record["nodes"]] == over_ssh.names[:2]
