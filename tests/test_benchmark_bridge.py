"""Measured cases in pytest-benchmark: its files, comparisons and histograms.

Warnings are errors in the suite: none of pytest-benchmark's may end a session.
"""

import json
import os
from importlib.metadata import version
from types import SimpleNamespace

import pytest
import results_makers as make
from nights import Nights
from trainers import CASES

from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.measurement import RunStatus
from pytest_dlperf.report.benchmark_bridge import hand_over

pytestmark = pytest.mark.slow

ONE, TWO = CASES[:2]
CASE = "paddle-resnet50-fp32-b128-1n1g"
KEYS = {"group", "name", "fullname", "params", "param", "extra_info", "options", "stats"}
STATISTICS = {
    "min", "max", "mean", "stddev", "rounds", "median", "iqr", "q1", "q3", "iqr_outliers",
    "stddev_outliers", "outliers", "ld15iqr", "hd15iqr", "ops", "total", "iterations",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _its_own_warnings(with_benchmark, monkeypatch):
    """Let releases warn that they measure nothing under xdist: each session, before 5.3."""
    del with_benchmark  # it sets the variable, so it comes first
    release = tuple(map(int, version("pytest-benchmark").split(".")[:2]))
    if release < (5, 3):
        kind = "pytest_benchmark.logger.PytestBenchmarkWarning"
        monkeypatch.setenv("PYTEST_ADDOPTS", f"{os.environ['PYTEST_ADDOPTS']} -W default::{kind}")


@pytest.fixture
def nights(suite):
    nights = Nights(suite)
    nights.accept(nights.numbers("accepted"))
    return nights


def read(file):
    """The benchmarks of a file."""
    return json.loads(file.read_text(encoding="utf-8"))["benchmarks"]


def saved(suite):
    """The files of pytest-benchmark's storage, oldest first."""
    return sorted(suite.path.glob(".benchmarks/*/*.json"))


def test_every_measured_case_is_in_the_json(nights, workers):
    suite = nights.suite
    runs = nights.numbers("now")
    file = suite.path / "benchmarks.json"
    own = "def test_tiny_own(benchmark):\n    benchmark.pedantic(int)\n"
    (suite.path / "bench_tests" / "test_own.py").write_text(own, encoding="utf-8")

    result = suite.run(*nights.night("now", runs), "--benchmark-json", file, *workers)

    assert result.ret == 0
    benchmarks = {benchmark["param"]: benchmark for benchmark in read(file)}
    # Under xdist pytest-benchmark measures nothing of its own.
    assert set(benchmarks) == {ONE, TWO} | ({None} if not workers else set())
    for topology, case_id in (("1n1g", ONE), ("1n2g", TWO)):
        benchmark = benchmarks[case_id]
        assert set(benchmark) == KEYS
        assert set(benchmark["stats"]) == {*STATISTICS, "data"}
        assert benchmark["group"] == "tiny-mlp-fp32"
        assert benchmark["name"] == f"step[{case_id}]"
        assert benchmark["fullname"] == f"local/steady::step[{case_id}]"
        assert benchmark["params"]["topology"] == topology
        batch = {"1n1g": 4, "1n2g": 8}[topology]
        # The logs tell microseconds.
        seconds = [pytest.approx(batch / throughput, rel=1e-3) for throughput in runs[topology]]
        assert benchmark["stats"]["data"] == seconds
        assert benchmark["stats"]["rounds"] == 5
        extra = benchmark["extra_info"]
        throughput = extra["metrics"]["throughput"]
        assert benchmark["stats"]["median"] * throughput["median"] == pytest.approx(batch)
        assert (extra["case"], extra["topology"], extra["cluster"]) == (case_id, topology, "local")
        assert (extra["global_batch"], extra["reference_topology"]) == (batch, "1n1g")
        assert (throughput["unit"], extra["estimator"]) == ("samples/s", "steady")
        assert throughput["verdict"] == "pass"
    speedup = benchmarks[TWO]["extra_info"]["metrics"]["speedup"]
    assert speedup["median"] == pytest.approx(1.9, rel=0.05)
    assert speedup["efficiency_percent"] == pytest.approx(50 * speedup["median"])
    assert speedup["verdict"] == "pass"


def test_a_slower_session_is_seen_in_a_comparison_with_a_saved_one(nights):
    suite = nights.suite
    suite.run(*nights.usual("first"), "--benchmark-save", "before")

    slow = nights.usual("second", of_1n2g=0.8)
    result = suite.run(
        *slow, "--benchmark-autosave", "--benchmark-compare", "0001", "--benchmark-name", "short",
        "--benchmark-compare-fail", "median:5%",
    )  # fmt: skip

    assert result.ret != 0
    assert saved(suite)[0].name == "0001_before.json"
    assert len(saved(suite)) == 2
    result.stdout.fnmatch_lines_random([f"step[[]{TWO}] (0001) *", f"step[[]{TWO}] (NOW) *"])
    result.stderr.fnmatch_lines(["Performance has regressed:", f"*{TWO}] (0001) - Field 'median'*"])
    assert f"{ONE}] (0001) - Field" not in result.stderr.str()
    # What this plugin has to tell stands above.
    result.stdout.fnmatch_lines(["*= dlperf: cluster local, steady =*", f"{TWO}*regressed*"])


@pytest.mark.parametrize(
    ("options", "case", "count", "told"),
    [
        ({}, make.measured_case(CASE, 100.0, 101.0), 0, ""),
        ({"json": "it.json"}, make.measured_case(CASE, 100.0, 101.0), 1, ""),
        ({"json": "it.json", "disable": True}, make.measured_case(CASE, 100.0), 0, "disabled"),
        ({"save": "it", "disable": True, "enable": True}, make.measured_case(CASE, 9.0), 1, ""),
        (
            {"save": "it"},
            make.measured_case(CASE, 9.0, broken=[RunStatus.INVALID]),
            0,
            f"did not run whole: {CASE} (run 2 invalid)",
        ),
        ({"save": "it"}, make.measured_case(CASE, 0.0), 0, f"{CASE} (no throughput)"),
        ({"save": "it"}, make.unmeasured_case(CASE, Verdict.SKIPPED, "no logs"), 0, ""),
    ],
)
def test_it_gets_what_ran_whole_where_it_was_asked_for_anything(options, case, count, told):
    asked = {f"benchmark_{name}": value for name, value in options.items()}
    theirs = SimpleNamespace(benchmarks=[], disabled=False)
    config = SimpleNamespace(option=SimpleNamespace(**asked), _benchmarksession=theirs)
    lines = list(hand_over(config, make.report(make.session(case))))
    assert len(theirs.benchmarks) == count
    assert told in " ".join(lines)
    assert bool(lines) is bool(told)
    # It would warn that there is nothing to save: a crash where warnings are errors.
    assert theirs.disabled is (not count and "save" in options)


def test_without_pytest_benchmark_all_else_works(nights):
    suite = nights.suite
    (suite.path / "conftest.py").write_text(
        "import sys\n\n"
        "def pytest_unconfigure(config):\n"
        "    print('IMPORTED', 'pytest_benchmark.stats' in sys.modules)\n",
        encoding="utf-8",
    )

    result = suite.run(*nights.usual("now"), "-p", "no:benchmark", "-s")

    assert result.ret == 0
    result.assert_outcomes(passed=3, deselected=result.parseoutcomes().get("deselected", 0))
    result.stdout.fnmatch_lines(["*= dlperf: cluster local, steady =*", "IMPORTED False"])


def test_a_release_that_is_not_understood_is_told_and_costs_no_verdict(nights):
    suite = nights.suite
    (suite.path / "conftest.py").write_text(
        "from pytest_benchmark.stats import Metadata\n\n"
        "Metadata.__init__ = lambda self, *, fixture, loops: None\n",
        encoding="utf-8",
    )

    result = suite.run(
        *nights.usual("now"), "--benchmark-json", "it.json", "--dlperf-json", "results.json"
    )

    assert len(json.loads((suite.path / "results.json").read_text())["cases"]) == 2
    assert result.ret == 1
    told = "the benchmarks of pytest-benchmark could not be made: TypeError: *unexpected keyword *"
    result.stdout.fnmatch_lines([told])


def test_what_is_used_of_pytest_benchmark_is_there():
    """The parts that are not documented: a release that changes one fails here first."""
    from inspect import signature

    from pytest_benchmark.session import BenchmarkSession
    from pytest_benchmark.stats import Metadata, Stats

    assert list(signature(Metadata.__init__).parameters) == [
        "self", "fixture", "iterations", "options",
    ]  # fmt: skip
    assert list(signature(Metadata.update).parameters) == ["self", "duration"]
    assert {"include_data", "flat"} <= set(signature(Metadata.as_dict).parameters)
    assert set(Stats.fields) == STATISTICS - {"iterations"}
    assert list(signature(BenchmarkSession.__init__).parameters) == ["self", "config"]
