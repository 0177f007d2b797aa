"""A session: when and how it measured, and what it ran on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any

from pytest_dlperf.model.numbers import ABSENT, percent_range
from pytest_dlperf.model.results import CaseResult, Results


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
        decision.min_detectable_percent
        for result in results
        for judgement in result.judgements.values()
        if (decision := judgement.decision) and decision.min_detectable_percent is not None
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
