"""What stands for each test of a case while a session runs, and that pytest counts as ever."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from nights import Nights

if TYPE_CHECKING:
    from suites import Suite

ONE, TWO = "tiny-mlp-fp32-b4-1n1g", "tiny-mlp-fp32-b4-1n2g"

OTHER_TESTS = """\
import pytest

def test_plain():
    pass

def test_plain_fails():
    assert 0
"""

ODD_TESTS = """\
import pytest

@pytest.fixture
def ends_badly():
    yield
    raise RuntimeError("the end is broken")

@pytest.fixture
def begins_badly():
    raise RuntimeError("the beginning is broken")

def test_ends_badly(dlperf_case, dlperf_measure, dlperf_gate, ends_badly):
    dlperf_gate.throughput(dlperf_measure(dlperf_case))

def test_begins_badly(dlperf_case, begins_badly):
    pass

def test_asks_more(dlperf_case, dlperf_measure):
    assert dlperf_measure(dlperf_case).median < 500

@pytest.mark.xfail(reason="known to be slow")
def test_is_announced(dlperf_case, dlperf_measure, dlperf_gate):
    dlperf_gate.throughput(dlperf_measure(dlperf_case))

@pytest.mark.skip(reason="not today")
def test_is_marked(dlperf_case):
    pass
"""


@pytest.fixture
def nights(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> Nights:
    """A night on which two devices have lost a tenth."""
    monkeypatch.setenv("COLUMNS", "110")
    nights = Nights(suite)
    nights.accept(nights.numbers("accepted"))
    return nights


def printed(result: pytest.RunResult) -> str:
    """What was printed for the tests, before any summary."""
    return re.split(r"\n=+ (?:FAILURES|ERRORS|dlperf)", result.stdout.str())[0]


def test_verbose_says_what_was_measured(nights: Nights) -> None:
    night = nights.usual("tonight", of_1n2g=0.9)
    result = nights.suite.run("-v", *night)
    result.stdout.re_match_lines_random(
        [
            rf".*::test_throughput\[{ONE}\] PASSED \d+\.\d\d samples/s [+-]\d\.\d % +\[ .*%\]",
            rf".*::test_throughput\[{TWO}\] REGRESSED \d+\.\d\d samples/s -\d+\.\d % +\[.*%\]",
            rf".*::test_speedup\[{TWO}\] REGRESSED 1\.\d\dx -\d+\.\d % +\[ .*%\]",
        ]
    )


def test_each_case_has_a_line_at_the_usual_verbosity(nights: Nights, workers: list[str]) -> None:
    result = nights.suite.run(*nights.usual("tonight", of_1n2g=0.9), *workers)
    found = printed(result).splitlines()
    for pattern in (
        rf"PASSED +\d+\.\d\d samples/s +[+-]\d\.\d %  {ONE} +\[ *\d+%\]",
        rf"REGRESSED +\d+\.\d\d samples/s +-\d+\.\d %  {TWO} +\[ *\d+%\]",
        rf"REGRESSED +1\.\d\dx +-\d+\.\d %  {TWO} +\[ *\d+%\]",
    ):
        assert sum(re.fullmatch(pattern, line) is not None for line in found) == 1, pattern
    assert max(map(len, found[-4:])) <= 110
    result.assert_outcomes(passed=1, failed=2, deselected=0 if workers else 214)


@pytest.mark.parametrize("style", ["count", "classic", "times"])
def test_lines_stay_apart_however_progress_is_shown(nights: Nights, style: str) -> None:
    nights.suite.pytester.path.joinpath("bench_tests/test_other.py").write_text(OTHER_TESTS)
    night = nights.usual("tonight")
    night[1] = "tiny or plain"
    result = nights.suite.run(*night, "-o", f"console_output_style={style}")
    found = printed(result).splitlines()
    assert sum(line.startswith("PASSED ") for line in found) == 3
    assert any(re.match(r"bench_tests.test_other\.py \.F", line) for line in found)


def test_quiet_has_a_letter_for_each_verdict(nights: Nights) -> None:
    night = nights.usual("tonight", of_1n2g=0.9)
    improved = nights.usual("good", of_1n1g=1.2, of_1n2g=1.2)
    throughput = ["-k", "tiny and throughput"]
    assert re.match(r"\.R +\[100%\]", printed(nights.suite.run("-q", *night, *throughput)))
    assert re.match(r"\+\+ +\[100%\]", printed(nights.suite.run("-q", *improved, *throughput)))


@pytest.mark.parametrize("arguments", [[], ["-v"], ["-q"], ["-n", "2"], ["-n", "2", "-v"]])
def test_pytest_counts_what_it_always_counted(nights: Nights, arguments: list[str]) -> None:
    tests = nights.suite.path / "bench_tests"
    (tests / "test_other.py").write_text(OTHER_TESTS)
    (tests / "test_odd.py").write_text(ODD_TESTS)
    night = nights.usual("tonight", of_1n2g=0.9)
    night[1] = "plain or (tiny and not speedup and not test_throughput)"

    result = nights.suite.run(*night, *arguments)

    counts = result.parseoutcomes()
    counts.pop("deselected", None)
    assert counts == {
        "passed": 3,  # plain; ends badly and asks more, of one device
        "failed": 3,  # plain; ends badly and asks more, of two devices
        "errors": 4,
        "skipped": 2,
        "xfailed": 1,
        "xpassed": 1,
    }


def test_odd_ends_have_the_words_that_pytest_has(nights: Nights) -> None:
    (nights.suite.path / "bench_tests" / "test_odd.py").write_text(ODD_TESTS)
    night = nights.usual("tonight", of_1n2g=0.9)
    night[1] = "tiny and not speedup and not test_throughput"
    result = nights.suite.run(*night, "-v", "-rA")
    result.stdout.re_match_lines_random(
        [
            rf".*ends_badly\[{ONE}\] ERROR RuntimeError: the end is broken .*",
            rf".*begins_badly\[{ONE}\] ERROR RuntimeError: the beginning is broken .*",
            rf".*asks_more\[{ONE}\] PASSED \d+\.\d\d samples/s .*",
            rf".*asks_more\[{TWO}\] FAILED assert .*",
            rf".*is_announced\[{ONE}\] XPASS \d+\.\d\d samples/s .*",
            rf".*is_announced\[{TWO}\] XFAIL regressed \d+\.\d\d samples/s -.*",
            rf".*is_marked\[{ONE}\] SKIPPED not today .*",
            # The short summary keeps to pytest's words.
            rf"PASSED bench_tests.test_odd\.py::test_asks_more\[{ONE}\]",
            rf"XFAIL bench_tests.test_odd\.py::test_is_announced\[{TWO}\] - known to be slow",
            r"SKIPPED \[2\] bench_tests.test_odd\.py:\d+: not today",
        ]
    )


def test_the_short_summary_tells_the_verdict(
    nights: Nights, workers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")  # nothing is cut off there
    result = nights.suite.run(*nights.usual("tonight", of_1n2g=0.9), "--tb=no", *workers)
    result.stdout.fnmatch_lines_random(
        [
            f"FAILED *::test_throughput[[]{TWO}] - regressed: throughput of {TWO}",
            f"FAILED *::test_speedup[[]{TWO}] - regressed: speedup of {TWO}",
        ]
    )


@pytest.mark.parametrize("style", ["long", "short", "line", "native"])
def test_a_failure_is_told_once_in_every_style(nights: Nights, style: str) -> None:
    night = nights.usual("tonight", of_1n2g=0.9)
    night[1] = "tiny and throughput"
    text = nights.suite.run(*night, f"--tb={style}").stdout.str()
    assert len(re.findall(rf"^regressed: throughput of {TWO}$", text, re.MULTILINE)) == 1
    assert "  baseline   " in text
    assert "Traceback" not in text


def test_skips_say_in_short_what_is_missing(nights: Nights, workers: list[str]) -> None:
    night = nights.night("tonight", {"1n1g": [400.0] * 3})
    result = nights.suite.run(*night, "-v", *workers)
    assert len(re.findall(r"SKIPPED no logs\b(?! \()", printed(result))) == 2


def test_a_strict_skip_is_a_failure_that_says_so(nights: Nights) -> None:
    night = nights.night("tonight", {"1n1g": [400.0] * 3})
    result = nights.suite.run(*night, "--dlperf-strict")
    found = re.findall(r"^FAILED .*  skipped: no logs", printed(result), re.MULTILINE)
    assert len(found) == 2


def test_recorded_numbers_say_so(nights: Nights) -> None:
    nights.file.unlink()
    night = nights.usual("first")
    night[1] = "tiny and throughput"
    result = nights.suite.run(*night, "-v", "--dlperf-create-baselines")
    result.stdout.re_match_lines_random([rf".*\[{ONE}\] RECORDED \d+\.\d\d samples/s .*"])
    slower = nights.usual("slower", of_1n1g=0.8, of_1n2g=0.8)
    slower[1] = "tiny and throughput"
    accept = ["--dlperf-update-baselines", "--dlperf-reason", "a test"]
    result = nights.suite.run(*slower, "-v", *accept)
    result.stdout.re_match_lines_random([rf".*\[{ONE}\] ACCEPTED \d+\.\d\d samples/s -.*"])
