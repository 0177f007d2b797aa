"""One run in a queue, from its submission until nothing of it is left."""

from __future__ import annotations

import shlex
import time
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Final, final

from pytest_dlperf.files.writing import make_folder
from pytest_dlperf.launch.channel import open_log
from pytest_dlperf.launch.job_plan import job_of, nodes_that_met
from pytest_dlperf.launch.news import NodeNews
from pytest_dlperf.launch.queue import NodeEnd, Phase, SilentQueueError
from pytest_dlperf.launch.record import (
    LaunchOutcome,
    Record,
    Stop,
    Stopped,
    at_time_limit,
    sizes_of,
)
from pytest_dlperf.launch.run import LOOK_S, PEER_GRACE_S
from pytest_dlperf.launch.signals import SignalCameError, deferred_signals
from pytest_dlperf.launch.watchdog import Watchdog
from pytest_dlperf.model.errors import BrokenError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_dlperf.launch.job_plan import JobTerms
    from pytest_dlperf.launch.plan import NodeCommand
    from pytest_dlperf.launch.queue import JobState, Queue
    from pytest_dlperf.launch.run import RunOrder
    from pytest_dlperf.launch.signals import DeferredSignals

SILENCE_LIMIT_S: Final = 300.0
"""An engine may not answer for so long: a second controller of Slurm steps in after two minutes."""
CANCEL_LIMIT_S: Final = 60.0
"""An engine may not take the order to cancel a job for so long; then it is told in the end."""
END_LIMIT_S: Final = 60.0
"""A job may take so long to be gone after it was cancelled."""
BEHIND_S: Final = 5.0
"""What a node has reported may be seen here so long after the engine has seen the node end."""

_FIRST_TOLD_S: Final = 3.0
_TOLD_AGAIN_S: Final = 30.0
_WORDS_BYTES: Final = 2048
_WORDS_LINES: Final = 3


def run_submitted(queue: Queue, order: RunOrder, terms: JobTerms) -> LaunchOutcome:
    """Submit a run and see it to its end, as ``run_on_hosts`` does where hosts can be reached.

    Time in the queue counts towards its own limit only. Nothing of the job is left when this
    returns, or else the outcome says so and a process of its own goes on to cancel it.
    """
    with deferred_signals() as received:
        return _Submitted(queue, order, terms, received).outcome()


@final
class _Submitted:
    """A run in a queue, from its submission until the job is over."""

    def __init__(
        self, queue: Queue, order: RunOrder, terms: JobTerms, signals: DeferredSignals
    ) -> None:
        self._queue = queue
        self._order = order
        self._terms = terms
        self._signals = signals
        self._run_id = uuid.uuid4().hex
        self._job = job_of(queue, order, terms, run_id=self._run_id)
        self._news = [
            NodeNews(rank, reports, log)
            for rank, (reports, log) in enumerate(
                zip(self._job.reports, self._job.logs, strict=True)
            )
        ]
        self._handle: str | None = None
        self._may_exist = False
        self._state: JobState | None = None
        self._asked_at = self._heard_at = self._submitted_at = self._changed_at = time.monotonic()
        self._told = ""
        self._tell_at = self._submitted_at + _FIRST_TOLD_S
        self._commands: Sequence[NodeCommand] = ()
        self._record: Record | None = None
        self._errors: list[str] = []
        self._log_sizes_at_failure: tuple[int, ...] = ()
        self._log_sizes_when_complete: tuple[int, ...] = ()
        self._first_failed: tuple[int, ...] = ()
        self._stopped = Stopped(Stop.EXITED)

    def outcome(self) -> LaunchOutcome:
        started = time.monotonic()
        watchdog = None
        try:
            try:
                self._make_files()
                file = self._queue.program_file
                watchdog = Watchdog(
                    self._queue.cancel_command(self._job.name),
                    self._job.folder / file if file else None,
                )
                self._submit(watchdog)
                if self._come_up():
                    started = time.monotonic()
                    self._wait(started + self._order.time_limit_s)
            except BrokenError as error:
                self._errors.append(str(error))
        finally:
            try:
                is_over = self._end()
            except BaseException:
                if watchdog is not None:
                    watchdog.close(is_over=False)
                raise
            if watchdog is not None:
                watchdog.close(is_over=is_over and not self._may_exist)
            outcome = self._outcome(time.monotonic() - started)
            if self._record is not None:
                outcome = self._record.end(outcome)
        return outcome

    # ------------------------------------------------------------------ until it runs

    def _submit(self, watchdog: Watchdog) -> None:
        try:
            self._handle = self._queue.submit(self._job)
        except SilentQueueError:
            self._may_exist = True  # though nobody has a handle of it
            raise
        watchdog.submitted()

    def _make_files(self) -> None:
        """Make the folder, which is the user's alone, and the logs, which have to be new."""
        for log in self._job.logs:
            open_log(log).close()
        try:
            make_folder(self._job.folder.parent)
            self._job.folder.mkdir(mode=0o700)
        except OSError as error:
            raise BrokenError(f"cannot make {self._job.folder}: {error.strerror}") from error

    def _come_up(self) -> bool:
        """Wait until all programs were started; false where a signal came before."""
        limit_s = self._terms.queue_limit_s
        while not self._signals:
            self._look()
            faults = [self._fault(news) for news in self._news]
            if any(faults):
                raise BrokenError("; ".join(dict.fromkeys(filter(None, faults))))
            state = self._state
            if all(news.is_started or news.is_done for news in self._news):
                if not any(news.addresses for news in self._news):
                    why = f"{self._reason or ': no reason is known'}{self._last_words()}"
                    raise BrokenError(f"{self._named} was over before it began{why}")
                self._begin()
                return True
            if state is not None and state.broken is not None:
                raise BrokenError(f"{self._named}: {state.broken}")
            if time.monotonic() - self._submitted_at > limit_s:
                why = f" ({state.reason})" if state is not None and state.reason else ""
                raise BrokenError(
                    f"{self._named} had not begun after {limit_s:g} s{why}; "
                    "--dlperf-wait-limit sets how long a run may wait"
                )
            self._tell()
            time.sleep(LOOK_S)
        return False

    def _fault(self, news: NodeNews) -> str | None:
        problem = news.problem or self._terms.check(news)
        return None if problem is None else f"host {news.host or f'of node {news.rank}'}: {problem}"

    def _begin(self) -> None:
        """Keep what is executed, now that all of it is known."""
        hosts = [news.host for news in self._news]
        met = next(news for news in self._news if news.addresses)
        nodes = nodes_that_met(self._order, self._run_id, hosts, met.addresses, met.first)
        self._commands = self._order.plan(nodes)
        record = Record(self._queue.name, self._commands, self._order.time_limit_s)
        record.begin()
        self._record = record

    def _tell(self) -> None:
        """Tell what the job waits for, when it has waited for a moment, and when that changes."""
        state, say = self._state, self._order.on_wait
        if say is None or state is None or time.monotonic() < self._tell_at:
            return
        if state.phase is Phase.OVER:
            return
        what = "queued" if state.phase is Phase.QUEUED else "starting"
        text = f"{self._named} is {what}{f': {state.reason}' if state.reason else ''}"
        if text != self._told:
            limit_s = self._terms.queue_limit_s
            say(f"waiting: {text} (for {limit_s:g} s at most)")
            self._told = text
            self._tell_at = time.monotonic() + _TOLD_AGAIN_S

    @property
    def _named(self) -> str:
        return f"{self._queue.name} job {self._handle}"

    # ------------------------------------------------------------------ while it runs

    @property
    def _working(self) -> list[NodeNews]:
        return self._news[: len(self._commands)]

    def _wait(self, deadline: float) -> None:
        """Wait for the programs to end, for the watch to end the run, or for the deadline."""
        look_at = 0.0
        grace_until: float | None = None
        while not self._signals:
            self._look()
            if all(news.is_done for news in self._working):
                self._note_failure()
                return
            if any(news.failed for news in self._news):
                self._note_failure()
                grace_until = grace_until or time.monotonic() + PEER_GRACE_S
            now = time.monotonic()
            if grace_until is not None:
                if now >= grace_until:
                    return
            elif now >= deadline:
                self._stopped = at_time_limit(self._order.time_limit_s)
                return
            elif self._order.watch is not None and now >= look_at:
                try:
                    with self._signals.breaking():
                        stopped = self._order.watch.look()
                except SignalCameError:
                    self._order.watch.close()
                    return
                if stopped is not None:
                    self._stopped = stopped
                    return
                look_at = time.monotonic() + LOOK_S
            time.sleep(LOOK_S / 2)

    def _note_failure(self) -> None:
        failed = [news for news in self._working if news.failed]
        if failed and not self._first_failed:
            first = [news for news in failed if news.failed_by_itself] or failed
            self._first_failed = tuple(news.rank for news in first)
            self._note_log_sizes()

    def _note_log_sizes(self) -> None:
        if not self._log_sizes_at_failure:
            self._log_sizes_at_failure = sizes_of(self._logs)

    @property
    def _logs(self) -> Sequence[Path]:
        return self._job.logs[: len(self._commands)]

    # ------------------------------------------------------------------ news

    def _look(self) -> None:
        """Take what is new of the job and its nodes."""
        if self._handle is None:
            return
        now = time.monotonic()
        if now >= self._asked_at:
            # A job that has changed changes again soon, and many wait at one engine for long.
            age_s = now - max(self._submitted_at, self._changed_at)
            self._asked_at = now + min(max(0.5, age_s / 20), 5.0)
            self._ask(self._handle)
        self._queue.logs(self._handle)
        for news in self._news:
            news.refresh()

    def _ask(self, handle: str) -> None:
        try:
            state = self._queue.state(handle)
        except SilentQueueError as error:
            if time.monotonic() - self._heard_at > SILENCE_LIMIT_S:
                raise BrokenError(f"{self._named}: {error}") from error
            return
        now = time.monotonic()
        if self._state is None or state.phase is not self._state.phase:
            self._changed_at = now
        self._state, self._heard_at = state, now
        for rank, end in state.ends.items():
            self._news[rank].end = self._news[rank].end or end
        # An end that nobody has reported may only not be seen yet.
        if state.phase is Phase.OVER and now - self._changed_at > BEHIND_S:
            # What ended the job is the end of a node that has reported none, unless another's is.
            reason = "" if any(news.failed for news in self._news) else state.reason
            for news in self._news:
                news.end = news.end or NodeEnd(exit_code=None, reason=reason)

    @property
    def _reason(self) -> str:
        reason = self._state.reason if self._state is not None else ""
        return f": {reason}" if reason else ""

    def _last_words(self) -> str:
        """Give the last lines that the engine's own programs have printed."""
        with suppress(OSError):
            text = (self._job.folder / "output.log").read_bytes()[-_WORDS_BYTES:]
            lines = [line.strip() for line in text.decode("utf-8", "replace").splitlines()]
            words = "; ".join([line for line in lines if line][-_WORDS_LINES:])
            return f"; it has printed: {words}" if words else ""
        return ""

    # ------------------------------------------------------------------ the end

    def _end(self) -> bool:
        """Have the job ended, and say whether it is known to be over."""
        if self._stopped.stop is Stop.COMPLETE:
            self._log_sizes_when_complete = sizes_of(self._logs)
        elif any(news.exit_code != 0 for news in self._working):
            self._note_log_sizes()
        is_over = True
        if self._handle is not None:
            by_itself = bool(self._commands) and all(news.is_done for news in self._news)
            try:
                is_over = self._is_gone(self._handle, by_itself=by_itself)
            except BrokenError as error:
                if str(error) not in self._errors:
                    self._errors.append(str(error))
                is_over = False
            if not is_over:
                self._errors.append(
                    f"{self._named} is not known to be gone; it is cancelled again and again "
                    f"meanwhile, which is: {shlex.join(self._queue.cancel_command(self._job.name))}"
                )
            told = "; ".join(self._errors)
            self._errors += [text for text in self._queue.close(self._handle) if text not in told]
        for news in self._news:
            news.refresh()
            news.close()
            where = f"host {news.host or f'of node {news.rank}'}"
            self._errors += [f"{where}: {problem}" for problem in news.problems]
        return is_over

    def _is_gone(self, handle: str, *, by_itself: bool) -> bool:
        """Wait for the end of a job that comes by itself, or have it cancelled, and wait then."""
        if by_itself and self._is_over_within(BEHIND_S):
            self._cancel(handle)  # removes what a job that is over leaves
            return True
        self._cancel(handle)
        return self._is_over_within(END_LIMIT_S)

    def _cancel(self, handle: str) -> None:
        deadline = time.monotonic() + CANCEL_LIMIT_S
        while not self._is_cancelled(handle):
            # With a second signal somebody is losing patience.
            if time.monotonic() > deadline or len(self._signals) > 1:
                raise BrokenError(f"{self._named}: nobody takes the order to cancel it")
            time.sleep(1.0)

    def _is_cancelled(self, handle: str) -> bool:
        try:
            self._queue.cancel(handle)
        except SilentQueueError:
            return False
        return True

    def _is_over_within(self, limit_s: float) -> bool:
        deadline = time.monotonic() + limit_s
        self._asked_at = 0.0
        while time.monotonic() < deadline and len(self._signals) <= 1:
            self._submitted_at = time.monotonic()  # it changes often again
            self._look()
            if self._state is not None and self._state.phase is Phase.OVER:
                return True
            time.sleep(LOOK_S / 2)
        return False

    def _outcome(self, elapsed_s: float) -> LaunchOutcome:
        errors = [*self._stopped.problems(self._signals), *self._errors]
        if self._stopped.stop is Stop.EXITED:
            if self._first_failed and all(self._news[rank].is_asked for rank in self._first_failed):
                errors.append(f"{self._named} was ended from outside{self._reason}")
            told = "" if self._commands or self._state is None else self._state.reason
            errors += [
                f"node {news.rank}{f' on {news.host}' if news.host else ''}: {news.end.reason}"
                for news in self._news
                if news.end is not None
                and news.end.reason not in ("", told)
                and news.failed
                and not news.is_killed
            ]
        working = self._working or self._news
        return LaunchOutcome(
            exit_codes=tuple(_exit_code(news) for news in working),
            elapsed_s=elapsed_s,
            stopped=self._stopped,
            error="; ".join(errors) or None,
            log_sizes_at_failure=self._log_sizes_at_failure,
            log_sizes_when_complete=self._log_sizes_when_complete,
            first_failed=self._first_failed,
        )


def _exit_code(news: NodeNews) -> int | None:
    if news.exit_code is None and news.end is not None:
        return news.end.exit_code
    return news.exit_code
