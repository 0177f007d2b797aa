"""Recognise the logs of known trainers, and the numbers in them that are easily misread."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final

from pytest_dlperf.catalogue.trainers import TRAINERS
from pytest_dlperf.logs.reader import regions
from pytest_dlperf.logs.records import records
from pytest_dlperf.logs.shipped import BUILTIN_FORMATS

if TYPE_CHECKING:
    import io
    from collections.abc import Iterator

    from pytest_dlperf.catalogue.trainer import Number, Trainer
    from pytest_dlperf.logs.formats import LogFormat

REACH: Final = 16 * 1024 * 1024
"""Bytes of a log that are looked through; trainers print long before."""

_NUMBER: Final = re.compile(rb"\bN\b")


def known_trainer(text: bytes | bytearray, end: int | None = None) -> Trainer | None:
    """Find out which known trainer printed a text, up to ``end``; ``None`` where nothing tells."""
    end = len(text) if end is None else end
    of_text = (trainer for trainer in printing(text, end) if trainer.names_the_log)
    return next(of_text, None)


def printing(text: bytes | bytearray, end: int) -> Iterator[Trainer]:
    """Find the trainers of whose lines a text holds one."""
    for trainer in TRAINERS:
        # To look for a text is several times as fast as for a pattern.
        possible = any(text.find(literal, 0, end) >= 0 for literal in trainer.literals)
        if possible and searched(trainer.pattern).search(text, 0, end) is not None:
            yield trainer


@cache
def searched(text: bytes) -> re.Pattern[bytes]:
    """Compile a pattern of the catalogue."""
    return re.compile(_NUMBER.sub(b"[0-9]{1,15}", text))


def recognise(file: io.FileIO, log_format: LogFormat) -> str | None:
    """Say what a log is that holds no record of ``log_format``; ``None`` where nothing tells."""
    file.seek(0)
    others = [other for other in BUILTIN_FORMATS.values() if other.name != log_format.name]
    for region in regions(file):
        for other in others:
            if next(iter(records(region, other)), None) is not None:
                return f"a log of format {other.name}"
        trainer = known_trainer(region.buffer, region.end)
        if trainer is not None:
            return None if trainer.format == log_format.name else f"a log of {trainer.name}"
        if region.offset > REACH:
            break
    return None


def caveats(line: bytes, trainer: Trainer) -> Iterator[tuple[str, Number]]:
    """Find the numbers on a line of a trainer that are easily taken for something else."""
    for number in trainer.numbers:
        found = searched(number.pattern).search(line)
        if found is not None:
            yield found[found.re.groups].decode(errors="replace"), number
