"""Metrics that a user declares in a system file, in every report of a session."""

import json
import re
import xml.etree.ElementTree as ET

import pytest
from nights import Nights

pytestmark = pytest.mark.in_process

METRICS = """\
  peak_memory: {record: 'max allocated: (?P<value>[0-9.]+) MB', over: run, unit: MB,
                better: lower, tolerance_percent: 2}
  loss: {record: 'loss=(?P<value>[-+.0-9a-z]+)'}
"""
ONE, TWO = "tiny-mlp-fp32-b4-1n1g", "tiny-mlp-fp32-b4-1n2g"
PATTERN = "'max allocated: (?P<value>[0-9.]+) MB'"


@pytest.fixture
def nights(suite, monkeypatch):
    """A system that declares two metrics, with accepted numbers of a usual night."""
    monkeypatch.setenv("COLUMNS", "120")
    found = Nights(suite)
    found.declare(METRICS)
    suite.run(*found.usual("accepted", printed=memory(14212)), "--dlperf-create-baselines")
    return found


def memory(megabytes):
    """What a log says of it."""
    return f"max allocated: {megabytes} MB\n"


def failure_of(text, test):
    """The message of a test's failure: a line, and the indented ones below it."""
    found = re.search(
        rf"^_+ {re.escape(test)} _+\n(?:\[gw.*\n)?(.*\n(?:  .*\n)*)", text, re.MULTILINE
    )
    assert found is not None, test
    return found[1]


def properties(suite, test):
    """The properties of a test in JUnit's file."""
    root = ET.parse(suite.path / "junit.xml").getroot()  # noqa: S314 - pytest has written it
    [element] = [one for one in root.iter("testcase") if one.get("name") == test]
    return {str(one.get("name")): str(one.get("value")) for one in element.iter("property")}


@pytest.mark.usefixtures("with_benchmark")
def test_more_memory_is_red_in_every_report_while_the_throughput_passes(
    suite, nights, monkeypatch, workers
):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")

    result = suite.run(
        *nights.usual("accepted", printed=memory(15065)), "--junitxml=junit.xml",
        "--dlperf-markdown=page.md", "--dlperf-json=r.json", "--benchmark-json=b.json", *workers,
    )  # fmt: skip

    result.assert_outcomes(passed=5, failed=2, deselected=result.parseoutcomes().get("deselected"))
    printed = result.stdout.str()
    # The failure: all to act on it.
    failure = failure_of(printed, f"test_metric[{TWO}-peak_memory]")
    assert failure.startswith("regressed +6.0 % (new): peak_memory\n")
    for line in (
        r"measured   15065 MB; lower is better",
        r"reference  14212 MB: worse by 6\.0 %; a loss of up to 2\.0 % passes",
        r"gate       sees a loss of \d\.\d % or more",
        r"also       throughput \d+\.\d+ samples/s \(\+0\.0 %\)$",
        r"accept     .*--dlperf-update-baselines --dlperf-reason 'TEXT'",
        r"  run 5: 15065  mlp_b4_fp32_5\.log",
    ):
        assert re.search(line, failure, re.MULTILINE), line
    # The summary: the failing metric has the case's row, the others are counted.
    [row] = [line for line in printed.splitlines() if line.startswith(f"{TWO}  ")]
    assert row.split()[1:6] == ["peak_memory", "15065", "14212", "+6.0", "%"]
    assert row.endswith("regressed; 3 pass")
    assert "2 cases: 2 regressed" in printed
    # GitHub's annotation.
    said = "measured 15065 MB (mean 15065, spread 0.0 %25); lower is better%0Areference 14212 MB"
    assert f"::error title=regressed +6.0 %25 (new)%3A peak_memory of {TWO}::{said}" in printed
    # JUnit's properties, by the words of the results file.
    told = properties(suite, f"test_metric[{TWO}-peak_memory]")
    assert told["dlperf.metric"] == "peak_memory"
    entry = json.loads((suite.path / "r.json").read_text(encoding="utf-8"))["cases"][0]["metrics"][
        "peak_memory"
    ]
    assert {name: told[f"dlperf.peak_memory.{name}"] for name in ("unit", "better", "verdict")} == {
        "unit": "MB", "better": "lower", "verdict": "regressed"
    }  # fmt: skip
    for name in ("median", "accepted", "reference", "difference_percent"):
        assert float(told[f"dlperf.peak_memory.{name}"]) == pytest.approx(entry[name])
    # pytest-benchmark's.
    benchmarks = json.loads((suite.path / "b.json").read_text(encoding="utf-8"))["benchmarks"]
    [extra] = [one["extra_info"] for one in benchmarks if one["param"] == TWO]
    assert (extra["metrics"]["peak_memory"]["median"], extra["metrics"]["loss"]["verdict"]) == (
        15065.0,
        "pass",
    )
    # The page.
    page = (suite.path / "page.md").read_text(encoding="utf-8")
    assert "- **measured** 15065 MB (mean 15065, spread 0.0 %); lower is better" in page
    assert re.search(r"\| peak_memory +\| 1n2g +\| +15065 \| MB +\| +14212 \| \+6\.0 %", page)
    assert re.search(r"\| loss +\| 1n2g +\| +6\.908 .*\| +5 \| pass +\|", page)
    assert "Recorded, judged by no test" in page


def test_what_no_test_judges_stands_with_the_first_metric_in_junit(suite, nights):
    suite.run(*nights.usual("accepted", printed=memory(14212)), "--junitxml=junit.xml")

    told = properties(suite, f"test_throughput[{TWO}]")
    recorded, first = (
        float(told[f"dlperf.{name}.median"]) for name in ("throughput_per_device", "throughput")
    )
    assert recorded == pytest.approx(first / 2)
    assert told["dlperf.throughput_per_device.better"] == "higher"
    assert "dlperf.throughput_per_device.verdict" not in told
    assert not any("peak_memory" in name for name in told), "it has a test of its own"


def test_a_metric_that_vanished_says_what_was_looked_for(suite, nights):
    result = suite.run(*nights.usual("now"), "--junitxml=junit.xml")

    failure = failure_of(result.stdout.str(), f"test_metric[{TWO}-peak_memory]")
    assert failure.startswith("invalid (new): peak_memory; run 1 has no peak_memory")
    log = suite.path / "nights" / "now" / "1n2g" / "mlp_b4_fp32_1.log"
    assert f"looked for {PATTERN} in {log}" in failure
    assert "  run 1: missing  mlp_b4_fp32_1.log" in failure
    told = properties(suite, f"test_metric[{TWO}-peak_memory]")
    assert told["dlperf.peak_memory.verdict"] == "invalid"
    assert PATTERN in told["dlperf.peak_memory.reason"]
    assert "dlperf.peak_memory.median" not in told


def test_new_numbers_of_all_metrics_are_one_row_each_case(suite):
    nights = Nights(suite)
    nights.declare(METRICS)

    result = suite.run(*nights.usual("first", printed=memory(14212)), "--dlperf-create-baselines")

    result.stdout.re_match_lines(
        [
            rf"{ONE} +throughput .* 2 pass, recorded; 1 pass$",
            rf"{TWO} +throughput .* 3 pass, recorded; 1 pass$",
        ]
    )


def test_a_run_that_is_not_sound_is_told_once_for_all_metrics(suite, nights):
    arguments = nights.usual("now", printed=memory(14212))
    log = suite.path / "nights" / "now" / "1n2g" / "mlp_b4_fp32_3.log"
    log.write_text(log.read_text(encoding="utf-8").replace("loss=6.9078", "loss=nan"))

    result = suite.run(*arguments, "--dlperf-markdown=page.md")

    printed = result.stdout.str()
    assert re.search(rf"^{TWO} +throughput .* 4 invalid$", printed, re.MULTILINE)
    # Each test failed of it; pytest's short summary has the messages again where CI is set.
    above = printed.partition("short test summary info")[0]
    assert len(re.findall(r"run 3: .*loss.*nan", above)) == 4
    for test, metric in (
        (f"test_throughput[{TWO}]", "throughput"),
        (f"test_speedup[{TWO}]", "speedup"),
        (f"test_metric[{TWO}-peak_memory]", "peak_memory"),
        (f"test_metric[{TWO}-loss]", "loss"),
    ):
        failure = failure_of(printed, test)
        assert re.match(rf"invalid \(new\): {metric}; run 3: .*loss.*nan", failure)
    page = (suite.path / "page.md").read_text(encoding="utf-8")
    matrix = page.partition("## Matrix")[2]
    assert len(re.findall(r"\| 1n2g .*\*\*invalid\*\* \|$", matrix, re.MULTILINE)) == 4
    assert "1 of 2 cases has no valid number" in page
