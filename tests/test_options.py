"""Options: of command line, environment and ini file the first that speaks is heard."""

from __future__ import annotations

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


def test_help_tells_every_option_and_ini_key(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("--help")
    text = result.stdout.str()
    for name in ("cluster", "logs", "repeats", "create-baselines", "strict", "json", "run-dir",
                 "systems", "baselines"):  # fmt: skip
        assert f"--dlperf-{name}" in text
        assert f"dlperf_{name.replace('-', '_')}" in text


def test_a_project_without_a_suite_does_not_notice_the_plugin(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(): pass")
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=1)
    assert result.ret == 0
    assert "dlperf:" not in result.stdout.str()
