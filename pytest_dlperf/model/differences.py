"""What differs between tonight, the last good night and the accepted number."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import asdict

from pytest_dlperf.model.baseline import Acceptance
from pytest_dlperf.model.command_lines import side_by_side
from pytest_dlperf.model.commits import SUITE
from pytest_dlperf.model.judgement import Difference, DifferenceKind
from pytest_dlperf.model.measurement import MACHINE_FACTS, Fingerprint, LaunchFacts

ABSENT: Final = "-"
"""Stands for an argument, variable or option that a side is known not to have."""
_KINDS: Final = (
    # Changes by hand, then what was installed, then where it ran.
    DifferenceKind.COMMAND,
    DifferenceKind.ENVIRONMENT,
    DifferenceKind.LAUNCH,
    DifferenceKind.COMMIT,
    DifferenceKind.SOFTWARE,
    DifferenceKind.MACHINE,
    DifferenceKind.HOSTS,
)
_STACK: Final = re.compile(
    r"image|driver|cuda|rocm|nccl|nvidia-.*|torch(-.*)?|triton|jax.*|libtpu|tensorflow.*"
    r"|paddle.*|mxnet|oneflow|mindspore|megatron-core|deepspeed|transformer-engine|flash-attn|apex"
    r"|power_limit|application_clock|compute_mode|ecc|persistence"
)
"""What nearly every training goes through."""
_FIRMWARE: Final = ("vbios", "nic_firmware", "kernel", "bios")
_MIN_VALUES_SET_EACH_NIGHT: Final = 3
"""A setting with so many values is set anew each night, as the number of a job is."""
_SHORT_COMMIT: Final = 12
_MAX_HOSTS_NAMED: Final = 4


class MeasuredOn(Fingerprint, frozen=True, kw_only=True):
    """What one side's number was measured on and with, as far as known."""

    commit: str | None = None
    """The suite's."""

    @property
    def all_commits(self) -> dict[str, str]:
        """The commits of all checkouts, in short; that of the suite is empty where unknown."""
        every = {SUITE: self.commit or "", **self.commits}
        return {name: _short(commit) for name, commit in every.items()}

    @classmethod
    def of_night(cls, fingerprint: Fingerprint | None, commit: str | None) -> MeasuredOn:
        """Take them from a measurement; ``commit`` is its session's."""
        return cls(commit=commit, **asdict(fingerprint or Fingerprint()))

    @classmethod
    def of_acceptance(cls, acceptance: Acceptance, machine: Mapping[str, str]) -> MeasuredOn:
        """Take them from an accepted number; ``machine`` is its baseline's."""
        return cls(
            commit=acceptance.commit,
            commits=acceptance.commits,
            software=acceptance.software,
            machine=machine,
            hosts=acceptance.hosts,
            launch=acceptance.launch,
        )


class _Sides(Struct, frozen=True):
    """A thing as it was on each side; ``None`` where unknown."""

    kind: DifferenceKind
    name: str
    accepted: str | None
    last_good: str | None
    since: str | None
    tonight: str | None

    @property
    def came_with_it(self) -> bool:
        """Whether it changed when the number did, and has not been changed back since."""
        return _differ(self.last_good, self.tonight) and _differ(self.last_good, self.since)

    @property
    def suspicion(self) -> int | None:
        """Rank of suspicion, the most suspicious being 0; ``None`` where nothing differs."""
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
            is_firmware = self.name in _FIRMWARE
            return kind, 2 if is_firmware else 0 if _STACK.fullmatch(self.name.lower()) else 1
        # A side without the thing has no value of it.
        sides = {self.accepted, self.last_good, self.since, self.tonight}
        seen = sides - {None, ABSENT}
        if kind < _KINDS.index(DifferenceKind.COMMIT) and len(seen) >= _MIN_VALUES_SET_EACH_NIGHT:
            return _KINDS.index(DifferenceKind.COMMIT), 2
        return kind, 0

    def difference(self) -> Difference:
        return Difference(
            kind=self.kind,
            name=self.name,
            accepted=self.accepted,
            last_good=self.last_good,
            tonight=self.tonight,
            came_with_it=self.came_with_it,
        )


class Sides(Struct, frozen=True, kw_only=True):
    """The nights that are compared; ``None`` where there is none, or nothing is known of it.

    ``since`` is the first night at tonight's level; tonight where ``None``.
    """

    accepted: MeasuredOn | None = None
    last_good: MeasuredOn | None = None
    since: MeasuredOn | None = None
    tonight: MeasuredOn

    @property
    def in_order(self) -> tuple[MeasuredOn, ...]:
        """All of them, as ``_Sides`` has them."""
        sides = (self.accepted, self.last_good, self.since or self.tonight, self.tonight)
        return tuple(side or MeasuredOn() for side in sides)


def differences_of(sides: Sides) -> tuple[Difference, ...]:
    """Return what differs, the most suspicious first.

    What came with the change comes before what was different before. Then changes by hand come
    before software, software before machines and these before hosts. A fact that a side does not
    know is not a difference.
    """
    found = [one for one in _things(sides.in_order) if one.suspicion is not None]
    found.sort(key=lambda one: (one.suspicion, one.place))
    return tuple(one.difference() for one in found)


def _differ(one: str | None, other: str | None) -> bool:
    return None not in (one, other) and one != other


# ----------------------------------------------------------------------- thing by thing


def _things(sides: tuple[MeasuredOn, ...]) -> Iterator[_Sides]:
    yield from _launches([side.launch for side in sides])
    yield from _commits(sides)
    yield from _facts(DifferenceKind.SOFTWARE, [side.software for side in sides])
    yield from _facts(
        DifferenceKind.MACHINE,
        [{k: v for k, v in side.machine.items() if k in MACHINE_FACTS} for side in sides],
    )
    yield _Sides(DifferenceKind.HOSTS, "hosts", *_hosts([side.hosts for side in sides]))


def _launches(launches: list[LaunchFacts | None]) -> Iterator[_Sides]:
    """Compare launches: a known launch without a thing is known to lack it."""
    lines = side_by_side([None if one is None else one.arguments for one in launches])
    for name, values in lines:
        yield _Sides(DifferenceKind.COMMAND, name, *_or_absent(launches, values))
    for kind, all_set in (
        (DifferenceKind.ENVIRONMENT, [one.environment if one else {} for one in launches]),
        (DifferenceKind.LAUNCH, [_launch_options(one) if one else {} for one in launches]),
    ):
        for name in _names(all_set):
            yield _Sides(kind, name, *_or_absent(launches, [one.get(name) for one in all_set]))


def _launch_options(launch: LaunchFacts) -> dict[str, str]:
    folder = launch.working_directory
    own = {"launcher": launch.launcher} | ({} if folder is None else {"working directory": folder})
    return {**own, **launch.options}


def _or_absent(
    launches: Sequence[LaunchFacts | None], values: Sequence[str | None]
) -> Iterator[str | None]:
    for launch, value in zip(launches, values, strict=True):
        missing = None if launch is None else ABSENT
        # An empty value must not look like an unknown one.
        yield missing if value is None else value or "''"


def _commits(sides: tuple[MeasuredOn, ...]) -> Iterator[_Sides]:
    """Compare commits; a checkout whose commits another has shown before is not shown again."""
    named = [side.all_commits for side in sides]
    shown = set()
    # Of the system files' checkout the trainer may run, too.
    for name in sorted(_names(named), key=lambda one: one == SUITE):
        values = tuple(commits.get(name) or None for commits in named)
        if values not in shown:
            yield _Sides(DifferenceKind.COMMIT, name, *values)
        shown.add(values)


def _short(commit: str) -> str:
    name, plus, changes = commit.partition("+")
    return f"{name[:_SHORT_COMMIT]}{plus}{changes}"


def _facts(kind: DifferenceKind, facts: list[Mapping[str, str]]) -> Iterator[_Sides]:
    for name in _names(facts):
        yield _Sides(kind, name, *(one.get(name) for one in facts))


def _hosts(sides: list[tuple[str, ...]]) -> Iterator[str | None]:
    """List hosts in order; of many, only those that not all sides have."""
    known = [set(hosts) for hosts in sides if hosts]
    common = set.intersection(*known) if known else set()
    many = len(set().union(*known)) > _MAX_HOSTS_NAMED
    for hosts in sides:
        own = sorted(set(hosts) - common if many else set(hosts), key=_by_number)
        more = f"{len(common)} {'more' if own else 'hosts'}" if many and common else ""
        yield " and ".join(filter(None, (", ".join(own), more))) if hosts else None


def _by_number(host: str) -> tuple[tuple[str, int], ...]:
    parts = re.findall(r"(\D*)(\d*)", host)
    return tuple((text, int(number or -1)) for text, number in parts)


def _names(mappings: Iterable[Mapping[str, str]]) -> Iterable[str]:
    return dict.fromkeys(name for mapping in mappings for name in sorted(mapping))
