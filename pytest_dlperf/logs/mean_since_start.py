"""Suspects that what is printed of each step is a mean of all steps so far.

A mean shows what a slow first step took for hundreds of steps: Keras prints ``250ms/step`` where
steps take 120. The series tells: the total that it implies grows by the same from line to line, but
the mean still comes down to that. Of what single steps take, ``k`` times the k-th jumps to and fro.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from pytest_dlperf.formats.contract import BrokenContractError
from pytest_dlperf.formats.printed import step_seconds
from pytest_dlperf.model import statistics
from pytest_dlperf.model.work import Covers, TimeKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_dlperf.logs.evidence import Evidence
    from pytest_dlperf.logs.track_times import Row, Series

_LEAST: Final = 6
"""Fewer records do not tell how a series moves, nor so few differences what is noise."""
_FEW: Final = 3
"""So many are enough for a note."""
_MANY: Final = 10
_STRETCHES: Final = 16
_OFF: Final = 0.05
"""A mean that is no further off does no harm."""
_SPREAD: Final = 0.35
_LEVEL: Final = 0.07
"""What is added varies by these parts of what the mean is off, with noise and without, at most."""
_DIGITS: Final = b"0123456789"


def check_means(evidence: Evidence) -> str | None:
    """Look at how the printed times move; return a note where too few records tell.

    Raises:
        BrokenContractError: They move as means of all steps so far do.
    """
    log_format = evidence.log_format
    if log_format.timing.kind is TimeKind.MOMENT or log_format.covers is Covers.SINCE_START:
        return None
    for series in evidence.series.values():
        steps, _, offsets, values = series.columns
        for begin, end, before in _epochs(series):
            seconds = values[begin:end]
            first, last = steps[begin] - before, steps[end - 1] - before
            mean = sum(seconds) / len(seconds)
            added = (last * seconds[-1] - first * seconds[0]) / max(last - first, 1)
            if abs(mean - added) <= _OFF / 2 * mean:
                continue  # as in nearly all logs
            printed = _by_step(series, begin, end, before)
            if len(printed) < _LEAST:
                printed |= _beside(evidence, series, begin, end, before)
            usual = step_behind_mean(*_columns(printed), least=_FEW)
            if usual is None:
                continue
            said = f"it says {mean:.4g} s a step, and from line to line a step adds {usual:.4g} s"
            if len(printed) < _LEAST:
                return (
                    "what is printed may be a mean of all steps so far, which "
                    f"{len(printed)} records do not tell: {said}; measure more steps"
                )
            raise BrokenContractError(
                f"what is printed moves as a mean of all steps so far does: {said}; "
                "write 'covers: since_start', or take a time stamp",
                offset=offsets[begin],
            )
    return None


def step_behind_mean(
    steps: Sequence[int], means: Sequence[float], texts: Sequence[bytes], least: int = _LEAST
) -> float | None:
    """Compute the seconds of a step if these are means of all steps since 0; ``None`` if not.

    The ``texts`` say how the means are rounded.
    """
    if len(steps) < least or not all(one < other for one, other in pairwise(steps)):
        return None
    totals = [step * mean for step, mean in zip(steps, means, strict=True)]
    digits = (bytes(filter(_DIGITS.__contains__, text)) for text in texts)
    errors = [total / max(int(each or b"1"), 1) for total, each in zip(totals, digits, strict=True)]
    for (one, error), (other, its_error) in pairwise(zip(totals, errors, strict=True)):
        if other - one < -error - its_error:
            return None  # a total never shrinks
    stretches = min(_STRETCHES, len(steps) - 1)
    places = [number * (len(steps) - 1) // stretches for number in range(stretches + 1)]
    added = [
        (totals[end] - totals[begin]) / (steps[end] - steps[begin])
        for begin, end in pairwise(places)
    ]
    usual = statistics.median(added)
    off = abs(statistics.median(means) - usual)
    # Some of many may hold pauses.
    rest = 25 if len(added) >= _MANY else 0
    spread = statistics.percentile(added, 100 - rest) - statistics.percentile(added, rest)
    if usual <= 0 or off <= _OFF * usual or spread > _SPREAD * off:
        return None
    rounding = max(errors) * stretches / (steps[-1] - steps[0])
    # What is left has to be noise: a warm-up, or a drift, comes down in a line.
    if spread <= _LEVEL * off + min(rounding, _SPREAD * off) / 2:
        return usual
    return usual if len(added) > _LEAST and _is_noise(added) else None


def _is_noise(values: Sequence[float]) -> bool:
    """Say whether neighbours differ as much as any two (von Neumann, 1941), a pause left out."""
    most = statistics.median(values) + 3 * statistics.mad_deviation(values)
    values = [min(value, most) for value in values]
    steps = statistics.mean([(other - one) ** 2 for one, other in pairwise(values)])
    return steps > statistics.sample_standard_deviation(values) ** 2


def _epochs(series: Series) -> Iterator[tuple[int, int, int]]:
    """Split a series where epochs begin; give for each behind which step a mean may have begun."""
    end = len(series.rows)
    if end:
        yield 0, end, 0
    for begin, stop in pairwise([*series.turns, end]):
        if 0 < begin < stop:
            yield begin, stop, series.rows[begin - 1][0]


def _by_step(series: Series, begin: int, end: int, before: int) -> dict[int, tuple[float, bytes]]:
    """Take the mean of what ranks without names have printed of each step, and a text of it."""
    of_step: dict[int, list[Row]] = {}
    for row in series.rows[begin:end]:
        of_step.setdefault(row[0] - before, []).append(row)
    return {
        step: (statistics.mean([row[3] for row in rows]), rows[0][1])
        for step, rows in of_step.items()
    }


def _beside(
    evidence: Evidence, series: Series, begin: int, end: int, before: int
) -> dict[int, tuple[float, bytes]]:
    """Take some records beside a window of few, as far as they are of the same epoch."""
    log_format, case = evidence.log_format, evidence.case
    found = {}
    for later in (False, True):
        if log_format.covers is Covers.TOTAL_SINCE_LAST or (end < len(series) if later else begin):
            continue
        for step, record in evidence.outside(series, later=later)[:_LEAST]:
            with suppress(BrokenContractError):
                seconds = step_seconds(log_format, record.time, record.offset, case)
                found[step - before] = seconds, record.time
    return found


def _columns(
    printed: Mapping[int, tuple[float, bytes]],
) -> tuple[list[int], list[float], list[bytes]]:
    steps = sorted(printed)
    return steps, [printed[each][0] for each in steps], [printed[each][1] for each in steps]
