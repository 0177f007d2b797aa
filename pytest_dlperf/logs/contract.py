"""Hold a log to its contract: proper numbers, and facts that agree with its case."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pytest_dlperf.logs.facts import Fact
    from pytest_dlperf.logs.formats import LogFormat
    from pytest_dlperf.logs.reader import Record, Region
    from pytest_dlperf.model.case import Case

# No training is so fast or slow; outside, sums and products could leave the range of a float.
_LEAST: Final = 1e-12
_GREATEST: Final = 1e15
_UNCOUNTABLE: Final = 10**15
_LINE_END: Final = re.compile(rb"[\r\n]")


class BrokenContractError(Exception):
    """A log from which no throughput may be taken.

    ``offset`` is the byte of the log that the reason is about, ``place`` what to call its line.
    """

    def __init__(self, reason: str, *, offset: int | None = None, place: str = "line") -> None:
        """Give the reason for people, without the line."""
        super().__init__(reason)
        self.reason = reason
        self.offset = offset
        self.place = place


@dataclass(frozen=True, slots=True)
class Estimate:
    """Samples per second over all devices, and what the number rests on."""

    throughput: float
    steps: int
    note: str | None = None


def positive(text: bytes, *, what: str, offset: int) -> float:
    """Read a time or a speed."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not _LEAST < value < _GREATEST:
        shown = text[:60].decode(errors="replace")
        raise BrokenContractError(
            f"{what} is {shown!r}; needed is a finite number above zero", offset=offset
        )
    return value


def whole_number(text: bytes, *, what: str, offset: int) -> int:
    """Read a step's or an epoch's number."""
    try:
        number = int(text)
    except ValueError:
        number = -1
    if not 0 <= number < _UNCOUNTABLE:
        shown = text[:40].decode(errors="replace")
        raise BrokenContractError(f"{what} {shown!r} is no whole number", offset=offset)
    return number


class FactCheck:
    """Compares what a log says about its run with what the case declares."""

    def __init__(self, log_format: LogFormat, case: Case) -> None:
        """Check the format's facts against the case."""
        self._facts = log_format.facts
        self._whole_lines = log_format.whole_lines
        self._devices = log_format.devices
        self._case = case
        self._named_devices: set[bytes] = set()

    def contradiction(self, region: Region, first: Record | None) -> BrokenContractError | None:
        """Find the first thing that the log says otherwise than the case, up to its first step."""
        end = region.end if first is None else self._header_end(region, first)
        broken: tuple[int, Fact, str] | None = None
        for fact in self._facts:
            known = fact.declared(self._case)
            if known is None:
                continue
            declared = str(known)
            for match in fact.pattern.finditer(region.buffer, 0, end):
                found = match[1].decode(errors="replace")
                if found != declared and (broken is None or match.start(1) < broken[0]):
                    broken = match.start(1), fact, found
        if broken is None:
            return None
        at, fact, found = broken
        return BrokenContractError(
            f"the log says {fact.name} {found[:40]}; the case {self._case.id} "
            f"has {fact.declared(self._case)}",
            offset=region.offset + at,
        )

    def _header_end(self, region: Region, first: Record) -> int:
        if not self._whole_lines:
            return first[0]
        # What a user's format says of a run may stand on the line of each step.
        line = _LINE_END.search(region.buffer, first[1], region.end)
        return region.end if line is None else line.start()

    def note_devices(self, region: Region, end: int) -> None:
        """Collect the devices that the log names up to ``end``."""
        if self._devices is None:
            return
        allowed = self._case.topology.devices_per_node
        for match in self._devices.finditer(region.buffer, 0, end):
            self._named_devices.add(match[1])
            if len(self._named_devices) > allowed:
                raise BrokenContractError(
                    f"the log names more than {allowed} device(s); the case {self._case.id} "
                    f"has {allowed} per node",
                    offset=region.offset + match.start(),
                )

    def check_devices(self) -> None:
        """Compare the number of devices once every rank has printed."""
        allowed = self._case.topology.devices_per_node
        if self._named_devices and len(self._named_devices) != allowed:
            raise BrokenContractError(
                f"the log names {len(self._named_devices)} device(s); the case "
                f"{self._case.id} has {allowed} per node"
            )
