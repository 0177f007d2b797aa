"""What is known of one metric of a case, as labelled facts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_dlperf.model import numbers
from pytest_dlperf.night import explanation_words as words
from pytest_dlperf.night.figures import accepted, rule_view

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_dlperf.model.judgement import Judgement
    from pytest_dlperf.model.metric import Metric
    from pytest_dlperf.model.results import MetricResult


def terms(metric: Metric) -> str:
    """Say which direction is better, and what is checked."""
    told = [] if metric.better is None else [f"{metric.better.value} is better"]
    if metric.sanity is not None:
        bounds = {"below": metric.sanity.below, "above": metric.sanity.above}
        checks = ["finite"] * metric.sanity.finite + ["falls"] * metric.sanity.falls
        checks += [f"{side} {bound:g}" for side, bound in bounds.items() if bound is not None]
        told.append(f"checked: {', '.join(checks)}")
    return "; ".join(told) or "recorded"


def metric_facts(known: MetricResult, tonight: str) -> Iterator[tuple[str, str]]:
    """Yield what is known of a metric: since when, its numbers, who accepted it, the rule."""
    judgement, unit = known.judgement, known.metric.unit
    since = words.since_line(known.explanation, tonight, judgement)
    if since:
        yield "when", since
    if probed := words.probed_line(known.explanation):
        yield "probes", probed
    yield from words.found_pairs(known.explanation)
    if known.mean is not None:
        yield "mean", numbers.quantity(known.mean, unit)
        yield "spread of the runs", numbers.variation(known.spread)
    if known.efficiency_percent is not None:
        yield "of the ideal", numbers.percent(known.efficiency_percent)
    if judgement is None:
        return
    agreed, held = accepted(judgement), known.accepted
    who = words.accepted_by(held.acceptance, tonight) if held is not None else ""
    if held is not None and (agreed is not None or (who and known.explanation is not None)):
        told = numbers.quantity(held.number, unit)
        yield "accepted", f"{told}, {who}" if who else told
    yield from _of_rule(judgement)


def _of_rule(judgement: Judgement) -> Iterator[tuple[str, str]]:
    view = rule_view(judgement)
    if view is not None:
        yield "compared", view
    elif judgement.interval_percent is not None:
        yield "95 % interval", numbers.interval(judgement.interval_percent)
    if judgement.tolerance_percent is not None:
        yield "a loss that passes", f"up to {numbers.percent(judgement.tolerance_percent)}"
    yield from gate_fact(judgement)


def gate_fact(judgement: Judgement) -> Iterator[tuple[str, str]]:
    """Yield the rule that decided, and the minimum detectable change."""
    if judgement.rule is not None:
        yield "gate", f"{judgement.rule.value}: {_sees(judgement)}"


def _sees(judgement: Judgement) -> str:
    """Say the minimum detectable change."""
    visible = judgement.min_detectable_percent
    if visible is None:
        return "what it sees cannot be said from so few runs"
    if visible >= 100:  # noqa: PLR2004 - percent
        return "sees no loss at all: the runs differ too much"
    return f"sees a loss of {numbers.percent(visible)} or more, 9 times out of 10"
