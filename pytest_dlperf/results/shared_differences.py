"""What differs between two results beside their numbers, and in which cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from pytest_dlperf.model.differences import compared, differences_of
from pytest_dlperf.model.judgement import Difference, DifferenceKind
from pytest_dlperf.model.measurement import Fingerprint
from pytest_dlperf.model.results import CaseResult, Results

MAX_VALUE_PAIRS: Final = 3
"""Pairs of values of one thing that have rows of their own; more share one row."""

_KINDS: Final = tuple(DifferenceKind)


class SharedDifference(Struct, frozen=True, kw_only=True):
    """A difference, and the cases that have it; none for one of the sessions themselves.

    Of its sides, ``accepted`` is A and ``now`` B.
    """

    difference: Difference
    case_ids: tuple[str, ...] = ()


def shared_differences(
    first: Results, second: Results, pairs: Mapping[str, tuple[CaseResult, CaseResult]]
) -> tuple[SharedDifference, ...]:
    """Return what differs between A and B, the cluster first, then the most suspicious.

    Cases are called by their ids in A. A difference that cases share appears once. Versions that
    only one side knows come behind others.
    """
    both_know: dict[Difference, list[str]] = {}
    one_knows: dict[Difference, list[str]] = {}
    for case_id, (one, other) in pairs.items():
        a = compared(_fingerprint(one), first.origin.commit)
        b = compared(_fingerprint(other), second.origin.commit)
        for difference in differences_of(b, accepted=a):
            both_know.setdefault(difference, []).append(case_id)
        names = {*a.software} ^ {*b.software} if a.software and b.software else set()
        for name in sorted(names):
            versions = a.software.get(name), b.software.get(name)
            difference = _difference(DifferenceKind.SOFTWARE, name, *versions)
            one_knows.setdefault(difference, []).append(case_id)
    cluster = _difference(DifferenceKind.MACHINE, "cluster", first.cluster, second.cluster)
    return (
        *([SharedDifference(difference=cluster)] if first.cluster != second.cluster else ()),
        *_by_thing(both_know),
        *_by_thing(one_knows),
    )


def _fingerprint(result: CaseResult) -> Fingerprint | None:
    return result.measurement.fingerprint if result.measurement else None


def _difference(kind: DifferenceKind, name: str, a: str | None, b: str | None) -> Difference:
    return Difference(kind=kind, name=name, accepted=a, now=b)


def _by_thing(found: Mapping[Difference, Sequence[str]]) -> list[SharedDifference]:
    """Order by kind; of a thing with many pairs of values, all share a row."""
    by_thing: dict[tuple[DifferenceKind, str], list[Difference]] = {}
    for one in found:
        by_thing.setdefault((one.kind, one.name), []).append(one)
    shared = []
    for thing, alike in sorted(by_thing.items(), key=lambda pair: _KINDS.index(pair[0][0])):
        if len(alike) <= MAX_VALUE_PAIRS:
            shared += [SharedDifference(difference=d, case_ids=tuple(found[d])) for d in alike]
            continue
        a, b = (
            ", ".join(dict.fromkeys(filter(None, values))) or None
            for values in zip(*((one.accepted, one.now) for one in alike), strict=True)
        )
        ids = tuple(case_id for one in alike for case_id in found[one])
        shared.append(SharedDifference(difference=_difference(*thing, a, b), case_ids=ids))
    return shared
