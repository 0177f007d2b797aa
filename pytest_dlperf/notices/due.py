"""Whether a session is to be told: it is red, or not as the sessions before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pytest_dlperf.config.values import NotifyOn
from pytest_dlperf.history.rows import seconds_of
from pytest_dlperf.history.store import History, HistoryError
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.notices.summary import is_red
from pytest_dlperf.reports.case_status import CaseStatus, is_measured, of_judgement

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_dlperf.model.judgement import Judgement
    from pytest_dlperf.model.results import Results

# SQLite gives the other columns of the row that has the maximum.
_BEFORE: Final = """
    SELECT cases.name, metric, verdict, difference_percent, tolerance_percent, better,
    max(measurements.began)
    FROM measurements
    JOIN sessions ON sessions.id = measurements.session_id
    JOIN cases ON cases.id = measurements.case_id
    WHERE cluster = :cluster AND estimator = :estimator AND uid != :session
    AND measurements.began <= :began
    GROUP BY measurements.case_id, metric
"""
_SMALLEST_LOSS: Final = 1.0
"""In percent: what a loss has to grow by to be worse, where no tolerance is known."""


class _Before(NamedTuple):
    """The last verdict on a metric before a session."""

    case_id: str
    metric: str
    verdict: str | None
    difference_percent: float | None
    tolerance_percent: float | None
    better: str | None
    began: float


def is_due(results: Results, when: NotifyOn, history_file: Path | None, *, is_bad: bool) -> bool:
    """Tell whether a session is one of those that are asked for.

    ``is_bad``: something else than its results made it fail. Where no history can be read, a change
    is a red session.
    """
    if when is NotifyOn.ALWAYS:
        return True
    red = is_bad or is_red(results)
    if when is NotifyOn.FAILURE:
        return red
    if is_bad or results.interrupted or not any(map(is_measured, results.cases)):
        return True
    try:
        with History.read_if_there(history_file) as history:
            return red if history is None else _has_changed(results, history)
    except (HistoryError, ValueError):
        return red


def _has_changed(results: Results, history: History) -> bool:
    values = {
        "began": seconds_of(results.started),
        "cluster": results.cluster,
        "estimator": results.estimator.value,
        "session": results.session,
    }
    rows = history.tuples(_BEFORE, _Before, values)
    before = {(one.case_id, one.metric): one for one in rows}
    last = max((one.began for one in before.values()), default=0.0)
    return any(
        _is_news(judgement, before.get((result.case.id, name)), last, strict=results.strict)
        for result in results.cases
        for name, judgement in result.judgements.items()
        if not judgement.excused
    )


def _is_news(judgement: Judgement, before: _Before | None, last: float, *, strict: bool) -> bool:
    """Tell whether a verdict is another than before, or a loss larger."""
    status = of_judgement(judgement)
    is_bad = status.fails(strict=strict)
    if judgement.verdict is Verdict.SKIPPED:
        # What was not measured is in no history: news is that the session before had it.
        return is_bad and before is not None and before.began == last
    if before is None or before.verdict is None:
        return is_bad
    was_bad = CaseStatus(before.verdict).fails(strict=strict)
    if is_bad != was_bad:
        return True
    return is_bad and (judgement.verdict.value != before.verdict or _is_worse(judgement, before))


def _is_worse(judgement: Judgement, before: _Before) -> bool:
    now, then, better = judgement.difference_percent, before.difference_percent, judgement.metric
    if now is None or then is None or better.better is None:
        return False
    grown = (then - now) * better.better.sign
    return grown > (before.tolerance_percent or _SMALLEST_LOSS)
