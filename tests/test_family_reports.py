"""Families of metrics in reports: one table, and the worst names."""

import json
import re

import pytest

from pytest_dlperf.report.html.page import html_page
from pytest_dlperf.report.markdown import markdown_page
from pytest_dlperf.report.session import session_report
from pytest_dlperf.results.file import read_results

SIZES = [2**power for power in range(10, 30)]
CASE = "nccl-own-1n8g"
SYSTEM = """\
framework: nccl
model: own
cases: [{topologies: [1n8g]}]
repeats: 5
metrics:
  average: {record: 'average (?P<value>[^ ]+)', unit: GB/s, better: higher}
  busbw:
    record: '^(?P<size>[0-9]+) (?P<value_out>[^ ]+) (?P<value_in>[^ ]+)$'
    unit: GB/s
    better: higher
  latency: {record: '^p(?P<percentile>[0-9]+) (?P<value>[^ ]+)$', unit: ms, better: lower}
"""
SLOW = {size: 0.8 - place / 100 for place, size in enumerate(SIZES[4:10])}


def night(suite, slow, *arguments, average=12.5):
    """Judge five logs, in which some sizes reach only a part of their bandwidth."""
    for run in range(1, 6):
        rows = [f"{size} {size / 1e6 * slow.get(size, 1):.5f} {size / 1e6:.5f}" for size in SIZES]
        lines = [*rows, "p50 1.5", "p99 4.0", f"average {average} GB/s"]
        (suite.path / f"{run}.log").write_text("\n".join(lines))
    return suite.run("-k", "nccl", f"--dlperf-logs={CASE}={suite.path}/*.log", *arguments)


@pytest.mark.in_process
def test_reports_show_a_family_as_one_with_its_worst_names(suite):
    suite.system_file(SYSTEM)
    night(suite, {}, "--dlperf-create-baselines").assert_outcomes(passed=3)
    files = ["--dlperf-html=r.html", "--dlperf-markdown=r.md", "--dlperf-json=r.json"]
    result = night(suite, SLOW, *files)
    result.assert_outcomes(passed=2, failed=1)

    worst = [f"{size}/out" for size in SIZES[9:6:-1]]
    summary = "\n".join(result.outlines).partition("= dlperf:")[2]
    assert re.findall(r"busbw/(\S+) ", summary) == worst
    assert "regressed; 3 regressed; 37 pass" in summary

    text = (suite.path / "r.md").read_text()
    [table] = re.findall(r"<summary>busbw .*?</details>", text, re.DOTALL)
    assert "40 names: 34 pass, 6 regressed" in table
    rows = re.findall(r"^\| `(\d+)` (out|in) +\|", table, re.MULTILINE)
    assert rows == [(str(size), end) for size in SIZES for end in ("out", "in")]
    told, _, matrix = text.partition("## Matrix")
    assert re.findall(r"^- \*\*measured\*\* busbw/(\S+):", told, re.MULTILINE) == worst[::-1]
    assert not re.search(r"^\| busbw/", matrix, re.MULTILINE)

    page = (suite.path / "r.html").read_text()
    assert "busbw by size, in GB/s" in page
    [names] = re.findall(
        r'<table class="names">(?:(?!</table>).)*busbw.*?</table>', page, re.DOTALL
    )
    assert len(re.findall(r'<th scope="row">', names)) == 40
    assert re.findall(r"<h4>busbw/([^<]*)</h4>", page) == worst
    assert len(json.loads((suite.path / "r.json").read_text())["cases"][0]["metrics"]) == 43


@pytest.mark.in_process
def test_the_session_tells_the_worst_name_of_a_family(suite):
    suite.system_file(SYSTEM)
    night(suite, {}, "--dlperf-create-baselines")
    result = night(suite, SLOW, average=11.5)
    result.stdout.fnmatch_lines(["the only case got worse*, -25.0 %"])
    assert "6 of 40 of busbw fail: 524288/out (regressed -25.0 %)" in result.stdout.str()


@pytest.mark.in_process
def test_a_family_of_other_names_has_a_table_as_well(suite):
    suite.system_file(SYSTEM)
    night(suite, {}, "--dlperf-html=r.html").assert_outcomes(failed=3)
    page = (suite.path / "r.html").read_text()
    assert "latency by percentile, in ms" in page


@pytest.mark.in_process
def test_a_file_of_results_may_not_say_what_names_a_family(suite):
    suite.system_file(SYSTEM)
    night(suite, {}, "--dlperf-json=r.json").assert_outcomes(failed=3)
    file = suite.path / "r.json"
    text = re.sub(r'"named_by": \[[^]]+\]', '"named_by": []', file.read_text())
    file.write_text(text)
    results = read_results(file)
    assert "busbw by name" in html_page(session_report(results))
    assert "| name " in markdown_page(session_report(results))
