"""OpenMetrics: what was measured whole, and nothing else as good."""

import re
import subprocess

import pytest
import results_makers as make
from msgspec.structs import replace
from results_makers import (
    MEMORY,
    STARTED,
    THROUGHPUT,
    judged,
    measured_case,
    unmeasured_case,
    with_judgement,
)

from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.measurement import RunStatus
from pytest_dlperf.model.results import parse_time
from pytest_dlperf.report.openmetrics import openmetrics

CASE = "tiny-mlp-fp32-b4-1n2g"
SAMPLE = re.compile(r'(\w+)\{((?:\w+="(?:[^"\\\n]|\\["\\n])*",?)*)\} (\S+)')


def samples(results):
    """The values by gauge and labels, without those of the session."""
    *lines, end, rest = openmetrics(results).split("\n")
    assert (end, rest) == ("# EOF", "")
    found = {}
    for line in lines:
        if not line.startswith("#"):
            sample = SAMPLE.fullmatch(line)
            assert sample is not None, line
            texts = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', sample[2]))
            assert (texts.pop("cluster"), texts.pop("estimator")) == (results.cluster, "steady")
            key = (sample[1], *texts.values())
            found[key] = float(sample[3])
    return found


def night():
    """A loss of throughput by 10 %, and of memory by 5 %: that is better when low."""
    case = measured_case(CASE, 90.0, 89.0, 92.0, more={MEMORY: (840.0, 840.0, 840.0)}, speedup=1.5)
    for metric, accepted, difference in (
        (THROUGHPUT, 100.0, -10.0),
        (MEMORY, 800.0, 5.0),
    ):
        verdict = judged(
            Verdict.REGRESSED, metric=metric, accepted=accepted,
            reference=accepted, difference_percent=difference,
        )  # fmt: skip
        case = with_judgement(case, verdict)
    return make.session(case)


def test_each_number_is_a_gauge():
    found = samples(night())
    assert found["dlperf_value", CASE, "throughput", "images/s"] == 90.0
    assert found["dlperf_reference", CASE, "throughput", "images/s"] == 100.0
    assert found["dlperf_loss_ratio", CASE, "throughput"] == 0.1
    assert found["dlperf_loss_ratio", CASE, "peak_memory"] == 0.05
    assert found["dlperf_verdict", CASE, "throughput", "regressed"] == 1
    assert found["dlperf_value", CASE, "speedup", "x"] == pytest.approx(1.5)
    start = found["dlperf_session_start_timestamp_seconds",]
    assert start == parse_time(STARTED).timestamp()
    assert ("dlperf_verdict", CASE, "speedup") not in {key[:3] for key in found}, "not judged"


@pytest.mark.ci
@pytest.mark.parametrize("cluster", ["office", 'a "b" \\ c\n# TYPE x\x00\x1b{} ☃', "\udcff"])
def test_promtool_finds_no_fault(cluster):
    text = openmetrics(replace(night(), cluster=cluster))
    done = subprocess.run(
        ["promtool", "check", "metrics"],  # noqa: S607 - where it is installed
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("text", "written"),
    [('a"b', r"a\"b"), ("a\\b", r"a\\b"), ("a\nb", r"a\\nb"), ("a\0\udcff", r"a\\x00\\udcff")],
)
def test_labels_are_escaped(text, written):
    lines = openmetrics(replace(night(), cluster=text)).splitlines()
    [line] = [line for line in lines if line.startswith("dlperf_session_start")]
    assert f'{{cluster="{written}",estimator="steady"}}' in line


@pytest.mark.parametrize(
    ("case", "verdict"),
    [
        (measured_case(CASE, 90.0, broken=[RunStatus.HUNG], verdict=Verdict.HUNG), "hung"),
        (measured_case(CASE, 90.0, broken=[RunStatus.FAILED]), "not_measured"),
        (measured_case(CASE, 90.0, verdict=Verdict.INVALID), "invalid"),
        (unmeasured_case(CASE, Verdict.PASS, "so it says"), "not_measured"),
        (unmeasured_case(CASE, Verdict.FAILED, "no host"), "failed"),
        (replace(measured_case(CASE, 90.0), is_whole=False), "lost"),
        (replace(unmeasured_case(CASE, Verdict.SKIPPED, "no host"), is_whole=False), "lost"),
        (replace(measured_case(CASE, 90.0), judgements={}, unfinished=("throughput",)),
         "not_measured"),
    ],
)  # fmt: skip
def test_what_was_not_measured_whole_is_exported_as_nothing_good(case, verdict):
    found = samples(make.session(case))
    verdicts = {key[2]: key[3] for key in found if key[0] == "dlperf_verdict"}
    assert verdicts["throughput"] == verdict
    assert set(verdicts.values()) == {verdict}, "the speedup's, where its test was lost"
    if case.unfinished:
        return  # its number is whole; only its test is not
    assert not {key[0] for key in found} - {"dlperf_verdict", "dlperf_reference"}


def test_an_interrupted_session_is_no_night():
    found = samples(replace(night(), interrupted=True))
    assert ("dlperf_session_start_timestamp_seconds",) not in found
    assert openmetrics(make.session()) == "# EOF\n"


@pytest.mark.in_process
def test_a_session_writes_them(suite):
    suite.run(
        "-k", "paddle-resnet50 and throughput and 1n1g", "--dlperf-cluster=dlperf-v100",
        "--dlperf-openmetrics=out/it.prom",
    )  # fmt: skip
    text = (suite.path / "out" / "it.prom").read_text(encoding="utf-8")
    assert "dlperf_value" not in text
    assert 'verdict="skipped"' in text
