"""Suspects a declared record that takes a trainer's number for time which is none of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_dlperf.formats.contract import BrokenContractError
from pytest_dlperf.formats.expressions import Expression
from pytest_dlperf.formats.keyed import JsonRecord
from pytest_dlperf.formats.meanings import trainers_in
from pytest_dlperf.logs.judges import Judge
from pytest_dlperf.logs.lines import Lines
from pytest_dlperf.logs.records import records

if TYPE_CHECKING:
    from pytest_dlperf.formats.log_format import LogFormat
    from pytest_dlperf.formats.meanings import Number
    from pytest_dlperf.logs.reader import Region
    from pytest_dlperf.logs.records import Record
    from pytest_dlperf.model.case import Case


class Misread(Judge):
    """Looks at the line of the first record; for some numbers, how far the second is from it.

    Nothing is to be checked of formats that ship.
    """

    def __init__(self, log_format: LogFormat, case: Case) -> None:
        """Begin before the first record."""
        super().__init__(log_format, case)
        self._number: Number | None = None
        self._reason = ""
        self._step: int | None = None
        self._is_done = not isinstance(log_format.record, (Expression, JsonRecord))

    def see(self, region: Region) -> None:
        """Look at the records of the next region, until it is decided."""
        if self._is_done:
            return
        for record in records(region, self.log_format):
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
        pattern, timing = self.log_format.record, self.log_format.timing
        lines = Lines(region)
        line = lines.text(lines.line_begin(0, record[0]), lines.line_end(record[0]))
        taken = pattern.search(line) if timing.value in pattern.groupindex else None
        if taken is None:
            return False
        begin, end = taken.span(timing.value)
        for trainer in trainers_in(line):
            number = trainer.number_at(line, begin, end)
            if number is not None and not number.is_read_rightly(self.log_format, self.case):
                self._number = number
                self._reason = (
                    f"the record takes for {timing.value} what is {number.meaning_in_words} "
                    f"(a log of {trainer.name}); take {number.remedy}"
                )
                return True
        return False

    def _steps_since_last(self, record: Record) -> int:
        """Say how many steps a record stands for; 0 where that cannot be told yet."""
        if self.log_format.step_every is not None:
            return self.log_format.step_every
        last, self._step = self._step, int(record[2]) if record[2].isdigit() else None
        return 0 if last is None or self._step is None else self._step - last
