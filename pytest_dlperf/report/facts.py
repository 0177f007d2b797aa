"""What is known of a metric, as labelled facts: all forms choose from these, and word nothing.

A form takes the facts that it has room for by their weight, and writes each in its own way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Final

from msgspec import Struct

from pytest_dlperf.model import numbers
from pytest_dlperf.model.judgement import Decision, Judgement, Verdict
from pytest_dlperf.model.metric import Metric
from pytest_dlperf.model.results import CaseResult, MetricResult
from pytest_dlperf.model.statistics import difference_percent
from pytest_dlperf.report import printing, words
from pytest_dlperf.report.status import worst_of_families
from pytest_dlperf.report.text import NOTHING, Text, case, code, join, number, phrase, word

ACCEPT: Final = "--dlperf-update-baselines --dlperf-reason 'TEXT'"


class Weight(IntEnum):
    """How much room a form needs to have for a fact."""

    BRIEF = 1
    """What every form says: why, since when, and what came with it."""
    USUAL = 2
    """What a message says too: the numbers, and who accepted."""
    FULL = 3
    """What explains the verdict to who looks closer."""


class Fact(Struct, frozen=True):
    """One thing to know: a line for each text, behind the label."""

    label: str
    texts: tuple[Text, ...]
    weight: Weight = Weight.BRIEF

    def first(self, most: int) -> tuple[Text, ...]:
        """Return the first texts; where there are more, the last one counts them."""
        more = len(self.texts) - most
        return (*self.texts[:most], phrase("and {} more", more)) if more > 0 else self.texts


def facts(known: MetricResult, now: str, *, case_id: str = "") -> Iterator[Fact]:
    """Yield what is known of a metric; ``now`` is when the session began, ISO 8601.

    A reason goes without the ``case_id``, where that stands beside it.
    """
    judgement, explanation = known.judgement, known.explanation
    found = [
        Fact("measured", (_measured(known),), Weight.USUAL),
        Fact("reference", (_reference(known),), Weight.USUAL),
    ]
    if judgement is not None:
        found += [
            Fact("reason", (_reason(judgement, case_id),)),
            Fact("expected", (phrase("{}", printing.reason(judgement.expected or "")),)),
        ]
    if explanation is not None:
        found += (Fact(label, (text,)) for label, text in words.onset(explanation, now))
        differences = (words.difference_text(it, judgement) for it in explanation.differences)
        found += (
            Fact("probes", (words.probes(explanation.companions),)),
            Fact("found", tuple(words.found_texts(explanation))),
            Fact("differs", tuple(differences)),
            Fact("commits", tuple(words.commit_texts(explanation))),
        )
    found.append(Fact("accepted", tuple(filter(None, _accepted(known, now))), Weight.USUAL))
    if judgement is not None:
        found += _basis(judgement)
    yield from (fact for fact in found if any(fact.texts))


def _measured(known: MetricResult) -> Text:
    metric, judged = known.metric, known.judgement
    measured = judged.measured if judged and judged.measured is not None else known.median
    if measured is None:
        return NOTHING
    told = phrase("{}", number(numbers.quantity(measured, metric.unit)))
    if known.mean is not None:
        mean, spread = numbers.number(known.mean, metric.unit), numbers.variation(known.spread)
        told = phrase("{} (mean {}, spread {})", told, number(mean), number(spread))
    percent = known.efficiency_percent
    ideal = NOTHING if percent is None else phrase("{} of the ideal", number(f"{percent:.1f} %"))
    better = phrase("{} is better", word(metric.better.value)) if metric.better else NOTHING
    return join("; ", [told, ideal, better])


def _reference(known: MetricResult) -> Text:
    judgement = known.judgement
    decision = judgement.decision if judgement is not None else None
    if judgement is None or decision is None:
        return NOTHING
    held = number(numbers.quantity(decision.reference, known.metric.unit))
    of = "" if decision.reference == judgement.accepted else ", of the last sessions"
    told = join(": ", [phrase("{}{}", held, word(of)), _how_far(judgement, decision.reference)])
    if judgement.verdict is Verdict.INCONCLUSIVE:
        return told
    allowed = number(numbers.percent(decision.tolerance_percent))
    return phrase("{}; a loss of up to {} passes", told, allowed)


def _how_far(judgement: Judgement, held: float) -> Text:
    if judgement.measured is None or not held:
        return NOTHING
    percent = difference_percent(judgement.measured, held)
    if judgement.decision is not None and held == judgement.decision.reference:
        percent = judgement.decision.difference_percent
    told, better = numbers.signed_percent(percent), judgement.metric.better
    if told == "+0.0 %" or better is None:
        return phrase("{}", number(told))
    direction = "better" if percent * better.sign > 0 else "worse"
    return phrase("{} by {}", word(direction), number(numbers.percent(abs(percent))))


def _reason(judgement: Judgement, case_id: str) -> Text:
    """Write the reason in a line; of a log's last lines, the last one."""
    if judgement.reason:
        return phrase("{}", reason_beside(judgement, case_id))
    if judgement.verdict is Verdict.NO_BASELINE:
        option = code("--dlperf-create-baselines")
        return phrase("no number is accepted; {} records what is measured and passes", option)
    return NOTHING


def reason_beside(judgement: Judgement, case_id: str) -> str:
    """Write a reason in one line, without the case, whose name stands beside it."""
    return printing.in_short(judgement.reason or "").removeprefix(case_id).lstrip(", :")


def _accepted(known: MetricResult, now: str) -> Iterator[Text]:
    """Say the accepted number where the number was held against another, and who accepted it."""
    judgement, baseline = known.judgement, known.accepted
    if judgement is not None and judgement.accepted is None:
        return  # it was compared with nothing
    decision = judgement.decision if judgement else None
    if judgement and judgement.accepted and decision and decision.reference != judgement.accepted:
        amount = number(numbers.quantity(judgement.accepted, known.metric.unit))
        yield join(": ", [amount, _how_far(judgement, judgement.accepted)])
    yield words.accepted_by(baseline.acceptance if baseline else None, now)


def _basis(judgement: Judgement) -> Iterator[Fact]:
    decision = judgement.decision
    if decision is not None:
        yield Fact("compared", (phrase("{}", word(_compared(judgement, decision))),), Weight.FULL)
        yield Fact("gate", (phrase("{}", word(_sees(decision))),), Weight.FULL)
    over = judgement.metric.ratio_of or ""
    notes = (
        *(phrase("{} {}", over, end) for end in judgement.ends),
        *(phrase("{}", printing.in_short(note)) for note in judgement.notes),
    )
    yield Fact("note", tuple(dict.fromkeys(notes)), Weight.FULL)
    is_worse = (judgement.loss_percent or 0.0) > 0
    if is_worse and judgement.verdict in (Verdict.REGRESSED, Verdict.ENVIRONMENT_SHIFT):
        accept = phrase("if this is how it is from now on: {}", code(ACCEPT))
        yield Fact("accept", (accept,), Weight.FULL)


def _compared(judgement: Judgement, decision: Decision) -> str:
    """Say where the runs that count lie, if that is not at the median; else the interval."""
    percent = decision.difference_percent
    if judgement.measured is not None:
        of_median = 100 * (judgement.measured / decision.reference - 1)
        if numbers.signed_percent(of_median) != numbers.signed_percent(percent):
            place = decision.reference * (1 + percent / 100)
            return f"the runs that count lie at {numbers.number(place, judgement.metric.unit)}"
    if decision.interval_percent is None:
        return ""
    return f"95 % interval {numbers.interval(decision.interval_percent)}"


def _sees(decision: Decision) -> str:
    visible, controlled = decision.min_detectable_percent, decision.controlled_percent
    if visible is None:
        return "what it sees cannot be said from so few runs"
    if visible >= 100:  # noqa: PLR2004 - percent
        return "sees no loss at all: the runs differ too much"
    said = f"sees a loss of {numbers.percent(visible)} or more, 9 times out of 10"
    if controlled is None:
        return said
    return f"{said}; with a control arm, {numbers.percent(controlled)} or more"


def terms(metric: Metric) -> str:
    """Say which direction is better, and what is checked."""
    told = [] if metric.better is None else [f"{metric.better.value} is better"]
    if metric.sanity is not None:
        bounds = {"below": metric.sanity.below, "above": metric.sanity.above}
        checks = ["finite"] * metric.sanity.finite + ["falls"] * metric.sanity.falls
        checks += [f"{side} {bound:g}" for side, bound in bounds.items() if bound is not None]
        told.append(f"checked: {', '.join(checks)}")
    return "; ".join(told) or "recorded"


# ------------------------------------------------------------------------------- of a case


def case_title(result: CaseResult, now: str) -> Text:
    """For instance ``regressed -9.9 % since Tuesday: <case>``."""
    said, metric = words.case_subject(result, now)
    about = phrase("{} of {}" if metric else "{}{}", metric, case(result.case.id))
    return phrase("{}: {}", word(str(said)), about)  # a heading is strong as a whole


def gaps(result: CaseResult) -> Iterator[Text]:
    """Yield what has not been judged of a case."""
    if not result.is_whole:
        yield phrase("a test of the case was lost with its worker")
    if not result.judgements:
        yield phrase("no test of the case has come to a verdict")
    else:
        for metric in result.unfinished:
            yield phrase("the test of the metric {} has not come to its end", metric)


def is_not_good(known: MetricResult) -> bool:
    """Whether a metric was judged, and is worth telling."""
    return known.judgement is not None and not known.judgement.status.is_good


def case_facts(
    result: CaseResult, now: str, metrics: Iterable[MetricResult] | None = None
) -> list[Fact]:
    """Return the facts of a case's metrics, of all that are not simply good unless some are named.

    What all of them share is told once; what some have, behind their names.
    """
    if metrics is None:
        known = result.metrics().values()
        metrics = worst_of_families(one for one in known if is_not_good(one) or one.explanation)
    members = {it.metric.name: list(facts(it, now, case_id=result.case.id)) for it in metrics}
    return merged(members, lambda text, names: phrase("{}: {}", join(", ", names), text))


def merged(
    members: Mapping[str, Sequence[Fact]], of_some: Callable[[Text, Sequence[str]], Text]
) -> list[Fact]:
    """Put the facts of several together: each text once, ``of_some`` where not all have it."""
    weights: dict[str, Weight] = {}
    found: dict[str, dict[Text, list[str]]] = {}
    for name, of_member in members.items():
        for fact in of_member:
            weights[fact.label] = fact.weight
            for text in fact.texts:
                found.setdefault(fact.label, {}).setdefault(text, []).append(name)
    return [
        Fact(
            label,
            tuple(
                text if len(names) == len(members) else of_some(text, names)
                for text, names in of_label.items()
            ),
            weights[label],
        )
        for label, of_label in found.items()
    ]
