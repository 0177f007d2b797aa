"""The clusters of the tests are what they claim to be: real hosts, a real Slurm, real cuts."""

import os
import subprocess
from contextlib import contextmanager

import pytest
from clusters.processes import PROC, processes, processes_with, wait_until
from clusters.requirements import command


@contextmanager
def started(*arguments):
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


@pytest.mark.network
def test_a_cut_host_is_silent_and_comes_back(network):
    name, other, *_ = network.names
    with started(*network.hosts.arguments(name, "exec cat")) as connection:
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


def test_processes_are_found_by_command_line_and_by_environment():
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


def test_a_zombie_does_not_count_as_a_process():
    child = subprocess.Popen([command("true")])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert (PROC / str(child.pid)).exists()
    assert child.pid not in {process.pid for process in processes()}
    child.wait()
