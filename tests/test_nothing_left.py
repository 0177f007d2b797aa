"""Nothing of a run is left, on any node, however it ends: with each launcher."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Final

import pytest
from stubborn import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from clusters.slurm import Slurm
    from clusters.ssh import SshHosts
    from suites import Suite

LAUNCHERS: Final = [
    "local",
    pytest.param("ssh", marks=pytest.mark.ssh),
    pytest.param("slurm", marks=pytest.mark.slurm),
]


@pytest.fixture(params=LAUNCHERS)
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
            environment = {**os.environ, **allocation.environment}
            session = Session(suite=suite, environment=environment, elsewhere=slurm.processes)
            yield session
            session.stop()
    else:
        session = Session(suite=suite)
        yield session
        session.stop()


def interrupt(session: Session) -> None:
    """Ctrl-C: a terminal sends it to all that belongs to the command."""
    os.killpg(session.process.pid, signal.SIGINT)


ENDS_BY_ITSELF: Final = {
    "succeeds": "1 passed",
    "exits": "1 passed",
    "fails": "exit code 3 on node 1",
}


@pytest.mark.parametrize(("behaviour", "told"), ENDS_BY_ITSELF.items(), ids=ENDS_BY_ITSELF)
def test_after_a_run_that_ends_by_itself(session: Session, behaviour: str, told: str) -> None:
    session.start("--dlperf-create-baselines", behaviour=behaviour)
    session.go_on()
    session.assert_nothing_is_left()
    session.ended()
    assert told in session.output
    session.assert_hosts_are_free()


LIMITS: Final = {
    "hung": ({"step_limit_s": 4}, "hung"),
    "time-out": ({"time_limit_s": 6}, "time limit of 6 s"),
}


@pytest.mark.parametrize(("limits", "told"), LIMITS.values(), ids=LIMITS)
def test_after_a_run_that_does_not_end(
    session: Session, limits: dict[str, float], told: str
) -> None:
    session.limit(**limits)
    session.start()
    session.assert_nothing_is_left(sum(limits.values()) + 10)
    session.ended()
    assert told in session.output
    session.assert_hosts_are_free()


SIGNALS: Final = {
    "Ctrl-C": (lambda session: interrupt(session), signal.SIGINT),
}
