"""Hold what a log says about its run to what the case declares."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pytest_dlperf.formats.contract import BrokenContractError
from pytest_dlperf.formats.expressions import Expression
from pytest_dlperf.formats.facts import Fact
from pytest_dlperf.formats.log_format import LogFormat
from pytest_dlperf.formats.meanings import known_trainer
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

    def __init__(self, log_format: LogFormat, case: Case) -> None:
        options = {*log_format.options, *case.options}
        self._facts = [
            fact
            for fact in log_format.facts
            if fact.declared(case) is not None and (fact.option is None or fact.option in options)
        ]
        self._format = log_format
        self._devices = log_format.devices
        self._case = case
        self._named_devices: set[bytes] = set()
        self._stand: set[str] = set()
        self._broken: list[tuple[int, Fact, str]] = []
        self._agreed: set[tuple[int, bytes]] = set()
        self.position = 0
        """Up to which byte of the log facts have been looked for."""

    def look(self, block: Block, end: int, *, in_header: bool = False) -> None:
        """Look for facts in a block, up to the end of the line of ``end``."""
        line = block.text.find(b"\n", end)
        end = len(block.text) if line < 0 else line
        if not in_header:
            end = min(end, REACH - block.offset)
        self._look(block, self._facts, end)

    def look_among_steps(self, block: Block, end_offset: int) -> None:
        """Look at a block up to a byte of the log.

        Raises:
            BrokenContractError: It contradicts the case.
        """
        end = max(end_offset - block.offset, 0)
        self.note_devices(block, end)
        self.look(block, end)
        self.settle()

    def look_behind(self, file: LogFile) -> None:
        """Look at the log's end for those facts that it has not said before.

        Raises:
            BrokenContractError: It contradicts the case.
        """
        block = tail(file, self.position)
        if block is not None:
            fresh = [fact for fact in self._facts if fact.name not in self._stand]
            self._look(block, fresh, len(block.text))
            self.settle()

    def _look(self, block: Block, facts: list[Fact], end: int) -> None:
        # What has been looked at is left out, and a last line that may still be growing.
        begin, end = max(self.position - block.offset, 0), min(end, block.end)
        if begin >= end:
            return
        for fact in facts:
            for at, said in _found(fact.expression, block, begin, end):
                if (id(fact), said) in self._agreed:
                    continue
                self._stand.add(fact.name)
                text = said.decode(errors="replace")
                if not fact.agrees(text, self._case):
                    self._broken.append((block.offset + at, fact, text))
                    break
                self._agreed.add((id(fact), said))
        self.position = block.offset + end

    def without_steps(self, file: LogFile, *, is_empty: bool) -> BrokenContractError:
        """Say why a log may hold no step: the best of what it says of itself."""
        if is_empty:
            return BrokenContractError("the log is empty")
        other, name = _recognised(file, self._format), self._format.name
        if other is None and self.contradiction is not None:
            return self.contradiction
        if name in BUILTIN_FORMATS:
            if other is not None:
                return BrokenContractError(f"this is {other}, not one of format {name}")
            said = f"the log holds no step of format {name}"
        else:
            # A declared format may be meant for just this trainer.
            named = "" if other is None else f"this is {other}, and "
            pattern = self._format.record.pattern
            said = f"{named}no line of the log matches the record's pattern '{pattern}'"
        return BrokenContractError(f"{said}; 'pytest-dlperf read FILE' says what is in it")

    @property
    def contradiction(self) -> BrokenContractError | None:
        """The first thing that the log says otherwise than the case."""
        if not self._broken:
            return None
        replaced = {fact.replaces for fact in self._facts if fact.name in self._stand}
        broken = [found for found in self._broken if found[1].name not in replaced]
        if not broken:
            return None
        at, fact, found = min(broken, key=lambda each: each[0])
        return BrokenContractError(
            f"the log says {fact.name} {found[:40]}; the case {self._case.id} "
            f"has {fact.value_in(self._case)}",
            offset=at,
        )

    def settle(self) -> None:
        """Raise what contradicts the case."""
        if (contradiction := self.contradiction) is not None:
            raise contradiction

    def note_devices(self, block: Block, end: int) -> None:
        """Collect the devices that the log names up to ``end``."""
        if self._devices is None:
            return
        allowed = self._case.topology.devices_per_node
        for at, device in _found(self._devices, block, 0, end):
            self._named_devices.add(device)
            if len(self._named_devices) > allowed:
                raise BrokenContractError(
                    f"the log names more than {allowed} device(s); the case {self._case.id} "
                    f"has {allowed} per node",
                    offset=block.offset + at,
                )

    def check_devices(self) -> None:
        """Compare the number of devices once every rank has printed."""
        allowed = self._case.topology.devices_per_node
        if self._named_devices and len(self._named_devices) != allowed:
            raise BrokenContractError(
                f"the log names {len(self._named_devices)} device(s); the case "
                f"{self._case.id} has {allowed} per node"
            )


def tail(file: LogFile, begin: int) -> Block | None:
    """Read the last lines of a log, of what stands behind the byte ``begin``; ``None`` without."""
    size = file.size
    start = max(begin, size - TAIL)
    if start >= size:
        return None
    # Where the reading begins in the middle of a line, it is none.
    return block_between(file, start, size, is_cut=start > begin)


def _recognised(file: LogFile, log_format: LogFormat) -> str | None:
    """Say what a log is that holds no record of ``log_format``; ``None`` where nothing tells."""
    others = [other for other in BUILTIN_FORMATS.values() if other.name != log_format.name]
    for block in blocks(file):
        for other in others:
            if next(iter(RecordFinder(other).find(block)), None) is not None:
                return f"a log of format {other.name}"
        trainer = known_trainer(block.text)
        if trainer is not None:
            return None if trainer.format == log_format.name else f"a log of {trainer.name}"
        if block.offset > REACH:
            break
    return None


def _found(
    expression: Expression, block: Block, begin: int, end: int
) -> Iterator[tuple[int, bytes]]:
    """Find where an expression stands in a part of a block, and what its only group took."""
    for first, last in block.lines_of(expression, begin, end):
        for found in expression.finditer(block.line(first, last)):
            yield first + found.start(1), found[1] or b""
