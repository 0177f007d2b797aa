"""What was not measured is never green; with --dlperf-strict it is red case by case."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainers import TinySystem

if TYPE_CHECKING:
    from suites import Suite


def test_only_skipped_cases_end_red(suite: Suite, workers: list[str]) -> None:
    result = suite.run("-k", "bert and 4n8g", *workers)

    result.assert_outcomes(skipped=22, deselected=0 if workers else 192)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["11 of 11 cases skipped*"])
    result.stdout.fnmatch_lines(["nothing was measured: every selected case was skipped"])


def test_strict_fails_each_skipped_case_with_the_reason(suite: Suite, workers: list[str]) -> None:
    result, results = suite.judge("-k", "paddle and 4n8g", "--dlperf-strict", *workers)

    result.assert_outcomes(failed=10, deselected=0 if workers else 199)
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["skipped, which --dlperf-strict does not allow: *--dlperf-logs paddle-resnet50=DIR"]
    )
    verdicts = {case["verdict"]["throughput"] for case in results["cases"]}
    assert verdicts == {"skipped"}


def test_strict_also_fails_what_a_mark_skips(suite: Suite) -> None:
    TinySystem(suite)
    (suite.path / "bench_tests" / "test_own.py").write_text(
        "import pytest\n\n@pytest.mark.skip(reason='not today')\ndef test_own(dlperf_case): pass\n",
        encoding="utf-8",
    )
    result = suite.run("-k", "test_own and tiny", "--dlperf-strict")
    result.assert_outcomes(errors=3, deselected=337)
    result.stdout.fnmatch_lines(["*does not allow: not today"])


def test_skipped_beside_measured_is_green_unless_strict(suite: Suite) -> None:
    TinySystem(suite)
    select = ["-k", "tiny and 1n1g or paddle-resnet50-fp32-b128-1n1g", "--dlperf-repeats", "1"]

    recorded = suite.run(*select, "--dlperf-create-baselines")
    recorded.assert_outcomes(passed=1, skipped=1, deselected=217)
    assert recorded.ret == 0

    strict = suite.run(*select, "--dlperf-strict")
    strict.assert_outcomes(passed=1, failed=1, deselected=217)
    assert strict.ret == 1


def test_selecting_nothing_is_not_green(suite: Suite) -> None:
    assert suite.run("-k", "no_such_case").ret == 5


def test_collecting_only_is_green(suite: Suite) -> None:
    assert suite.run("--collect-only", "-q").ret == 0


def test_a_test_that_ends_with_an_error_has_a_verdict(suite: Suite, workers: list[str]) -> None:
    TinySystem(suite)
    (suite.path / "bench_tests" / "test_own.py").write_text(
        "def test_own(dlperf_case): raise RuntimeError('broken test')\n", encoding="utf-8"
    )
    result, results = suite.judge("-k", "test_own and tiny and 1n1g", *workers, cluster="local")
    assert result.ret == 1
    assert results["cases"][0]["verdict"]["throughput"] == "failed"
