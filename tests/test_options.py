"""Options: of command line, environment and ini file the first that speaks is heard."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from trainers import TinySystem

if TYPE_CHECKING:
    from suites import Suite

CLUSTERS = ("from_ini", "from_environment", "from_command_line")


@pytest.fixture
def clusters(suite: Suite) -> Suite:
    """A suite with three clusters, and a case that fails and names the cluster it asked."""
    TinySystem(suite)
    for name in CLUSTERS:
        folder = suite.path / "baselines" / name
        folder.mkdir()
        (folder / "cluster.yaml").write_text("estimator: steady\n", encoding="utf-8")
    return suite


def cluster_used(suite: Suite, *arguments: str) -> str:
    result = suite.run("-k", "throughput and tiny and 1n1g", "--dlperf-repeats", "1", *arguments)
    line = next(line for line in result.outlines if "has none for this case" in line)
    return line.split()[2]


def test_the_cluster_comes_from_the_strongest_source(
    clusters: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cluster_used(clusters) == "local"
    clusters.pytester.makeini("[pytest]\ndlperf_cluster = from_ini\n")
    assert cluster_used(clusters) == "from_ini"
    monkeypatch.setenv("DLPERF_CLUSTER", "from_environment")
    assert cluster_used(clusters) == "from_environment"
    assert cluster_used(clusters, "--dlperf-cluster", "from_command_line") == "from_command_line"


@pytest.mark.parametrize(
    ("ini", "environment", "arguments", "strict"),
    [
        ("", None, [], False),
        ("dlperf_strict = true", None, [], True),
        ("dlperf_strict = true", "0", [], False),
        ("", "yes", [], True),
        ("", "no", ["--dlperf-strict"], True),
        ("", "", [], False),
    ],
)
def test_strict_comes_from_the_strongest_source(  # noqa: PLR0913, PLR0917 - three sources
    suite: Suite,
    monkeypatch: pytest.MonkeyPatch,
    ini: str,
    environment: str | None,
    arguments: list[str],
    strict: bool,
) -> None:
    suite.pytester.makeini(f"[pytest]\n{ini}\n")
    if environment is not None:
        monkeypatch.setenv("DLPERF_STRICT", environment)

    result = suite.run("-k", "throughput and paddle and 4n8g", *arguments)

    outcome = "failed" if strict else "skipped"
    result.assert_outcomes(**{outcome: 5}, deselected=209)


def test_a_word_that_is_neither_yes_nor_no_is_a_usage_error(
    suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLPERF_STRICT", "perhaps")
    result = suite.run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*DLPERF_STRICT='perhaps' is neither yes nor no*"])


def test_ini_paths_are_relative_to_the_ini_file(suite: Suite) -> None:
    suite.pytester.makeini("[pytest]\ndlperf_json = results/night.json\n")
    elsewhere = suite.path / "elsewhere"
    elsewhere.mkdir()
    suite.pytester.chdir()

    result = suite.pytester.runpytest_subprocess(
        "--rootdir", suite.path, suite.path / "bench_tests", "-k", "paddle and 1n1g"
    )

    assert result.ret == 1
    assert (suite.path / "results" / "night.json").is_file()


def test_logs_can_be_named_in_the_ini_file(suite: Suite) -> None:
    (suite.path / "night").mkdir()
    (suite.path / "night" / "stray.log").write_text("", encoding="utf-8")
    suite.pytester.makeini("[pytest]\ndlperf_logs =\n    paddle-resnet50=night\n")

    result = suite.run("-k", "paddle and 1n1g")

    assert result.ret == 1
    result.stdout.fnmatch_lines(["1 log was left out:"])


# Where reports go

REPORTS = ("json", "markdown", "html", "tables", "history")
NOTHING = ("-k", "throughput and arcface and 1n1g")
"""Selects one case, which is skipped: whatever a session is to write, it writes."""


@pytest.mark.parametrize("report", REPORTS)
def test_a_report_goes_where_the_command_line_says(suite: Suite, report: str) -> None:
    """Relative to the folder that pytest was started in; folders that are missing are made."""
    there = suite.path / "there"
    there.mkdir()
    os.chdir(there)

    suite.pytester.runpytest_subprocess(
        "--rootdir", suite.path, suite.path / "bench_tests", *NOTHING,
        f"--dlperf-{report}", "a/b/report",
    )  # fmt: skip

    # Tables are written of what was measured alone.
    assert (there / "a/b/report").exists() == (report != "tables")


@pytest.mark.parametrize("report", ["json", "markdown", "html", "history"])
def test_a_report_goes_where_the_ini_file_says(suite: Suite, report: str) -> None:
    suite.pytester.makeini(f"[pytest]\ndlperf_{report} = a/report\n")
    suite.run(*NOTHING)
    assert (suite.path / "a/report").is_file()


def test_tables_go_where_the_ini_file_says(suite: Suite) -> None:
    suite.pytester.makeini("[pytest]\ndlperf_tables = a/tables\n")
    TinySystem(suite, topologies=("1n1g",))
    suite.run("-k", "tiny", "--dlperf-repeats", "1")
    assert (suite.path / "a/tables/tiny-mlp.md").is_file()


def test_the_history_comes_from_the_strongest_source(
    suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    def written() -> set[str]:
        found = {file.relative_to(suite.path).as_posix() for file in suite.path.rglob("*.sqlite3")}
        for file in found:
            (suite.path / file).unlink()
        return found

    suite.run(*NOTHING)
    assert written() == {".dlperf/history.sqlite3"}
    suite.pytester.makeini("[pytest]\ndlperf_history = ini.sqlite3\n")
    suite.run(*NOTHING)
    assert written() == {"ini.sqlite3"}
    monkeypatch.setenv("DLPERF_HISTORY", "environment.sqlite3")
    suite.run(*NOTHING)
    assert written() == {"environment.sqlite3"}
    suite.run(*NOTHING, "--dlperf-history", "option.sqlite3")
    assert written() == {"option.sqlite3"}
    for none in ("none", "None", " NONE "):
        suite.run(*NOTHING, "--dlperf-history", none)
        assert written() == set()
    assert not list(suite.path.glob("*[Nn][Oo][Nn][Ee]*"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--dlperf-json", "a/../report", "--dlperf-markdown", "report"],
            "*--dlperf-json and --dlperf-markdown both name *report; give each a file of its own",
        ),
        (
            ["--dlperf-html", "link", "--dlperf-markdown", "there/page"],
            "*--dlperf-markdown and --dlperf-html both name *link; give each a file of its own",
        ),
        (
            ["--dlperf-tables", "report", "--dlperf-history", "report"],
            "*--dlperf-tables and --dlperf-history both name *report; *",
        ),
        (
            ["--dlperf-json", "report", "--junitxml", "a/../report"],
            "*--dlperf-json and --junitxml both name *report; give each a file of its own",
        ),
        (
            ["--dlperf-html", "report", "--benchmark-json", "report"],
            "*--dlperf-html and --benchmark-json both name *report; *",
        ),
        (
            ["--dlperf-markdown", "link.md", "--dlperf-tables", "there"],
            "*--dlperf-markdown names *link.md, where --dlperf-tables writes a table; *",
        ),
        (
            ["--junitxml", "t/paddle-resnet50/fp32-b128_result.json", "--dlperf-tables", "t"],
            "*--junitxml names *fp32-b128_result.json, where --dlperf-tables writes a table; *",
        ),
        (
            ["--benchmark-json", "nowhere/it.json"],
            "*--benchmark-json: '*nowhere/it.json' cannot be written: there is no folder *nowhere*",
        ),
        (
            ["--junitxml", "file/it.xml"],
            "*--junitxml: '*file/it.xml' cannot be written: */file is no folder",
        ),
        (
            ["--dlperf-history", ":memory:"],
            "*--dlperf-history: ':memory:' keeps nothing; name a file, or none for no history",
        ),
        (["--dlperf-history", "/dev/null"], "*--dlperf-history: '/dev/null' keeps nothing; *"),
        (["--dlperf-history", " "], "*--dlperf-history is empty; give a value or leave it out"),
        (
            ["--dlperf-history", "notes.txt"],
            "*--dlperf-history: *notes.txt is no database; move it away, or name another file",
        ),
        (
            ["--dlperf-history", "short.txt"],
            "*--dlperf-history: *short.txt is no database; move it away, or name another file",
        ),
        (
            ["--dlperf-history", "other.sqlite3"],
            "*--dlperf-history: *other.sqlite3 is a database of another program; move it away, *",
        ),
        (["--dlperf-html", "there"], "*--dlperf-html: 'there' is a folder; name a file"),
        (["--dlperf-history", "there"], "*--dlperf-history: 'there' is a folder; name a file"),
        (["--dlperf-tables", "file"], "*--dlperf-tables: 'file' is a file; name a folder"),
        (
            ["--dlperf-markdown", "file/page.md"],
            "*--dlperf-markdown: 'file/page.md' cannot be written: */file is no folder",
        ),
        (
            ["--dlperf-json", "x" * 300],
            "*--dlperf-json: 'xxx*' cannot be written: File name too long",
        ),
        (["--dlperf-html", ""], "*--dlperf-html is empty; give a value or leave it out"),
        (
            ["--dlperf-markdown", "summary.md"],
            (
                "*--dlperf-markdown names *summary.md, the summary of GitHub Actions, which gets "
                "the Markdown page by itself; leave the option out"
            ),
        ),
    ],
)
def test_a_report_that_cannot_be_is_told_before_anything_runs(
    suite: Suite, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    (suite.path / "there").mkdir()
    (suite.path / "file").touch()
    (suite.path / "a").mkdir()
    (suite.path / "link").symlink_to("there/page")
    (suite.path / "link.md").symlink_to("there/paddle-resnet50.md")
    (suite.path / "notes.txt").write_text("no database " * 99, encoding="utf-8")
    (suite.path / "short.txt").write_text("SQLite", encoding="utf-8")
    with closing(sqlite3.connect(suite.path / "other.sqlite3")) as other:
        other.execute("CREATE TABLE accounts (id INTEGER)")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(suite.path / "summary.md"))

    result = suite.run(*NOTHING, *arguments)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([message])
    result.stderr.no_fnmatch_line("*Traceback*")


@pytest.mark.parametrize("way", ["environment", "ini"])
def test_a_history_that_is_none_is_told_wherever_it_was_named(
    suite: Suite, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    (suite.path / "notes.txt").write_text("no database", encoding="utf-8")
    if way == "environment":
        monkeypatch.setenv("DLPERF_HISTORY", "notes.txt")
    else:
        suite.pytester.makeini("[pytest]\ndlperf_history = notes.txt\n")
    result = suite.run(*NOTHING)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    place = {"environment": "DLPERF_HISTORY", "ini": "ini key dlperf_history"}[way]
    result.stderr.fnmatch_lines([f"*{place}: *notes.txt is no database; *"])
    assert (suite.path / "notes.txt").read_text(encoding="utf-8") == "no database"


@pytest.mark.parametrize("content", ["empty", "new", "journal mode alone"])
def test_a_history_may_be_in_its_first_moment(suite: Suite, content: str) -> None:
    """Another session may have begun to make it; its tables may still stand in its log."""
    file = suite.path / "h.sqlite3"
    file.touch()
    with closing(sqlite3.connect(file)) as other:
        if content == "new":
            other.execute("VACUUM")
        if content == "journal mode alone":
            other.execute("PRAGMA journal_mode = wal")
        suite.run(*NOTHING, "--dlperf-history", "h.sqlite3")
    with closing(sqlite3.connect(file)) as kept:
        assert kept.execute("SELECT count(*) FROM sessions").fetchone() == (1,)


def test_other_reports_may_lie_beside_the_tables(suite: Suite) -> None:
    """Refused is only what a table would take the place of."""
    result = suite.run(
        *NOTHING, "--dlperf-tables", "out", "--dlperf-markdown", "out/night.md",
        "--dlperf-json", "out/night/results.json",
    )  # fmt: skip
    assert (suite.path / "out/night.md").is_file()
    result.stdout.fnmatch_lines(["results: *out/night/results.json*"])


def test_two_reports_may_go_into_what_is_no_file(suite: Suite) -> None:
    """Into a pipe or a terminal, one after the other."""
    result = suite.run(*NOTHING, "--dlperf-json", "/dev/null", "--dlperf-markdown", "/dev/null")

    result.stdout.fnmatch_lines(["results: /dev/null", "Markdown page: /dev/null"])


def test_help_tells_every_option_and_ini_key(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("--help")
    text = result.stdout.str()
    for name in ("cluster", "logs", "repeats", "create-baselines", "strict", *REPORTS, "run-dir",
                 "systems", "baselines"):  # fmt: skip
        assert f"--dlperf-{name}" in text
        assert f"dlperf_{name.replace('-', '_')}" in text
    for variable in ("DLPERF_CLUSTER", "DLPERF_HISTORY", "DLPERF_STRICT", "GITHUB_STEP_SUMMARY"):
        assert variable in text


def test_a_project_without_a_suite_does_not_notice_the_plugin(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(): pass")
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=1)
    assert result.ret == 0
    assert "dlperf:" not in result.stdout.str()
