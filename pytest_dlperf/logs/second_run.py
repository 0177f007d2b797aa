"""Suspects what stands behind the window: a second run, or an epoch longer than those before."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pytest_dlperf.formats.contract import BrokenContractError
from pytest_dlperf.logs.lines import Block, block_between
from pytest_dlperf.logs.numbering import epoch_hint, epoch_was_cut
from pytest_dlperf.logs.records import LONGEST_STEP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_dlperf.logs.evidence import Evidence
    from pytest_dlperf.logs.records import Record

_PIECE: Final = 256 * 1024
_PROBE: Final = 32 * 1024
_PROBES: Final = 32
"""Between the first and the last piece of what is too long to be read as a whole."""
_ALL: Final = 4 * 1024 * 1024


def check_behind(evidence: Evidence) -> None:
    """Look for earlier steps behind the window.

    Of a long rest only pieces are read. Behind the mark every rank has gone on, so two records of
    earlier steps in a row are those of a second run, and two of later steps than epochs had before
    show that these have lost some. A single one is damaged.

    Raises:
        BrokenContractError: Steps begin anew there, or an epoch before was cut.
    """
    log_format, mark = evidence.log_format, evidence.mark
    if mark is None or log_format.step_every is not None:
        return
    has_epochs = "epoch" in log_format.record.groupindex
    for block in _pieces(evidence, mark.offset):
        behind = beyond = False
        for record in _sound_records(evidence, block):
            if len(record.step) > LONGEST_STEP or not record.step.isdigit():
                continue
            if has_epochs and (len(record.epoch) > LONGEST_STEP or not record.epoch.isdigit()):
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


def _sound_records(evidence: Evidence, block: Block) -> Iterator[Record]:
    """Find records up to the first that is broken: behind the window nothing depends on it."""
    with suppress(BrokenContractError):
        yield from evidence.finder.elsewhere(block)


def _pieces(evidence: Evidence, begin: int) -> Iterator[Block]:
    """Read what stands behind a byte; where it is long, pieces of it."""
    end = evidence.file.size
    rest = end - begin
    if rest <= _ALL:
        places = [(at, _PIECE) for at in range(begin, end, _PIECE)]
    else:
        between = (rest - 2 * _PIECE) // _PROBES
        first = begin + _PIECE
        places = [
            (begin, _PIECE),
            *((first + number * between, _PROBE) for number in range(_PROBES)),
            (end - _PIECE, _PIECE),
        ]
    for at, size in places:
        # A piece begins in the middle of a line, of which the rest is none.
        block = block_between(evidence.file, at, at + size, is_cut=at > begin)
        yield Block(block.text, block.offset, is_whole=False)
