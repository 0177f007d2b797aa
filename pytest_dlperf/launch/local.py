"""Runs all nodes of a run on this machine, and leaves none of their processes behind.

Every agent is started by a supervisor of its own, which ends it and all of its descendants when the
run is over, or when the launching process is gone. Whatever they started by way of a service of the
machine, such as a container daemon, is out of its reach. Only processes that descend from a
supervisor, belong to its agent's process group or carry its marker are ever signalled.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
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
from typing import IO, TYPE_CHECKING, BinaryIO, Final

from pytest_dlperf.environment import load_average
from pytest_dlperf.launch import supervisor
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
"""How long the processes of a run may take to end after SIGTERM."""
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
# A tokenizer and an author are no secrets, and PASS is one only where no letter touches it.
_SECRET: Final = re.compile(
    r"TOKEN(?!IZ)|KEY|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|AUTH(?!ORS?(?![A-Z]))"
    r"|(?<![A-Z])PASS(?![A-Z])",
    re.IGNORECASE,
)
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
        not be started is an outcome too, with its ``error``; so is one whose log exists already and
        is not empty. What was executed and what became of it is kept in ``command.json`` in the
        run's folder, unless the logs cannot be written.

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
        may_record = False
        signals = _Signals()
        with signals:
            try:
                try:
                    agents.prepare()
                    may_record = True
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
                    if may_record:
                        record.write(outcome)
                except _LaunchError as error:
                    # A run that could not be started has often said so already.
                    outcome = replace(outcome, error=outcome.error or str(error))
        return outcome


class _LaunchError(Exception):
    """A run cannot be started or recorded; the message says what and where."""


class _Agent:
    """One node's program and the supervisor that it runs under."""

    __slots__ = (
        "_cannot_start",
        "_command",
        "_left",
        "_marker",
        "_process",
        "_received",
        "ended",
        "exit_code",
        "started",
    )

    def __init__(self, command: NodeCommand) -> None:
        """Start the supervisor, which waits for orders.

        Raises:
            _LaunchError: The log cannot be written or is that of another run, or the supervisor
                cannot be started.
        """
        self._command = command
        self._marker = uuid.uuid4().hex
        self._received = b""
        self._cannot_start: int | None = None
        self._left: list[int] = []
        self.started = False
        self.exit_code: int | None = None
        self.ended = False
        """Whether the supervisor has ended, after all that was below it."""
        _make_folder(command.log.parent)
        with _opened(command.log) as log:
            self._process = _started_supervisor(self._marker, log)

    @property
    def failed(self) -> bool:
        """Whether the program has ended with an error, or nobody knows how it ended."""
        return self.ended if self.exit_code is None else self.exit_code != 0

    @property
    def done(self) -> bool:
        """Whether the program has ended."""
        return self.ended or self.exit_code is not None

    def start(self) -> None:
        """Start the program.

        Raises:
            _LaunchError: The program or its folder is not there.
        """
        command = self._command
        node = f"cannot start node {command.node_rank}"
        folder = command.working_directory
        if folder is not None and not Path(folder).is_dir():
            raise _LaunchError(f"{node}: its working directory {folder!r} is no folder here")
        environment = {
            **_own_environment(os.environ),
            "PYTHONUNBUFFERED": "1",
            **command.environment,
            supervisor.MARKER: self._marker,
        }
        self.order(
            supervisor.start_order(
                list(command.arguments), environment, folder=folder, grace_s=TERMINATION_GRACE_S
            )
        )
        while not (self.ended or self.started or self._cannot_start is not None):
            self.receive()
        if self._cannot_start is not None:
            program = command.arguments[0]
            where = "" if "/" in program else " in the folders of PATH"
            reason = os.strerror(self._cannot_start)
            raise _LaunchError(f"{node}: program {program!r}{where}: {reason}")
        if not self.started:
            raise _LaunchError(f"{node}: its supervisor has ended; {command.log} may say why")

    def fileno(self) -> int:
        """Where the reports of the supervisor come in."""
        return _pipe(self._process.stdout).fileno()

    def order(self, order: bytes) -> None:
        """Give the supervisor an order, unless it has ended."""
        # Where it has, the end of its reports says so.
        with contextlib.suppress(BrokenPipeError):
            orders = _pipe(self._process.stdin)
            orders.write(order)
            orders.flush()

    def receive(self) -> None:
        """Take what the supervisor reports; wait for it if need be."""
        received = os.read(self.fileno(), 65536)
        self.ended = not received
        *lines, self._received = (self._received + received).split(b"\n")
        for line in lines:
            report = json.loads(line)
            self.started = self.started or "started" in report
            self._cannot_start = report.get("cannot_start", self._cannot_start)
            self.exit_code = report.get("ended", self.exit_code)
            self._left = report.get("left", self._left)

    def close(self) -> list[str]:
        """Be done with the supervisor, which has ended or should have.

        Returns:
            What went wrong with it, as messages.
        """
        node = self._command.node_rank
        problems = []
        if not self.ended or (self.started and self.exit_code is None):
            self._process.kill()
            self._left = supervisor.kill_marked(self._marker)
            problems.append(f"the supervisor of node {node} did not end as it should")
        if self._left:
            problems.append(f"processes {self._left} of node {node} could not be ended")
        with contextlib.suppress(BrokenPipeError):
            _pipe(self._process.stdin).close()
        _pipe(self._process.stdout).close()
        self._process.wait()
        return problems


class _Agents:
    """The agents of one run, from their start until their last process is gone."""

    __slots__ = ("_agents", "_commands", "_reports", "log_size_at_failure")

    def __init__(self, commands: Sequence[NodeCommand]) -> None:
        self._commands = commands
        self._agents: list[_Agent] = []
        self._reports = selectors.DefaultSelector()
        self.log_size_at_failure: int | None = None

    def prepare(self) -> None:
        """Make everything ready that can be before the first program starts.

        Raises:
            _LaunchError: A log cannot be written, or is that of another run.
        """
        for command in self._commands:
            agent = _Agent(command)
            self._agents.append(agent)
            self._reports.register(agent, selectors.EVENT_READ)

    def start(self) -> None:
        """Start the program of each node.

        Raises:
            _LaunchError: A program or its folder is not there.
        """
        for agent in self._agents:
            agent.start()

    def wait(self, deadline: float, *, stop: Callable[[], bool]) -> bool:
        """Wait for the agents to end, and say whether the deadline (monotonic) came first.

        Also returns when ``stop`` says so, or some seconds after the first agent has failed.
        """
        while not stop():
            failed = any(agent.failed for agent in self._agents)
            if failed:
                self._note_log_size()
            if self._all_done():
                break
            if failed:
                # What is left of the run has failed too: whether it ends in time says nothing.
                self._listen(PEER_GRACE_S, until=lambda: stop() or self._all_done())
                break
            if time.monotonic() >= deadline:
                return True
            self._take_reports()
        return False

    def end(self, *, hurry: Callable[[], bool]) -> list[str]:
        """End what is left of the run: politely at first, unless in a hurry; then for certain.

        Returns:
            What went wrong, as messages.
        """
        if any(agent.started and agent.exit_code != 0 for agent in self._agents):
            self._note_log_size()
        try:
            self._order(b"end\n")
            self._listen(TERMINATION_GRACE_S, until=lambda: hurry() or self._all_ended())
        finally:
            self._order(b"kill\n")
            self._listen(3 * supervisor.KILL_LIMIT_S, until=self._all_ended)
            self._reports.close()
            problems = [problem for agent in self._agents for problem in agent.close()]
        return problems

    def exit_codes(self) -> tuple[int | None, ...]:
        """The agents' exit codes, ``None`` where there is none."""
        codes = [agent.exit_code for agent in self._agents]
        return tuple(codes + [None] * (len(self._commands) - len(codes)))

    def _all_done(self) -> bool:
        return all(agent.done for agent in self._agents)

    def _all_ended(self) -> bool:
        return all(agent.ended for agent in self._agents)

    def _order(self, order: bytes) -> None:
        for agent in self._agents:
            agent.order(order)

    def _listen(self, limit_s: float, *, until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + limit_s
        while not until() and time.monotonic() < deadline:
            self._take_reports()

    def _take_reports(self) -> None:
        """Wait for reports, for a moment only: a signal's handler does not end the waiting."""
        for key, _ in self._reports.select(POLL_S):
            for agent in self._agents:
                if agent is key.fileobj:
                    agent.receive()
                    if agent.ended:
                        self._reports.unregister(agent)

    def _note_log_size(self) -> None:
        """Keep the main log's size, unless it has been kept before."""
        if self.log_size_at_failure is None:
            with contextlib.suppress(OSError):
                self.log_size_at_failure = self._commands[0].log.stat().st_size


class _Record:
    """The file beside a run's log that keeps what was executed, and how it ended."""

    __slots__ = ("_commands", "_load_average", "_path", "_started", "_time_limit_s")

    def __init__(self, commands: Sequence[NodeCommand], time_limit_s: float) -> None:
        self._commands = commands
        self._path = run_directory(commands[0].log) / COMMAND_FILE
        self._time_limit_s = time_limit_s
        self._started = datetime.now(timezone.utc).astimezone()
        self._load_average = load_average()

    def write(self, outcome: LaunchOutcome | None) -> None:
        """Write the record, or write it again with the outcome.

        Raises:
            _LaunchError: It cannot be written.
        """
        nodes = [
            {
                "node_rank": command.node_rank,
                "address": command.address,
                "arguments": _masked_arguments(command.arguments),
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
            "log_size_at_failure": outcome.log_size_at_failure if outcome else None,
            "load_average_before": self._load_average,
            "load_average_after": load_average() if outcome else None,
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
    return {name: _MASK if _SECRET.search(name) else value for name, value in environment.items()}


def _masked_arguments(arguments: Sequence[str]) -> list[str]:
    """Arguments without the values that look like secrets by what they are given to.

    These are the rest of ``NAME=VALUE``, wherever in an argument it stands, and the argument
    behind an option.
    """
    masked = []
    option = ""
    for argument in arguments:
        is_option = argument.startswith("-")
        hidden = _SECRET.search(option) and not is_option
        masked.append(_MASK if hidden else _masked_argument(argument))
        option = argument if is_option and "=" not in argument else ""
    return masked


def _masked_argument(argument: str) -> str:
    """The argument without all that stands behind the first secret's name and ``=``."""
    parts = argument.split("=")
    for index, name in enumerate(parts[:-1]):
        if _SECRET.search(name):
            return "=".join((*parts[: index + 1], _MASK))
    return argument


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _LaunchError(f"cannot make the log folder {folder}: {error.strerror}") from error


def _opened(log: Path) -> BinaryIO:
    try:
        opened = log.open("ab")
    except OSError as error:
        raise _LaunchError(f"cannot write the log {log}: {error.strerror}") from error
    if os.fstat(opened.fileno()).st_size:
        opened.close()
        raise _LaunchError(f"the log {log} is not empty: another run has written it")
    return opened


def _started_supervisor(marker: str, log: BinaryIO) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603 - a program of our own
            [sys.executable, "-I", "-S", supervisor.__file__, marker],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    except OSError as error:
        raise _LaunchError(f"cannot start a supervisor: {error.strerror}") from error


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    """A pipe that was asked for when its process was started."""
    if stream is None:
        raise AssertionError("every supervisor has its pipes")
    return stream
