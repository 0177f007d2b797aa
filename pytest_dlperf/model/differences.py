"""What differs between now, the last good session and the one whose number was accepted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from msgspec.structs import replace

from pytest_dlperf.model.baseline import Baseline
from pytest_dlperf.model.command_lines import side_by_side
from pytest_dlperf.model.commits import SUITE
from pytest_dlperf.model.judgement import Difference, DifferenceKind
from pytest_dlperf.model.measurement import MACHINE_FACTS, Fingerprint

ABSENT: Final = "-"
"""Stands for an argument, variable or option that a side is known not to have."""
_KINDS: Final = tuple(DifferenceKind)
_BY_HAND: Final = (DifferenceKind.COMMAND, DifferenceKind.ENVIRONMENT, DifferenceKind.LAUNCH)
_STACK: Final = re.compile(
    r"image|driver|cuda|rocm|nccl|nvidia-.*|torch(-.*)?|triton|jax.*|libtpu|tensorflow.*"
    r"|paddle.*|mxnet|oneflow|mindspore|megatron-core|deepspeed|transformer-engine|flash-attn|apex"
    r"|power_limit|application_clock|compute_mode|ecc|persistence"
)
"""What nearly every training goes through."""
_FIRMWARE: Final = ("vbios", "nic_firmware", "kernel", "bios")
_MIN_VALUES_SET_EACH_TIME: Final = 3
"""A setting with so many values is set anew in each session, as the number of a job is."""
_SHORT_COMMIT: Final = 12
_MAX_HOSTS_NAMED: Final = 4

_Values: TypeAlias = tuple[str | None, ...]
"""A thing when the number was accepted, in the last good session, in the first one at the level of
now, and now; ``None`` where unknown."""


def compared(fingerprint: Fingerprint | None, commit: str | None) -> Fingerprint:
    """Return what is compared of a session: its fingerprint, with the suite's commit beside others.

    Commits are in short.
    """
    fingerprint = fingerprint or Fingerprint()
    commits = {SUITE: commit, **fingerprint.commits}
    return replace(fingerprint, commits={k: _short(v) for k, v in commits.items() if v})


def compared_acceptance(baseline: Baseline | None) -> Fingerprint | None:
    """Return the same of an accepted number; ``None`` where nothing of its origin is recorded."""
    acceptance = baseline.acceptance if baseline is not None else None
    if baseline is None or acceptance is None:
        return None
    fingerprint = Fingerprint(
        machine=baseline.machine,
        software=acceptance.software,
        hosts=acceptance.hosts,
        commits=acceptance.commits,
        launch=acceptance.launch,
    )
    return compared(fingerprint, acceptance.commit)


def differences_of(
    now: Fingerprint,
    *,
    accepted: Fingerprint | None = None,
    last_good: Fingerprint | None = None,
    since: Fingerprint | None = None,
) -> tuple[Difference, ...]:
    """Return what differs, the most suspicious first; of a side that is ``None`` nothing is known.

    ``since`` is the first session at the level of now; without it, that is now. What came with the
    change comes before what was different before. Then changes by hand come before software,
    software before machines and these before hosts.
    """
    found = []
    for kind, name, values in _things([accepted, last_good, since or now, now]):
        suspicion = _suspicion(*values)
        if suspicion is not None:
            difference = Difference(
                kind=kind,
                name=name,
                accepted=values[0],
                last_good=values[1],
                now=values[3],
                came_with_it=suspicion <= 1,
            )
            found.append(((suspicion, *_place(kind, name, values)), difference))
    return tuple(difference for _, difference in sorted(found, key=lambda one: one[0]))


def _suspicion(
    accepted: str | None, last_good: str | None, since: str | None, now: str | None
) -> int | None:
    """Rank a thing, the most suspicious 0; ``None`` where nothing differs."""
    if _differ(last_good, now):
        if not _differ(last_good, since):
            return 3  # it changed only after the number had
        # A number as good as accepted was once measured with what is there now.
        return 1 if accepted == now else 0
    if _differ(accepted, now):
        # What was there in a good session is hardly to blame.
        return 2 if last_good is None else 4
    return None


def _differ(one: str | None, other: str | None) -> bool:
    return None not in (one, other) and one != other


def _place(kind: DifferenceKind, name: str, values: _Values) -> tuple[int, int]:
    """Rank a thing among equally suspicious ones: by kind, then by what it is."""
    if kind is DifferenceKind.SOFTWARE:
        part = 2 if name in _FIRMWARE else 0 if _STACK.fullmatch(name.lower()) else 1
        return _KINDS.index(kind), part
    if kind in _BY_HAND and len({*values} - {None, ABSENT}) >= _MIN_VALUES_SET_EACH_TIME:
        return _KINDS.index(DifferenceKind.COMMIT), 2
    return _KINDS.index(kind), 0


def _things(
    known: Sequence[Fingerprint | None],
) -> Iterator[tuple[DifferenceKind, str, _Values]]:
    sides = [side or Fingerprint() for side in known]
    launches = [side.launch for side in sides]
    lines = dict(side_by_side([one.arguments if one else None for one in launches]))
    variables = _by_name([one.environment if one else {} for one in launches])
    options = [
        {
            "launcher": one.launcher,
            **({"working directory": one.working_directory} if one.working_directory else {}),
            **one.options,
        }
        if one
        else {}
        for one in launches
    ]
    for kind, things in zip(_BY_HAND, (lines, variables, _by_name(options)), strict=True):
        for name, values in things.items():
            # A known launch without a thing is known to lack it; an empty value is one.
            told = zip(launches, values, strict=True)
            yield kind, name, tuple(None if one is None else _set(value) for one, value in told)
    shown = set()
    commits = _by_name([side.commits for side in sides])
    # The trainer may run from the system files' checkout: it is shown once, as the trainer's.
    for name in sorted(commits, key=lambda one: one == SUITE):
        if commits[name] not in shown:
            yield DifferenceKind.COMMIT, name, commits[name]
        shown.add(commits[name])
    machines = [{k: v for k, v in side.machine.items() if k in MACHINE_FACTS} for side in sides]
    for kind, facts in (
        (DifferenceKind.SOFTWARE, [side.software for side in sides]),
        (DifferenceKind.MACHINE, machines),
    ):
        for name, values in _by_name(facts).items():
            yield kind, name, values
    yield DifferenceKind.HOSTS, "hosts", tuple(_hosts([side.hosts for side in sides]))


def _by_name(sides: Sequence[Mapping[str, str]]) -> dict[str, _Values]:
    names = dict.fromkeys(name for side in sides for name in sorted(side))
    return {name: tuple(side.get(name) for side in sides) for name in names}


def _set(value: str | None) -> str:
    return ABSENT if value is None else value or "''"


def _short(commit: str) -> str:
    name, plus, changes = commit.partition("+")
    return f"{name[:_SHORT_COMMIT]}{plus}{changes}"


def _hosts(sides: Sequence[tuple[str, ...]]) -> Iterator[str | None]:
    """List hosts in order; of many, only those that not all sides have."""
    known = [set(hosts) for hosts in sides if hosts]
    common = set.intersection(*known) if known else set()
    many = len(set().union(*known)) > _MAX_HOSTS_NAMED
    for hosts in sides:
        own = sorted(set(hosts) - common if many else set(hosts), key=_by_number)
        more = f"{len(common)} {'more' if own else 'hosts'}" if many and common else ""
        yield " and ".join(filter(None, (", ".join(own), more))) if hosts else None


def _by_number(host: str) -> list[tuple[str, int]]:
    return [(text, int(digits or -1)) for text, digits in re.findall(r"(\D*)(\d*)", host)]
