"""Notice what stands behind the window: a second run, or an epoch longer than those before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from pytest_dlperf.formats.contract import BrokenContractError
from pytest_dlperf.formats.log_format import LogFormat
from pytest_dlperf.logs.lines import LogFile, block_between
from pytest_dlperf.logs.numbering import Mark, epoch_hint, epoch_was_cut
from pytest_dlperf.logs.records import LONGEST_STEP, Record, RecordFinder

_REACH: Final = 1024 * 1024
_PIECE: Final = 256 * 1024


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
    has_epochs = "epoch" in log_format.record.groupindex
    behind = beyond = False
    for record in _sound_records(file, finder, mark.offset):
        numbers = (record.step, record.epoch) if has_epochs else (record.step,)
        if not all(each.isdigit() and len(each) <= LONGEST_STEP for each in numbers):
            continue
        step, epoch = int(record.step), int(record.epoch) if has_epochs else 0
        was_behind, was_beyond = behind, beyond
        behind = epoch < mark.epoch or (epoch == mark.epoch and step < mark.number)
        beyond = mark.last_of_epoch is not None and step > mark.last_of_epoch
        if beyond and was_beyond and mark.last_of_epoch is not None:
            raise epoch_was_cut(mark.last_of_epoch, step, record.offset)
        if behind and was_behind:
            raise BrokenContractError(
                f"a second run begins in the same file: step {step} stands behind step "
                f"{mark.number}, with which the window of the first has ended; keep one "
                f"run a file{epoch_hint(log_format)}",
                offset=record.offset,
            )


def _sound_records(file: LogFile, finder: RecordFinder, begin: int) -> Iterator[Record]:
    """Find records up to the first that is broken: behind the window nothing depends on it."""
    ends = min(begin + _REACH, file.size), file.size
    for start, end in ((begin, ends[0]), (max(ends[1] - _REACH, ends[0]), ends[1])):
        with suppress(BrokenContractError):
            for at in range(start, end, _PIECE):
                stop = min(at + _PIECE, end)
                yield from finder.elsewhere(block_between(file, at, stop, is_cut=at > begin))
