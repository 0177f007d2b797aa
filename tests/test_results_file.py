"""The results files of sessions: their numbers and nulls."""

import json
import subprocess
from datetime import datetime

import pytest
from trainers import CASES, TinySystem

pytestmark = [pytest.mark.end_to_end, pytest.mark.in_process]


def test_a_session_that_accepts_and_one_that_compares(suite, workers):
    """The second one with workers, which changes nothing but who measures."""
    TinySystem(suite)
    select = ["-k", "tiny"]

    _, accepting = suite.judge(*select, "--dlperf-create-baselines", cluster="local")
    _, results = suite.judge(*select, *workers, cluster="local")

    assert (results["schema"], results["cluster"], results["estimator"]) == (3, "local", "steady")
    started, ended = (datetime.fromisoformat(results[key]) for key in ("started", "ended"))
    assert started.tzinfo is not None
    assert started <= ended
    assert (results["interrupted"], results["unfit_hosts"]) == (False, {})
    assert results["environment"]["processors"] >= 1
    assert results["session"] != accepting["session"]
    assert {case["id"] for case in results["cases"]} == set(CASES)
    for case, before in zip(results["cases"], accepting["cases"], strict=True):
        throughput, accepted = case["metrics"]["throughput"], case["accepted"]["throughput"]
        assert (throughput["unit"], throughput["better"]) == ("samples/s", "higher")
        assert accepted["acceptance"]["at"] == accepting["started"]
        assert accepted["machine"] == case["measurement"]["fingerprint"]["machine"]
        assert throughput["accepted"] == accepted["accepted"]
        assert accepted["accepted"] == pytest.approx(
            before["metrics"]["throughput"]["median"], rel=1e-5
        )
        for run in case["measurement"]["runs"]:
            assert (run["status"], run["reason"], run["steps"]) == ("ok", None, 8)
            assert run["metrics"]["throughput"] > 0


def test_what_was_not_measured_is_null(suite):
    _, results = suite.judge("-k", "paddle-resnet50-fp32-b128-4n8g")

    [case] = results["cases"]
    assert case["batch"] == {"per_replica": 128, "global": 4096}
    assert case["measurement"] is None
    throughput = case["metrics"]["throughput"]
    assert throughput["unit"] == "images/s"
    for name in ("throughput", "speedup"):
        found = case["metrics"][name]
        assert [found[key] for key in ("median", "mean", "spread", "accepted")] == [None] * 4


def test_selected_cases_appear_even_when_the_session_stops_before_them(suite):
    TinySystem(suite)

    result, results = suite.judge("-k", "throughput and tiny", "-x", cluster="local")

    assert result.parseoutcomes()["failed"] == 1
    assert [case["id"] for case in results["cases"]] == list(CASES)
    assert [case["metrics"]["throughput"]["verdict"] for case in results["cases"]] == [
        "no_baseline", None, None,
    ]  # fmt: skip


def test_the_file_is_strict_json_whatever_the_logs_hold(suite):
    folder = suite.path / "logs" / "1n1g"
    folder.mkdir(parents=True)
    text = "".join(
        f"2020-09-10 08:27:41,009-INFO: [Pass 0, train batch {k}] \tloss nan, acc1 nan, acc5 nan, "
        f"lr 0.00100, elapse {'nan' if k == 60 else '0.3601'} sec\n"
        for k in range(120)
    )
    (folder / "r50_b128_fp32_1.log").write_text(text, encoding="utf-8")
    file = suite.path / "results.json"

    suite.judge("--dlperf-logs", "paddle-resnet50=logs", "-k", "fp32-b128-1n1g and paddle")

    def refuse(constant):
        raise AssertionError(constant)

    results = json.loads(file.read_text(encoding="utf-8"), parse_constant=refuse)
    [case] = [case for case in results["cases"] if case["measurement"]]
    [run] = case["measurement"]["runs"]
    assert (run["status"], run["metrics"]) == ("invalid", {})


def committed(suite):
    """Put the suite under Git and give the commit, as short as it is told."""
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "bench_tests"], ["commit", "-qm", "suite"]):
        subprocess.run([*git, *words], cwd=suite.path, check=True)
    words = [*git, "rev-parse", "--short=12", "HEAD"]
    return subprocess.check_output(words, cwd=suite.path, text=True).strip()


def test_what_was_launched_names_its_commit_and_the_run_of_the_ci(suite, monkeypatch):
    TinySystem(suite)
    commit = committed(suite)
    monkeypatch.setenv("GITLAB_CI", "true")
    monkeypatch.setenv("CI_JOB_URL", "https://ci.example/jobs/7")

    _, results = suite.judge("-k", "tiny", "--dlperf-repeats", "1", cluster="local")

    assert results["environment"]["commit"] == commit
    assert results["environment"]["ci_run"] == "https://ci.example/jobs/7"


BROKEN = """
from pytest_dlperf.report.reports import Report


def draw(session):
    raise OSError(28, "No space left on device")


def pytest_dlperf_reports():
    return [Report("chart", draw)]
"""


def test_a_report_that_could_not_be_written_stands_in_the_file(suite):
    """So that a notice of the file says what the exit code says."""
    TinySystem(suite)
    suite.pytester.makeconftest(BROKEN)
    one = ("-k", "throughput and tiny and 1n1g", "--dlperf-create-baselines")
    ended, results = suite.judge(*one, cluster="local")
    assert ended.ret == 1
    assert results["faults"] == ["the chart could not be written: No space left on device"]
