"""The logs of one run, one of each node: whose steps count, and how far they have come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from pytest_dlperf.formats.log_format import Ranks, WhichNode
from pytest_dlperf.logs.opinions import measured, named
from pytest_dlperf.logs.throughput import LogState

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
        self._all_print = self.readings[0].log_format.ranks is Ranks.LOCAL

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

    # ------------------------------------------------------------------ while the run lives

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
        printers = self.readings if self._all_print else self.printers
        broken = [each for each in printers if each.state is LogState.BROKEN]
        enough = 1 if self._all_print or self._which is not WhichNode.ANY else len(printers)
        if not broken or len(broken) < enough:
            return None
        reason = broken[0].reason or ""
        if broken[0] is self.main:
            return reason
        return f"{named(broken[0])}: {reason}"

    @property
    def steps(self) -> StepsSeen:
        """How far the run has come; of several logs that count, the slowest says so."""
        return self._leading.steps

    @property
    def first_step(self) -> int | None:
        """The first step that the same log shows; ``None`` before it is there."""
        return self._leading.first_step

    @property
    def _leading(self) -> LogReading:
        choose = max if self._which is WhichNode.ANY else min
        return choose(self.printers, key=lambda each: each.steps.slowest, default=self.readings[0])

    @property
    def awaited(self) -> dict[tuple[int, str], int]:
        """The last step of each rank from which more is needed, by node and the rank's label.

        A node whose log need not show a step is there once it has shown one.
        """
        needed = {each.node for each in (self.readings if self._all_print else self.printers)}
        awaited = {
            (each.node, label): step
            for each in self.readings
            if each.state is LogState.GROWING
            for label, step in each.steps.awaited.items()
            if step or each.node in needed
        }
        return awaited if needed else {(0, ""): 0}  # one log has to begin

    @property
    def any_lags(self) -> bool:
        """Whether a node has shown steps, or will, and not yet all that count."""
        return any(
            each.state is LogState.GROWING and (self._all_print or each.steps.furthest)
            for each in self.readings
        )

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

    def close(self) -> None:
        """Close the logs; nothing more is read of them."""
        for each in self.readings:
            each.close()

    def finish(self, limits: Sequence[int | None] = ()) -> Run:
        """Read the rest and measure the run; the reading is over then.

        ``limits`` are how many bytes of each node's log count, where not all do.
        """
        bounds = [*limits, *[None] * len(self.readings)]
        self.readings = tuple(each.up_to(bounds[each.node]) for each in self.readings)
        try:
            return measured(self.readings, self._which, bounds)
        finally:
            self.close()
