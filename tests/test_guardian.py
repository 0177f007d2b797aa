"""Nothing escapes a supervisor and its guardian, whoever is killed, and however it hides."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest
from clusters.processes import LONG_S, is_running, wait_until
from clusters.processes import processes as all_processes
from launches import run_commands

from pytest_dlperf.launch.hosts import Host
from pytest_dlperf.launch.launchers import ADDRESS, Launcher
from pytest_dlperf.launch.plan import NodeCommand
from pytest_dlperf.launch.remote_call import sent_program, source_of
from pytest_dlperf.node import processes, remains, supervisor

PYTHON: Final = shutil.which("python3", path="/usr/bin") or sys.executable
"""One that any user may start."""
SLEEP: Final = "import time; time.sleep(600)"

# Leaves its parents and its session, clears its environment and closes its files.
HIDES: Final = f"""
import os, sys
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
open(sys.argv[1] + ".part", "w").write(str(os.getpid()))
os.rename(sys.argv[1] + ".part", sys.argv[1])
os.closerange(0, 100)
os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", {SLEEP!r}], {{}})
"""
STARTS: Final = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {HIDES!r}, sys.argv[1]])
{SLEEP}
"""


SIGNATURE: Final = f"_SIGNATURE = 0x{0x100 + os.getpid() % 0xC00:X}"
"""Keeps marks apart: a run of another test would end what this one is to find."""


def apart(source: bytes) -> bytes:
    shared = f"_SIGNATURE = 0x{processes._SIGNATURE:X}".encode()  # noqa: SLF001 - as said
    assert source.count(shared) == 1
    return source.replace(shared, SIGNATURE.encode())


class Supervised:
    """A supervisor and its guardian, as a launcher starts them, and a program below."""

    def __init__(self, folder: Path, *prefix: str, kill_limit_s: float = 8.0) -> None:
        self.marker = f"{uuid.uuid4().hex}.0."
        self.folder = folder / f"run-{self.marker}"
        source = apart(source_of(supervisor))
        limit = b"KILL_LIMIT_S = 8.0"
        assert source.count(limit) == 1
        source = source.replace(limit, f"KILL_LIMIT_S = {kill_limit_s}".encode())
        command, sent = sent_program(PYTHON, source, "0", self.marker)
        self.process = subprocess.Popen(
            [*prefix, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self.reports: list[dict[str, Any]] = []
        self._rest = b""
        self._send(sent)
        self._send_order(
            "prepare",
            run_lock=None,
            device_locks=[],
            sweep=self.marker,
            node_folder=str(self.folder),
            files={},
            row=(0, 0, ""),
            ipv6=False,
        )

    def start(self, *arguments: str, at_end: list[list[str]] | None = None) -> None:
        assert self.wait_for("prepared")
        self._send_order(
            "start",
            arguments=list(arguments),
            environment={processes.MARKER: self.marker},
            without="",
            in_front={},
            python_path=[],
            folder="/",
            needs_folder=False,
            grace_s=0.2,
            log_file=None,
            at_end=at_end or [],
        )
        self.wait_for("started")

    @property
    def watchers(self) -> dict[str, int]:
        """Who watches, by name; the guardian first, so that the supervisor does not see its end."""
        # The sentinel may come up after the first reports.
        wait_until(lambda: len(processes.watchers(self.marker)) == 3)
        found = set(processes.watchers(self.marker))
        parents = {one.pid: one.parent for one in all_processes() if one.pid in found}
        [supervisor] = [pid for pid, parent in parents.items() if parent in found]
        guardian = parents[supervisor]
        [sentinel] = found - {supervisor, guardian}
        return {"guardian": guardian, "supervisor": supervisor, "sentinel": sentinel}

    def kill(self, *names: str) -> None:
        """Kill some of those at once: none sees the end of another."""
        watchers = self.watchers
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for name in names:
                os.kill(watchers[name], number)

    def wait_for(self, word: str) -> Any:
        deadline = time.monotonic() + LONG_S
        while not (said := self.said(word)):
            assert time.monotonic() < deadline, f"never heard {word!r}: {self.reports}"
            assert self._take(), f"ended without {word!r}: {self.reports}"
        return said[0]

    def said(self, word: str) -> list[Any]:
        return [report[word] for report in self.reports if word in report]

    def finish(self) -> None:
        """Let its input end, and hear it out."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        while self._take():
            pass
        self.process.wait(LONG_S)

    def _take(self) -> bool:
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], LONG_S)[0], self.reports
        received = os.read(self.process.stdout.fileno(), 65536)
        *lines, self._rest = (self._rest + received).split(b"\n")
        self.reports += [json.loads(line) for line in lines if line]
        return bool(received)

    def _send_order(self, word: str, **details: object) -> None:
        self._send(f"{word} {json.dumps(details)}\n".encode())

    def _send(self, text: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text)
        self.process.stdin.flush()


@contextmanager
def supervised(folder: Path, *prefix: str, kill_limit_s: float = 8.0) -> Iterator[Supervised]:
    found = Supervised(folder, *prefix, kill_limit_s=kill_limit_s)
    try:
        yield found
    finally:
        below = processes.descendants(found.process.pid)
        for process in (*processes.watchers(found.marker), *below, found.process.pid):
            processes.send(process, signal.SIGKILL)
        found.process.wait(LONG_S)
        for pipe in (found.process.stdin, found.process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()


@pytest.fixture
def hidden(tmp_path: Path) -> Iterator[Callable[[], int]]:
    """Give the process that hides, once it does; it is ended in any case."""
    file = tmp_path / "hidden"

    def number() -> int:
        wait_until(file.exists)
        wait_until(lambda: not Path("/proc", file.read_text(), "environ").read_bytes())
        return int(file.read_text())

    yield number
    if file.exists():
        processes.send(int(file.read_text()), signal.SIGKILL)


@pytest.mark.parametrize(
    ("signals", "told"),
    [
        ({"supervisor": signal.SIGKILL}, {"supervisor_killed": "was killed by SIGKILL"}),
        ({"supervisor": signal.SIGSTOP}, {"supervisor_killed": "was stopped"}),
        ({"supervisor": signal.SIGABRT}, {"supervisor_killed": "was killed by SIGABRT"}),
        ({"guardian": signal.SIGKILL}, {"guardian_killed": True}),
        ({"sentinel": signal.SIGKILL}, {"guardian_killed": True}),
        (
            dict.fromkeys(("guardian", "supervisor"), signal.SIGKILL),
            {"supervisor_killed": "and its guardian were killed"},
        ),
        (
            dict.fromkeys(("guardian", "supervisor"), signal.SIGSTOP),
            {"supervisor_killed": "and its guardian were stopped"},
        ),
        (
            {"guardian": signal.SIGSTOP, "supervisor": signal.SIGKILL},
            {"supervisor_killed": "and its guardian were stopped"},
        ),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_one_of_them_ends_what_the_other_leaves(
    tmp_path: Path,
    hidden: Callable[[], int],
    signals: dict[str, signal.Signals],
    told: dict[str, object],
) -> None:
    with supervised(tmp_path) as run:
        run.start(sys.executable, "-c", STARTS, str(tmp_path / "hidden"))
        process = hidden()
        watchers = run.watchers
        for name in signals if len(signals) > 1 else ():
            os.kill(watchers[name], signal.SIGSTOP)
        for name, number in signals.items():
            os.kill(watchers[name], number)
        assert run.wait_for("final") == {"left": []}
        assert not is_running(process)
        assert {word: run.said(word) for word in told} == {k: [v] for k, v in told.items()}
        run.finish()
        assert not run.folder.exists()
        wait_until(lambda: not processes.watchers(run.marker))


def test_a_signal_at_the_very_end_is_no_death(tmp_path: Path) -> None:
    """Slurm asks all processes of a job to end, also those that are about to."""
    with supervised(tmp_path) as run:
        run.start("true")
        run.wait_for("ended")
        supervisor = run.watchers["supervisor"]
        assert run.process.stdin is not None
        run.process.stdin.close()
        run.wait_for("final")
        with suppress(ProcessLookupError):
            while True:
                os.kill(supervisor, signal.SIGTERM)
        run.finish()
        assert run.said("supervisor_killed") == []


@pytest.mark.parametrize("stopped", ["supervisor", "guardian", "sentinel"])
def test_a_stop_does_not_outlast_the_end_of_the_orders(
    tmp_path: Path, hidden: Callable[[], int], stopped: str
) -> None:
    with supervised(tmp_path) as run:
        run.start(sys.executable, "-c", STARTS, str(tmp_path / "hidden"))
        process = hidden()
        os.kill(run.watchers[stopped], signal.SIGSTOP)
        run.finish()
        assert run.said("final") == [{"left": []}]
        wait_until(lambda: not processes.watchers(run.marker))
        assert not is_running(process)


def test_a_socket_of_which_half_is_closed_is_the_end_of_the_orders(tmp_path: Path) -> None:
    """As sshd may have it; here in a small program between, since the supervisor is a child."""
    between = (
        "import os, socket, subprocess, sys\n"
        "ours, theirs = socket.socketpair()\n"
        "child = subprocess.Popen(sys.argv[1:], stdin=theirs)\n"
        "theirs.close()\n"
        "while True:\n"
        "    data = os.read(0, 65536)\n"
        "    if not data: break\n"
        "    ours.sendall(data)\n"
        "ours.shutdown(socket.SHUT_WR)\n"
        "sys.exit(child.wait())\n"
    )
    with supervised(tmp_path, sys.executable, "-c", between) as run:
        run.start("sleep", "600")
        os.kill(run.watchers["supervisor"], signal.SIGSTOP)
        run.finish()
        assert run.said("supervisor_killed") == ["was stopped"]
        assert run.said("final") == [{"left": []}]


def test_a_signal_to_the_guardian_is_one_to_the_supervisor(tmp_path: Path) -> None:
    code = (
        "import signal, sys, time\n"
        "signal.signal(15, lambda *_: sys.exit(7))\n"
        "open(sys.argv[1], 'w').close()\n"
        "time.sleep(600)"
    )
    with supervised(tmp_path) as run:
        run.start(sys.executable, "-c", code, str(tmp_path / "up"))
        wait_until((tmp_path / "up").exists)
        supervisor = run.watchers["supervisor"]
        os.kill(run.process.pid, signal.SIGTERM)
        with suppress(ProcessLookupError):
            os.kill(supervisor, signal.SIGTERM)  # Slurm signals all processes of a step
        run.wait_for("final")
        run.finish()
        assert (run.said("signal"), run.said("ended")) == (["SIGTERM"], [7])
        # The guardian looks once more where anything is left to be waited for.
        assert not any(report["left"] for report in run.said("final"))


def test_what_is_left_of_a_run_without_watchers_is_ended_by_the_next_run_and_told(
    tmp_path: Path, hidden: Callable[[], int]
) -> None:
    with supervised(tmp_path) as first, supervised(tmp_path) as beside:
        first.start(sys.executable, "-c", STARTS, str(tmp_path / "hidden"))
        beside.start("sleep", "600")
        process = hidden()
        first.kill("guardian", "supervisor", "sentinel")
        assert is_running(process)
        with supervised(tmp_path) as second:
            assert process in second.wait_for("earlier")
            assert second.wait_for("prepared")
            assert not is_running(process)
            second.finish()
        assert is_running(beside.said("started")[0])


@pytest.mark.parametrize("stopped", [(), ("guardian",), ("guardian", "supervisor", "sentinel")])
def test_what_is_left_is_ended_by_a_sweep_that_nobody_waits_for(
    tmp_path: Path, hidden: Callable[[], int], stopped: tuple[str, ...]
) -> None:
    with supervised(tmp_path) as run:
        run.start(sys.executable, "-c", STARTS, str(tmp_path / "hidden"))
        process = hidden()
        watchers = run.watchers
        for name in stopped:
            os.kill(watchers[name], signal.SIGSTOP)
        run.kill(*(name for name in watchers if name not in stopped))
        command, sent = sent_program(sys.executable, apart(source_of(remains)))
        order: dict[str, object] = {
            "watched_by": run.marker,
            "patience_s": 1.0,
            "sweep": run.marker,
            "folder": str(run.folder),
            "at_end": [["touch", str(tmp_path / "at_end")]],
            "environment": {},
        }
        done = subprocess.run(
            command,
            input=sent + json.dumps(order).encode() + b"\n",
            capture_output=True,
            check=True,
            timeout=LONG_S,
        )
        assert b'{"final": {"left": []}}' in done.stdout, (done.stdout, done.stderr)
        assert not is_running(process)
        wait_until(lambda: not run.folder.exists())
        wait_until((tmp_path / "at_end").exists)


def test_no_name_that_is_ended_by_pattern_is_that_of_all_watchers(tmp_path: Path) -> None:
    """``killall python3`` and ``pkill pytest`` go by it."""
    with supervised(tmp_path) as run:
        run.start("sleep", "600")
        names = [Path(f"/proc/{pid}/comm").read_text() for pid in run.watchers.values()]
        assert names == ["pytest-dlperf\n", "pytest-dlperf\n", "dlperf-sentinel\n"]
        run.finish()


FREEZER: Final = Path("/sys/fs/cgroup/freezer")


@pytest.fixture
def freezer() -> Iterator[Path]:
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
    tmp_path: Path, freezer: Path, hidden: Callable[[], int]
) -> None:
    with supervised(tmp_path, kill_limit_s=0.5) as run:
        run.start(sys.executable, "-c", STARTS, str(tmp_path / "hidden"))
        process = hidden()
        (freezer / "tasks").write_text(str(process))
        (freezer / "freezer.state").write_text("FROZEN")
        run.finish()
        assert run.said("final")[-1] == {"left": [process]}
        with supervised(tmp_path, kill_limit_s=0.5) as refused:
            problem = refused.wait_for("cannot_prepare")
            assert f"process {process} could not be ended" in problem
            refused.finish()
        (freezer / "freezer.state").write_text("THAWED")
        wait_until(lambda: not is_running(process))
        with supervised(tmp_path) as fit:
            assert fit.wait_for("prepared")
            fit.finish()


# Never the same process for longer than it takes to fork.
STORM: Final = """
import os, sys, time
end = time.time() + 20
if os.fork(): os._exit(0)
while time.time() < end:
    if os.fork(): os._exit(0)
    os.setsid()
"""


@pytest.mark.parametrize("kind", ["environment", "limits", "below"])
def test_what_forks_all_the_time_does_not_escape(kind: str) -> None:
    program = [sys.executable, "-I", "-S", "-c", STORM]
    guard = (
        "import json, os, subprocess, sys\n"
        "from pytest_dlperf.node import processes\n"
        "program, kind, marker = json.loads(sys.argv[1])\n"
        "if kind == 'below': processes.become_reaper()\n"
        "mark = (lambda: processes.set_mark(marker)) if kind == 'limits' else None\n"
        "environment = {processes.MARKER: marker} if kind == 'environment' else {}\n"
        "subprocess.run(program, env=environment, preexec_fn=mark)\n"
        "below = processes.Descendants(os.getpid())\n"
        "ours = below if kind == 'below' else processes.MarkedProcesses(marker)\n"
        "print(processes.end_all(ours, 5.0), ours.look())\n"
    )
    for _ in range(3):
        order = json.dumps([program, kind, f"{uuid.uuid4().hex}.0."])
        done = subprocess.run(
            [sys.executable, "-c", guard, order],
            capture_output=True,
            text=True,
            check=True,
            timeout=LONG_S,
        )
        assert done.stdout == "[] []\n"


def command(folder: Path, *arguments: str, at_end: tuple[tuple[str, ...], ...]) -> NodeCommand:
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


def test_commands_are_run_at_the_end_when_nothing_else_is_left(tmp_path: Path) -> None:
    at_end = f'pgrep -f {tmp_path}/[p]rogram; echo "$NAMED" $DLPERF_RUN_ID'
    program = f"(exec -a {tmp_path}/program sleep 600) & sleep 0.2"
    outcome = run_commands(
        [
            command(
                tmp_path,
                "bash",
                "-c",
                program,
                at_end=(("sh", "-c", f"({at_end}) > {tmp_path}/out"), ("no-such-program",)),
            )
        ],
        time_limit_s=LONG_S,
    )
    assert (tmp_path / "out").read_text() == "a name\n"
    assert "no-such-program: No such file or directory" in str(outcome.error)


class Vanishing(Launcher):
    """Its supervisors vanish once their program was started; a sweep finds what it cannot end."""

    name = "vanishing"
    remote = False

    SUPERVISOR: Final = (
        "import sys\n"
        'print(\'{"ready": "3.6"}\', flush=True)\n'
        "for line in sys.stdin.buffer:\n"
        "    if b'prepare {' in line: print('{\"prepared\": true, \"port\": 1}', flush=True)\n"
        "    if b'start {' in line: print('{\"started\": 4711}'); sys.exit(0)\n"
    )
    SWEEP: Final = 'print(\'{"final": {"left": [4712, 4713]}}\')'

    def command(self, host: Host, program: Sequence[str], *, alongside: bool = False) -> list[str]:
        del host, program
        return [sys.executable, "-c", self.SWEEP if alongside else self.SUPERVISOR]


def test_what_a_sweep_cannot_end_is_an_error_of_the_run(tmp_path: Path) -> None:
    node = command(tmp_path, "true", at_end=())
    outcome = run_commands([node], time_limit_s=LONG_S, launcher=Vanishing())
    assert not outcome.succeeded
    assert "processes 4712, 4713 could not be ended" in str(outcome.error)
