"""Nothing of a run is left on hosts that are cut off, nor on those that are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from stubborn import Session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clusters.network import Network
    from suites import Suite


@pytest.fixture
def session(request: pytest.FixtureRequest, suite: Suite, network: Network) -> Iterator[Session]:
    """A session on two hosts of a network."""
    session = Session(
        suite=suite,
        prefix=network.controller_prefix,
        environment={
            "DLPERF_SSH": network.ssh_command,
            "DLPERF_HOSTS": ",".join(network.names[:2]),
        },
        patient=getattr(request, "param", "") == "patient",
        elsewhere=network.hosts.processes,
    )
    yield session
    session.stop()


@pytest.mark.parametrize("session", ["patient"], indirect=True)
def test_after_a_cut(session: Session, network: Network) -> None:
    session.start()
    network.cut(network.names[1])
    session.assert_nothing_is_left()
    session.assert_told("failed", f"host {network.names[1]}: no sign of life")
    network.mend(network.names[1])
    session.assert_hosts_are_free()


def test_after_a_cut_and_a_kill_of_pytest(session: Session, network: Network) -> None:
    session.start()
    network.cut(network.names[1])
    session.process.kill()
    session.assert_nothing_is_left()
    network.mend(network.names[1])
    session.assert_hosts_are_free()


def test_a_cut_that_is_mended_at_once_does_no_harm(session: Session, network: Network) -> None:
    session.start(behaviour="exits")
    network.cut(network.names[1])
    network.mend(network.names[1])
    session.go_on()
    session.assert_nothing_is_left()
    session.assert_told("ok", "")
