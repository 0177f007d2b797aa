"""A program's output on its way through the supervisor: nothing waits for it, nothing is lost."""

import itertools
import os
import signal
import sys
import time

import pytest
from clusters.processes import LONG_S
from launches import nodes_with

from pytest_dlperf.launch.gang import RunOrder
from pytest_dlperf.launch.launchers import Launcher
from pytest_dlperf.launch.plan import NodeCommand
from pytest_dlperf.launch.record import Stop
from pytest_dlperf.launch.run import run_on_hosts
from pytest_dlperf.logs.arrivals import Arrivals
from pytest_dlperf.node.relay import MERGED_S, Relay


def test_lines_apart_have_times_of_their_own_and_chatter_is_merged():
    taken, target = os.pipe()
    relay = Relay(target)
    relay.start()
    for line in (b"one\n", b"two\n", b"three\n"):
        os.write(relay.entrance, line)
        time.sleep(0.1)
    for _ in range(200):
        os.write(relay.entrance, b"x\n")
        time.sleep(0.0005)
    os.close(relay.entrance)
    relay.join()
    news = []
    while told := relay.pending_arrivals():
        news += told["arrivals"]
    assert [each.end for each in news[:3]] == [4, 8, 14]
    assert [each.time for each in news] == sorted(each.time for each in news)
    assert all(b.begin > a.time for a, b in itertools.pairwise(news[:3]))
    took_s = (news[-1].time - news[2].time) / 1e6
    assert len(news) - 3 <= took_s / MERGED_S + 2
    assert news[-1].end == len(os.read(taken, 65536)) == 414
    os.close(taken)
    os.close(target)


class Behind(Launcher):
    """Has the supervisor's output read by a command of the shell, as a network may."""

    name = "behind"
    remote = False

    def __init__(self, read):
        super().__init__(sys.executable)
        self._read = read

    def command(self, host, program, *, alongside=False):
        del host, alongside
        script = f'{{ "$@" 2>&1 >&3 3>&- | {{ {self._read}; }} >&2; }} 3>&1'
        return ["/bin/sh", "-c", script, "sh", *program]


def run(log, code, read, time_limit_s=LONG_S):
    command = NodeCommand(
        node_rank=0,
        host="localhost",
        address="127.0.0.1",
        arguments=(sys.executable, "-c", code),
        environment={},
        working_directory=None,
        log=log,
    )
    order = RunOrder(nodes=nodes_with(log), plan=lambda _: [command], time_limit_s=time_limit_s)
    return run_on_hosts(Behind(read), order)


def known(log):
    arrivals = Arrivals(log)
    arrivals.refresh()
    return arrivals.known


def test_a_slow_reader_gets_all_of_it(tmp_path):
    log = tmp_path / "run_1.log"
    outcome = run(log, "print('x' * 3_000_000)", "sleep 1; cat")
    assert outcome.succeeded
    assert log.stat().st_size == known(log) == 3_000_001


@pytest.mark.slow
def test_a_reader_that_stands_still_keeps_no_run_from_its_time_limit(tmp_path):
    log = tmp_path / "run_1.log"
    code = "while True: print('x' * 65536)"
    outcome = run(log, code, "exec sleep 600", time_limit_s=1)
    assert outcome.stopped.stop is Stop.TIME_LIMIT


def test_after_the_end_of_a_killed_supervisor_its_arrivals_can_be_read(tmp_path):
    log = tmp_path / "run_1.log"
    code = f"""
import os, signal, time
for step in range(10):
    print("step", step, flush=True)
    time.sleep(0.1)
os.kill(os.getppid(), {int(signal.SIGKILL)})
time.sleep(600)
"""
    outcome = run(log, code, "cat")
    assert not outcome.succeeded
    assert 0 < known(log) <= log.stat().st_size
