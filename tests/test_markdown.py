"""The Markdown page: what went wrong first, then the matrix; nothing unmeasured looks good."""

import re

import pytest
import results_makers as make
from msgspec.structs import replace
from nights import Nights
from trainers import TinySystem

from pytest_dlperf.model.case import Case
from pytest_dlperf.model.judgement import Judgement, Verdict
from pytest_dlperf.model.measurement import Estimator, Measurement, Run, RunStatus
from pytest_dlperf.model.results import BaselineChange, CaseResult, IgnoredLog
from pytest_dlperf.report.markdown import markdown_page
from pytest_dlperf.report.markdown_text import inline
from pytest_dlperf.report.session import session_report

pytestmark = pytest.mark.in_process

CASE = "paddle-resnet50-fp32-b128-4n8g"
HOSTILE = (
    "<script>alert(1)</script> | `tick` ```` @octocat #1 GH-7 [x](http://e.vil) ![i](u) **b** "
    "_i_ ~~s~~ $x$ :tada: www.e.vil \x1b[31m \udc80 </details>"
)


def run_page(suite, *arguments):
    """The page that a session writes."""
    suite.run(*arguments, "--dlperf-markdown", "page.md")
    return (suite.path / "page.md").read_text(encoding="utf-8")


def section(page, title):
    """A section of the page, without its title."""
    return page.split(f"\n## {title}\n", maxsplit=1)[1].split("\n## ", maxsplit=1)[0]


def rows(text):
    """The cells of all tables in a text, headings included."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if set("".join(row)) - set("-:")]


def headline(page):
    """The line in bold."""
    return page.splitlines()[2]


def fact(page, name):
    """What the head says of the session."""
    found = re.search(rf"\b{name} `([^`]*)`", page.split("\n## ", maxsplit=1)[0])
    return found[1] if found else None


def failed(reason, log="logs/1.log", case_id=CASE):
    run = Run(run=1, status=RunStatus.FAILED, reason=reason, log=log)
    return CaseResult(
        case=Case.from_id(case_id),
        measurement=Measurement(
            case_id=case_id, metrics=(make.THROUGHPUT,), estimator=Estimator.STEADY, runs=(run,)
        ),
        judgements={
            "throughput": Judgement(
                metric=make.THROUGHPUT, verdict=Verdict.FAILED, reason=f"run 1: {reason}"
            )
        },
    )


# A session's page


def test_the_matrix_has_the_topologies_of_a_training_below_each_other(suite):
    nights = Nights(suite)
    nights.accept({"1n1g": [399.0, 400.0, 401.0], "1n2g": [759.0, 760.0, 761.0]})

    page = run_page(
        suite, *nights.night("now", {"1n1g": [400.0, 401.0, 402.0], "1n2g": [761.0, 762.0]})
    )

    assert headline(page) == "**Both cases pass.**"
    matrix = section(page, "Matrix")
    assert matrix.count("###") == 1
    assert "### `tiny-mlp` `fp32-b4`, weak scaling" in matrix
    judged, recorded = matrix.split("<details><summary>Recorded, judged by no test</summary>")
    assert rows(judged) == [
        ["metric", "topology", "median", "unit", "reference", "diff", "sees", "of ideal", "spread",
         "mean", "runs", "verdict"],
        ["throughput", "1n1g", "401.00", "samples/s", "400.00", "+0.2 %", "6.6 %", "-", "0.2 %",
         "401.00", "3", "pass"],
        ["throughput", "1n2g", "761.50", "samples/s", "760.00", "+0.2 %", "6.5 %", "-", "0.1 %",
         "761.50", "2", "pass"],
        ["speedup", "1n2g", "1.90", "x", "1.90", "-0.1 %", "5.4 %", "95.0 %", "-", "-", "-",
         "pass"],
    ]  # fmt: skip
    assert ["throughput_per_device", "1n2g", "380.75"] in [row[:3] for row in rows(recorded)]
    assert fact(page, "minimum detectable change") == "5.4 % to 6.6 %"


def test_a_failure_shows_what_the_log_ends_with_and_where_it_lies(suite):
    TinySystem(suite, topologies=("1n1g",)).behave("0.01 die-at-5")

    page = run_page(suite, "-k", "tiny")

    assert headline(page) == "**Nothing was measured: the only case failed.**"
    alarm = section(page, "Regressions and failures")
    assert "### failed: `tiny-mlp-fp32-b4-1n1g`" in alarm
    assert "- **reason** run 1: the program ended with exit code 7 on node 0" in alarm
    assert re.search(r"```text\n(.*\n)*the trainer ran out of luck\n```", alarm)
    assert re.search(r"`/\S*/tiny-mlp/1n1g/mlp_b4_fp32_1.log`", alarm)
    headings, row = rows(section(page, "Matrix"))
    assert not {"median", "diff", "spread"} & set(headings)
    assert row[-1] == "**failed**"


def test_a_session_that_measured_nothing_says_so_at_the_top(suite):
    page = run_page(suite, "-k", "paddle and 4n8g")

    assert headline(page) == "**Nothing was measured: all 5 cases were skipped.**"
    reasons = section(page, "Not measured or not judged")
    assert reasons.count("- **skipped**") == len(reasons.strip().splitlines())
    assert "needs checkout" in reasons
    assert "## Matrix" not in page
    assert fact(page, "minimum detectable change") is None


def test_accepted_numbers_are_a_table(suite):
    nights = Nights(suite)
    nights.accept({"1n1g": [400.0] * 5, "1n2g": [760.0] * 5})

    page = run_page(
        suite, *nights.usual("now", of_1n2g=0.9), "--dlperf-update-baselines",
        "--dlperf-reason", "new driver | `470`",
    )  # fmt: skip

    assert "1 has a newly accepted number" in headline(page)
    assert "## Regressions and failures" not in page
    [headings, *changes] = rows(section(page, "Accepted"))
    assert headings == ["case", "metric", "unit", "old", "new", "diff", "by", "why"]
    assert sorted(row[:4] for row in changes) == [
        ["`tiny-mlp-fp32-b4-1n2g`", "speedup", "x", "1.90"],
        ["`tiny-mlp-fp32-b4-1n2g`", "throughput", "samples/s", "760.00"],
    ]
    assert {row[7] for row in changes} == {"`new driver `&#124;``  `470` ``"}


def test_one_device_that_was_measured_for_a_speedup_alone_has_a_row(suite):
    TinySystem(suite)

    page = run_page(suite, "-k", "tiny and 1n2g", "--dlperf-create-baselines")

    judged, _ = section(page, "Matrix").split("<details>", maxsplit=1)
    [_, single, row, speedup] = rows(judged)
    assert (single[1], single[-1]) == ("1n1g", "**not judged**")
    assert row[-1] == speedup[-1] == "pass, recorded"
    assert headline(page) == "**The only case has its first baseline.**"


# One line for all


def test_what_was_not_measured_never_looks_good():
    """Not even with a verdict that says so, or with a test that was lost."""
    good = make.measured_case("paddle-resnet50-fp32-b128-1n1g", 350.0)
    claimed = make.unmeasured_case("paddle-resnet50-fp32-b128-1n2g", Verdict.PASS, "")
    lost = make.measured_case("paddle-resnet50-fp32-b128-1n4g", 1350.0)
    lost = replace(lost, is_whole=False)
    unjudged = CaseResult(case=Case.from_id("paddle-resnet50-fp32-b128-1n8g"))

    page = markdown_page(session_report(make.session(good, claimed, lost, unjudged)))

    assert headline(page) == "**1 of 4 cases was lost with its worker.**"
    head = page.partition("\n## ")[0]
    assert "- **not judged**: `paddle-resnet50-fp32-b128-1n8g`" in head
    assert "- **not measured**: `paddle-resnet50-fp32-b128-1n2g`" in head
    assert [row[-1] for row in rows(section(page, "Matrix"))] == [
        "verdict", "pass", "**not measured**", "**lost**", "**not judged**",
    ]  # fmt: skip


def test_what_fails_a_strict_session_is_said_to():
    shifted = make.measured_case(CASE, 9348.0, verdict=Verdict.ENVIRONMENT_SHIFT)
    skipped = make.unmeasured_case("paddle-resnet50-fp32-b128-1n2g", Verdict.SKIPPED, "no hosts")
    good = make.measured_case("paddle-resnet50-fp32-b128-1n1g", 350.0)
    unjudged = CaseResult(case=Case.from_id("paddle-resnet50-fp32-b128-1n8g"))

    page = markdown_page(
        session_report(replace(make.session(good, skipped, unjudged, shifted), strict=True))
    )

    said = "**1 of 4 cases is worse, and so is the accepted software; 1 was skipped.**"
    assert headline(page) == said
    assert f"### environment_shift: `{CASE}`" in section(page, "Regressions and failures")
    assert "No worse than the accepted software now" not in page


def test_the_page_tells_where_the_gate_sees_no_loss_at_all():
    cases = []
    for topology, percent in (("1n1g", 2.1), ("2n8g", 66.0), ("4n8g", 140.0)):
        cases.append(make.measured_case(f"paddle-resnet50-fp32-b128-{topology}", 350.0))
        [judgement] = cases[-1].judgements.values()
        judged = make.decided(judgement, min_detectable_percent=percent)
        cases[-1] = make.with_judgement(cases[-1], judged)

    page = markdown_page(session_report(make.session(*cases)))

    seen = fact(page, "minimum detectable change")
    assert seen == "2.1 % to no loss"
    assert [row[6] for row in rows(section(page, "Matrix"))] == [
        "sees", "2.1 %", "66.0 %", "no loss",
    ]  # fmt: skip


def test_of_many_logs_that_were_left_out_some_are_named():
    ignored = tuple(IgnoredLog(f"logs/{n}.log", "no case") for n in range(50))

    page = markdown_page(session_report(replace(make.session(), ignored_logs=ignored)))

    told = section(page, "50 logs that were left out")
    assert told.count("- `logs/") == 20
    assert "- … and 30 more" in told


# Nothing from a log or a name is markup


def test_texts_of_others_are_shown_and_do_nothing():
    results = replace(
        make.session(
            failed(f"{HOSTILE}; the log of node 0, x.log, ends with:\n```\n{HOSTILE}", log=HOSTILE),
            make.unmeasured_case("paddle-resnet50-fp32-b128-1n1g", Verdict.SKIPPED, HOSTILE),
            cluster=HOSTILE,
            environment={"host": HOSTILE, HOSTILE: {"a": "b"}},
        ),
        ignored_logs=(IgnoredLog(HOSTILE, HOSTILE),),
        unfit_hosts={HOSTILE: (HOSTILE,)},
        baseline_changes=(
            BaselineChange(
                case_id=CASE, metric="throughput", unit=HOSTILE, old=None, new=1.0, why=HOSTILE
            ),
        ),
    )

    page = markdown_page(session_report(results))

    assert page.encode("utf-8")
    assert page.isascii() or page.replace("\n", "").isprintable()
    # Blocks of code first: what is in them is text. Their fences are longer than any in them.
    block = re.compile(r"^(`{3,})text\n.*?\n\1$", re.MULTILINE | re.DOTALL)
    assert len(block.findall(page)) == 1
    outside = block.sub("", page)
    assert page.count("```") > 2
    spans = re.compile(r"(?<![\\`])(`+)(?!`)(.+?)(?<!`)\1(?!`)")
    text = re.sub(r"&#?\w+;", "", spans.sub("", outside))
    assert not re.search(r"@|#\d|GH-|://|www\.|\$|:tada:", text)
    assert re.findall(r"</?(\w+)>", spans.sub("", outside)) == ["details", "summary", "summary",
                                                                 "details"]  # fmt: skip
    # Every row has as many cells as its heading has.
    for table in re.findall(r"(?:^\|.*\n)+", outside, re.MULTILINE):
        assert len({line.count("|") for line in table.splitlines()}) == 1


@pytest.mark.parametrize("text", ["- no list", "+ none", "1. none", "2) none", "=== ", "---"])
def test_a_text_begins_no_block(text):
    assert inline(text) == f"`{text.strip()}`"


# A page with a limit


def large_session():
    return [
        *(
            failed("out of luck", "x" * 900, f"paddle-resnet50-fp32-b{n}-1n1g")
            for n in range(1, 40)
        ),
        *(make.measured_case(f"paddle-resnet50-fp16-b{n}-1n1g", 350.0) for n in range(1, 300)),
    ]


@pytest.mark.parametrize("limit", [3000, 10_000, 40_000, 100_000])
def test_a_page_with_a_limit_leaves_out_what_is_folded_and_then_its_end(limit):
    results = make.session(*large_session())
    whole = markdown_page(session_report(results))
    assert len(whole.encode()) > 100_000

    page = markdown_page(session_report(results), max_bytes=limit)

    assert min(limit / 2, 80_000) < len(page.encode()) <= limit
    assert headline(page) == headline(whole)
    assert page.count("There is no room here for the whole page") == 1
    assert "<details>" not in page
    # All alarms are there before any table of what is good.
    assert page.count("### failed: ") == 39 or "### `paddle-resnet50` `fp16-" not in page
    # What is shown is shown as a whole.
    told = {line for line in page.split("\n") if "no room here" not in line}
    assert told <= set(whole.split("\n"))
    assert markdown_page(session_report(results), max_bytes=200) == ""
