"""What a CI system reads in JUnit's XML: the verdict as the message, and flat properties."""

import re
import xml.etree.ElementTree as ET

import pytest
import results_makers as make
from explained import SINCE_TUESDAY, moved_case
from msgspec.structs import replace
from nights import Nights

from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.report.junit import junit_properties

pytestmark = pytest.mark.in_process

ONE, TWO = "tiny-mlp-fp32-b4-1n1g", "tiny-mlp-fp32-b4-1n2g"

OWN_TESTS = """\
import os
import pytest

@pytest.fixture
def ends_badly():
    yield
    raise RuntimeError("the end is broken")

def test_ends_badly(dlperf_case, dlperf_measure, dlperf_gate, record_property, ends_badly):
    record_property("theirs", 3)
    dlperf_gate.throughput(dlperf_measure(dlperf_case))

def test_dies(dlperf_case):
    os._exit(3)

@pytest.fixture
def begins_badly():
    raise RuntimeError("\\x00 \\x1b[31m \\u2028 <script> ]]>")

def test_begins_badly(dlperf_case, begins_badly):
    pass
"""


@pytest.fixture
def nights(suite):
    nights = Nights(suite)
    nights.accept(nights.numbers("accepted"))
    return nights


def run(nights, *arguments):
    """Run a session and read its XML: the elements of the tests by name."""
    file = nights.suite.path / "junit.xml"
    nights.suite.run(*arguments, f"--junitxml={file}")
    root = ET.parse(file).getroot()  # noqa: S314 - pytest wrote it a moment ago
    return {str(element.get("name")): element for element in root.iter("testcase")}


def properties(element):
    pairs = [(str(p.get("name")), str(p.get("value"))) for p in element.iter("property")]
    assert len(dict(pairs)) == len(pairs), "a name stands twice"
    return dict(pairs)


def test_all_that_is_known_stands_in_flat_properties(nights, workers):
    tests = run(nights, *nights.usual("now", of_1n2g=0.9), *workers)

    failure = tests[f"test_throughput[{TWO}]"].find("failure")
    message = failure.get("message")
    assert re.fullmatch(r"regressed -\d+\.\d %: throughput", message)
    assert failure.text.startswith(f"{message}\n  measured ")
    assert "run 5: " in failure.text
    assert tests[f"test_throughput[{ONE}]"].find("failure") is None
    throughput = properties(tests[f"test_throughput[{TWO}]"])
    assert all(name.startswith("dlperf.") for name in throughput)
    told = {name.removeprefix("dlperf."): value for name, value in throughput.items()}
    assert told.items() >= {
        "case": TWO, "system": "tiny-mlp", "framework": "tiny", "model": "mlp",
        "precision": "fp32", "batch_per_replica": "4", "global_batch": "8", "topology": "1n2g",
        "nodes": "1", "devices_per_node": "2", "metric": "throughput", "verdict": "regressed",
        "estimator": "steady", "cluster": "local", "runs": "5",
        "throughput.unit": "samples/s", "throughput.better": "higher",
        "throughput.verdict": "regressed",
    }.items()  # fmt: skip
    assert "options" not in told, "a case without options has none"
    of_metric = {
        name.removeprefix("throughput."): value
        for name, value in told.items()
        if name.startswith("throughput.")
    }
    difference = 100 * (float(of_metric["median"]) / float(of_metric["reference"]) - 1)
    # That of the runs that count, not of the median.
    assert float(of_metric["difference_percent"]) == pytest.approx(difference, abs=0.5)
    assert len(of_metric["values"].split()) == len(told["logs"].split(", ")) == 5
    assert {"mean", "spread"} <= of_metric.keys()
    assert not any("speedup" in name for name in told), "it has a test of its own"

    speedup = properties(tests[f"test_speedup[{TWO}]"])
    assert speedup["dlperf.metric"] == "speedup"
    ratio = float(speedup["dlperf.speedup.median"])
    assert float(speedup["dlperf.speedup.efficiency_percent"]) == pytest.approx(50 * ratio)


def test_programs_are_told_since_when():
    result = moved_case(TWO, -9.9, SINCE_TUESDAY)
    assert result.measurement is not None
    told = dict(junit_properties(result, "throughput", cluster="office"))
    assert told["dlperf.throughput.since"] == "2026-11-17T22:00:00+01:00"
    passed = dict(
        junit_properties(replace(result, explanations={}), "throughput", cluster="office")
    )
    assert "dlperf.throughput.since" not in passed


def test_a_skipped_test_has_its_reason():
    result = make.unmeasured_case(TWO, Verdict.SKIPPED, "no logs")
    told = dict(junit_properties(result, "throughput", cluster="office"))
    assert told["dlperf.verdict"] == "skipped"
    assert told["dlperf.throughput.reason"] == "no logs"
    assert "dlperf.throughput.median" not in told


def test_properties_of_users_stay_and_what_is_printed_nowhere_breaks_no_xml(nights):
    (nights.suite.path / "bench_tests" / "test_own.py").write_text(OWN_TESTS)
    session = nights.usual("now")
    session[1] = "tiny and (ends_badly or begins_badly)"
    tests = run(nights, *session, "-o", "junit_family=legacy", "-o", "junit_logging=all")
    told = properties(tests[f"test_ends_badly[{ONE}]"])
    assert told["theirs"] == "3"
    assert told["dlperf.verdict"] == "failed"
    assert "the end is broken" in told["dlperf.throughput.reason"]
    assert "dlperf.throughput.difference_percent" not in told, (
        "it belongs to a verdict that does not stand"
    )
    told = properties(tests[f"test_begins_badly[{ONE}]"])
    assert told["dlperf.verdict"] == "failed"
    assert r"\x00 \x1b[31m \u2028 <script> ]]>" in told["dlperf.throughput.reason"]


def test_a_crashed_worker_leaves_the_file_whole(nights):
    (nights.suite.path / "bench_tests" / "test_own.py").write_text(OWN_TESTS)
    night = nights.usual("now")
    # Two tests go out at once; xdist breaks if it sends more to a worker that has just died.
    night[1] = "tiny and 1n1g and (test_throughput or test_dies)"
    tests = run(nights, *night, "-n", "1")
    error = tests[f"test_dies[{ONE}]"].find("error")
    assert "crashed" in str(error.get("message"))
    assert properties(tests[f"test_throughput[{ONE}]"])["dlperf.verdict"] == "pass"
