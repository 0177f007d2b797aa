"""The page of a session: what stands in it, whatever the session was like."""

from __future__ import annotations

import re

import pytest
import results_makers as make
from bad_night import bad_night, nights_of
from msgspec.structs import replace
from pages import Page
from published_session import PLENTY, Happening, published, with_all_else, year_of_nights

from pytest_dlperf.history.series import CaseHistory, ChangePoint, Drift, Point
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.measurement import RunStatus
from pytest_dlperf.model.metric import THROUGHPUT, Better
from pytest_dlperf.report.html.page import html_page, render

pytestmark = pytest.mark.slow

SLOWER = "paddle-resnet50-fp32-b128-4n8g"


def page_of(results, **histories):
    return Page(html_page(make.report(results, histories.get("histories", {}))))


def only(results, *case_ids):
    return replace(results, cases=tuple(r for r in results.cases if r.case.id in case_ids))


def of(results, case_id):
    return next(result for result in results.cases if result.case.id == case_id)


@pytest.fixture(scope="module")
def plenty():
    return with_all_else(published(PLENTY))


@pytest.fixture(scope="module")
def whole(plenty):
    return page_of(plenty, histories=year_of_nights(plenty))


def test_a_session_writes_its_page(suite, tmp_path):
    file = tmp_path / "page.html"
    result = suite.run("--dlperf-cluster", "dlperf-v100", "--dlperf-html", file, "-k", "arcface")
    result.stdout.fnmatch_lines(["*page: *page.html*"])
    page = Page(file.read_text(encoding="utf-8"))
    # Nothing was there to be measured.
    assert page.one("h1").text.startswith("Nothing was measured: ")
    assert not page.all("tr", class_="pass")


def test_a_row_has_the_numbers_of_the_case(whole):
    assert whole.row(SLOWER) == (f"▼ regressed {SLOWER} 8750.19 -6.4 % 24.78 -6.5 %")


def test_a_case_tells_all_that_is_known(whole):
    text = whole.case(SLOWER).text
    for told in (
        "spread 0.2 %); higher is better",
        "77.4 % of the ideal",
        "or more, 9 times out of 10",
        "a loss of up to ",
        "r50_b128_fp32_5.log",
        "365 sessions since 2025-11-21",
        "commit 9f2c4e1: new driver 535.161.08",
        "Hosts: node1, node2, node3, node9",
    ):
        assert told in text, told


def test_each_picture_has_a_name_and_a_description(whole):
    pictures = [e for e in whole.all("svg") if e.attributes.get("role") == "img"]
    assert len(pictures) > 200
    assert len(whole.all("desc")) == len(pictures)
    others = [e for e in whole.all("svg") if e.attributes.get("role") != "img"]
    assert all(e.attributes.get("aria-hidden") == "true" for e in others)


def test_tables_say_what_their_cells_are(whole):
    assert len(whole.all("caption")) == len(whole.all("table"))
    assert all(th.attributes.get("scope") in {"col", "row"} for th in whole.all("th"))


def test_a_name_stands_for_one_element_only(whole):
    names = [e.attributes["id"] for e in whole.elements if "id" in e.attributes]
    assert len(names) == len(set(names))
    links = {e.attributes["href"] for e in whole.elements if "href" in e.attributes}
    assert {link.removeprefix("#") for link in links} <= set(names)


def test_history_shows_what_happened_when(plenty, whole):
    histories = year_of_nights(plenty)
    stepped = next(name for name, known in histories.items() if known[THROUGHPUT].accepted)
    drifting = next(name for name, known in histories.items() if known[THROUGHPUT].drift)
    text = whole.case(stepped).text
    assert "2026-06-28: +4.7 %" in text
    assert "cuDNN 8.9 <fused> kernels" in text
    text = whole.case(drifting).text
    assert "drifts -0.2 % a week since 2026-06-28 (" in text
    assert " days), -3.4 % in all" in text


def test_without_a_history_the_page_says_so(plenty):
    page = page_of(only(plenty, SLOWER))
    assert "There is no history: the session kept none" in page.case(SLOWER).text
    assert not page.all("svg", class_="history")


def test_scaling_beside_the_ideal(whole):
    [table] = [t for t in whole.all("table") if "Scaling of paddle-resnet50-fp32-b128" in t.text]
    assert re.search(r"4n8g ▼\s*regressed\s*8750.19\s*24.78\s*77.4 %\s*82.8 %", table.text)
    drawn = whole.all("path", class_="ideal")
    assert len(drawn) == len(whole.all("article"))


@pytest.mark.parametrize(
    "happening",
    [
        Happening(is_skipped=True),
        Happening(is_lost=True),
        Happening(broken=RunStatus.INVALID, reason="steps out of order"),
        Happening(broken=RunStatus.HUNG, reason="no step for 300 s"),
        Happening(without_baseline=True),
    ],
    ids=["skipped", "lost", "invalid", "hung", "no-baseline"],
)
def test_what_was_not_measured_or_judged_never_looks_good(happening):
    page = page_of(only(published({SLOWER: happening}), SLOWER))
    [row] = page.all("tr", class_="row")
    assert "pass" not in row.attributes["class"].split()
    assert "good" not in page.one("div", class_="headline").attributes["class"].split()
    assert "pass" not in page.case(SLOWER).attributes["class"].split()
    assert "pass" not in page.one("h1").text


def changed(case_id, on):
    """A history whose level changed on a day."""
    at = f"{on}T02:00:00+00:00"
    point = Point(started=at, began=0.0, median=100.0, lowest=99.0, highest=101.0, runs=5)
    change = ChangePoint(index=0, previous=0, at=at, before=100.0, after=95.1)
    return CaseHistory(
        case_id=case_id,
        metric=THROUGHPUT,
        unit="images/s",
        better=Better.HIGHER,
        points=(point,),
        change_points=(change,),
    )


@pytest.fixture(scope="module")
def red_page():
    results = bad_night()
    return page_of(results, histories=nights_of(results))


def test_what_is_suspicious_stands_before_what_is_folded(red_page):
    remarks = red_page.one("div", class_="remarks").text
    places = [
        remarks.index(told)
        for told in (
            "the loss of throughput comes from between nodes",
            "drifts -0.2 % a week",
        )
    ]
    assert places == sorted(places)
    folded = " ".join(fold.text for fold in red_page.all("details", class_="fold"))
    assert "drifts" in folded
    assert red_page.one("ul", class_="urgent").text.startswith("host node7 cannot be used")


def test_the_head_links_commit_and_ci_and_the_foot_has_the_session(red_page):
    head = red_page.one("header")
    links = {
        e.attributes["href"]: e.text for e in red_page.all("a") if e.text in ("1a2b3c4", "run")
    }
    assert links == {
        "https://git.example.org/lab/bench/commit/1a2b3c4d5e6f": "1a2b3c4",
        "https://git.example.org/lab/bench/actions/runs/4711": "run",
    }
    session = "5f1c2a9e-7b1d-4a7e-9a43-0d6f6f1f8a11"
    assert session not in head.text
    assert session in red_page.one("footer").text


@pytest.mark.parametrize("address", ["javascript:alert(1)", 'http://a"b'])
def test_only_an_address_becomes_a_link(address):
    origin = {"commit": "abc", "commit_url": address, "ci_run": address}
    page = page_of(replace(only(published({}), SLOWER), environment=origin))
    assert {e.attributes["href"][0] for e in page.all("a")} == {"#"}


def test_the_head_tells_what_changed_in_the_last_weeks():
    results = published({})
    other, *_ = ids = [result.case.id for result in results.cases]

    def told(*histories):
        page = Page(
            html_page(make.report(results, {one.case_id: {one.metric: one} for one in histories}))
        )
        return page.one("div", class_="remarks").text

    head = told(changed(SLOWER, "2026-11-04"), changed(other, "2026-09-04"))
    assert f"{SLOWER}: level changed on 2026-11-04: throughput -4.9 %" in head
    assert other not in head
    drift = Drift(since="2026-09-01T02:00:00+00:00", days=80, percent=-3.4, percent_per_week=-0.3)
    crept = replace(changed(other, "2026-09-04"), drift=drift)
    slowly = told(crept)
    assert f"{other}: throughput drifts " in slowly
    assert " since 2026-09-01 " in slowly

    many = told(*(changed(case_id, "2026-11-04") for case_id in ids))
    assert many.count("level changed") == len(ids)
    assert many.index("and ") < many.rindex("level changed")


def test_a_session_without_cases_has_a_page():
    page = page_of(replace(published({}), cases=()))
    assert page.one("h1").text == "Nothing was measured"


def test_what_is_not_there_is_a_dash():
    page = page_of(only(published({SLOWER: Happening(is_skipped=True)}), SLOWER))
    assert page.row(SLOWER) == f"– skipped {SLOWER} - skipped -"  # noqa: RUF001 - a sign
    values = [td.attributes["data-v"] for td in page.all("td", class_="of-metric")]
    assert values == [""]


def test_an_accepted_loss_is_no_loss_any_more(plenty):
    result = of(plenty, SLOWER)
    judgements = {q: replace(j, recorded=True) for q, j in result.judgements.items()}
    page = page_of(replace(plenty, cases=(replace(result, judgements=judgements),)))
    assert page.one("h1").text == "The only case has a newly accepted number"
    assert "regressed, accepted" in page.case(SLOWER).text


def test_the_session_itself(whole):
    text = whole.one("main").text
    fault = "GPU 3 has 12 uncorrected memory errors; 2 of 8 links are down"
    assert text.count(f"host node7 cannot be used: {fault}") == 1
    assert "2 logs were left out" in text
    assert "the name fits no case" in text
    assert "NCCL 2.21 with tree all-reduce" in text
    assert "pytest-dlperf 0.1.0, pytest 8.3.4, torch -" in text


def test_shows_how_a_log_ends(tmp_path):
    broken = "tensorflow-bert_base-fp32-b48-4n8g"
    results = only(published(PLENTY, logs=tmp_path), broken, SLOWER)
    measured = of(results, broken).measurement
    log = measured.runs[2].log
    file = tmp_path / "tensorflow-bert_base" / "4n8g" / log.rpartition("/")[2]
    file.parent.mkdir(parents=True)
    lines = "".join(f"line {n}\n" for n in range(40))
    file.write_bytes(lines.encode() + b"RuntimeError: \x1b[31mNCCL\xff <b>aborted</b>\n")
    page = page_of(results)
    [tail] = page.all("pre")
    assert tail.text.startswith("line 26 line 27")
    assert tail.text.endswith("RuntimeError: \\x1b[31mNCCL\ufffd <b>aborted</b>")
    assert "run 5" in page.case(SLOWER).text
    assert "it is empty or cannot be read" in page.case(SLOWER).text


@pytest.mark.parametrize("log", ["runs/\ud800.log", "runs/\0.log"])
def test_a_log_whose_name_no_file_can_have_is_shown_by_its_code(log):
    case = make.measured_case(SLOWER, 1.0, broken=[RunStatus.FAILED], verdict=Verdict.FAILED)
    runs = tuple(replace(run, log=log) for run in case.measurement.runs)
    measurement = replace(case.measurement, runs=runs)
    page = page_of(make.session(replace(case, measurement=measurement)))
    assert ascii(log)[1:-1] in page.case(SLOWER).text
    assert "it is empty or cannot be read" in page.case(SLOWER).text


def test_only_the_pages_own_script_and_style_may_run(whole):
    [policy] = [
        e.attributes["content"]
        for e in whole.all("meta")
        if e.attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert re.fullmatch(r"'sha256-\S{43}='", rules["style-src"])
    assert re.fullmatch(r"'sha256-\S{43}='", rules["script-src"])
    assert (len(whole.all("script")), len(whole.all("style"))) == (1, 1)
    assert not [e for e in whole.elements if {"style", "src"} & set(e.attributes)]
    assert not [e for e in whole.elements for name in e.attributes if name.startswith("on")]


def test_a_template_may_not_write_what_is_not_there():
    with pytest.raises(Exception, match="sentence"):
        render()


def test_of_three_years_of_nights_the_last_are_drawn(plenty):
    histories = year_of_nights(plenty, nights=3 * 365)
    text = html_page(make.report(plenty, histories))
    assert len(text.encode()) < 2_000_000
    assert "1095 sessions since 2023-" in text
    assert f"; the last {50_000 // sum(map(len, histories.values()))} are drawn" in text


def test_the_numbers_of_a_row_agree_and_the_rules_view_is_told(plenty):
    result = of(plenty, SLOWER)
    judged = result.judgements[THROUGHPUT]
    assert judged.decision is not None
    held = judged.decision.reference
    judged = make.decided(judged, difference_percent=-9.9)
    told = replace(result, judgements={THROUGHPUT: judged})
    page = page_of(replace(plenty, cases=(told,)))
    case = page.case(SLOWER).text
    assert "-9.9 %" in case
    assert f"the runs that count lie at {held * 0.901:.2f}" in case
    assert f"of {held:.2f}" in case
    assert f"accepted {judged.accepted:.2f}" in case


@pytest.mark.parametrize("strict", [False, True])
def test_what_fails_a_strict_session_is_red(strict):
    skipped = make.unmeasured_case(SLOWER, Verdict.SKIPPED, "no hosts")
    good = make.measured_case("paddle-resnet50-fp32-b128-1n1g", 350.0)
    page = page_of(replace(make.session(good, skipped), strict=strict))
    [headline] = page.all("div", class_="headline")
    assert headline.attributes["class"].split()[-1] == ("bad" if strict else "open")
    assert page.one("h1").text == (
        "1 of 2 cases was skipped" if strict else "1 of 2 cases passes; 1 was skipped"
    )
    assert ("bad" in page.case(SLOWER).attributes["class"].split()) is strict


def test_an_interrupted_session_is_not_green():
    good = make.measured_case("paddle-resnet50-fp32-b128-1n1g", 350.0)
    ended_before = "2026-11-20T21:00:00+01:00"
    page = page_of(replace(make.session(good), interrupted=True, ended=ended_before))
    assert page.one("h1").text == "Interrupted: the only case passes"
    assert page.one("div", class_="headline").attributes["class"].split()[-1] == "open"
    assert "took" not in [dt.text for dt in page.all("dt")]
