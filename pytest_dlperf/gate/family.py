"""Judgements of a family of metrics, of which one test fails with the worst names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from pytest_dlperf.gate.verdicts import GateResult
from pytest_dlperf.model import numbers
from pytest_dlperf.model.judgement import Judgement

_SHOWN: Final = 8


def worst_first(results: Sequence[GateResult], *, strict: bool) -> list[GateResult]:
    """Sort the results of a family's members, and have the worst name all that fail."""
    found = sorted(results, key=lambda result: badness(result.judgement))
    failing = [one.judgement for one in found if one.judgement.fails(strict=strict)]
    if len(found) > 1 and failing:
        worst, metric = found[0], failing[0].metric
        shown = ", ".join(map(_described, failing[:_SHOWN]))
        more = f" and {len(failing) - _SHOWN} more" if len(failing) > _SHOWN else ""
        note = f"{len(failing)} of {len(found)} of {metric.family} fail: {shown}{more}"
        judgement = replace(worst.judgement, notes=(note, *worst.judgement.notes))
        found[0] = replace(worst, judgement=judgement)
    return found


def badness(judgement: Judgement) -> tuple[bool, int, float]:
    """Sort key, the worst first."""
    loss = judgement.loss_percent or 0.0
    return judgement.passes(strict=True), judgement.verdict.rank, -loss


def _described(judgement: Judgement) -> str:
    metric, decision = judgement.metric, judgement.decision
    name = metric.member_words or metric.name
    far = f" {numbers.signed_percent(decision.difference_percent)}" if decision else ""
    return f"{name} ({judgement.verdict.value}{far})"
