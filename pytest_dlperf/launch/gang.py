"""Nodes of a run over a connection each: reached and locked at once, and ended for certain."""

from __future__ import annotations

import contextlib
import math
import random
import selectors
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Final, final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.launch import supervisor_client
from pytest_dlperf.launch.hosts import Host
from pytest_dlperf.launch.inherited import SLURM
from pytest_dlperf.launch.launchers import Launcher
from pytest_dlperf.launch.leases import wait_hint, wait_timeout_error
from pytest_dlperf.launch.node_progress import NodeState, Report, once_all, read_report
from pytest_dlperf.launch.plan import SCRATCH, Node, NodeCommand, first_port, node_folder
from pytest_dlperf.launch.remote_call import RemoteCall, allow_connections, source_of, start_remote
from pytest_dlperf.launch.supervisor_client import SupervisorClient
from pytest_dlperf.launch.watch import RunWatch
from pytest_dlperf.node import processes, remains, supervisor

CONNECT_LIMIT_S: Final = 30.0
"""Limit until a supervisor answers, unless the launcher queues."""
QUEUE_LIMIT_S: Final = 30.0
"""Some nodes of a run are kept for so long while others are still queued for."""
QUEUE_SILENCE_S: Final = 3.0
"""A run is queued for so long before the user hears of it."""
_DAEMONS: Final = {"OMPI_MCA_orte_launch_agent": "orted", "PRTE_MCA_prte_launch_agent": "prted"}
"""What Open MPI 4 and 5 put before the daemon's arguments, and their default."""
SWEEP_LIMIT_S: Final = remains.REPORT_LIMIT_S + 5.0
"""Limit of a second connection that ends what a killed supervisor has left."""
LOST_SWEEP_LIMIT_S: Final = 3.0
"""The same where the host may be out of reach, and not only its supervisor stopped."""
SETTLE_S: Final = 0.3
"""A program's last output may arrive so long after the news of its end."""
POLL_S: Final = 0.05
CHECK_LIFE_S: Final = 0.25


class RunOrder(Struct, frozen=True, kw_only=True):
    """One run: where its nodes go, what they will run there, and how long it may take.

    ``plan`` says what each node runs, node 0 first, once addresses and ports are known. With
    ``head_only`` it says so of node 0 alone, whose program starts the others' itself.
    ``time_limit_s`` counts from the start of the programs. ``scratch`` is the folder on each host
    in which runs make their own.
    """

    nodes: tuple[Node, ...]
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
    loss: Callable[[], str | None] = lambda: None
    """Says why the hosts were taken away, or what else is known of a run that has failed."""


class InterruptedRunError(Exception):
    """A signal came before the run began."""


@final
class Gang:
    """The supervisors of one run, from the first connection until nothing of it is left."""

    def __init__(self, launcher: Launcher, order: RunOrder, signals: Sequence[int]) -> None:
        self.signals = signals
        self.is_started = False
        """Whether programs may have been started, so that a signal is no reason to raise."""
        self._order = order
        self.engine = launcher.name
        self.settle_s = SETTLE_S if launcher.remote else 0.0
        self.nodes: list[SupervisorClient] = []
        self._launcher = launcher
        self._id = uuid.uuid4().hex
        self._is_told = False
        """Whether the user knows that the run waits."""
        self._give_up_at = math.inf
        self._reports = selectors.DefaultSelector()
        self._sweeps: dict[str, tuple[RemoteCall, float]] = {}
        self._problems: list[tuple[Host, str]] = []
        self._check_life_at = 0.0
        self._over = threading.Event()
        self._pulse = threading.Thread(target=self._beat, name="dlperf-pulse", daemon=True)
        self._pulse.start()

    def start(self, begin: Callable[[Sequence[Node]], Sequence[NodeCommand]]) -> None:
        """Have all nodes ready at once, and then their programs started.

        What they are, ``begin`` says once addresses and ports are known; it is called once.

        Raises:
            BrokenError: The run cannot be started.
            InterruptedRunError: A signal came.
        """
        self._gather()
        commands = begin(self._nodes())
        self.is_started = True
        started = self.nodes[: len(commands)]
        # A program that starts the others itself may do so as steps of the job around it.
        inherits = SLURM if self._order.head_only else ()
        for client, command in zip(started, commands, strict=True):
            client.start(
                command, inherits=(*inherits, *self._launcher.sets), in_front=self._in_front
            )
        self.listen(CONNECT_LIMIT_S, until=once_all(started, lambda client: client.start_is_known))
        for client in started:
            client.check_started(CONNECT_LIMIT_S)

    def _nodes(self) -> list[Node]:
        first = first_port(self._id)
        return [
            replace(
                client.node,
                # Some nodes may be one machine.
                port=first + len(client.node.device_ids) + rank,
                first_port=first,
                folder=self._folder(rank),
            )
            for rank, client in enumerate(self.nodes)
        ]

    def _gather(self) -> None:
        """Have all nodes ready at once, however often it takes to find all of them free."""
        again, self._give_up_at = False, time.monotonic() + self._order.wait_limit_s
        while not self._reached(again=again):
            again = True
            self._wait_for(self._queued_for())
            self._abandon(self.nodes)
            self.nodes = []
            self._pause()
        while not self._locked():
            busy = [client for client in self.nodes if client.state is NodeState.BUSY]
            for client in self.nodes:
                client.release()
            held = (f"{client.node.host.name}: {client.holder}" for client in busy)
            self._wait_for(f"another run, from elsewhere, holds {'; '.join(dict.fromkeys(held))}")
            self._pause()

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

    def tell(self, node: SupervisorClient) -> None:
        """Tell the user what a node has noted, each once."""
        while node.notes:
            self._order.say(f"{node.where}: {node.notes.pop(0)}")

    def take_reports(self) -> bool:
        """Take reports for a moment, or until one of them changes something; say whether one has.

        For a moment only: a signal's handler does not end the waiting. Of a thousand nodes, one
        shows a sign of life each millisecond, so that changes nothing and costs nothing else.
        """
        until = time.monotonic() + POLL_S
        left_s, changed = POLL_S, False
        while left_s > 0 and not changed:
            for key, _ in self._reports.select(left_s):
                client = key.data
                changed = client.receive() or changed
                if client.is_gone:
                    self._ignore(client)
            left_s = until - time.monotonic()
        return self._any_lost() or changed

    def _any_lost(self) -> bool:
        """Give up nodes that show no sign of life; look a few times a second only."""
        now = time.monotonic()
        if now < self._check_life_at:
            return False
        self._check_life_at = now + CHECK_LIFE_S
        for call, limit_s in self._sweeps.values():
            call.let_go_after(limit_s)
        found = False
        for client in self.nodes:
            if not client.is_gone:
                client.check_life(now)
                if client.is_gone:
                    self._ignore(client)
                    found = True
        return found

    def end(self, grace_s: float = supervisor_client.TERMINATION_GRACE_S) -> list[str]:
        """End what is left of the run: politely at first, unless in a hurry; then for certain."""
        try:
            # A node that is queued for, or does not answer, would keep all others waiting.
            self._abandon([client for client in self.nodes if not client.was_prepared])
            self._sweep()
            self._end_in_order(grace_s)
        finally:
            for client in self.nodes:
                client.kill()
            all_ended = once_all(self.nodes, lambda client: client.is_gone)
            self.listen(remains.REPORT_LIMIT_S, until=all_ended, patient=True)
            self._over.set()
            self._pulse.join()
            for client in self.nodes:
                self._ignore(client)
                self._note(client, *client.close())
                self.tell(client)
            self._sweep()
            self._end_sweeps()
            self._reports.close()
        return self._problems_by_host()

    def _end_in_order(self, grace_s: float) -> None:
        """Ask the nodes to end, and wait for ``grace_s`` seconds, or until a second signal."""
        deadline = time.monotonic() + grace_s
        # Other nodes have nothing but what the first one's program has started: it is asked first.
        waves = [self.nodes[:1], self.nodes[1:]] if self._order.head_only else [self.nodes]
        for wave in waves:
            for client in wave:
                client.end()
            ended = once_all(wave, lambda client: client.is_gone)
            self.listen(
                deadline - time.monotonic(),
                until=lambda ended=ended: len(self.signals) > 1 or ended(),  # type: ignore[misc]
                patient=True,
            )

    def _beat(self) -> None:
        """Send the supervisors a sign of life each second, from a thread of its own.

        Reading logs from a slow disk, or writing to a terminal that was stopped, may hold the run's
        own thread up for longer than a supervisor waits.
        """
        while not self._over.wait(supervisor.HEARTBEAT_INTERVAL_S):
            for client in tuple(self.nodes):
                client.show_life()

    # ------------------------------------------------------------------ before the start

    def _reached(self, *, again: bool) -> bool:
        """Reach all nodes; false when some stay queued for, and keeping the others is no use."""
        allow_connections(len(self._order.nodes))
        for rank, node in enumerate(self._order.nodes):
            client = SupervisorClient(self._launcher, node, f"{self._id}.{rank}.", again=again)
            self.nodes.append(client)
            self._reports.register(client, selectors.EVENT_READ, client)
        queues = self._launcher.queues
        all_reached = once_all(self.nodes, lambda client: client.is_reached)
        if queues:
            self.listen(QUEUE_SILENCE_S, until=all_reached)
            if not all_reached():
                self._wait_for(self._queued_for())
        self.listen(QUEUE_LIMIT_S if queues else CONNECT_LIMIT_S, until=all_reached)
        for client in self.nodes:
            client.check_reached(None if queues else CONNECT_LIMIT_S)
        return all(client.state is not NodeState.CONNECTING for client in self.nodes)

    def _locked(self) -> bool:
        """Take all hosts at once or none, so that two controllers never wait for each other."""
        for rank, client in enumerate(self.nodes):
            client.prepare(
                sweep=self._marked(client), folder=self._folder(rank), files=self._order.files
            )
        self.listen(
            CONNECT_LIMIT_S,
            until=once_all(self.nodes, lambda client: client.preparation_is_known),
        )
        for client in self.nodes:
            self.tell(client)
            client.check_prepared(CONNECT_LIMIT_S)
        return all(client.state is NodeState.PREPARED for client in self.nodes)

    def _queued_for(self) -> str:
        queued = (c.node.host.name for c in self.nodes if c.state is NodeState.CONNECTING)
        return f"{self._launcher.name} has queued the run for {', '.join(dict.fromkeys(queued))}"

    def _wait_for(self, why: str) -> None:
        """Tell once why the run has to wait, and raise when it has waited for too long."""
        if not self._is_told:
            self._order.say(f"waiting: {why}; {wait_hint(self._order.wait_limit_s)}")
            self._is_told = True
        if time.monotonic() > self._give_up_at:
            raise wait_timeout_error(self._order.wait_limit_s, why)

    def _pause(self) -> None:
        """Wait for a random time, so that two runs that collide do not collide again."""
        self.listen(random.uniform(0.5, 2.0), until=lambda: False)  # noqa: S311 - no secret

    # ------------------------------------------------------------------ the end

    def _abandon(self, clients: Sequence[SupervisorClient]) -> None:
        """Wait no longer for supervisors that have nothing to clean up."""
        for client in clients:
            self._ignore(client)
            client.abandon()

    def _ignore(self, client: SupervisorClient) -> None:
        # It may have been ignored before, and its pipe closed since.
        with contextlib.suppress(KeyError, ValueError):
            self._reports.unregister(client)

    def _sweep(self) -> None:
        """Begin to end what supervisors have left that are gone, each once."""
        for rank, client in enumerate(self.nodes):
            if not client.needs_sweep or client.marker in self._sweeps:
                continue
            order = client.sweep_order(self._marked(client), self._folder(rank))
            limit_s = SWEEP_LIMIT_S if client.lost is None else LOST_SWEEP_LIMIT_S
            host = client.node.host
            try:
                call = start_remote(self._launcher.outside, host, source_of(remains), order)
            except OSError as error:
                self._note(client, _not_swept(error.strerror or str(error)))
            else:
                self._sweeps[client.marker] = call, limit_s

    def _end_sweeps(self) -> None:
        """Wait for the sweeps, and report the nodes that they did not reach."""
        for client in self.nodes:
            if client.marker in self._sweeps:
                call, limit_s = self._sweeps[client.marker]
                output, reason = call.result(limit_s)
                reports = [read_report(line) or Report() for line in (output or b"").splitlines()]
                # A host that is out of reach cleans up by itself, as long as its supervisor lives.
                if client.lost is None and all(report.final is None for report in reports):
                    self._note(client, _not_swept(reason))
                for report in reports:
                    if report.final is not None and report.final.left:
                        self._note(client, remains.describe_survivors(report.final.left))
                    if report.at_end:
                        self._note(client, report.at_end)

    def _note(self, client: SupervisorClient, *problems: str) -> None:
        self._problems += [(client.node.host, problem) for problem in problems]

    def _problems_by_host(self) -> list[str]:
        """Say what went wrong at the end: one message for all hosts of which the same is true."""
        by_problem: dict[str, dict[str, None]] = {}
        for host, problem in self._problems:
            by_problem.setdefault(problem, {})[host.name] = None
        return [
            f"host{'s' * (len(names) > 1)} {', '.join(names)}: {problem}"
            for problem, names in by_problem.items()
        ]

    def _marked(self, client: SupervisorClient) -> str:
        # What node 0 started on other nodes carries its marker.
        return f"{self._id}." if self._order.head_only else client.marker


def _not_swept(reason: str) -> str:
    return (
        f"its supervisor is gone, and nobody could look for what it has left "
        f"({reason}); end what has {processes.MARKER} in its environment there"
    )
