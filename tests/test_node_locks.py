"""A lock of a host that is taken is told with who holds it, and waited for with a limit."""

import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from functools import partial

import pytest
from other_users import OTHER, as_other, in_child, needs_root
from trainers import TinySystem

from pytest_dlperf.launch.fleet import THIS_MACHINE
from pytest_dlperf.launch.leases import HostPool
from pytest_dlperf.node.host import acquire_socket_lock, holder_of


@contextmanager
def squatter(name):
    """Have another user hold a name for the length of the block."""
    reading, writing = os.pipe()

    def squat():
        os.setresuid(OTHER, OTHER, OTHER)
        holder = socket.socket(socket.AF_UNIX)
        holder.bind(name)
        holder.listen()
        os.write(writing, b"x")
        while True:
            signal.pause()

    child = in_child(squat)
    os.read(reading, 1)
    try:
        yield child
    finally:
        os.close(reading)
        os.close(writing)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.fixture
def name():
    return f"\0pytest-dlperf/{os.urandom(8).hex()}//0"


def test_our_own_is_known_by_process_and_user_however_often_it_is_asked(name):
    holder = acquire_socket_lock(name)
    assert holder is not None
    with holder:
        assert acquire_socket_lock(name) is None
        told = {holder_of(name) for _ in range(300)}
    who = rf"user \S+ \({os.geteuid()}\), process {os.getpid()} \(.+\)"
    assert [text for text in told if re.fullmatch(who, text)] == list(told)
    # The next one to hold the name is another one.
    assert holder_of(name) == "nobody can say who"
    again = acquire_socket_lock(name)
    again.close()


@needs_root
def test_a_holder_out_of_sight_is_said_to_be(name):
    """As of a container, or of the machine that it runs on."""
    code = f"from pytest_dlperf.node.host import holder_of; print(holder_of({name!r}))"
    aside = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", code]
    with acquire_socket_lock(name):
        done = subprocess.run(aside, capture_output=True, text=True, check=True)
    assert done.stdout.endswith(f"({os.geteuid()}), in another PID namespace\n")


@needs_root
def test_another_user_is_known_by_number_to_everybody(name):
    with squatter(name) as child:
        for_root = holder_of(name)
        for_others = as_other(partial(holder_of, name), uid=OTHER + 1)
    assert for_root.startswith(f"user number {OTHER}, process {child} (")
    assert for_others.startswith(f"user number {OTHER}")


@needs_root
@pytest.mark.end_to_end
def test_a_run_that_another_user_keeps_from_its_host_gives_up_and_says_who(suite):
    tiny = TinySystem(suite)
    lock = os.environ["DLPERF_LOCK"]
    with squatter(f"\0pytest-dlperf/{lock}//0") as child:
        result = suite.run(
            "-k", "throughput and tiny and 1n1g", "--dlperf-wait-limit", "1"
        )  # fmt: skip
    who = f"another run, from elsewhere, holds localhost: user number {OTHER}, process {child} (*)"
    result.stdout.fnmatch_lines(
        [f"waiting: {who}; for 1 s at most *", f"*no hosts after 1 s: {who}; *wait-limit*"]
    )
    assert result.ret == 1
    assert tiny.starts() == []


@pytest.mark.in_process
def test_a_session_that_waits_for_another_one_here_says_so_when_it_is_quiet_too(
    suite,
):
    TinySystem(suite)
    pool = HostPool()
    with pool.leased([THIS_MACHINE], nodes=1, devices=1):
        result = suite.run(
            "-q", "-k", "throughput and tiny and 1n1g", "--dlperf-wait-limit", "1"
        )  # fmt: skip
    told = f"waiting for 1 of 1 hosts with 1 device(s): 127.0.0.1*held by process {os.getpid()} *"
    result.stdout.fnmatch_lines([told, "*no hosts after 1 s: *"])


@pytest.mark.end_to_end
def test_a_worker_that_waits_says_so_unless_another_of_its_session_holds_the_host(
    suite,
):
    TinySystem(suite)
    pool = HostPool()
    quiet = ("-q", "-n2", "-k", "throughput and tiny and (1n1g or 1n2g)")
    with pool.leased([THIS_MACHINE], nodes=1, devices=1):
        result = suite.run(*quiet, "--dlperf-wait-limit", "1")
    told = f"waiting for 1 of 1 hosts with * device(s): 127.0.0.1*held by process {os.getpid()} *"
    # The other one waits for this one's turn.
    result.stderr.fnmatch_lines([f"dlperf: gw[01]: {told}"])
    assert "waiting" not in str(suite.run(*quiet).stderr)
