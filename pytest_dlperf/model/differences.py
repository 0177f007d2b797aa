"""What differs between tonight, the last good night and the accepted number, and how suspicious."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pytest_dlperf.model.command_lines import side_by_side
from pytest_dlperf.model.explanation import Difference, DifferenceKind
from pytest_dlperf.model.measurement import MACHINE_FACTS, LaunchFacts

if TYPE_CHECKING:
    from pytest_dlperf.model.baseline import Acceptance
    from pytest_dlperf.model.measurement import Fingerprint

ABSENT: Final = "-"
"""Stands for an argument, variable or option that a side is known not to have."""
SUITE: Final = "suite"
"""The name of the commit of the folder that the suite lies in."""

_KINDS: Final = (
    # What somebody has changed by hand, then what was installed, then where it ran.
    DifferenceKind.COMMAND,
    DifferenceKind.ENVIRONMENT,
    DifferenceKind.LAUNCH,
    DifferenceKind.COMMIT,
    DifferenceKind.SOFTWARE,
    DifferenceKind.MACHINE,
    DifferenceKind.HOSTS,
)
_STACK: Final = re.compile(
    r"image|driver|cuda|rocm|cann|nccl|nvidia-.*|torch(-.*)?|triton|jax.*|libtpu|tensorflow.*"
    r"|paddle.*|mxnet|oneflow|mindspore|megatron-core|deepspeed|transformer-engine|flash-attn|apex"
)
"""What nearly every training goes through."""
_BELOW: Final = ("vbios", "nic_firmware", "kernel", "bios")
_RESTLESS: Final = 3
"""What somebody has set has so many values only if it is another each night, as a job's number."""
_SHORT_COMMIT: Final = 12
_FEW_HOSTS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What one side's number was measured on and with, as far as anybody knows.

    ``commit`` is the suite's, the rest is as in ``Fingerprint``.
    """

    commit: str | None = None
    commits: Mapping[str, str] = field(default_factory=dict)
    software: Mapping[str, str] = field(default_factory=dict)
    machine: Mapping[str, str] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    launch: LaunchFacts | None = None

    @classmethod
    def of_night(cls, fingerprint: Fingerprint | None, commit: str | None) -> Surroundings:
        """Give those of a measurement; ``commit`` is its session's."""
        if fingerprint is None:
            return cls(commit=commit)
        return cls(
            commit=commit,
            commits=fingerprint.commits,
            software=fingerprint.software,
            machine=fingerprint.machine,
            hosts=fingerprint.hosts,
            launch=fingerprint.launch,
        )

    @classmethod
    def of_acceptance(cls, acceptance: Acceptance, machine: Mapping[str, str]) -> Surroundings:
        """Give those of an accepted number; ``machine`` is its baseline's."""
        return cls(
            commit=acceptance.commit,
            commits=acceptance.commits,
            software=acceptance.software,
            machine=machine,
            hosts=acceptance.hosts,
            launch=acceptance.launch,
        )


@dataclass(frozen=True, slots=True)
class _Sides:
    """A thing as it was on each side; ``None`` where nobody knows."""

    kind: DifferenceKind
    name: str
    accepted: str | None
    last_good: str | None
    first_bad: str | None
    tonight: str | None

    @property
    def came_with_it(self) -> bool:
        """Whether it changed when the number did, and has not been changed back since.

        Hosts come and go with the night: those that the accepted number is of are beyond suspicion.
        """
        if self.kind is DifferenceKind.HOSTS and self.accepted == self.tonight:
            return False
        return _differ(self.last_good, self.first_bad) and _differ(self.last_good, self.tonight)

    @property
    def suspicion(self) -> int | None:
        """How suspicious it is, the most first; ``None`` where nothing differs."""
        from_accepted = _differ(self.accepted, self.tonight)
        if self.came_with_it:
            # A number as good as accepted was once measured with what is there tonight.
            return 1 if self.accepted == self.tonight else 0
        if _differ(self.last_good, self.tonight):
            return 3  # only after the number had changed
        if from_accepted:
            # What was there on a good night is hardly to blame.
            return 2 if self.last_good is None else 4
        return None

    @property
    def place(self) -> tuple[int, int]:
        """Its place among equally suspicious things: by kind, then by what it is."""
        kind = _KINDS.index(self.kind)
        if self.kind is DifferenceKind.SOFTWARE:
            below = self.name in _BELOW
            return kind, 2 if below else 0 if _STACK.fullmatch(self.name.lower()) else 1
        # What a side lacks is no value: it is not set each night.
        seen = {self.accepted, self.last_good, self.first_bad, self.tonight} - {None, ABSENT}
        if kind < _KINDS.index(DifferenceKind.COMMIT) and len(seen) >= _RESTLESS:
            return _KINDS.index(DifferenceKind.COMMIT), 2
        # What had changed since the number was accepted, and did no harm, is less of a suspect.
        moved_before = self.kind is DifferenceKind.COMMIT and _differ(self.accepted, self.last_good)
        return kind, int(moved_before)

    def difference(self) -> Difference:
        return Difference(
            kind=self.kind,
            name=self.name,
            accepted=self.accepted,
            last_good=self.last_good,
            tonight=self.tonight,
            came_with_it=self.came_with_it,
        )


def differences_of(
    *,
    accepted: Surroundings | None,
    last_good: Surroundings | None,
    first_bad: Surroundings | None,
    tonight: Surroundings,
) -> tuple[Difference, ...]:
    """Name what differs, the most suspicious first.

    That is what came with the change before what was different before. Within either, what somebody
    changed by hand comes before software, software before machines and these before hosts.
    ``first_bad`` is tonight where the number changed tonight. What a side does not know is no
    difference.
    """
    nobody = Surroundings()
    sides = tuple(side or nobody for side in (accepted, last_good, first_bad or tonight, tonight))
    found = [one for one in _laid_out(sides) if one.suspicion is not None]
    found.sort(key=lambda one: (one.suspicion, one.place))
    return tuple(one.difference() for one in found)


def _differ(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and one != other


# ----------------------------------------------------------------------- thing by thing


def _laid_out(sides: tuple[Surroundings, ...]) -> Iterator[_Sides]:
    yield from _launches([side.launch for side in sides])
    yield from _commits(sides)
    yield from _known(DifferenceKind.SOFTWARE, [side.software for side in sides])
    yield from _known(
        DifferenceKind.MACHINE,
        [{k: v for k, v in side.machine.items() if k in MACHINE_FACTS} for side in sides],
    )
    yield _Sides(DifferenceKind.HOSTS, "hosts", *_hosts([side.hosts for side in sides]))


def _launches(launches: list[LaunchFacts | None]) -> Iterator[_Sides]:
    """Compare launches, where a side that is known and lacks something is known to lack it."""
    lines = side_by_side([None if one is None else one.arguments for one in launches])
    for name, values in lines:
        yield _Sides(DifferenceKind.COMMAND, name, *_told(launches, values))
    for kind, all_set in (
        (DifferenceKind.ENVIRONMENT, [one.environment if one else {} for one in launches]),
        (DifferenceKind.LAUNCH, [_around(one) if one else {} for one in launches]),
    ):
        for name in _names(all_set):
            yield _Sides(kind, name, *_told(launches, [one.get(name) for one in all_set]))


def _around(launch: LaunchFacts) -> dict[str, str]:
    folder = launch.working_directory
    own = {"launcher": launch.launcher} | ({} if folder is None else {"working directory": folder})
    return {**own, **launch.options}


def _told(
    launches: Sequence[LaunchFacts | None], values: Sequence[str | None]
) -> Iterator[str | None]:
    for launch, value in zip(launches, values, strict=True):
        missing = None if launch is None else ABSENT
        # What is set to nothing must not look like what is not known.
        yield missing if value is None else value or "''"


def _commits(sides: tuple[Surroundings, ...]) -> Iterator[_Sides]:
    """Compare commits; a checkout whose commits another has shown before is not shown again."""
    named = [{SUITE: side.commit or "", **side.commits} for side in sides]
    shown = set()
    for name in _names(named):
        values = tuple(_short(commits[name]) if commits.get(name) else None for commits in named)
        if values not in shown:
            yield _Sides(DifferenceKind.COMMIT, name, *values)
        shown.add(values)


def _short(commit: str) -> str:
    name, plus, changes = commit.partition("+")
    return f"{name[:_SHORT_COMMIT]}{plus}{changes}"


def _known(kind: DifferenceKind, facts: list[Mapping[str, str]]) -> Iterator[_Sides]:
    for name in _names(facts):
        yield _Sides(kind, name, *(one.get(name) for one in facts))


def _hosts(sides: list[tuple[str, ...]]) -> Iterator[str | None]:
    """Write hosts, of many only those that not all sides have; their order does not count."""
    known = [set(hosts) for hosts in sides if hosts]
    common = set.intersection(*known) if known else set()
    many = len(set().union(*known)) > _FEW_HOSTS
    for hosts in sides:
        own = sorted(set(hosts) - common if many else set(hosts), key=_by_number)
        more = f"{len(common)} {'more' if own else 'hosts'}" if many and common else ""
        yield " and ".join(filter(None, (", ".join(own), more))) if hosts else None


def _by_number(host: str) -> tuple[tuple[str, int], ...]:
    parts = re.findall(r"(\D*)(\d*)", host)
    return tuple((text, int(number or -1)) for text, number in parts)


def _names(mappings: Iterable[Mapping[str, str]]) -> Iterable[str]:
    return dict.fromkeys(name for mapping in mappings for name in sorted(mapping))
