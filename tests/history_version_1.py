"""A database as the first version of its form was, with one session in it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

# As they were; never to be brought up to date.
_STATEMENTS: Final = """
CREATE TABLE sessions (
    id INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE, cluster TEXT NOT NULL,
    estimator TEXT NOT NULL, started TEXT NOT NULL, began REAL NOT NULL, ended TEXT,
    interrupted INTEGER NOT NULL DEFAULT 0,
    source TEXT NOT NULL CHECK (source IN ('launched', 'logs', 'imported')), host TEXT,
    environment TEXT NOT NULL DEFAULT '{}', digest TEXT
);
CREATE INDEX sessions_of_a_cluster ON sessions (cluster, estimator, began);
CREATE TABLE cases (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, framework TEXT NOT NULL,
    model TEXT NOT NULL, precision TEXT NOT NULL, batch_per_device INTEGER NOT NULL,
    options TEXT NOT NULL, nodes INTEGER NOT NULL, devices_per_node INTEGER NOT NULL
);
CREATE TABLE fingerprints (digest TEXT PRIMARY KEY, facts TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE measurements (
    id INTEGER PRIMARY KEY,
    session_id INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
    case_id INTEGER NOT NULL REFERENCES cases, began REAL NOT NULL, unit TEXT NOT NULL,
    median REAL, mean REAL, spread REAL, slowest REAL, fastest REAL,
    counted INTEGER NOT NULL DEFAULT 0, speedup REAL, baseline REAL, baseline_speedup REAL,
    baseline_at TEXT, baseline_reason TEXT, verdict TEXT, difference_percent REAL,
    tolerance_percent REAL, speedup_verdict TEXT, speedup_difference_percent REAL,
    speedup_tolerance_percent REAL, fingerprint TEXT REFERENCES fingerprints,
    UNIQUE (session_id, case_id)
);
CREATE INDEX nights_of_a_case ON measurements (case_id, began);
CREATE TABLE runs (
    measurement_id INTEGER NOT NULL REFERENCES measurements ON DELETE CASCADE,
    arm TEXT NOT NULL CHECK (arm IN ('measured', 'candidate', 'control')),
    number INTEGER NOT NULL, throughput REAL, status TEXT NOT NULL, reason TEXT,
    PRIMARY KEY (measurement_id, arm, number)
) WITHOUT ROWID;
INSERT INTO sessions VALUES (1, 'night-0', 'local', 'steady', '2026-01-01T02:00:00+01:00',
    1767229200.0, '2026-01-01T03:00:00+01:00', 0, 'launched', 'a', '{}', 'of another form');
INSERT INTO cases VALUES (1, 'tiny-mlp-fp32-b4-1n1g', 'tiny', 'mlp', 'fp32', 4, '', 1, 1);
INSERT INTO measurements (id, session_id, case_id, began, unit, median, mean, slowest, fastest,
    counted, verdict)
    VALUES (1, 1, 1, 1767229200.0, 'samples/s', 400.5, 400.5, 400.0, 401.0, 2, 'pass');
INSERT INTO runs VALUES (1, 'measured', 1, 400.0, 'ok', NULL);
INSERT INTO runs VALUES (1, 'measured', 2, 401.0, 'ok', NULL);
PRAGMA application_id = 1145851974;
PRAGMA user_version = 1;
"""


def build(file: Path) -> None:
    """Write the database: one night of ``tiny-mlp-fp32-b4-1n1g`` with 400 and 401 samples/s."""
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(_STATEMENTS)
