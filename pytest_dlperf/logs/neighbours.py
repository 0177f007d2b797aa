"""Recognise the logs of known trainers, and which of their numbers must not be taken for time."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final

from pytest_dlperf.logs.known_trainers import TRAINERS
from pytest_dlperf.logs.reader import regions
from pytest_dlperf.logs.records import records
from pytest_dlperf.logs.shipped import BUILTIN_FORMATS

if TYPE_CHECKING:
    import io

    from pytest_dlperf.logs.formats import LogFormat
    from pytest_dlperf.logs.known_trainers import Trainer

REACH: Final = 16 * 1024 * 1024
"""Bytes of a log that are looked through; trainers print long before."""

_NUMBER: Final = re.compile(rb"\bN\b")


def known_trainer(text: bytes | bytearray, end: int | None = None) -> Trainer | None:
    """Find out which known trainer printed a text, up to ``end``; ``None`` where nothing tells."""
    end = len(text) if end is None else end
    for trainer in TRAINERS:
        # To look for a text is several times as fast as for a pattern.
        possible = any(text.find(literal, 0, end) >= 0 for literal in trainer.literals)
        if possible and _pattern(trainer.pattern).search(text, 0, end) is not None:
            return trainer
    return None


@cache
def _pattern(text: bytes) -> re.Pattern[bytes]:
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


def caveat(log_format: LogFormat, line: bytes, span: tuple[int, int]) -> str | None:
    """Say why the number at ``span`` of a step's line is not the time that a format takes it for.

    ``None`` where nothing is known against it.
    """
    for trainer in TRAINERS:
        if not trainer.numbers or _pattern(trainer.pattern).search(line) is None:
            continue
        for number in trainer.numbers:
            found = _pattern(number.pattern).search(line)
            if found is None or found.end(1) <= span[0] or span[1] <= found.start(1):
                continue
            if any(
                reading.timing is log_format.timing
                and reading.covers in {None, log_format.covers}
                and reading.scope in {None, log_format.rate_scope}
                for reading in number.readings
            ):
                return None
            return f"{number.meaning} (a log of {trainer.name}); take {number.instead}"
    return None
