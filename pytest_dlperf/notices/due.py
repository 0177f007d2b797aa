"""Whether a session is to be told: it is red, or it fails in other ways than the last one."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pytest_dlperf.config.values import NotifyOn
from pytest_dlperf.history.rows import seconds_of
from pytest_dlperf.history.series import verdict_of
from pytest_dlperf.history.store import History, HistoryError
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.results import Results
from pytest_dlperf.report.session import is_red

_LAST: Final = """
    SELECT name, metric, verdict
    FROM measurements
    JOIN sessions ON sessions.id = measurements.session_id
    JOIN cases ON cases.id = measurements.case_id
    WHERE verdict IS NOT NULL AND session_id = (
        SELECT id FROM sessions
        WHERE cluster = :cluster AND estimator = :estimator AND uid != :session AND began <= :began
        ORDER BY began DESC, id DESC LIMIT 1
    )
"""
_CASES: Final = "SELECT name FROM cases"


def is_due(results: Results, when: NotifyOn, history_file: Path | None, *, is_bad: bool) -> bool:
    """Tell whether a session is one of those that are asked for.

    ``is_bad``: something else than its results made it fail. Where no history can be read, a change
    is a red session.
    """
    if when is NotifyOn.ALWAYS:
        return True
    red = is_bad or is_red(results)
    if not red and when is NotifyOn.FAILURE:
        return False
    if is_bad or results.interrupted or not any(result.is_measured for result in results.cases):
        return True
    failing = _failing(results)
    if when is NotifyOn.FAILURE:
        return bool(failing)
    try:
        with History.read_if_there(history_file) as history:
            if history is not None:
                return _is_change(history, results, failing)
    except (HistoryError, ValueError):
        pass
    return red


def _failing(results: Results) -> set[tuple[str, str, str]]:
    found, strict = set(), results.strict
    for result in results.cases:
        bad = [one for one in result.judgements.values() if one.status.fails(strict=strict)]
        found |= {(result.case.id, one.metric.name, one.verdict.value) for one in bad}
        if result.status.fails(strict=strict) and not (bad and result.is_whole):
            found.add((result.case.id, "", result.status.value))
    return found


def _is_change(history: History, results: Results, failing: set[tuple[str, str, str]]) -> bool:
    """Tell whether other cases, metrics or verdicts fail than in the last session.

    Of that only what this session judges, and does not expect to fail, counts.
    """
    values = {
        "began": seconds_of(results.started),
        "cluster": results.cluster,
        "estimator": results.estimator.value,
        "session": results.session,
    }
    judged = {
        (result.case.id, name)
        for result in results.cases
        for name, judgement in result.judgements.items()
        if judgement.expected is None
    }
    before = {
        (case_id, name, verdict)
        for case_id, name, verdict in history.tuples(_LAST, tuple[str, str, str], values)
        if (status := verdict_of(verdict)) and status.fails(strict=results.strict)
        if (case_id, name) in judged
    }
    # What was skipped in every session is in no history.
    known = {name for (name,) in history.tuples(_CASES, tuple[str])}
    return before != {one for one in failing if one[0] in known or one[2] != Verdict.SKIPPED}
