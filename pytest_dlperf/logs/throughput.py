"""From a log to one run's throughput: the one way in for those who measure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_dlperf.logs.contract import BrokenContractError, Estimate, FactCheck, checked
from pytest_dlperf.logs.neighbours import recognise
from pytest_dlperf.logs.published import PublishedLines
from pytest_dlperf.logs.reader import BUFFER_SIZE, LogFile, line_number, records, regions
from pytest_dlperf.logs.steady import Collector, steady_collector
from pytest_dlperf.measurement import Estimator, Run, RunStatus

if TYPE_CHECKING:
    import io
    from pathlib import Path

    from pytest_dlperf.cases import Case
    from pytest_dlperf.logs.formats import LogFormat
    from pytest_dlperf.measurement import Window


def measure_log(  # noqa: PLR0913 - a log and everything that it is judged by
    path: Path | str,
    *,
    number: int,
    case: Case,
    log_format: LogFormat,
    window: Window,
    estimator: Estimator,
    limit: int | None = None,
    buffer_size: int = BUFFER_SIZE,
) -> Run:
    """Measure the run that a log tells of.

    Whatever the log holds, the answer is a run: ok with its throughput, or invalid with a reason.
    ``steps`` of an ok run are those that the number rests on (for ``published``, lines or
    iterations, as its definition counts); of an invalid one, those that were found.

    Args:
        path: The log; the main one, of the first node, when a run has several.
        number: Which run of its case it is.
        case: What was to be trained; the log must not contradict it.
        log_format: How the log shows steps.
        window: The steps that count.
        estimator: How throughput is defined.
        limit: How many bytes of the log count, from its begin, as if it ended there; ``None`` for
            all. A record that is cut there does not count.
        buffer_size: Bytes to read at once; the result does not depend on it.

    Raises:
        ValueError: The format has no published definition and ``published`` was asked for, or
            the window is none.
    """
    if window.warmup_steps < 0 or window.measured_steps < 1:
        raise ValueError(
            f"{window} is no window: at least one step is measured, after none or more"
        )
    collector = _collector(log_format, case, window, estimator)
    try:
        with LogFile(path, limit=limit) as file:
            try:
                estimate = checked(_estimate(file, collector, log_format, case, buffer_size))
            except BrokenContractError as error:
                return Run(
                    run=number,
                    throughput=None,
                    status=RunStatus.INVALID,
                    reason=_reason(file, error),
                    log=str(path),
                    steps=collector.steps_found,
                )
    except OSError as error:
        return Run(
            run=number,
            throughput=None,
            status=RunStatus.INVALID,
            reason=f"the log cannot be read: {error.strerror or error}",
            log=str(path),
            steps=collector.steps_found,
        )
    return Run(
        run=number,
        throughput=estimate.throughput,
        status=RunStatus.OK,
        reason=estimate.note,
        log=str(path),
        steps=estimate.steps,
    )


def _collector(
    log_format: LogFormat, case: Case, window: Window, estimator: Estimator
) -> Collector:
    if estimator is Estimator.STEADY:
        return steady_collector(log_format, window, case)
    if log_format.published is None:
        raise ValueError(f"the log format {log_format.name} has no published definition")
    return PublishedLines(log_format, log_format.published, window, case)


def _estimate(
    file: io.FileIO, collector: Collector, log_format: LogFormat, case: Case, buffer_size: int
) -> Estimate:
    facts = FactCheck(log_format, case)
    contradiction: BrokenContractError | None = None
    in_header = True
    empty = True
    for region in regions(file, buffer_size):
        empty = False
        if in_header:
            first = next(iter(records(region, log_format)), None)
            end = region.end if first is None else first[0]
            contradiction = contradiction or facts.contradiction(region, end)
            in_header = first is None
        if contradiction is not None:
            if in_header:
                # Without a step, the log may well be another system's.
                continue
            raise contradiction
        try:
            stop = collector.feed(region)
        except BrokenContractError as error:
            # What the log says of its devices up to there explains more.
            facts.note_devices(region, max((error.offset or 0) - region.offset, 0))
            raise
        facts.note_devices(region, region.end if stop is None else stop)
        if stop is not None:
            break
    if in_header:
        raise _no_steps(file, log_format, contradiction, empty=empty)
    estimate = collector.estimate()
    facts.check_devices()
    return estimate


def _no_steps(
    file: io.FileIO,
    log_format: LogFormat,
    contradiction: BrokenContractError | None,
    *,
    empty: bool,
) -> BrokenContractError:
    if empty:
        return BrokenContractError("the log is empty")
    neighbour = recognise(file, log_format)
    if neighbour is not None:
        return BrokenContractError(f"this is {neighbour}, not one of format {log_format.name}")
    if contradiction is not None:
        return contradiction
    if log_format.whole_lines:
        pattern = log_format.record.pattern.decode()
        return BrokenContractError(f"no line of the log matches the record's pattern '{pattern}'")
    return BrokenContractError(f"the log holds no step of format {log_format.name}")


def _reason(file: io.FileIO, error: BrokenContractError) -> str:
    if error.offset is None:
        return error.reason
    return f"{error.reason} ({error.place} {line_number(file, error.offset)})"
