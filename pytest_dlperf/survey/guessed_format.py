"""How a system file declares a guessed format: ``log.format``, its facts, and what is in doubt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pytest_dlperf.formats.facts import CASE_FACTS
from pytest_dlperf.model.work import RateScope, TimeKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_dlperf.model.case import Case
    from pytest_dlperf.survey.found_expressions import StatedFact
    from pytest_dlperf.survey.guessing import Guess

_SAME_WORK: Final = 0.03
"""By so much the work of a step by a speed and a time may differ from what the log says of it."""


def formats_of_guess(guessed: Guess) -> Iterator[dict[str, Any]]:
    """Yield what ``log.format`` of a system may say to read a log as it was guessed."""
    if guessed.keys is not None:
        kind = "json" if guessed.record else "csv"
        yield _format_of_guess(guessed, {kind: dict(guessed.keys)})
    if guessed.record:
        yield _format_of_guess(guessed, {"record": guessed.record})


def _format_of_guess(guessed: Guess, found: dict[str, Any]) -> dict[str, Any]:
    if guessed.counts:
        found["step"] = "count"
    if guessed.all_ranks:
        found["ranks"] = "local"
    if guessed.time.scope is not RateScope.GLOBAL:
        found["rate_scope"] = guessed.time.scope.value
    if guessed.time.covers is not None:
        found["covers"] = guessed.time.covers.value
    return found


def declared_format(  # noqa: PLR0913, PLR0917 - all that says something of it
    found: Mapping[str, Any],
    guessed: Guess | None,
    case: Case,
    said: Mapping[str, StatedFact],
    known: Mapping[str, str],
    doubts: dict[str, str],
) -> dict[str, Any]:
    """Say how a file declares a format: with what the log says of the case, and its doubts."""
    confirmed = {
        name: one.record
        for name, one in said.items()
        if name not in ("batch_per_replica", "precision")
        and str(CASE_FACTS[name](case)) == one.value
    }
    facts = {**confirmed, **found.get("facts", {})}
    declared = {**found, **({"facts": facts} if facts else {})}
    if declared.get("step") == "count":
        doubts["log.format.step"] = "is each record one step? of several, write {every: N}"
    if guessed is not None:
        declared, doubt = _with_scope(guessed, declared, case, known)
        if doubt:
            record = next(key for key in ("record", "json", "csv") if key in declared)
            doubts[f"log.format.{record}"] = doubt
    return declared


def _with_scope(
    guessed: Guess, declared: dict[str, Any], case: Case, known: Mapping[str, str]
) -> tuple[dict[str, Any], str]:
    """Find out what a guessed speed is of, by the batch that the log says; and what is in doubt."""
    if not guessed.doubt or "global_batch" not in known:
        return declared, guessed.doubt
    length = case.sequence_length or 1
    is_rate = guessed.time.timing.kind is TimeKind.RATE
    for scope in RateScope:
        parts = case.rates_per_run(scope)
        of_step = (case.global_batch / parts, case.global_batch * length / parts)
        if any(abs(w / o - 1) <= _SAME_WORK for w in guessed.time.works_of_step for o in of_step):
            others = {key: value for key, value in declared.items() if key != "rate_scope"}
            is_part = is_rate and parts > 1
            return {**others, "rate_scope": scope.value} if is_part else others, ""
    return declared, guessed.doubt
