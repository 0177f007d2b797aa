"""Refuse a declared record that takes a known trainer's number for time which is none of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_dlperf.logs.contract import BrokenContractError
from pytest_dlperf.logs.expressions import Expression
from pytest_dlperf.logs.keyed import JsonRecord
from pytest_dlperf.logs.lines import Lines
from pytest_dlperf.logs.neighbours import printing, searched
from pytest_dlperf.logs.records import records
from pytest_dlperf.model.timing import parts_of

if TYPE_CHECKING:
    from pytest_dlperf.catalogue.trainer import Number, Trainer
    from pytest_dlperf.logs.formats import LogFormat
    from pytest_dlperf.logs.reader import Region
    from pytest_dlperf.logs.records import Record
    from pytest_dlperf.model.case import Case


class TimeCheck:
    """Looks at the line of the first record; for some numbers, how far the second is from it."""

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
        for trainer in printing(line, len(line)):
            number = _number_at(line, taken.span(timing.value), trainer)
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
        parts = parts_of(log_format.rate_scope, case)
        return any(
            reading.timing is log_format.timing
            and reading.covers in {None, log_format.covers}
            and (reading.scope is None or parts_of(reading.scope, case) == parts)
            for reading in number.readings
        )

    def _steps_since_last(self, record: Record) -> int:
        """Say how many steps a record stands for; 0 where that cannot be told yet."""
        if self._format.step_every is not None:
            return self._format.step_every
        last, self._step = self._step, int(record[2]) if record[2].isdigit() else None
        return 0 if last is None or self._step is None else self._step - last


def _number_at(line: bytes, span: tuple[int, int], trainer: Trainer) -> Number | None:
    """Find the number that a part of a line lies on."""
    for number in trainer.numbers:
        found = searched(number.pattern).search(line)
        if found is not None:
            begin, end = found.span(found.re.groups)
            if begin < span[1] and span[0] < end:
                return number
    return None
