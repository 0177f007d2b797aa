"""The nodes of one run: reached and locked at once, and ended for certain."""

from __future__ import annotations

import contextlib
import random
import selectors
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, final

from msgspec.structs import replace

from pytest_dlperf.launch.hosts import Node
from pytest_dlperf.launch.launchers import SLURM, Launcher
from pytest_dlperf.launch.leases import wait_hint, wait_timeout_error
from pytest_dlperf.launch.plan import NodeCommand, first_port, node_folder
from pytest_dlperf.launch.record import RunOrder
from pytest_dlperf.launch.remote_call import RemoteCall, allow_connections, source_of
from pytest_dlperf.launch.remote_node import NodeState, RemoteNode, read_report
from pytest_dlperf.model.errors import BrokenError
from pytest_dlperf.node import processes, remains, supervisor

CONNECT_LIMIT_S: Final = 30.0
"""Limit until a supervisor answers, unless the launcher queues."""
QUEUE_SILENCE_S: Final = 3.0
"""A run is queued for so long before the user hears of it."""
_DAEMONS: Final = {"OMPI_MCA_orte_launch_agent": "orted", "PRTE_MCA_prte_launch_agent": "prted"}
"""What Open MPI 4 and 5 put before the daemon's arguments, and their default."""
SWEEP_LIMIT_S: Final = remains.REPORT_LIMIT_S + 5.0
"""Limit of a second connection that ends what a killed supervisor has left."""
LOST_SWEEP_LIMIT_S: Final = 3.0
"""The same where the host may be out of reach, and not only its supervisor stopped."""
POLL_S: Final = 0.05
CHECK_LIFE_S: Final = 0.25


@final
class Gang:
    """The nodes of one run, from the first connection until nothing of it is left."""

    def __init__(self, launcher: Launcher, order: RunOrder, signals: Sequence[int]) -> None:
        """Take the order, without connecting; signals that come are in ``signals``."""
        self.nodes: list[RemoteNode] = []
        self._launcher = launcher
        self._order = order
        self._signals = signals
        self._is_started = False
        self._id = uuid.uuid4().hex
        self._is_told = False
        """Whether the user knows that the run waits."""
        self._give_up_at = time.monotonic() + order.wait_limit_s
        self._reports = selectors.DefaultSelector()
        self._sweeps: dict[RemoteNode, RemoteCall] = {}
        self._problems: dict[str, dict[str, None]] = {}
        """What went wrong at the end, and the names of the hosts of which it is true."""
        self._check_life_at = 0.0
        self._over = threading.Event()
        self._pulse = threading.Thread(target=self._beat, name="dlperf-pulse", daemon=True)
        self._pulse.start()

    # ------------------------------------------------------------------ the start

    def gather(self) -> list[Node]:
        """Have all nodes ready at once; give them with their ports and folders.

        Raises:
            BrokenError: A node cannot be reached or used, or a signal came.
        """
        self._reach()
        while not self._locked():
            busy = [node for node in self.nodes if node.state is NodeState.BUSY]
            held = (f"{node.node.host.name}: {node.reports['busy']}" for node in busy)
            for node in self.nodes:
                node.release()
            self._wait_for(f"another run, from elsewhere, holds {'; '.join(dict.fromkeys(held))}")
            # For a random time, so that two runs that collide do not collide again.
            self.listen(random.uniform(0.5, 2.0), until=lambda: False)  # noqa: S311 - no secret
        first = first_port(self._id)
        return [
            replace(
                each.node,
                # Some nodes may be one machine.
                port=first + len(each.node.device_ids) + rank,
                first_port=first,
                folder=self._folder(rank),
            )
            for rank, each in enumerate(self.nodes)
        ]

    def start(self, commands: Sequence[NodeCommand]) -> None:
        """Have the programs of the first nodes started; raises what ``gather`` does."""
        self._is_started = True
        started = self.nodes[: len(commands)]
        # A program that starts the others itself may do so as steps of the job around it.
        inherits = (*(SLURM if self._order.head_only else ()), *self._launcher.sets)
        for node, command in zip(started, commands, strict=True):
            node.start(command, inherits=inherits, in_front=self._in_front)
        self._wait_past(NodeState.PREPARED, started)

    def _reach(self) -> None:
        """Reach all nodes, however long some of them are queued for."""
        allow_connections(len(self._order.nodes))
        for rank, each in enumerate(self._order.nodes):
            node = RemoteNode(self._launcher, each, f"{self._id}.{rank}.")
            self.nodes.append(node)
            self._reports.register(node, selectors.EVENT_READ, node)
        are_reached = partial(_all_past, NodeState.CONNECTING, self.nodes)
        if self._launcher.queues:
            self.listen(QUEUE_SILENCE_S, until=are_reached)
            while not are_reached():
                for node in self.nodes:
                    node.check_past(NodeState.CONNECTING, None)
                queued = [n.node.host.name for n in self.nodes if n.state is NodeState.CONNECTING]
                names = ", ".join(dict.fromkeys(queued))
                self._wait_for(f"{self._launcher.name} has queued the run for {names}")
                self.listen(1.0, until=are_reached)
        self._wait_past(NodeState.CONNECTING, self.nodes)

    def _locked(self) -> bool:
        """Take all hosts at once or none, so that two controllers never wait for each other."""
        for rank, node in enumerate(self.nodes):
            node.prepare(
                sweep=self._marked(node), folder=self._folder(rank), files=self._order.files
            )
        try:
            self._wait_past(NodeState.READY, self.nodes)
        finally:
            for node in self.nodes:
                self._tell(node)
        return all(node.state is NodeState.PREPARED for node in self.nodes)

    def _wait_past(self, state: NodeState, nodes: Sequence[RemoteNode]) -> None:
        self.listen(CONNECT_LIMIT_S, until=partial(_all_past, state, nodes))
        for node in nodes:
            node.check_past(state, CONNECT_LIMIT_S)

    def _wait_for(self, why: str) -> None:
        """Tell once why the run has to wait, and raise when it has waited for too long."""
        if not self._is_told:
            self._order.say(f"waiting: {why}; {wait_hint(self._order.wait_limit_s)}")
            self._is_told = True
        if time.monotonic() > self._give_up_at:
            raise wait_timeout_error(self._order.wait_limit_s, why)

    def _folder(self, rank: int) -> str:
        """Name the folder of the run on a node."""
        here = self._launcher.on_this_machine
        host = socket.gethostname() if here else self._order.nodes[rank].host.address
        return node_folder(self._order.scratch, self._id, rank, host)

    @property
    def _in_front(self) -> Mapping[str, tuple[str, str]]:
        """What variables of a head node's program begin with there, and their defaults.

        mpirun reaches the other nodes by itself, and what it starts there is found by the run's
        mark. MPICH and Intel MPI hand the environment on; Open MPI does not, but puts a command
        before its daemon on each node. It needs no quotes: some ways to a node have a shell.
        """
        # In an allocation mpirun starts its daemons as steps, which Slurm ends with all below them.
        on_its_own = self._launcher.on_this_machine or self._launcher.needs_allocation
        if not self._order.head_only or on_its_own:
            return {}
        number = processes.mark_of(self.nodes[0].marker)
        return {name: (f"prlimit -x{number}:{number}", daemon) for name, daemon in _DAEMONS.items()}

    def _marked(self, node: RemoteNode) -> str:
        # What node 0 started on other nodes carries its marker.
        return f"{self._id}." if self._order.head_only else node.marker

    # ------------------------------------------------------------------ while it lives

    def listen(self, limit_s: float, *, until: Callable[[], bool], patient: bool = False) -> None:
        """Take reports until a condition holds or it is too late.

        Unless ``patient``, a signal ends it: before the start with a ``BrokenError``.
        """
        deadline = time.monotonic() + limit_s
        while not until() and time.monotonic() < deadline:
            if not patient and self._signals:
                if not self._is_started:
                    raise BrokenError("a signal came")
                return
            self.take_reports()

    def take_reports(self) -> bool:
        """Take reports for a moment, or until one of them changes something; say whether one has.

        For a moment only: a signal's handler does not end the waiting. Of a thousand nodes, one
        shows a sign of life each millisecond, so that changes nothing and costs nothing else.
        """
        until = time.monotonic() + POLL_S
        left_s, changed = POLL_S, False
        while left_s > 0 and not changed:
            for key, _ in self._reports.select(left_s):
                changed = key.data.receive() or changed
                if key.data.is_gone:
                    self._ignore(key.data)
            left_s = until - time.monotonic()
        now = time.monotonic()
        if now >= self._check_life_at:
            self._check_life_at = now + CHECK_LIFE_S
            for node in self.nodes:
                if node.give_up_if_silent(now):
                    self._ignore(node)
                    changed = True
        return changed

    def _beat(self) -> None:
        """Send the supervisors a sign of life each second, from a thread of its own.

        Reading logs from a slow disk, or writing to a terminal that was stopped, may hold the run's
        own thread up for longer than a supervisor waits.
        """
        while not self._over.wait(supervisor.HEARTBEAT_INTERVAL_S):
            for node in tuple(self.nodes):
                node.order("alive")

    def _tell(self, node: RemoteNode) -> None:
        while node.notes:
            self._order.say(f"host {node.node.host.name}: {node.notes.pop(0)}")

    # ------------------------------------------------------------------ the end

    def end(self, grace_s: float) -> list[str]:
        """End what is left of the run: politely for ``grace_s`` seconds, then for certain.

        Says what went wrong: one message for all hosts of which the same is true.
        """
        try:
            # A node that is queued for, or does not answer, would keep all others waiting.
            for node in self.nodes:
                if node.state < NodeState.PREPARED:
                    self._ignore(node)
                    node.close()
            self._sweep()
            deadline = time.monotonic() + grace_s
            # Others have nothing but what the first one's program has started: it is asked first.
            head = 1 if self._order.head_only else len(self.nodes)
            for wave in (self.nodes[:head], self.nodes[head:]):
                for node in wave:
                    node.order("end")
                self._wait_for_end(wave, deadline - time.monotonic(), signals=1)
        finally:
            for node in self.nodes:
                node.end_orders()
            self._wait_for_end(self.nodes, remains.REPORT_LIMIT_S)
            self._over.set()
            self._pulse.join()
            for node in self.nodes:
                self._ignore(node)
                self._note(node, *node.close())
                self._tell(node)
            self._sweep()
            for node, call in self._sweeps.items():
                limit_s = SWEEP_LIMIT_S if node.lost is None else LOST_SWEEP_LIMIT_S
                self._note(node, *_problems_of_sweep(node, *call.result(limit_s)))
            self._reports.close()
        return [
            f"host{'s' * (len(names) > 1)} {', '.join(names)}: {problem}"
            for problem, names in self._problems.items()
        ]

    def _wait_for_end(
        self, nodes: Sequence[RemoteNode], limit_s: float, signals: float = float("inf")
    ) -> None:
        """Wait until nodes are cleaned up, or more than so many signals have come."""

        def is_over() -> bool:
            return len(self._signals) > signals or _all_past(NodeState.CLEANED_UP, nodes)

        self.listen(limit_s, until=is_over, patient=True)

    def _ignore(self, node: RemoteNode) -> None:
        # It may have been ignored before, and its pipe closed since.
        with contextlib.suppress(KeyError, ValueError):
            self._reports.unregister(node)

    def _sweep(self) -> None:
        """Begin to end what supervisors have left that are gone, each once."""
        for rank, node in enumerate(self.nodes):
            if node.needs_sweep and node not in self._sweeps:
                order = node.sweep_order(self._marked(node), self._folder(rank))
                host = node.node.host
                try:
                    call = RemoteCall(self._launcher, host, source_of(remains), order)
                except BrokenError as error:
                    self._note(node, _not_swept(str(error)))
                else:
                    self._sweeps[node] = call

    def _note(self, node: RemoteNode, *problems: str) -> None:
        for problem in problems:
            self._problems.setdefault(problem, {})[node.node.host.name] = None


def _all_past(state: NodeState, nodes: Sequence[RemoteNode]) -> bool:
    """Whether it is known what became of all nodes in a state."""
    return all(node.is_past(state) for node in nodes)


def _problems_of_sweep(node: RemoteNode, output: bytes | None, reason: str) -> list[str]:
    reports = [read_report(line) for line in (output or b"").splitlines()]
    problems = [report["at_end"] for report in reports if "at_end" in report]
    finals = [report["final"] for report in reports if "final" in report]
    problems += [remains.describe_survivors(each["left"]) for each in finals if each["left"]]
    # A host that is out of reach cleans up by itself, as long as its supervisor lives.
    if not finals and node.lost is None:
        problems.append(_not_swept(reason))
    return problems


def _not_swept(reason: str) -> str:
    return (
        f"its supervisor is gone, and nobody could look for what it has left "
        f"({reason}); end what has {processes.MARKER} in its environment there"
    )
