"""A session has its folder to itself; a killed one leaves nothing in the way."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from clusters.processes import wait_until
from other_users import OTHER, as_other, in_child, needs_root, shared_folder
from sessions import in_background
from suites import Suite
from trainers import SYSTEM, TinySystem

from pytest_dlperf.files.session_folder import (
    MARK,
    SessionFolder,
    SharedFolder,
    lock_for_session,
)
from pytest_dlperf.model.errors import UsageError

NOWHERE: dict[str, str] = {}


@pytest.fixture
def night(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "night"


def done_in_child(act: Callable[[], object], *, ends: bool = True) -> int:
    """Do something in a child, which then ends, or lives until somebody kills it."""
    reading, writing = os.pipe()

    def acting() -> None:
        act()
        os.write(writing, b"done")
        if not ends:
            time.sleep(600)

    child = in_child(acting)
    os.close(writing)
    assert os.read(reading, 4) == b"done"
    os.close(reading)
    if ends:
        os.waitpid(child, 0)
    return child


def leave_logs(night: Path, *, is_whole: bool | None = None, **environment: str) -> None:
    """Have a session write a log that ends in order, is interrupted, or just ends."""

    def session() -> None:
        folder = SessionFolder(night, environment)
        (night / "run_1.log").write_text("step 1", encoding="utf-8")
        if is_whole is not None:
            folder.release(is_whole=is_whole)

    done_in_child(session)


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


@pytest.mark.parametrize("is_whole", [None, False], ids=["killed", "interrupted"])
def test_what_a_broken_off_session_has_left_is_set_aside(
    night: Path, is_whole: bool | None
) -> None:
    for number in (1, 2):
        leave_logs(night, is_whole=is_whole)
        folder = SessionFolder(night, NOWHERE)
        kept = night.with_name(f"night.interrupted{number}")
        assert names(kept) == {MARK, "run_1.log"}
        assert names(night) == {MARK}
        assert folder.set_aside is not None
        assert folder.set_aside.startswith(f"{kept}: left by the session of process ")
        folder.release(is_whole=False)


def test_where_nothing_is_left_there_is_nothing_to_set_aside(night: Path) -> None:
    done_in_child(lambda: SessionFolder(night, NOWHERE))
    assert SessionFolder(night, NOWHERE).set_aside is None
    assert names(night.parent) == {"night"}


def test_what_a_session_has_come_to_stays_where_it_is(night: Path) -> None:
    leave_logs(night, is_whole=True)
    with pytest.raises(
        UsageError, match=rf"{night} holds the logs of the session of process .* ended"
    ):
        SessionFolder(night, NOWHERE)
    assert names(night) == {MARK, "run_1.log"}


def test_a_job_of_slurm_that_is_started_again_begins_anew(night: Path) -> None:
    leave_logs(night, is_whole=True, SLURM_JOB_ID="17")
    again = SessionFolder(night, {"SLURM_JOB_ID": "17", "SLURM_RESTART_COUNT": "1"})
    assert again.set_aside is not None
    assert names(night.parent) == {"night", "night.earlier1"}
    again.release(is_whole=True)
    # The files of another job, and a second session of the same start, stay.
    for environment in ({"SLURM_JOB_ID": "18"}, {"SLURM_JOB_ID": "17", "SLURM_RESTART_COUNT": "1"}):
        (night / "run_1.log").touch()
        with pytest.raises(UsageError, match="holds the logs of"):
            SessionFolder(night, environment)


def test_files_that_no_session_has_written_are_left_alone(night: Path) -> None:
    night.mkdir(parents=True)
    (night / "notes.txt").touch()
    with pytest.raises(UsageError, match="is not empty"):
        SessionFolder(night, NOWHERE)
    assert names(night.parent) == {"night"}


def test_a_session_that_lives_is_named_at_once_and_keeps_its_folder(
    night: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = done_in_child(lambda: SessionFolder(night, NOWHERE), ends=False)
    with monkeypatch.context() as patch:
        patch.setattr("time.sleep", lambda _: pytest.fail("waited for it"))
        with pytest.raises(UsageError, match=f"is in use by the session of process {child} on "):
            SessionFolder(night, NOWHERE)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    SessionFolder(night, NOWHERE)


def test_workers_that_are_about_to_end_are_waited_for(night: Path) -> None:
    leave_logs(night)
    worker = done_in_child(lambda: lock_for_session(night / MARK), ends=False)
    began = time.monotonic()
    signal.signal(signal.SIGALRM, lambda *_: os.kill(worker, signal.SIGKILL))
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        assert SessionFolder(night, NOWHERE).set_aside is not None
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        os.waitpid(worker, 0)
    assert time.monotonic() - began > 0.2


def test_of_sessions_that_come_at_once_one_gets_the_folder(night: Path) -> None:
    leave_logs(night)
    start = time.monotonic() + 0.2
    told = night.parent / "told"
    told.mkdir()

    def session() -> None:
        time.sleep(max(0.0, start - time.monotonic()))
        try:
            folder = SessionFolder(night, NOWHERE)
            said = folder.set_aside or "nothing was there"
        except (UsageError, OSError) as error:
            said = str(error)
        (told / str(os.getpid())).write_text(said, encoding="utf-8")
        time.sleep(600)

    children = [in_child(session) for _ in range(6)]

    def have_told() -> int:
        return len([file for file in told.iterdir() if file.stat().st_size])

    wait_until(lambda: have_told() == len(children), what="all of them")
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    said = [file.read_text(encoding="utf-8") for file in told.iterdir()]
    assert len([text for text in said if "night.interrupted1: " in text]) == 1
    assert len([text for text in said if "is in use by" in text]) == 5
    assert names(night.parent) == {"night", "night.interrupted1", "told"}


def test_a_folder_that_is_set_aside_while_it_is_made_is_made_again(
    night: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Path.mkdir

    def meet_another(folder: Path, *_: object, **__: object) -> None:
        monkeypatch.setattr(Path, "mkdir", make)
        raise FileExistsError(errno.EEXIST, "File exists", str(folder))

    monkeypatch.setattr(Path, "mkdir", meet_another)
    assert SessionFolder(night, NOWHERE).set_aside is None
    assert names(night.parent) == {"night"}


@pytest.mark.parametrize("is_alive", [False, True], ids=["over", "alive"])
def test_a_disk_without_locks_goes_by_the_process(
    night: Path, monkeypatch: pytest.MonkeyPatch, is_alive: bool
) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    if is_alive:
        SessionFolder(night, NOWHERE)
        with pytest.raises(UsageError, match=f"in use by the session of process {os.getpid()}"):
            SessionFolder(night, NOWHERE)
    else:
        leave_logs(night)
        assert SessionFolder(night, NOWHERE).set_aside is not None


def test_what_a_session_of_another_host_has_left_is_not_in_use_where_nothing_can_be_locked(
    night: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr("socket.gethostname", lambda: "another")
    folder = SessionFolder(night, NOWHERE)
    (night / "log").touch()
    folder.release(is_whole=True)
    monkeypatch.undo()
    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(UsageError, match=r"on another, begun .*, which ended 20"):
        SessionFolder(night, NOWHERE)


@needs_root
def test_a_folder_that_cannot_be_renamed_is_told() -> None:
    def take() -> None:
        SessionFolder(place / "night", NOWHERE)
        (place / "night" / "log").touch()

    with shared_folder() as place:
        (place / "night").mkdir()
        os.chown(place / "night", OTHER, OTHER)
        place.chmod(0o755)
        as_other(take)
        with pytest.raises(
            AssertionError, match="cannot be renamed: Permission denied; name a new"
        ):
            as_other(take)
        assert names(place / "night") == {MARK, "log"}


def test_a_folder_of_workers_goes_with_the_next_session_that_finds_it_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "pytest-dlperf-workers-of-mine").touch()
    done_in_child(SharedFolder)
    [left] = names(tmp_path) - {"pytest-dlperf-workers-of-mine"}
    living = done_in_child(SharedFolder, ends=False)
    mine = SharedFolder()
    try:
        assert left not in names(tmp_path)
        assert len(names(tmp_path)) == 3
    finally:
        os.kill(living, signal.SIGKILL)
        os.waitpid(living, 0)
    mine.remove()
    SharedFolder().remove()
    assert names(tmp_path) == {"pytest-dlperf-workers-of-mine"}


@pytest.mark.end_to_end
def test_a_session_that_was_killed_can_be_started_again_by_the_same_command(
    suite: Suite, workers: list[str]
) -> None:
    """As Slurm does it with a job that it requeues."""
    tiny = TinySystem(suite)
    tiny.behave("0.01 wait")
    command = ["-k", "throughput and tiny and 1n1g", *workers, "--dlperf-run-dir", "night"]
    command += ["--dlperf-repeats", "1"]
    with in_background(suite, *command) as session:
        session.wait_until(tiny.starts, what="the first training")
        assert len(list((suite.path / "tmp").glob("pytest-dlperf-workers-*"))) == 1
        session.process.kill()
    tiny.behave("0.01")

    result = suite.run(*command)

    result.assert_outcomes(failed=1)  # it has no baseline
    result.stdout.fnmatch_lines(["dlperf: */night.interrupted1: left by the session of process *"])
    for folder in ("night", "night.interrupted1"):
        logs = (suite.path / folder / SYSTEM).rglob("*.log")
        assert [log.name for log in logs] == ["mlp_b4_fp32_1.log"]
    assert list((suite.path / "tmp").glob("pytest-dlperf-workers-*")) == []
