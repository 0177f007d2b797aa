"""Claims on hosts in the order of arrival, and what each is given; reads and writes no file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct


class Claim(Struct, frozen=True, kw_only=True):
    """The request of one run, and what it was granted; hosts by their address in lower case."""

    pid: int
    since: float
    """When it was made or granted, in seconds since the epoch."""
    purpose: str
    started_in: str
    nodes: int
    devices: int
    exclusive: bool
    candidates: Mapping[str, int | None]
    """The hosts that are fit, with the number of their devices where that is known."""
    session: str = ""
    """What the workers of one session have in common."""
    granted: Mapping[str, tuple[int, ...]] | None = None
    """The hosts that it holds, with the devices of each."""

    def __str__(self) -> str:
        """Say who made it, for people."""
        since = datetime.fromtimestamp(self.since).astimezone()
        purpose = f" for {self.purpose}" if self.purpose else ""
        when = since.isoformat(sep=" ", timespec="seconds")
        return f"process {self.pid}{purpose} since {when}, started in {self.started_in}"


def grantable(
    claim: Claim, before: Sequence[Claim], others: Sequence[Claim]
) -> dict[str, tuple[int, ...]] | None:
    """Find the whole gang among the hosts that are free and that no claim ``before`` waits for.

    ``others`` are all other claims. Gives ``None`` where the gang does not fit.
    """
    waiting = [each.candidates.keys() for each in before if each.granted is None]
    if any(claim.candidates.keys() & hosts for hosts in waiting):
        return None
    used: dict[str, set[int] | None] = {}  # None stands for all devices
    for each in others:
        for host, ids in (each.granted or {}).items():
            devices = used.setdefault(host, set())
            used[host] = None if each.exclusive or devices is None else devices | {*ids}
    found: dict[str, tuple[int, ...]] = {}
    for host, count in claim.candidates.items():
        free = _free_ids(claim, count, used.get(host, set()))
        if free is not None:
            found[host] = free
        if len(found) == claim.nodes:
            return found
    return None


def waited_for(claim: Claim, before: Sequence[Claim], others: Sequence[Claim]) -> str:
    """Say for what a claim waits, who holds it, and who waits for it before."""
    wanted = claim.candidates.keys()
    held = [
        f"{', '.join(sorted(wanted & each.granted.keys()))} held by {each}"
        for each in others
        if each.granted is not None and wanted & each.granted.keys()
    ]
    waiting = [
        f"{each} waits for {each.nodes} before it"
        for each in before
        if each.granted is None and wanted & each.candidates.keys()
    ]
    return (
        f"waiting for {claim.nodes} of {len(wanted)} hosts with {claim.devices} device(s): "
        f"{'; '.join(held + waiting)}"
    )


def are_workers(claim: Claim, others: Sequence[Claim]) -> bool:
    """Say whether none but workers of the same session may be in the way of a claim."""
    rivals = [each for each in others if each.candidates.keys() & claim.candidates.keys()]
    return bool(claim.session) and all(each.session == claim.session for each in rivals)


def _free_ids(claim: Claim, devices: int | None, used: set[int] | None) -> tuple[int, ...] | None:
    if used is None or (claim.exclusive and used):
        return None
    end = claim.devices + len(used) if devices is None else devices
    free = [device for device in range(end) if device not in used][: claim.devices]
    return tuple(free) if len(free) == claim.devices else None
