"""Nothing of a run is left on hosts that are reached by ssh, whatever fails on the way there."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from clusters.processes import end, wait_until
from stubborn import Session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clusters.ssh import SshHosts
    from suites import Suite


@pytest.fixture
def session(request: pytest.FixtureRequest, suite: Suite, ssh_hosts: SshHosts) -> Iterator[Session]:
    """A session on two hosts that are reached by ssh."""
    session = Session(
        suite=suite,
        environment={
            "DLPERF_SSH": ssh_hosts.ssh_command,
            "DLPERF_HOSTS": ",".join(ssh_hosts.names[:2]),
        },
        patient=getattr(request, "param", "") == "patient",
        elsewhere=ssh_hosts.processes,
    )
    yield session
    session.stop()


@pytest.mark.parametrize("session", ["patient"], indirect=True)
def test_after_a_failure_at_full_patience(session: Session) -> None:
    session.start(behaviour="fails")
    session.go_on()
    session.assert_nothing_is_left()
    session.assert_told("failed", "3 on node 1")


def kill_supervisor(session: Session, _: SshHosts) -> None:
    """As the kernel does that is out of memory."""
    os.kill(session.supervisor(1), signal.SIGKILL)


def kill_client(session: Session, _: SshHosts) -> None:
    os.kill(session.clients()[1].pid, signal.SIGKILL)


def kill_clients(session: Session, _: SshHosts) -> None:
    end(session.clients())


def disconnect(_: Session, hosts: SshHosts) -> None:
    hosts.disconnect(hosts.names[1])


# What a supervisor leaves that is killed itself is found by its marker alone.
FAILURES: Final = {
    "a supervisor is killed": (kill_supervisor, "marked"),
    "a client is killed": (kill_client, "sleeps"),
    "all clients are killed": (kill_clients, "sleeps"),
    "a connection breaks": (disconnect, "sleeps"),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_after_a_failure_on_the_way(session: Session, ssh_hosts: SshHosts, failure: str) -> None:
    fail, behaviour = FAILURES[failure]
    session.start(behaviour=behaviour)
    fail(session, ssh_hosts)
    session.assert_nothing_is_left()
    session.assert_told("failed", f"host {ssh_hosts.names[1]}: ")
    session.assert_hosts_are_free()


def test_after_pytest_and_its_clients_are_killed(session: Session) -> None:
    session.start()
    clients = session.clients()
    session.process.kill()
    end(clients)
    session.assert_nothing_is_left()
    session.assert_hosts_are_free()


def test_a_stopped_session_finds_its_run_ended(session: Session, ssh_hosts: SshHosts) -> None:
    """Its hosts have waited as long as for one whose network is cut."""
    session.start()
    session.process.send_signal(signal.SIGSTOP)
    wait_until(lambda: not ssh_hosts.processes(), what="the end of the run", limit_s=10)
    session.process.send_signal(signal.SIGCONT)
    session.assert_nothing_is_left()
    session.assert_told("failed", "heard nothing for 2.5 s")
    session.assert_hosts_are_free()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_after_an_end_during_the_look_at_hosts(session: Session, number: int) -> None:
    session.start_looking()
    session.process.send_signal(number)
    session.assert_nothing_is_left()
    session.assert_hosts_are_free()


@pytest.mark.parametrize("version", ["3.6", "3.7", "3.8", "3.9"])
def test_with_an_old_python_on_the_nodes(session: Session, version: str) -> None:
    python = old_python(version)
    if python is None:
        pytest.skip(f"there is no Python {version} here")
    cluster = session.suite.path / "baselines" / "local" / "cluster.yaml"
    cluster.parent.mkdir()
    cluster.write_text(f"python: {python}\n", encoding="utf-8")
    session.start(behaviour="exits")
    executable = Path("/proc", str(session.supervisor(0)), "exe").readlink()
    assert executable.name == f"python{version}"
    session.go_on()
    session.assert_nothing_is_left()
    session.assert_told("ok", "")


def old_python(version: str) -> Path | None:
    """A Python of that version on PATH, or one that pyenv has; what is on PATH may not work."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"))
    if (on_path := shutil.which(f"python{version}")) is not None:
        candidates.append(Path(on_path))
    for candidate in candidates:
        if subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0:
            return candidate
    return None
