"""Families of metrics, such as a bandwidth for each size: told as one, by their worst names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.model import numbers
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.metric import MEMBER, Metric
from pytest_dlperf.model.results import CaseResult, MetricResult
from pytest_dlperf.report.columns import lost
from pytest_dlperf.report.status import word_of

NAMES_SHOWN: Final = 3
"""Names of a family that a report tells, the worst; its table has all."""

_NUMBER: Final = re.compile(r"p?[0-9]+(?:\.[0-9]+)?[kKmMgGtT]?(?:i?[bB])?")
"""Such as ``4096``, ``4k``, ``1.5MiB`` or ``p99``."""


class Member(Struct, frozen=True, kw_only=True):
    """A name of a family: where it stands along the axis, in which series, and what is known."""

    name: str
    """What it is called on the axis, such as ``1048576``."""
    series: str
    """What else names it, such as ``out`` or ``all_reduce``; empty where nothing does."""
    known: MetricResult

    @property
    def status(self) -> Verdict:
        """What its judgement comes to."""
        judgement = self.known.judgement
        return Verdict.NOT_JUDGED if judgement is None else judgement.status

    @property
    def word(self) -> str:
        """Its verdict; nothing where no test judges it."""
        return "" if self.known.judgement is None else word_of(self.known.judgement)


class Family(Struct, frozen=True, kw_only=True):
    """The names of a family of a case, in the order of its log."""

    metric: Metric
    """What it says of all names, by its own name."""
    axis: str
    """What the names are on: ``size``, ``percentile``."""
    members: tuple[Member, ...]

    @property
    def worst(self) -> tuple[Member, ...]:
        """The worst names: those that are not good, or the first of equals."""
        ranked = sorted(self.members, key=lambda member: _place(member.known))
        return tuple(m for m in ranked if not m.status.is_good)[:NAMES_SHOWN] or tuple(ranked[:1])

    @property
    def status(self) -> Verdict:
        """The worst status of its names."""
        return self.worst[0].status

    @property
    def counts(self) -> str:
        """How many names there are, and how many have which verdict."""
        told = numbers.counted(len(self.members), "name")
        words = Counter(member.word for member in self.members if member.word)
        found = ", ".join(f"{count} {word}" for word, count in words.items())
        return f"{told}: {found}" if found else told


def families_of(result: CaseResult) -> list[Family]:
    """Gather the families of a case of which anything is known."""
    found: dict[str, list[MetricResult]] = {}
    for known in result.metrics().values():
        if known.metric.family and (known.judgement is not None or known.median is not None):
            found.setdefault(known.metric.family, []).append(known)
    return [_family(name, members) for name, members in found.items()]


def in_short(known: Iterable[MetricResult]) -> list[MetricResult]:
    """Keep the worst names of each family, and all other metrics, in their order."""
    found = list(known)
    shown: Counter[str] = Counter()
    kept = set()
    for one in sorted(found, key=_place):
        shown[one.metric.family or ""] += 1
        if not one.metric.family or shown[one.metric.family] <= NAMES_SHOWN:
            kept.add(one.metric.name)
    return [one for one in found if one.metric.name in kept]


def _family(name: str, members: Sequence[MetricResult]) -> Family:
    first = members[0].metric
    parts = [one.metric.member_name.split(MEMBER) for one in members]
    # A results file may say anything.
    named_by = first.named_by[: min(map(len, parts))] or ("name",)
    at = _axis(parts, len(named_by))
    return Family(
        metric=replace(first, name=name, family=None),
        axis=named_by[at],
        members=tuple(
            Member(name=part[at], series=MEMBER.join((*part[:at], *part[at + 1 :])), known=one)
            for part, one in zip(parts, members, strict=True)
        ),
    )


def _axis(parts: Sequence[Sequence[str]], naming: int) -> int:
    """Choose the part of the names that is the axis: the last with numbers, or the last."""
    for at in reversed(range(naming)):
        names = {part[at] for part in parts}
        if len(names) > 1 and all(map(_NUMBER.fullmatch, names)):
            return at
    return naming - 1


def _place(known: MetricResult) -> tuple[int, float]:
    """Order metrics, the worst first."""
    judgement = known.judgement
    if judgement is None:
        return Verdict.NOT_JUDGED.rank, 0.0
    return judgement.status.rank, -(lost(judgement) or 0.0)
