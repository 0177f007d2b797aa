"""Where the faults happen: a row here for each launcher of the matrix."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from clusters.kubernetes import Kubernetes
from clusters.network import Network
from clusters.processes import Process
from clusters.requirements import command
from clusters.slurm import Slurm
from clusters.ssh import SshHosts
from msgspec import Struct
from msgspec.structs import replace

LAUNCHERS: Final = {
    "local": "local",
    "ssh": "ssh",
    "slurm": "Slurm",
    "sbatch": "sbatch",
    "mpirun": "mpirun",
    "kubernetes": "Kubernetes",
}
"""The launchers of the matrix, and what the table calls them."""
MARKS: Final = {
    "local": (),
    "ssh": (pytest.mark.ssh,),
    "network": (pytest.mark.network,),
    "slurm": (pytest.mark.slurm,),
    "sbatch": (pytest.mark.slurm,),
    "kubernetes": (),
    "mpirun": (pytest.mark.ssh, pytest.mark.mpi),
}
"""What tests need for each kind of place."""


def _on_each_node(program: Sequence[str]) -> str:
    words = ["{python}", "-S", *program, "{steps}", "{node_rank}", "{scratch_directory}"]
    return f"  command: {json.dumps(words)}"


class Place(Struct, frozen=True, kw_only=True):
    """Two nodes, and how a session reaches them.

    ``prefix`` is what a command at the controller begins with, ``environment`` what is added to
    ours there. ``elsewhere`` finds what runs on the nodes. ``launch`` declares how a program, with
    its first arguments, becomes a training of two nodes.
    """

    launcher: str
    hosts: Sequence[str] = ("localhost", "localhost")
    prefix: Sequence[str] = ()
    environment: Mapping[str, str] = {}
    elsewhere: Callable[[], Sequence[Process]] = list
    launch: Callable[[Sequence[str]], str] = _on_each_node
    disconnect: Callable[[str], None] | None = None
    """Has a host's sshd end all its connections."""
    cut: Callable[[str], None] | None = None
    """Cuts a host off, where the hosts have a network of their own, and mends that."""
    mend: Callable[[str], None] | None = None
    cancel: Callable[[], object] | None = None
    """Ends the job that the session is part of."""
    jobs: Callable[[], object] = list
    """The jobs that the session holds."""
    queues: bool = False
    """A session may have to wait for the scheduler, even where nothing is left."""
    head_only: bool = False
    """The first node's program starts the others' itself."""


def local() -> Place:
    """This machine."""
    return Place(launcher="local")


def over_ssh(hosts: SshHosts, network: Network | None = None) -> Place:
    """Hosts that are reached by ssh; those of a network can be cut off."""
    return Place(
        launcher="ssh",
        hosts=hosts.names[:2],
        prefix=hosts.controller_prefix,
        environment={"DLPERF_SSH": hosts.ssh_command, "DLPERF_HOSTS": ",".join(hosts.names[:2])},
        elsewhere=hosts.processes,
        disconnect=hosts.disconnect,
        cut=None if network is None else network.cut,
        mend=None if network is None else network.mend,
    )


@contextmanager
def in_slurm(slurm: Slurm) -> Iterator[Place]:
    """An allocation of two nodes."""
    with slurm.allocation(2) as allocation:
        yield Place(
            launcher="slurm",
            hosts=slurm.names[:2],
            environment=allocation.environment,
            elsewhere=slurm.processes,
            cancel=lambda: slurm.run("scancel", allocation.job_id),
        )


def held_by_sbatch(slurm: Slurm) -> Place:
    """Two nodes of a job that the session holds."""
    return Place(
        launcher="sbatch",
        hosts=slurm.names[:2],
        environment={**slurm.environment, "DLPERF_LAUNCHER": "sbatch"},
        elsewhere=slurm.processes,
        cancel=lambda: slurm.run("scancel", *slurm.jobs()),
        jobs=slurm.jobs,
        queues=True,
    )


def by_kubernetes(cluster: Kubernetes) -> Place:
    """Two pods that the session holds."""
    image = "--dlperf-set *.container.image=trainer:1"
    return Place(
        launcher="kubernetes",
        hosts=["worker-0", "worker-1"],
        environment={
            **cluster.environment,
            "DLPERF_LAUNCHER": "kubernetes",
            "PYTEST_ADDOPTS": image,
        },
        elsewhere=cluster.processes,
        jobs=lambda: list(cluster.jobs),
        queues=True,
    )


def by_mpirun(hosts: SshHosts, folder: Path, network: Network | None = None) -> Place:
    """Hosts of which the first starts the ranks of both by mpirun, as the documentation has it."""
    # What mpirun calls as ssh: the account's own home has no configuration for these hosts.
    client = folder / "ssh-to-hosts"
    client.write_text(f'#!/bin/sh\nexec {hosts.ssh_command} "$@"\n', encoding="utf-8")
    client.chmod(0o755)
    interface = "lo" if network is None else "eth0"

    def launch(program: Sequence[str]) -> str:
        words = [
            *(command("mpirun"), "--allow-run-as-root", "--host", "{host_slots}"),
            *("--oversubscribe", "-np", "{world_size}"),
            *("--mca", "plm_rsh_agent", shlex.quote(str(client))),
            *("--mca", "oob_tcp_if_include", interface, "--mca", "btl", "self,vader,tcp"),
            *("{python}", "-S", *program, "{steps}", "0", "{scratch_directory}"),
        ]
        return f"  start_on: head\n  retries: 0\n  command: {json.dumps(words)}"

    place = over_ssh(hosts, network)
    return replace(place, launcher="mpirun", launch=launch, head_only=True)


@contextmanager
def place_of(kind: str, request: pytest.FixtureRequest, folder: Path) -> Iterator[Place]:
    """Make two nodes of a kind, of the cluster whose fixture a test would ask for."""
    if kind == "ssh":
        yield over_ssh(request.getfixturevalue("ssh_hosts"))
    elif kind == "mpirun":
        yield by_mpirun(request.getfixturevalue("ssh_hosts"), folder)
    elif kind == "network":
        network: Network = request.getfixturevalue("network")
        yield over_ssh(network.hosts, network)
    elif kind == "slurm":
        with in_slurm(request.getfixturevalue("slurm")) as here:
            yield here
    elif kind == "sbatch":
        yield held_by_sbatch(request.getfixturevalue("slurm"))
    elif kind == "kubernetes":
        yield by_kubernetes(request.getfixturevalue("kubernetes"))
    else:
        yield local()
