"""Nodes of a run that an engine queues: a job, from its submission until it is over.

What a node reports stands in a file, which grows on a disk that the node shares or is brought here.
"""

from __future__ import annotations

import contextlib
import shlex
import time
import uuid
from typing import TYPE_CHECKING, Any, Final, final

from pytest_dlperf.files.writing import make_folder
from pytest_dlperf.launch.channel import open_log
from pytest_dlperf.launch.gang import Gang, InterruptedRunError
from pytest_dlperf.launch.job_plan import job_of, nodes_that_met
from pytest_dlperf.launch.node_progress import NodeProgress, NodeState, first_known, read_report
from pytest_dlperf.launch.queue import NodeEnd, Phase, SilentQueueError
from pytest_dlperf.launch.watchdog import Watchdog
from pytest_dlperf.model.errors import BrokenError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pytest_dlperf.launch.gang import RunOrder
    from pytest_dlperf.launch.job_plan import JobTerms
    from pytest_dlperf.launch.node_progress import Report
    from pytest_dlperf.launch.plan import Node, NodeCommand, Place
    from pytest_dlperf.launch.queue import JobState, Queue

SILENCE_LIMIT_S: Final = 300.0
"""An engine may not answer for so long: a second controller of Slurm steps in after two minutes."""
CANCEL_LIMIT_S: Final = 60.0
"""An engine may not take the order to cancel a job for so long; then it is told in the end."""
END_LIMIT_S: Final = 60.0
"""A job may take so long to be gone after it was cancelled."""
BEHIND_S: Final = 5.0
"""What a node has reported may be seen here so long after the engine has seen the node end."""
POLL_S: Final = 0.1

_FIRST_SAID_S: Final = 3.0
_SAID_AGAIN_S: Final = 30.0
_WORDS_BYTES: Final = 2048
_WORDS_LINES: Final = 3


@final
class QueuedNode(NodeProgress):
    """A node of a job, whose reports are read from a file."""

    def __init__(self, rank: int, place: Place, reports: Path) -> None:
        """Begin before the job does."""
        super().__init__(place, NodeState.QUEUED)
        self.rank = rank
        self.host = ""
        """Its name, once it is there."""
        self.look: dict[str, Any] | None = None
        """What the look at the node has found."""
        self.addresses: tuple[str, ...] = ()
        """The addresses of all nodes, once they have met."""
        self.end: NodeEnd | None = None
        """How the engine says that the node has ended."""
        self._reports = reports
        self._read = 0

    @property
    def is_gone(self) -> bool:
        """Whether it has ended, or what watches over its program was killed."""
        return self.killed is not None or self.end is not None

    @property
    def failed_by_itself(self) -> bool:
        """Whether it is known to have failed before the engine ended it."""
        by_engine = self.end is not None and (self.end.exit_code is not None or self.end.reason)
        is_known = self.exit_code is not None or self.killed is not None or by_engine
        return bool(is_known and super().failed_by_itself)

    @property
    def final_exit_code(self) -> int | None:
        """The exit code, by the engine where the node has not reported it."""
        engines = None if self.end is None else self.end.exit_code
        return engines if self.exit_code is None else self.exit_code

    @property
    def where(self) -> str:
        """The node, for people."""
        return f"host {self.host or f'of node {self.rank}'}"

    def refresh(self) -> bool:
        """Take what has been reported since the last time; say whether it is news."""
        with contextlib.suppress(FileNotFoundError), self._reports.open("rb") as file:
            file.seek(self._read)
            # What has no end yet is read again.
            lines = file.read().rpartition(b"\n")[0]
            self._read += len(lines) + bool(lines)
            reports = filter(None, map(read_report, lines.splitlines()))
            changed = [self.take(report) for report in reports]
            return any(changed)
        return False

    def take(self, report: Report) -> bool:
        """Take a report, also of what the node has found on its way to the others."""
        self.host = report.host or self.host
        self.look = first_known(report.look, self.look)
        self.addresses = report.addresses or self.addresses
        return super().take(report)

    def close(self) -> list[str]:
        """Read the last reports, and say what went wrong."""
        self.refresh()
        killed = [f"{self.killed}, and the run with it"] if self.killed is not None else []
        return [f"{self.where}: {problem}" for problem in (*killed, *self.close_log())]


@final
class QueuedGang(Gang):
    """The job of a run.

    Time in the queue counts towards its own limit only. Where the job cannot be seen to its end, a
    process of its own goes on to cancel it.
    """

    def __init__(
        self, queue: Queue, order: RunOrder, terms: JobTerms, signals: Sequence[int]
    ) -> None:
        """Submit nothing yet; signals that come are added to ``signals``."""
        super().__init__(order, signals)
        self.engine = queue.name
        self._queue = queue
        self._terms = terms
        self._run_id = uuid.uuid4().hex
        self._job = job_of(queue, order, terms, run_id=self._run_id)
        self.nodes: list[QueuedNode] = [
            QueuedNode(rank, place, reports)
            for rank, (place, reports) in enumerate(
                zip(order.places, self._job.reports, strict=True)
            )
        ]
        self._watchdog: Watchdog | None = None
        self._handle: str | None = None
        self._may_exist = False
        """Whether the engine may have taken a job of which it has given no handle."""
        self._state: JobState | None = None
        self._asked_at = self._heard_at = self._submitted_at = self._changed_at = time.monotonic()
        self._last_said = ""
        self._say_at = self._submitted_at + _FIRST_SAID_S

    # ------------------------------------------------------------------ until it runs

    def start(self, begin: Callable[[Sequence[Node]], Sequence[NodeCommand]]) -> None:
        """Submit the job, and wait until all programs were started."""
        self._make_files()
        file = self._queue.program_file
        self._watchdog = Watchdog(
            self._queue.cancel_command(self._job.name), self._job.folder / file if file else None
        )
        try:
            self._handle = self._queue.submit(self._job)
        except SilentQueueError as error:
            self._may_exist = True
            raise BrokenError(
                f"{error}; whether it has taken the job is not known, so {self._keeps_cancelling}"
            ) from error
        self._watchdog.submitted()
        self._come_up()
        hosts = [node.host for node in self.nodes]
        met = next(node for node in self.nodes if node.addresses)
        begin(nodes_that_met(self._order, self._run_id, hosts, met.addresses))
        self.is_started = True

    def _make_files(self) -> None:
        """Make the folder, which is the user's alone, and the logs, which have to be new."""
        for log in self._job.logs:
            open_log(log).close()
        try:
            make_folder(self._job.folder.parent)
            self._job.folder.mkdir(mode=0o700)
        except OSError as error:
            raise BrokenError(f"cannot make {self._job.folder}: {error.strerror}") from error

    def _come_up(self) -> None:
        """Wait until it is known of all nodes whether their programs were started."""
        limit_s = self._terms.queue_limit_s
        while not self.signals:
            self._look()
            faults = [self._fault(node) for node in self.nodes]
            if any(faults):
                raise BrokenError("; ".join(dict.fromkeys(filter(None, faults))))
            state = self._state
            if all(node.start_is_known for node in self.nodes):
                if not any(node.addresses for node in self.nodes):
                    why = f"{self._reason or ': no reason is known'}{self._last_words()}"
                    raise BrokenError(f"{self._title} was over before it began{why}")
                return
            if state is not None and state.broken is not None:
                raise BrokenError(f"{self._title}: {state.broken}")
            if time.monotonic() - self._submitted_at > limit_s:
                why = f" ({state.reason})" if state is not None and state.reason else ""
                raise BrokenError(
                    f"{self._title} had not begun after {limit_s:g} s{why}; "
                    "--dlperf-wait-limit sets how long a run may wait"
                )
            self._say_why_it_waits()
            time.sleep(2 * POLL_S)
        raise InterruptedRunError

    def _fault(self, node: QueuedNode) -> str | None:
        problem = None if node.look is None else self._terms.check(node.host, node.look)
        if node.state in (NodeState.NOT_STARTED, NodeState.UNUSABLE):
            problem = node.problem or "its working directory is not there"
        return None if problem is None else f"{node.where}: {problem}"

    def _say_why_it_waits(self) -> None:
        """Tell what the job waits for, when it has waited for a moment, and when that changes."""
        state = self._state
        if state is None or time.monotonic() < self._say_at or state.phase is Phase.OVER:
            return
        what = "queued" if state.phase is Phase.QUEUED else "starting"
        text = f"{self._title} is {what}{f': {state.reason}' if state.reason else ''}"
        if text != self._last_said:
            limit_s = self._terms.queue_limit_s
            self._order.say(f"waiting: {text} (for {limit_s:g} s at most)")
            self._last_said = text
            self._say_at = time.monotonic() + _SAID_AGAIN_S

    @property
    def _keeps_cancelling(self) -> str:
        command = shlex.join(self._queue.cancel_command(self._job.name))
        return f"it is cancelled again and again, for a quarter of an hour at most, by: {command}"

    @property
    def _title(self) -> str:
        return f"{self._queue.name} job {self._handle}"

    # ------------------------------------------------------------------ while it runs

    def take_reports(self) -> bool:
        """Look at the job and at what its nodes have reported; then pause for a moment."""
        changed = self._look()
        if not changed:
            time.sleep(POLL_S)
        return changed

    def _look(self) -> bool:
        """Take what is new of the job and its nodes; say whether anything is."""
        if self._handle is None:
            return False
        now = time.monotonic()
        changed = False
        if now >= self._asked_at:
            # A job that has changed changes again soon, and many wait at one engine for long.
            age_s = now - max(self._submitted_at, self._changed_at)
            self._asked_at = now + min(max(0.5, age_s / 20), 5.0)
            changed = self._ask(self._handle)
        self._queue.logs(self._handle)
        news = [node.refresh() for node in self.nodes]
        return changed or any(news)

    def _ask(self, handle: str) -> bool:
        """Ask the engine how far the job is; say whether a node has ended."""
        try:
            state = self._queue.state(handle)
        except SilentQueueError as error:
            if time.monotonic() - self._heard_at > SILENCE_LIMIT_S:
                raise BrokenError(f"{self._title}: {error}") from error
            return False
        now = time.monotonic()
        if self._state is None or state.phase is not self._state.phase:
            self._changed_at = now
        self._state, self._heard_at = state, now
        ended = [node for node in self.nodes if node.end is not None]
        for rank, end in state.ends.items():
            self.nodes[rank].end = self.nodes[rank].end or end
        # An end without a report may only not be seen yet.
        if state.phase is Phase.OVER and now - self._changed_at > BEHIND_S:
            # What ended the job is the end of a node that has reported none, unless another's is.
            reason = "" if any(node.failed for node in self.nodes) else state.reason
            for node in self.nodes:
                node.end = node.end or NodeEnd(exit_code=None, reason=reason)
        return len(ended) < sum(node.end is not None for node in self.nodes)

    @property
    def _reason(self) -> str:
        reason = self._state.reason if self._state is not None else ""
        return f": {reason}" if reason else ""

    def _last_words(self) -> str:
        """Give the last lines that the engine's own programs have printed."""
        with contextlib.suppress(OSError):
            text = (self._job.folder / "output.log").read_bytes()[-_WORDS_BYTES:]
            lines = [line.strip() for line in text.decode("utf-8", "replace").splitlines()]
            words = "; ".join([line for line in lines if line][-_WORDS_LINES:])
            return f"; it has printed: {words}" if words else ""
        return ""

    # ------------------------------------------------------------------ the end

    def end(self, grace_s: float) -> list[str]:
        """Have the job ended; programs have as long for it as their supervisors give them."""
        del grace_s
        is_over = False
        try:
            is_over, problems = self._ended()
        finally:
            if self._watchdog is not None:
                self._watchdog.close(is_over=is_over and not self._may_exist)
        for node in self.nodes:
            problems += node.close()
            self.tell(node)
        return problems

    def _ended(self) -> tuple[bool, list[str]]:
        """Have the job ended; give whether it is known to be over, and what went wrong."""
        if self._handle is None:
            return True, []
        problems = []
        by_itself = self.is_started and all(node.is_done for node in self.nodes)
        try:
            is_over = self._is_gone(self._handle, by_itself=by_itself)
        except BrokenError as error:
            problems.append(str(error))
            is_over = False
        if not is_over:
            problems.append(f"{self._title} is not known to be gone; {self._keeps_cancelling}")
        return is_over, [*problems, *self._queue.close(self._handle)]

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
            # A second signal asks to stop waiting.
            if time.monotonic() > deadline or len(self.signals) > 1:
                raise BrokenError(f"{self._title}: the order to cancel it is not taken")
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
        while time.monotonic() < deadline and len(self.signals) <= 1:
            self._submitted_at = time.monotonic()  # it changes often again
            self._look()
            if self._state is not None and self._state.phase is Phase.OVER:
                return True
            time.sleep(POLL_S)
        return False

    def reasons(self, first_failed: Sequence[int]) -> list[str]:
        """Say what the engine knows of the ends of nodes."""
        reasons = []
        if first_failed and all(self.nodes[rank].is_asked for rank in first_failed):
            reasons.append(f"{self._title} was ended from outside{self._reason}")
        told = "" if self.is_started or self._state is None else self._state.reason
        return reasons + [
            f"node {node.rank}{f' on {node.host}' if node.host else ''}: {node.end.reason}"
            for node in self.nodes
            if node.end is not None
            and node.end.reason not in ("", told)
            and node.failed
            and node.killed is None
        ]
