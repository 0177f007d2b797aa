"""Runs on two nodes of which the last rank alone prints: launched, and read again."""

import shutil
from pathlib import Path

import pytest
from trainers import LAST_RANK, SYSTEM, TinySystem

pytestmark = [pytest.mark.end_to_end, pytest.mark.in_process]

TWO_NODES = ("-k", "throughput and tiny and 2n1g", "--dlperf-repeats", "1")


@pytest.fixture
def night(suite):
    """The logs of a launched run, in the folder of its system and topology."""
    tiny = TinySystem(suite, log=LAST_RANK)
    tiny.behave("0.01 last-rank-prints")
    folder = suite.path / "night"
    suite.run(*TWO_NODES, "--dlperf-create-baselines", "--dlperf-run-dir", folder)
    return folder / SYSTEM / "2n1g"


def judged_again(suite, night):
    logs = f"{SYSTEM}={night.parent.parent}"
    _, results = suite.judge(*TWO_NODES, "--dlperf-logs", logs, cluster="local")
    return results["cases"][0]


def test_what_was_launched_is_read_again_from_the_same_log(suite, night):
    case = judged_again(suite, night)
    [run] = case["measurement"]["runs"]
    assert (run["status"], run["log"]) == ("ok", str(night / "mlp_b4_fp32_1" / "node1.log"))
    throughput = case["metrics"]["throughput"]
    assert throughput["verdict"] == "pass"
    assert throughput["median"] == pytest.approx(throughput["accepted"], rel=1e-5)


def test_a_log_that_is_gone_is_told(suite, night):
    shutil.rmtree(night / "mlp_b4_fp32_1")
    case = judged_again(suite, night)
    assert case["metrics"]["throughput"]["verdict"] == "invalid"
    reason = case["measurement"]["runs"][0]["reason"]
    assert f"as in {night / 'mlp_b4_fp32_1' / 'node1.log'}" in reason
    assert "'node: last' of own.yaml" in reason


def test_the_attempt_that_failed_keeps_the_log_of_its_node(suite):
    tiny = TinySystem(suite, log=LAST_RANK, launch=["retries: 1", "step_limit_s: 3"])
    tiny.behave("0.01 last-rank-prints hang-at-6")
    _, results = suite.judge(*TWO_NODES, "--dlperf-run-dir", suite.path / "night", cluster="local")
    folder = suite.path / "night" / SYSTEM / "2n1g"
    [run] = results["cases"][0]["measurement"]["runs"]
    assert run["log"] == str(folder / "mlp_b4_fp32_1" / "node1.log")
    [attempt] = run["failed_attempts"]
    kept = folder / "mlp_b4_fp32_1.attempt1" / "node1.log"
    assert attempt["log"] == str(kept)
    assert "step=5 " in kept.read_text(encoding="utf-8")


def test_a_metric_may_be_in_the_log_of_another_node_than_the_steps(suite):
    """As with Megatron, whose last rank prints the steps, and the first one its memory."""
    record = "peak memory of rank 0: (?P<value>[0-9.]+) MB"
    keys = [
        "metrics:",
        f"  peak_memory: {{record: '{record}', unit: MB, better: lower, node: first, over: run}}",
    ]
    tiny = TinySystem(suite, log=LAST_RANK, keys=keys)
    tiny.behave("0.01 last-rank-prints peak-512 stay")
    _, results = suite.judge(*TWO_NODES, cluster="local")
    [run] = results["cases"][0]["measurement"]["runs"]
    assert (run["status"], run["metrics"]["peak_memory"]) == ("ok", 512)
    assert run["log"].endswith("/node1.log")


def test_where_every_rank_prints_a_node_that_printed_no_step_makes_the_run_invalid(
    suite,
):
    tiny = TinySystem(suite, launch=["step_limit_s: 3"])
    tiny.behave("0.01 first-node-prints stay")
    _, results = suite.judge(*TWO_NODES, cluster="local")
    [case] = results["cases"]
    assert case["metrics"]["throughput"]["verdict"] == "invalid"
    [run] = case["measurement"]["runs"]
    assert run["log"].endswith("/mlp_b4_fp32_1.log")
    assert "/mlp_b4_fp32_1/node1.log) shows no step" in run["reason"]


def test_what_a_trainer_says_of_being_ended_is_told_apart(suite):
    """A stack trace at the end of a log looks like the cause, and here we are the cause."""
    tiny = TinySystem(suite, log=LAST_RANK, launch=["step_limit_s: 3"])
    tiny.behave("0.01 last-rank-prints hang-at-6 cry")

    _, results = suite.judge(*TWO_NODES, cluster="local")

    [run] = results["cases"][0]["measurement"]["runs"]
    head, *words = run["reason"].splitlines()
    assert "the log of node 1, " in head
    told = words.index("(what follows was printed after pytest-dlperf had sent SIGTERM)")
    assert "step=5 " in words[told - 1]
    assert "most recent call first" in words[told + 1]


def test_what_a_trainer_says_when_it_has_shown_enough_is_no_ending_of_its_log(
    suite,
):
    tiny = TinySystem(suite)
    tiny.behave("0.01 stay cry")
    page = suite.path / "page.html"

    _, results = suite.judge(*TWO_NODES, "--dlperf-html", page, cluster="local")

    [run] = results["cases"][0]["measurement"]["runs"]
    log = Path(run["log"]).read_bytes()
    before, after = log[: run["log_size_at_end"]], log[run["log_size_at_end"] :]
    assert (run["status"], run["reason"]) == ("ok", None)
    assert b"most recent call first" in after
    assert b"most recent call first" not in before
    # Without a baseline the case is bad, and its page shows how the log ends.
    shown = page.read_text(encoding="utf-8")
    assert before.decode().splitlines()[-1] in shown
    assert "most recent call first" not in shown
