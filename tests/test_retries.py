"""A run that failed is run again as often as the system says, and no attempt is lost."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from trainers import CASES, SYSTEM, TinySystem, accept

from pytest_dlperf.logs.arrivals import Arrivals

if TYPE_CHECKING:
    from suites import Suite

ONE = ("-k", "throughput and tiny and 1n1g", "--dlperf-repeats", "1")


def test_a_failed_run_is_run_again_and_the_attempt_is_kept_and_shown(suite: Suite) -> None:
    tiny = TinySystem(suite, launch=["retries: 2"])
    tiny.behave("0.01 die-once-at-6")
    runs = suite.path / "night"

    result, results = suite.judge(*ONE, "--dlperf-run-dir", runs, cluster="local")

    assert tiny.starts() == ["1n1g 0 1"] * 2
    [run] = results["cases"][0]["runs"]
    assert (run["status"], run["metrics"]["throughput"]) == ("ok", pytest.approx(400, rel=1e-4))
    [attempt] = run["failed_attempts"]
    assert (attempt["status"], attempt["metrics"]) == ("failed", {})
    assert "exit code 7 on node 0" in attempt["reason"]
    folder = runs / SYSTEM / "1n1g"
    assert attempt["log"] == str(folder / "mlp_b4_fp32_1.log.attempt1")
    assert "out of luck" in (folder / "mlp_b4_fp32_1.log.attempt1").read_text(encoding="utf-8")
    assert "step=10" in (folder / "mlp_b4_fp32_1.log").read_text(encoding="utf-8")
    for log in ("mlp_b4_fp32_1.log", "mlp_b4_fp32_1.log.attempt1"):
        arrivals = Arrivals(folder / log)
        arrivals.refresh()
        assert arrivals.known == (folder / log).stat().st_size
    assert (folder / "mlp_b4_fp32_1.attempt1" / "command.json").is_file()
    # It fails for want of a baseline: the message and the summary, whose lines are wrapped, tell
    # of the attempt.
    message, _, summary = " ".join(result.stdout.str().split()).partition("= dlperf: ")
    told = r"exit code 7 on node 0.* ran out of luck"
    assert re.search(f"run 1, attempt 1: failed.* {told}.*attempt1", message)
    assert re.search(f"run 1, attempt 1: .* {told}", summary)
    result.stdout.fnmatch_lines([f"{CASES[0]}, run 1: failed; it is run again (1 of 2)"])


def test_retries_come_to_an_end(suite: Suite, workers: list[str]) -> None:
    tiny = TinySystem(suite, launch=["retries: 2"])
    tiny.behave("0.01 die-at-6")

    result, results = suite.judge(*ONE, *workers, cluster="local")

    assert tiny.starts() == ["1n1g 0 1"] * 3
    assert results["cases"][0]["metrics"]["throughput"]["verdict"] == "failed"
    [run] = results["cases"][0]["runs"]
    assert run["status"] == "failed"
    assert [attempt["status"] for attempt in run["failed_attempts"]] == ["failed"] * 2
    result.stdout.fnmatch_lines(["    run 1, attempt 1: failed*", "    run 1, attempt 2: failed*"])


@pytest.mark.parametrize(
    ("behaviour", "verdict"),
    [("0.5", "regressed"), ("0.01 stop-at-6", "invalid"), ("-0.01", "invalid")],
    ids=["slow", "ends early", "breaks its contract"],
)
def test_neither_a_slow_nor_an_invalid_run_is_run_again(
    suite: Suite, behaviour: str, verdict: str
) -> None:
    tiny = TinySystem(suite, launch=["retries: 2"])
    accept(suite, {"1n1g": 400}, system=SYSTEM, variant="fp32-b4", unit="samples/s")
    tiny.behave(behaviour)

    _, results = suite.judge(*ONE, cluster="local")

    assert results["cases"][0]["metrics"]["throughput"]["verdict"] == verdict
    assert tiny.starts() == ["1n1g 0 1"]
    assert not results["cases"][0]["runs"][0].get("failed_attempts")


def test_a_hung_run_is_run_again(suite: Suite) -> None:
    tiny = TinySystem(suite, launch=["retries: 1", "step_limit_s: 0.5"])
    tiny.behave("0.01 hang-at-6")

    _, results = suite.judge(*ONE, cluster="local")

    assert tiny.starts() == ["1n1g 0 1"] * 2
    [run] = results["cases"][0]["runs"]
    assert [run["status"], *(each["status"] for each in run["failed_attempts"])] == ["hung"] * 2
