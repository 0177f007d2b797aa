"""One run on its hosts, from the first connection until nothing of it is left.

Every node's program is started by a supervisor of its own on that node. It ends the program and all
of its descendants when the run is over, or when this process is gone or out of reach. Whatever they
started by way of a service of the machine, such as a container daemon, is found only if it carries
the run's marker. Only processes that descend from a supervisor, belong to its program's process
group or carry its marker are ever signalled.
"""

from __future__ import annotations

import contextlib
import random
import selectors
import time
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol, final

from pytest_dlperf.launch import agent as agent_module
from pytest_dlperf.launch import supervisor
from pytest_dlperf.launch.agent import Agent, LaunchError
from pytest_dlperf.launch.errand import sent
from pytest_dlperf.launch.interrupts import Interrupts
from pytest_dlperf.launch.plan import Node
from pytest_dlperf.launch.record import LaunchOutcome, Record
from pytest_dlperf.launch.watch import Stop

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_dlperf.launch.agent import Place
    from pytest_dlperf.launch.errand import Errand
    from pytest_dlperf.launch.launcher import Launcher
    from pytest_dlperf.launch.plan import NodeCommand

PEER_GRACE_S: Final = 5.0
"""How long the other nodes may go on after one has failed: time to write their own errors."""
CONNECT_LIMIT_S: Final = 30.0
"""How long it may take until a supervisor answers, unless the launcher queues."""
QUEUE_LIMIT_S: Final = 30.0
"""How long some nodes of a run are kept while others are still queued for."""
QUEUE_SILENCE_S: Final = 3.0
"""How long a run is queued for before that is said."""
POLL_S: Final = 0.05
LOOK_S: Final = 0.2
"""How often a run's logs are looked at."""
SWEEP_LIMIT_S: Final = 10.0
"""How long a second connection may take to end what a killed supervisor has left."""
LOST_SWEEP_LIMIT_S: Final = 4.0
"""The same where the host may be out of reach; if it is, its supervisor ends all by itself."""
SETTLE_S: Final = 0.3
"""How long a program's last output may take from another host after the news of its end."""


class Watcher(Protocol):
    """Follows the logs of a run while it lives."""

    @property
    def reason(self) -> str:
        """What made ``look`` say that the run has to end, for people."""

    def look(self) -> Stop | None:
        """Take what is new; why the run is to be ended, or ``None``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOrder:
    """One run: where its nodes go, what they will run there, and how long it may take.

    ``plan`` says what each node runs, node 0 first, once addresses and ports are known. With
    ``head_only`` it says so of node 0 alone, whose program starts the others' itself.
    ``time_limit_s`` counts from the start of the programs.
    """

    places: tuple[Place, ...]
    plan: Callable[[Sequence[Node]], Sequence[NodeCommand]]
    time_limit_s: float
    head_only: bool = False
    watch: Watcher | None = None
    on_wait: Callable[[str], None] | None = None


def run_on_hosts(launcher: Launcher, order: RunOrder) -> LaunchOutcome:
    """Run all nodes to their end; nothing of the run is left when this returns.

    The same holds when it is left by an exception. SIGINT, SIGTERM and SIGHUP do what they would
    have done after the run has been ended, when they arrive in the main thread.

    Once one node has failed, the others have ``PEER_GRACE_S`` seconds to end. A run that could not
    be started is an outcome too, with its ``error``; so is one whose log exists already and is not
    empty. What was executed and what became of it is kept in ``command.json`` in the run's folder,
    unless the logs cannot be written.

    Raises:
        ValueError: There is no node, or the main log is not named ``*.log``.
        KeyboardInterrupt: SIGINT arrived.
    """
    if not order.places:
        raise ValueError("a run needs one node at least")
    with Interrupts() as interrupts:
        return _Run(launcher, order, interrupts).outcome()


class _Interrupted(Exception):  # noqa: N818 - no error: the user's wish
    """A signal came before the run began."""


@final
class _Run:
    """A run's agents, from their start until their last process is gone."""

    __slots__ = (
        "_agents",
        "_commands",
        "_errors",
        "_first_failed",
        "_id",
        "_interrupts",
        "_launcher",
        "_log_size_at_failure",
        "_order",
        "_record",
        "_reports",
        "_said",
        "_stop",
        "_sweeps",
        "_timed_out",
    )

    def __init__(self, launcher: Launcher, order: RunOrder, interrupts: Interrupts) -> None:
        self._launcher = launcher
        self._order = order
        self._interrupts = interrupts
        self._id = uuid.uuid4().hex
        self._agents: list[Agent] = []
        self._commands: Sequence[NodeCommand] = ()
        self._reports = selectors.DefaultSelector()
        self._record: Record | None = None
        self._errors: list[str] = []
        self._log_size_at_failure: int | None = None
        self._first_failed: tuple[int, ...] = ()
        self._stop: Stop | None = None
        self._sweeps: dict[str, tuple[Errand, float]] = {}
        self._timed_out = False
        self._said = False

    def outcome(self) -> LaunchOutcome:
        started = time.monotonic()
        try:
            try:
                self._prepare()
                self._start()
            except LaunchError as error:
                self._errors.append(str(error))
            except _Interrupted:
                pass
            else:
                started = time.monotonic()
                self._wait(started + self._order.time_limit_s)
        finally:
            self._end()
            outcome = self._told(time.monotonic() - started)
            if self._record is not None:
                try:
                    self._record.write(outcome)
                except OSError as error:
                    told = f"cannot write {self._record.path}: {error.strerror}"
                    outcome = replace(outcome, error=outcome.error or told)
        return outcome

    def _told(self, elapsed_s: float) -> LaunchOutcome:
        watch, stop = self._order.watch, self._stop
        if watch is not None and stop is Stop.DISK_FULL:
            self._errors.insert(0, watch.reason)
        codes = [agent.exit_code for agent in self._agents]
        codes += [None] * (len(self._order.places) - len(codes))
        return LaunchOutcome(
            exit_codes=tuple(codes[: len(self._commands) or None]),
            elapsed_s=elapsed_s,
            timed_out=self._timed_out,
            # A log that is broken for good says itself what is wrong with the run.
            ended_early=stop in (Stop.COMPLETE, Stop.BROKEN),
            hung=watch.reason if watch is not None and stop is Stop.HUNG else None,
            error="; ".join(self._errors) or None,
            log_size_at_failure=self._log_size_at_failure,
            first_failed=self._first_failed,
        )

    # ------------------------------------------------------------------ before the start

    def _prepare(self) -> None:
        """Have all nodes ready at once, however often it takes to find all of them free.

        Raises:
            LaunchError: A node cannot be made ready.
            _Interrupted: A signal came.
        """
        again = False
        while not self._connected(again=again):
            again = True
            self._say_busy()
            self._close()
            self._agents = []
            self._pause()
        while not self._locked():
            self._say_busy()
            for agent in self._agents:
                agent.release()
            self._pause()

    def _connected(self, *, again: bool) -> bool:
        """Reach all nodes; false when some stay queued for, and keeping the others is no use."""
        for rank, place in enumerate(self._order.places):
            agent = Agent(self._launcher, place, f"{self._id}.{rank}.", again=again)
            self._agents.append(agent)
            self._reports.register(agent, selectors.EVENT_READ)
        queues = self._launcher.queues

        def all_reached() -> bool:
            return all(agent.ready or agent.ended for agent in self._agents)

        if queues:
            self._listen(QUEUE_SILENCE_S, until=all_reached)
            if not all_reached():
                self._say_busy()
        self._listen(QUEUE_LIMIT_S if queues else CONNECT_LIMIT_S, until=all_reached)
        for agent in self._agents:
            agent.check_reached()
            if not (agent.ready or queues):
                agent.give_up(f"no answer for {CONNECT_LIMIT_S:g} s")
                agent.check_reached()
        return all(agent.ready for agent in self._agents)

    def _locked(self) -> bool:
        """Take all hosts at once or none, so that two controllers never wait for each other."""
        for rank, agent in enumerate(self._agents):
            agent.prepare(
                scope=agent.place.lock_scope,
                sweep=self._marked(agent),
                scratch=self._scratch(rank),
            )
        self._listen(
            CONNECT_LIMIT_S, until=lambda: all(agent.has_prepared for agent in self._agents)
        )
        for agent in self._agents:
            agent.check_prepared()
        return all(agent.prepared for agent in self._agents)

    def _say_busy(self) -> None:
        if self._order.on_wait is not None and not self._said:
            self._said = True
            busy = [
                agent.place.host.name for agent in self._agents if agent.busy or not agent.ready
            ]
            hosts = ", ".join(busy or [agent.place.host.name for agent in self._agents])
            self._order.on_wait(f"waiting: another run, from elsewhere, holds {hosts}")

    def _pause(self) -> None:
        """Wait as long as nobody else does, so that two that collide do not collide again."""
        self._listen(random.uniform(0.5, 2.0), until=lambda: False)  # noqa: S311 - no secret

    def _scratch(self, rank: int) -> str:
        return f"/tmp/pytest-dlperf-{self._id}-{rank}"  # noqa: S108 - made only if it is new

    def _start(self) -> None:
        """Start the program of each node that has one.

        Raises:
            LaunchError: The record cannot be written, or a program or its folder is not there.
        """
        order = self._order
        nodes = [
            Node(
                host=agent.place.host.name,
                address=agent.place.host.address,
                port=agent.port or 0,
                device_ids=agent.place.device_ids,
                scratch_directory=self._scratch(rank),
            )
            for rank, agent in enumerate(self._agents)
        ]
        self._commands = order.plan(nodes)
        self._record = Record(self._launcher.name, self._commands, order.time_limit_s)
        try:
            self._record.write(None)
        except OSError as error:
            path, self._record = self._record.path, None
            raise LaunchError(f"cannot write {path}: {error.strerror}") from error
        started = self._agents[: len(self._commands)]
        for agent, command in zip(started, self._commands, strict=True):
            agent.start(command)
        self._listen(CONNECT_LIMIT_S, until=lambda: all(agent.answered() for agent in started))
        for agent in started:
            agent.check_started()

    # ------------------------------------------------------------------ while it lives

    @property
    def _working(self) -> list[Agent]:
        """The agents that have a program."""
        return self._agents[: len(self._commands)]

    def _wait(self, deadline: float) -> None:
        """Wait for the programs to end, for the watch to end the run, or for the deadline.

        Also returns when a signal came, or some seconds after the first program has failed.
        """
        look_at = 0.0
        while not self._interrupts.arrived():
            failed = self._any_failed()
            if failed:
                self._note_first_failed()
                self._note_log_size()
            if self._all_done():
                return
            if failed:
                # What is left of the run has failed too: whether it ends in time says nothing.
                # Where a supervisor is gone, nothing watches over its program: no time for that.
                self._listen(PEER_GRACE_S, until=lambda: self._all_done() or self._any_gone())
                return
            now = time.monotonic()
            if now >= deadline:
                self._timed_out = True
                return
            watch = self._order.watch
            if watch is not None and now >= look_at:
                self._stop = watch.look()
                if self._stop is not None:
                    return
                look_at = time.monotonic() + LOOK_S
            self._take_reports()

    def _any_failed(self) -> bool:
        idle = self._agents[len(self._commands) :]
        return any(agent.failed for agent in self._working) or any(agent.ended for agent in idle)

    def _any_gone(self) -> bool:
        return any(agent.needs_sweep for agent in self._agents)

    def _all_done(self) -> bool:
        return all(agent.done for agent in self._working)

    def _all_ended(self) -> bool:
        return all(agent.ended for agent in self._agents)

    # ------------------------------------------------------------------ the end

    def _end(self) -> None:
        """End what is left of the run: politely at first, unless in a hurry; then for certain."""
        if self._stop is not Stop.COMPLETE and any(
            agent.started and agent.exit_code != 0 for agent in self._agents
        ):
            self._note_log_size()
        hurry = self._interrupts.arrived_again
        try:
            for agent in self._agents:
                # A node that is queued for, or does not answer, would keep all others waiting.
                agent.abandon()
            self._sweep()
            self._tell(b"end\n")
            self._listen(
                agent_module.TERMINATION_GRACE_S,
                until=lambda: hurry() or self._all_ended(),
                patient=True,
            )
        finally:
            self._tell(b"kill\n")
            self._listen(3 * supervisor.KILL_LIMIT_S, until=self._all_ended, patient=True)
            self._close()
            self._sweep()
            for sweep, limit_s in self._sweeps.values():
                sweep.result(limit_s)
            self._reports.close()

    def _close(self) -> None:
        for agent in self._agents:
            with contextlib.suppress(KeyError):
                self._reports.unregister(agent)
            self._errors += agent.close()

    def _sweep(self) -> None:
        """Begin to end what supervisors have left that are gone, each once."""
        for rank, agent in enumerate(self._agents):
            if agent.needs_sweep and agent.marker not in self._sweeps:
                orders = supervisor.sweep_orders(self._marked(agent), self._scratch(rank))
                limit_s = SWEEP_LIMIT_S if agent.lost is None else LOST_SWEEP_LIMIT_S
                self._sweeps[agent.marker] = (
                    sent(self._launcher, agent.place.host, supervisor.__file__, orders, "0"),
                    limit_s,
                )

    def _marked(self, agent: Agent) -> str:
        """How the markers begin of what is an agent's to end."""
        # What node 0 started on other nodes carries its marker.
        return f"{self._id}." if self._order.head_only else agent.marker

    def _tell(self, order: bytes) -> None:
        for agent in self._agents:
            agent.order(order)

    # ------------------------------------------------------------------ reports

    def _listen(self, limit_s: float, *, until: Callable[[], bool], patient: bool = False) -> None:
        """Take reports until it is so, or too late; unless patient, a signal ends it too.

        Raises:
            _Interrupted: A signal came before any program was started.
        """
        deadline = time.monotonic() + limit_s
        while not until() and time.monotonic() < deadline:
            if not patient and self._interrupts.arrived():
                if not self._commands:
                    raise _Interrupted
                return
            self._take_reports()

    def _take_reports(self) -> None:
        """Wait for reports, for a moment only: a signal's handler does not end the waiting."""
        for key, _ in self._reports.select(POLL_S):
            for agent in self._agents:
                if agent is key.fileobj:
                    agent.receive()
        now = time.monotonic()
        for agent in self._agents:
            agent.keep_in_touch(now)
            if agent.ended:
                with contextlib.suppress(KeyError):
                    self._reports.unregister(agent)

    def _note_first_failed(self) -> None:
        if not self._first_failed:
            failed = [rank for rank, agent in enumerate(self._working) if agent.failed]
            self._first_failed = tuple(failed)

    def _note_log_size(self) -> None:
        """Keep the main log's size, unless it has been kept before."""
        if self._log_size_at_failure is None:
            if self._launcher.remote:
                # A program's last words and the news of its end come by ways of their own.
                deadline = time.monotonic() + SETTLE_S
                while time.monotonic() < deadline:
                    self._take_reports()
            with contextlib.suppress(OSError):
                self._log_size_at_failure = self._order.places[0].log.stat().st_size
