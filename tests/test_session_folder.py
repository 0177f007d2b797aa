"""A session has its folder to itself; a killed one leaves nothing in the way."""

import os
import signal
import time

import pytest
from other_users import in_child
from sessions import in_background
from trainers import SYSTEM, TinySystem

from pytest_dlperf.files.session_folder import MARK, SessionFolder
from pytest_dlperf.model.errors import UsageError


@pytest.fixture
def night(tmp_path):
    return tmp_path / "runs" / "night"


def done_in_child(act, *, ends=True):
    """Do something in a child, which then ends, or lives until somebody kills it."""
    reading, writing = os.pipe()

    def acting():
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


def leave_logs(night, *, is_whole):
    """Have a session write a log that ends in order, is interrupted, or just ends."""

    def session():
        folder = SessionFolder(night)
        (night / "run_1.log").write_text("step 1", encoding="utf-8")
        if is_whole is not None:
            folder.release(is_whole=is_whole)

    done_in_child(session)


def names(folder):
    return {file.name for file in folder.iterdir()}


@pytest.mark.parametrize("is_whole", [None, False], ids=["killed", "interrupted"])
def test_what_a_broken_off_session_has_left_is_set_aside(night, is_whole):
    for number in (1, 2):
        leave_logs(night, is_whole=is_whole)
        folder = SessionFolder(night)
        kept = night.with_name(f"night.interrupted{number}")
        assert names(kept) == {MARK, "run_1.log"}
        assert names(night) == {MARK}
        assert folder.set_aside.startswith(f"{kept}: left by the session of process ")
        folder.release(is_whole=False)


def test_where_nothing_is_left_there_is_nothing_to_set_aside(night):
    done_in_child(lambda: SessionFolder(night))
    assert SessionFolder(night).set_aside is None
    assert names(night.parent) == {"night"}


def test_what_a_session_has_come_to_stays_where_it_is(night):
    leave_logs(night, is_whole=True)
    with pytest.raises(
        UsageError, match=rf"{night} holds the logs of the session of process .* ended"
    ):
        SessionFolder(night)
    assert names(night) == {MARK, "run_1.log"}


def test_files_that_no_session_has_written_are_left_alone(night):
    night.mkdir(parents=True)
    (night / "notes.txt").touch()
    with pytest.raises(UsageError, match="is not empty"):
        SessionFolder(night)
    assert names(night.parent) == {"night"}


def test_a_session_that_lives_is_named_and_keeps_its_folder(night):
    child = done_in_child(lambda: SessionFolder(night), ends=False)
    with pytest.raises(UsageError, match=f"is in use by the session of process {child} on "):
        SessionFolder(night)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    SessionFolder(night)


@pytest.mark.end_to_end
def test_a_session_that_was_killed_can_be_started_again_by_the_same_command(suite, workers):
    """As Slurm does it with a job that it requeues."""
    tiny = TinySystem(suite)
    tiny.behave("0.01 wait")
    command = ["-k", "throughput and tiny and 1n1g", *workers, "--dlperf-run-dir", "night"]
    command += ["--dlperf-repeats", "1"]
    with in_background(suite, *command) as session:
        session.wait_until(tiny.starts, what="the first training")
        session.process.kill()
    tiny.behave("0.01")

    result = suite.run(*command)

    result.assert_outcomes(failed=1)  # it has no baseline
    result.stdout.fnmatch_lines(["dlperf: */night.interrupted1: left by the session of process *"])
    for folder in ("night", "night.interrupted1"):
        logs = (suite.path / folder / SYSTEM).rglob("*.log")
        assert [log.name for log in logs] == ["mlp_b4_fp32_1.log"]
