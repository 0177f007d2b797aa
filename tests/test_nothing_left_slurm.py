"""Nothing of a run is left on the nodes of an allocation, whatever fails on the way there."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING, Final

import pytest
from clusters.processes import end, wait_until
from clusters.requirements import command
from stubborn import LONG_S, Session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clusters.slurm import Slurm
    from suites import Suite


@pytest.fixture
def session(suite: Suite, slurm: Slurm) -> Iterator[Session]:
    """A session inside an allocation of two nodes."""
    with slurm.allocation(2) as allocation:
        session = Session(
            suite=suite, environment=allocation.environment, elsewhere=slurm.processes
        )
        yield session
        session.stop()


def kill_supervisor(session: Session) -> None:
    """As the kernel does that is out of memory."""
    os.kill(session.supervisor(1), signal.SIGKILL)


def kill_client(session: Session) -> None:
    os.kill(session.clients()[1].pid, signal.SIGKILL)


def kill_clients(session: Session) -> None:
    end(session.clients())


# What a supervisor leaves that is killed itself is found by its marker alone.
FAILURES: Final = {
    "a supervisor is killed": (kill_supervisor, "marked"),
    "an srun is killed": (kill_client, "sleeps"),
    "all sruns are killed": (kill_clients, "sleeps"),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_after_a_failure_on_the_way(session: Session, failure: str) -> None:
    fail, behaviour = FAILURES[failure]
    session.start(behaviour=behaviour)
    fail(session)
    session.assert_nothing_is_left()
    session.assert_told("failed", "host node")
    session.assert_hosts_are_free()


def test_after_pytest_and_its_sruns_are_killed(session: Session) -> None:
    session.start()
    clients = session.clients()
    # Slurm may kill the supervisors before they have removed anything; the next run there does it.
    session.may_leave_scratch = True
    session.process.kill()
    end(clients)
    session.assert_nothing_is_left()
    session.assert_hosts_are_free()


def test_after_the_job_is_cancelled(session: Session, slurm: Slurm) -> None:
    session.start()
    slurm.run("scancel", session.environment["SLURM_JOB_ID"])
    session.assert_nothing_is_left()
    session.assert_told("failed", "")
    with slurm.allocation(2) as allocation:
        session.environment = allocation.environment
        session.assert_hosts_are_free()


@pytest.fixture
def other(session: Session, slurm: Slurm) -> Iterator[subprocess.Popen[bytes]]:
    """A step of somebody else, on the same nodes: Slurm keeps the steps of a run waiting for it."""
    with subprocess.Popen(
        [command("srun"), "--nodes=2", "--ntasks=2", "--cpu-bind=none", "sleep", "120"],
        env=session.environment,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as other:
        try:
            wait_until(lambda: len(slurm.processes()) == 2, what="the other step")
            session.elsewhere = list
            yield other
        finally:
            other.kill()


def test_after_an_end_while_nodes_are_not_free(
    session: Session, other: subprocess.Popen[bytes]
) -> None:
    session.begin("sleeps")
    wait_until(
        lambda: [one for one in session.clients() if "--overlap" not in one.command],
        what="a step that waits",
        limit_s=LONG_S,
    )
    session.process.send_signal(signal.SIGINT)
    session.assert_nothing_is_left()
    session.ended()
    other.kill()
    session.assert_hosts_are_free()


def test_a_run_that_queues_has_not_failed(session: Session, other: subprocess.Popen[bytes]) -> None:
    session.begin("tame")
    wait_until(lambda: "waiting" in session.output, what="the queue", limit_s=LONG_S)
    other.kill()

    session.assert_told("ok", "")
    assert not session.left()
