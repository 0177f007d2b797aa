"""The form of the database, as SQL: what each version has added to the one before.

A version that has been released is never edited: databases of it exist. What changes is a version
of its own at the end. No statement needs more than SQLite 3.24.
"""

from __future__ import annotations

from typing import Final

_SESSIONS: Final = (
    # ``began`` is ``started`` in seconds of the Unix epoch: texts of several zones do not sort.
    # ``ended`` is null until the whole session is in: it is running, or it was killed.
    """
    CREATE TABLE sessions (
        id INTEGER PRIMARY KEY,
        uid TEXT NOT NULL UNIQUE,
        cluster TEXT NOT NULL,
        estimator TEXT NOT NULL,
        started TEXT NOT NULL,
        began REAL NOT NULL,
        ended TEXT,
        interrupted INTEGER NOT NULL DEFAULT 0,
        source TEXT NOT NULL CHECK (source IN ('launched', 'logs', 'imported')),
        host TEXT,
        environment TEXT NOT NULL DEFAULT '{}',
        digest TEXT
    )
    """,
    "CREATE INDEX sessions_of_a_cluster ON sessions (cluster, estimator, began)",
    """
    CREATE TABLE cases (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        framework TEXT NOT NULL,
        model TEXT NOT NULL,
        precision TEXT NOT NULL,
        batch_per_device INTEGER NOT NULL,
        options TEXT NOT NULL,
        nodes INTEGER NOT NULL,
        devices_per_node INTEGER NOT NULL
    )
    """,
    "CREATE TABLE fingerprints (digest TEXT PRIMARY KEY, facts TEXT NOT NULL) WITHOUT ROWID",
    # ``began`` stands here too: the last nights of a case come straight from one index. ``counted``
    # is how many runs have a throughput; ``slowest`` and ``fastest`` are the ends of those.
    """
    CREATE TABLE measurements (
        id INTEGER PRIMARY KEY,
        session_id INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
        case_id INTEGER NOT NULL REFERENCES cases,
        began REAL NOT NULL,
        unit TEXT NOT NULL,
        median REAL,
        mean REAL,
        spread REAL,
        slowest REAL,
        fastest REAL,
        counted INTEGER NOT NULL DEFAULT 0,
        speedup REAL,
        baseline REAL,
        baseline_speedup REAL,
        baseline_at TEXT,
        baseline_reason TEXT,
        verdict TEXT,
        difference_percent REAL,
        tolerance_percent REAL,
        speedup_verdict TEXT,
        speedup_difference_percent REAL,
        speedup_tolerance_percent REAL,
        fingerprint TEXT REFERENCES fingerprints,
        UNIQUE (session_id, case_id)
    )
    """,
    "CREATE INDEX nights_of_a_case ON measurements (case_id, began)",
    # ``arm`` tells the session's own runs from those beside the accepted software.
    """
    CREATE TABLE runs (
        measurement_id INTEGER NOT NULL REFERENCES measurements ON DELETE CASCADE,
        arm TEXT NOT NULL CHECK (arm IN ('measured', 'candidate', 'control')),
        number INTEGER NOT NULL,
        throughput REAL,
        status TEXT NOT NULL,
        reason TEXT,
        PRIMARY KEY (measurement_id, arm, number)
    ) WITHOUT ROWID
    """,
)
_ACCEPTED: Final = (
    """
    CREATE TABLE baseline_changes (
        session_id INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
        case_id INTEGER NOT NULL REFERENCES cases,
        quantity TEXT NOT NULL,
        unit TEXT NOT NULL,
        old REAL,
        new REAL NOT NULL,
        why TEXT NOT NULL,
        PRIMARY KEY (session_id, case_id, quantity)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX changes_of_a_case ON baseline_changes (case_id)",
)

# ``broken`` is how many of the session's own runs failed, hung or were invalid: what survived of
# such a measurement is no level. From here on a verdict may also be ``lost``.
_BROKEN: Final = (
    "ALTER TABLE measurements ADD COLUMN broken INTEGER NOT NULL DEFAULT 0",
    """
    UPDATE measurements SET broken = (
        SELECT count(*) FROM runs
        WHERE measurement_id = measurements.id AND arm = 'measured' AND status != 'ok'
    )
    """,
)

MIGRATIONS: Final = (_SESSIONS, _ACCEPTED, _BROKEN)
"""The statements that lead to version 1, from there to version 2, and so on."""

VERSION: Final = len(MIGRATIONS)
"""The version that this release reads and writes."""
