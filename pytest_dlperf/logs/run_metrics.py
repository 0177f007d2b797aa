"""One number per metric of a run, from all that its logs hold; and what is missing or unsound."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from operator import gt
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.formats.declared import DeclaredMetric, Over
from pytest_dlperf.formats.log_format import WhichNode
from pytest_dlperf.logs.lines import LogFile, line_number, readable
from pytest_dlperf.logs.metric_numbers import Numbers
from pytest_dlperf.model import statistics
from pytest_dlperf.model.measurement import Run, RunStatus
from pytest_dlperf.model.metric import Metric, Sanity, Statistic

_LEAST: Final = 1e-100
_GREATEST: Final = 1e100
"""Beyond these, quotients and squares of numbers would leave the range of a float."""
_JUDGEABLE: Final = f"a finite number above zero ({_LEAST:g} at least), to be judged"


class _MissingError(Exception):
    """A metric without a number that could be judged; the text says why."""


class _UnsoundError(Exception):
    """A run that no metric may be taken of; the text says why."""


class NodeLog(Struct, frozen=True):
    """The log of one node, as far as it was read.

    ``problem`` is what was wrong with its steps: of interest where a number is missing.
    """

    path: str
    numbers: Mapping[str, Numbers]
    problem: str | None = None
    has_steps: bool = True


def with_declared(
    run: Run, declared: Iterable[DeclaredMetric], logs: Sequence[NodeLog], window: tuple[int, int]
) -> Run:
    """Add the metrics that the logs of a sound run print, node 0's first.

    The run is invalid where one is not as it has to be. ``window`` is the last step before the
    measured ones, and the last of them.
    """
    metrics, missing = dict(run.metrics), dict(run.missing)
    for each, its_logs in _single(declared, logs):
        metric = each.metric
        try:
            number = _number(each, its_logs, window, run.log)
        except _MissingError as error:
            if metric.sanity is not None and metric.better is None and metric.is_judged:
                return invalid(run, str(error))
            missing[metric.name] = str(error)
        except _UnsoundError as error:
            return invalid(run, str(error))
        else:
            if math.isfinite(number):
                metrics[metric.name] = number
            else:
                missing[metric.name] = _complaint(metric, number, "a finite number, to be recorded")
    return replace(run, metrics=metrics, missing=missing)


def _single(
    declared: Iterable[DeclaredMetric], logs: Sequence[NodeLog]
) -> Iterator[tuple[DeclaredMetric, Sequence[NodeLog]]]:
    """Give each metric and the logs with its numbers; for a family that has any, its members."""
    for each in declared:
        name = each.metric.name
        found = [log.numbers[name].members() if name in log.numbers else {} for log in logs]
        if each.metric.is_family and (names := dict.fromkeys(chain.from_iterable(found))):
            for one in names:
                member = replace(each, metric=each.metric.member(one))
                yield (
                    member,
                    [
                        replace(
                            log,
                            numbers={member.metric.name: own.get(one) or Numbers(each)},
                        )
                        for log, own in zip(logs, found, strict=True)
                    ],
                )
            faults = [log.numbers[name].fault for log in logs if name in log.numbers]
            if not any(faults):
                continue
        yield each, logs


def reduced(statistic: Statistic, values: Sequence[float]) -> float:
    """Make one number of all; of ``last``, the last."""
    return _STATISTICS[statistic](values)


def invalid(run: Run, reason: str) -> Run:
    """Take back what was measured of a run."""
    return replace(run, status=RunStatus.INVALID, metrics={}, missing={}, reason=reason)


def _number(
    declared: DeclaredMetric, logs: Sequence[NodeLog], window: tuple[int, int], main: str | None
) -> float:
    metric = declared.metric
    read = [
        (log, log.numbers[metric.name])
        for node, log in enumerate(logs)
        if declared.is_on(node, len(logs))
    ]
    for log, numbers in read:
        if numbers.fault is not None:
            reason, offset = numbers.fault
            raise _MissingError(f"{metric.name}: {reason} ({_place(log, main, offset)})")
    lacking = [log for log, numbers in read if not numbers.values]
    if lacking and (len(lacking) == len(read) or declared.node is not WhichNode.ANY):
        raise _MissingError(_looked_for(declared, lacking, window))
    for log, numbers in read:
        _check_each(metric, numbers, log, main)
    values = [value for _, numbers in read for value in numbers.values]
    if metric.sanity is not None and metric.sanity.falls:
        _check_falling(metric, [numbers for _, numbers in read])
    if metric.statistic in (None, Statistic.LAST):
        values = [value for _, numbers in read for value in _last_of_ranks(numbers)]
        number = metric.better.worst(tuple(values)) if metric.better else _ordered(max, values)
    else:
        number = _ordered(partial(reduced, metric.statistic), values)
    if metric.better is not None and not number >= _LEAST:
        raise _MissingError(_complaint(metric, number, _JUDGEABLE))
    return number


def _ordered(reduce: Callable[[Sequence[float]], float], values: Sequence[float]) -> float:
    """Make one number of all; NaN where one is not a number, or they have no sum."""
    return math.nan if math.isnan(sum(values)) else reduce(values)


def _looked_for(
    declared: DeclaredMetric, lacking: Sequence[NodeLog], window: tuple[int, int]
) -> str:
    pattern = declared.record.pattern
    log = lacking[0]
    where = readable(log.path)
    if len(lacking) > 1:
        where += f" and {len(lacking) - 1} more logs"
    if not (log.has_steps or declared.has_step) and declared.over is Over.WINDOW:
        return (
            f"{where} shows no steps{_because(log)}, so that no number in it is of the window; if "
            f"it has numbers, give '{pattern}' the group 'step', or write 'over: run'"
        )
    if declared.over is Over.RUN:
        return f"looked for '{pattern}' in {where}: no match{_because(log)}"
    return (
        f"looked for '{pattern}' in {where}: no match in the window, steps {window[0] + 1} to "
        f"{window[1]}{_because(log)}; what is printed only once needs 'over: run'"
    )


def _because(log: NodeLog) -> str:
    return f" ({log.problem})" if log.problem else ""


def _place(log: NodeLog, main: str | None, offset: int) -> str:
    name = "" if log.path == main else f"{readable(log.path)}, "
    try:
        with LogFile(log.path) as file:
            return f"{name}line {line_number(file, offset)}"
    except OSError:
        return f"{name}byte {offset}"


def _check_each(metric: Metric, numbers: Numbers, log: NodeLog, main: str | None) -> None:
    """Check each number; the first that is not as it has to be is told."""
    sanity = metric.sanity
    has_bounds = sanity is not None and (sanity.below is not None or sanity.above is not None)
    is_signed = metric.better is not None and min(numbers.values, default=0) < 0
    are_usual = all(map(partial(gt, _GREATEST), map(abs, numbers.values)))
    if are_usual and not (has_bounds or is_signed):
        return
    for value, offset in zip(numbers.values, numbers.offsets, strict=True):
        if sanity is not None and (broken := _broken(sanity, value)):
            said = _complaint(metric, value, broken)
            raise _UnsoundError(f"{said} ({_place(log, main, offset)})")
        if metric.better is not None and not 0 <= value < math.inf:
            said = _complaint(metric, value, _JUDGEABLE)
            raise _MissingError(f"{said} ({_place(log, main, offset)})")
        if math.isfinite(value) and abs(value) >= _GREATEST:
            said = _complaint(metric, value, f"one below {_GREATEST:g}")
            raise _MissingError(f"{said} ({_place(log, main, offset)})")


def _complaint(metric: Metric, value: float, needed: str) -> str:
    return f"{metric.name} is {value:.6g} {metric.unit}".rstrip() + f"; needed is {needed}"


def _broken(sanity: Sanity, value: float) -> str | None:
    """Say what a number has to be and is not; ``None`` where all is well."""
    if sanity.finite and not math.isfinite(value):
        return "a finite number"
    if sanity.below is not None and not value < sanity.below:
        return f"one below {sanity.below:g}"
    if sanity.above is not None and not value > sanity.above:
        return f"one above {sanity.above:g}"
    return None


def _check_falling(metric: Metric, read: Sequence[Numbers]) -> None:
    """Compare the halves of the window; ranks and nodes may print in any order."""
    by_step: dict[int, list[float]] = {}
    for numbers in read:
        for step, value in zip(numbers.steps, numbers.values, strict=True):
            by_step.setdefault(step, []).append(value)
    values = [statistics.mean(by_step[step]) for step in sorted(by_step)]
    half = len(values) // 2
    if not half:
        raise _UnsoundError(
            f"{metric.name} has to fall, and the window holds one number of it only"
        )
    falls = statistics.fall(values) if all(map(math.isfinite, values)) else -math.inf
    if falls > statistics.CLEAR_FALL:
        return
    first, second = (statistics.mean(part) for part in (values[:half], values[half:]))
    said = f"its mean is {first:.6g} in the first half of the window and {second:.6g} in the second"
    if falls < -statistics.CLEAR_FALL:
        raise _UnsoundError(f"{metric.name} does not fall: {said}")
    raise _UnsoundError(
        f"{metric.name} does not fall beyond its scatter: {said}. Random (synthetic) data looks "
        f"so: there, write '{metric.name}: {{sanity: finite}}' under 'metrics'"
    )


def _last_of_ranks(numbers: Numbers) -> list[float]:
    """Give the last number of each rank, where ranks name themselves; else of all."""
    ranks = numbers.ranks or [b""] * len(numbers.values)
    last: dict[bytes, tuple[int, float]] = {}
    for rank, step, value in zip(ranks, numbers.steps, numbers.values, strict=True):
        if rank not in last or step >= last[rank][0]:
            last[rank] = step, value
    return [value for _, value in last.values()]


_STATISTICS: Mapping[Statistic, Callable[[Sequence[float]], float]] = {
    Statistic.MEDIAN: statistics.median,
    Statistic.MEAN: statistics.mean,
    Statistic.MAX: max,
    Statistic.MIN: min,
    Statistic.LAST: lambda values: values[-1],
    Statistic.P95: lambda values: statistics.percentile(values, 95),
    Statistic.P99: lambda values: statistics.percentile(values, 99),
}
