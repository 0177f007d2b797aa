"""The launcher and the hosts of a session follow from what was said and where it runs."""

from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from pytest_dlperf.config.values import Given
from pytest_dlperf.launch.choosing import launcher_and_hosts
from pytest_dlperf.launch.launchers import Launcher, built_in_launchers
from pytest_dlperf.model.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_dlperf.config.options import Settings
    from pytest_dlperf.launch.hosts import Host

ALLOCATION = {"SLURM_JOB_NODELIST": "n[1-2]"}


class Pods(Launcher):
    """What a plugin adds."""

    name = "pods"

    def command(self, host: Host, program: Sequence[str], *, alongside: bool = False) -> list[str]:
        del host, alongside
        return list(program)


def choose(
    launcher: str | None = None,
    hosts: str | None = None,
    *,
    in_allocation: bool = False,
    more: Sequence[Launcher] = (),
) -> tuple[str, list[str]]:
    settings = SimpleNamespace(
        launcher=launcher,
        places={"launcher": "--dlperf-launcher"},
        hosts=None if hosts is None else Given(hosts, "--dlperf-hosts", Path()),
        in_allocation=in_allocation,
    )
    launchers = [*built_in_launchers(["ssh"], "python3"), *more]
    chosen, found = launcher_and_hosts(cast("Settings", settings), launchers, ALLOCATION)
    return chosen.name, [host.name for host in found]


def test_without_a_name_it_follows_from_the_hosts_and_the_allocation() -> None:
    assert choose() == ("local", [])
    assert choose(hosts="a,b") == ("ssh", ["a", "b"])
    assert choose(in_allocation=True) == ("slurm", ["n1", "n2"])
    assert choose(hosts="n2", in_allocation=True) == ("slurm", ["n2"])
    assert choose(hosts="a", more=[Pods()]) == ("ssh", ["a"])


def test_this_machine_alone_is_reached_without_ssh() -> None:
    for name in ("localhost", "LOCALHOST:2", "127.0.0.1:8", "[::1]", socket.gethostname()):
        launcher, hosts = choose(hosts=name)
        assert (launcher, len(hosts)) == ("local", 1)
    for names in ("me@localhost", "localhost,other", "127.0.0.2"):
        assert choose(hosts=names)[0] == "ssh"
    assert choose("ssh", "localhost") == ("ssh", ["localhost"])


def test_a_launcher_that_is_named_is_taken() -> None:
    assert choose("local", in_allocation=True) == ("local", [])
    assert choose("ssh", in_allocation=True) == ("ssh", ["n1", "n2"])
    assert choose("pods", "a,b", more=[Pods()]) == ("pods", ["a", "b"])


@pytest.mark.parametrize(
    ("launcher", "more", "told"),
    [
        ("shh", (), r"--dlperf-launcher: .*'shh'; did you mean 'ssh'\?.* local, ssh, slurm"),
        ("slurm", (), "slurm .* salloc"),
        ("ssh", (), "ssh needs hosts.*DLPERF_HOSTS"),
        ("pods", (Pods(),), "pods needs hosts"),
        (None, (Pods(), Pods()), "'pods' is already registered"),
    ],
)
def test_one_that_cannot_work_is_a_usage_error(
    launcher: str | None, more: Sequence[Launcher], told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        choose(launcher, more=more)
