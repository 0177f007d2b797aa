"""What differs between now, the last good session and the one whose number was accepted."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import and_, itemgetter
from typing import Final, TypeAlias

from msgspec.structs import replace

from pytest_dlperf.model.baseline import Baseline
from pytest_dlperf.model.commits import SUITE
from pytest_dlperf.model.judgement import Difference, DifferenceKind
from pytest_dlperf.model.measurement import MACHINE_FACTS, Fingerprint

ABSENT: Final = "-"
"""Stands for an argument, variable or option that a side is known not to have."""
GIVEN: Final = "given"
"""Stands for the value of an option that takes none."""
_KINDS: Final = tuple(DifferenceKind)
_BY_HAND: Final = (DifferenceKind.COMMAND, DifferenceKind.ENVIRONMENT, DifferenceKind.LAUNCH)
_STACK: Final = re.compile(
    r"image|driver|cuda|rocm|nccl|nvidia-.*|torch(-.*)?|triton|jax.*|libtpu|tensorflow.*"
    r"|paddle.*|mxnet|oneflow|mindspore|megatron-core|deepspeed|transformer-engine|flash-attn|apex"
)
"""What nearly every training goes through."""
_MIN_VALUES_SET_EACH_TIME: Final = 3
"""A setting with so many values is set anew in each session, as the number of a job is."""
_SHORT_COMMIT: Final = 12
_MAX_LISTED: Final = 4
"""Of more hosts, or values of one option, those that all sides have are counted."""

_Thing: TypeAlias = tuple[DifferenceKind, str]
_Values: TypeAlias = tuple[str | None, ...]
"""A thing when the number was accepted, in the last good session, in the first one at the level of
now, and now; ``None`` where unknown."""


def compared(fingerprint: Fingerprint | None, commit: str | None) -> Fingerprint:
    """Return what is compared of a session: its fingerprint, and short commits, the suite's too."""
    fingerprint = fingerprint or Fingerprint()
    commits = {
        name: f"{commit[:_SHORT_COMMIT]}{plus}{changes}"
        for name, text in {SUITE: commit or "", **fingerprint.commits}.items()
        for commit, plus, changes in [text.partition("+")]
        if text
    }
    return replace(fingerprint, commits=commits)


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
    sides = [side or Fingerprint() for side in (accepted, last_good, since or now, now)]
    facts = [_facts(side) for side in sides]
    ranked = []
    for thing in dict.fromkeys(thing for side in reversed(facts) for thing in side):
        kind, name = thing
        values = _texts([side.get(thing) for side in facts])
        if kind in _BY_HAND:
            # A known launch without a thing is known to lack it.
            values = tuple(
                ABSENT if value is None and side.launch is not None else value
                for side, value in zip(sides, values, strict=True)
            )
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
            ranked.append(((suspicion, *_place(kind, name, values)), values, difference))
    of_trainers = [
        values
        for _, values, each in ranked
        if each.kind is DifferenceKind.COMMIT and not each.is_suite
    ]
    return tuple(
        difference
        for _, values, difference in sorted(ranked, key=itemgetter(0))
        # The trainer may run from the system files' checkout: it is shown once, as the trainer's.
        if not (difference.is_suite and values in of_trainers)
    )


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


def _place(kind: DifferenceKind, name: str, values: _Values) -> tuple[int, int, str]:
    """Rank a thing among equally suspicious ones: by kind, then by what it is."""
    if kind is DifferenceKind.SOFTWARE:
        return _KINDS.index(kind), not _STACK.fullmatch(name.lower()), name
    if kind in _BY_HAND and len({*values} - {None, ABSENT}) >= _MIN_VALUES_SET_EACH_TIME:
        return _KINDS.index(DifferenceKind.COMMIT), 1, name
    return _KINDS.index(kind), 0, "" if kind is DifferenceKind.COMMAND else name


def _facts(side: Fingerprint) -> dict[_Thing, list[str]]:
    """Return all that is known of a session, a list of values for each thing."""
    settings: dict[DifferenceKind, Mapping[str, str]] = {
        DifferenceKind.COMMIT: side.commits,
        DifferenceKind.SOFTWARE: side.software,
        DifferenceKind.MACHINE: {k: v for k, v in side.machine.items() if k in MACHINE_FACTS},
    }
    facts = {}
    if (launch := side.launch) is not None:
        for name, values in arguments_by_name(launch.arguments).items():
            facts[DifferenceKind.COMMAND, name] = values
        folder = {"working directory": launch.working_directory or ""}
        options = {"launcher": launch.launcher, **launch.options}
        settings[DifferenceKind.ENVIRONMENT] = launch.environment
        settings[DifferenceKind.LAUNCH] = options | (folder if launch.working_directory else {})
    if side.hosts:
        facts[DifferenceKind.HOSTS, "hosts"] = sorted(side.hosts)
    for kind, by_name in settings.items():
        facts |= {(kind, name): [value or "''"] for name, value in by_name.items()}
    return facts


def _texts(sides: Sequence[list[str] | None]) -> _Values:
    """Write the values of a thing on each side; of many, only those that not all sides have."""
    known = [Counter(values) for values in sides if values is not None]
    common: Counter[str] = Counter()
    if len({value for values in known for value in values}) > _MAX_LISTED:
        common = reduce(and_, known)
    texts: list[str | None] = []
    for values in sides:
        own = [value for value in values or () if value not in common]
        more = f"{common.total()} more" if common else ""
        text = " and ".join(filter(None, (", ".join(own), more)))
        texts.append(None if values is None else text)
    return tuple(texts)


# ------------------------------------------------------------------------- command lines

_OPTION: Final = re.compile(r"(--?[A-Za-z_][\w.:/-]*)(?:=(.*))?", re.DOTALL)
_ASSIGNMENT: Final = re.compile(r"([+~]*[A-Za-z_][\w.@/-]*)=(.*)", re.DOTALL)
_VARIABLE: Final = re.compile(r"([A-Z_][A-Z0-9_]*)=(.*)", re.DOTALL)
_NO_VALUE: Final = re.compile(r"--|--?[A-Za-z_].*|[+~]*[a-z][\w.@/-]*=.*", re.DOTALL)
_SHELLS: Final = ("sh", "bash", "dash", "zsh")
_SCRIPT_FOLLOWS: Final = re.compile(r"-[a-z]*c")


def arguments_by_name(line: Iterable[str]) -> dict[str, list[str]]:
    """Return the values of each argument of a command line, positional ones last.

    An option and its value are one, whether a blank or ``=`` stands between them; so are the name
    and value of ``key=value``. What follows an option, and is none, is taken for its value.
    Positional arguments are ``argument 2`` by their place behind the ``program``. A shell's script
    is taken for its words.
    """
    options: dict[str, list[str]] = {}
    positional: list[str] = []
    words = _words(line)[::-1]
    while words:
        word = words.pop()
        if option := _OPTION.fullmatch(word):
            name, value = option.groups()
            if value is None and words and not _NO_VALUE.fullmatch(words[-1]):
                value = words.pop()
            if variable := _VARIABLE.fullmatch(value or ""):  # of --env A=1 and the like
                name, value = f"{name} {variable[1]}", variable[2]
            options.setdefault(name, []).append(GIVEN if value is None else value)
        elif setting := _ASSIGNMENT.fullmatch(word):
            options.setdefault(setting[1], []).append(setting[2])
        else:
            positional.append(word)
    names = (f"argument {number}" if number else "program" for number in range(len(positional)))
    return options | {name: [word] for name, word in zip(names, positional, strict=True)}


def _words(line: Iterable[str]) -> list[str]:
    words: list[str] = []
    is_shell = False
    for argument in line:
        if is_shell and _SCRIPT_FOLLOWS.fullmatch(words[-1]):
            try:
                words += shlex.split(argument)
            except ValueError:
                words.append(argument)
        else:
            words.append(argument)
        is_shell |= argument.rpartition("/")[2] in _SHELLS
    return words
