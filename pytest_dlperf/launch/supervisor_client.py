"""One node of a run as it is seen from here: its supervisor, and how far the node has come."""

from __future__ import annotations

import json
import os
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, final

from msgspec import Struct, field

from pytest_dlperf.launch import channel
from pytest_dlperf.launch.channel import Channel
from pytest_dlperf.launch.hosts import Accelerators
from pytest_dlperf.launch.inherited import foreign_names
from pytest_dlperf.launch.launchers import lock_name, played_address
from pytest_dlperf.logs.arrivals import ArrivalsWriter
from pytest_dlperf.model.errors import BrokenError
from pytest_dlperf.node import processes
from pytest_dlperf.node.remains import numbered, unended

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_dlperf.launch.hosts import Host
    from pytest_dlperf.launch.launchers import Launcher
    from pytest_dlperf.launch.plan import NodeCommand

TERMINATION_GRACE_S: Final = 3.0
"""The processes of a run may take so long to end after SIGTERM."""


class Place(Struct, frozen=True, kw_only=True):
    """The place of one node of a run, before it is known what it runs.

    ``device_ids`` are the devices that it uses, by their place among the ``accelerators`` of the
    host, ``locked_devices`` those that nobody else may use meanwhile who locks under the same
    ``lock_scope`` on that machine. Its output, errors included, goes to ``log``.
    """

    host: Host
    device_ids: tuple[int, ...]
    locked_devices: tuple[int, ...]
    lock_scope: str
    log: Path
    accelerators: Accelerators = field(default_factory=Accelerators)


class NodeState(Enum):
    """The progress of a node of a run, by the reports of its supervisor."""

    CONNECTING = "nothing was heard yet"
    READY = "the supervisor waits for orders"
    BUSY = "another run has locked a device of the host"
    ROW_TAKEN = "a port of the row that the run asks for is not free"
    UNUSABLE = "the host cannot be prepared"
    PREPARED = "devices are locked, ports are held, the run's folder is there"
    NOT_STARTED = "the program cannot be started"
    RUNNING = "the program runs"
    EXITED = "the program has ended, what it has started may live"
    CLEANED_UP = "the supervisor has ended all that was below it, and is about to end"


_CONNECTED: Final = frozenset(NodeState) - {NodeState.CONNECTING}
_TO_CLEAN_UP: Final = frozenset(
    {NodeState.PREPARED, NodeState.NOT_STARTED, NodeState.RUNNING, NodeState.EXITED}
)
_NOTHING: Final[Mapping[str, tuple[str, str]]] = MappingProxyType({})
_START_IS_KNOWN: Final = _TO_CLEAN_UP - {NodeState.PREPARED} | {NodeState.CLEANED_UP}

_TRANSITIONS: Final[Mapping[str, tuple[frozenset[NodeState], NodeState]]] = {
    "ready": (frozenset({NodeState.CONNECTING}), NodeState.READY),
    "busy": (frozenset({NodeState.READY}), NodeState.BUSY),
    "row_taken": (frozenset({NodeState.READY}), NodeState.ROW_TAKEN),
    "cannot_prepare": (frozenset({NodeState.READY}), NodeState.UNUSABLE),
    "prepared": (frozenset({NodeState.READY}), NodeState.PREPARED),
    "cannot_start": (frozenset({NodeState.PREPARED}), NodeState.NOT_STARTED),
    "started": (frozenset({NodeState.PREPARED}), NodeState.RUNNING),
    "ended": (frozenset({NodeState.RUNNING}), NodeState.EXITED),
    "clean": (_CONNECTED, NodeState.CLEANED_UP),
}
"""The state that a report leads to, and from which states. ``release`` leads back to ``READY``."""


_NO_NEWS: Final = frozenset({"arrivals", "anchor"})


@final
class SupervisorClient:
    """One node's program and the supervisor that it runs under."""

    def __init__(
        self, launcher: Launcher, place: Place, marker: str, *, again: bool = False
    ) -> None:
        """Start the supervisor, which waits for orders.

        With ``again`` the log may hold what an earlier try of the same run has left in it.
        """
        self.place = place
        self.marker = marker
        self.state = NodeState.CONNECTING
        self.port: int | None = None
        """Held for the run, once the node is prepared."""
        self.pid: int | None = None
        """The number of the program's process, once it was started."""
        self.exit_code: int | None = None
        self.holder: str | None = None
        """Who held a device of the host when it was busy."""
        self.told: str | None = None
        """What of an earlier run was found on the node."""
        self.kept: str | None = None
        """What of the run's folder could not be removed, and why."""
        self._command: NodeCommand | None = None
        self._problem: str | None = None
        self._left: list[int] = []
        self._signal: str | None = None
        self._lost: str | None = None
        self._at_end: list[str] = []
        self._killed: str | None = None
        self._channel = Channel(launcher, place.host, place.log, marker, again=again)
        self._arrivals = ArrivalsWriter(place.log)

    # ------------------------------------------------------------------ what is known of it

    @property
    def is_gone(self) -> bool:
        """Whether the supervisor has ended, or is out of reach."""
        return self._channel.closed

    @property
    def lost(self) -> str | None:
        """Why it is out of reach."""
        return self._channel.lost

    @property
    def is_unattended(self) -> bool:
        """Whether it is out of reach, or was killed or stopped."""
        return self.lost is not None or self._killed is not None

    @property
    def failed(self) -> bool:
        """Whether the program has ended with an error, or nobody knows how it ended."""
        return self.is_gone if self.exit_code is None else self.exit_code != 0

    @property
    def is_done(self) -> bool:
        """Whether the program has ended."""
        return self.is_gone or self.exit_code is not None

    @property
    def is_broken_off(self) -> bool:
        """Whether the program was started and has not ended without an error."""
        return self.pid is not None and self.exit_code != 0

    @property
    def is_reached(self) -> bool:
        """Whether it is known if the supervisor is there."""
        return self.is_gone or self.state in _CONNECTED

    @property
    def preparation_is_known(self) -> bool:
        """Whether it is known if the node is ready to start its program."""
        return self.is_gone or self.state in _CONNECTED - {NodeState.READY}

    @property
    def start_is_known(self) -> bool:
        """Whether it is known if the program was started."""
        return self.is_gone or self.state in _START_IS_KNOWN

    @property
    def is_killed(self) -> bool:
        """Whether the supervisor or its guardian was killed, and so the program with it."""
        return self._killed is not None

    @property
    def needs_sweep(self) -> bool:
        """Whether its supervisor ended without having cleaned up, so that another one has to."""
        return self.is_gone and self.state in _TO_CLEAN_UP

    # ------------------------------------------------------------------ orders

    def prepare(
        self,
        *,
        sweep: str,
        folder: str,
        files: Mapping[str, str],
        row: tuple[int, int],
        keeper: tuple[str, str] | None,
    ) -> None:
        """Have the devices locked, ports held and the run's folder made, with these files.

        ``row`` is the first of ports in a row that have to be free, and how many they are.
        ``keeper`` is a program that is laid ready for the head node, by its path and text.
        """
        scope, devices = self.place.lock_scope, self.place.locked_devices
        run_id = self.marker.partition(".")[0]
        order = _order(
            "prepare",
            run_lock=lock_name(scope, f"run-{run_id}") if devices else None,
            device_locks=[lock_name(scope, device) for device in devices],
            sweep=sweep,
            node_folder=_as_text(folder),
            files=dict(files),
            row=(*row, played_address(self.place.host)),
            keeper=None if keeper is None else (_as_text(keeper[0]), keeper[1]),
            ipv6=":" in self.place.host.address,
        )
        self._channel.send(order)

    def release(self) -> None:
        """Have taken back what was prepared, for another run to have it."""
        self.state, self.port = NodeState.READY, None
        self._channel.send(_order("release"))

    def start(
        self,
        command: NodeCommand,
        *,
        inherits: Sequence[str],
        in_front: Mapping[str, tuple[str, str]] = _NOTHING,
    ) -> None:
        """Have the program started; it ``inherits`` what belongs to how it is started.

        ``in_front`` is what stands before the values that variables have there, or else before
        these defaults.
        """
        self._command = command
        details = start_details(command, self.marker, inherits, in_front)
        self._channel.send(_order("start", **details))

    def end(self) -> None:
        """Have all that the program has started ended, politely at first."""
        self._channel.send(_order("end"))

    def kill(self) -> None:
        """Have all that the program has started killed."""
        self._channel.send(_order("kill"))
        # One that was stopped hears nothing, but its guardian sees the end of the orders.
        self._channel.end_orders()

    def show_life(self) -> None:
        """Tell the supervisor that somebody is here."""
        self._channel.send(b"\n")

    def sweep_order(self, sweep: str, folder: str, keeper: str | None) -> bytes:
        """Give the order to end what a lost supervisor has left: processes, and the run's folder.

        It is for a program of its own, that comes over another connection.
        """
        at_end = () if self._command is None else self._command.at_end
        environment = {} if self._command is None else self._command.environment
        order = {
            "watched_by": self.marker,
            "sweep": sweep,
            "folder": _as_text(folder),
            "keeper": None if keeper is None else _as_text(keeper),
            "at_end": [[_as_text(argument) for argument in one] for one in at_end],
            "environment": {_as_text(k): _as_text(value) for k, value in environment.items()},
        }
        return f"{json.dumps(order)}\n".encode("ascii")

    # ------------------------------------------------------------------ reports

    def fileno(self) -> int:
        """Return the descriptor at which the reports of the supervisor come in."""
        return self._channel.fileno()

    def receive(self) -> bool:
        """Take what the supervisor reports, waiting for it if need be; say whether it is news.

        That is more than a sign of life, and when its program's output came.
        """
        reports = self._channel.receive()
        for report in reports:
            self._take(report)
        return self.is_gone or any(report.keys() - _NO_NEWS for report in reports)

    def _take(self, report: dict[str, Any]) -> None:
        if not report and self.state in _CONNECTED:
            return
        for word, (before, after) in _TRANSITIONS.items():
            if word in report and self.state in before:
                self.state = after
        if self.state not in _CONNECTED:
            return  # it was printed by something on the way
        self.port = report.get("port", self.port)
        self.pid = report.get("started", self.pid)
        self.exit_code = report.get("ended", self.exit_code)
        self.kept = report.get("kept", self.kept)
        self._problem = report.get("cannot_prepare", report.get("cannot_start", self._problem))
        self.holder = report.get("busy", self.holder)
        self._left = report.get("left", self._left)
        self._signal = report.get("signal", self._signal)
        self._lost = report.get("lost", self._lost)
        if "arrivals" in report:
            self._arrivals.add(report["arrivals"], report["anchor"])
        self._take_faults(report)

    def _take_faults(self, report: dict[str, Any]) -> None:
        """Take what has gone wrong with a supervisor, or around it."""
        if "earlier" in report:
            whose = "of an earlier run, whose supervisor and guardian were killed"
            self.told = f"ended {numbered(report['earlier'])} {whose}"
        if "at_end" in report:
            self._at_end.append(report["at_end"])
        if "supervisor_killed" in report:
            self._killed = f"its supervisor {report['supervisor_killed']}"
        if "guardian_killed" in report:
            self._killed = "the guardian of its supervisor was killed"
        if "deserted" in report:
            self._channel.lost = (
                f"its supervisor heard nothing for {channel.HEARTBEAT_TIMEOUT_S:g} s, as when the "
                "network is cut or the tests are stopped, and ended the run"
            )

    def check_life(self, now: float) -> None:
        """Give up a distant supervisor that shows no sign of life; connecting has its own limit."""
        if self.state in _CONNECTED:
            self._channel.check_heartbeat(now)

    # ------------------------------------------------------------------ what went wrong

    def check_reached(self, limit_s: float | None) -> None:
        """Check that the supervisor is there; with ``None``, that it may still come."""
        if self.state is NodeState.CONNECTING:
            self._check_not_gone()
            if limit_s is not None:
                raise BrokenError(f"{self._where}: no answer for {limit_s:g} s")

    def check_prepared(self, limit_s: float) -> None:
        """Check that the node is ready or busy, as opposed to unusable."""
        if self.state is NodeState.UNUSABLE:
            raise BrokenError(f"{self._where}: {self._problem}")
        self._check_not_gone()
        if not self.preparation_is_known:
            raise BrokenError(f"{self._where}: no answer for {limit_s:g} s when it was prepared")

    def check_started(self, limit_s: float) -> None:
        """Check that the program was started."""
        command = self._command
        if self.state is NodeState.NOT_STARTED and command is not None:
            on_host = f" on {self.place.host.name}" if self._channel.remote else ""
            node = f"cannot start node {command.node_rank}{on_host}"
            if self._problem is None:
                folder = command.working_directory
                raise BrokenError(f"{node}: its working directory {folder!r} is not a folder there")
            program = command.arguments[0]
            where = "" if "/" in program else " in the folders of PATH"
            raise BrokenError(f"{node}: program {program!r}{where}: {self._problem}")
        if self.pid is None:
            self._check_not_gone()
        if not self.start_is_known:
            raise BrokenError(f"{self._where}: no answer for {limit_s:g} s at the start")

    def _check_not_gone(self) -> None:
        if self.is_gone:
            raise BrokenError(f"{self._where}: {self.lost or self._channel.last_words()}")

    # ------------------------------------------------------------------ the end

    def abandon(self) -> None:
        """Be done with a supervisor that has nothing to clean up: the end of its input ends it."""
        self._channel.cut()
        self._channel.close()

    def close(self) -> list[str]:
        """Be done with the supervisor, which has ended or should have; say what went wrong."""
        if self._channel.is_done:
            return []  # abandoned
        problems = []
        if not self.is_gone:
            # One that has cleaned up removes what the run has written: the next one does the rest.
            self._channel.cut()
            if self.state is not NodeState.CLEANED_UP:
                problems.append("its supervisor did not end as it should")
        elif self.lost is not None:
            problems.append(self.lost)
        elif self._killed is not None:
            problems.append(f"{self._killed}, and the run with it")
        elif self.pid is not None and self.exit_code is None:
            problems.append(self._channel.sudden_end())
        if self._signal is not None:
            problems.append(f"its supervisor was ended by {self._signal}")
        if self._lost is not None:
            log = self.place.log
            problems.append(f"some of the output is lost: cannot write the log {log}: {self._lost}")
        problems += [f"at the end of the run, {problem}" for problem in self._at_end]
        problems += [] if not self._left else [unended(self._left)]
        self._channel.close()
        self._arrivals.seal()
        return problems

    @property
    def _where(self) -> str:
        return f"host {self.place.host.name}"


def start_details(
    command: NodeCommand,
    marker: str,
    inherits: Sequence[str],
    in_front: Mapping[str, tuple[str, str]] = _NOTHING,
) -> dict[str, Any]:
    """Say in an order's words how a node's program is started."""
    folder = command.working_directory
    environment = {"PYTHONUNBUFFERED": "1", **command.environment, processes.MARKER: marker}
    return {
        "arguments": [_as_text(argument) for argument in command.arguments],
        "container": command.container is not None,
        "environment": {_as_text(key): _as_text(value) for key, value in environment.items()},
        "without": foreign_names(inherits),
        "in_front": dict(in_front),
        "python_path": [_as_text(path) for path in command.python_path],
        "folder": _as_text(str(Path.cwd() / (folder or ""))),
        "log_file": None if command.log_file is None else _as_text(command.log_file),
        "needs_folder": folder is not None,
        "grace_s": TERMINATION_GRACE_S,
        "at_end": [[_as_text(argument) for argument in one] for one in command.at_end],
    }


def prepare_details(sweep: str, folder: str, files: Mapping[str, str]) -> dict[str, Any]:
    """Say in an order's words how a node is prepared that nobody else uses."""
    return {
        "run_lock": None,
        "device_locks": [],
        "sweep": sweep,
        "node_folder": _as_text(folder),
        "files": dict(files),
        "row": (0, 0, ""),
        "keeper": None,
        "ipv6": False,
    }


def _order(word: str, **details: object) -> bytes:
    return f"{word} {json.dumps(details)}\n".encode("ascii")


def _as_text(text: str) -> str:
    """Write bytes that are no text so that they survive the way, whatever both encodings are."""
    return os.fsencode(text).decode("latin-1")
