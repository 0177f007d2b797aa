"""Whether a session is to be told: it is red, or not as the sessions before it."""

from __future__ import annotations

from datetime import datetime, time
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from pytest_dlperf.config.values import NotifyOn
from pytest_dlperf.history.rows import seconds_of
from pytest_dlperf.history.store import History, HistoryError
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.results import parse_time
from pytest_dlperf.night.case_status import CaseStatus, is_measured, of_judgement, status_of
from pytest_dlperf.night.night import is_red

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_dlperf.model.judgement import Judgement, Note
    from pytest_dlperf.model.results import CaseResult, Results

_COLUMNS: Final = "cases.name, metric, verdict, difference_percent, tolerance_percent, better"
_EARLIER: Final = """
    FROM measurements
    JOIN sessions ON sessions.id = measurements.session_id
    JOIN cases ON cases.id = measurements.case_id
    WHERE cluster = :cluster AND estimator = :estimator AND uid != :session
    AND measurements.began <= :began
"""
# SQLite gives the other columns of the row that has the maximum.
_BEFORE: Final = f"""
    SELECT {_COLUMNS}, max(measurements.began) {_EARLIER}
    GROUP BY measurements.case_id, metric
"""
# From the last night before the note on: that is what it was made of.
_SINCE_NOTE: Final = f"""
    SELECT {_COLUMNS}, measurements.began {_EARLIER} AND cases.name = :case_id AND metric = :metric
    AND measurements.began >= coalesce(
        (SELECT max(measurements.began) {_EARLIER} AND cases.name = :case_id AND metric = :metric
            AND measurements.began <= :noted),
        :noted
    )
"""
_SMALLEST_LOSS: Final = 1.0
"""In percent: what a loss has to grow by to be worse, where no tolerance is known."""


class _Before(NamedTuple):
    """A verdict on a metric before a session."""

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
    is a red session. A fault with a note that holds was told already.
    """
    if when is NotifyOn.ALWAYS:
        return True
    red = is_bad or is_red(results)
    if not red and when is NotifyOn.FAILURE:
        return False
    if is_bad or results.interrupted or not any(map(is_measured, results.cases)):
        return True
    try:
        with History.read_if_there(history_file) as history:
            if history is not None:
                earlier = _Earlier(history, results)
                is_told = earlier.is_failure if when is NotifyOn.FAILURE else earlier.is_change
                return any(map(is_told, results.cases))
    except (HistoryError, ValueError):
        pass
    return red


class _Earlier:
    """What the sessions before one said of its cases."""

    def __init__(self, history: History, results: Results) -> None:
        self._history, self._strict = history, results.strict
        self._now = parse_time(results.started)
        self._values = {
            "began": seconds_of(results.started),
            "cluster": results.cluster,
            "estimator": results.estimator.value,
            "session": results.session,
        }

    def is_failure(self, result: CaseResult) -> bool:
        """Whether a case fails by more than what was noted and told."""
        if not status_of(result).fails(strict=self._strict):
            return False
        bad = [one for one in result.judgements.values() if self._is_bad(one)]
        return not bad or not result.is_whole or not all(self._is_noted(result, one) for one in bad)

    def is_change(self, result: CaseResult) -> bool:
        """Whether a verdict on a case is another than before, or a loss larger."""
        return any(
            self._is_news(result, judgement)
            for judgement in result.judgements.values()
            if not judgement.excused
        )

    @cached_property
    def _before(self) -> dict[tuple[str, str], _Before]:
        rows = self._history.tuples(_BEFORE, _Before, self._values)
        return {(one.case_id, one.metric): one for one in rows}

    @cached_property
    def _last(self) -> float:
        return max((one.began for one in self._before.values()), default=0.0)

    def _is_bad(self, judgement: Judgement) -> bool:
        return of_judgement(judgement).fails(strict=self._strict)

    def _is_news(self, result: CaseResult, judgement: Judgement) -> bool:
        before = self._before.get((result.case.id, judgement.metric.name))
        is_bad = self._is_bad(judgement)
        if judgement.verdict is Verdict.SKIPPED:
            # What was not measured is in no history: news is that the session before had it.
            return is_bad and before is not None and before.began == self._last
        if before is None or before.verdict is None:
            return is_bad
        if is_bad and self._is_noted(result, judgement):
            return False
        if is_bad and self._is_over(result, judgement, before):
            return True
        was_bad = CaseStatus(before.verdict).fails(strict=self._strict)
        if is_bad != was_bad:
            return True
        is_other = judgement.verdict.value != before.verdict
        return is_bad and (is_other or _is_worse(judgement, before))

    def _note(self, result: CaseResult, judgement: Judgement) -> Note | None:
        explanation = result.explanations.get(judgement.metric.name)
        return explanation.note if explanation is not None else None

    def _is_noted(self, result: CaseResult, judgement: Judgement) -> bool:
        """Whether a note on the fault holds, and a session since, or its last before, had it."""
        note = self._note(result, judgement)
        if note is None or not note.holds(self._now.date()):
            return False
        values = {
            **self._values,
            "case_id": result.case.id,
            "metric": judgement.metric.name,
            "noted": seconds_of(note.at),
        }
        told = self._history.tuples(_SINCE_NOTE, _Before, values)
        return any(_is_alike(judgement, one) and not _is_worse(judgement, one) for one in told)

    def _is_over(self, result: CaseResult, judgement: Judgement, before: _Before) -> bool:
        """Whether a note on the fault has come to its end since the session before."""
        note = self._note(result, judgement)
        if note is None or note.holds(self._now.date()):
            return False
        end = datetime.combine(note.until, time(), self._now.tzinfo)
        return before.began < end.timestamp()


def _is_alike(judgement: Judgement, before: _Before) -> bool:
    """Whether a verdict is the same, or less sure of the same loss."""
    verdict = judgement.verdict
    is_milder = verdict is Verdict.INCONCLUSIVE and before.verdict == Verdict.REGRESSED.value
    return before.verdict == verdict.value or is_milder


def _is_worse(judgement: Judgement, before: _Before) -> bool:
    now, then, better = judgement.difference_percent, before.difference_percent, judgement.metric
    if now is None or then is None or better.better is None:
        return False
    grown = (then - now) * better.better.sign
    return grown > (before.tolerance_percent or _SMALLEST_LOSS)
