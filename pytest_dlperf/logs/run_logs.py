"""The logs of one run, one of each node: whose steps count, and what they say together.

The number is taken of the logs that ``log.node`` of the system names. What the others say of the
run must not contradict its case. Where every rank prints, a node whose log shows no step has not
trained.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, final

from msgspec.structs import replace

from pytest_dlperf.formats.log_format import Ranks, WhichNode
from pytest_dlperf.logs.lines import readable
from pytest_dlperf.logs.reading import LogReading, LogState
from pytest_dlperf.logs.run_metrics import NodeLog, invalid, with_declared
from pytest_dlperf.logs.tracks import StepProgress
from pytest_dlperf.model.measurement import Estimator, Run, RunStatus
from pytest_dlperf.model.metric import THROUGHPUT
from pytest_dlperf.model.work import RateScope

MIN_BYTES_PER_LOOK: Final = 256 * 1024
"""Bytes that one look reads of each log, however many there are."""
REACH: Final = 1024 * 1024
"""Bytes by which a log that need not show steps is read further than the one that does."""
AGREEMENT_PERCENT: Final = 10
"""By so much the throughput by one node's log may exceed that by another's."""


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
        """The readings whose steps are the run's."""
        nodes = len(self.readings)
        return [each for each in self.readings if self._which.may_be(each.node, nodes)]

    @property
    def main(self) -> LogReading:
        """The reading of the log that stands for the run: the first whose steps count."""
        return self.printers[0]

    # ------------------------------------------------------------------ while the run lives

    @property
    def state(self) -> LogState:
        """How far the run has come, by the steps that count."""
        if self.reason is not None:
            return LogState.BROKEN
        done = all(each.state is LogState.COMPLETE for each in self.printers)
        return LogState.COMPLETE if done else LogState.GROWING

    @property
    def reason(self) -> str | None:
        """What has been broken for good, so that the run cannot be measured any more."""
        printers = self.readings if self._all_print else self.printers
        broken = [each for each in printers if each.state is LogState.BROKEN]
        if not broken:
            return None
        reason = broken[0].reason or ""
        if broken[0] is self.main:
            return reason
        return f"{_named(broken[0])}: {reason}"

    @property
    def steps(self) -> StepProgress:
        """How far the run has come; of several logs that count, the slowest says so."""
        return self._leading.steps

    @property
    def first_step(self) -> int | None:
        """The first step that the same log shows; ``None`` before it is there."""
        return self._leading.first_step

    @property
    def _leading(self) -> LogReading:
        return min(self.printers, key=lambda each: each.steps.slowest)

    @property
    def awaited(self) -> dict[tuple[int, str], int]:
        """The last step of each rank from which more is needed, by node and the rank's label.

        A node whose log need not show a step is there once it has shown one.
        """
        needed = {each.node for each in (self.readings if self._all_print else self.printers)}
        return {
            (each.node, label): step
            for each in self.readings
            if each.state is LogState.GROWING
            for label, step in each.steps.awaited.items()
            if step or each.node in needed
        }

    @property
    def any_lags(self) -> bool:
        """Whether a node has shown steps, or will, and not yet all that count."""
        return any(
            each.state is LogState.GROWING and (self._all_print or each.steps.last)
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

    def restart(self) -> None:
        """Forget what was read, where a look has been broken off."""
        self.readings = tuple(dataclasses.replace(each) for each in self.readings)

    def finish(self, limits: Sequence[int | None] = ()) -> Run:
        """Read the rest and measure the run; the reading is over then.

        ``limits`` are how many bytes of each node's log count, where not all do.
        """
        bounds = [*limits, *[None] * len(self.readings)]
        self.readings = tuple(each.up_to(bounds[each.node]) for each in self.readings)
        return _measured(self.readings, self._which, bounds)


# ------------------------------------------------------------- what the nodes say together


def _measured(
    readings: Sequence[LogReading], which: WhichNode, bounds: Sequence[int | None]
) -> Run:
    """Measure a run by the logs of its nodes, of which so many bytes count."""
    counting = [each for each in readings if which.may_be(each.node, len(readings))]
    others = [each for each in readings if each not in counting]
    results = {each.node: each.result(bounds[each.node]) for each in counting}
    main, runs = counting[0], [run for run, _ in results.values()]
    bad = next((run for run in runs if run.status is not RunStatus.OK), None)
    if bad is not None:
        where = "" if bad.steps else _whereabouts(main, others, bounds)
        return replace(bad, reason=f"{bad.reason}{where}")
    run = _mean(runs)
    for other in others:
        _look_at(other, main, bounds)
        if (problem := _refused(other)) is not None:
            return invalid(run, problem)
    for other in others:
        if main.log_format.ranks is Ranks.LOCAL and other.state is LogState.BROKEN:
            return other.result(bounds[other.node])[0]
    if (problem := _disagreement(counting, runs)) is not None:
        return invalid(run, problem)
    if main.declared:
        more = {each.node: each.result(bounds[each.node]) for each in others if each.has_metrics}
        logs = {node: log for node, (_, log) in (results | more).items()}
        of_all = [logs.get(each.node) or NodeLog(str(each.path), {}) for each in readings]
        run = with_declared(run, main.declared, of_all, main.window_in_steps)
    return run


def _look_at(other: LogReading, main: LogReading, bounds: Sequence[int | None]) -> None:
    """Read a log that does not count as far as it tells something."""
    bound = bounds[other.node]
    if main.log_format.ranks is not Ranks.LOCAL:
        # A node that does not print steps may have gigabytes of other things.
        reach = main.position + REACH
        bound = reach if bound is None else min(bound, reach)
    other.advance(bound)


def _refused(other: LogReading) -> str | None:
    """Say why a log that does not count makes the run a wrong one, if it does."""
    if (said := other.facts.contradiction()) is not None:
        return f"{_named(other)}: {said}"
    if other.log_format.ranks is Ranks.LOCAL and not other.steps.last:
        missing = "shows no step" if Path(other.path).exists() else "is not there"
        return f"{_named(other)} {missing}, and every rank prints ('ranks: local')"
    return None


def _mean(runs: Sequence[Run]) -> Run:
    """Make one run of what each node says.

    The mean of speeds that are each scaled to all nodes is the sum of the nodes' own.
    """
    if len(runs) == 1:
        return runs[0]
    throughput = sum(run.metrics[THROUGHPUT] for run in runs) / len(runs)
    slowest = {name: max(run.metrics.get(name, 0) for run in runs) for name in runs[0].metrics}
    notes = dict.fromkeys(run.reason for run in runs if run.reason)
    return replace(
        runs[0],
        metrics={**slowest, THROUGHPUT: throughput},
        missing={name: why for run in runs for name, why in run.missing.items()},
        reason="; ".join(notes) or None,
        steps=min(run.steps or 0 for run in runs),
        paused=any(run.paused for run in runs),
    )


def _disagreement(readings: Sequence[LogReading], runs: Sequence[Run]) -> str | None:
    """Find two logs that count and say different things of one run."""
    reading = readings[0]
    if reading.estimator is Estimator.PUBLISHED:
        return None  # the original's own arithmetic, which looked at one log
    if reading.log_format.rate_scope is RateScope.NODE:
        return None  # each speaks of itself
    by_speed = sorted(
        zip(readings, runs, strict=True), key=lambda each: each[1].metrics[THROUGHPUT]
    )
    (slow, slowest), (fast, fastest) = by_speed[0], by_speed[-1]
    least, most = slowest.metrics[THROUGHPUT], fastest.metrics[THROUGHPUT]
    # The nodes of a sound run may be a step apart.
    steps = min(run.steps or 1 for run in runs)
    allowed = max(AGREEMENT_PERCENT / 100, 1 / steps)
    if most <= least * (1 + allowed):
        return None
    return (
        f"two nodes disagree by {most / least - 1:.0%}: {most:.6g} {reading.unit} go by "
        f"{_named(fast)}, {least:.6g} by {_named(slow)}; allowed are {allowed:.0%}"
    )


def _whereabouts(
    main: LogReading, others: Sequence[LogReading], bounds: Sequence[int | None]
) -> str:
    """Say whether the steps that the log which counts does not show are in another one."""
    for other in others:
        _look_at(other, main, bounds)
        if other.steps.last:
            ends = {0: WhichNode.FIRST, len(others): WhichNode.LAST}
            node = ends.get(other.node)
            advice = f": write 'node: {node.value}' under 'log' of the system" if node else ""
            return f"; {_named(other)} shows steps{advice}"
    return ""


def _named(reading: LogReading) -> str:
    """Name a log by its node and path."""
    return f"the log of node {reading.node} ({readable(str(reading.path))})"
