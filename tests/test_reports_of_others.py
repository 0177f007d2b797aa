"""Reports that pytest itself and pytest-benchmark write: what becomes of them costs none of ours.

Warnings are errors in the suite: none of pytest-benchmark's may end a session.
"""

from __future__ import annotations

import pytest
from nights import Nights
from suites import Suite


@pytest.fixture
def nights(suite: Suite, with_benchmark: None) -> Nights:
    del with_benchmark
    nights = Nights(suite)
    nights.accept(nights.numbers("accepted"))
    return nights


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--junitxml", "/dev/full"],
            (
                "a report of another plugin could not be written: No space left on device "
                "(junitxml.py, line *)"
            ),
        ),
        (
            ["--benchmark-json", "/dev/full", "--junitxml", "junit.xml"],
            "pytest-benchmark could not write its files: No space left on device",
        ),
        (
            ["--benchmark-save", "it", "--benchmark-storage", "file:///dev/null/x"],
            "pytest-benchmark could not write its files to /dev/null/x*: Not a directory",
        ),
    ],
    ids=["junit", "json", "storage"],
)
def test_a_file_of_theirs_that_cannot_be_written_is_red_and_loses_no_summary(
    nights: Nights, arguments: list[str], message: str
) -> None:
    suite = nights.suite

    result = suite.run(*nights.usual("tonight"), *arguments, "--dlperf-json", "results.json")

    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [
            "*= dlperf: cluster local, steady =*",
            "results: *results.json",
            message,
            "2 cases: 2 pass; failed: *",
        ]
    )
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
    assert (suite.path / "results.json").is_file()
    if "junit.xml" in arguments:  # it is written after pytest-benchmark's
        assert "dlperf.verdict" in (suite.path / "junit.xml").read_text(encoding="utf-8")


def test_a_comparison_is_made_also_where_nothing_can_be_saved(nights: Nights) -> None:
    suite = nights.suite
    suite.run(*nights.usual("first"), "--benchmark-save", "before")

    result = suite.run(
        *nights.usual("second"), "--benchmark-compare", "--benchmark-json", "/dev/full"
    )

    assert result.ret == 1
    result.stdout.fnmatch_lines(["step[[]*(0001_befor*", "step[[]*(NOW)*"])


def test_what_another_plugin_cannot_write_without_a_terminal_is_no_secret(nights: Nights) -> None:
    result = nights.suite.run(
        *nights.usual("tonight"), "--junitxml", "/dev/full", "-p", "no:terminal"
    )
    assert result.ret != 0
    assert "No space left on device" in result.stdout.str() + result.stderr.str()


def test_a_project_without_a_suite_gets_the_errors_of_its_own_reports(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile("def test_it(): pass")
    result = pytester.runpytest_subprocess("--junitxml", "/dev/full")
    assert "dlperf" not in result.stdout.str().replace("dlperf-0", "")
    result.stderr.fnmatch_lines(["OSError: * No space left on device"])


@pytest.mark.parametrize("asked", ["--benchmark-json=it.json", "--benchmark-save=it"])
def test_a_selection_that_nothing_fits_is_told_and_no_warning_of_theirs_ends_it(
    nights: Nights, asked: str
) -> None:
    result = nights.suite.run("-k", "tiiny", asked)

    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines(["-k: no test has 'tiiny' in its name; near: tiny"])
    assert "Traceback" not in result.stderr.str()


def test_reports_of_a_session_without_a_case_say_that_nothing_was_measured(nights: Nights) -> None:
    """Neither that it was interrupted, nor that anything is well."""
    suite = nights.suite

    result = suite.run(
        "-k", "tiiny", "--dlperf-json", "it.json", "--dlperf-markdown", "it.md",
        "--dlperf-html", "it.html", "--dlperf-tables", "tables",
    )  # fmt: skip

    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines(
        ["results: *it.json", "Markdown page: *it.md", "page: *it.html", "no tables: nothing was *"]
    )
    nothing = "othing was measured"
    for name in ("it.md", "it.html"):
        text = (suite.path / name).read_text(encoding="utf-8")
        assert nothing in text
        assert "interrupted" not in text.partition("<main")[2]
    assert '"interrupted": false' in (suite.path / "it.json").read_text(encoding="utf-8")
    assert not (suite.path / "tables").exists()


def test_a_report_that_cannot_be_written_is_told_also_where_no_test_runs(suite: Suite) -> None:
    result = suite.run("-k", "tiiny", "--dlperf-json", "/dev/full")
    result.stdout.fnmatch_lines(["the results could not be written to /dev/full: *"])
    assert result.ret != 0


def test_a_dry_run_leaves_the_reports_of_the_last_session_alone(nights: Nights) -> None:
    suite = nights.suite
    suite.run(*nights.usual("tonight"), "--dlperf-json", "it.json")
    before = (suite.path / "it.json").read_bytes()

    result = suite.run("-k", "tiny", "--dlperf-dry-run", "--dlperf-json", "it.json")

    assert result.ret == 0
    assert (suite.path / "it.json").read_bytes() == before
