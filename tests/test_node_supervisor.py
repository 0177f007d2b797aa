"""Nothing escapes a supervisor, and what it leaves when it is killed or stopped is swept."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest
from clusters.processes import LONG_S, is_running, wait_until
from launches import run_commands
from other_users import OTHER, in_child, needs_root
from supervised import Supervised, ended
from trainers import TinySystem

from pytest_dlperf.launch.launchers import ADDRESS, Launcher
from pytest_dlperf.launch.plan import NodeCommand
from pytest_dlperf.launch.remote_call import sent_program, source_of
from pytest_dlperf.node import processes, remains, supervisor

PYTHON = shutil.which("python3", path="/usr/bin") or sys.executable
"""One that any user may start."""
SLEEP = "import time; time.sleep(600)"

# Leaves its parents and its session, clears its environment and closes its files.
HIDES = f"""
import os, sys
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
open(sys.argv[1] + ".part", "w").write(str(os.getpid()))
os.rename(sys.argv[1] + ".part", sys.argv[1])
os.closerange(0, 100)
os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", {SLEEP!r}], {{}})
"""
STARTS = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {HIDES!r}, sys.argv[1]])
{SLEEP}
"""


DIGITS = 33 + os.getpid() % 90
"""The number of a run has so many in this process, and 32 elsewhere."""


def apart(source, kill_limit_s=8.0):
    """Keep marks and markers apart: a run of another test would end what this one is to find."""
    for old, new in (
        (f"_SIGNATURE = 0x{processes._SIGNATURE:X}", f"_SIGNATURE = {0x100 + os.getpid() % 0xC00}"),  # noqa: SLF001 - as said
        ("[0-9a-f]{32}", f"[0-9a-f]{{{DIGITS}}}"),
        ("KILL_LIMIT_S = 8.0", f"KILL_LIMIT_S = {kill_limit_s}"),
    ):
        assert source.count(old.encode()) == 1
        source = source.replace(old.encode(), new.encode())
    return source


@contextmanager
def supervised(folder, *, kill_limit_s=8.0, lock=None, prefix=()):
    """A supervisor whose node is prepared, and whose marks are kept apart."""
    source = apart(source_of(supervisor), kill_limit_s)
    with ended(Supervised(source=source, python=PYTHON, digits=DIGITS, prefix=prefix)) as run:
        run.folder = folder / f"run-{run.marker}"
        run.order(
            "prepare",
            run_lock=None,
            device_locks=[] if lock is None else [lock],
            sweep=run.marker,
            node_folder=str(run.folder),
            files={},
        )
        yield run


def start(run, *arguments):
    assert run.wait_for("prepared")
    run.start(*arguments)
    run.wait_for("started")


@pytest.fixture
def hidden(tmp_path):
    """Give the process that hides, once it does; it is ended in any case."""
    file = tmp_path / "hidden"

    def number():
        wait_until(file.exists)
        wait_until(lambda: not Path("/proc", file.read_text(), "environ").read_bytes())
        return int(file.read_text())

    yield number
    if file.exists():
        processes.send(int(file.read_text()), signal.SIGKILL)


def test_a_signal_at_the_very_end_is_no_death(tmp_path):
    """Slurm asks all processes of a job to end, also those that are about to."""
    with supervised(tmp_path) as run:
        start(run, "true")
        run.wait_for("ended")
        run.process.stdin.close()
        run.wait_for("final")
        while run.process.poll() is None:
            run.process.send_signal(signal.SIGTERM)
        assert run.process.returncode == 0


def test_a_signal_asks_the_program_to_end(tmp_path):
    code = (
        "import signal, sys, time\n"
        "signal.signal(15, lambda *_: sys.exit(7))\n"
        "open(sys.argv[1], 'w').close()\n"
        "time.sleep(600)"
    )
    with supervised(tmp_path) as run:
        start(run, sys.executable, "-c", code, str(tmp_path / "up"))
        wait_until((tmp_path / "up").exists)
        run.process.send_signal(signal.SIGTERM)
        assert run.wait_for("final") == {"left": []}
        assert (run.said("signal"), run.said("ended")) == (["SIGTERM"], [7])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_what_is_left_is_ended_by_the_next_run_and_told(tmp_path, hidden, number):
    lock = f"\0pytest-dlperf/{uuid.uuid4().hex}"
    with supervised(tmp_path, lock=lock) as first, supervised(tmp_path) as beside:
        start(first, sys.executable, "-c", STARTS, str(tmp_path / "hidden"))
        start(beside, "sleep", "600")
        process = hidden()
        first.process.send_signal(number)
        assert is_running(process)
        with supervised(tmp_path, lock=lock) as second:
            assert f" {process} of an earlier run" in second.wait_for("note")
            assert second.wait_for("prepared")
            assert not is_running(process)
            assert first.process.wait(LONG_S) == -signal.SIGKILL
            second.finish()
        assert is_running(beside.said("started")[0])


ASIDE = ("unshare", "--pid", "--net", "--mount", "--fork", "--kill-child", "--mount-proc")


@needs_root
@pytest.mark.parametrize(("first", "second"), [(ASIDE, ()), ((), ASIDE)], ids=["in", "around"])
def test_a_run_that_lives_in_other_namespaces_is_left_alone(tmp_path, first, second):
    """As one in a container, or that around one."""
    with supervised(tmp_path, prefix=first) as living:
        start(living, "sleep", "600")
        with supervised(tmp_path, prefix=second) as other:
            assert other.wait_for("prepared")
            assert not other.said("note")
            other.finish()
        living.reports.clear()
        assert living.wait_for("alive")
        assert not living.said("ended")
        living.finish()
        assert living.said("ended")


@pytest.mark.parametrize("number", [None, signal.SIGKILL, signal.SIGSTOP])
def test_what_is_left_is_ended_by_a_sweep_that_nobody_waits_for(tmp_path, hidden, number):
    with supervised(tmp_path) as run:
        start(run, sys.executable, "-c", STARTS, str(tmp_path / "hidden"))
        process = hidden()
        if number is not None:
            run.process.send_signal(number)
        command, sent = sent_program(sys.executable, apart(source_of(remains)))
        order = {
            "marker": run.marker,
            "sweep": run.marker,
            "folder": str(run.folder),
            "at_end": ["touch", str(tmp_path / "at_end")],
            "environment": {},
        }
        done = subprocess.run(
            command,
            input=sent + json.dumps(order).encode() + b"\n",
            capture_output=True,
            check=False,
            start_new_session=True,
            timeout=LONG_S,
        )
        assert b'{"final": {"left": []}}' in done.stdout, (done.stdout, done.stderr)
        assert not is_running(process)
        wait_until(lambda: not run.folder.exists())
        wait_until((tmp_path / "at_end").exists)


@pytest.fixture
def copycat():
    """A process of another user, which copies the mark of the first run that it sees."""
    reading, writing = os.pipe()

    def copy():
        os.setresuid(OTHER, OTHER, OTHER)
        while not (runs := marks()):
            time.sleep(0.01)
        resource.setrlimit(10, (runs[0], runs[0]))
        os.write(writing, b"x")
        time.sleep(600)

    def marks():
        found = []
        for limits in Path("/proc").glob("[0-9]*/limits"):
            with suppress(OSError):
                found += re.findall(r"Max file locks +\d+ +(\d{18,})", limits.read_text())
        return list(map(int, found))

    child = in_child(copy)
    os.close(writing)
    yield child
    copied = os.read(reading, 1)
    os.close(reading)
    os.kill(child, signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert copied


@needs_root
def test_a_mark_that_another_user_has_copied_counts_for_nothing(suite, copycat):
    tiny = TinySystem(suite)
    tiny.behave("0.1")

    _, results = suite.judge("-k", "throughput and tiny and 1n1g", cluster="local")

    [run, *_] = results["cases"][0]["measurement"]["runs"]
    assert (run["status"], run["reason"]) == ("ok", None)
    assert is_running(copycat)


FREEZER = Path("/sys/fs/cgroup/freezer")


@pytest.fixture
def freezer():
    """A group of processes that can be frozen: then no signal ends them."""
    if not os.access(FREEZER, os.W_OK):
        pytest.skip("needs the freezer of control groups of version 1, and root")
    group = FREEZER / f"dlperf-{uuid.uuid4().hex}"
    group.mkdir()
    yield group
    (group / "freezer.state").write_text("THAWED")
    wait_until(lambda: not (group / "tasks").read_text())
    group.rmdir()


def test_what_cannot_be_ended_is_told_by_number_and_keeps_the_host_from_the_next_run(
    tmp_path, freezer, hidden
):
    with supervised(tmp_path, kill_limit_s=0.5) as run:
        start(run, sys.executable, "-c", STARTS, str(tmp_path / "hidden"))
        process = hidden()
        (freezer / "tasks").write_text(str(process))
        (freezer / "freezer.state").write_text("FROZEN")
        run.finish()
        assert run.said("final")[-1] == {"left": [process]}
        with supervised(tmp_path, kill_limit_s=0.5) as refused:
            problem = refused.wait_for("cannot")
            assert f"process {process} could not be ended" in problem
            refused.finish()
        (freezer / "freezer.state").write_text("THAWED")
        wait_until(lambda: not is_running(process))
        with supervised(tmp_path) as fit:
            assert fit.wait_for("prepared")
            fit.finish()


def command(folder, *arguments, at_end):
    return NodeCommand(
        node_rank=0,
        host="localhost",
        address=ADDRESS,
        arguments=arguments,
        environment={"NAMED": "a name"},
        working_directory=None,
        at_end=at_end,
        log=folder / "run_1.log",
    )


def test_a_command_is_run_at_the_end_when_nothing_else_is_left(tmp_path):
    looks = f'pgrep -f {tmp_path}/[p]rogram; echo "$NAMED" $DLPERF_RUN_ID'
    at_end = ("sh", "-c", f"({looks}) > {tmp_path}/out; no-such-program")
    program = f"(exec -a {tmp_path}/program sleep 600) & sleep 0.2"
    node = command(tmp_path, "bash", "-c", program, at_end=at_end)
    outcome = run_commands([node], time_limit_s=LONG_S)
    assert (tmp_path / "out").read_text() == "a name\n"
    assert "exit status 127: " in str(outcome.error)
    assert "not found" in str(outcome.error)


class Vanishing(Launcher):
    """Its supervisors vanish once their program was started; a sweep finds what it cannot end."""

    name = "vanishing"
    remote = False

    SUPERVISOR: Final = (
        "import sys\n"
        'print(\'{"ready": "3.6"}\', flush=True)\n'
        "for line in sys.stdin.buffer:\n"
        "    if b'prepare {' in line: print('{\"prepared\": true}', flush=True)\n"
        "    if b'start {' in line: print('{\"started\": 4711}'); sys.exit(0)\n"
    )
    SWEEP: Final = 'print(\'{"final": {"left": [4712, 4713]}}\')'

    def command(self, host, program, *, alongside=False):
        del host, program
        return [sys.executable, "-c", self.SWEEP if alongside else self.SUPERVISOR]


def test_what_a_sweep_cannot_end_is_an_error_of_the_run(tmp_path):
    node = command(tmp_path, "true", at_end=())
    outcome = run_commands([node], time_limit_s=LONG_S, launcher=Vanishing())
    assert not outcome.succeeded
    assert "processes 4712, 4713 could not be ended" in str(outcome.error)
