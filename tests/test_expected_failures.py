"""``expect`` in ``cluster.yaml``: a failure that is known fails no test until its day."""

from datetime import date, timedelta

import pytest
from nights import Nights

from pytest_dlperf.config.values import NotifyOn
from pytest_dlperf.notices.due import is_due
from pytest_dlperf.results.file import read_results

CASE = "tiny-mlp-fp32-b4-1n1g"
DAY = date.today()  # noqa: DTZ011 - as a session takes it


@pytest.fixture
def nights(suite):
    """A suite whose case on one device was accepted, and has lost a fifth since."""
    found = Nights(suite)
    found.accept(found.numbers("first"))
    return found


def judge(nights, *, days=1, metric="throughput", verdict="regressed", options=()):
    file = nights.suite.path / "baselines" / "local" / "cluster.yaml"
    file.write_text(
        "expect:\n"
        f"  - {{cases: 'tiny-*-1n1g', metric: {metric}, verdict: {verdict}, "
        f"until: {DAY + timedelta(days=days)}, reason: 'the <b>fabric</b>, #812'}}\n",
        encoding="utf-8",
    )
    return nights.suite.judge(
        *nights.usual("slow", of_1n1g=0.8), *options, "--dlperf-metric", "throughput",
        "--dlperf-markdown", "m.md", "--dlperf-html", "p.html", cluster="local",
    )  # fmt: skip


@pytest.mark.parametrize("options", [(), ("--dlperf-strict",), ("-n", "1")])
def test_until_its_day_it_is_reported_and_fails_no_test(nights, options):
    session, results = judge(nights, options=options)

    assert session.ret == 0
    session.assert_outcomes(xfailed=1, passed=1)
    [case] = [case for case in results["cases"] if case["id"] == CASE]
    assert case["metrics"]["throughput"]["verdict"] == "regressed"
    why = f"the <b>fabric</b>, #812, until {DAY + timedelta(days=1)}"
    assert case["judgements"]["throughput"]["expected"] == why
    session.stdout.fnmatch_lines(["*regressed, expected", "2 cases: 1 expected, 1 pass"])
    markdown = (nights.suite.path / "m.md").read_text(encoding="utf-8")
    page = (nights.suite.path / "p.html").read_text(encoding="utf-8")
    assert "#812" in markdown
    assert "&lt;b&gt;fabric&lt;/b&gt;, #812" in page
    known = read_results(nights.suite.path / "results.json")
    assert not is_due(known, NotifyOn.FAILURE, None, is_bad=False)


@pytest.mark.parametrize(
    "other", [{"days": 0}, {"metric": "peak_memory"}, {"verdict": "improved"}], ids=str
)
def test_from_its_day_on_and_where_something_else_fails_it_is_red(nights, other):
    session, _ = judge(nights, **other)

    assert session.ret == 1
    session.assert_outcomes(failed=1, passed=1)
    session.stdout.fnmatch_lines(["2 cases: 1 regressed, 1 pass"])


def test_a_failure_without_a_reason_or_a_day_is_refused(nights):
    file = nights.suite.path / "baselines" / "local" / "cluster.yaml"
    file.write_text("expect:\n  - {cases: '*', until: soon}\n", encoding="utf-8")

    session = nights.suite.run(*nights.usual("slow"))

    assert session.ret == 4
    session.stderr.fnmatch_lines(["*cluster.yaml:2: $.expect*"])
