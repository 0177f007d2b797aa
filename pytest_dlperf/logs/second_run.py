"""Notice what stands behind the window: a second run, or an epoch longer than those before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from pytest_dlperf.formats.log_format import LogFormat
from pytest_dlperf.formats.printed import BrokenContractError
from pytest_dlperf.logs.lines import LogFile, block_between
from pytest_dlperf.logs.records import LONGEST_STEP, Record, RecordFinder
from pytest_dlperf.logs.tracks import Mark, epoch_hint, epoch_was_cut

_REACH: Final = 1024 * 1024


def check_behind(file: LogFile, finder: RecordFinder, log_format: LogFormat, mark: Mark) -> None:
    """Look for earlier steps in what follows the window, and at the log's end.

    Behind the mark every rank has gone on, so two records of earlier steps in a row are those of a
    second run, and two of later steps than epochs had before show that these have lost some. A
    single one is damaged.

    Raises:
        BrokenContractError: Steps begin anew there, or an epoch before was cut.
    """
    if log_format.step_every is not None:
        return
    behind = beyond = False
    longest = mark.last_of_epoch
    for record in _sound_records(file, finder, mark.offset):
        numbers = record.step, record.epoch or b"0"
        if not all(each.isdigit() and len(each) <= LONGEST_STEP for each in numbers):
            continue
        step, epoch = map(int, numbers)
        was_behind, was_beyond = behind, beyond
        behind = (epoch, step) < (mark.epoch, mark.number)
        beyond = longest is not None and step > longest
        if longest is not None and beyond and was_beyond:
            raise epoch_was_cut(longest, step, record.offset)
        if behind and was_behind:
            raise BrokenContractError(
                f"a second run begins in the same file: step {step} stands behind step "
                f"{mark.number}, with which the window of the first has ended; keep one "
                f"run a file{epoch_hint(log_format)}",
                offset=record.offset,
            )


def _sound_records(file: LogFile, finder: RecordFinder, begin: int) -> Iterator[Record]:
    """Find records up to the first that is broken: behind the window nothing depends on it."""
    near = min(begin + _REACH, file.size)
    for start, end in ((begin, near), (max(file.size - _REACH, near), file.size)):
        with suppress(BrokenContractError):
            yield from finder.find(block_between(file, start, end, is_cut=start > near))
