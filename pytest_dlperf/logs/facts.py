"""Hold what a log says about its run to what the case declares."""

from __future__ import annotations

import sys
from collections.abc import Collection
from operator import itemgetter
from typing import Final

from pytest_dlperf.formats.facts import Fact
from pytest_dlperf.formats.log_format import LogFormat
from pytest_dlperf.formats.meanings import known_trainer
from pytest_dlperf.formats.printed import BrokenContractError
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS
from pytest_dlperf.logs.lines import Block, LogFile, block_between, blocks
from pytest_dlperf.logs.records import RecordFinder
from pytest_dlperf.model.case import Case

REACH: Final = 16 * 1024 * 1024
"""Bytes of a log in which facts are looked for among steps; those of the header stand anywhere."""
TAIL: Final = 1024 * 1024
"""Bytes at a log's end that are looked at, however much stands in between."""


class FactCheck:
    """Compares what a log says about its run with what the case declares.

    A fact counts wherever it stands: in the header, among the steps, or behind them. There, only
    one that has not been seen before counts: what a log says twice is of another program.
    """

    def __init__(
        self, log_format: LogFormat, case: Case, *, without: Collection[str] = frozenset()
    ) -> None:
        """Check the format's facts against the case, but for those of some names."""
        options = {*log_format.options, *case.options}
        self._facts = [
            fact
            for fact in log_format.facts
            if fact.declared(case) is not None
            and (fact.option is None or fact.option in options)
            and fact.name not in without
        ]
        self._format = log_format
        self._case = case
        self._position = 0
        self._said: dict[str, int] = {}
        self._agreed: set[tuple[int, bytes]] = set()
        self._broken: dict[int, tuple[int, Fact, str]] = {}

    def look(self, block: Block, *, in_header: bool = True) -> None:
        """Look for facts on the lines of a block that have ended."""
        end = block.end if in_header else min(block.end, REACH)
        self._position = max(self._position, end)
        for number, fact in enumerate(self._facts):
            for offset, _, line in block.lines_with(fact.expression.literal, 0, end):
                for match in fact.expression.finditer(line):
                    self._said.setdefault(fact.name, offset)
                    said = match[1] or b""
                    if (number, said) in self._agreed or number in self._broken:
                        continue
                    text = said.decode(errors="replace")
                    if fact.agrees(text, self._case):
                        self._agreed.add((number, said))
                    else:
                        self._broken[number] = offset + match.start(1), fact, text

    def contradiction(self, before: int = sys.maxsize) -> BrokenContractError | None:
        """Say what contradicts the case, of what stands before a byte of the log."""
        said = {name for name, offset in self._said.items() if offset < before}
        replaced = {fact.replaces for fact in self._facts if fact.name in said}
        broken = [
            each
            for each in self._broken.values()
            if each[0] < before and each[1].name not in replaced
        ]
        if not broken:
            return None
        offset, fact, text = min(broken, key=itemgetter(0))
        return BrokenContractError(
            f"the log says {fact.name} {text[:40]}; the case {self._case.id} "
            f"has {fact.value_in(self._case)}",
            offset=offset,
        )

    def check(self, before: int = sys.maxsize) -> None:
        """Raise what contradicts the case before a byte of the log."""
        if (found := self.contradiction(before)) is not None:
            raise found

    def check_end(self, file: LogFile, enough: int | None) -> None:
        """Check all up to the byte that was ``enough``, and the log's end for other facts."""
        begin = self._position if enough is None else enough
        self.check(begin)
        if (block := tail(file, begin)) is not None:
            known = {name for name, offset in self._said.items() if offset < begin}
            behind = FactCheck(self._format, self._case, without=known)
            behind.look(block)
            behind.check()


def tail(file: LogFile, begin: int) -> Block | None:
    """Read the last lines of a log, of what stands behind the byte ``begin``; ``None`` without."""
    size = file.size
    start = max(begin, size - TAIL)
    if start >= size:
        return None
    # Where the reading begins in the middle of a line, it is none.
    return block_between(file, start, size, is_cut=start > begin)


def why_no_steps(file: LogFile, log_format: LogFormat, facts: FactCheck) -> BrokenContractError:
    """Say why a log may hold no step: the best of what it says of itself."""
    if not file.size:
        return BrokenContractError("the log is empty")
    other, name = _recognised(file, log_format), log_format.name
    if other is None and (contradiction := facts.contradiction()) is not None:
        return contradiction
    said = f"the log holds no step of format {name}"
    if name not in BUILTIN_FORMATS:
        # A declared format may be meant for just this trainer.
        named = "" if other is None else f"this is {other}, and "
        pattern = log_format.record.pattern
        said = f"{named}no line of the log matches the record's pattern '{pattern}'"
    elif other is not None:
        return BrokenContractError(f"this is {other}, not one of format {name}")
    return BrokenContractError(f"{said}; 'pytest-dlperf read FILE' says what is in it")


def _recognised(file: LogFile, log_format: LogFormat) -> str | None:
    """Say what a log is that holds no record of ``log_format``; ``None`` where nothing tells."""
    others = [other for other in BUILTIN_FORMATS.values() if other.name != log_format.name]
    for block in blocks(file):
        for other in others:
            if next(RecordFinder(other).find(block), None) is not None:
                return f"a log of format {other.name}"
        trainer = known_trainer(block.text)
        if trainer is not None:
            return None if trainer.format == log_format.name else f"a log of {trainer.name}"
        if block.offset > REACH:
            break
    return None
