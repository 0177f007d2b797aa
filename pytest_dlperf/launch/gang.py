"""The nodes of one run, however they are reached: what a run asks of them."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_dlperf.launch.plan import SCRATCH

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_dlperf.launch.node_progress import NodeProgress
    from pytest_dlperf.launch.plan import Node, NodeCommand, Place
    from pytest_dlperf.launch.watch import RunWatch


class RunOrder(Struct, frozen=True, kw_only=True):
    """One run: where its nodes go, what they will run there, and how long it may take.

    ``plan`` says what each node runs, node 0 first, once addresses and ports are known. With
    ``head_only`` it says so of node 0 alone, whose program starts the others' itself.
    ``time_limit_s`` counts from the start of the programs. ``scratch`` is the folder on each host
    in which runs make their own.
    """

    places: tuple[Place, ...]
    plan: Callable[[Sequence[Node]], Sequence[NodeCommand]]
    time_limit_s: float
    scratch: str = SCRATCH
    head_only: bool = False
    files: Mapping[str, str] = {}
    """What the nodes' folders get, by name."""
    watch: RunWatch | None = None
    say: Callable[[str], None] = lambda _: None
    """Tells the user what the run waits for, and what it has found."""
    wait_limit_s: float = math.inf
    """A run may wait so long for hosts that others hold."""


class InterruptedRunError(Exception):
    """A signal came before the run began."""


class Gang(ABC):
    """All nodes of a run, from before the first is reached until nothing of the run is left."""

    engine: str
    """The name of the launcher or queue that starts programs on the nodes."""
    settle_s: float = 0.0
    """A program's last output may arrive so long after the news of its end."""
    nodes: Sequence[NodeProgress]
    """The nodes by rank, as far as they are there."""
    signals: Sequence[int]
    """Signals that have come."""
    is_started: bool = False
    """Whether programs may have been started, so that a signal is no reason to raise."""

    def __init__(self, order: RunOrder, signals: Sequence[int]) -> None:
        """Take the order, and touch nothing; signals that come are added to ``signals``."""
        self._order = order
        self.signals = signals

    @abstractmethod
    def start(self, begin: Callable[[Sequence[Node]], Sequence[NodeCommand]]) -> None:
        """Have the programs of all nodes started that have one.

        What they are, ``begin`` says once addresses and ports are known; it is called once.

        Raises:
            BrokenError: The run cannot be started.
            InterruptedRunError: A signal came.
        """

    @abstractmethod
    def take_reports(self) -> bool:
        """Take reports for a moment; say whether one of them changes something."""

    def listen(self, limit_s: float, *, until: Callable[[], bool], patient: bool = False) -> None:
        """Take reports until a condition holds or it is too late.

        Unless ``patient``, a signal ends it: before the start with an ``InterruptedRunError``.
        """
        deadline = time.monotonic() + limit_s
        while not until() and time.monotonic() < deadline:
            if not patient and self.signals:
                if not self.is_started:
                    raise InterruptedRunError
                return
            self.take_reports()

    def tell(self, node: NodeProgress) -> None:
        """Tell the user what a node has noted, each once."""
        while node.notes:
            self._order.say(f"{node.where}: {node.notes.pop(0)}")

    @abstractmethod
    def end(self, grace_s: float) -> list[str]:
        """End what is left of the run, and say what went wrong.

        Programs have ``grace_s`` seconds to end in order, unless an engine has a time of its own.
        """

    def reasons(self, first_failed: Sequence[int]) -> list[str]:
        """Say why nodes of these ranks were the first to fail, as far as the engine knows."""
        del first_failed
        return []


def once_all(
    nodes: Sequence[NodeProgress], so: Callable[[NodeProgress], bool]
) -> Callable[[], bool]:
    """Give what says whether something that does not end holds for all; it looks at each once."""
    others = list(nodes)

    def all_are() -> bool:
        while others and so(others[-1]):
            others.pop()
        return not others

    return all_are
