"""The database of all sessions: what goes in comes out, whatever happens around it."""

import json
import math
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress

import pytest
from clusters.processes import wait_until
from histories import (
    CASE,
    METRIC,
    UNIT,
    case_result,
    drawn,
    fill,
    measurement,
    night,
    rows_of,
    session,
)
from msgspec.structs import replace
from results_makers import MEMORY, judged, measured_case, with_judgement

from pytest_dlperf.command.main import main
from pytest_dlperf.history.case_history import histories_of
from pytest_dlperf.history.queries import judged_sessions, origin_of
from pytest_dlperf.history.schema import FORM
from pytest_dlperf.history.series import Series
from pytest_dlperf.history.store import History, HistoryError
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.metric import Metric, Source
from pytest_dlperf.model.results import CaseResult

SINGLE = "tiny-mlp-fp32-b4-1n1g"
DOUBLE = "tiny-mlp-fp32-b4-1n2g"

# Adds sessions one after the other until it is ended, and prints each once it is in.
WRITER = """
import sys
from pathlib import Path
from histories import CASE, session
from pytest_dlperf.history.store import History
name, count = sys.argv[2], int(sys.argv[3])
for number in range(count):
    with History.open(Path(sys.argv[1]), busy_s=60) as history:
        runs = [400.0 + number] * 50
        history.add(session(number, {CASE: runs}, session=f"{name}-{number}"))
    print(number, flush=True)
"""


@pytest.fixture
def file(tmp_path):
    return tmp_path / "history.sqlite3"


def writer(file, name, count):
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(file), name, str(count)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    )


# ------------------------------------------------------------------ what goes in comes out


def test_numbers_come_back_to_the_last_bit(file):
    runs = [0.1 + 0.2, 1 / 3, 9348.170000000001, 1e-7, 12345678901234567.0]
    fill(file, [runs])
    [(text,)] = rows_of(file, "SELECT run_values FROM measurements")
    assert json.loads(str(text)) == runs
    assert rows_of(file, "SELECT typeof(median) FROM measurements") == [("real",)]


def test_a_session_is_told_with_all_that_belongs_to_it(file):
    results = session(
        0,
        [case_result(CASE, [400.0, None, 402.0], baseline=398.0)],
        interrupted=True,
        environment={"host": "head", "processors": 2},
    )
    with History.open(file) as history:
        assert history.add(results)
    assert rows_of(
        file,
        "SELECT uid, cluster, estimator, started, began, interrupted FROM sessions",
    ) == [("night-0", "local", "steady", night(0), 1767229200.0, 1)]
    assert rows_of(
        file, "SELECT metric, median, unit, accepted, reference, verdict FROM measurements"
    ) == [("throughput", 401.0, "samples/s", 398.0, 398.0, "pass")]
    assert rows_of(file, "SELECT run_values, counted, broken FROM measurements") == [
        ("[400.0, 402.0]", 2, 1)
    ]
    assert rows_of(
        file,
        "SELECT content FROM facts JOIN fingerprints ON facts.id IN (machine, hosts) ORDER BY 1",
    ) == [('["a"]',), ('{"device": "H200"}',)]


def test_every_metric_is_a_row_whatever_its_name(file):
    """A new one needs no new form: it is data, as its unit and its direction are."""
    odd = Metric(name="watt hours; --", unit="kWh", better=None, source=Source.LOG)
    result = measured_case(
        DOUBLE, 760.0, 770.0, unit=UNIT, speedup=1.9, more={MEMORY: [901.0, 900.0], odd: [0, -1]}
    )
    memory = judged(Verdict.REGRESSED, metric=MEMORY, accepted=800.0, difference_percent=12.6)
    with History.open(file) as history:
        history.add(session(0, [with_judgement(result, memory)]))
    query = """
        SELECT metric, unit, better, median, lowest, highest, counted, verdict, difference_percent
        FROM measurements JOIN cases ON cases.id = case_id WHERE name = '{}' ORDER BY metric
    """
    speedup = pytest.approx(1.9)
    assert rows_of(file, query.format(DOUBLE)) == [
        ("peak_memory", "MB", "lower", 900.5, 900.0, 901.0, 2, "regressed", 12.6),
        ("speedup", "x", "higher", speedup, speedup, speedup, 2, None, None),
        ("throughput", UNIT, "higher", 765.0, 760.0, 770.0, 2, "pass", 0.0),
        ("watt hours; --", "kWh", None, -0.5, -1.0, 0.0, 2, None, None),
    ]
    assert [row[0] for row in rows_of(file, query.format(SINGLE))] == ["throughput"]
    values = "SELECT run_values FROM measurements WHERE metric IN ('peak_memory', 'speedup')"
    assert sorted(rows_of(file, values)) == [("[901.0, 900.0]",), ("[]",)]


def test_a_reference_that_only_a_speedup_needed_is_kept(file):
    whole = case_result(DOUBLE, [760.0])
    whole = replace(whole, reference=measurement(SINGLE, [400.0]))
    with History.open(file) as history:
        history.add(session(0, [whole]))
    assert rows_of(file, "SELECT name FROM cases ORDER BY name") == [(SINGLE,), (DOUBLE,)]


def test_a_case_that_was_not_measured_is_no_measurement(file):
    with History.open(file) as history:
        history.add(session(0, [CaseResult(case=case_result(CASE, [1.0]).case)]))
    assert rows_of(file, "SELECT count(*) FROM measurements") == [(0,)]


def test_the_same_session_is_in_once(file):
    results = session(0, {CASE: [400.0, 401.0]})
    with History.open(file) as history:
        assert history.add(results)
        assert not history.add(session(0, {CASE: [500.0]}))
    assert rows_of(file, "SELECT count(*) FROM sessions") == [(1,)]
    assert rows_of(file, "SELECT run_values FROM measurements") == [("[400.0, 401.0]",)]


@pytest.mark.parametrize("hostile", ["'; DROP TABLE cases; --", "\0\x1b[31m", "|\n"])
def test_names_may_hold_anything(file, hostile):
    results = session(0, {CASE: [400.0]}, cluster=hostile, environment={"host": hostile})
    with History.open(file) as history:
        assert history.add(results)
        assert not history.add(results)
    assert list(histories_of(file, results)) == [CASE]


@pytest.mark.parametrize("started", ["yesterday", "", "2026-13-01"])
def test_a_session_without_a_beginning_is_refused(file, started):
    with History.open(file) as history:
        with pytest.raises(HistoryError, match=rf"night-0.*{started!r}, which is not a valid time"):
            history.add(session(0, {CASE: [400.0]}, started=started))
        history.add(session(1, {CASE: [400.0]}, started="2026-01-02T02:00:00Z"))
    assert rows_of(file, "SELECT began FROM sessions") == [(1767319200.0,)]


# -------------------------------------------------------------------------- its form


def test_a_form_that_breaks_off_leaves_nothing(file, monkeypatch):
    broken = "CREATE TABLE half (id INTEGER); NO SQL AT ALL;"
    with monkeypatch.context() as patched:
        patched.setattr("pytest_dlperf.history.store.TABLES", broken)
        with pytest.raises(HistoryError):
            History.open(file)
    assert rows_of(file, "SELECT sql FROM sqlite_master") == []
    fill(file, [[400.0]])
    assert rows_of(file, "PRAGMA user_version") == [(FORM,)]


def test_a_newer_version_is_refused_and_left_as_it_is(file):
    fill(file, [[400.0]])
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(f"PRAGMA user_version = {FORM + 5}")
    before = file.read_bytes()
    for way in (History.open, History.read):
        with pytest.raises(HistoryError, match=rf"newer version.*form {FORM + 5}.*Upgrade"):
            way(file)
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    "change",
    ["DROP TABLE measurements", "ALTER TABLE measurements RENAME COLUMN lowest TO slowest"],
)
def test_an_older_form_of_before_any_release_is_told_what_to_do(file, change):
    last = fill(file, [[400.0]])
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(change)
    with pytest.raises(HistoryError, match=r"history\.sqlite3 has other tables.*delete it"):
        histories_of(file, last)
    with (
        pytest.raises(HistoryError, match=r"history\.sqlite3 has other tables.*delete it"),
        History.open(file) as history,
    ):
        history.add(session(1, {CASE: [400.0]}))


def test_a_database_of_another_program_is_refused_and_left_as_it_is(file):
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE sessions (id INTEGER)")
    before = file.read_bytes()
    with pytest.raises(HistoryError, match="of another program"):
        History.open(file)
    assert file.read_bytes() == before


# --------------------------------------------------------------------- trouble with files


def test_a_missing_folder_is_made(tmp_path):
    file = tmp_path / "a" / "b" / "history ?#%.sqlite3"
    fill(file, [[400.0]])
    assert file.exists()
    History.read(file).close()


def test_what_is_no_database_is_told_and_kept(file):
    file.write_text("throughput,9348\n" * 100, encoding="utf-8")
    with pytest.raises(HistoryError, match=r"history\.sqlite3 is not a database; move it away"):
        History.open(file)
    assert file.read_text(encoding="utf-8").startswith("throughput,9348")


def test_a_folder_in_its_place_is_told(file):
    file.mkdir()
    with pytest.raises(HistoryError, match="is a folder"):
        History.open(file)


@pytest.mark.parametrize("damage", ["cut off", "overwritten"])
def test_a_damaged_database_is_told(file, damage):
    last = fill(file, drawn([400.0] * 40))
    content = file.read_bytes()
    if damage == "cut off":
        file.write_bytes(content[: len(content) // 3])
    else:
        file.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    with pytest.raises(HistoryError, match=r"history\.sqlite3 is damaged.*move it away"):
        histories_of(file, last)
    with pytest.raises(HistoryError, match=r"history\.sqlite3"), History.open(file) as history:
        history.add(session(99, {CASE: [400.0]}))


def damaged(content, kind, seed):
    draw = random.Random(f"{kind} {seed}")  # noqa: S311 - the same damage every time
    start = draw.randrange(len(content))
    if kind == "truncated":
        return content[:start]
    piece = draw.randbytes(draw.choice((1, 8, 200, 5000)))
    return content[:start] + piece + content[start + len(piece) :]


@pytest.mark.parametrize("kind", ["truncated", "overwritten"])
def test_any_damage_is_told_in_one_sentence(file, capsys, kind):
    last = fill(file, drawn([400.0] * 6 + [300.0] * 6))
    content = file.read_bytes()
    [case] = last.cases
    series = Series.of(case.case, METRIC, cluster=last.cluster, estimator=last.estimator.value)
    told = []
    for seed in range(24):
        broken = file.with_name(f"{seed}.sqlite3")
        broken.write_bytes(damaged(content, kind, seed))
        with suppress(HistoryError):
            histories_of(broken, last)
        try:
            with History.open(broken, busy_s=0.01) as history:
                for judged_then in judged_sessions(history, series, until=math.inf):
                    origin_of(history, judged_then.measurement_id)
                history.add(session(12, {CASE: [300.0]}))
        except HistoryError as error:
            told.append(str(error))
        code = main(["history", "show", "--history", str(broken)])
        assert code in (0, 1, 2)
        assert code != 2 or str(broken) in capsys.readouterr().err
    assert told
    assert all(str(file.parent) in one and "\n" not in one for one in told)


def test_a_missing_database_is_not_made_by_reading(file):
    with pytest.raises(HistoryError, match="there is no history"):
        History.read(file)
    assert not file.exists()


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 400 KiB."""
    mount, unmount = shutil.which("mount"), shutil.which("umount")
    if os.geteuid() != 0 or mount is None or unmount is None:
        pytest.skip("needs root, to mount a disk")
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(place)],
        check=False,
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip("may not mount a disk")
    try:
        yield place
    finally:
        subprocess.run([unmount, "--lazy", str(place)], check=True)


def test_a_full_disk_is_told_and_breaks_nothing(small_disk):
    file = small_disk / "history.sqlite3"
    last = fill(file, [[400.0]])
    (small_disk / "ballast").write_bytes(b"x" * (shutil.disk_usage(small_disk).free - 8192))
    with pytest.raises(HistoryError, match=r"no space left for .*history\.sqlite3"):
        fill(file, [[400.0] * 100 + [float(number)] for number in range(100)])
    (small_disk / "ballast").unlink()
    assert rows_of(file, "PRAGMA integrity_check") == [("ok",)]
    with History.open(file) as history:
        history.add(session(200, {CASE: [410.0]}))
    assert histories_of(file, last)[CASE]["throughput"].points[0].median == 400.0


def test_a_disk_that_may_not_be_written_can_be_read(small_disk):
    file = small_disk / "history.sqlite3"
    last = fill(file, [[400.0]])
    mount = shutil.which("mount")
    assert mount is not None
    subprocess.run([mount, "-o", "remount,ro", str(small_disk)], check=True)
    assert histories_of(file, last)[CASE]["throughput"].points[0].median == 400.0
    with (
        pytest.raises(HistoryError, match=r"history\.sqlite3 may not be written"),
        History.open(file) as history,
    ):
        history.add(session(1, {CASE: [400.0]}))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_file_that_may_not_be_written_can_be_read(file):
    last = fill(file, [[400.0]])
    file.chmod(0o444)
    file.parent.chmod(0o555)
    try:
        assert histories_of(file, last)[CASE]["throughput"].points[0].median == 400.0
        with pytest.raises(HistoryError, match="may not be written"):
            History.open(file).add(session(1, {CASE: [400.0]}))
    finally:
        file.parent.chmod(0o755)


# ---------------------------------------------------------------------- several processes


def test_sessions_write_at_once_while_others_read(file):
    writers = [writer(file, name, 20) for name in ("one", "two", "three")]
    last = session(100, {CASE: [400.0]})
    wait_until(file.exists, what="the database")
    counts = []
    while any(process.poll() is None for process in writers):
        with History.read(file, busy_s=60) as history:
            counts.append(history.tuples("SELECT count(*) FROM sessions", tuple[int])[0][0])
    assert [process.wait() for process in writers] == [0, 0, 0]
    assert counts == sorted(counts)
    assert rows_of(file, "SELECT count(*) FROM sessions") == [(60,)]
    assert rows_of(file, "SELECT sum(counted) FROM measurements") == [(60 * 50,)]
    assert len(histories_of(file, last)[CASE]["throughput"].points) == 60
    for process in writers:
        process.stdout.close()


@pytest.mark.parametrize("after", [1, 7])
def test_a_killed_writer_leaves_a_sound_database_with_what_it_had_put_in(file, after):
    with writer(file, "killed", 1000) as process:
        told = [int(process.stdout.readline()) for _ in range(after)]
        process.send_signal(signal.SIGKILL)
        told += map(int, process.stdout.read().split())
    sessions = [row[0] for row in rows_of(file, "SELECT uid FROM sessions ORDER BY id")]
    assert sessions[: len(told)] == [f"killed-{number}" for number in told]
    assert len(sessions) <= len(told) + 1  # it may have died before it could tell
    assert rows_of(file, "SELECT sum(counted) FROM measurements") == [(50 * len(sessions),)]
    assert rows_of(file, "PRAGMA integrity_check") == [("ok",)]
    assert rows_of(file, "PRAGMA foreign_key_check") == []


def test_a_database_that_somebody_holds_is_told(file):
    fill(file, [[400.0]])
    with closing(sqlite3.connect(file, isolation_level=None)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        with (
            pytest.raises(HistoryError, match="is held by another process"),
            History.open(file, busy_s=0.1) as history,
        ):
            history.add(session(1, {CASE: [400.0]}))
