"""The tables of the database, and the mark in its header.

Without an import of SQLite: a session checks the named file before anything runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

FORM: Final = 1
"""The number of this form; a database with a higher one is refused."""

APPLICATION_ID: Final = 0x444C_5046
"""Written into the file's header ("DLPF"), to tell the database from those of other programs."""

# No statement needs more than SQLite 3.24.
TABLES: Final = """
    -- began is started in seconds of the Unix epoch: texts of several zones do not sort.
    CREATE TABLE IF NOT EXISTS sessions (
        id INTEGER PRIMARY KEY,
        uid TEXT NOT NULL UNIQUE,
        cluster TEXT NOT NULL,
        estimator TEXT NOT NULL,
        started TEXT NOT NULL,
        began REAL NOT NULL,
        ended TEXT NOT NULL,
        interrupted INTEGER NOT NULL DEFAULT 0,
        environment TEXT NOT NULL DEFAULT '{}'
    );
    CREATE INDEX IF NOT EXISTS sessions_of_a_cluster ON sessions (cluster, estimator, began);

    CREATE TABLE IF NOT EXISTS cases (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);

    -- JSON, each once: of a fingerprint hardly a part differs between sessions, or between cases.
    CREATE TABLE IF NOT EXISTS facts (id INTEGER PRIMARY KEY, content TEXT NOT NULL UNIQUE);

    -- What a measurement was taken on, by parts; null for a part of which nothing is known.
    CREATE TABLE IF NOT EXISTS fingerprints (
        id INTEGER PRIMARY KEY,
        machine INTEGER REFERENCES facts,
        software INTEGER REFERENCES facts,
        hosts INTEGER REFERENCES facts,
        commits INTEGER REFERENCES facts,
        launch INTEGER REFERENCES facts
    );
    CREATE INDEX IF NOT EXISTS equal_fingerprints
    ON fingerprints (launch, commits, software, hosts, machine);

    -- One metric of one case in one session; its name is data. began stands here too: the last
    -- sessions of a metric come straight from one index. better is null for a metric that is held
    -- against no baseline, reference_topology is what a ratio was taken over. counted is how many
    -- runs have a number, run_values are these as JSON, lowest and highest their ends; a ratio has
    -- none of its own. broken is how many runs failed, hung or were invalid: the rest of such a
    -- measurement shows no level.
    -- accepted is the number that a person agreed to, reference what this session was held against.
    -- A verdict may also be lost. What was judged and not measured, because a host was gone, has a
    -- row without numbers: another session may not even have asked for the case. One that was
    -- skipped and never measured has none. logs_digest is null for what was launched.
    CREATE TABLE IF NOT EXISTS measurements (
        id INTEGER PRIMARY KEY,
        session_id INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
        case_id INTEGER NOT NULL REFERENCES cases,
        metric TEXT NOT NULL,
        began REAL NOT NULL,
        unit TEXT NOT NULL,
        better TEXT,
        reference_topology TEXT,
        median REAL,
        spread REAL,
        lowest REAL,
        highest REAL,
        run_values TEXT NOT NULL,
        counted INTEGER NOT NULL,
        broken INTEGER NOT NULL,
        accepted REAL,
        accepted_at TEXT,
        accepted_reason TEXT,
        accepted_by TEXT,
        accepted_commit TEXT,
        verdict TEXT,
        reference REAL,
        difference_percent REAL,
        fingerprint INTEGER REFERENCES fingerprints,
        logs_digest TEXT,
        UNIQUE (session_id, case_id, metric)
    );
    CREATE INDEX IF NOT EXISTS sessions_of_a_metric ON measurements (case_id, metric, began);
"""


def fault_of(file: Path) -> str | None:
    """Return why a file cannot be a history; ``None`` if it may be one, or does not exist yet."""
    try:
        with file.open("rb") as opened:
            header = opened.read(105)
    except OSError:
        return None  # reported when it is opened as a database
    if header and not header.startswith(b"SQLite format 3\x00"):
        return "is not a database"
    program, has_tables = int.from_bytes(header[68:72], "big"), any(header[103:105])
    is_ours = program == APPLICATION_ID or not (program or has_tables)
    return None if is_ours else "is a database of another program"
