"""Put sessions into the database, and ask it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any, Final, final

from pytest_dlperf.history.opening import HistoryError, named_errors, open_database, transaction
from pytest_dlperf.history.rows import (
    Row,
    arms_of,
    case_row,
    change_row,
    measurement_rows,
    of_reference,
    parts_of,
    run_rows,
    session_row,
    value_rows,
    whole_session_row,
)
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.records import CaseResult, merge

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pytest_dlperf.history.opening import Connection
    from pytest_dlperf.model.measurement import Fingerprint
    from pytest_dlperf.model.records import TestRecord
    from pytest_dlperf.model.results import Results

BUSY_S: Final = 4.0
"""How long another process may hold the database before it is given up."""


@final
class History(AbstractContextManager["History"]):
    """One open database. Several processes may have it open, each writes in short transactions."""

    def __init__(self, file: Path, connection: Connection) -> None:
        """Take over an open connection; use ``open`` or ``read``."""
        self.file = file
        self._connection = connection

    @classmethod
    def open(cls, file: Path, *, busy_s: float = BUSY_S) -> History:
        """Open a database, and make it where there is none.

        Raises:
            HistoryError: It cannot be opened, or a newer version or another program has written it.
        """
        return cls(file, open_database(file, busy_s, create=True))

    @classmethod
    def read(cls, file: Path, *, busy_s: float = BUSY_S) -> History:
        """Open a database that exists, also where nothing may be written.

        Raises:
            HistoryError: There is none, or it cannot be read.
        """
        if not file.exists():
            raise HistoryError(f"there is no history {file}")
        return cls(file, open_database(file, busy_s, create=False))

    @classmethod
    def read_if_there(
        cls, file: Path | None, *, busy_s: float = BUSY_S
    ) -> AbstractContextManager[History | None]:
        """Open a database that may not be there yet, or that nobody keeps: then give ``None``.

        Raises:
            HistoryError: It cannot be read.
        """
        if file is None or not file.exists():
            return nullcontext()
        return cls.read(file, busy_s=busy_s)

    def close(self) -> None:
        """Close it; nothing more can be asked."""
        self._connection.close()

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    # ------------------------------------------------------------------------ writing

    def add(self, results: Results, *, imported: bool = False) -> bool:
        """Put a whole session in, over what was noted of it before.

        An import changes nothing of a whole session that is there, and returns false.

        Raises:
            HistoryError: The database cannot be written, or the results are no session.
        """
        try:
            with named_errors(self.file), transaction(self._connection):
                return self._add(results, imported=imported)
        except ValueError as error:
            raise HistoryError(f"session {results.session}: {error}") from error

    def _add(self, results: Results, *, imported: bool) -> bool:
        session = whole_session_row(results)
        known = self._connection.execute(
            "SELECT id, ended FROM sessions WHERE uid = :uid", session
        ).fetchone()
        if known is not None:
            if imported and known["ended"] is not None:
                return False
            self._connection.execute("DELETE FROM sessions WHERE id = ?", (known["id"],))
        session_id = self._insert("sessions", session)
        measured = (*results.cases, *map(of_reference, results.reference_measurements))
        self._insert_measurements(session_id, session["began"], measured)
        for change in results.baseline_changes:
            keys = {
                "session_id": session_id,
                "case_id": self._case_id(Case.from_id(change.case_id)),
            }
            self._insert("baseline_changes", {**keys, **change_row(change)}, or_ignore=True)
        return True

    def note(self, session: Row, results: Iterable[CaseResult]) -> None:
        """Put in what a session has measured while it still goes on."""
        with named_errors(self.file), transaction(self._connection):
            session_id = self._id("sessions", "uid", session)
            known = [result for result in results if result.measurement is not None]
            for table in ("measurements", "runs"):
                self._connection.executemany(
                    f"DELETE FROM {table} WHERE session_id = ? AND case_id = ?",  # noqa: S608 - names of our own
                    [(session_id, self._case_id(result.case)) for result in known],
                )
            self._insert_measurements(session_id, session["began"], known)

    def _insert_measurements(
        self, session_id: int, began: float, results: Iterable[CaseResult]
    ) -> None:
        """Put in what was measured, of which the session has nothing yet."""
        query = "SELECT coalesce(max(id), 0) + 1 FROM measurements"
        ids = count(self._connection.execute(query).fetchone()[0])
        found: dict[str, list[Row]] = {"measurements": [], "runs": [], "run_values": []}
        for result in results:
            measured = result.measurement
            if measured is None and not self._is_missed(result):
                continue
            keys = {"session_id": session_id, "case_id": self._case_id(result.case)}
            taken_on = {"began": began, "fingerprint": None}
            if measured is not None and measured.fingerprint is not None:
                taken_on["fingerprint"] = self._fingerprint_id(measured.fingerprint)
            arms = arms_of(result, measured)
            found["runs"] += [{**keys, **row} for row in run_rows(arms)]
            for name, row in measurement_rows(result, measured):
                key = next(ids)
                found["measurements"].append({"id": key, **keys, **taken_on, **row})
                found["run_values"] += value_rows(arms, name, key)
        for table, rows in found.items():
            if rows:
                self._connection.executemany(_insertion(table, tuple(rows[0])), rows)

    def _case_id(self, case: Case) -> int:
        return self._id("cases", "name", case_row(case))

    def _is_missed(self, result: CaseResult) -> bool:
        """Say whether it matters that a case was not measured: one that never is here does not."""
        verdicts = {judgement.verdict for judgement in result.judgements.values()}
        if verdicts - {Verdict.SKIPPED}:
            return True
        query = "SELECT 1 FROM cases WHERE name = ?"
        return bool(verdicts) and bool(
            self._connection.execute(query, (result.case.id,)).fetchone()
        )

    def _fingerprint_id(self, fingerprint: Fingerprint) -> int:
        parts = {
            part: None if content is None else self._id("facts", "content", {"content": content})
            for part, content in parts_of(fingerprint).items()
        }
        return self._id("fingerprints", tuple(parts), parts)

    def _id(self, table: str, key: str | tuple[str, ...], row: Row) -> int:
        """Give the id of the row with that key, which is inserted where it is missing."""
        names = (key,) if isinstance(key, str) else key
        same = " AND ".join(f"{name} IS :{name}" for name in names)
        query = f"SELECT id FROM {table} WHERE {same}"  # noqa: S608 - names of our own
        found = self._connection.execute(query, row).fetchone()
        return self._insert(table, row) if found is None else found["id"]

    def _insert(self, table: str, row: Row, *, or_ignore: bool = False) -> int:
        """Insert a row and give its id."""
        statement = _insertion(table, tuple(row), or_ignore=or_ignore)
        return self._connection.execute(statement, row).lastrowid or 0

    # ------------------------------------------------------------------------ reading

    def rows(self, query: str, values: Row | None = None) -> list[Row]:
        """Give what a query finds, by the names of its columns."""
        with named_errors(self.file):
            return [dict(row) for row in self._connection.execute(query, values or {})]

    def tuples(self, query: str, values: Row | None = None) -> list[tuple[Any, ...]]:
        """Give what a query finds, as plain tuples: for many rows."""
        with named_errors(self.file):
            cursor = self._connection.cursor()
            cursor.row_factory = None
            return cursor.execute(query, values or {}).fetchall()


@lru_cache
def _insertion(table: str, columns: tuple[str, ...], *, or_ignore: bool = False) -> str:
    """Write the statement that inserts a row. The names are the code's own, values are bound."""
    verb = "INSERT OR IGNORE" if or_ignore else "INSERT"
    values = ", ".join(f":{name}" for name in columns)
    return f"{verb} INTO {table} ({', '.join(columns)}) VALUES ({values})"


class Recorder:
    """Keeps one session's measurements while it runs, as it may be killed.

    It gives up quietly at the first trouble: the session's end adds the whole, and reports it.
    """

    def __init__(self, file: Path, *, session: str, cluster: str, started: str) -> None:
        """Record under this session; nothing is opened before there is something to record."""
        self._file = file
        self._session = {"uid": session, "cluster": cluster, "started": started}
        self._reported: dict[str, CaseResult] = {}
        self._gave_up = False

    def note(self, record: TestRecord) -> None:
        """Record what one test has measured and what was judged of it."""
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
