"""Logs that commands are given: read with an error for people, and measured."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_dlperf.files.mistakes import nearest
from pytest_dlperf.logs.arrivals import arrivals_of
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.measurement import Estimator
from pytest_dlperf.model.work import Timing
from pytest_dlperf.report.texts import printable
from pytest_dlperf.survey.head import HeadOfLog, NoLogError

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_dlperf.model.case import Case
    from pytest_dlperf.model.measurement import Run
    from pytest_dlperf.survey.identify import Identification


def head_of(path: Path) -> HeadOfLog:
    """Read the head of a log.

    Raises:
        UsageError: It cannot be read.
    """
    shown = printable(str(path))
    try:
        return HeadOfLog(path)
    except IsADirectoryError:
        raise UsageError(f"{shown} is a folder; name the logs in it") from None
    except NoLogError as error:
        raise UsageError(f"{shown}: {error}") from error
    except OSError as error:
        hint = nearest(path.name, (each.name for each in path.parent.glob("*")))
        if error.errno == errno.EINVAL:
            hint = "; a pipe has to be written to a file first: … | tee FILE"
        raise UsageError(f"{shown}: {error.strerror or error}{hint}") from error


def measure(head: HeadOfLog, found: Identification, wanted: Case | None) -> Run | None:
    """Measure a log; ``None`` where neither it nor its supervisor says when steps were."""
    by_arrival = found.system.log_format.timing is Timing.ARRIVAL
    if by_arrival and not arrivals_of(head.path).exists():
        return None
    is_made_up = wanted is None and not found.cases
    return _measured(head, found, is_made_up=is_made_up)


def _measured(head: HeadOfLog, found: Identification, *, is_made_up: bool) -> Run:
    # Only logs that show steps cost these imports.
    from pytest_dlperf.logs.throughput import LogReading, LogState

    system = found.system
    log_format = system.log_format
    if is_made_up:  # nothing to check it against
        log_format = replace(log_format, facts=(), devices=None)
    reading = LogReading(
        head.path,
        number=1,
        case=found.case,
        log_format=log_format,
        window=system.window,
        estimator=Estimator.STEADY,
        unit=system.unit,
        metrics=system.metrics,
        declared=system.declared,
    )
    reading.advance(head.read)
    is_enough = head.is_whole or reading.state is LogState.COMPLETE
    return reading.finish(None if is_enough else head.read)
