"""One run: start its nodes, watch them, end all of it, and say how it went.

Signals to this process are deferred until nothing of the run is left.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Final, final

from pytest_dlperf.files.masking import in_message
from pytest_dlperf.launch import channel, supervisor_client
from pytest_dlperf.launch.gang import CONNECT_LIMIT_S, Gang, InterruptedRunError, RunOrder
from pytest_dlperf.launch.hosts import Host
from pytest_dlperf.launch.launchers import ADDRESS, Launcher, LocalLauncher
from pytest_dlperf.launch.node_progress import once_all
from pytest_dlperf.launch.plan import Node, NodeCommand
from pytest_dlperf.launch.record import (
    FirstStep,
    LaunchOutcome,
    Record,
    Stop,
    Stopped,
    sizes_of,
)
from pytest_dlperf.launch.supervisor_client import SupervisorClient
from pytest_dlperf.model.errors import BrokenError

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
_TRIAL_LOOK_S: Final = 1.0


def run_on_hosts(launcher: Launcher, order: RunOrder) -> LaunchOutcome:
    """Run all nodes to their end; nothing of the run is left when this returns or raises.

    Once one node has failed, the others have ``PEER_GRACE_S`` seconds to end. A run that cannot be
    started is an outcome with an ``error``. ``command.json`` in the run's folder records what was
    executed and how it ended.

    Raises:
        ValueError: There is no node.
        KeyboardInterrupt: SIGINT arrived.
    """
    if not order.nodes:
        raise ValueError("a run needs one node at least")
    with deferred_signals() as signals:
        return _Run(Gang(launcher, order, signals), order, signals).outcome()


def try_command(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    log: Path,
    *,
    is_enough: Callable[[], bool],
    limit_s: float,
) -> int | None:
    """Run a command here until its log shows enough, and end all that it has started.

    Returns its exit code, ``None`` if it was ended.

    Raises:
        BrokenError: It cannot be started.
    """
    host = Host(name="localhost", address=ADDRESS)
    command = NodeCommand(
        node_rank=0,
        host=host.name,
        address=host.address,
        arguments=tuple(arguments),
        environment=dict(environment),
        working_directory=None,
        log=log,
    )
    order = RunOrder(
        nodes=(Node(host=host, device_ids=(), log=log),),
        plan=lambda _: [command],
        time_limit_s=limit_s,
        wait_limit_s=CONNECT_LIMIT_S,
    )
    with deferred_signals() as signals:
        gang = Gang(LocalLauncher(), order, signals)
        try:
            gang.start(order.plan)
            [node] = gang.nodes
            deadline = time.monotonic() + limit_s
            while not node.is_done and not signals and time.monotonic() < deadline:
                gang.listen(_TRIAL_LOOK_S, until=lambda: node.is_done)
                if is_enough():
                    break
        except InterruptedRunError:
            return None  # the signal is raised when the block is left
        else:
            return node.exit_code
        finally:
            gang.end()


@final
class _Run:
    """A run of a gang: its deadline, its watch, its first failure and its record."""

    def __init__(self, gang: Gang, order: RunOrder, signals: DeferredSignals) -> None:
        self._gang = gang
        self._order = order
        self._signals = signals
        self._commands: Sequence[NodeCommand] = ()
        self._record: Record | None = None
        self._errors: list[str] = []
        self._log_sizes_at_end: tuple[int, ...] = ()
        self._first_failed: tuple[int, ...] = ()
        self._died_at: float | None = None
        """When the first node died, or was heard of last."""
        self._stopped = Stopped(Stop.EXITED)

    def outcome(self) -> LaunchOutcome:
        started = time.monotonic()
        try:
            try:
                self._gang.start(self._begin)
                started = time.monotonic()
                self._wait(started + self._order.time_limit_s)
            except BrokenError as error:
                self._errors.append(str(error))
            except InterruptedRunError:
                pass
        finally:
            self._end()
            outcome = self._outcome(time.monotonic() - started)
            if self._record is not None:
                outcome = self._record.end(outcome)
        return outcome

    def _begin(self, nodes: Sequence[Node]) -> Sequence[NodeCommand]:
        """Plan what these nodes run, and keep it."""
        self._commands = self._order.plan(nodes)
        record = Record(self._gang.engine, self._commands, self._order.time_limit_s)
        record.begin()
        self._record = record
        return self._commands

    def _outcome(self, elapsed_s: float) -> LaunchOutcome:
        errors = [*self._stopped.problems(self._signals), *self._errors]
        watch = self._order.watch
        codes = [node.exit_code for node in self._gang.nodes]
        codes += [None] * (len(self._order.nodes) - len(codes))
        if self._stopped.stop is Stop.EXITED and not self._signals and any(c != 0 for c in codes):
            errors = [*filter(None, [self._order.loss()]), *errors]
        return LaunchOutcome(
            exit_codes=tuple(codes[: len(self._commands) or None]),
            elapsed_s=elapsed_s,
            stopped=self._stopped,
            # Engines, clients and commands at the end have their last words in it.
            error=in_message("; ".join(errors)) or None,
            log_sizes_at_end=self._log_sizes_at_end,
            first_failed=self._first_failed,
            first_step=FirstStep() if watch is None else watch.first_step,
            nodes=tuple(node.final for node in self._gang.nodes),
        )

    # ------------------------------------------------------------------ while it lives

    @property
    def _working(self) -> Sequence[SupervisorClient]:
        return self._gang.nodes[: len(self._commands)]

    def _wait(self, deadline: float) -> None:
        """Wait until the programs have ended, the watch ends the run, or the deadline has passed.

        A signal ends the wait at once, a failed program after some seconds.
        """
        look_at = 0.0
        look_s = min(max(LOOK_S, LOOK_S_PER_NODE * len(self._commands)), LONGEST_LOOK_S)
        all_done = once_all(self._working, lambda node: node.is_done)
        failed, changed = False, True
        while not self._signals:
            failed = failed or (changed and self._any_failed())
            if failed:
                self._note_failure()
            if changed and all_done():
                return
            if failed:
                # What is left of the run has failed too: whether it ends in time says nothing.
                # Where a supervisor is gone, nothing watches over its program: no time for that.
                self._gang.listen(PEER_GRACE_S, until=lambda: all_done() or self._any_gone())
                return
            now = time.monotonic()
            if now >= deadline:
                limit_s = self._order.time_limit_s
                reason = f"it was not done at its time limit of {limit_s:g} s"
                self._stopped = Stopped(Stop.TIME_LIMIT, reason)
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
        idle = self._gang.nodes[len(self._commands) :]
        return any(node.failed for node in self._working) or any(node.is_gone for node in idle)

    def _any_gone(self) -> bool:
        return any(node.needs_sweep for node in self._gang.nodes)

    def _note_failure(self) -> None:
        """Record the first failure: when, on which nodes, and the sizes of the logs."""
        if self._died_at is None:
            # A host that is lost has been silent before, and a supervisor that was stopped as well.
            is_late = any(node.lost is not None for node in self._gang.nodes)
            self._died_at = time.monotonic() - (channel.HEARTBEAT_TIMEOUT_S if is_late else 0.0)
        if not self._first_failed:
            failed = [rank for rank, node in enumerate(self._working) if node.failed]
            self._first_failed = tuple(failed)
        self._note_log_sizes()

    def _end(self) -> None:
        if self._stopped.stop is Stop.COMPLETE:
            self._log_sizes_at_end = self._log_sizes_at_end or sizes_of(self._logs)
        elif any(node.is_broken_off for node in self._gang.nodes):
            self._note_log_sizes()
        grace_s = supervisor_client.TERMINATION_GRACE_S
        if self._commands and all(node.is_done for node in self._working):
            grace_s = min(grace_s, STRAGGLERS_GRACE_S)
        if self._died_at is not None:
            grace_s = min(grace_s, max(0.0, self._died_at + DEATH_LIMIT_S - time.monotonic()))
        known = "; ".join(self._errors)
        self._errors += [problem for problem in self._gang.end(grace_s) if problem not in known]

    def _note_log_sizes(self) -> None:
        """Record the sizes of the nodes' logs, once."""
        if self._log_sizes_at_end:
            return
        if self._gang.settle_s:
            # A program's last words and the news of its end come by ways of their own.
            self._gang.listen(self._gang.settle_s, until=lambda: False, patient=True)
        self._log_sizes_at_end = sizes_of(self._logs)

    @property
    def _logs(self) -> list[Path]:
        return [node.log for node in self._order.nodes[: len(self._commands)]]


# -------------------------------------------------------------------- signals that wait


class SignalCameError(Exception):
    """A signal interrupts a look at the logs."""


@final
class DeferredSignals(list[int]):
    """The signals that have come and are deferred."""

    def __init__(self) -> None:
        super().__init__()
        self._breaks = False

    @contextlib.contextmanager
    def breaking(self) -> Iterator[None]:
        """Let a signal interrupt the block, which may take long and needs no clean-up.

        Raises:
            SignalCameError: A signal came; it stays deferred.
        """
        self._breaks = True
        try:
            yield
        finally:
            self._breaks = False

    def note(self, number: int, _frame: FrameType | None) -> None:
        """Record a signal; the handler."""
        self.append(number)
        if self._breaks:
            self._breaks = False
            raise SignalCameError


@contextlib.contextmanager
def deferred_signals() -> Iterator[DeferredSignals]:
    """Defer SIGINT, SIGTERM and SIGHUP until the block is left; yield those that have come.

    An exception in the middle of a clean-up would leave the rest of it undone. When the block is
    left they take effect, in the order in which they came. Python allows this in the main thread
    only; elsewhere the block does nothing.
    """
    received = DeferredSignals()
    handlers = {}
    try:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                handler = signal.getsignal(number)
                # A handler that is not Python's own cannot be put back.
                if handler is not None and handler != signal.SIG_IGN:
                    handlers[number] = handler
                    signal.signal(number, received.note)
        yield received
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for arrived in dict.fromkeys(received):
            signal.raise_signal(arrived)
