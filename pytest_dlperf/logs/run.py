"""The logs of one run, one of each node: whose steps or numbers count, and what they say together.

The number is taken of the logs that ``log.node`` of the system names. What the others say of the
run must not contradict its case. Where every rank prints, a node whose log shows no step has not
trained.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final, final

from msgspec.structs import replace

from pytest_dlperf.formats.declared import DeclaredMetric
from pytest_dlperf.formats.log_format import LogFormat, Ranks, WhichNode
from pytest_dlperf.formats.printed import BrokenContractError
from pytest_dlperf.logs.facts import FactCheck
from pytest_dlperf.logs.lines import Block, LogFile, blocks, readable
from pytest_dlperf.logs.metrics import MetricScan, NodeLog, Numbers, invalid, with_declared
from pytest_dlperf.logs.reading import LogReading, LogState
from pytest_dlperf.logs.tracks import StepProgress
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import Estimator, Run, RunStatus
from pytest_dlperf.model.metric import THROUGHPUT
from pytest_dlperf.model.work import RateScope

MIN_BYTES_PER_LOOK: Final = 256 * 1024
"""Bytes that one look reads of each log, however many there are."""
REACH: Final = 1024 * 1024
"""Bytes by which a log that need not show steps is read further than the one that does."""
AGREEMENT: Final = 0.10
"""By this part the throughput by one node's log may exceed that by another's."""
_MAX_BYTES: Final = 256 * 1024 * 1024
"""Of a log in which numbers are found by key, which is held as a whole."""
_ALL: Final = 0, 0


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
        """The readings whose steps are the run's; the first stands for the run."""
        nodes = len(self.readings)
        return [each for each in self.readings if self._which.may_be(each.node, nodes)]

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
        for each in self.readings if self._all_print else self.printers:
            if each.state is LogState.BROKEN:
                is_main = each is self.printers[0]
                return each.reason if is_main else f"{_named(each)}: {each.reason}"
        return None

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
        printers = self.printers
        alone = printers[0] if self._which in {WhichNode.FIRST, WhichNode.LAST} else None
        sharing = len(self.readings) - (alone is not None)
        share = max(most // max(sharing, 1), MIN_BYTES_PER_LOOK)
        whole = [
            each.advance(each.position + (most if each is alone else share))
            for each in self.readings
        ]
        return all(whole)

    # ------------------------------------------------------------- what the nodes say together

    def finish(self, limits: Sequence[int | None] = ()) -> Run:
        """Read the rest and measure the run; the reading is over then.

        ``limits`` are how many bytes of each node's log count, where not all do.
        """
        bounds = [*limits, *[None] * len(self.readings)]
        self.readings = tuple(each.up_to(bounds[each.node]) for each in self.readings)
        counting = self.printers
        main, others = counting[0], [each for each in self.readings if each not in counting]
        results = {each.node: each.result(bounds[each.node]) for each in counting}
        runs = [run for run, _ in results.values()]
        bad = next((run for run in runs if run.status is not RunStatus.OK), None)
        if bad is None or not bad.steps:
            for other in others:
                # A node that does not print steps may have gigabytes of other things.
                bound, reach = bounds[other.node], main.position + REACH
                cut = reach if bound is None else min(bound, reach)
                other.advance(bound if self._all_print else cut)
        if bad is not None:
            return bad if bad.steps else replace(bad, reason=f"{bad.reason}{_whereabouts(others)}")
        run = _mean(runs)
        problems = (*map(self._refused, others), _disagreement(counting, runs))
        if (problem := next(filter(None, problems), None)) is not None:
            return invalid(run, problem)
        if main.declared:
            logs = {node: log for node, (_, log) in results.items()}
            for each in others:
                read = each.has_metrics
                none = NodeLog(str(each.path), {})
                logs[each.node] = each.result(bounds[each.node])[1] if read else none
            in_order = [logs[each.node] for each in self.readings]
            run = with_declared(run, main.declared, in_order, main.window_in_steps)
        return run

    def _refused(self, other: LogReading) -> str | None:
        """Say why a log that does not count makes the run a wrong one, if it does."""
        said: object = other.facts.contradiction()
        if said is None and self._all_print:
            if not other.steps.last:
                missing = "shows no step" if Path(other.path).exists() else "is not there"
                return f"{_named(other)} {missing}, and every rank prints ('ranks: local')"
            said = other.reason
        return None if said is None else f"{_named(other)}: {said}"


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
    main = readings[0]
    # The original's own arithmetic looked at one log; speeds of nodes are of each alone.
    if main.estimator is Estimator.PUBLISHED or main.log_format.rate_scope is RateScope.NODE:
        return None
    speeds = [run.metrics[THROUGHPUT] for run in runs]
    least, most = min(speeds), max(speeds)
    # The nodes of a sound run may be a step apart.
    allowed = max(AGREEMENT, 1 / min(run.steps or 1 for run in runs))
    if most <= least * (1 + allowed):
        return None
    fast, slow = (_named(readings[speeds.index(each)]) for each in (most, least))
    return (
        f"two nodes disagree by {most / least - 1:.0%}: {most:.6g} {main.unit} go by "
        f"{fast}, {least:.6g} by {slow}; allowed are {allowed:.0%}"
    )


def _whereabouts(others: Sequence[LogReading]) -> str:
    """Say whether the steps that the log which counts does not show are in another one."""
    for other in others:
        if other.steps.last:
            ends = {0: WhichNode.FIRST, len(others): WhichNode.LAST}
            node = ends.get(other.node)
            advice = f": write 'node: {node.value}' under 'log' of the system" if node else ""
            return f"; {_named(other)} shows steps{advice}"
    return ""


def _named(reading: LogReading) -> str:
    """Name a log by its node and path."""
    return f"the log of node {reading.node} ({readable(str(reading.path))})"


@final
class RunNumbers:
    """Reads the logs of a probe's run, which has no steps: what ``RunLogs`` is for a training.

    While the run lives nothing is known of it: it is over when its program ends.
    """

    readings: ClassVar[Sequence[LogReading]] = ()
    state: ClassVar[LogState] = LogState.GROWING
    reason: ClassVar[str | None] = None
    steps: ClassVar[StepProgress] = StepProgress()
    first_step: ClassVar[int | None] = None
    awaited: ClassVar[Mapping[tuple[int, str], int]] = {}
    any_lags: ClassVar[bool] = False
    lacks_numbers: ClassVar[bool] = False

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        run: int,
        case: Case,
        log_format: LogFormat,
        declared: Sequence[DeclaredMetric],
    ) -> None:
        self._paths = paths
        self._run = run
        self._case = case
        self._format = log_format
        self._declared = declared

    def advance(self, most: int) -> bool:  # noqa: ARG002 - as with steps
        """Read nothing yet."""
        return True

    def finish(self, limits: Sequence[int | None] = ()) -> Run:
        """Read the logs, of which so many bytes count each, and measure the run."""
        run = Run(run=self._run, status=RunStatus.OK, log=str(self._paths[0]))
        bounds = [*limits, *[None] * len(self._paths)]
        logs, size = list[NodeLog](), 0
        for node, path in enumerate(self._paths):
            of_node = [each for each in self._declared if each.is_on(node, len(self._paths))]
            scan = MetricScan([each for each in of_node if each.by_key is None])
            keyed = [Numbers(each) for each in of_node if each.by_key is not None]
            facts, why = FactCheck(self._format, self._case), None
            try:
                if of_node:
                    size += _read(path, scan, keyed, facts, bounds[node])
            except OSError as error:
                why = f"the log cannot be read: {error.strerror or error}"
            except BrokenContractError as error:
                why = error.reason
            if why is not None:
                return invalid(run, f"{why} ({readable(str(path))})")
            if (contradiction := facts.contradiction()) is not None:
                return invalid(run, str(contradiction))
            numbers = {each.declared.metric.name: each for each in (*scan.numbers, *keyed)}
            logs.append(NodeLog(str(path), numbers, has_steps=False))
        if not size:
            return invalid(run, "nothing was printed")
        return with_declared(run, self._declared, logs, _ALL)


def _read(
    path: Path, scan: MetricScan, keyed: Sequence[Numbers], facts: FactCheck, limit: int | None
) -> int:
    """Take the numbers and facts of a log; return how many bytes it has."""
    with LogFile(path) as file:
        file.limit = limit
        for block in blocks(file):
            # The program has ended, and so has its last line, whether it says so or not.
            whole = Block(block.text, block.offset)
            facts.look(whole)
            scan.search(whole, _ALL)
        size = file.size
        text = file.part(0, min(size, _MAX_BYTES)) if keyed else b""
    for numbers in keyed:
        if size > _MAX_BYTES:
            numbers.refuse(f"the log has {size} bytes; read by key are {_MAX_BYTES} at most", 0)
        elif numbers.declared.by_key is not None:
            numbers.take_found(numbers.declared.by_key.find(text))
    return size
