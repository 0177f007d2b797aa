"""Recognise the logs of known trainers, and the numbers in them that are easily misread."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final

from pytest_dlperf.formats.catalogue import known_trainers
from pytest_dlperf.formats.contract import BrokenContractError
from pytest_dlperf.formats.expressions import Expression
from pytest_dlperf.formats.keyed import JsonRecord
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS
from pytest_dlperf.logs.lines import Lines
from pytest_dlperf.logs.reader import regions
from pytest_dlperf.logs.records import records

if TYPE_CHECKING:
    import io
    from collections.abc import Iterator

    from pytest_dlperf.formats.catalogue import Number, Trainer
    from pytest_dlperf.formats.log_format import LogFormat
    from pytest_dlperf.logs.reader import Region
    from pytest_dlperf.logs.records import Record
    from pytest_dlperf.model.case import Case

REACH: Final = 16 * 1024 * 1024
"""Bytes of a log that are looked through; trainers print long before."""

_PLACEHOLDERS: Final = {
    "{number}": "[0-9]{1,15}",
    "{text}": r"[^\n\r\0]{0,400}",
    "{value}": "([0-9][0-9.,]{0,20})",
}
"""What stands for an expression in the patterns of the catalogue."""


def known_trainer(text: bytes | bytearray, end: int | None = None) -> Trainer | None:
    """Find out which known trainer printed a text, up to ``end``; ``None`` where nothing tells."""
    end = len(text) if end is None else end
    of_text = (trainer for trainer in _printing(text, end) if trainer.names_the_log)
    return next(of_text, None)


def _printing(text: bytes | bytearray, end: int) -> Iterator[Trainer]:
    """Find the trainers of whose lines a text holds one."""
    for trainer in known_trainers():
        # To look for a text is several times as fast as for a pattern.
        possible = any(text.find(literal.encode(), 0, end) >= 0 for literal in trainer.literals)
        if possible and _searched(trainer.pattern).search(text, 0, end) is not None:
            yield trainer


@cache
def _searched(pattern: str) -> re.Pattern[bytes]:
    """Compile a pattern of the catalogue."""
    for placeholder, expression in _PLACEHOLDERS.items():
        pattern = pattern.replace(placeholder, expression)
    return re.compile(pattern.encode())


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
    for (begin, end), number in _numbers(line, trainer):
        yield line[begin:end].decode(errors="replace"), number


def _numbers(line: bytes, trainer: Trainer) -> Iterator[tuple[tuple[int, int], Number]]:
    for number in trainer.numbers:
        found = _searched(number.pattern).search(line)
        if found is not None:
            yield found.span(found.re.groups), number


class TimeCheck:
    """Refuses a declared record that takes a trainer's number for time which is none of a step.

    It looks at the line of the first record; for some numbers, how far the second is from it.
    """

    def __init__(self, log_format: LogFormat, case: Case) -> None:
        """Check the records of a format; nothing is to be checked of those that ship."""
        self._format = log_format
        self._case = case
        self._number: Number | None = None
        self._reason = ""
        self._step: int | None = None
        self._is_done = not isinstance(log_format.record, (Expression, JsonRecord))

    def look(self, region: Region) -> None:
        """Look at the records of the next region, until it is decided.

        Raises:
            BrokenContractError: What is taken for the time of a step is something else.
        """
        if self._is_done:
            return
        for record in records(region, self._format):
            if self._number is None and not self._is_suspect(region, record):
                self._is_done = True
                return
            gap = self._steps_since_last(record)
            if (self._number is not None and not self._number.one_step_is_fine) or gap > 1:
                raise BrokenContractError(self._reason, offset=region.offset + record[0])
            if gap == 1:
                self._is_done = True
                return

    def _is_suspect(self, region: Region, record: Record) -> bool:
        pattern, timing = self._format.record, self._format.timing
        lines = Lines(region)
        line = lines.said(lines.line_begin(0, record[0]), lines.line_end(record[0]))
        taken = pattern.search(line) if timing.value in pattern.groupindex else None
        if taken is None:
            return False
        begin, end = taken.span(timing.value)
        for trainer in _printing(line, len(line)):
            beneath = (
                number
                for span, number in _numbers(line, trainer)
                if begin < span[1] and span[0] < end
            )
            number = next(beneath, None)
            if number is not None and not self._reads_rightly(number):
                self._number = number
                self._reason = (
                    f"the record takes for {timing.value} what is {number.meaning} (a log of "
                    f"{trainer.name}); take {number.instead}"
                )
                return True
        return False

    def _reads_rightly(self, number: Number) -> bool:
        log_format, case = self._format, self._case
        if number.single_node_is_fine and case.topology.nodes == 1:
            return True
        parts = case.rates_per_run(log_format.rate_scope)
        return any(
            reading.timing is log_format.timing
            and reading.covers in {None, log_format.covers}
            and (reading.rate_scope is None or case.rates_per_run(reading.rate_scope) == parts)
            for reading in number.readings
        )

    def _steps_since_last(self, record: Record) -> int:
        """Say how many steps a record stands for; 0 where that cannot be told yet."""
        if self._format.step_every is not None:
            return self._format.step_every
        last, self._step = self._step, int(record[2]) if record[2].isdigit() else None
        return 0 if last is None or self._step is None else self._step - last
