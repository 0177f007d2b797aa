"""The logs of one run, one of each node: whose steps count, and what they say together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, final

from pytest_dlperf.logs.formats import WhichNode
from pytest_dlperf.logs.reader import readable
from pytest_dlperf.logs.run_metrics import with_declared
from pytest_dlperf.logs.throughput import LogState
from pytest_dlperf.model.measurement import RunStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_dlperf.logs.steps import StepsSeen
    from pytest_dlperf.logs.throughput import LogReading
    from pytest_dlperf.model.measurement import Run

MIN_BYTES_PER_LOOK: Final = 256 * 1024
"""Bytes that one look reads of each log, however many there are."""


@final
class RunLogs:
    """Reads the logs of a run's nodes, which may still be growing, and measures the run."""

    def __init__(
        self, readings: Iterable[LogReading], *, node: WhichNode = WhichNode.FIRST
    ) -> None:
        """Begin before the first byte of each node's log, node 0's first.

        ``node`` says whose logs show the run's steps.
        """
        self.readings = tuple(readings)
        self._which = node

    @property
    def printers(self) -> Sequence[LogReading]:
        """The readings whose steps are the run's; with ``any`` none until one shows a step."""
        if self._which is WhichNode.ANY:
            return [each for each in self.readings if each.steps.furthest]
        nodes = len(self.readings)
        return [each for each in self.readings if self._which.may_be(each.node, nodes)]

    @property
    def main(self) -> LogReading:
        """The reading of the log that stands for the run: the first whose steps count."""
        return next(iter(self.printers), self.readings[0])

    @property
    def state(self) -> LogState:
        """How far the run has come, by the steps that count."""
        if self.reason is not None:
            return LogState.BROKEN
        complete = [each.state is LogState.COMPLETE for each in self.printers]
        done = any(complete) if self._which is WhichNode.ANY else all(complete)
        return LogState.COMPLETE if done else LogState.GROWING

    @property
    def reason(self) -> str | None:
        """What has been broken for good, so that the run cannot be measured any more."""
        broken = [each for each in self.printers if each.state is LogState.BROKEN]
        if not broken or (self._which is WhichNode.ANY and len(broken) < len(self.printers)):
            return None
        return self._told(broken[0], broken[0].reason or "")

    @property
    def steps(self) -> StepsSeen:
        """How far the run has come; of several logs that count, the slowest says so."""
        return self._furthest.steps

    @property
    def first_step(self) -> int | None:
        """The first step that the same log shows; ``None`` before it is there."""
        return self._furthest.first_step

    @property
    def _furthest(self) -> LogReading:
        choose = max if self._which is WhichNode.ANY else min
        return choose(self.printers, key=lambda each: each.steps.slowest, default=self.readings[0])

    @property
    def awaited(self) -> dict[tuple[int, str], int]:
        """The last step of each rank from which more is needed, by node and the rank's label.

        A node whose log need not show a step is there once it has shown one.
        """
        needed = {each.node for each in self.printers}
        if not needed:  # somebody has to begin
            return {(0, ""): 0}
        return {
            (each.node, label): step
            for each in self.readings
            if each.state is LogState.GROWING
            for label, step in each.steps.awaited.items()
            if step or each.node in needed
        }

    @property
    def any_lags(self) -> bool:
        """Whether a node has shown steps, and not yet all that count."""
        return any(each.state is LogState.GROWING and each.steps.furthest for each in self.readings)

    @property
    def lacks_numbers(self) -> bool:
        """Whether a declared metric has no number yet, which may still come."""
        lacking = [each.lacking for each in self.readings]
        anywhere = {
            each.metric.name for each in self.readings[0].declared if each.node is WhichNode.ANY
        }
        return bool(
            frozenset.union(*lacking) - anywhere or frozenset.intersection(*lacking) & anywhere
        )

    def advance(self, most: int) -> bool:
        """Read what is new, at most so many bytes of one log; say whether that was all there is.

        The log that counts is read that far; the others share as many bytes.
        """
        alone = self.main if self._which in (WhichNode.FIRST, WhichNode.LAST) else None
        sharing = len(self.readings) - (alone is not None)
        share = max(most // max(sharing, 1), MIN_BYTES_PER_LOOK)
        caught_up = True
        for each in self.readings:
            bound = each.position + (most if each is alone else share)
            caught_up = each.advance(bound) and caught_up
        return caught_up

    def finish(self, limits: Sequence[int | None] = ()) -> Run:
        """Read the rest and measure the run; the reading is over then.

        ``limits`` are how many bytes of each node's log count, where not all do.
        """
        try:
            return self._finished([*limits, *[None] * len(self.readings)])
        finally:
            self.close()

    def close(self) -> None:
        """Close the logs; nothing more is read of them."""
        for each in self.readings:
            each.close()

    def _finished(self, limits: Sequence[int | None]) -> Run:
        main = self.main
        results = {main.node: main.result(limits[main.node])}
        run = results[main.node][0]
        if run.status is RunStatus.OK and main.declared:
            for each in self.readings:
                if each.node not in results:
                    results[each.node] = each.result(limits[each.node])
            logs = [results[each.node][1] for each in self.readings]
            run = with_declared(run, main.declared, logs, main.window_in_steps)
        return replace(run, log=readable(str(main.path)))

    def _told(self, reading: LogReading, reason: str) -> str:
        """Name the log that a reason is about, unless it is the one that stands for the run."""
        if reading is self.main:
            return reason
        return f"the log of node {reading.node}, {readable(str(reading.path))}: {reason}"
