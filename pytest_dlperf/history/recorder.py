"""Store a session's measurements while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_dlperf.history.rows import of_reference, session_row
from pytest_dlperf.history.store import BUSY_S, History, HistoryError
from pytest_dlperf.model.results import CaseResult, merge

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_dlperf.model.results import TestRecord


class Recorder:
    """Stores one session's measurements while it runs, since it may be killed.

    It gives up quietly at the first error: the end of the session stores the whole and reports it.
    """

    def __init__(self, file: Path, *, session: str, cluster: str, started: str) -> None:
        """Record under this session; the database is opened with the first record."""
        self._file = file
        self._session = {"uid": session, "cluster": cluster, "started": started}
        self._reported: dict[str, CaseResult] = {}
        self._gave_up = False

    def note(self, record: TestRecord) -> None:
        """Store the measurements and judgements of one test."""
        if self._gave_up:
            return
        case = record.case
        result = merge(self._reported.get(case.id) or CaseResult(case=case), record)
        self._reported[case.id] = result
        others = [
            of_reference(measurement)
            for case_id, measurement in record.measurements.items()
            if case_id not in self._reported
        ]
        estimator = next(iter(record.measurements.values())).estimator.value
        try:
            session = session_row(**self._session, estimator=estimator)
            with History.open(self._file, busy_s=BUSY_S / 2) as history:
                history.note(session, [result, *others])
        except (HistoryError, ValueError):
            self._gave_up = True
