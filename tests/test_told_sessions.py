"""What a made session says in each form, to the letter: read the golden files as a person would.

``DLPERF_GOLDEN=write`` writes them anew.
"""

import os
import re
from html import unescape
from pathlib import Path

import pytest
from told_sessions import EVERYTHING, FORMS, SESSIONS, case_id, failure, session_report

from pytest_dlperf.report.facts import Weight, facts
from pytest_dlperf.report.html.page import html_page

GOLDEN = Path(__file__).parent / "data" / "told"
GOLDEN_FORMS = [form for form in FORMS if form != "page.html"]


def compare(text, name):
    file = GOLDEN / name
    if os.environ.get("DLPERF_GOLDEN") == "write":
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("session", SESSIONS)
@pytest.mark.parametrize("form", GOLDEN_FORMS)
def test_a_session_is_told_to_the_letter(session, form):
    text = FORMS[form](session_report(SESSIONS[session]()))
    compare(text.rstrip("\n") + "\n", f"{session}.{form}")


def test_a_failure_has_all_that_is_needed_to_act():
    """The test's id names the case, so the first line does not."""
    compare(failure() + "\n", "failure")


def words_of(text):
    """The words that a form shows, without its markup."""
    text = unescape(re.sub(r"<[^>]*>", "", text.replace("%25", "%").replace("%3A", ":")))
    return re.sub(r"[`*\[\]]|\(https://[^)]*\)", "", text).split()


@pytest.mark.parametrize("form", [*FORMS, "failure"])
def test_every_kind_of_finding_reaches_every_form(form):
    """Whatever an explanation carries, no form leaves it out."""
    night = session_report(SESSIONS["red"]())
    text = " ".join(words_of(failure() if form == "failure" else FORMS[form](night)))
    known = night.results.cases[0].metrics()["throughput"]
    brief = [fact for fact in facts(known, night.results.started) if fact.weight is Weight.BRIEF]
    assert {fact.label for fact in brief} >= {
        "since", "red since", "last good", "probes", "found", "differs", "commits"
    }  # fmt: skip
    assert known.explanation is EVERYTHING
    for fact in brief:
        first = " ".join(words_of(str(fact.texts[0])))
        assert first in text, fact.label


def test_an_entry_says_what_all_its_cases_share_and_of_how_many_the_rest_is():
    night = session_report(SESSIONS["red"]())
    [entry] = [one for one in night.bad if len(one.cases) == 3]
    assert entry.case_ids == tuple(map(case_id, (3, 4, 2)))
    [differs] = [fact for fact in entry.facts if fact.label == "differs"]
    of_all, of_two = map(str, differs.texts)
    assert of_all.endswith("came with the loss")
    assert of_two.endswith("now 2.14 (2 of 3)")
    # What a single one of them has is its own.
    assert "2.15" not in html_page(night).partition('id="cases"')[0]
