"""One node of a run as it is seen from here: its supervisor, reached through a launcher."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, final
from weakref import WeakSet

from pytest_dlperf.launch import supervisor
from pytest_dlperf.launch.remote_call import sent_program, source_of
from pytest_dlperf.model.errors import BrokenError

if TYPE_CHECKING:
    from typing import BinaryIO

    from pytest_dlperf.launch.hosts import Host
    from pytest_dlperf.launch.launchers import Launcher
    from pytest_dlperf.launch.plan import NodeCommand

HEARTBEAT_TIMEOUT_S: Final = 5.0
"""Seconds of silence, where a network lies between, after which each side gives the other up."""
TERMINATION_GRACE_S: Final = 3.0
"""How long the processes of a run may take to end after SIGTERM.

Whatever comes before, silence or the time that is left to the other nodes, all is gone 10 s after
a run has come to its end.
"""
LAST_WORDS_BYTES: Final = 2048

# What pytest, its plugins and torchrun put into the environment of their children. In a trainer it
# would switch on coverage measurement, or make a single process believe to be one rank of many.
_FOREIGN_PREFIXES: Final = (
    "PYTEST_",
    "COV_CORE_",
    "COVERAGE_PROCESS_",
    "TORCHELASTIC_",
)
_FOREIGN_NAMES: Final = (
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
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one node of a run goes, before it is known what it runs.

    ``device_ids`` are the devices that it uses, ``locked_devices`` those that nobody else may use
    meanwhile who locks under the same ``lock_scope`` on that machine. Its output, errors included,
    goes to ``log``.
    """

    host: Host
    device_ids: tuple[int, ...]
    locked_devices: tuple[int, ...]
    lock_scope: str
    log: Path


@final
class SupervisorClient:
    """One node's program and the supervisor that it runs under."""

    __slots__ = (
        "_cannot_prepare",
        "_cannot_start",
        "_heard_at",
        "_left",
        "_orders_lock",
        "_process",
        "_received",
        "_remote",
        "_started_with",
        "_told",
        "busy",
        "clean",
        "ended",
        "exit_code",
        "kept",
        "lost",
        "marker",
        "place",
        "port",
        "ready",
        "started",
    )

    def __init__(
        self, launcher: Launcher, place: Place, marker: str, *, again: bool = False
    ) -> None:
        """Start the supervisor, which waits for orders.

        With ``again`` the log may hold what an earlier try of the same run has left in it.

        Raises:
            BrokenError: The log cannot be written or is that of another run, or the launcher's
                command cannot be started.
        """
        self.place = place
        self.marker = marker
        self._remote = launcher.remote
        self._received = b""
        self._cannot_prepare: str | None = None
        self._cannot_start: tuple[str | None] | None = None
        self._started_with: NodeCommand | None = None
        self._left: list[int] = []
        self._told: str | None = None
        self.kept: str | None = None
        """What of the scratch folder could not be removed, and why."""
        self.ready = False
        self.busy = False
        """Whether another run has locked a device of the host."""
        self.port: int | None = None
        self.started = False
        self.exit_code: int | None = None
        self.ended = False
        """Whether the supervisor has ended, or is out of reach."""
        self.clean = False
        """Whether it has ended after all that was below it, as it should."""
        self.lost: str | None = None
        """Why it is out of reach."""
        source = source_of(supervisor.__file__)
        program = sent_program(
            launcher.python, source, str(HEARTBEAT_TIMEOUT_S if launcher.remote else 0.0)
        )
        command = launcher.command(place.host, program)
        with _opened(place.log, again=again) as log:
            self._process = _started(command, log)
        self._orders_lock = threading.Lock()
        self._heard_at = time.monotonic()
        _WITH_INPUT.add(self._process)
        self.order(source)

    @property
    def failed(self) -> bool:
        """Whether the program has ended with an error, or nobody knows how it ended."""
        return self.ended if self.exit_code is None else self.exit_code != 0

    @property
    def done(self) -> bool:
        """Whether the program has ended."""
        return self.ended or self.exit_code is not None

    def release(self) -> None:
        """Have taken back what was prepared, for another run to have it."""
        self.port = None
        self.order(b"release\n")

    @property
    def prepared(self) -> bool:
        """Whether the node is ready to start its program."""
        return self.port is not None

    @property
    def has_prepared(self) -> bool:
        """Whether it is known if the node is ready, for better or worse."""
        return self.prepared or self.busy or self.ended or self._cannot_prepare is not None

    def prepare(self, *, scope: str, sweep: str, scratch: str) -> None:
        """Have the devices locked, a port held and the scratch folder made."""
        place = self.place
        self.busy = False
        self.order(
            supervisor.prepare_order(
                scope=scope,
                devices=list(place.locked_devices),
                sweep=sweep,
                scratch=scratch,
                ipv6=":" in place.host.address,
            )
        )

    def start(self, command: NodeCommand) -> None:
        """Have the program started."""
        self._started_with = command
        folder = command.working_directory
        self.order(
            supervisor.start_order(
                list(command.arguments),
                {
                    "PYTHONUNBUFFERED": "1",
                    **command.environment,
                    supervisor.MARKER: self.marker,
                },
                without_names=list(_FOREIGN_NAMES),
                without_prefixes=list(_FOREIGN_PREFIXES),
                folder=str(Path.cwd() / (folder or "")),
                needs_folder=folder is not None,
                grace_s=TERMINATION_GRACE_S,
            )
        )

    def answered(self) -> bool:
        """Whether it is known if the program has been started."""
        return self.ended or self.started or self._cannot_start is not None

    def check_reached(self, limit_s: float | None) -> None:
        """Check that the supervisor is there; with ``None``, that it may still come.

        Raises:
            BrokenError: It is not; it was given ``limit_s`` seconds.
        """
        if self.ended and not self.ready:
            raise BrokenError(f"{self._where()}: {self.lost or self._last_words()}")
        if not self.ready and limit_s is not None:
            raise BrokenError(f"{self._where()}: no answer for {limit_s:g} s")

    def check_prepared(self, limit_s: float) -> None:
        """Check that the node is ready or busy, as opposed to unusable.

        Raises:
            BrokenError: It is unusable, or has not answered in ``limit_s`` seconds.
        """
        if self._cannot_prepare is not None:
            raise BrokenError(f"{self._where()}: {self._cannot_prepare}")
        if self.ended:
            raise BrokenError(f"{self._where()}: {self.lost or self._last_words()}")
        if not self.has_prepared:
            raise BrokenError(f"{self._where()}: no answer for {limit_s:g} s when it was prepared")

    def check_started(self, limit_s: float) -> None:
        """Check that the program was started.

        Raises:
            BrokenError: It was not: the program or its folder is not there, or nobody has
                answered in ``limit_s`` seconds.
        """
        command = self._started_with
        if self._cannot_start is not None and command is not None:
            reason = self._cannot_start[0]
            node = f"cannot start node {command.node_rank}{self._on_host()}"
            if reason is None:
                folder = command.working_directory
                raise BrokenError(f"{node}: its working directory {folder!r} is no folder there")
            program = command.arguments[0]
            where = "" if "/" in program else " in the folders of PATH"
            raise BrokenError(f"{node}: program {program!r}{where}: {reason}")
        if self.ended and not self.started:
            raise BrokenError(f"{self._where()}: {self.lost or self._last_words()}")
        if not self.answered():
            raise BrokenError(f"{self._where()}: no answer for {limit_s:g} s at the start")

    def fileno(self) -> int:
        """Where the reports of the supervisor come in."""
        return _pipe(self._process.stdout).fileno()

    def order(self, order: bytes) -> None:
        """Give the supervisor an order, unless it has ended."""
        orders = _pipe(self._process.stdin)
        # Where it has, the end of its reports says so.
        with self._orders_lock, contextlib.suppress(BrokenPipeError):
            if not orders.closed:
                orders.write(order)
                orders.flush()

    def check_life(self, now: float) -> None:
        """Give up a distant supervisor that shows no sign of life."""
        if not self._remote or self.ended:
            return
        if not self.ready:
            self._heard_at = now  # connecting has a limit of its own
        if now - self._heard_at > HEARTBEAT_TIMEOUT_S and not self._has_news():
            self.give_up(f"no sign of life for {HEARTBEAT_TIMEOUT_S:g} s: the connection is lost")

    def _has_news(self) -> bool:
        """Whether something has come in meanwhile: it may be this process that stood still."""
        poll = select.poll()
        poll.register(self, select.POLLIN)
        return bool(poll.poll(0))

    def give_up(self, reason: str) -> None:
        """Take it as out of reach: its supervisor, hearing nothing either, ends what is there."""
        self.lost = reason
        self.ended = True
        self._process.kill()

    def abandon(self) -> None:
        """Be done with a supervisor that has nothing to clean up: the end of its input ends it."""
        self.ended = True
        self._process.kill()
        self._close_pipes()
        self._process.wait()

    def receive(self) -> None:
        """Take what the supervisor reports; wait for it if need be."""
        received = os.read(self.fileno(), 65536)
        self._heard_at = time.monotonic()
        self.ended = self.ended or not received
        *lines, self._received = (self._received + received).split(b"\n")
        for line in lines:
            # A login shell may greet first.
            with contextlib.suppress(ValueError):
                report = json.loads(line)
                if isinstance(report, dict):
                    self._take(report)

    def _take(self, report: dict[str, Any]) -> None:
        self.ready = self.ready or "ready" in report
        if not self.ready:
            return  # it was printed by something on the way
        self.busy = self.busy or "busy" in report
        self.port = report.get("port", self.port)
        self._cannot_prepare = report.get("cannot_prepare", self._cannot_prepare)
        self.started = self.started or "started" in report
        if "cannot_start" in report:
            self._cannot_start = (report["cannot_start"],)
        self.exit_code = report.get("ended", self.exit_code)
        self._left = report.get("left", self._left)
        self.clean = self.clean or "clean" in report
        self._told = report.get("told", self._told)
        self.kept = report.get("kept", self.kept)
        if "deserted" in report:
            self.lost = (
                f"it was told nothing for {HEARTBEAT_TIMEOUT_S:g} s, as when the network is cut or "
                "the tests are stopped, and ended the run"
            )

    def close(self) -> list[str]:
        """Be done with the supervisor, which has ended or should have.

        Returns:
            What went wrong with it, as messages.
        """
        problems: list[str] = []
        if _pipe(self._process.stdout).closed:
            return problems  # abandoned
        if not self.ended and self.clean:
            self._process.kill()  # it removes what the run has written: the next one does the rest
        elif not self.ended:
            self._process.kill()
            problems.append(f"{self._where()}: its supervisor did not end as it should")
        elif self.lost is not None:
            problems.append(f"{self._where()}: {self.lost}")
        elif self.started and self.exit_code is None:
            cut = " or cannot be reached" if self._remote else ""
            problems.append(f"{self._where()}: its supervisor was killed{cut}")
        if self._told is not None:
            problems.append(f"{self._where()}: somebody ended its supervisor by {self._told}")
        if self._left:
            problems.append(f"{self._where()}: processes {self._left} could not be ended")
        self._close_pipes()
        self._exit_code_of_way()
        self.ended = True
        return problems

    def _close_pipes(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            _pipe(self._process.stdin).close()
        _pipe(self._process.stdout).close()

    def _exit_code_of_way(self) -> int:
        """The exit code of the launcher's command, which has ended or is about to."""
        try:
            return self._process.wait(HEARTBEAT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            # Its output has ended, but the command itself goes on.
            self._process.kill()
            return self._process.wait()

    @property
    def needs_sweep(self) -> bool:
        """Whether its supervisor ended without having cleaned up, so that another one has to."""
        return self.prepared and self.ended and not self.clean

    def _where(self) -> str:
        return f"host {self.place.host.name}"

    def _on_host(self) -> str:
        return f" on {self.place.host.name}" if self._remote else ""

    def _last_words(self) -> str:
        """Why the launcher's command ended, as it says itself at the end of the log."""
        code = self._exit_code_of_way()
        words = ""
        with contextlib.suppress(OSError), self.place.log.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - LAST_WORDS_BYTES))
            lines = log.read().decode("utf-8", "replace").splitlines()
            words = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"the way there ended with exit code {code}" + (f": {words}" if words else "")


_WITH_INPUT: Final[WeakSet[subprocess.Popen[bytes]]] = WeakSet()


def _leave_inputs() -> None:
    """Let no child that is only forked keep supervisors waiting for the end of their input."""
    for process in _WITH_INPUT:
        if process.stdin is not None and not process.stdin.closed:
            with open(os.devnull, "wb") as nothing:  # noqa: PTH123 - as plain as it gets in a fork
                os.dup2(nothing.fileno(), process.stdin.fileno())


os.register_at_fork(after_in_child=_leave_inputs)


def _opened(log: Path, *, again: bool) -> BinaryIO:
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BrokenError(f"cannot make the log folder {log.parent}: {error.strerror}") from error
    try:
        opened = log.open("ab")
        if again:
            opened.truncate(0)
    except OSError as error:
        raise BrokenError(f"cannot write the log {log}: {error.strerror}") from error
    if os.fstat(opened.fileno()).st_size:
        opened.close()
        raise BrokenError(f"the log {log} is not empty: another run has written it")
    return opened


def _started(command: list[str], log: BinaryIO) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603 - what the launcher says
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    except OSError as error:
        raise BrokenError(f"cannot start {command[0]!r}: {error.strerror}") from error


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    """A pipe that was asked for when its process was started."""
    if stream is None:
        raise AssertionError("every supervisor has its pipes")
    return stream
