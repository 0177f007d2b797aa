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
from launches import run_commands

from pytest_dlperf.launch.hosts import Host
from pytest_dlperf.launch.launchers import ADDRESS, Launcher
from pytest_dlperf.launch.plan import NodeCommand
from pytest_dlperf.launch.remote_call import sent_program, source_of
from pytest_dlperf.node import processes, roster, supervisor

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


def with_rosters_in(folder: Path, source: bytes) -> bytes:
    """Keep rosters apart: a run of another test would end what this one is to find."""
    shared = f'FOLDER = "{roster.FOLDER}"'.encode()
    assert source.count(shared) == 1
    return source.replace(shared, f'FOLDER = "{folder}"'.encode())


class Supervised:
    """A supervisor and its guardian, as a launcher starts them, and a program below."""

    def __init__(self, folder: Path, *prefix: str, kill_limit_s: float = 8.0) -> None:
        self.marker = f"{uuid.uuid4().hex}.0."
        self.folder = folder / f"run-{self.marker}"
        source = with_rosters_in(folder, source_of(supervisor))
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
            keeper=None,
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
    def supervisor(self) -> int:
        [supervisor] = [pid for pid in processes.watchers(self.marker) if pid != self.process.pid]
        return supervisor

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
        for process in (*processes.descendants(found.process.pid), found.process.pid):
            processes.send(process, signal.SIGKILL)
        found.process.wait(LONG_S)
        for pipe in (found.process.stdin, found.process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        roster.forget(found.marker)


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
    ],
    ids="-".join,
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
        numbers = {"supervisor": run.supervisor, "guardian": run.process.pid}
        for name, number in signals.items():
            os.kill(numbers[name], number)
        assert run.wait_for("clean") is True
        assert not is_running(process)
        assert {word: run.said(word) for word in told} == {k: [v] for k, v in told.items()}
        run.finish()
        assert not run.folder.exists()
        assert not (tmp_path / f"pytest-dlperf-{run.marker}").exists()
        assert not processes.watchers(run.marker)


@pytest.mark.parametrize("stopped", ["supervisor", "guardian"])
def test_a_stop_does_not_outlast_the_end_of_the_orders(
    tmp_path: Path, hidden: Callable[[], int], stopped: str
) -> None:
    with supervised(tmp_path) as run:
        run.start(sys.executable, "-c", STARTS, str(tmp_path / "hidden"))
        process = hidden()
        os.kill(run.supervisor if stopped == "supervisor" else run.process.pid, signal.SIGSTOP)
        run.finish()
        assert run.said("clean") == [True]
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
        wait_until(lambda: len(processes.watchers(run.marker)) >= 2)
        supervisor = max(processes.watchers(run.marker))
        os.kill(supervisor, signal.SIGSTOP)
        run.finish()
        assert run.said("supervisor_killed") == ["was stopped"]
        assert run.said("clean") == [True]


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
        os.kill(run.process.pid, signal.SIGTERM)
        os.kill(run.supervisor, signal.SIGTERM)  # Slurm signals all processes of a step
        run.wait_for("clean")
        run.finish()
        assert (run.said("signal"), run.said("ended")) == (["SIGTERM"], [7])
        # The guardian looks once more where anything is left to be waited for.
        assert set(run.said("clean")) == {True}


def test_what_two_kills_have_left_is_ended_by_the_next_run_and_told(
    tmp_path: Path, hidden: Callable[[], int]
) -> None:
    at_end = tmp_path / "at_end"
    with supervised(tmp_path) as first:
        first.start(
            sys.executable,
            "-c",
            STARTS,
            str(tmp_path / "hidden"),
            at_end=[["touch", str(at_end)]],
        )
        process = hidden()
        file = tmp_path / f"pytest-dlperf-{first.marker}"
        wait_until(lambda: f"[{process}, " in file.read_text())
        for number in (first.supervisor, first.process.pid):
            os.kill(number, signal.SIGSTOP)
        for number in (first.supervisor, first.process.pid):
            os.kill(number, signal.SIGKILL)
        assert is_running(process)
        with supervised(tmp_path) as second:
            assert process in second.wait_for("earlier")
            assert second.wait_for("prepared")
            assert not is_running(process)
            assert not first.folder.exists()
            assert not file.exists()
            assert at_end.exists()
            second.finish()


# In a process of its own: a roster lists all that runs below its process, and clean_up ends it.
LONG_ROSTER = """
import signal, subprocess, sys
from pathlib import Path
from pytest_dlperf.node import roster
from pytest_dlperf.node.remains import Remains

rosters, marker, folder = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
roster.FOLDER, roster._LONGEST_BYTES = str(rosters), 400
remains = Remains()
remains.note(sweep=marker, folder=str(folder))
kept = roster.Roster(marker)
kept.keep(remains)
children = []
for _ in range(20):
    children.append(subprocess.Popen(["/bin/sleep", "600"]))
    kept.look()
    listed = (rosters / f"pytest-dlperf-{marker}").read_text()
    assert all(f"[{child.pid}, " in listed for child in children), listed
assert len(listed) < 1500, listed
roster.clean_up({"watched_by": marker})
ends = [child.wait() for child in children]
assert ends == [-signal.SIGKILL] * 20, ends
"""


def test_a_long_roster_is_shortened_but_for_what_there_is_of_the_run(tmp_path: Path) -> None:
    """A trainer may start more processes than anybody wants to keep."""
    marker, folder = f"{uuid.uuid4().hex}.0.", tmp_path / "folder"
    folder.mkdir()
    command = [sys.executable, "-c", LONG_ROSTER, str(tmp_path), marker, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG_S, check=False)
    assert done.returncode == 0, done.stderr
    assert not folder.exists()


def test_what_two_kills_have_left_is_ended_by_a_sweep(
    tmp_path: Path, hidden: Callable[[], int]
) -> None:
    with supervised(tmp_path) as run:
        run.start(sys.executable, "-c", STARTS, str(tmp_path / "hidden"))
        process = hidden()
        time.sleep(0.5)
        os.kill(run.process.pid, signal.SIGSTOP)
        os.kill(run.supervisor, signal.SIGKILL)
        command, sent = sent_program(sys.executable, with_rosters_in(tmp_path, source_of(roster)))
        order: dict[str, object] = {
            "watched_by": run.marker,
            "sweep": run.marker,
            "folder": str(run.folder),
            "keeper": None,
            "at_end": [["false"]],
            "environment": {},
        }
        done = subprocess.run(
            command,
            input=sent + json.dumps(order).encode() + b"\n",
            capture_output=True,
            check=True,
            timeout=LONG_S,
        )
        assert b'{"clean": true, "left": []}' in done.stdout, (done.stdout, done.stderr)
        assert b"false: exit status 1" in done.stdout
        assert not is_running(process)
        assert not run.folder.exists()


def as_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs processes of two users: run the tests as root")


def test_what_cannot_be_ended_is_told_by_number_and_keeps_the_host_from_the_next_run(
    tmp_path: Path,
) -> None:
    as_root()
    folder = Path("/tmp", f"dlperf-{uuid.uuid4().hex}")  # noqa: S108 - another user has to get there
    folder.mkdir()
    folder.chmod(0o777)
    try:
        become_root = folder / "become-root"
        shutil.copy(shutil.which("setpriv") or "", become_root)
        become_root.chmod(0o4755)
        number = folder / "number"
        user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        program = f"{become_root} --reuid=0 sh -c 'echo $$ > {number}; exec sleep 600'"
        with supervised(folder, *user, kill_limit_s=0.5) as run:
            run.start("sh", "-c", f"{program} & exec sleep 600")
            wait_until(lambda: number.exists() and number.read_text())
            process = int(number.read_text())
            run.finish()
            assert (run.said("clean"), run.said("left")) == ([False], [[process]])
            with supervised(folder, *user, kill_limit_s=0.5) as refused:
                problem = refused.wait_for("cannot_prepare")
                assert f"process {process} could not be ended" in problem
                refused.finish()
            os.kill(process, signal.SIGKILL)
            wait_until(lambda: not is_running(process))
            with supervised(folder, *user) as fit:
                assert fit.wait_for("prepared")
                fit.finish()
    finally:
        shutil.rmtree(folder)
    del tmp_path


# Never the same process for longer than it takes to fork.
STORM: Final = """
import os, sys, time
end = time.time() + 20
if os.fork(): os._exit(0)
while time.time() < end:
    if os.fork(): os._exit(0)
    os.setsid()
"""


@pytest.mark.parametrize("environment", [{processes.MARKER: "storm.0."}, {}], ids=["marked", "no"])
def test_what_forks_all_the_time_does_not_escape(environment: dict[str, str]) -> None:
    program = [sys.executable, "-I", "-S", "-c", STORM]
    guard = (
        "import json, os, subprocess, sys\n"
        "from pytest_dlperf.node import processes\n"
        "program, environment, marked = json.loads(sys.argv[1])\n"
        "if not marked: processes.become_reaper()\n"
        "subprocess.run(program, env=environment)\n"
        "kind = processes.Marked('storm.0.') if marked else processes.Below(os.getpid())\n"
        "print(processes.end_all(kind, 5.0), kind.look())\n"
    )
    order = json.dumps([program, environment, bool(environment)])
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", guard, order],
            capture_output=True,
            text=True,
            check=True,
            timeout=LONG_S,
        )
        assert done.stdout == "[] []\n"
        assert not processes.Marked("storm.0.").look()


def test_a_control_group_holds_what_two_kills_have_left(
    tmp_path: Path, hidden: Callable[[], int]
) -> None:
    as_root()
    mounted = tmp_path / "groups"
    mounted.mkdir()
    mount = f'mount -t cgroup2 none "{mounted}" && exec "$@"'
    unshare = [shutil.which("unshare") or "", "-m", "sh", "-c", mount, ""]
    if subprocess.run([*unshare, "true"], check=False).returncode:
        pytest.skip("no control groups of version 2 can be mounted here")
    with supervised(tmp_path, *unshare) as run:
        run.start(sys.executable, "-c", STARTS, str(tmp_path / "hidden"))
        process = hidden()
        group = Path("/proc", str(process), "cgroup").read_text().split("0::")[1].strip()
        assert group.endswith(f"/pytest-dlperf-{run.marker.strip('.')}")
        run.finish()
        assert run.said("clean") == [True]
        assert not is_running(process)


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
    SWEEP: Final = 'print(\'{"clean": false, "left": [4712, 4713]}\')'

    def command(self, host: Host, program: Sequence[str], *, alongside: bool = False) -> list[str]:
        del host, program
        return [sys.executable, "-c", self.SWEEP if alongside else self.SUPERVISOR]


def test_what_a_sweep_cannot_end_is_an_error_of_the_run(tmp_path: Path) -> None:
    node = command(tmp_path, "true", at_end=())
    outcome = run_commands([node], time_limit_s=LONG_S, launcher=Vanishing())
    assert not outcome.succeeded
    assert "processes 4712, 4713 could not be ended" in str(outcome.error)
