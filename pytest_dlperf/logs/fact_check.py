"""Hold what a log says about its run to what the case declares."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pytest_dlperf.logs.contract import BrokenContractError

if TYPE_CHECKING:
    from pytest_dlperf.logs.facts import Fact
    from pytest_dlperf.logs.formats import LogFormat
    from pytest_dlperf.logs.reader import Record, Region
    from pytest_dlperf.model.case import Case

_LINE_END: Final = re.compile(rb"[\r\n]")


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
