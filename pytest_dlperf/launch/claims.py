"""Claims on hosts in the order of arrival, and who is given what; reads and writes no file."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

CLAIM_NAME: Final = re.compile(r"claim-([0-9]+)-[0-9a-f]+\.lock")
"""The name of a claim, which is that of its lock file; it has the number of its process."""

_SCHEMA: Final = 1
_END_OF_TIME: Final = 1e11  # that a date can still be made of


class Claim(Struct, frozen=True, kw_only=True):
    """The request of one run, and what it was given; hosts by their address in lower case."""

    name: str
    pid: int
    started: int | None
    since: float
    purpose: str
    nodes: int
    devices: int
    exclusive: bool
    candidates: Mapping[str, int | None]
    started_in: str
    session: str = ""
    """What the workers of one session have in common."""
    granted: Mapping[str, tuple[int, ...]] | None = None

    def __post_init__(self) -> None:
        """Check what the types of the fields do not say."""
        held = [device for ids in (self.granted or {}).values() for device in ids]
        offered = [count for count in self.candidates.values() if count is not None]
        counts = (self.pid, self.started or 0, self.nodes, self.devices, *offered, *held)
        if (
            not CLAIM_NAME.fullmatch(self.name)
            or not 0 <= self.since < _END_OF_TIME
            or min(counts) < 0
        ):
            raise ValueError(f"{self.name!r} is not a claim")


class _State(Struct, frozen=True, kw_only=True):
    schema: int
    claims: tuple[Claim, ...]


class Claims(Struct):
    """Everybody's claims in the order of arrival, and whose process lives."""

    claims: list[Claim] = []
    alive: dict[str, bool] = {}

    @classmethod
    def parse(cls, text: bytes) -> Claims:
        """Read a state file."""
        try:
            state = msgspec.json.decode(text, type=_State)
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error
        if state.schema != _SCHEMA:
            raise ValueError(f"its schema is {state.schema}, not {_SCHEMA}")
        return cls(claims=list(state.claims))

    def to_json(self) -> str:
        """Write a state file."""
        return msgspec.json.encode(_State(schema=_SCHEMA, claims=tuple(self.claims))).decode()

    @property
    def granted(self) -> dict[str, Mapping[str, tuple[int, ...]]]:
        """What each claim holds that holds anything."""
        return {claim.name: claim.granted for claim in self.claims if claim.granted is not None}

    @property
    def unknown(self) -> list[str]:
        """Claims of living processes of which nobody knows what they hold."""
        known = {claim.name for claim in self.claims}
        return sorted(name for name, alive in self.alive.items() if alive and name not in known)

    def strike_out_the_dead(self) -> None:
        """Remove the claims of processes that have ended."""
        self.claims = [claim for claim in self.claims if self.alive[claim.name]]

    def add(self, request: Claim) -> None:
        """Line a request up, unless it stands there already.

        Who was in line when the state was lost comes back to its place, by the time it came.
        """
        if any(claim.name == request.name for claim in self.claims):
            return
        self.alive[request.name] = True
        later = (
            index
            for index, claim in enumerate(self.claims)
            if claim.granted is None and claim.since > request.since
        )
        self.claims.insert(next(later, len(self.claims)), request)

    def grant(self) -> None:
        """Give everybody in line the hosts that are free and that nobody before them waits for."""
        if self.unknown:
            return
        used: dict[str, set[int] | None] = {}
        for claim in self.claims:
            _use(used, claim)
        reserved: set[str] = set()
        for index, claim in enumerate(self.claims):
            if claim.granted is not None:
                continue
            granted = None if reserved & claim.candidates.keys() else _fitting(claim, used)
            if granted is None:
                reserved |= claim.candidates.keys()
            else:
                self.claims[index] = replace(claim, granted=granted, since=time.time())
                _use(used, self.claims[index])

    def is_among_workers(self, name: str) -> bool:
        """Whether none but workers of the same session may be in the way of a claim."""
        [own] = (claim for claim in self.claims if claim.name == name)
        others = (claim for claim in self.claims if claim.candidates.keys() & own.candidates.keys())
        is_alone = bool(own.session) and not self.unknown
        return is_alone and all(claim.session == own.session for claim in others)

    def waited_for(self, name: str) -> str:
        """Say whom a claim waits for."""
        place = [claim.name for claim in self.claims].index(name)
        waiting = self.claims[place]
        wanted = waiting.candidates.keys()
        held = [
            f"{', '.join(sorted(wanted & claim.granted.keys()))} held by {_who(claim)}"
            for claim in self.claims
            if claim.granted is not None and wanted & claim.granted.keys()
        ]
        before = [
            f"{_who(claim)} waits for {claim.nodes} before it"
            for claim in self.claims[:place]
            if claim.granted is None and wanted & claim.candidates.keys()
        ]
        lost = [
            f"process {unknown.split('-')[1]} may hold any of them ({unknown})"
            for unknown in self.unknown
        ]
        return (
            f"waiting for {waiting.nodes} of {len(wanted)} hosts with {waiting.devices} device(s): "
            f"{'; '.join(held + lost + before)}"
        )


def _use(used: dict[str, set[int] | None], claim: Claim) -> None:
    """Note what a claim holds; None stands for all devices of a host."""
    for host, ids in (claim.granted or {}).items():
        devices = used.setdefault(host, set())
        if claim.exclusive or devices is None:
            used[host] = None
        else:
            devices.update(ids)


def _fitting(
    claim: Claim, used: Mapping[str, set[int] | None]
) -> dict[str, tuple[int, ...]] | None:
    """Find the whole gang among the hosts that are free; ``None`` where it does not fit."""
    found: dict[str, tuple[int, ...]] = {}
    for host, devices in claim.candidates.items():
        ids = _free_ids(claim, devices, used.get(host, set()))
        if ids is not None:
            found[host] = ids
        if len(found) == claim.nodes:
            return found
    return None


def _free_ids(claim: Claim, devices: int | None, used: set[int] | None) -> tuple[int, ...] | None:
    if used is None or (claim.exclusive and used):
        return None
    end = claim.devices + len(used) if devices is None else devices
    free = [device for device in range(end) if device not in used][: claim.devices]
    return tuple(free) if len(free) == claim.devices else None


def _who(claim: Claim) -> str:
    since = datetime.fromtimestamp(claim.since).astimezone()
    purpose = f" for {claim.purpose}" if claim.purpose else ""
    when = since.isoformat(sep=" ", timespec="seconds")
    return f"process {claim.pid}{purpose} since {when}, started in {claim.started_in}"
