"""What is true of a launched run wherever its nodes are: the same tests in each place."""

import json

import pytest
from clusters.processes import wait_until
from fault_matrix.places import MARKS, place_of
from trainers import LAST_RANK, TinySystem, accept, shorter_training

from pytest_dlperf.logs.arrivals import Arrivals

ONCE = ("--dlperf-repeats", "1")
TWO_NODES = ("-k", "throughput and tiny and 2n1g", *ONCE)


@pytest.fixture
def place(suite, request, monkeypatch, tmp_path):
    """Nodes that the sessions of a test launch on."""
    del suite  # it clears the environment, so it comes first
    with place_of(request.param, request, tmp_path) as here:
        for name, value in here.environment.items():
            monkeypatch.setenv(name, value, prepend=" " if name == "PYTEST_ADDOPTS" else None)
        yield here


def everywhere(*kinds):
    return pytest.mark.parametrize(
        "place", [pytest.param(kind, marks=MARKS[kind]) for kind in kinds], indirect=True
    )


def known(log):
    """How many bytes of a log have come while somebody looked."""
    arrivals = Arrivals(log)
    arrivals.refresh()
    return arrivals.known


@everywhere("ssh", "slurm", "sbatch", "kubernetes")
def test_a_run_is_judged_on_what_its_last_rank_prints_and_ended(suite, place):
    """It would go on for minutes, and its first node says nothing."""
    tiny = TinySystem(suite, log=LAST_RANK)
    tiny.behave("0.01 last-rank-prints stay")
    accept(suite, {"2n1g": 1131})
    runs = suite.path / "a night's 7%j"

    result, results = suite.judge(*TWO_NODES, "--dlperf-run-dir", runs, cluster="local")

    [case] = results["cases"]
    [run] = case["measurement"]["runs"]
    assert (run["status"], run["reason"]) == ("ok", None)
    assert result.ret == 0
    assert case["metrics"]["throughput"]["verdict"] == "pass"
    wait_until(lambda: not place.jobs() and not place.elsewhere(), what="the end of all jobs")
    [file] = runs.glob("*/*/*/command.json")
    record = json.loads(file.read_text(encoding="utf-8"))
    launch = case["measurement"]["fingerprint"]["launch"]
    assert launch["launcher"] == place.launcher
    by = "slurm" if place.launcher == "sbatch" else place.launcher
    assert record["launcher"] == by
    # Not of a port or folder of its own.
    assert launch["environment"] == {"TINY_HOST": "{address0}"}
    assert [node["host"] for node in record["nodes"]] == list(place.hosts)
    addresses = [node["address"] for node in record["nodes"]]
    assert [line.split()[3] for line in sorted(tiny.hosts())] == addresses
    log = file.parent / "node1.log"
    assert run["log"] == str(log)
    assert "rank=1 step=10 " in log.read_text(encoding="utf-8")
    assert known(log)


@everywhere("ssh", "slurm", "sbatch", "kubernetes")
def test_a_trainer_s_own_end_is_told_with_what_its_log_ends_with(suite, place):
    tiny = TinySystem(suite)
    tiny.behave("0.01 second-node-dies-at-3")

    _, results = suite.judge(*TWO_NODES, cluster="local")

    [run] = results["cases"][0]["measurement"]["runs"]
    assert run["status"] == "failed"
    assert run["reason"].startswith("the program ended with exit code 3 on node 1")
    assert "MemoryError: node 1 has no more" in run["reason"]
    wait_until(lambda: not place.jobs() and not place.elsewhere(), what="the end of all jobs")


@pytest.mark.training
@everywhere("ssh", "slurm")
def test_real_training_on_two_devices_of_each_node_is_judged(suite, place):
    system = shorter_training(suite, "2n2g")
    runs = suite.path / "night"

    result, results = suite.judge(
        *("-k", f"throughput and {system}", *ONCE, "--dlperf-create-baselines"),
        *("--dlperf-run-dir", runs),
        cluster="local",
    )

    assert result.ret == 0
    [case] = results["cases"]
    assert (case["system"], case["topology"]) == (system, "2n2g")
    assert case["metrics"]["throughput"]["verdict"] == "pass"
    [run] = case["measurement"]["runs"]
    assert run["status"] == "ok"  # on a busy machine with a remark on how the ranks differ
    [file] = runs.glob("*/*/*/command.json")
    for rank, log in ((0, file.parent.with_suffix(".log")), (2, file.parent / "node1.log")):
        text = log.read_bytes()
        assert b"rank=%d " % rank in text
        assert known(log) >= text.rfind(b"dlperf step")
    assert place.elsewhere() == []
