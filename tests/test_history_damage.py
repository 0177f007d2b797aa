"""A history whose values have other types than its columns: an error that names table and row."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import date
from pathlib import Path

import pytest
from histories import CASE, case_result, drawn, night, session
from msgspec.structs import replace
from test_explaining import explained

from pytest_dlperf.command.main import main
from pytest_dlperf.history.case_history import histories_of
from pytest_dlperf.history.schema import TABLES
from pytest_dlperf.history.store import History, HistoryError
from pytest_dlperf.history.triage import make_note
from pytest_dlperf.model.measurement import Fingerprint
from pytest_dlperf.model.results import Results

NIGHTS = 12
NO_DAY = "'2026-02-31T03:00:00+00:00'"
VALUES = (
    "'abc'", "x'ff00'", "CAST(x'ff' AS TEXT)", "NULL", "-1", "1.5", "9e999", "'{\"device\": 5}'",
    f"'{'[' * 100_000}'", NO_DAY,
)  # fmt: skip
"""Of every type of SQLite, and of JSON of every form, as SQL."""


def columns() -> Iterator[tuple[str, str]]:
    """All columns of the tables, but for what other rows point to."""
    with closing(sqlite3.connect(":memory:")) as declared:
        for statement in TABLES:
            declared.execute(statement)
        query = "SELECT name FROM sqlite_master WHERE type = 'table'"
        for (table,) in declared.execute(query).fetchall():
            for _, name, *_ in declared.execute(f"PRAGMA table_info({table})"):
                if name != "id":
                    yield table, name


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Results]:
    """A history with all that one can hold: two machines, commits, accepted numbers."""
    file = tmp_path_factory.mktemp("history") / "h.sqlite3"
    with History.open(file) as history:
        history.tuples("PRAGMA synchronous = OFF", tuple)
        for number, runs in enumerate(drawn([400.0] * 6 + [300.0] * (NIGHTS - 6))):
            result = case_result(CASE, runs, baseline=400.0 if number < 8 else 390.0)
            assert result.measurement is not None
            taken_on = Fingerprint(
                machine={"device": "V100" if number < 2 else "H200"},
                software={"torch": "2.13"},
                hosts=("a",),
                commits={"trainer": f"{number:012}"},
            )
            measurement = replace(result.measurement, fingerprint=taken_on)
            last = session(
                number,
                [replace(result, measurement=measurement)],
                environment={"commit": f"{number:07}abc", "ci_run": "https://ci.example/1"},
            )
            history.add(last)
        make_note(
            history,
            [CASE],
            cluster="local",
            metric="throughput",
            said="#812",
            until=date(2027, 1, 1),
            by="me",
            at=night(5),
        )
    return file, last


def refusal(file: Path, tonight: Results) -> str | None:
    """Why a session learns nothing from the history."""
    try:
        histories_of(file, tonight)
        explained(file, NIGHTS)
    except (HistoryError, ValueError) as error:
        return str(error)
    return None


def changed(file: Path, table: str, column: str, value: str) -> bool:
    """Put a value into a row in the middle; false where SQLite itself refuses it."""
    query = f"UPDATE {table} SET {column} = {value} WHERE {column} IS ?"  # noqa: S608 - our own
    keys_of = f"SELECT {column} FROM {table} ORDER BY 1"  # noqa: S608 - our own
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        keys = [key for (key,) in connection.execute(keys_of)]
        try:
            connection.execute(query, (keys[len(keys) // 2],))
            connection.commit()
        except sqlite3.IntegrityError:
            return False
    return True


@pytest.mark.parametrize(("table", "column"), list(columns()))
def test_a_value_of_a_wrong_type_is_told_with_its_place(
    kept: tuple[Path, Results],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    table: str,
    column: str,
) -> None:
    """Or changes nothing that is shown; a command that people type never shows a traceback."""
    original, tonight = kept
    file = tmp_path / "h.sqlite3"
    for value in VALUES:
        shutil.copy(original, file)
        if not changed(file, table, column, value):
            continue
        code = main(["history", "show", "--within", "99999d", "--history", str(file)])
        told = capsys.readouterr()
        assert code in (0, 1, 2), told.err
        if "damaged" in told.err:
            assert f"{file} is damaged (table {table}, row with " in told.err
            assert f": {column} is " in told.err
            assert len(told.err) < 500 + len(str(file))
        why = refusal(file, tonight)
        if value != NO_DAY:
            assert why is None or f"table {table}, row with " in why


@pytest.mark.parametrize(
    ("change", "row"),
    [
        ("measurements SET median = 'abc' WHERE id = 5", "id 5: median is 'abc'"),
        ("measurements SET began = 'abc' WHERE id = 5", "id 5: began is 'abc'"),
        ("measurements SET better = 'up' WHERE id = 5", "id 5: better is 'up'"),
        ("measurements SET counted = 1.5 WHERE id = 5", "id 5: counted is 1.5"),
        ("sessions SET started = 7 WHERE id = 5", "id 5: started is '7'"),
        ("sessions SET environment = '[]' WHERE id = 7", "id 7: environment is '[]'"),
        ("cases SET name = x'ff'", "id 1: name is b'\\xff'"),
        ("facts SET content = '[' WHERE id = 1", "id 1: content is '['"),
        ("measurements SET run_values = '[x]' WHERE id = 5", "id 5: run_values is '[x]'"),
        ("notes SET until = 'soon'", "id 1: until is 'soon'"),
    ],
)
def test_show_names_the_row(
    kept: tuple[Path, Results],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: str,
    row: str,
) -> None:
    file = tmp_path / "h.sqlite3"
    shutil.copy(kept[0], file)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(f"UPDATE {change}")
        connection.commit()
    assert main(["history", "show", "--history", str(file)]) == 2
    told = capsys.readouterr().err
    assert f"{file} is damaged (table {change.split(maxsplit=1)[0]}, row with {row}" in told
    assert "history import" in told
