"""The page in a real browser: opened from a file, without a network, by mouse and by keyboard."""

import browser as pages
import pytest
import results_makers as make
from bad_night import bad_night, nights_of
from msgspec.structs import replace
from published_session import (
    PLENTY,
    published,
    with_all_else,
    year_of_nights,
)

from pytest_dlperf.model.baseline import Acceptance
from pytest_dlperf.model.results import IgnoredLog
from pytest_dlperf.report.html.page import html_page

pytestmark = [pytest.mark.browser, pytest.mark.slow, pages.needs_chromium]

GREEDY = "paddle-resnet50-fp32-b128-1n8g"
SLOWER = "paddle-resnet50-fp32-b128-4n8g"
CLOSED = SLOWER.replace("4n8g", "2n8g")
"""A bad case that does not stand open."""
HEADLINE = "2 of 115 cases got slower; worst -6.4 %; 1 has no baseline; 3 gave no number"
HOSTILE = (
    "</script><script>window.bad = 1</script><img src=x onerror='window.bad = 1'>"
    '</style><style>body{display:none}</style><svg onload="window.bad=1">'
    "\"' onmouseover=window.bad=1 x='\u202egnp.exe\x00\x1b[31m\udcff{{ 7*7 }}"
    "<a href='javascript:window.bad=1'>here</a>"
)


@pytest.fixture(scope="module")
def chromium():
    with pages.started() as browser:
        yield browser


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    """A session with something of everything, and a year behind it."""
    results = with_all_else(published(PLENTY))
    file = tmp_path_factory.mktemp("page") / "page.html"
    file.write_text(html_page(make.report(results, year_of_nights(results))), encoding="utf-8")
    return file


def history(page):
    """The history of a metric."""
    return page.get_by_role("img", name=f"History of {CLOSED}: throughput in")


def rows(page):
    """The ids of the cases that the table shows, from the top."""
    texts = page.locator("#cases tr.row:visible th").all_text_contents()
    return [text.strip() for text in texts]


@pytest.mark.parametrize(("width", "scheme"), [(400, "dark"), (1400, "light")])
def test_opens_from_a_file_and_fits(chromium, page_file, width, scheme):
    with pages.opened(chromium, page_file, width=width, scheme=scheme) as (page, seen):
        assert page.get_by_role("heading", level=1).text_content() == HEADLINE
        pages.open_all(page)
        assert page.locator("details.case:visible").count() == 115
        assert pages.width_beyond(page) == 0
        assert seen.nothing, seen


def test_without_a_script_everything_is_there(chromium, page_file):
    with pages.opened(chromium, page_file, width=400, with_script=False) as (page, seen):
        assert len(rows(page)) == 115
        details = page.locator(f"[id='case-{CLOSED}']")
        details.locator("summary").first.click()
        assert history(page).is_visible()
        assert page.locator("#filters").is_hidden()
        assert page.get_by_role("button").count() == 0
        assert pages.width_beyond(page) == 0
        assert seen.nothing, seen


def test_filters_by_words_and_by_choice(chromium, page_file):
    with pages.opened(chromium, page_file) as (page, seen):
        page.keyboard.press("/")
        page.keyboard.type("bert 4n8g xla")
        assert page.locator(":focus").get_attribute("type") == "search"
        assert rows(page)
        assert all("bert" in name and name.endswith("xla-4n8g") for name in rows(page))
        page.get_by_label("precision").select_option("fp16")
        assert all("fp16" in name for name in rows(page))
        assert page.get_by_text(f"{len(rows(page))} of 115 cases").is_visible()
        page.get_by_role("searchbox").press("Escape")
        assert len(rows(page)) == 115
        page.get_by_label("verdict", exact=True).select_option("regressed")
        assert sorted(rows(page)) == [SLOWER.replace("4n8g", "2n8g"), SLOWER]
        assert seen.nothing, seen


def test_sorts_opens_and_changes_its_colours_by_mouse_and_keyboard(chromium, page_file):
    with pages.opened(chromium, page_file) as (page, seen):
        heading = page.locator("#cases").get_by_role("columnheader", name="throughput", exact=True)
        heading.get_by_role("button").click()
        assert heading.get_attribute("aria-sort") == "ascending"
        cells = page.locator("#cases tr.row td[data-name=throughput]")
        gains = "all => all.map(cell => cell.dataset.v)"
        values = cells.evaluate_all(gains)
        known = [float(value) for value in values if value]
        assert known == sorted(known)
        absent = len(values) - len(known)
        assert absent > 2
        assert values[-absent:] == [""] * absent
        heading.get_by_role("button").press("Enter")
        assert heading.get_attribute("aria-sort") == "descending"
        values = cells.evaluate_all(gains)
        assert values[-absent:] == [""] * absent
        assert float(values[0]) == max(known)

        button = page.get_by_role("button", name=CLOSED, exact=True)
        assert button.get_attribute("aria-expanded") == "false"
        button.press("Enter")
        assert button.get_attribute("aria-expanded") == "true"
        assert history(page).is_visible()
        button.press("Enter")
        assert button.get_attribute("aria-expanded") == "false"
        assert history(page).is_hidden()

        background = "getComputedStyle(document.body).backgroundColor"
        light = page.evaluate(background)
        page.get_by_role("button", name="Change to dark colours").click()
        assert page.evaluate(background) != light
        page.get_by_role("button", name="Change to light colours").click()
        assert page.evaluate(background) == light
        assert seen.nothing, seen


CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (colour) => {
    canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (colour) => rgb(colour).map((c) => c / 255)
    .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if (!colour.endsWith(", 0)") && colour !== "transparent") return colour;
    }
    return "#fff";
  };
  const faint = new Set();
  for (const element of document.querySelectorAll("main *:not(svg *)")) {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !element.checkVisibility()) continue;
    const [a, b] = [light(getComputedStyle(element).color), light(behind(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) faint.add(`${element.className || element.tagName} ${ratio.toFixed(2)}`);
  }
  return [...faint];
}"""


@pytest.fixture(scope="module")
def red_page(tmp_path_factory):
    results = bad_night()
    file = tmp_path_factory.mktemp("red_page") / "page.html"
    file.write_text(html_page(make.report(results, nights_of(results))), encoding="utf-8")
    return file


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "dark")])
def test_a_bad_night_fits_and_can_be_read(chromium, red_page, width, scheme):
    with pages.opened(chromium, red_page, width=width, scheme=scheme) as (page, seen):
        assert page.get_by_text("2 cases regressed -4.4 to -6.4 % since Tuesday").is_visible()
        drifting = page.locator(".remarks .fold").get_by_text("drifts -0.2 % a week").first
        assert drifting.is_hidden()
        page.get_by_text("7 cases with drift").click()
        assert drifting.is_visible()
        page.locator("ol.worst").get_by_role("link", name=SLOWER).press("Enter")
        came = page.locator("details.case[open] .pairs b").get_by_text("came with the loss").first
        assert came.is_visible()
        assert page.evaluate(CONTRAST) == []
        assert pages.width_beyond(page) == 0
        assert seen.nothing, seen


def test_what_a_screen_reader_is_told(chromium, page_file):
    with pages.opened(chromium, page_file, fragment=f"#case-{SLOWER}") as (page, _):
        told = page.locator("main").aria_snapshot()
        for line in (
            f'- heading "{HEADLINE}"',
            '- list "Cases by verdict"',
            '- list "The worst cases"',
            '- searchbox "Filter by words of a case"',
            '- table "Cases, the worst first"',
            '- columnheader "speedup x"',
            f'- rowheader "{SLOWER}"',
            f'- button "{SLOWER}" [expanded]',
            f'- \'img "History of {SLOWER}: throughput in images/s"',
            '- heading "Scaling" [level=2]',
        ):
            assert line in told, line
        # What is a sign for eyes is a word for ears.
        assert "▼" not in told.split('table "Cases')[0]
        images = page.locator("svg[role=img]:visible")
        assert all(
            images.nth(n).evaluate("e => e.querySelector('desc') !== null") for n in range(5)
        )


def hostile(metric):
    """The metric in a unit that no file of ours would let in."""
    return replace(metric, unit=HOSTILE)


def test_nothing_of_a_log_or_name_runs_or_loads(chromium, tmp_path):
    log = tmp_path / "hostile.log"
    log.write_bytes(HOSTILE.encode("utf-8", "surrogateescape") + b"\n\xff\xfe\n")
    results = with_all_else(published({}))
    cases = []
    for result in results.cases[:12]:
        judgements = {
            name: replace(
                judgement,
                metric=hostile(judgement.metric),
                reason=HOSTILE,
                notes=(HOSTILE,),
                ends=(HOSTILE,),
            )
            for name, judgement in result.judgements.items()
        }
        measured = result.measurement
        runs = tuple(replace(run, reason=HOSTILE, log=str(log)) for run in measured.runs)
        metrics = tuple(map(hostile, measured.metrics))
        over = result.reference
        accepted = {
            name: replace(
                one,
                acceptance=Acceptance(
                    at=HOSTILE,
                    by=HOSTILE,
                    reason=HOSTILE,
                    commit=HOSTILE,
                    software={HOSTILE: HOSTILE},
                ),
            )
            for name, one in result.accepted.items()
        }
        cases.append(
            replace(
                result,
                judgements=judgements,
                measurement=replace(measured, runs=runs, metrics=metrics),
                reference=replace(over, metrics=metrics) if over is not None else None,
                accepted=accepted,
            )
        )
    results = replace(
        results,
        session=HOSTILE,
        cluster=HOSTILE,
        environment={HOSTILE: HOSTILE, "packages": {HOSTILE: [HOSTILE]}},
        cases=tuple(cases),
        unfit_hosts={HOSTILE: (HOSTILE,)},
        ignored_logs=(IgnoredLog(HOSTILE, HOSTILE),),
        baseline_changes=tuple(
            replace(change, why=HOSTILE, unit=HOSTILE, metric=HOSTILE)
            for change in results.baseline_changes
        ),
    )
    histories = {
        case_id: {
            name: replace(
                known,
                unit=HOSTILE,
                metric=HOSTILE,
                accepted=tuple(replace(change, why=HOSTILE) for change in known.accepted),
            )
            for name, known in by_metric.items()
        }
        for case_id, by_metric in year_of_nights(results).items()
    }
    file = tmp_path / "page.html"
    file.write_text(html_page(make.report(results, histories)), encoding="utf-8")
    with pages.opened(chromium, file) as (page, seen):
        pages.open_all(page)
        page.get_by_role("button", name="Change to dark colours").click()
        assert page.evaluate("window.bad") is None
        assert page.locator("body img, [onload], [onerror], [onmouseover]").count() == 0
        assert page.locator("script, style").count() == 2
        assert page.locator("a:not([href^='#'])").count() == 0
        assert page.locator("body").is_visible()
        text = page.locator("main").inner_text()
        assert "<script>window.bad = 1</script>" in text
        assert "\\u202egnp.exe\\x00\\x1b[31m\\udcff{{ 7*7 }}" in text
        assert seen.nothing, seen
