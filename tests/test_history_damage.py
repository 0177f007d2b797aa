"""A history that is damaged, held or read-only: one sentence that names it, never a traceback."""

import os
import random
import sqlite3
from contextlib import closing, contextmanager, nullcontext

import pytest
from histories import CASE, drawn, fill, session
from test_explaining import explained

from pytest_dlperf.command.main import main
from pytest_dlperf.history.case_history import histories_of
from pytest_dlperf.history.store import History, HistoryError

NIGHTS = 12


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A history, and its last session."""
    file = tmp_path_factory.mktemp("history") / "h.sqlite3"
    last = fill(file, drawn([400.0] * 6 + [300.0] * (NIGHTS - 6)))
    return file.read_bytes(), last


@contextmanager
def locked(file):
    with closing(sqlite3.connect(file, isolation_level=None)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        yield


def damaged(content, kind, seed):
    draw = random.Random(f"{kind} {seed}")  # noqa: S311 - the same damage every time
    if kind == "truncated":
        return content[: draw.randrange(len(content))]
    if kind == "overwritten":
        start = draw.randrange(len(content))
        piece = draw.randbytes(draw.choice((1, 8, 200, 5000)))
        return content[:start] + piece + content[start + len(piece) :]
    return content


def refusals(file, tonight):
    """What a session is told that reads and writes the history."""
    try:
        histories_of(file, tonight)
        explained(file, NIGHTS)
    except HistoryError as error:
        yield str(error)
    try:
        with History.open(file, busy_s=0.01) as history:
            history.add(session(NIGHTS, {CASE: [300.0]}))
    except HistoryError as error:
        yield str(error)


@pytest.mark.parametrize("kind", ["truncated", "overwritten", "locked", "read-only"])
def test_what_cannot_be_used_is_told_in_one_sentence(kept, tmp_path, capsys, kind):
    content, tonight = kept
    told = []
    for seed in range(24 if kind in ("truncated", "overwritten") else 1):
        file = tmp_path / f"{seed}.sqlite3"
        file.write_bytes(damaged(content, kind, seed))
        if kind == "read-only":
            file.chmod(0o444)
        with locked(file) if kind == "locked" else nullcontext():
            told += refusals(file, tonight)
            code = main(["history", "show", "--within", "99999d", "--history", str(file)])
        shown = capsys.readouterr().err
        assert code in (0, 1, 2)
        assert "Traceback" not in shown
        assert code != 2 or str(file) in shown
    assert told or (kind == "read-only" and os.geteuid() == 0)
    assert all(str(tmp_path) in one and "\n" not in one for one in told)
