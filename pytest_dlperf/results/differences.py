"""What else differs between two results, besides the throughputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_dlperf.model.results import Results

_FACTS_OF_PYTEST: Final = ("host", "platform", "processors", "python")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """A fact that differs between the two sides; ``None`` where a side does not know it."""

    name: str
    first: str | None
    second: str | None


def differences(first: Results, second: Results, case_ids: set[str]) -> Iterator[Contrast]:
    """What else differs: clusters, pytest's machine, and what the compared cases were taken on."""
    sides = [{**_of_pytest(one), **_of_cases(one, case_ids)} for one in (first, second)]
    yield from _different({"cluster": first.cluster}, {"cluster": second.cluster})
    yield from _different(*sides)


def _different(ours: Mapping[str, str], theirs: Mapping[str, str]) -> Iterator[Contrast]:
    for name in dict.fromkeys([*ours, *theirs]):
        if ours.get(name) != theirs.get(name):
            yield Contrast(name=name, first=ours.get(name), second=theirs.get(name))


def _of_pytest(results: Results) -> dict[str, str]:
    found = results.environment
    packages: Mapping[str, Any] = found.get("packages") or {}
    facts = {name: found.get(name) for name in _FACTS_OF_PYTEST}
    facts |= {f"{name} of pytest's Python": version for name, version in packages.items()}
    return {
        f"pytest's {name}" if name in _FACTS_OF_PYTEST else name: str(value)
        for name, value in facts.items()
        if value is not None
    }


def _of_cases(results: Results, case_ids: set[str]) -> dict[str, str]:
    """Machine and software of the cases, by name; all values where they are not of one."""
    values: dict[str, dict[str, None]] = {}
    for result in results.cases:
        measurement = result.measurement
        if result.case.id not in case_ids or measurement is None:
            continue
        taken_on = measurement.fingerprint
        if taken_on is None:
            continue
        for facts in (taken_on.machine, taken_on.software):
            for name, value in facts.items():
                values.setdefault(name, {})[value] = None
    return {name: ", ".join(sorted(found)) for name, found in values.items()}
