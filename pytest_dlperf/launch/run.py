"""One run on its hosts, from the first connection until nothing of it is left."""

from __future__ import annotations

import math
import time
import uuid
from typing import TYPE_CHECKING, Final, final

from msgspec import Struct

from pytest_dlperf.launch import channel, supervisor_client
from pytest_dlperf.launch.gang import CONNECT_LIMIT_S, Gang, InterruptedRunError, once_all
from pytest_dlperf.launch.inherited import SLURM
from pytest_dlperf.launch.plan import SCRATCH, Node
from pytest_dlperf.launch.record import (
    LaunchOutcome,
    Record,
    Stop,
    Stopped,
    at_time_limit,
    sizes_of,
)
from pytest_dlperf.launch.signals import SignalCameError, deferred_signals
from pytest_dlperf.model.errors import BrokenError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pytest_dlperf.launch.launchers import Launcher
    from pytest_dlperf.launch.plan import NodeCommand
    from pytest_dlperf.launch.signals import DeferredSignals
    from pytest_dlperf.launch.supervisor_client import Place, SupervisorClient
    from pytest_dlperf.launch.watch import RunWatch

PEER_GRACE_S: Final = 1.5
"""The other nodes may go on for so long after one has failed, to write their own errors."""
DEATH_LIMIT_S: Final = 4.0
"""What is left of a run is killed so long after one of its nodes has died, whatever came before.

That may have been the silence of a host, the other nodes' own errors, or the time to end in order.
"""
STRAGGLERS_GRACE_S: Final = 1.0
"""What a program leaves that has ended by itself may take so long to end after SIGTERM."""
LOOK_S: Final = 0.2
"""Interval between looks at a run's logs."""
LOOK_S_PER_NODE: Final = 0.002
LONGEST_LOOK_S: Final = 1.0
"""With many nodes it is longer, up to this: each has a log."""
SETTLE_S: Final = 0.3
"""A program's last output may arrive so long after the news of its end."""


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
    row: int = 0
    """How many ports in a row have to be free on all nodes."""
    watch: RunWatch | None = None
    on_wait: Callable[[str], None] | None = None
    wait_limit_s: float = math.inf
    """A run may wait so long for hosts that others hold."""


def run_on_hosts(launcher: Launcher, order: RunOrder) -> LaunchOutcome:
    """Run all nodes to their end; nothing of the run is left when this returns.

    The same holds when it is left by an exception. Signals wait until then (``deferred_signals``).
    Once one node has failed, the others have ``PEER_GRACE_S`` seconds to end. A run that cannot be
    started is an outcome with an ``error``. ``command.json`` in the run's folder keeps what was
    executed and what became of it.

    Raises:
        ValueError: There is no node.
        KeyboardInterrupt: SIGINT arrived.
    """
    if not order.places:
        raise ValueError("a run needs one node at least")
    with deferred_signals() as received:
        return _Run(launcher, order, received).outcome()


@final
class _Run:
    """A run from the first connection until its last process is gone."""

    def __init__(self, launcher: Launcher, order: RunOrder, signals: DeferredSignals) -> None:
        self._launcher = launcher
        self._order = order
        self._signals = signals
        self._gang = Gang(
            launcher,
            order.places,
            run_id=uuid.uuid4().hex,
            scratch=order.scratch,
            head_only=order.head_only,
            files=order.files,
            row=order.row,
            signals=signals,
            say=order.on_wait,
            wait_limit_s=order.wait_limit_s,
        )
        self._commands: Sequence[NodeCommand] = ()
        self._record: Record | None = None
        self._errors: list[str] = []
        self._log_sizes_at_failure: tuple[int, ...] = ()
        self._log_sizes_when_complete: tuple[int, ...] = ()
        self._first_failed: tuple[int, ...] = ()
        self._died_at: float | None = None
        """When the first node died, or was heard of last."""
        self._stopped = Stopped(Stop.EXITED)

    def outcome(self) -> LaunchOutcome:
        started = time.monotonic()
        try:
            try:
                self._gang.gather()
                self._start()
            except BrokenError as error:
                self._errors.append(str(error))
            except InterruptedRunError:
                pass
            else:
                started = time.monotonic()
                self._wait(started + self._order.time_limit_s)
        finally:
            self._end()
            outcome = self._outcome(time.monotonic() - started)
            if self._record is not None:
                outcome = self._record.end(outcome)
        return outcome

    def _outcome(self, elapsed_s: float) -> LaunchOutcome:
        errors = [*self._stopped.problems(self._signals), *self._errors]
        codes = [client.exit_code for client in self._gang.clients]
        codes += [None] * (len(self._order.places) - len(codes))
        return LaunchOutcome(
            exit_codes=tuple(codes[: len(self._commands) or None]),
            elapsed_s=elapsed_s,
            stopped=self._stopped,
            error="; ".join(errors) or None,
            log_sizes_at_failure=self._log_sizes_at_failure,
            log_sizes_when_complete=self._log_sizes_when_complete,
            first_failed=self._first_failed,
        )

    def _start(self) -> None:
        order = self._order
        nodes = [
            Node(
                host=client.place.host.name,
                address=client.place.host.address,
                port=client.port or 0,
                device_ids=client.place.device_ids,
                accelerators=client.place.accelerators,
                first_port=self._gang.first_port,
                folder=self._gang.folder(rank),
            )
            for rank, client in enumerate(self._gang.clients)
        ]
        self._commands = order.plan(nodes)
        self._gang.is_started = True
        record = Record(self._launcher.name, self._commands, order.time_limit_s)
        record.begin()
        self._record = record
        started = self._gang.clients[: len(self._commands)]
        # A program that starts the others itself may do so as steps of the job around it.
        inherits = SLURM if order.head_only else ()
        for client, command in zip(started, self._commands, strict=True):
            client.start(
                command,
                inherits=(*inherits, *self._launcher.sets),
                in_front=self._gang.in_front,
            )
        self._gang.listen(
            CONNECT_LIMIT_S, until=once_all(started, lambda client: client.start_is_known)
        )
        for client in started:
            client.check_started(CONNECT_LIMIT_S)

    # ------------------------------------------------------------------ while it lives

    @property
    def _working(self) -> list[SupervisorClient]:
        return self._gang.clients[: len(self._commands)]

    def _wait(self, deadline: float) -> None:
        """Wait for the programs to end, for the watch to end the run, or for the deadline.

        Also returns when a signal came, or some seconds after the first program has failed.
        """
        look_at = 0.0
        look_s = min(max(LOOK_S, LOOK_S_PER_NODE * len(self._commands)), LONGEST_LOOK_S)
        all_done = once_all(self._working, lambda client: client.is_done)
        failed, changed = False, True
        while not self._signals:
            failed = failed or (changed and self._any_failed())
            if failed:
                self._note_death()
                self._first_failed = self._first_failed or tuple(
                    rank for rank, client in enumerate(self._working) if client.failed
                )
                self._note_log_sizes()
            if changed and all_done():
                return
            if failed:
                # What is left of the run has failed too: whether it ends in time says nothing.
                # Where a supervisor is gone, nothing watches over its program: no time for that.
                self._gang.listen(PEER_GRACE_S, until=lambda: all_done() or self._any_gone())
                return
            now = time.monotonic()
            if now >= deadline:
                self._stopped = at_time_limit(self._order.time_limit_s)
                return
            watch = self._order.watch
            if watch is not None and now >= look_at:
                try:
                    with self._signals.breaking():
                        stopped = watch.look()
                except SignalCameError:
                    watch.close()  # what a look has left half done is read again, if it is at all
                    return
                if stopped is not None:
                    self._stopped = stopped
                    return
                look_at = time.monotonic() + look_s
            changed = self._gang.take_reports()

    def _any_failed(self) -> bool:
        idle = self._gang.clients[len(self._commands) :]
        return any(client.failed for client in self._working) or any(
            client.is_gone for client in idle
        )

    def _any_gone(self) -> bool:
        return any(client.needs_sweep or client.is_killed for client in self._gang.clients)

    def _end(self) -> None:
        if self._stopped.stop is Stop.COMPLETE:
            self._log_sizes_when_complete = sizes_of(self._logs)
        elif any(client.is_broken_off for client in self._gang.clients):
            self._note_log_sizes()
        grace_s = supervisor_client.TERMINATION_GRACE_S
        if self._commands and all(client.is_done for client in self._working):
            grace_s = min(grace_s, STRAGGLERS_GRACE_S)
        if self._died_at is not None:
            grace_s = min(grace_s, max(0.0, self._died_at + DEATH_LIMIT_S - time.monotonic()))
        self._gang.end(grace_s)
        self._errors += self._gang.problems

    def _note_death(self) -> None:
        if self._died_at is None:
            # A host that is lost has been silent before, and a supervisor that was stopped as well.
            is_late = any(client.is_unattended for client in self._gang.clients)
            self._died_at = time.monotonic() - (channel.HEARTBEAT_TIMEOUT_S if is_late else 0.0)

    def _note_log_sizes(self) -> None:
        """Keep the sizes of the nodes' logs, unless they have been kept before."""
        if self._log_sizes_at_failure:
            return
        if self._launcher.remote:
            # A program's last words and the news of its end come by ways of their own.
            self._gang.listen(SETTLE_S, until=lambda: False, patient=True)
        self._log_sizes_at_failure = sizes_of(self._logs)

    @property
    def _logs(self) -> list[Path]:
        return [place.log for place in self._order.places[: len(self._commands)]]
