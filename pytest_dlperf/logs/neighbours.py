"""Recognise the logs of known trainers, and which of their numbers must not be taken for time."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final

from pytest_dlperf.logs.expressions import Expression
from pytest_dlperf.logs.keyed import JsonRecord
from pytest_dlperf.logs.known_trainers import TRAINERS
from pytest_dlperf.logs.lines import Lines
from pytest_dlperf.logs.reader import regions
from pytest_dlperf.logs.records import records
from pytest_dlperf.logs.shipped import BUILTIN_FORMATS
from pytest_dlperf.logs.timing import parts_of

if TYPE_CHECKING:
    import io
    from collections.abc import Iterator

    from pytest_dlperf.logs.formats import LogFormat
    from pytest_dlperf.logs.reader import Region
    from pytest_dlperf.logs.records import Record
    from pytest_dlperf.logs.trainer_log import Number, Trainer
    from pytest_dlperf.model.case import Case

REACH: Final = 16 * 1024 * 1024
"""Bytes of a log that are looked through; trainers print long before."""

_NUMBER: Final = re.compile(rb"\bN\b")


def known_trainer(text: bytes | bytearray, end: int | None = None) -> Trainer | None:
    """Find out which known trainer printed a text, up to ``end``; ``None`` where nothing tells."""
    end = len(text) if end is None else end
    of_text = (trainer for trainer in _printing(text, end) if trainer.names_the_log)
    return next(of_text, None)


def _printing(text: bytes | bytearray, end: int) -> Iterator[Trainer]:
    """Find the trainers of whose lines a text holds one."""
    for trainer in TRAINERS:
        # To look for a text is several times as fast as for a pattern.
        possible = any(text.find(literal, 0, end) >= 0 for literal in trainer.literals)
        if possible and _pattern(trainer.pattern).search(text, 0, end) is not None:
            yield trainer


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


def misread(region: Region, first: Record, log_format: LogFormat, case: Case) -> str | None:
    """Say why the number that a declared record takes for time is something else.

    ``first`` is a record of the region. ``None`` where nothing is known against it.
    """
    pattern, timing = log_format.record, log_format.timing
    if not isinstance(pattern, (Expression, JsonRecord)) or timing.value not in pattern.groupindex:
        return None
    lines = Lines(region)
    line = lines.said(lines.line_begin(0, first[0]), lines.line_end(first[0]))
    taken = pattern.search(line)
    if taken is None:
        return None
    for trainer in _printing(line, len(line)):
        number = _number_at(line, taken.span(timing.value), trainer)
        if number is not None and not _reads_rightly(log_format, number, case):
            return (
                f"the record takes for {timing.value} what is {number.meaning} (a log of "
                f"{trainer.name}); take {number.instead}"
            )
    return None


def caveats(line: bytes, trainer: Trainer) -> Iterator[tuple[str, Number]]:
    """Find the numbers on a line of a trainer that are easily taken for something else."""
    for number in trainer.numbers:
        found = _pattern(number.pattern).search(line)
        if found is not None:
            yield found[found.re.groups].decode(errors="replace"), number


def _number_at(line: bytes, span: tuple[int, int], trainer: Trainer) -> Number | None:
    """Find the number that a part of a line lies on."""
    for number in trainer.numbers:
        found = _pattern(number.pattern).search(line)
        if found is not None:
            begin, end = found.span(found.lastindex or 0)
            if begin < span[1] and span[0] < end:
                return number
    return None


def _reads_rightly(log_format: LogFormat, number: Number, case: Case) -> bool:
    if number.single_node_is_fine and case.topology.nodes == 1:
        return True
    parts = parts_of(log_format.rate_scope, case)
    return any(
        reading.timing is log_format.timing
        and reading.covers in {None, log_format.covers}
        and (reading.scope is None or parts_of(reading.scope, case) == parts)
        for reading in number.readings
    )
