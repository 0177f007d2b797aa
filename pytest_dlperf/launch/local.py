"""Runs all nodes of a run on this machine, and leaves none of their processes behind.

A launcher of distributed training, such as torchrun, starts its workers in sessions of their own:
a signal to the process group that was started does not reach them, and they outlive a launcher
that is killed. Every process of a run therefore carries a marker in its environment, by which the
run's end finds what is left of it. Only processes with the marker are ever touched. Should the
launching process be killed itself, a watchdog does the same.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from pytest_dlperf.launch import watchdog
from pytest_dlperf.launch.plan import run_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import FrameType, TracebackType

    from pytest_dlperf.launch.plan import NodeCommand

ADDRESS: Final = "127.0.0.1"
COMMAND_FILE: Final = "command.json"

PEER_GRACE_S: Final = 5.0
"""How long the other nodes may go on after one has failed: time to write their own errors."""
TERMINATION_GRACE_S: Final = 5.0
"""How long agents may take to end after SIGTERM."""
POLL_S: Final = 0.05

# What pytest, its plugins and torchrun put into the environment of their children. In a trainer it
# would switch on coverage measurement, or make a single process believe to be one rank of many.
_FOREIGN_PREFIXES: Final = (
    "PYTEST_",
    "COV_CORE_",
    "COVERAGE_PROCESS_",
    "TORCHELASTIC_",
)
_FOREIGN_NAMES: Final = frozenset(
    {
        "RANK",
        "LOCAL_RANK",
        "GROUP_RANK",
        "ROLE_RANK",
        "ROLE_NAME",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "GROUP_WORLD_SIZE",
        "ROLE_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
    }
)
_SECRET_WORDS: Final = ("TOKEN", "KEY", "SECRET", "PASSWORD", "CREDENTIAL")
_MASK: Final = "***"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOutcome:
    """What became of the processes of one run.

    ``exit_codes`` has one entry per node, node 0 first: the agent's exit code, the negative number
    of the signal that ended it, or ``None`` where it was not started. ``elapsed_s`` is in seconds,
    from the first start to the end of the clean-up. ``error`` says what kept the run from being
    started, recorded or ended. ``log_size_at_failure`` is how many bytes the log of node 0 had when
    the first agent was seen to have failed, or when the time limit, a signal or an exception ended
    the run: what stands behind them was printed by a run that was broken already. It is ``None``
    where every started agent ended without an error.
    """

    exit_codes: tuple[int | None, ...]
    elapsed_s: float
    timed_out: bool = False
    error: str | None = None
    log_size_at_failure: int | None = None

    @property
    def succeeded(self) -> bool:
        """Whether every node ended by itself, without an error."""
        return (
            not self.timed_out and self.error is None and all(code == 0 for code in self.exit_codes)
        )


class LocalLauncher:
    """Starts the agents of all nodes on this machine and waits until the last one is gone."""

    __slots__ = ()

    def addresses(self, nodes: int) -> tuple[str, ...]:
        """The addresses of that many nodes, all of them this machine."""
        return (ADDRESS,) * nodes

    @contextlib.contextmanager
    def reserved_port(self) -> Iterator[int]:
        """A TCP port that nobody else on this machine is given before the block ends.

        The port stays bound, without listening, by a socket with SO_REUSEADDR. The kernel hands it
        to nobody who asks for any port, while a server that asks for this one and sets the same
        option, as servers on fixed ports do, gets it.
        """
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as holder:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(("", 0))
            yield int(holder.getsockname()[1])

    def run(self, commands: Sequence[NodeCommand], *, time_limit_s: float) -> LaunchOutcome:
        """Run the agents of all nodes to their end; nothing of the run is left when this returns.

        The same holds when it is left by an exception. SIGINT, SIGTERM and SIGHUP do what they
        would have done after the run has been ended, when they arrive in the main thread.

        Once one node has failed, the others have ``PEER_GRACE_S`` seconds to end. A run that could
        not be started is an outcome too, with its ``error``. What was executed and what became of
        it is kept in ``command.json`` in the run's folder.

        Args:
            commands: One per node, node 0 first.
            time_limit_s: Seconds after which the run is ended.

        Raises:
            ValueError: There is no command, or the main log is not named ``*.log``.
            KeyboardInterrupt: SIGINT arrived.
        """
        if not commands:
            raise ValueError("a run needs the command of one node at least")
        agents = _Agents(commands)
        record = _Record(commands, time_limit_s)
        started = time.monotonic()
        timed_out = False
        errors = []
        signals = _Signals()
        with signals:
            try:
                try:
                    record.write(None)
                    agents.start()
                except _LaunchError as error:
                    errors.append(str(error))
                else:
                    timed_out = agents.wait(started + time_limit_s, stop=signals.arrived)
            finally:
                errors += agents.end(hurry=signals.arrived_again)
                outcome = LaunchOutcome(
                    exit_codes=agents.exit_codes(),
                    elapsed_s=time.monotonic() - started,
                    timed_out=timed_out,
                    error="; ".join(errors) or None,
                    log_size_at_failure=agents.log_size_at_failure,
                )
                try:
                    record.write(outcome)
                except _LaunchError as error:
                    # A run that could not be started has often said so already.
                    outcome = replace(outcome, error=outcome.error or str(error))
        return outcome


class _LaunchError(Exception):
    """A run cannot be started or recorded; the message says what and where."""


class _Agents:
    """The processes of one run, from their start until the last one is gone."""

    __slots__ = ("_commands", "_marker", "_processes", "_watchdog", "log_size_at_failure")

    def __init__(self, commands: Sequence[NodeCommand]) -> None:
        self._commands = commands
        self._marker = uuid.uuid4().hex
        self._processes: list[subprocess.Popen[bytes]] = []
        self._watchdog: subprocess.Popen[bytes] | None = None
        self.log_size_at_failure: int | None = None

    def start(self) -> None:
        """Start one agent per node.

        Raises:
            _LaunchError: A log cannot be written, or a program or its folder is not there.
        """
        self._watchdog = _started_watchdog(self._marker)
        for command in self._commands:
            environment = {
                **_own_environment(os.environ),
                "PYTHONUNBUFFERED": "1",
                **command.environment,
                watchdog.MARKER: self._marker,
            }
            _make_folder(command.log.parent)
            with _opened(command.log) as log:
                self._processes.append(_started(command, environment, log))

    def wait(self, deadline: float, *, stop: Callable[[], bool]) -> bool:
        """Wait for the agents to end, and say whether the deadline (monotonic) came first.

        Also returns when ``stop`` says so, or some seconds after the first agent has failed.
        """
        while not stop():
            codes = [_exit_code(process) for process in self._processes]
            now = time.monotonic()
            if any(codes):
                self._note_log_size()
            if None not in codes:
                break
            if any(codes):
                # What is left of the run has failed too: whether it ends in time says nothing.
                self._wait_for_all(PEER_GRACE_S, stop=stop)
                break
            if now >= deadline:
                return True
            time.sleep(POLL_S)
        return False

    def end(self, *, hurry: Callable[[], bool]) -> list[str]:
        """End what is left of the run: politely at first, unless in a hurry; then for certain.

        Returns:
            What could not be ended, as messages.
        """
        try:
            if any(_exit_code(process) != 0 for process in self._processes):
                self._note_log_size()
            if self._signal_groups(signal.SIGTERM, only_running=True):
                self._wait_for_all(TERMINATION_GRACE_S, stop=hurry)
        finally:
            self._signal_groups(signal.SIGKILL, only_running=False)
            left = watchdog.kill_run(self._marker)
            # Reaped last: until then, the numbers of the agents' process groups are taken and
            # cannot mean another program.
            for process in self._processes:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(watchdog.KILL_LIMIT_S)
            if self._watchdog is not None:
                # It sees the end of its input, finds nothing more to kill, and ends.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._watchdog.communicate(timeout=2 * watchdog.KILL_LIMIT_S)
        return [f"processes {left} of the run could not be ended"] if left else []

    def exit_codes(self) -> tuple[int | None, ...]:
        """The agents' exit codes, ``None`` where there is none."""
        codes: list[int | None] = [process.returncode for process in self._processes]
        return tuple(codes + [None] * (len(self._commands) - len(codes)))

    def _note_log_size(self) -> None:
        """Keep the main log's size, unless it has been kept before."""
        if self.log_size_at_failure is None:
            with contextlib.suppress(OSError):
                self.log_size_at_failure = self._commands[0].log.stat().st_size

    def _wait_for_all(self, limit_s: float, *, stop: Callable[[], bool]) -> None:
        deadline = time.monotonic() + limit_s
        while not stop() and time.monotonic() < deadline:
            if all(_exit_code(process) is not None for process in self._processes):
                return
            time.sleep(POLL_S)

    def _signal_groups(self, number: signal.Signals, *, only_running: bool) -> bool:
        """Signal the agents' process groups, and say whether there was any to signal."""
        signalled = False
        for process in self._processes:
            if only_running and _exit_code(process) is not None:
                continue
            # A group of which only the agent is left, not yet reaped, may not be there any more.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
                signalled = True
        return signalled


class _Record:
    """The file beside a run's log that keeps what was executed, and how it ended."""

    __slots__ = ("_commands", "_load_average", "_path", "_started", "_time_limit_s")

    def __init__(self, commands: Sequence[NodeCommand], time_limit_s: float) -> None:
        self._commands = commands
        self._path = run_directory(commands[0].log) / COMMAND_FILE
        self._time_limit_s = time_limit_s
        self._started = datetime.now(timezone.utc).astimezone()
        self._load_average = _load_average()

    def write(self, outcome: LaunchOutcome | None) -> None:
        """Write the record, or write it again with the outcome.

        Raises:
            _LaunchError: It cannot be written.
        """
        nodes = [
            {
                "node_rank": command.node_rank,
                "address": command.address,
                "arguments": command.arguments,
                "working_directory": command.working_directory or os.getcwd(),  # noqa: PTH109
                "environment": _masked(command.environment),
                "log": str(command.log),
                "exit_code": outcome.exit_codes[index] if outcome else None,
            }
            for index, command in enumerate(self._commands)
        ]
        record = {
            "started": self._started.isoformat(),
            "time_limit_s": self._time_limit_s,
            "elapsed_s": round(outcome.elapsed_s, 3) if outcome else None,
            "timed_out": outcome.timed_out if outcome else None,
            "error": outcome.error if outcome else None,
            "load_average_before": self._load_average,
            "load_average_after": _load_average() if outcome else None,
            "nodes": nodes,
        }
        _make_folder(self._path.parent)
        try:
            self._path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise _LaunchError(f"cannot write {self._path}: {error.strerror}") from error


class _Signals:
    """Keeps signals that end this process waiting until the block is left.

    They are noted, never raised, inside the block: an exception in the middle of a clean-up would
    leave the rest of it undone. Python allows this in the main thread only; elsewhere the block
    does nothing.
    """

    __slots__ = ("_handlers", "_received")

    _NUMBERS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self._received: list[int] = []
        self._handlers: dict[int, Callable[[int, FrameType | None], object] | int] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in self._NUMBERS:
                handler = signal.getsignal(number)
                # A handler that is not Python's own cannot be put back.
                if handler is not None and handler != signal.SIG_IGN:
                    self._handlers[number] = handler
                    signal.signal(number, self._note)

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        for number in dict.fromkeys(self._received):
            signal.raise_signal(number)

    def arrived(self) -> bool:
        """Whether any signal has come."""
        return bool(self._received)

    def arrived_again(self) -> bool:
        """Whether a second signal has come: somebody is losing patience."""
        return len(self._received) > 1

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._received.append(number)


def _own_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without what belongs to the tests or to an outer run."""
    return {
        name: value
        for name, value in environment.items()
        if name not in _FOREIGN_NAMES and not name.startswith(_FOREIGN_PREFIXES)
    }


def _masked(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without the values that look like secrets by their names."""
    return {
        name: _MASK if any(word in name.upper() for word in _SECRET_WORDS) else value
        for name, value in environment.items()
    }


def _load_average() -> list[float] | None:
    """The machine's load over 1, 5 and 15 minutes, where the machine says."""
    try:
        return [round(load, 2) for load in os.getloadavg()]
    except OSError:
        return None


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _LaunchError(f"cannot make the log folder {folder}: {error.strerror}") from error


def _opened(log: Path) -> BinaryIO:
    try:
        return log.open("ab")
    except OSError as error:
        raise _LaunchError(f"cannot write the log {log}: {error.strerror}") from error


def _started_watchdog(marker: str) -> subprocess.Popen[bytes]:
    # Isolated and without site packages, it is up in a hundredth of a second; in a session of its
    # own, it outlives what ends the launching process's group.
    try:
        return subprocess.Popen(  # noqa: S603 - a program of our own
            [sys.executable, "-I", "-S", watchdog.__file__, marker],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        raise _LaunchError(f"cannot start the run's watchdog: {error.strerror}") from error


def _started(
    command: NodeCommand, environment: dict[str, str], log: BinaryIO
) -> subprocess.Popen[bytes]:
    folder = command.working_directory
    node = f"cannot start node {command.node_rank}"
    if folder is not None and not Path(folder).is_dir():
        raise _LaunchError(f"{node}: its working directory {folder!r} is no folder here")
    try:
        return subprocess.Popen(  # noqa: S603 - to start the given program is the purpose
            command.arguments,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        program = command.arguments[0]
        where = "" if "/" in program else " in the folders of PATH"
        raise _LaunchError(f"{node}: program {program!r}{where}: {error.strerror}") from error


def _exit_code(process: subprocess.Popen[bytes]) -> int | None:
    """The exit code of a process that has ended, which is left unreaped."""
    if process.returncode is not None:
        return process.returncode
    ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
