"""The clusters of the tests are what they claim to be: real hosts, a real Slurm, real cuts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from clusters import requirements
from clusters.network import Network
from clusters.processes import PROC, descendants_of, processes, processes_with, wait_until
from clusters.requirements import command
from clusters.slurm import Slurm
from clusters.ssh import SshHosts

TESTS = Path(__file__).parent

# Brings up ssh hosts, says so, and waits to be killed.
OWNER = """\
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from clusters.ports import free_ports
from clusters.ssh import SshHosts
hosts = SshHosts(
    folder=Path(sys.argv[2]), names=["127.0.19.2", "127.0.19.3"], port=free_ports(1, worker=19)[0]
)
hosts.set_up()
print("up", flush=True)
time.sleep(600)
"""


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A program in the background, ended with the context, whatever happens there."""
    with subprocess.Popen(
        arguments,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.ssh
def test_every_host_answers_at_its_own_address(ssh_hosts: SshHosts) -> None:
    assert len(ssh_hosts.names) == 4
    for name in ssh_hosts.names:
        assert ssh_hosts.run(name, "echo $SSH_CONNECTION").split()[2] == name


@pytest.mark.ssh
def test_a_host_has_a_home_of_its_own(ssh_hosts: SshHosts) -> None:
    homes = [ssh_hosts.run(name, "echo $HOME; ls -A ~").split() for name in ssh_hosts.names]
    assert homes == [[str(ssh_hosts.folder / f"home-{name}")] for name in ssh_hosts.names]


@pytest.mark.ssh
def test_a_host_whose_key_is_not_known_is_refused(ssh_hosts: SshHosts) -> None:
    unknown = [*ssh_hosts.arguments("-o"), "UserKnownHostsFile=/dev/null", ssh_hosts.names[0]]
    done = subprocess.run([*unknown, "true"], capture_output=True, text=True, check=False)
    assert done.returncode == 255
    assert "Host key verification failed" in done.stderr


@pytest.mark.ssh
def test_64_connections_live_at_once(ssh_hosts: SshHosts) -> None:
    names = ssh_hosts.names * 16

    def living() -> list[str]:
        return [process.command for process in ssh_hosts.processes()]

    with ExitStack() as stack:
        clients = [
            stack.enter_context(started(*ssh_hosts.arguments(name, "exec cat"))) for name in names
        ]
        wait_until(lambda: living().count("cat") == 64, what="64 connections")
        pairs = zip(clients, names, strict=True)
        assert [client.communicate(name)[0] for client, name in pairs] == names
        assert [client.returncode for client in clients] == [0] * 64


@pytest.mark.ssh
def test_what_a_broken_connection_leaves_running_is_found_by_its_host(ssh_hosts: SshHosts) -> None:
    name, other, *_ = ssh_hosts.names
    with started(*ssh_hosts.arguments(name, "exec sleep 600")) as client:
        wait_until(
            lambda: [process.command for process in ssh_hosts.processes(name)] == ["sleep 600"],
            what="the start of sleep",
        )
        ssh_hosts.disconnect(name)
        client.communicate()
    assert client.returncode == 255
    assert [process.command for process in ssh_hosts.processes(name)] == ["sleep 600"]
    assert ssh_hosts.processes(other) == []
    assert ssh_hosts.run(name, "echo again") == "again\n"
    ssh_hosts.reset()
    assert ssh_hosts.processes() == []


@pytest.mark.ssh
def test_a_stopped_host_refuses_connections_and_the_others_do_not(ssh_hosts: SshHosts) -> None:
    name, other, *_ = ssh_hosts.names
    ssh_hosts.stop(name)
    with pytest.raises(RuntimeError, match="Connection refused"):
        ssh_hosts.run(name, "true")
    assert ssh_hosts.run(other, "echo here") == "here\n"
    ssh_hosts.start(name)
    assert ssh_hosts.run(name, "echo back") == "back\n"


@pytest.mark.ssh
def test_servers_end_with_their_owner_even_when_it_is_killed(tmp_path: Path) -> None:
    with started(sys.executable, "-c", OWNER, str(TESTS), str(tmp_path)) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "up\n"
        servers = descendants_of(owner.pid)
        assert len(servers) == 2
        owner.kill()
        wait_until(lambda: not any(server.lives() for server in servers), what="the servers' end")


@pytest.mark.slurm
def test_a_job_runs_on_four_nodes(slurm: Slurm) -> None:
    printed = slurm.run("srun", "-N4", "--ntasks-per-node=1", "printenv", "SLURMD_NODENAME")
    assert sorted(printed.split()) == sorted(slurm.names)


@pytest.mark.slurm
def test_an_allocation_is_a_users_own_until_it_is_left(slurm: Slurm) -> None:
    with slurm.allocation(2) as allocation:
        inside = subprocess.run(
            [command("srun"), "--ntasks-per-node=1", "printenv", "SLURM_GPUS_ON_NODE"],
            env=allocation.environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert inside.stdout.split() == ["2", "2"]
        assert allocation.environment["SLURM_NNODES"] == "2"
        assert slurm.jobs() == [allocation.job_id]
    wait_until(lambda: slurm.jobs() == [], what="the end of the allocation")


@pytest.mark.slurm
def test_a_batch_script_is_waited_for(slurm: Slurm) -> None:
    assert slurm.batch("#!/bin/sh\necho $SLURM_NNODES $SLURM_GPUS_ON_NODE\n") == "4 2\n"


@pytest.mark.slurm
def test_what_runs_on_the_nodes_is_found_and_ended_after_a_test(slurm: Slurm) -> None:
    given = [f"{key}={value}" for key, value in slurm.environment.items()]
    job = [command("srun"), "-N2", "--ntasks-per-node=1", "sleep", "600"]
    with started(command("env"), *given, *job) as client:
        wait_until(
            lambda: (
                [process.command.endswith("sleep 600") for process in slurm.processes()]
                == [True, True]
            ),
            what="two tasks",
        )
        slurm.reset()
        client.communicate()
    assert slurm.processes() == []
    assert slurm.jobs() == []


@pytest.mark.network
def test_a_cut_host_is_silent_and_comes_back(network: Network) -> None:
    name, other, *_ = network.names
    with started(*network.hosts.arguments(name, "exec cat")) as connection:
        assert connection.stdin is not None
        assert connection.stdout is not None
        connection.stdin.write("before\n")
        connection.stdin.flush()
        assert connection.stdout.readline() == "before\n"

        network.cut(name)
        with pytest.raises(subprocess.TimeoutExpired):
            network.run(name, "true", limit_s=1)
        assert network.run(other, "echo here") == "here\n"
        connection.stdin.write("meanwhile\n")
        connection.stdin.flush()
        # Nobody has been told: both sides still take the connection for open.
        assert connection.poll() is None
        assert [process.command for process in network.hosts.processes(name)] == ["cat"]

        network.mend(name)
        assert connection.communicate()[0] == "meanwhile\n"


@pytest.mark.network
def test_hosts_and_controller_have_networks_of_their_own(network: Network) -> None:
    def interfaces(*prefix: str) -> set[str]:
        listed = subprocess.run(
            [*prefix, command("ip"), "-json", "link"], capture_output=True, text=True, check=True
        )
        return {link["ifname"] for link in json.loads(listed.stdout)}

    ports = {"port2", "port3", "port4", "port5"}
    assert interfaces(*network.controller_prefix) == {"lo", "switch", *ports}
    assert not {"switch", *ports} & interfaces()
    for name in network.names:
        assert network.run(name, "ls /proc/net/dev_snmp6").split() == ["eth0", "lo"]


def test_processes_are_found_by_command_line_and_by_environment() -> None:
    text = f"found-by-{os.getpid()}"
    shell = [command("sh"), "-c", "read line; true"]
    environment = [command("env"), f"ANY={text}"]
    with started(*shell, text) as by_command, started(*environment, *shell) as by_environment:
        pids = {by_command.pid, by_environment.pid}
        wait_until(lambda: {process.pid for process in processes_with(text)} == pids, what="both")
        wait_until(
            lambda: (
                [process.pid for process in processes_with(f"ANY={text}", "read line")]
                == [by_environment.pid]
            ),
            what="the shell with that environment",
        )
    assert processes_with(text) == []


def test_a_zombie_does_not_count_as_a_process() -> None:
    child = subprocess.Popen([command("true")])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert (PROC / str(child.pid)).exists()
    assert child.pid not in {process.pid for process in processes()}
    child.wait()


def test_what_is_missing_is_told_with_the_package_that_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(requirements.COMMANDS, "ssh", {"no-such-sshd": "openssh-server"})
    assert requirements.missing("ssh") == (
        "needs no-such-sshd: apt-get install --no-install-recommends openssh-server"
    )
    with pytest.raises(RuntimeError, match="needs no-such-sshd"):
        requirements.required("ssh")
