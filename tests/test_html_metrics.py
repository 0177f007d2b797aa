"""The page of cases with several metrics: each in its direction, what no test judges apart."""

import re

import pytest
import results_makers as make
from msgspec.structs import replace
from nights import Nights
from pages import Page

from pytest_dlperf.history.series import CaseHistory, Point
from pytest_dlperf.model.baseline import Acceptance
from pytest_dlperf.model.case import Topology
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.metric import Better, Metric, Sanity, Source, throughput
from pytest_dlperf.model.results import with_measurements
from pytest_dlperf.report.html.page import html_page
from pytest_dlperf.report.session import session_report

pytestmark = pytest.mark.in_process

CASE = "paddle-resnet50-fp32-b128-4n8g"
LOSS = Metric(name="loss", unit="", better=None, source=Source.LOG, sanity=Sanity(falls=True))
FIRST_STEP = Metric(
    name="first_step_time", unit="s", better=Better.LOWER, source=Source.LAUNCH, is_judged=False
)


def several(*, verdict=Verdict.REGRESSED, difference=6.2):
    """A case whose throughput passes, with a peak memory, a checked loss and a first step."""
    result = make.measured_case(
        CASE,
        400.0,
        401.0,
        402.0,
        more={make.MEMORY: [15_000.0] * 3, LOSS: [2.3] * 3, FIRST_STEP: [41.5, 43.5, 42.5]},
    )
    of_memory = make.judged(
        verdict,
        metric=make.MEMORY,
        measured=15_000.0,
        accepted=15_000.0 / (1 + difference / 100),
        difference_percent=difference,
        tolerance_percent=2.0,
    )
    for judgement in (of_memory, make.judged(Verdict.PASS, metric=LOSS, measured=2.3)):
        result = make.with_judgement(result, replace(judgement, decision=judgement.decision))
    return make.with_judgement(result, replace(result.judgements["loss"], decision=None))


def page_of(*results, **more):
    return Page(html_page(session_report(replace(make.session(*results), **more))))


def cell(page, metric):
    """Text, style and key for sorting of a metric in the overview."""
    [found] = page.all("td", data_name=metric)
    *_, style = found.attributes["class"].split()
    return found.text, style, found.attributes["data-v"]


def test_the_overview_has_a_column_for_each_judged_metric():
    page = page_of(several())
    headings = [th.text for th in page.all("th", scope="col")]
    assert headings[2:6] == ["throughput images/s", "peak_memory MB", "loss", "history"]
    assert cell(page, "throughput") == ("401.00 +0.0 %", "pass", "0")
    assert cell(page, "peak_memory") == ("15000 +6.2 %", "regressed", "-6.2")
    assert cell(page, "loss") == ("2.3 pass", "pass", "")
    [row] = page.all("tr", class_="row")
    assert "regressed" in row.attributes["class"].split()


@pytest.mark.parametrize("difference", [6.2, -6.2])
def test_colours_follow_the_verdict_and_never_the_sign(difference):
    good = several(verdict=Verdict.IMPROVED, difference=difference)
    assert cell(page_of(good), "peak_memory")[1] == "improved"


def test_what_no_test_judges_stands_apart_and_not_in_the_overview():
    page = page_of(several())
    section = page.one("section", class_="recorded")
    assert "first_step_time" in section.text
    assert "42.50 s" in section.text
    assert "not judged" not in section.text.removeprefix("Recorded, not judged")
    assert not page.all("td", data_name="first_step_time")


def test_each_run_has_its_numbers_and_why_one_is_missing():
    result = several()
    measurement = result.measurement
    first, *others = measurement.runs
    without = {name: value for name, value in first.metrics.items() if name != "peak_memory"}
    why = {"peak_memory": "no 'max allocated' in node 0's log"}
    runs = (replace(first, metrics=without, missing=why), *others)
    page = page_of(replace(result, measurement=replace(measurement, runs=runs)))
    [table] = page.all("table", class_="runs")
    assert "throughput images/s peak_memory MB loss first_step_time s steps log" in table.text
    assert "1 400.00 missing 2.3 41.50 100" in table.text
    assert "peak_memory: no 'max allocated' in node 0's log" in table.text


def nights(metric, *levels):
    return CaseHistory(
        case_id=CASE,
        metric=metric.name,
        unit=metric.unit,
        better=metric.better,
        points=tuple(
            Point(
                started=f"2026-11-{day:02}T02:00:00+00:00",
                began=0.0,
                median=level,
                lowest=level,
                highest=level,
                runs=3,
            )
            for day, level in enumerate(levels, 1)
        ),
    )


def test_each_judged_metric_has_its_own_history():
    histories = {
        CASE: {
            metric.name: nights(metric, 1.0, 2.0, 3.0)
            for metric in (throughput("images/s"), make.MEMORY, LOSS)
        }
    }
    page = Page(html_page(make.report(make.session(several()), histories)))
    titles = [title.text for title in page.all("title") if title.text.startswith("History")]
    assert titles == [
        f"History of {CASE}: throughput in images/s",
        f"History of {CASE}: peak_memory in MB",
        f"History of {CASE}: loss in",
    ]
    # The small picture in the overview is that of the metric which decided the verdict.
    spark, *_ = page.all("use")
    lines = [path.attributes["id"] for path in page.all("path", class_="medians")]
    assert spark.attributes["href"] == f"#{lines[1]}"
    # Runs that never differ have no range to be drawn.
    assert not page.all("path", class_="ranges")


def training(variant, *throughputs, reference, topologies):
    """A training on some topologies, measured on each."""
    over = Topology.parse(reference) if reference else None
    results = [
        make.measured_case(f"paddle-resnet50-{variant}-{topology}", number, number, number)
        for topology, number in zip(topologies, throughputs, strict=True)
    ]
    results = [
        replace(result, case=replace(result.case, reference_topology=over), reference=None)
        for result in results
    ]
    measured = {result.case.id: result.measurement for result in results if result.measurement}
    return make.session(*(with_measurements(result, measured) for result in results))


def test_speedups_are_drawn_over_any_reference_topology():
    results = training(
        "bf16-gb256", 100.0, 190.0, 360.0, reference="1n8g", topologies=("1n8g", "2n8g", "4n8g")
    )
    [article] = Page(html_page(session_report(results))).all("article")
    assert "strong scaling, speedups over 1n8g" in article.text
    assert "times 1n8g" in article.text
    assert "Speedup over 1n8g of paddle-resnet50-bf16-gb256" in article.text
    assert re.search(r"2n8g .*? 190.00 1.90 95.0 %", article.text)
    assert re.search(r"4n8g .*? 360.00 3.60 90.0 %", article.text)
    assert len(Page(html_page(session_report(results))).all("path", class_="ideal")) == 1


def test_without_a_reference_the_throughput_is_drawn_over_devices():
    results = training("fp32-b64", 100.0, 190.0, reference=None, topologies=("1n8g", "2n8g"))
    page = Page(html_page(session_report(results)))
    [article] = page.all("article")
    assert "weak scaling, no speedups" in article.text
    assert "Throughput of paddle-resnet50-fp32-b64 against devices" in article.text
    assert "efficiency" not in article.text
    assert not page.all("path", class_="ideal")


def test_the_accepted_number_of_a_metric_is_its_own():
    result = several()
    memory = make.baseline_of(
        14_124.0,
        acceptance=Acceptance(at="2026-11-01T02:00:00+00:00", reason="activations are kept"),
    )
    page = page_of(replace(result, accepted={**result.accepted, "peak_memory": memory}))
    assert "activations are kept" in page.case(CASE).text


DECLARED = """\
  peak_memory: {record: 'max allocated: (?P<value>[0-9.]+) MB', over: run, unit: MB,
                better: lower, tolerance_percent: 2}
  loss: {record: 'loss=(?P<value>[-+.0-9a-z]+)'}
"""


def test_declared_metrics_are_on_the_page_of_a_session(suite):
    nights = Nights(suite)
    nights.declare(DECLARED)
    history = "--dlperf-history=nights.sqlite3"
    usual = nights.usual("accepted", printed="max allocated: 14212 MB\n")
    suite.run(*usual, history, "--dlperf-create-baselines")
    tonight = nights.usual("now", printed="max allocated: 15065 MB\n")
    suite.run(*tonight, history, "--dlperf-html=page.html")

    page = Page((suite.path / "page.html").read_text(encoding="utf-8"))
    case_id = "tiny-mlp-fp32-b4-1n2g"
    assert page.one("h1").text == "Both cases got worse (new); worst +6.0 %"
    headings = [th.text for th in page.all("th", scope="col")]
    assert headings[2:6] == ["throughput samples/s", "speedup x", "peak_memory MB", "loss"]
    assert page.row(case_id).endswith(" 15065 +6.0 % 6.908 pass")
    titles = {title.text for title in page.all("title")}
    for metric in ("throughput in samples/s", "speedup in x", "peak_memory in MB", "loss in"):
        assert f"History of {case_id}: {metric}" in titles
    assert "2 sessions since" in page.case(case_id).text
    assert "Recorded, not judged" in page.case(case_id).text
