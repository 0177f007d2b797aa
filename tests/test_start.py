"""The plugin takes part in a session where a test or an option asks for it, and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from trainers import TinySystem

if TYPE_CHECKING:
    from pathlib import Path

    from suites import Suite

SPY = """\
import sys

def pytest_unconfigure(config):
    names = [name for name, _ in config.pluginmanager.list_name_plugin() if "dlperf" in name]
    modules = [name for name in sys.modules if name.startswith("pytest_dlperf.")]
    print("\\nPLUGINS", *names)
    print("ROOMS", *sorted({name.split(".")[1] for name in modules}))
    print("YAML", "yaml" in sys.modules)
"""
ALONE = ("-p", "no:benchmark", "-p", "no:xdist")


def spied(pytester: pytest.Pytester, *arguments: str) -> tuple[pytest.RunResult, dict[str, str]]:
    pytester.makeconftest(SPY)
    result = pytester.runpytest_subprocess(*arguments)
    found = (line.partition(" ") for line in result.outlines)
    return result, {word: rest for word, _, rest in found if word in {"PLUGINS", "ROOMS", "YAML"}}


def foreign_project(pytester: pytest.Pytester) -> Path:
    """Tests of somebody else, who has a folder of the same name."""
    systems = pytester.mkdir("bench_tests") / "systems"
    systems.mkdir()
    (systems / "planets.yaml").write_text("sun: {mass: 1\n", encoding="utf-8")
    pytester.makepyfile("def test_it(): pass")
    return systems


def test_a_project_without_tests_of_ours_does_not_notice(pytester: pytest.Pytester) -> None:
    foreign_project(pytester)
    result, seen = spied(pytester, *ALONE)
    result.assert_outcomes(passed=1)
    assert result.ret == 0
    assert seen["PLUGINS"] == "pytest_dlperf.plugin"
    assert set(seen["ROOMS"].split()) == {"config", "model", "plugin"}
    assert seen["YAML"] == "False"
    assert "dlperf:" not in result.stdout.str()
    assert not (pytester.path / ".dlperf").exists()


def test_workers_do_not_notice_either(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their controller has looked into the folder; what it thinks of it, it keeps to itself."""
    foreign_project(pytester)
    monkeypatch.setenv("DLPERF_STRICT", "perhaps")
    result = pytester.runpytest_subprocess("-n2")
    result.assert_outcomes(passed=1)
    assert result.ret == 0
    assert "planets" not in result.stdout.str() + result.stderr.str()


def test_an_option_asks(pytester: pytest.Pytester) -> None:
    foreign_project(pytester)
    result = pytester.runpytest_subprocess("--dlperf-strict")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*planets.yaml:*not YAML*"])


@pytest.mark.parametrize("fixture", ["dlperf_case", "dlperf_measure", "dlperf_gate"])
@pytest.mark.parametrize("workers", [[], ["-n2"]], ids=["alone", "workers"])
def test_a_fixture_asks(pytester: pytest.Pytester, fixture: str, workers: list[str]) -> None:
    foreign_project(pytester)
    pytester.makepyfile(test_ours=f"def test_ours({fixture}): pass")
    result = pytester.runpytest_subprocess(*workers)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*planets.yaml:*not YAML*"])
    result.stderr.no_fnmatch_line("*Traceback*")


def test_mistakes_are_told_before_what_follows_from_them(suite: Suite) -> None:
    suite.system_file("framework: tiny\n")
    result = suite.pytester.runpytest_subprocess(
        "bench_tests/test_throughput.py::test_throughput[tiny-mlp-fp32-b4-1n1g]"
    )
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*own.yaml:1: $: the key 'model' is missing"])


def test_other_tests_of_a_project_with_a_suite_leave_it_alone(suite: Suite) -> None:
    """Neither mistakes in it nor reports of it, which would be empty, are their business."""
    suite.system_file("framework: tiny\n")
    suite.pytester.makeini("[pytest]\ndlperf_json = results.json\n")
    suite.pytester.makepyfile(test_unit="def test_it(): pass")
    result = suite.pytester.runpytest_subprocess("test_unit.py")
    result.assert_outcomes(passed=1)
    assert not (suite.path / "results.json").exists()


@pytest.mark.parametrize("option", ["--setup-plan", "--setup-only", "--collect-only"])
def test_what_runs_no_test_measures_and_writes_nothing(suite: Suite, option: str) -> None:
    result = suite.run("-k", "throughput and paddle", option)
    assert result.ret == 0
    result.stdout.no_fnmatch_line("*nothing was measured*")
    assert not (suite.path / ".dlperf").exists()


def test_the_folder_of_sessions_is_not_for_git(suite: Suite) -> None:
    TinySystem(suite, topologies=("1n1g",))
    suite.run("-k", "tiny", "--dlperf-repeats=1")
    assert {file.name for file in (suite.path / ".dlperf").iterdir()} >= {"runs"}
    assert (suite.path / ".dlperf/.gitignore").read_text(encoding="utf-8") == "*\n"
