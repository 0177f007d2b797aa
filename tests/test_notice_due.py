"""Which sessions are told: red ones, or those that fail in other ways than the last one."""

import pytest
import results_makers as make
from histories import case_result, drawn, fill, session
from msgspec.structs import replace

from pytest_dlperf.config.values import NotifyOn
from pytest_dlperf.history.case_history import HistoryReader
from pytest_dlperf.history.store import History
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.notices.brief import notice_of
from pytest_dlperf.notices.due import is_due
from pytest_dlperf.report.html.page import html_page
from pytest_dlperf.report.markdown import markdown_page
from pytest_dlperf.report.session import session_report

FIRST, SECOND = "tiny-mlp-fp32-b4-1n1g", "tiny-mlp-fp32-b4-1n2g"
SKIPPED = make.unmeasured_case(SECOND, Verdict.SKIPPED, "no such host")


def lost(percent, case_id=FIRST):
    """A case that has lost so much, with a tolerance of 5 %; below that it passes."""
    verdict = Verdict.REGRESSED if percent > 5 else Verdict.PASS
    result = case_result(case_id, [400.0 - 4 * percent] * 2, baseline=400.0, verdict=verdict)
    [judgement] = result.judgements.values()
    return make.with_judgement(result, make.decided(judgement, difference_percent=-percent))


def of(*cases, **more):
    return session(9, cases, **more)


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        (of(lost(0)), False),
        (of(lost(9), lost(0, SECOND)), True),
        (of(lost(0), interrupted=True), True),
        (of(SKIPPED), True),  # nothing was measured
        (of(lost(0), SKIPPED), False),
        (of(lost(0), SKIPPED, strict=True), True),
        (of(make.unmeasured_case(FIRST, Verdict.FAILED, "died"), lost(0, SECOND)), True),
        (of(replace(lost(0), is_whole=False)), True),
    ],
)
def test_a_red_session_is_told(results, *, expected):
    assert is_due(results, NotifyOn.FAILURE, None, is_bad=False) is expected
    assert is_due(results, NotifyOn.CHANGE, None, is_bad=False) is expected  # without a history
    assert is_due(results, NotifyOn.FAILURE, None, is_bad=True)
    assert is_due(results, NotifyOn.ALWAYS, None, is_bad=False)


@pytest.mark.parametrize(
    ("nights", "expected"),
    [
        ([of(lost(0)), of(lost(0))], False),
        ([of(lost(0)), of(lost(9))], True),
        ([of(lost(9)), of(lost(9))], False),
        ([of(lost(9)), of(lost(13))], False),
        ([of(lost(9)), of(lost(15))], False),
        ([of(lost(15)), of(lost(9))], False),
        ([of(lost(9)), of(lost(0))], True),
        ([of(lost(9)), of(lost(9), lost(0, SECOND))], False),
        ([of(lost(9)), of(lost(9), lost(9, SECOND))], True),
        # The last session did not have the case.
        ([of(lost(9)), of(lost(0, SECOND)), of(lost(9))], True),
        ([of(lost(9), lost(9, SECOND)), of(lost(9))], False),
        ([of(lost(9), lost(9, SECOND)), of(lost(9), SKIPPED)], True),
        ([of(lost(9)), of(lost(9), SKIPPED, strict=True)], False),
        ([of(lost(9), lost(0, SECOND)), of(lost(9), SKIPPED, strict=True)], True),
        ([of(lost(9), lost(0, SECOND)), of(lost(9), SKIPPED, strict=True),
          of(lost(9), SKIPPED, strict=True)], False),
        ([of(lost(9)), of(lost(9), interrupted=True)], True),
        ([of(lost(9)), of(SKIPPED)], True),
        ([of(lost(9), cluster="other"), of(lost(9))], True),
    ],
)  # fmt: skip
def test_a_change_is_told_once(tmp_path, nights, *, expected):
    file = tmp_path / "history.sqlite3"
    numbered = [
        replace(results, session=f"night-{number}", started=f"2026-01-{number:02}T02:00:00+01:00")
        for number, results in enumerate(nights, 1)
    ]
    with History.open(file) as history:
        for results in numbered:
            history.add(results)
    assert is_due(numbered[-1], NotifyOn.CHANGE, file, is_bad=False) is expected


def test_a_verdict_of_another_version_fails_nothing(tmp_path):
    file = tmp_path / "history.sqlite3"
    with History.open(file) as history:
        history.add(replace(of(lost(9)), session="before", started="2025-01-01T02:00:00+01:00"))
        history.tuples("UPDATE measurements SET verdict = 'splendid'", tuple)
    assert is_due(of(lost(9)), NotifyOn.CHANGE, file, is_bad=False)
    assert not is_due(of(lost(0)), NotifyOn.CHANGE, file, is_bad=False)


def test_of_a_history_that_cannot_be_read_a_red_session_is_a_change(tmp_path):
    file = tmp_path / "history.sqlite3"
    file.write_text("no database", encoding="utf-8")
    assert is_due(of(lost(9)), NotifyOn.CHANGE, file, is_bad=False)
    assert not is_due(of(lost(0)), NotifyOn.CHANGE, file, is_bad=False)
    assert not HistoryReader(of(lost(0)), file).drifts


def test_drift_is_told_in_every_notice_and_page(tmp_path):
    file = tmp_path / "history.sqlite3"
    levels = [400 * 0.9985**night for night in range(40)]
    last = fill(file, drawn(levels, noise=0.002), FIRST)
    [(series, drift)] = HistoryReader(last, file).drifts
    assert series.case_id == FIRST
    assert drift.percent < -3
    night = session_report(last, file)
    notice = notice_of(night)
    for text in (notice.text, markdown_page(night), html_page(night)):
        assert "throughput of " in text
        assert "drift" in text
    assert f"throughput of {FIRST}" in notice.text


def test_a_failure_that_was_announced_is_no_change(tmp_path):
    file = tmp_path / "history.sqlite3"
    [judgement] = lost(9).judgements.values()
    results = of(make.with_judgement(lost(9), replace(judgement, expected="#812")))
    with History.open(file) as history:
        history.add(session(1, [lost(0)]))
        history.add(results)
    assert not is_due(results, NotifyOn.CHANGE, file, is_bad=False)
