"""A program's output on its way through the supervisor, whoever reads it, and however slowly."""

from __future__ import annotations

import itertools
import os
import pty
import signal
import socket
import sys
import time
from contextlib import contextmanager

import pytest
from clusters.processes import LONG_S, wait_until
from launches import run_commands
from supervised import Supervised, ended

from pytest_dlperf.launch.launchers import Launcher
from pytest_dlperf.launch.plan import NodeCommand
from pytest_dlperf.launch.record import Stop
from pytest_dlperf.logs.arrivals import Arrivals
from pytest_dlperf.node.relay import MERGED_S, Relay

FLOOD = "import os\nwhile True: os.write(1, b'x' * 9999 + b'\\n')"


@contextmanager
def supervised(target, code, timeout_s=LONG_S):
    with ended(Supervised(target, timeout_s=timeout_s)) as run:
        run.start(sys.executable, "-c", code, grace_s=1.0)
        yield run


PROGRAMS = {
    "much": "import os\nfor i in range(300): os.write(1, b'%099999d\\n' % i)",
    "by bytes, on both": "import os\nfor i in range(25000): os.write(1, b'0'); os.write(2, b'1')",
    "no text": "import os\nos.write(1, bytes(range(256)) * 9)",
    "a line that does not end": "import os\nos.write(1, b'step 7 to')\nos.kill(os.getpid(), 9)",
    "nothing": "",
}
PRINTED = {
    "much": b"".join(b"%099999d\n" % number for number in range(300)),
    "by bytes, on both": b"01" * 25000,
    "no text": bytes(range(256)) * 9,
    "a line that does not end": b"step 7 to",
    "nothing": b"",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_all_that_is_printed_is_there_before_the_end_is_told(tmp_path, name):
    log = tmp_path / "log"
    with log.open("wb") as file, supervised(file.fileno(), PROGRAMS[name]) as run:
        code = run.wait_for("ended")
        assert log.read_bytes() == PRINTED[name]
        assert run.finish() == (137 if code else 0)
    ends = [end for told in run.said("arrivals") for end, *_ in told]
    assert (ends[-1:] or [0]) == [len(PRINTED[name])]


def test_what_outlives_the_program_prints_on(tmp_path):
    log = tmp_path / "log"
    code = (
        "import os, time\n"
        "if os.fork(): os.write(1, b'bye\\n'); os._exit(3)\n"
        "os.setsid(); time.sleep(0.3); os.write(1, b'and on\\n'); time.sleep(600)"
    )
    with log.open("wb") as file, supervised(file.fileno(), code) as run:
        assert run.wait_for("ended") == 3
        deadline = time.monotonic() + LONG_S
        while b"and on" not in log.read_bytes() and time.monotonic() < deadline:
            run.take(0.1)
        assert run.finish() == 3
    assert log.read_bytes() == b"bye\nand on\n"
    assert run.said("final") == [{"left": []}]


def _socket():
    one, other = socket.socketpair()
    return one.detach(), other.detach()


@pytest.mark.slow
@pytest.mark.parametrize("make", [os.pipe, _socket, pty.openpty])
def test_who_does_not_read_stops_the_program_and_nothing_else(
    make,
):
    reader, target = make()
    try:
        with supervised(target, FLOOD, 20.0) as run:
            run.wait_for("started")
            deadline = time.monotonic() + LONG_S
            while len(run.said("alive")) < 3:  # it goes on to say that it is there
                assert time.monotonic() < deadline
                run.take(0.2)
            assert run.finish() == 143
            assert run.said("final") == [{"left": []}]
    finally:
        os.close(reader)
        os.close(target)


def test_lines_of_a_file_stand_on_lines_of_their_own(tmp_path):
    log, file = tmp_path / "node0.log", tmp_path / "metrics.jsonl"
    with log.open("wb", buffering=0) as target:
        passed = Relay(target.fileno(), os.fsencode(file))
        passed.start()
        for printed, line in ((b"step 1\n", b"loss 1\n"), (b"step 2", b"loss 2\n")):
            os.write(passed.entrance, printed)
            wait_until(lambda printed=printed: printed in log.read_bytes(), what="the output")
            with file.open("ab") as opened:
                opened.write(line)
            wait_until(lambda line=line: line in log.read_bytes(), what="the line")
        os.close(passed.entrance)
        passed.join()
    assert log.read_bytes() == b"step 1\nloss 1\nstep 2\nloss 2\n"


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
    assert [end for end, _, _ in news[:3]] == [4, 8, 14]
    times = [moment for _, moment, _ in news]
    assert times == sorted(times)
    assert all(b - span > a for (_, a, _), (_, b, span) in itertools.pairwise(news[:3]))
    took_s = (times[-1] - times[2]) / 1e6
    assert len(news) - 3 <= took_s / MERGED_S + 2
    assert news[-1][0] == len(os.read(taken, 65536)) == 414
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


def run_behind(log, code, read, time_limit_s=LONG_S):
    command = NodeCommand(
        node_rank=0,
        host="localhost",
        address="127.0.0.1",
        arguments=(sys.executable, "-c", code),
        environment={},
        working_directory=None,
        log=log,
    )
    return run_commands([command], time_limit_s=time_limit_s, launcher=Behind(read))


def known(log):
    arrivals = Arrivals(log)
    arrivals.refresh()
    return arrivals.known


def test_a_slow_reader_gets_all_of_it(tmp_path):
    log = tmp_path / "run_1.log"
    outcome = run_behind(log, "print('x' * 3_000_000)", "sleep 1; cat")
    assert outcome.succeeded
    assert log.stat().st_size == known(log) == 3_000_001


@pytest.mark.slow
def test_a_reader_that_stands_still_keeps_no_run_from_its_time_limit(tmp_path):
    log = tmp_path / "run_1.log"
    code = "while True: print('x' * 65536)"
    outcome = run_behind(log, code, "exec sleep 600", time_limit_s=1)
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
    outcome = run_behind(log, code, "cat")
    assert not outcome.succeeded
    assert 0 < known(log) <= log.stat().st_size
