"""How many runs of a case are taken: as many as a rule asks for, and again those that failed."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pytest
from trainers import CASES, SYSTEM, TinySystem, accept, measurer

from pytest_dlperf.config.cluster import Cluster
from pytest_dlperf.config.systems import load_systems
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS
from pytest_dlperf.logs.arrivals import Arrivals
from pytest_dlperf.logs.tree import LogSource, index_logs, log_path
from pytest_dlperf.measure.from_logs import LogMeasurer
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import FixedRepeats, Run, RunStatus
from pytest_dlperf.report.live import progress_line

CASE = Case.from_id(CASES[0])


@dataclass
class EnoughFrom:
    """A rule that has enough from so many runs on, and keeps what it was asked with."""

    number: int
    at_most: int = 9
    asked: list[list[Run]] = field(default_factory=list)
    may_be_fewer: bool = True

    def is_enough(self, runs):
        self.asked.append(list(runs))
        return len(runs) >= self.number


def numbers_of(shown):
    """What the lines of progress say of the runs, each once."""
    said = [progress_line(progress).split("  ")[1].split(",")[0] for progress in shown]
    return list(dict.fromkeys(said))


def test_runs_are_launched_until_the_rule_has_enough(suite):
    tiny = TinySystem(suite)
    rule = EnoughFrom(3)
    shown = []
    measurement = measurer(suite, repeats=lambda _: rule, show=shown.append).measure(CASE)
    assert len(tiny.starts()) == len(measurement.runs) == 3
    assert rule.asked[-1] == list(measurement.runs)
    assert numbers_of(shown) == [f"run {run} of at most 9" for run in (1, 2, 3)]


def test_a_fixed_number_is_told_as_one(suite):
    TinySystem(suite)
    shown = []
    measurer(suite, repeats=lambda _: FixedRepeats(2), show=shown.append).measure(CASE)
    assert numbers_of(shown) == ["run 1 of 2", "run 2 of 2"]


def test_a_broken_run_ends_a_case_whatever_the_rule_says(suite):
    tiny = TinySystem(suite)
    tiny.behave("0.01 die-at-3")
    measurement = measurer(suite, repeats=lambda _: EnoughFrom(3)).measure(CASE)
    assert [run.status for run in measurement.runs] == [RunStatus.FAILED]


# ---------------------------------------------------------------------------- from logs


@pytest.fixture
def nights(suite):
    """The logs of six runs."""
    TinySystem(suite)
    measurer(suite, repeats=lambda _: FixedRepeats(6)).measure(CASE)
    return suite.path / "night"


def from_logs(suite, nights):
    """The runs that are read, and what became of them."""
    systems = load_systems([suite.path / "bench_tests/systems/own.yaml"], BUILTIN_FORMATS)
    index = index_logs(LogSource(SYSTEM, None, nights), log_name="mlp", cases=[CASE])
    cluster = Cluster(name="mine", directory=suite.path)
    read = LogMeasurer(index, systems, cluster).measure(CASE)
    assert read.fingerprint is None
    return [run.run for run in read.runs], [run.status for run in read.runs]


def test_all_logs_are_read_and_a_broken_one_is_one_of_the_runs(suite, nights):
    log_path(nights, CASE, "mlp", 4).write_text("", encoding="utf-8")
    runs, statuses = from_logs(suite, nights)
    assert runs == [1, 2, 3, 4, 5, 6]
    assert [status for status in statuses if status is not RunStatus.OK] == [RunStatus.INVALID]
    assert statuses[3] is RunStatus.INVALID


# ------------------------------------------------------------------------------- runs that failed


ONE = ("-k", "throughput and tiny and 1n1g", "--dlperf-repeats", "1")


def test_a_failed_run_is_run_again_and_the_attempt_is_kept_and_shown(suite):
    tiny = TinySystem(suite, launch=["retries: 2"])
    tiny.behave("0.01 die-once-at-6")
    runs = suite.path / "night"

    result, results = suite.judge(*ONE, "--dlperf-run-dir", runs, cluster="local")

    assert tiny.starts() == ["1n1g 0 1"] * 2
    [run] = results["cases"][0]["measurement"]["runs"]
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
    # It fails for want of a baseline, and its message tells of the attempt; the summary not again.
    message, _, summary = " ".join(result.stdout.str().split()).partition("= dlperf: ")
    told = r"exit code 7 on node 0.* ran out of luck"
    assert re.search(f"run 1, attempt 1: failed.* {told}.*attempt1", message)
    assert "out of luck" not in summary
    result.stdout.fnmatch_lines([f"{CASES[0]}, run 1: failed; it is run again (1 of 2)"])


def test_retries_come_to_an_end(suite):
    tiny = TinySystem(suite, launch=["retries: 2"])
    tiny.behave("0.01 die-at-6")
    [run] = measurer(suite, repeats=lambda _: FixedRepeats(1)).measure(CASE).runs
    assert tiny.starts() == ["1n1g 0 1"] * 3
    assert [each.status for each in (run, *run.failed_attempts)] == [RunStatus.FAILED] * 3


@pytest.mark.parametrize(
    ("behaviour", "verdict"),
    [("0.5", "regressed"), ("0.01 stop-at-6", "invalid")],
    ids=["slow", "ends early"],
)
def test_neither_a_slow_nor_an_invalid_run_is_run_again(suite, behaviour, verdict):
    tiny = TinySystem(suite, launch=["retries: 2"])
    accept(suite, {"1n1g": 400})
    tiny.behave(behaviour)

    _, results = suite.judge(*ONE, cluster="local")

    assert results["cases"][0]["metrics"]["throughput"]["verdict"] == verdict
    assert tiny.starts() == ["1n1g 0 1"]
    assert not results["cases"][0]["measurement"]["runs"][0].get("failed_attempts")


def test_a_hung_run_is_run_again(suite):
    tiny = TinySystem(suite, launch=["retries: 1", "step_limit_s: 3"])
    tiny.behave("0.01 hang-at-6")

    [run] = measurer(suite, repeats=lambda _: FixedRepeats(1)).measure(CASE).runs

    assert tiny.starts() == ["1n1g 0 1"] * 2
    assert [each.status for each in (run, *run.failed_attempts)] == [RunStatus.HUNG] * 2
