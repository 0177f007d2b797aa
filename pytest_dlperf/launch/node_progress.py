"""What a node of a run reports, and how far it has come by that."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Final, TypeVar

from msgspec import Struct, ValidationError, convert

from pytest_dlperf.node.remains import numbered

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
    directory is missing. ``arrivals`` are triples as in ``ArrivalsWriter.add``. ``earlier`` are
    numbers of processes.
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
    deserted: bool | None = None
    alive: bool | None = None

    @property
    def notes(self) -> list[str]:
        """What it says of an earlier run, and of the folder of this one."""
        whose = "of an earlier run, whose supervisor was killed or stopped"
        ended = [f"ended {numbered(self.earlier)} {whose}"] if self.earlier else []
        return [*ended, self.kept] if self.kept is not None else ended


def read_report(line: bytes) -> Report | None:
    """Read a report; ``None`` where the line is another program's, such as a login shell's."""
    try:
        return convert(json.loads(line), Report)
    except (ValueError, ValidationError):
        return None


class NodeState(Enum):
    """The progress of a node of a run."""

    CONNECTING = "nothing was heard yet"
    READY = "the supervisor waits for orders"
    BUSY = "another run has locked a device of the host"
    UNUSABLE = "the host cannot be prepared"
    PREPARED = "devices are locked, the run's folder is there"
    NOT_STARTED = "the program cannot be started"
    RUNNING = "the program runs"
    EXITED = "the program has ended, what it has started may live"
    CLEANED_UP = "the supervisor has ended all that was below it, and is about to end"


CONNECTED: Final = frozenset(NodeState) - {NodeState.CONNECTING}
TO_CLEAN_UP: Final = frozenset(
    {NodeState.PREPARED, NodeState.NOT_STARTED, NodeState.RUNNING, NodeState.EXITED}
)
START_IS_KNOWN: Final = TO_CLEAN_UP - {NodeState.PREPARED} | {NodeState.CLEANED_UP}

TRANSITIONS: Final[Mapping[str, tuple[frozenset[NodeState], NodeState]]] = {
    "ready": (frozenset({NodeState.CONNECTING}), NodeState.READY),
    "busy": (frozenset({NodeState.READY}), NodeState.BUSY),
    "cannot_prepare": (frozenset({NodeState.READY}), NodeState.UNUSABLE),
    "prepared": (frozenset({NodeState.READY}), NodeState.PREPARED),
    "cannot_start": (frozenset({NodeState.PREPARED}), NodeState.NOT_STARTED),
    "started": (frozenset({NodeState.PREPARED}), NodeState.RUNNING),
    "ended": (frozenset({NodeState.RUNNING}), NodeState.EXITED),
    "final": (CONNECTED, NodeState.CLEANED_UP),
}
"""The state that a report leads to, and from which states. ``release`` leads back to ``READY``."""


def first_known(*values: T | None) -> T | None:
    """Return the first of some values that is not ``None``."""
    return next((value for value in values if value is not None), None)


def once_all(nodes: Sequence[T], so: Callable[[T], bool]) -> Callable[[], bool]:
    """Give what says whether something that does not end holds for all; it looks at each once."""
    others = list(nodes)

    def all_are() -> bool:
        while others and so(others[-1]):
            others.pop()
        return not others

    return all_are
