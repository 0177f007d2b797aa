"""A run is watched while it lives: shown, ended as soon as it can be, and told why it failed."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from clusters.requirements import command
from trainers import CASES, LAST_RANK, SYSTEM, TinySystem

ONE = ("-k", "throughput and tiny and 1n1g", "--dlperf-repeats", "1")
TWO_DEVICES = ("-k", "throughput and tiny and 1n2g", "--dlperf-repeats", "1")
TWO_NODES = ("-k", "throughput and tiny and 2n1g", "--dlperf-repeats", "1")


def on_a_terminal(suite, *arguments):
    """What a session writes to a terminal, control characters included."""
    ours, its = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "bench_tests", *arguments],
        cwd=suite.path,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
        stdin=subprocess.DEVNULL,
        stdout=its,
        stderr=its,
    )
    os.close(its)
    written = b""
    while True:
        try:
            read = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        written += read
    os.close(ours)
    process.wait()
    return written.decode("utf-8", "replace")


def test_a_terminal_shows_one_line_per_run_that_is_rewritten(suite):
    tiny = TinySystem(suite)
    tiny.behave("0.25 step-by-step-0.25")
    written = on_a_terminal(suite, *ONE[:2], "--dlperf-repeats", "2", "--dlperf-create-baselines")
    lines = re.findall(r"\r(tiny-mlp-[^\r\n\x1b]*)\x1b\[K", written)
    for run in (1, 2):
        shown = [line for line in lines if f"  run {run} of 2, step " in line]
        assert len(shown) >= 2
        assert shown[0].startswith(f"{CASES[0]}  run {run} of 2, step 0 of 10")
        assert any(
            re.search(r"step [1-9] of 10, [\d.]+ samples/s, \d+ s left$", line) for line in shown
        )
    # The line is gone before pytest prints a result: nothing of it stays in front of the dot.
    assert re.search(r"\r\x1b\[K[^\n]*\.", written)
    assert "1 passed" in written


def test_a_run_goes_by_the_log_of_the_node_that_prints(suite):
    """It is shown, ended as soon as it can be, and named by that log."""
    tiny = TinySystem(suite, log=LAST_RANK)
    tiny.behave("0.28 last-rank-prints step-by-step-0.2 stay")
    runs = suite.path / "night"

    written = on_a_terminal(
        suite, *TWO_NODES, "--dlperf-create-baselines", "--dlperf-run-dir", str(runs),
        "--dlperf-json", "results.json",
    )  # fmt: skip

    assert re.search(r"run 1 of 1, step [3-9] of 10, [\d.]+ samples/s, \d+ s left\x1b", written)
    assert "1 passed" in written
    [case] = json.loads((suite.path / "results.json").read_text(encoding="utf-8"))["cases"]
    assert case["metrics"]["throughput"]["median"] == pytest.approx(8 * 2**0.5 / 0.28, rel=1e-4)
    [run] = case["measurement"]["runs"]
    assert (run["status"], run["reason"]) == ("ok", None)
    assert Path(run["log"]) == runs / SYSTEM / "2n1g" / "mlp_b4_fp32_1" / "node1.log"


def test_a_run_without_new_steps_hangs(suite):
    told = r"no new step for 3 s; last steps: rank 0: 5, rank 1: 5\b"
    tiny = TinySystem(suite, launch=["step_limit_s: 3"])
    tiny.behave("0.01 hang-at-6")

    result, results = suite.judge(*TWO_DEVICES, cluster="local")

    assert results["cases"][0]["metrics"]["throughput"]["verdict"] == "hung"
    assert re.match(told, results["cases"][0]["measurement"]["runs"][0]["reason"])
    head = told.partition("; ")[0]
    assert re.search(f"hung[^:]*: throughput; run 1: {head}", result.stdout.str())
    assert re.search(f"  reason     {CASES[1]}, run 1: {told}", result.stdout.str())


def test_the_log_of_the_node_that_died_says_why(suite):
    """Node 0 would die of it, three seconds later."""
    tiny = TinySystem(suite)
    tiny.behave("0.01 second-node-dies-at-6")

    result, results = suite.judge(*TWO_NODES, cluster="local")

    [run] = results["cases"][0]["measurement"]["runs"]
    assert run["status"] == "failed"
    head, *words = run["reason"].splitlines()
    assert "exit code" in head
    assert "3 on node 1" in head
    assert head.endswith("/node1.log, ends with:")
    assert words[-2:] == ["Traceback (most recent call last):", "MemoryError: node 1 has no more"]
    assert "lost a peer" not in run["reason"]
    assert len(words) <= 20
    result.stdout.fnmatch_lines(
        [
            "failed*: throughput; run 1: *",
            f"  reason     {CASES[2]}, run 1: * 3 on node 1*; the log of node 1, * ends with:",
            "             Traceback (most recent call last):",
            "             MemoryError: node 1 has no more",
            "*= dlperf: *",
        ]
    )
    # The failure says it in its first line and in full; our summary not again.
    summary = result.stdout.str().partition("= dlperf: ")[2].partition("short test summary")[0]
    assert "MemoryError" not in summary


def test_a_death_after_the_window_is_noted_and_the_run_counts(suite):
    tiny = TinySystem(suite, launch=["run_to_end: true"])
    tiny.behave("0.01 die-at-end")
    result, results = suite.judge(*ONE, "--dlperf-create-baselines", cluster="local")
    [run] = results["cases"][0]["measurement"]["runs"]
    assert run["status"] == "ok"
    assert run["metrics"]["throughput"] == pytest.approx(400, rel=1e-4)
    assert run["reason"].endswith("exit code 9 on node 0, after the last step that counts")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["    run 1: *exit code 9 on node 0, after the last step*"])


@pytest.fixture
def small_disk(suite):
    """A folder on a disk of two MiB."""
    folder = suite.path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        [command("mount"), "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        if os.environ.get("CI") == "true":
            pytest.fail(f"no small disk can be mounted: {mounted.stderr.decode()}")
        pytest.skip("needs the right to mount a file system: run the tests as root")
    yield folder
    subprocess.run([command("umount"), "--lazy", folder], check=True)


def test_a_full_disk_ends_the_run_with_that_reason(suite, small_disk):
    tiny = TinySystem(suite)
    tiny.behave("0.01 flood-at-6")

    result, results = suite.judge(*ONE, "--dlperf-run-dir", small_disk / "night", cluster="local")

    [run] = results["cases"][0]["measurement"]["runs"]
    assert run["status"] == "failed"
    assert re.match(r"the disk is full: \d+ bytes are free in ", run["reason"])
    assert str(small_disk / "night" / SYSTEM) in run["reason"]
    assert result.ret == 1
