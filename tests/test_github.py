"""GitHub Actions: the summary of a step, annotations, and no command that we did not mean."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

import pytest
import results_makers as make
from msgspec.structs import replace
from nights import Nights
from trainers import TinySystem

from pytest_dlperf.model.judgement import Judgement, Verdict
from pytest_dlperf.model.metric import SPEEDUP_METRIC
from pytest_dlperf.report import printing
from pytest_dlperf.report.github import annotation_lines, append_summary
from pytest_dlperf.report.session import session_report

pytestmark = pytest.mark.in_process

MIB = 1024 * 1024
CASE = "paddle-resnet50-fp32-b128-4n8g"
KNOWN = {
    "add-mask", "add-matcher", "add-path", "debug", "echo", "endgroup", "error", "group", "notice",
    "save-state", "set-env", "set-output", "stop-commands", "warning",
}  # fmt: skip
HOSTILE = (
    "::error::made up",
    "   ::set-output name=x::y",
    "\t::stop-commands::never",
    "fine ##[add-mask]secret",
    "::warning title=x,y::%0A100 %",
    "##teamcity[buildStop comment='x']",
    "--- a group of Buildkite's",
    "\033[0Ksection_start:1560896352:of_gitlab\r\033[0Kx",
    # The last ones stand in the summary of the session too.
    "##[error]older form",
    "\033[2J##vso[task.setvariable variable=PATH]/evil",
)


@dataclass(frozen=True)
class Command:
    """A workflow command as GitHub's runner understands it."""

    name: str
    title: str
    message: str


def commands(output):
    """What the runner would do with the output: by its rules for both forms of a command."""
    found = []
    for line in output.splitlines():
        new = re.match(r"::(\S+?)(?: (.*?))?::(.*)", line.lstrip())
        old = re.search(r"##\[(\S+?)(?: (.*?))?\](.*)", line)
        match = next((m for m in (new, old) if m is not None and m[1].lower() in KNOWN), None)
        if match is not None:
            fields = dict(field.split("=", 1) for field in (match[2] or "").split(",") if field)
            found.append(Command(match[1], unescaped(fields.get("title", "")), unescaped(match[3])))
    return found


def unescaped(text):
    for code, character in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(code, character)
    return text


@pytest.fixture
def summary(suite, monkeypatch):
    """The summary of a step of GitHub Actions, in which the sessions of a test run."""
    file = suite.path / "step" / "summary.md"
    file.parent.mkdir()
    file.touch()
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(file))
    return file


# The summary


def test_the_page_stands_in_the_summary_by_itself(suite, summary):
    nights = Nights(suite)
    nights.accept({"1n1g": [400.0] * 5, "1n2g": [760.0] * 5})
    summary.write_text("# of an earlier step, without a line end", encoding="utf-8")

    suite.run(*nights.usual("now", of_1n2g=0.9), "--dlperf-markdown", "page.md")

    before, page = summary.read_text(encoding="utf-8").split("\n\n", maxsplit=1)
    assert before == "# of an earlier step, without a line end"
    assert re.search(r"### regressed -\d+\.\d %: `tiny-mlp-fp32-b4-1n2g`", page)
    assert page == (suite.path / "page.md").read_text(encoding="utf-8")


def test_a_session_without_tests_of_ours_leaves_the_summary_alone(suite, summary):
    suite.pytester.makepyfile(test_other="def test_it(): pass")

    suite.pytester.runpytest_subprocess("test_other.py").assert_outcomes(passed=1)
    suite.run("--collect-only", "-q")

    assert summary.read_bytes() == b""


@pytest.mark.slow
def test_the_summary_stays_within_what_github_shows(tmp_path):
    cases = [
        make.unmeasured_case(f"paddle-resnet50-fp32-b{n}-1n1g", Verdict.FAILED, "long " * 190)
        for n in range(1, 1300)
    ]
    session = session_report(make.session(*cases))
    for there in (0, 300_000, 990_000):
        file = tmp_path / f"{there}.md"
        file.write_bytes(b"x" * there)

        assert append_summary(file, session)

        text = file.read_text(encoding="utf-8")
        assert 900_000 < len(text.encode()) < MIB
        assert "**There is no room here for the whole page: " in text
        assert text.endswith("\n")


ONE_CASE = session_report(make.session(make.measured_case(CASE, 9348.0)))


def test_a_summary_that_is_no_file_is_not_waited_for(tmp_path):
    os.mkfifo(pipe := tmp_path / "pipe")
    with pytest.raises(OSError, match="it is not a regular file"):
        append_summary(pipe, ONE_CASE)


def test_two_sessions_of_a_step_both_stand_there(tmp_path):
    for _ in range(2):
        assert append_summary(tmp_path / "summary.md", ONE_CASE)
    text = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert text.count("\n\n# dlperf: cluster office\n") == 1
    assert text.startswith("# dlperf: cluster office\n")


def test_a_full_summary_is_left_alone(tmp_path):
    file = tmp_path / "summary.md"
    file.write_bytes(b"x" * MIB)
    assert not append_summary(file, ONE_CASE)
    assert file.stat().st_size == MIB


# Annotations


def test_elsewhere_there_are_no_annotations(suite):
    TinySystem(suite, topologies=("1n1g",))
    result = suite.run("-k", "tiny", "--dlperf-repeats", "1")
    assert result.ret == 1
    assert commands(result.stdout.str()) == []


def test_the_worst_come_first_and_the_last_one_sums_up_the_rest():
    cases = [
        make.measured_case(f"paddle-resnet50-fp32-b{n}-1n1g", 1.0, verdict=Verdict.REGRESSED)
        for n in range(1, 13)
    ]
    cases.append(make.unmeasured_case(CASE, Verdict.FAILED, "out of luck"))

    found = commands("\n".join(annotation_lines(session_report(make.session(*cases)))))

    assert [command.name for command in found] == ["error"] * 10
    assert found[0].title == f"failed: {CASE}"
    assert found[1].title == "regressed: paddle-resnet50-fp32-b1-1n1g"
    assert found[9].title == "4 more"
    assert found[9].message.split("\n") == [
        f"regressed: paddle-resnet50-fp32-b{n}-1n1g" for n in range(9, 13)
    ]


@pytest.mark.parametrize("strict", [False, True])
def test_what_passes_but_should_be_known_is_a_warning(strict):
    shifted = make.measured_case(CASE, 9000.0, verdict=Verdict.ENVIRONMENT_SHIFT)
    skipped = make.unmeasured_case("paddle-resnet50-fp32-b128-1n1g", Verdict.SKIPPED, "no hosts")

    results = replace(make.session(shifted, skipped), strict=strict)
    found = commands("\n".join(annotation_lines(session_report(results))))

    assert [command.name for command in found] == ["error" if strict else "warning"] * 2
    assert [command.title for command in found] == [
        "1 of 2 cases skipped", f"environment_shift: {CASE}",
    ]  # fmt: skip
    assert found[0].message == "paddle-resnet50-fp32-b128-1n1g"


def test_what_else_failed_is_an_error():
    found = commands("\n".join(annotation_lines(ONE_CASE, ["the results could not be written"])))
    assert found == [Command("error", "pytest-dlperf", "the results could not be written")]


# Commands that are none of ours


@pytest.mark.parametrize("text", HOSTILE)
def test_a_text_in_an_annotation_ends_nothing_and_adds_nothing(text):
    case = make.unmeasured_case(CASE, Verdict.FAILED, f"50 % {text}\nnext: {text}")
    speedup = Judgement(metric=SPEEDUP_METRIC, verdict=Verdict.INVALID, reason=text)
    case = make.with_judgement(case, speedup)

    lines = list(annotation_lines(session_report(make.session(case))))

    assert len(lines) == 1
    assert "\n" not in lines[0]
    [command] = commands(lines[0])
    assert (command.name, command.title) == ("error", f"failed: {CASE}")
    by_throughput, by_speedup = command.message.split("\n")
    assert by_throughput.startswith("reason throughput: 50 % ")
    assert by_speedup.startswith("reason speedup: ")


@pytest.mark.usefixtures("summary")
@pytest.mark.parametrize("verbosity", [["-v"], ["-rA"]], ids=str)
def test_no_line_of_a_log_is_a_command(suite, verbosity):
    """Wherever a session prints it: failures, summary, short summary, notes."""
    system = TinySystem(suite, topologies=("1n1g", "1n2g"))
    trainer = system.folder / "train.py"
    last_words = "\n".join(HOSTILE)
    trainer.write_text(
        trainer.read_text(encoding="utf-8").replace(
            '"the trainer ran out of luck"', repr(last_words)
        ),
        encoding="utf-8",
    )
    system.behave("0.01 die-at-5")

    result = suite.run("-k", "tiny", *verbosity)

    assert result.ret == 1
    output = result.stdout.str()
    assert r"\::error::made up" in output
    assert {(c.name, c.title.partition(":")[0]) for c in commands(output)} == {("error", "failed")}
    assert r"\x1b[2J#\#vso[task.setvariable" in output
    assert commands(result.stderr.str()) == []
    for engine in ("##vso[", "##teamcity[", "\n--- ", "\033"):
        assert engine not in f"\n{output}{result.stderr.str()}"


@pytest.mark.usefixtures("summary")
def test_no_line_of_a_test_of_the_users_own_is_a_command(suite):
    """It may pass on what a program on a host has printed."""
    TinySystem(suite, topologies=("1n1g",))
    suite.pytester.makepyfile(
        **{
            "bench_tests/test_own": (
                "import pytest\n"
                "def test_own(dlperf_case):\n"
                "    said = 'it said\\n  ::error::made up\\n##[error]x\\n\\33[2J##vso[x]'\n"
                "    pytest.fail(said, pytrace=False)\n"
            )
        }
    )

    result = suite.run("-k", "own and tiny")

    result.assert_outcomes(failed=1)
    output = result.stdout.str()
    assert [c.title for c in commands(output)] == ["failed: tiny-mlp-fp32-b4-1n1g"]
    assert "\033" not in output
    assert "##vso[" not in output


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("::error::x", r"\::error::x"),
        ("  ::error::x", r"  \::error::x"),
        ("a\n\t::error::x", "a\n\t\\::error::x"),
        ("a ##[error]x", r"a #\#[error]x"),
        ("a ##vso[task.x]y", r"a #\#vso[task.x]y"),
        ("##teamcity[x 'y']", r"#\#teamcity[x 'y']"),
        ("--- x\n+++ y", "\\--- x\n\\+++ y"),
        ("----- x and --lr", "----- x and --lr"),
        ("std::vector and test.py::test_it", "std::vector and test.py::test_it"),
        ("# [x]", "# [x]"),
    ],
)
def test_a_backslash_takes_the_force_of_a_command(text, shown):
    assert printing.inert(text) == shown
    assert printing.inert(shown) == shown
    assert commands(shown) == []
