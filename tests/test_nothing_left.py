"""Nothing of a run is left, on any node, however it ends: with each launcher."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Final

import pytest
from stubborn import PROMISE_S, Session

from pytest_dlperf.launch import channel, gang, run, supervisor_client
from pytest_dlperf.node import supervisor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from clusters.slurm import Slurm
    from clusters.ssh import SshHosts
    from suites import Suite

pytestmark = pytest.mark.slow

BEFORE_XDIST_S: Final = 4.5
"""xdist gives workers that have lost their controller five seconds."""
LAUNCHERS: Final = {
    "local": [],
    "ssh": [pytest.mark.ssh],
    "slurm": [pytest.mark.slurm],
}


def with_launchers(endings: Iterable[str], **only: Sequence[str]) -> pytest.MarkDecorator:
    """All endings on this machine, and those that are named with other launchers."""
    return pytest.mark.parametrize(
        ("session", "ending"),
        [
            pytest.param(launcher, ending, marks=marks)
            for launcher, marks in LAUNCHERS.items()
            for ending in only.get(launcher, list(endings))
        ],
        indirect=["session"],
    )


@pytest.fixture
def session(request: pytest.FixtureRequest, suite: Suite) -> Iterator[Session]:
    """A session with each launcher, on two nodes."""
    if request.param == "ssh":
        hosts: SshHosts = request.getfixturevalue("ssh_hosts")
        environment = {"DLPERF_SSH": hosts.ssh_command, "DLPERF_HOSTS": ",".join(hosts.names[:2])}
        session = Session(suite=suite, environment=environment, elsewhere=hosts.processes)
        yield session
        session.stop()
    elif request.param == "slurm":
        slurm: Slurm = request.getfixturevalue("slurm")
        with slurm.allocation(2) as allocation:
            session = Session(
                suite=suite, environment=allocation.environment, elsewhere=slurm.processes
            )
            yield session
            session.stop()
    else:
        session = Session(suite=suite)
        yield session
        session.stop()


def test_a_node_that_fails_and_one_that_does_not_want_to_end_fit_into_the_promise() -> None:
    silence_s = channel.HEARTBEAT_TIMEOUT_S + supervisor.HEARTBEAT_INTERVAL_S
    for seconds in (
        run.PEER_GRACE_S + run.SETTLE_S + supervisor_client.TERMINATION_GRACE_S,
        silence_s + supervisor_client.TERMINATION_GRACE_S,
        channel.HEARTBEAT_TIMEOUT_S + gang.LOST_SWEEP_LIMIT_S,
    ):
        assert seconds < PROMISE_S


ENDS_BY_ITSELF: Final = {
    "succeeds": ("ok", ""),
    "exits": ("ok", ""),
    "fails": ("failed", "3 on node 1"),
}


@with_launchers(ENDS_BY_ITSELF, ssh=[], slurm=["fails"])
def test_after_a_run_that_ends_by_itself(session: Session, ending: str) -> None:
    session.start(behaviour=ending)
    session.go_on()
    session.assert_nothing_is_left()
    status, reason = ENDS_BY_ITSELF[ending]
    session.assert_told(status, reason)
    session.assert_hosts_are_free()


LIMITS: Final = {
    "no new step": ({"step_limit_s": 3.0}, ""),
    "time-out": ({"time_limit_s": 4.0}, "time limit of 4 s"),
}


@with_launchers(LIMITS, ssh=[], slurm=[])
def test_after_a_run_that_does_not_end(session: Session, ending: str) -> None:
    limits, reason = LIMITS[ending]
    session.limit(**limits)
    session.start()
    session.assert_nothing_is_left(PROMISE_S + sum(limits.values()))
    session.assert_told("hung", reason)
    session.assert_hosts_are_free()


def interrupt(session: Session) -> None:
    """Ctrl-C: a terminal sends it to all that belong to the command."""
    os.killpg(session.process.pid, signal.SIGINT)


def interrupt_twice(session: Session) -> None:
    interrupt(session)
    time.sleep(0.5)  # two of a kind that wait together would arrive as one
    interrupt(session)


def send(number: int) -> Callable[[Session], None]:
    return lambda session: session.process.send_signal(number)


def kill_worker(session: Session) -> None:
    os.kill(session.worker(), signal.SIGKILL)


ENDINGS: Final = {
    "Ctrl-C": ([], interrupt),
    "Ctrl-C twice": ([], interrupt_twice),
    "SIGTERM": ([], send(signal.SIGTERM)),
    "SIGHUP": ([], send(signal.SIGHUP)),
    "SIGKILL": ([], send(signal.SIGKILL)),
    "Ctrl-C with a worker": (["-n", "1"], interrupt),
    "SIGKILL with a worker": (["-n", "1"], send(signal.SIGKILL)),
    "SIGKILL of the worker": (["-n", "1"], kill_worker),
}
IGNORING_SIGINT: Final = ("sh", "-c", 'trap "" INT; exec "$@"', "sh")
"""As in a script's background job."""


@with_launchers(
    ENDINGS,
    ssh=["Ctrl-C", "SIGTERM", "SIGKILL", "SIGKILL of the worker"],
    slurm=["Ctrl-C", "Ctrl-C twice", "SIGTERM", "SIGKILL", "SIGKILL of the worker"],
)
def test_after_a_session_that_is_ended(session: Session, ending: str) -> None:
    arguments, end = ENDINGS[ending]
    session.start(*arguments)
    end(session)
    session.assert_nothing_is_left()
    assert session.ended() != 0
    session.assert_hosts_are_free()


@pytest.mark.parametrize("session", ["local"], indirect=True)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_a_controller_in_the_background(session: Session, number: int) -> None:
    session.prefix = IGNORING_SIGINT
    session.start("-n", "1")
    session.process.send_signal(number)
    session.assert_nothing_is_left(BEFORE_XDIST_S)
    session.assert_hosts_are_free()
