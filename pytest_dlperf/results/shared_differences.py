"""What differs between two results beside their numbers, and in which cases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from pytest_dlperf.model.differences import compared, differences_of
from pytest_dlperf.model.judgement import Difference, DifferenceKind
from pytest_dlperf.model.measurement import Fingerprint
from pytest_dlperf.model.results import CaseResult, Results

MAX_VALUE_PAIRS: Final = 3
"""Pairs of values of one thing that have rows of their own; more share one row."""

_FACTS_OF_PYTEST: Final = ("host", "platform", "processors", "python")
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
    """Return what differs between A and B, the most suspicious first, then the sessions' own facts.

    Cases are called by their ids in A.
    A difference that cases share appears once. Facts that only one side knows come behind others.
    """
    commits = [side.origin.commit for side in (first, second)]
    both_know: dict[Difference, list[str]] = {}
    one_knows: dict[Difference, list[str]] = {}
    for case_id, pair in pairs.items():
        prints = [*map(_fingerprint, pair)]
        a, b = map(compared, prints, commits)
        known = differences_of(b, accepted=a)
        for into, found in ((both_know, known), (one_knows, tuple(_one_sided(*prints)))):
            for difference in found:
                into.setdefault(difference, []).append(case_id)
    return (
        *_of_session({"cluster": first.cluster}, {"cluster": second.cluster}),
        *_by_kind(both_know),
        *_by_kind(one_knows),
        *_of_session(_pytest_facts(first), _pytest_facts(second)),
    )


def _fingerprint(result: CaseResult) -> Fingerprint | None:
    return result.measurement.fingerprint if result.measurement else None


def _one_sided(one: Fingerprint | None, other: Fingerprint | None) -> Iterator[Difference]:
    """Yield versions that only one side has, where both sides have some."""
    if one is None or other is None or not (one.software and other.software):
        return
    for name in dict.fromkeys([*one.software, *other.software]):
        if (name in one.software) != (name in other.software):
            yield Difference(
                kind=DifferenceKind.SOFTWARE,
                name=name,
                accepted=one.software.get(name),
                now=other.software.get(name),
            )


def _by_kind(found: Mapping[Difference, Sequence[str]]) -> Iterator[SharedDifference]:
    """Order by kind; of a thing with many pairs of values, all share a row."""
    by_name: dict[tuple[int, str], list[Difference]] = {}
    for difference in found:
        key = _KINDS.index(difference.kind), difference.name
        by_name.setdefault(key, []).append(difference)
    for _, alike in sorted(by_name.items(), key=lambda pair: pair[0][0]):
        groups = [alike] if len(alike) > MAX_VALUE_PAIRS else [[one] for one in alike]
        for group in groups:
            ids = tuple(case_id for one in group for case_id in found[one])
            yield SharedDifference(difference=_joined(group), case_ids=ids)


def _joined(alike: Sequence[Difference]) -> Difference:
    if len(alike) == 1:
        return alike[0]
    return Difference(
        kind=alike[0].kind,
        name=alike[0].name,
        accepted=_all_of(one.accepted for one in alike),
        now=_all_of(one.now for one in alike),
    )


def _all_of(values: Iterable[str | None]) -> str | None:
    """Join the values of several cases, each once; ``None`` where none is known."""
    return ", ".join(dict.fromkeys(value for value in values if value is not None)) or None


def _of_session(
    ours: Mapping[str, str | None], theirs: Mapping[str, str | None]
) -> Iterator[SharedDifference]:
    for name in dict.fromkeys([*ours, *theirs]):
        one, other = ours.get(name), theirs.get(name)
        if one != other:
            yield SharedDifference(
                difference=Difference(
                    kind=DifferenceKind.MACHINE, name=name, accepted=one, now=other
                )
            )


def _pytest_facts(results: Results) -> dict[str, str | None]:
    environment = results.environment
    packages: Mapping[str, Any] = environment.get("packages") or {}
    facts = {f"pytest's {name}": _text(environment.get(name)) for name in _FACTS_OF_PYTEST}
    return facts | {f"{name} of pytest's Python": _text(packages[name]) for name in packages}


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
