"""Machines and software: of a case, beside those of its accepted number, and of the session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_dlperf.reports.figures import detectable_losses
from pytest_dlperf.reports.numbers import ABSENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import timedelta

    from pytest_dlperf.model.records import CaseResult
    from pytest_dlperf.model.results import Results


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One fact on both sides, ``-`` where a side does not know it."""

    name: str
    measured: str
    accepted: str
    differs: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Machine and software of a case; ``summary`` is a sentence, the differences first."""

    summary: str
    hosts: tuple[str, ...]
    facts: tuple[Fact, ...]
    acceptance: str


def surroundings_of(result: CaseResult) -> Surroundings:
    """Hold what a case was measured on against what its number was accepted on."""
    taken_on = result.measurement.fingerprint if result.measurement else None
    accepted = result.accepted
    facts: list[Fact] = []
    for kind in ("machine", "software"):
        here = getattr(taken_on, kind) if taken_on else {}
        there = getattr(accepted, kind) if accepted else {}
        facts += _facts(here, there)
    facts.sort(key=lambda fact: not fact.differs)
    differing = [fact.name for fact in facts if fact.differs]
    if result.measurement is None:
        summary = "Nothing was measured."
    elif taken_on is None:
        summary = "Nobody could look: logs that exist may be of any machine."
    elif differing:
        summary = f"Other than when the number was accepted: {', '.join(differing)}."
    elif accepted is None:
        summary = "No number is accepted that it could be held against."
    elif not any(fact.accepted != ABSENT for fact in facts):
        summary = "The accepted number does not say what it was measured on."
    else:
        summary = "As when the number was accepted, as far as both sides are known."
    return Surroundings(
        summary=summary,
        hosts=taken_on.hosts if taken_on else (),
        facts=tuple(facts),
        acceptance=_acceptance(result),
    )


def _facts(measured: Mapping[str, str], accepted: Mapping[str, str]) -> Iterator[Fact]:
    for name in dict.fromkeys([*measured, *accepted]):
        here, there = measured.get(name), accepted.get(name)
        yield Fact(
            name=name,
            measured=ABSENT if here is None else here,
            accepted=ABSENT if there is None else there,
            differs=here is not None and there is not None and here != there,
        )


def _acceptance(result: CaseResult) -> str:
    accepted = result.accepted
    if accepted is None:
        return "none that the case could be held against"
    parts = [f"estimator {accepted.estimator}"]
    if accepted.at is not None:
        parts.append(f"measured {accepted.at}")
    if accepted.commit is not None:
        parts.append(f"commit {accepted.commit}")
    if accepted.reason is not None:
        parts.append(f"because: {accepted.reason}")
    return "; ".join(parts)


def session_facts(results: Results) -> list[tuple[str, str]]:
    """Name what a session is and what it could find."""
    facts = [
        ("cluster", results.cluster),
        ("estimator", results.estimator.value),
        ("started", results.started.replace("T", " ")),
    ]
    took = results.elapsed
    if took is not None:
        facts.append(("took", _duration(took)))
    losses = detectable_losses(results.cases)
    if losses is not None:
        facts.append(("minimum detectable change", losses))
    facts.append(("session", results.session))
    return facts


def _duration(taken: timedelta) -> str:
    minutes, seconds = divmod(round(taken.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"


def environment_facts(environment: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Name what the session ran on, and say it in text, whatever the results file holds."""
    for name, value in environment.items():
        if isinstance(value, Mapping):
            yield name, ", ".join(f"{key} {_text(item)}" for key, item in value.items()) or ABSENT
        else:
            yield name, _text(value)


def measured_facts(cases: Iterable[CaseResult]) -> Iterator[tuple[str, str]]:
    """Name what the cases were measured on; of facts that differ among them all values."""
    found: dict[str, dict[str, None]] = {}
    for result in cases:
        taken_on = result.measurement.fingerprint if result.measurement else None
        for kind in ("machine", "software"):
            for name, value in (getattr(taken_on, kind) if taken_on else {}).items():
                found.setdefault(f"{kind}: {name}", {})[value] = None
    yield from ((name, ", ".join(values)) for name, values in found.items())


def _text(value: Any) -> str:
    if value is None:
        return ABSENT
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_text, value)) or ABSENT
    return str(value)
