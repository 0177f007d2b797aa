"""Machines and software: of a case, beside those of its accepted number, and of the session."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pytest_dlperf.model.numbers import ABSENT, percent_range
from pytest_dlperf.night.explanation_words import accepted_by

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_dlperf.model.results import CaseResult, Results


class Fact(Struct, frozen=True, kw_only=True):
    """One fact on both sides, ``-`` where a side does not know it."""

    name: str
    measured: str
    accepted: str
    differs: bool


class Surroundings(Struct, frozen=True, kw_only=True):
    """Machine and software of a case; ``summary`` is a sentence, the differences first."""

    summary: str
    hosts: tuple[str, ...]
    facts: tuple[Fact, ...]
    acceptance: str


def surroundings_of(result: CaseResult) -> Surroundings:
    """Hold what a case was measured on against what its numbers were accepted on."""
    taken_on = result.measurement.fingerprint if result.measurement else None
    facts: list[Fact] = []
    for kind in ("machine", "software"):
        here: Mapping[str, str] = getattr(taken_on, kind) if taken_on else {}
        there: dict[str, str] = {}
        for accepted in result.accepted.values():
            # Numbers of one case may be of several sessions: one that differs is worth telling.
            source = accepted if kind == "machine" else accepted.acceptance
            known: Mapping[str, str] = getattr(source, kind, {})
            there |= {n: v for n, v in known.items() if n not in there or v != here.get(n)}
        facts += _facts(here, there)
    facts.sort(key=lambda fact: not fact.differs)
    differing = [fact.name for fact in facts if fact.differs]
    if differing:
        summary = f"Other than when the number was accepted: {', '.join(differing)}."
    elif any(ABSENT not in (fact.measured, fact.accepted) for fact in facts):
        summary = "Machine and versions as when the number was accepted, as far as is known."
    else:
        summary = "Nothing is known that could be compared with the accepted number's environment."
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
    """Say where the accepted numbers come from, by metric where that differs."""
    metrics: dict[str, list[str]] = {}
    for name, accepted in result.accepted.items():
        source = accepted.acceptance
        told = f"estimator {accepted.estimator}"
        if source is not None:
            told += f"; accepted {accepted_by(source, source.at)}"
        metrics.setdefault(told, []).append(name)
    if len(metrics) == 1:
        return next(iter(metrics))
    by_metric = (f"{', '.join(names)}: {told}" for told, names in metrics.items())
    return " | ".join(by_metric) or "none that the case could be held against"


def session_facts(results: Results) -> list[tuple[str, str]]:
    """Name what a session is and what it could find."""
    facts = [
        ("cluster", results.cluster),
        ("estimator", results.estimator.value),
        ("started", results.started.replace("T", " ")),
    ]
    took = results.elapsed
    if took is not None:
        facts.append(("took", str(timedelta(seconds=round(took.total_seconds())))))
    losses = _detectable_losses(results.cases)
    if losses is not None:
        facts.append(("minimum detectable change", losses))
    facts.append(("session", results.session))
    return facts


def _detectable_losses(results: Iterable[CaseResult]) -> str | None:
    """Say the minimum detectable changes, from the best to the worst: ``2.1 to 66.0 %``."""
    found = [
        judgement.min_detectable_percent
        for result in results
        for judgement in result.judgements.values()
        if judgement.min_detectable_percent is not None
    ]
    if not found:
        return None
    seen = [percent for percent in found if percent < 100]  # noqa: PLR2004 - no loss is larger
    blind = len(found) - len(seen)
    unseen = f"none by {blind} of {len(found)} verdicts" if blind else ""
    if not seen:
        return unseen
    told = percent_range(min(seen), max(seen))
    return f"{told}, {unseen}" if unseen else told


def environment_facts(environment: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Name what the session ran on, and say it in text, whatever the results file holds."""
    for name, value in environment.items():
        if isinstance(value, Mapping):
            yield name, ", ".join(f"{key} {_text(item)}" for key, item in value.items()) or ABSENT
        else:
            yield name, _text(value)


def _text(value: Any) -> str:
    if value is None:
        return ABSENT
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_text, value)) or ABSENT
    return str(value)
