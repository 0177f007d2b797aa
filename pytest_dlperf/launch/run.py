"""One run: start its nodes, watch them, end all of it, and say how it went.

Signals to this process are deferred until nothing of the run is left.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from types import FrameType
from typing import Final, final

from msgspec.structs import replace

from pytest_dlperf.files.masking import in_message
from pytest_dlperf.launch import remote_node
from pytest_dlperf.launch.gang import Gang
from pytest_dlperf.launch.launchers import Launcher
from pytest_dlperf.launch.plan import NodeCommand
from pytest_dlperf.launch.record import LaunchOutcome, RunOrder, Stop, Stopped, record_problem
from pytest_dlperf.launch.remote_node import RemoteNode
from pytest_dlperf.model.errors import BrokenError

PEER_GRACE_S: Final = 1.5
"""The other nodes may go on for so long after one has failed, to write their own errors."""
DEATH_LIMIT_S: Final = 4.0
"""What is left of a run is killed so long after one of its nodes has died, whatever came before.

That may have been the silence of a host, the other nodes' own errors, or the time to end in order.
"""
STRAGGLERS_GRACE_S: Final = 1.0
"""What a program leaves that has ended by itself may take so long to end after SIGTERM."""
SETTLE_S: Final = 0.3
"""A program's last output may arrive so long after the news of its end from another machine."""
LOOK_S: Final = 0.2
"""Interval between looks at a run's logs."""
LOOK_S_PER_NODE: Final = 0.002
LONGEST_LOOK_S: Final = 1.0
"""With many nodes it is longer, up to this: each has a log."""


def run_on_hosts(launcher: Launcher, order: RunOrder) -> LaunchOutcome:
    """Run all nodes to their end; nothing of the run is left when this returns or raises.

    Once one node has failed, the others have ``PEER_GRACE_S`` seconds to end. A run that cannot be
    started is an outcome with an ``error``. ``command.json`` in the run's folder records what was
    executed and how it ended.

    Raises:
        KeyboardInterrupt: SIGINT arrived.
    """
    with deferred_signals() as signals:
        return _Run(launcher, order, signals).outcome()


@final
class _Run:
    """A run of a gang: its deadline, its first failure and its record."""

    def __init__(self, launcher: Launcher, order: RunOrder, signals: Sequence[int]) -> None:
        self._launcher = launcher
        self._order = order
        self._signals = signals
        self._gang = Gang(launcher, order, signals)
        self._record = partial(
            record_problem,
            launcher=launcher.name,
            time_limit_s=order.time_limit_s,
            started=datetime.now(UTC).astimezone(),
        )
        self._commands: Sequence[NodeCommand] = ()
        self._errors: list[str] = []
        self._log_sizes_at_end: tuple[int, ...] = ()
        self._first_failed: tuple[int, ...] = ()
        self._died_at: float | None = None
        """When the first node died, or was heard of last."""
        self._stopped = Stopped(Stop.EXITED)

    def outcome(self) -> LaunchOutcome:
        started = time.monotonic()
        try:
            self._begin()
            started = time.monotonic()
            self._wait(started + self._order.time_limit_s)
        except BrokenError as error:
            if not self._signals:
                self._errors.append(str(error))
        finally:
            self._end()
            outcome = self._outcome(time.monotonic() - started)
            if self._commands:
                problem = self._record(self._commands, outcome)
                outcome = replace(outcome, error=outcome.error or problem)
        return outcome

    def _begin(self) -> None:
        """Plan what the nodes run, write it down, and start it."""
        commands = self._order.plan(self._gang.gather())
        if commands and (problem := self._record(commands, None)) is not None:
            raise BrokenError(problem)
        self._commands = commands
        self._gang.start(commands)

    def _outcome(self, elapsed_s: float) -> LaunchOutcome:
        errors = [*self._stopped.problems(self._signals), *self._errors]
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
        )

    # ------------------------------------------------------------------ while it lives

    @property
    def _working(self) -> Sequence[RemoteNode]:
        return self._gang.nodes[: len(self._commands)]

    def _are_done(self) -> bool:
        return all(node.is_done for node in self._working)

    def _wait(self, deadline: float) -> None:
        """Wait until the programs have ended, a look ends the run, or the deadline has passed.

        A signal ends the wait at once, a failed program after some seconds.
        """
        look_at = 0.0
        look_s = min(max(LOOK_S, LOOK_S_PER_NODE * len(self._commands)), LONGEST_LOOK_S)
        changed = True
        while not self._signals:
            if changed and self._any_failed():
                self._note_failure()
                # What is left of the run has failed too: whether it ends in time says nothing.
                # Where a supervisor is gone, nothing watches over its program: no time for that.
                self._gang.listen(
                    PEER_GRACE_S,
                    until=lambda: (
                        self._are_done() or any(node.needs_sweep for node in self._gang.nodes)
                    ),
                )
                return
            if changed and self._are_done():
                return
            now = time.monotonic()
            if now >= deadline:
                reason = f"it was not done at its time limit of {self._order.time_limit_s:g} s"
                self._stopped = Stopped(Stop.TIME_LIMIT, reason)
                return
            if now >= look_at:
                if stopped := self._order.look():
                    self._stopped = stopped
                    return
                look_at = time.monotonic() + look_s
            changed = self._gang.take_reports()

    def _any_failed(self) -> bool:
        idle = self._gang.nodes[len(self._commands) :]
        return any(node.failed for node in self._working) or any(node.is_gone for node in idle)

    def _note_failure(self) -> None:
        """Record the first failure: when, on which nodes, and the sizes of the logs."""
        # A host that is lost has been silent before, and a supervisor that was stopped as well.
        is_late = any(node.lost is not None for node in self._gang.nodes)
        self._died_at = time.monotonic() - (remote_node.HEARTBEAT_TIMEOUT_S if is_late else 0.0)
        failed = [rank for rank, node in enumerate(self._working) if node.failed]
        self._first_failed = tuple(failed)
        self._note_log_sizes(settle=True)

    def _end(self) -> None:
        nodes = self._gang.nodes
        if self._stopped.stop is Stop.COMPLETE:
            self._note_log_sizes(settle=False)
        elif any("started" in node.reports and node.exit_code != 0 for node in nodes):
            self._note_log_sizes(settle=True)
        grace_s = remote_node.TERMINATION_GRACE_S
        if self._commands and self._are_done():
            grace_s = min(grace_s, STRAGGLERS_GRACE_S)
        if self._died_at is not None:
            grace_s = min(grace_s, max(0.0, self._died_at + DEATH_LIMIT_S - time.monotonic()))
        known = "; ".join(self._errors)
        self._errors += [problem for problem in self._gang.end(grace_s) if problem not in known]

    def _note_log_sizes(self, *, settle: bool) -> None:
        """Record the sizes of the nodes' logs, once."""
        if not self._log_sizes_at_end:
            if settle and self._launcher.remote:
                # A program's last words and the news of its end come by ways of their own.
                self._gang.listen(SETTLE_S, until=lambda: False, patient=True)
            logs = (command.log for command in self._commands)
            self._log_sizes_at_end = tuple(
                log.stat().st_size if log.exists() else 0 for log in logs
            )


@contextlib.contextmanager
def deferred_signals() -> Iterator[list[int]]:
    """Defer SIGINT, SIGTERM and SIGHUP until the block is left; yield those that have come.

    An exception in the middle of a clean-up would leave the rest of it undone. When the block is
    left they take effect, in the order in which they came. Python allows this in the main thread
    only; elsewhere the block does nothing.
    """
    received: list[int] = []
    handlers = {}

    def note(number: int, _frame: FrameType | None) -> None:
        received.append(number)

    try:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                handler = signal.getsignal(number)
                # A handler that is not Python's own cannot be put back.
                if handler is not None and handler != signal.SIG_IGN:
                    handlers[number] = handler
                    signal.signal(number, note)
        yield received
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for arrived in dict.fromkeys(received):
            signal.raise_signal(arrived)
