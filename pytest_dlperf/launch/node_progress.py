"""How far one node of a run has come, by what it reports."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import Struct, ValidationError, convert

from pytest_dlperf.logs.arrivals import ArrivalsWriter
from pytest_dlperf.node.remains import numbered, unended

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_dlperf.launch.plan import Place

T = TypeVar("T")


class FinalReport(Struct, frozen=True, kw_only=True):
    """What a node reports when it has ended all that the run had there.

    What a node measures of a whole run is a field here. It has a default: in the place of a
    supervisor that was killed, a second connection reports.
    """

    left: tuple[int, ...] = ()
    """Numbers of processes that could not be ended."""


class Report(Struct, frozen=True, kw_only=True):
    """One report of a node; what it does not say is ``None``.

    ``ready`` is the version of the node's Python, ``cannot_start`` is empty where a working
    directory is missing. ``arrivals`` are triples as in ``ArrivalsWriter.add``. ``look`` is what
    ``node.probe`` has found, ``addresses`` those of all nodes. ``earlier`` are numbers of
    processes.
    """

    ready: str | None = None
    busy: str | None = None
    cannot_prepare: str | None = None
    prepared: bool | None = None
    cannot_start: str | None = None
    started: int | None = None
    ended: int | None = None
    final: FinalReport | None = None
    arrivals: tuple[tuple[int, int, int], ...] | None = None
    anchor: str = ""
    lost: str | None = None
    signal: str | None = None
    kept: str | None = None
    at_end: str | None = None
    earlier: list[int] | None = None
    supervisor_killed: str | None = None
    deserted: bool | None = None
    alive: bool | None = None
    host: str | None = None
    look: dict[str, Any] | None = None
    addresses: tuple[str, ...] | None = None
    asked: bool | None = None

    @property
    def notes(self) -> list[str]:
        """What it says of an earlier run, and of the folder of this one."""
        whose = "of an earlier run, whose supervisor was killed or stopped"
        ended = [f"ended {numbered(self.earlier)} {whose}"] if self.earlier else []
        return [*ended, self.kept] if self.kept is not None else ended

    @property
    def killed(self) -> str | None:
        """What became of a supervisor that did not end by itself, where others say so."""
        return self.supervisor_killed and f"its supervisor {self.supervisor_killed}"


def read_report(line: bytes) -> Report | None:
    """Read a report; ``None`` where the line is another program's, such as a login shell's."""
    try:
        return convert(json.loads(line), Report)
    except (ValueError, ValidationError):
        return None


class NodeState(Enum):
    """The progress of a node of a run."""

    CONNECTING = "nothing was heard yet"
    QUEUED = "its engine has not started it, or it waits for the other nodes"
    READY = "the supervisor waits for orders"
    BUSY = "another run has locked a device of the host"
    UNUSABLE = "the host cannot be prepared"
    PREPARED = "devices are locked, the run's folder is there"
    NOT_STARTED = "the program cannot be started"
    RUNNING = "the program runs"
    EXITED = "the program has ended, what it has started may live"
    CLEANED_UP = "the supervisor has ended all that was below it, and is about to end"


_CONNECTED: Final = frozenset(NodeState) - {NodeState.CONNECTING}
_TO_CLEAN_UP: Final = frozenset(
    {NodeState.PREPARED, NodeState.NOT_STARTED, NodeState.RUNNING, NodeState.EXITED}
)
_START_IS_KNOWN: Final = _TO_CLEAN_UP - {NodeState.PREPARED} | {NodeState.CLEANED_UP}

_TRANSITIONS: Final[Mapping[str, tuple[frozenset[NodeState], NodeState]]] = {
    "ready": (frozenset({NodeState.CONNECTING, NodeState.QUEUED}), NodeState.READY),
    "busy": (frozenset({NodeState.READY}), NodeState.BUSY),
    "cannot_prepare": (frozenset({NodeState.READY}), NodeState.UNUSABLE),
    "prepared": (frozenset({NodeState.READY}), NodeState.PREPARED),
    "cannot_start": (frozenset({NodeState.QUEUED, NodeState.PREPARED}), NodeState.NOT_STARTED),
    "started": (frozenset({NodeState.PREPARED}), NodeState.RUNNING),
    "ended": (frozenset({NodeState.RUNNING}), NodeState.EXITED),
    "final": (_CONNECTED, NodeState.CLEANED_UP),
}
"""The state that a report leads to, and from which states. ``release`` leads back to ``READY``."""


class NodeProgress(ABC):
    """One node's program and the supervisor that it runs under, as far as they are known here."""

    def __init__(self, place: Place, state: NodeState) -> None:
        """Begin before the node does."""
        self.place = place
        self.state = state
        self.pid: int | None = None
        """The number of the program's process, once it was started."""
        self.exit_code: int | None = None
        """The program's exit code, or the negative number of the signal that ended it."""
        self.problem: str | None = None
        """Why the node cannot be prepared, or its program not be started."""
        self.holder: str | None = None
        """Who held a device of the host when it was busy."""
        self.notes: list[str] = []
        """What the user has to know, and has not been told: no problem of the run itself."""
        self.is_asked = False
        """Whether an engine had asked the node to end before its program did."""
        self.killed: str | None = None
        """What became of the supervisor, if it was killed and others say so."""
        self.final: FinalReport | None = None
        """What it has reported at its end."""
        self._lost_output: str | None = None
        self._at_end: list[str] = []
        self._arrivals = ArrivalsWriter(place.log)

    # ------------------------------------------------------------------ what is known of it

    @property
    def where(self) -> str:
        """The node, for people."""
        return f"host {self.place.host.name}"

    @property
    @abstractmethod
    def is_gone(self) -> bool:
        """Whether nothing more will be reported: the supervisor has ended or is out of reach."""

    @property
    def is_done(self) -> bool:
        """Whether the program has ended."""
        return self.is_gone or self.exit_code is not None

    @property
    def failed(self) -> bool:
        """Whether the program has ended with an error, or in an unknown way."""
        return self.is_done and self.exit_code != 0

    @property
    def failed_by_itself(self) -> bool:
        """Whether it has failed, and is not known to have been ended by an engine."""
        return self.failed and not self.is_asked

    @property
    def final_exit_code(self) -> int | None:
        """The exit code, if known."""
        return self.exit_code

    @property
    def is_unattended(self) -> bool:
        """Whether the supervisor is out of reach, or was killed or stopped."""
        return self.killed is not None

    @property
    def is_broken_off(self) -> bool:
        """Whether the program was started and has not ended without an error."""
        return self.pid is not None and self.exit_code != 0

    @property
    def is_connected(self) -> bool:
        """Whether the node itself has reported."""
        return self.state in _CONNECTED

    @property
    def is_reached(self) -> bool:
        """Whether it is known if the supervisor is there."""
        return self.is_gone or self.is_connected

    @property
    def preparation_is_known(self) -> bool:
        """Whether it is known if the node is ready to start its program."""
        return self.is_gone or self.state in _CONNECTED - {NodeState.READY}

    @property
    def start_is_known(self) -> bool:
        """Whether it is known if the program was started."""
        return self.is_gone or self.state in _START_IS_KNOWN

    @property
    def has_remains(self) -> bool:
        """Whether there is something of the run on the node."""
        return self.state in _TO_CLEAN_UP

    @property
    def was_prepared(self) -> bool:
        """Whether there was something of the run on the node."""
        return self.has_remains or self.state is NodeState.CLEANED_UP

    @property
    def needs_sweep(self) -> bool:
        """Whether its supervisor ended without having cleaned up, so that another one has to."""
        return self.is_gone and self.has_remains

    # ------------------------------------------------------------------ reports

    def take(self, report: Report) -> bool:
        """Take a report; say whether it is more than a sign of life, and output's time."""
        if report.arrivals is not None and self.is_connected:
            self._arrivals.add(report.arrivals, report.anchor)
            self._lost_output = report.lost or self._lost_output
            return False
        for word, (before, after) in _TRANSITIONS.items():
            if getattr(report, word) is not None and self.state in before:
                self.state = after
        if not self.is_connected:
            return False  # it was printed by something on the way
        self.pid = first_known(report.started, self.pid)
        self.problem = first_known(report.cannot_prepare, report.cannot_start, self.problem)
        self.holder = first_known(report.busy, self.holder)
        self.final = first_known(report.final, self.final)
        if report.asked and self.exit_code is None and self.killed is None:
            self.is_asked = True
        self.exit_code = first_known(report.ended, self.exit_code)
        self.notes += report.notes
        if report.at_end is not None:
            self._at_end.append(report.at_end)
        self.killed = first_known(report.killed, self.killed)
        return report.alive is None

    def close_log(self) -> list[str]:
        """Say what output is lost, and what could not be cleaned up."""
        problems = []
        if self._lost_output is not None:
            problems.append(
                f"some of the output is lost: cannot write the log {self.place.log}: "
                f"{self._lost_output}"
            )
        problems += [f"at the end of the run, {problem}" for problem in self._at_end]
        left = () if self.final is None else self.final.left
        return [*problems, unended(left)] if left else problems


def first_known(*values: T | None) -> T | None:
    """Return the first of some values that is not ``None``."""
    return next((value for value in values if value is not None), None)
