"""What stands for each test of a case while a session runs, and that pytest counts as ever."""

import re

import pytest
from msgspec.structs import replace
from nights import Nights
from results_makers import MEMORY, judged, measured_case, unmeasured_case

from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.metric import throughput
from pytest_dlperf.model.results import CaseResult
from pytest_dlperf.report.terminal import TestStatus, verdict_status

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
    assert dlperf_measure(dlperf_case).samples("throughput").median < 500

@pytest.mark.xfail(reason="known to be slow")
def test_is_announced(dlperf_case, dlperf_measure, dlperf_gate):
    dlperf_gate.throughput(dlperf_measure(dlperf_case))

@pytest.mark.skip(reason="not today")
def test_is_marked(dlperf_case):
    pass
"""


@pytest.fixture
def nights(suite, monkeypatch):
    """An accepted session of both topologies."""
    monkeypatch.setenv("COLUMNS", "110")
    nights = Nights(suite)
    nights.accept(nights.numbers("accepted"))
    return nights


def record_of(verdict, *, measured=380.0, recorded=False):
    """A test of a throughput that was held against 400 samples/s, with this verdict."""
    case = (
        unmeasured_case(ONE, verdict, "no logs")
        if measured is None
        else measured_case(ONE, measured, unit="samples/s", verdict=verdict)
    )
    judgement = judged(
        verdict,
        metric=throughput("samples/s"),
        measured=measured,
        accepted=400.0,
        difference_percent=-5.0,
    )
    judgement = replace(judgement, recorded=recorded)
    return CaseResult(
        case=case.case, measurement=case.measurement, judgements={"throughput": judgement}
    )


def test_the_word_has_the_number_of_the_test_s_own_metric():
    case = measured_case(ONE, 380.0, more={MEMORY: [61234.0]})
    assert case.measurement is not None
    record = CaseResult(case=case.case, measurement=case.measurement)
    assert verdict_status(record, MEMORY.name, PASSED, strict=False).word == "PASSED 61234 MB"
    judgement = judged(
        Verdict.REGRESSED, metric=MEMORY, measured=61234.0, accepted=57768.0, difference_percent=6.0
    )
    record = replace(record, judgements={MEMORY.name: judgement})
    assert (
        verdict_status(record, MEMORY.name, FAILED, strict=False).word
        == "REGRESSED 61234 MB +6.0 %"
    )


PASSED = TestStatus("passed", ".", "PASSED")
FAILED = TestStatus("failed", "F", "FAILED")
XFAIL = TestStatus("xfailed", "x", "XFAIL")
XPASS = TestStatus("xpassed", "X", "XPASS")
SKIPPED = TestStatus("skipped", "s", "SKIPPED")


@pytest.mark.parametrize(
    ("given", "verdict", "letter", "word", "colour"),
    [
        (PASSED, Verdict.PASS, ".", "PASSED", "green"),
        (PASSED, Verdict.IMPROVED, "+", "IMPROVED", "green"),
        (PASSED, Verdict.ENVIRONMENT_SHIFT, "~", "ENVIRONMENT_SHIFT", "yellow"),
        (FAILED, Verdict.REGRESSED, "R", "REGRESSED", "red"),
        (FAILED, Verdict.INCONCLUSIVE, "?", "INCONCLUSIVE", "red"),
        (FAILED, Verdict.NO_BASELINE, "N", "NO_BASELINE", "red"),
        (FAILED, Verdict.FAILED, "F", "FAILED", "red"),
        (FAILED, Verdict.HUNG, "H", "HUNG", "red"),
        (FAILED, Verdict.INVALID, "I", "INVALID", "red"),
        (FAILED, Verdict.PASS, "F", "FAILED", None),
        (XFAIL, Verdict.REGRESSED, "x", "XFAIL regressed", "yellow"),
        (XPASS, Verdict.PASS, "X", "XPASS", "yellow"),
    ],
)
def test_a_verdict_has_a_letter_and_a_word_with_the_number(given, verdict, letter, word, colour):
    assert verdict_status(record_of(verdict), "throughput", given, strict=False) == TestStatus(
        given.category,
        letter,
        f"{word} 380.00 samples/s -5.0 %",
        (colour,) if colour else (),
    )


def test_what_has_no_number_is_a_word_alone():
    broken = record_of(Verdict.INVALID, measured=None)
    assert verdict_status(broken, "throughput", FAILED, strict=False).word == "INVALID"


@pytest.mark.parametrize(
    ("verdict", "word", "colour"),
    [(Verdict.PASS, "RECORDED", "green"), (Verdict.REGRESSED, "ACCEPTED", "yellow")],
)
def test_a_number_that_was_recorded_says_so(verdict, word, colour):
    status = verdict_status(record_of(verdict, recorded=True), "throughput", PASSED, strict=False)
    assert (status.letter, status.word.split()[0], status.markup) == (".", word, (colour,))


def test_a_skip_keeps_pytests_words_unless_it_is_a_failure():
    skipped = record_of(Verdict.SKIPPED, measured=None)
    assert verdict_status(skipped, "throughput", SKIPPED, strict=False) == SKIPPED
    assert verdict_status(skipped, "throughput", FAILED, strict=True).word == "FAILED (skipped)"


def test_an_environment_shift_of_a_strict_session_is_red():
    shifted = record_of(Verdict.ENVIRONMENT_SHIFT)
    assert verdict_status(shifted, "throughput", FAILED, strict=True).markup == ("red",)


@pytest.mark.parametrize(
    "given",
    [TestStatus("", "", ""), TestStatus("rerun", "R", "RERUN"), TestStatus("error", "E", "ERROR")],
)
def test_words_that_are_not_about_a_verdict_stay(given):
    assert verdict_status(record_of(Verdict.REGRESSED), "throughput", given, strict=False) is given


def printed(result):
    """What was printed for the tests, before any summary."""
    return re.split(r"\n=+ (?:FAILURES|ERRORS|dlperf)", result.stdout.str())[0]


def test_without_more_words_each_test_is_a_letter(nights):
    slower = nights.usual("now", of_1n2g=0.9)
    found = printed(nights.suite.run(*slower, "-k", "tiny and throughput"))
    assert re.search(r"(^|\s)\.R +\[100%\]$", found)


@pytest.mark.parametrize("arguments", [[], ["-n", "2", "-v"]])
def test_pytest_counts_what_it_always_counted(nights, arguments):
    tests = nights.suite.path / "bench_tests"
    (tests / "test_other.py").write_text(OTHER_TESTS)
    (tests / "test_odd.py").write_text(ODD_TESTS)
    night = nights.usual("now", of_1n2g=0.9)
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


def test_odd_ends_have_the_words_that_pytest_has(nights):
    (nights.suite.path / "bench_tests" / "test_odd.py").write_text(ODD_TESTS)
    night = nights.usual("now", of_1n2g=0.9)
    night[1] = "tiny and not speedup and not test_throughput"
    result = nights.suite.run(*night, "-v", "-rA")
    result.stdout.re_match_lines_random(
        [
            rf".*ends_badly\[{ONE}\] ERROR .*",
            rf".*asks_more\[{ONE}\] PASSED \d+\.\d\d samples/s .*",
            rf".*asks_more\[{TWO}\] FAILED .*",
            rf".*is_announced\[{TWO}\] XFAIL regressed \d+\.\d\d samples/s -.*",
            rf".*is_marked\[{ONE}\] SKIPPED \(not today\) .*",
            # The short summary keeps to pytest's words.
            rf"PASSED bench_tests.test_odd\.py::test_asks_more\[{ONE}\]",
            rf"XFAIL bench_tests.test_odd\.py::test_is_announced\[{TWO}\] - known to be slow",
            r"SKIPPED \[2\] bench_tests.test_odd\.py:\d+: not today",
        ]
    )


def test_the_short_summary_tells_the_verdict(nights, workers, monkeypatch):
    monkeypatch.setenv("CI", "true")  # nothing is cut off there
    result = nights.suite.run(*nights.usual("now", of_1n2g=0.9), "--tb=no", *workers)
    result.stdout.fnmatch_lines_random(
        [
            f"FAILED *::test_throughput[[]{TWO}] - regressed -* %: throughput",
            f"FAILED *::test_speedup[[]{TWO}] - regressed -* %: speedup",
        ]
    )


@pytest.mark.parametrize("style", ["long", "native"])
def test_a_failure_is_told_once_in_every_style(nights, style):
    night = nights.usual("now", of_1n2g=0.9)
    night[1] = "tiny and throughput"
    text = nights.suite.run(*night, f"--tb={style}").stdout.str()
    assert len(re.findall(r"^regressed -\d+\.\d %: throughput$", text, re.MULTILINE)) == 1
    assert "  reference  " in text
    assert "Traceback" not in text
