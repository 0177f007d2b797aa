"""Put what a session measures into the history at once: it may be killed before its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from weakref import finalize

from pytest_dlperf.history.opening import HistoryError
from pytest_dlperf.history.rows import Source, measurement_rows, session_row
from pytest_dlperf.history.store import History
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.records import CaseResult, merge

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_dlperf.history.rows import MeasurementRows
    from pytest_dlperf.model.records import TestRecord

_BUSY_S: Final = 2.0
"""How long a session waits in all, while it runs, for who holds the database."""


class Recorder:
    """Notes one session's measurements while it runs; trouble with the database is kept quiet.

    What stands in its way is reported at the end, when the whole session is added.
    """

    def __init__(
        self, file: Path, *, session: str, cluster: str, started: str, from_logs: bool
    ) -> None:
        """Note under this session; nothing is opened before there is something to note."""
        self._file = file
        self._uid = session
        self._cluster = cluster
        self._started = started
        self._source = Source.LOGS if from_logs else Source.LAUNCHED
        self._history: History | None = None
        self._may_wait = True
        self._pending: dict[str, MeasurementRows] = {}
        self._reported: dict[str, CaseResult] = {}

    def note(self, record: TestRecord) -> None:
        """Note what one test has measured and what was judged of it."""
        if not record.measurements:
            return
        for result in self._results_of(record):
            self._pending |= {rows.case["name"]: rows for rows in measurement_rows(result)}
        estimator = next(iter(record.measurements.values())).estimator
        try:
            self._write(estimator.value)
        except (HistoryError, ValueError):
            # The end of the session reports it. Whoever holds the database may be done by the next
            # test, which need not wait for that once more.
            self._may_wait = False
            if self._history is not None:
                self._history.wait_at_most(0)

    def _write(self, estimator: str) -> None:
        if self._history is None:
            self._history = History.open(self._file, busy_s=_BUSY_S if self._may_wait else 0)
            # Nobody says which test is the last: closed with this object, or at the exit.
            finalize(self, self._history.close)
        row = session_row(
            uid=self._uid,
            cluster=self._cluster,
            estimator=estimator,
            started=self._started,
            source=self._source,
        )
        self._history.note(row, list(self._pending.values()))
        self._pending.clear()

    def _results_of(self, record: TestRecord) -> Iterator[CaseResult]:
        """Merge the test's case with what earlier tests reported; yield what else was measured."""
        case = record.case
        before = self._reported.get(case.id) or CaseResult(case=case)
        self._reported[case.id] = merge(before, record)
        yield self._reported[case.id]
        for case_id, measurement in record.measurements.items():
            if case_id not in self._reported:
                # A single device that was measured because a speedup needed it.
                yield CaseResult(case=Case.parse(case_id), measurement=measurement)
