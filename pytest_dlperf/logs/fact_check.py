"""Hold what a log says about its run to what the case declares."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pytest_dlperf.logs.contract import BrokenContractError

if TYPE_CHECKING:
    from pytest_dlperf.logs.facts import Fact
    from pytest_dlperf.logs.formats import LogFormat
    from pytest_dlperf.logs.reader import Region
    from pytest_dlperf.model.case import Case

REACH: Final = 16 * 1024 * 1024
"""Bytes of a log in which every fact is looked for, as far as the log is read."""

_LINE_END: Final = re.compile(rb"[\r\n\0]")


class FactCheck:
    """Compares what a log says about its run with what the case declares.

    A fact counts wherever it stands: in the header, among the steps, or behind them. There, only
    one that has not been seen before counts: what a log says twice is of another program.
    """

    def __init__(self, log_format: LogFormat, case: Case) -> None:
        """Check the format's facts against the case."""
        options = {*log_format.options, *case.options}
        self._facts = [
            fact
            for fact in log_format.facts
            if fact.declared(case) is not None and (fact.option is None or fact.option in options)
        ]
        self._devices = log_format.devices
        self._case = case
        self._named_devices: set[bytes] = set()
        self._stand: set[str] = set()
        self._broken: list[tuple[int, Fact, str]] = []
        self._agreed: set[tuple[int, bytes]] = set()
        self.position = 0
        """Up to which byte of the log facts have been looked for."""

    def look(self, region: Region, end: int) -> None:
        """Look for facts in a region, up to the end of the line of ``end``."""
        line = _LINE_END.search(region.buffer, end, region.end)
        end = region.end if line is None else line.start()
        self._look(region, min(end, REACH - region.offset), self._facts)

    def look_behind(self, region: Region) -> None:
        """Look for those facts that the log has not said before its last step that counts."""
        fresh = [fact for fact in self._facts if fact.name not in self._stand]
        self._look(region, region.end, fresh)

    def _look(self, region: Region, end: int, facts: list[Fact]) -> None:
        begin = max(self.position - region.offset, 0)
        if not region.terminated:
            # What stands on a line that has not ended may be the begin of another number.
            end = min(end, region.buffer.rfind(b"\n", 0, region.end) + 1)
        if begin >= end:
            return
        for fact in facts:
            for match in fact.pattern.finditer(region.buffer, begin, end):
                if match[1] is None or (id(fact), match[1]) in self._agreed:
                    continue
                self._stand.add(fact.name)
                text = match[1].decode(errors="replace")
                if not fact.agrees(text, self._case):
                    self._broken.append((region.offset + match.start(1), fact, text))
                    break
                self._agreed.add((id(fact), match[1]))
        self.position = region.offset + end

    @property
    def contradiction(self) -> BrokenContractError | None:
        """The first thing that the log says otherwise than the case."""
        replaced = {fact.replaces for fact in self._facts if fact.name in self._stand}
        broken = [found for found in self._broken if found[1].name not in replaced]
        if not broken:
            return None
        at, fact, found = min(broken, key=lambda each: each[0])
        return BrokenContractError(
            f"the log says {fact.name} {found[:40]}; the case {self._case.id} "
            f"has {fact.said_by(self._case)}",
            offset=at,
        )

    def settle(self) -> None:
        """Raise what contradicts the case."""
        if self._broken and (contradiction := self.contradiction) is not None:
            raise contradiction

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
