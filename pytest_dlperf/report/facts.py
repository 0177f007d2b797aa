"""What is known of a verdict, as labelled facts: all of a failed test, a metric's on the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.model import numbers
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.judgement import DifferenceKind, Verdict
from pytest_dlperf.model.statistics import difference_percent
from pytest_dlperf.report import explanation_words as words
from pytest_dlperf.report import texts
from pytest_dlperf.report.advice import ACCEPT
from pytest_dlperf.report.figures import rule_view
from pytest_dlperf.report.pieces import Text, code, phrase, word
from pytest_dlperf.report.runs import RUNS_LISTED, interleaved_arms, runs_text
from pytest_dlperf.report.session import difference_texts, first_differences

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_dlperf.gate.verdicts import GateInput, GateResult, MeasuredCase
    from pytest_dlperf.model.judgement import Decision, Explanation, Judgement
    from pytest_dlperf.model.measurement import Measurement
    from pytest_dlperf.model.metric import Metric
    from pytest_dlperf.model.results import MetricResult
    from pytest_dlperf.report.runs import RunsText

DIFFERENCES_SHOWN: Final = 5
"""Differences that a failure lists; the results file has all of them."""
_LONGEST_REASON: Final = 200
"""Characters of a reason in the first line."""


class Fact(Struct, frozen=True):
    """One thing to know about a failure; without a label it belongs to the one before."""

    label: str
    lines: tuple[Text, ...]
    """More than one where they end with those of a log."""

    @classmethod
    def of(cls, label: str, text: Text | str) -> Fact:
        """Make one of a text of any lines, of which a plain one is untrusted."""
        if isinstance(text, Text):
            return cls(label, (text,))
        return cls(label, tuple(phrase("{}", line) for line in text.split("\n")))


class Failure(Struct, frozen=True, kw_only=True):
    """All that a reader needs to act on a verdict, without ``-vv`` or another file.

    The head is for pytest's short summary, JUnit and the like, where the test's id stands before
    it: it leaves out the case.
    """

    head: Text
    facts: tuple[Fact, ...]
    runs: tuple[RunsText, ...]


def failure_of(
    result: GateResult,
    explanation: Explanation | None,
    *,
    cluster: str,
    tonight: str,
) -> Failure:
    """Put a verdict into words; ``tonight`` is when the session began, ISO 8601."""
    judgement, gate_input = result.judgement, result.input
    case_id = gate_input.case.measurement.case_id
    head = headline(judgement, explanation, tonight, case_id=case_id)
    reason = judgement.reason or ""
    metric = judgement.metric
    interleaved = result.control.interleaved if result.control else None
    of_runs = metric.ratio_of or metric.name
    runs = []
    for measured in (end.measurement for end in gate_input.ends):
        runs.append(_runs(measured, measured.case_id, of_runs, told=reason))
        if interleaved is not None and interleaved.candidate.case_id == measured.case_id:
            runs += [
                _runs(arm, name, of_runs, told="") for name, arm in interleaved_arms(interleaved)
            ]
    return Failure(
        head=head,
        facts=(
            *reason_facts(judgement, head, case_id=case_id),
            *why_facts(judgement, explanation, tonight),
            *_comparison(result, cluster, tonight),
            *_scaling(judgement, gate_input),
            *(Fact.of(metric.ratio_of or "", end) for end in judgement.ends),
            *_beside(metric, gate_input.case),
            *(Fact.of("note", note) for note in judgement.notes),
            *_way_out(judgement),
            *_gone(result),
        ),
        runs=tuple(runs),
    )


def headline(
    judgement: Judgement, explanation: Explanation | None, tonight: str, *, case_id: str
) -> Text:
    """Say verdict, difference, age and metric in a line, and what comes next to a cause."""
    subject = words.subject(judgement, explanation, tonight)
    said = phrase("{}: {}", subject, judgement.metric.name)
    if judgement.reason and not words.moved(judgement):
        reason = _in_head(judgement.reason, case_id)
        if len(reason) > _LONGEST_REASON:
            # A remedy follows the fault.
            reason = texts.cut(reason.partition("; ")[0], _LONGEST_REASON)
        return phrase("{}; {}", said, reason)
    suspect = explanation.differences[0] if explanation and explanation.differences else None
    if suspect is None or not suspect.came_with_it:
        return said
    told = words.told_difference(suspect)
    # Tonight's commit may be a later one than that which it came with.
    is_commit = suspect.kind is DifferenceKind.COMMIT
    tonight_is = phrase("{} {}", code(told.name), code(told.values["tonight"]))
    what = phrase("{}", code(words.news(suspect))) if is_commit else tonight_is
    return phrase("{}; {} {}", said, what, word(words.came_with(judgement)))


def reason_facts(judgement: Judgement, head: Text, *, case_id: str) -> Iterator[Fact]:
    """Say what the first line has left out of the reason."""
    reason = judgement.reason or ""
    said, _, rest = _in_head(reason, case_id).partition("; ")
    # A reason of several lines ends with those of a log.
    if "\n" not in reason and _in_head(reason, case_id) in str(head):
        return
    is_begun = "\n" not in reason and str(head).endswith(f"; {said}")
    yield Fact.of("more", rest) if is_begun else Fact.of("reason", reason)


def _in_head(reason: str, case_id: str) -> str:
    """Write a reason in one line, without the case, which the test's id names."""
    return texts.in_short(reason).removeprefix(case_id).lstrip(", :")


def why_facts(
    judgement: Judgement, explanation: Explanation | None, tonight: str
) -> Iterator[Fact]:
    """Say since when it is so, what probes on its hosts say, and what differs."""
    since = words.since_line(explanation, tonight)
    labels = ("last good", "noted")
    label = next((label for label in labels if since.startswith(f"{label} ")), "since")
    if since:
        yield Fact.of(label, since.removeprefix(f"{label} "))
    if probed := words.probed_line(explanation):
        yield Fact.of("probes", probed)
    for at, (name, text) in enumerate(words.found_pairs(explanation)):
        yield Fact.of("", f"{name}: {text}") if at else Fact.of(name, text)
    differences = difference_texts(explanation.differences if explanation else (), judgement)
    for at, line in enumerate(first_differences(differences, DIFFERENCES_SHOWN)):
        yield Fact.of("" if at else "differs", line)


def _comparison(result: GateResult, cluster: str, tonight: str) -> Iterator[Fact]:
    judgement, measurement = result.judgement, result.input.case.measurement
    metric = judgement.metric
    if judgement.measured is not None:
        better = f"; {metric.better.value} is better" if metric.better else ""
        measured = numbers.quantity(judgement.measured, metric.unit)
        yield Fact.of("measured", f"{measured} ({measurement.estimator.value}{better})")
    if judgement.accepted is not None:
        yield from _judged(result, cluster, tonight)
    elif judgement.verdict is Verdict.NO_BASELINE and judgement.reason is None:
        yield Fact.of(
            "baseline",
            f"cluster {cluster} has none of this metric of this case; "
            "--dlperf-create-baselines records what is measured and passes",
        )


def _judged(result: GateResult, cluster: str, tonight: str) -> Iterator[Fact]:
    """Say what was compared with what, who accepted that, and how small a change is found."""
    judgement = result.judgement
    accepted, decision = judgement.accepted, judgement.decision
    if accepted is None or decision is None or judgement.measured is None:
        yield from _accepted(result, tonight)
        return
    unit, allowed, reference = (
        judgement.metric.unit,
        decision.tolerance_percent,
        decision.reference,
    )
    tolerance = f", tolerance {allowed:.3g} %"
    view = rule_view(judgement)
    of = "" if reference == accepted else ", of the last sessions"
    held = f"{numbers.quantity(reference, unit)} of cluster {cluster}{of}"
    far = _how_far(judgement, reference)
    yield Fact.of("reference", f"{held}: {far}{'' if view else tolerance}")
    yield from _accepted(result, tonight)
    if view is not None:
        is_decided = judgement.verdict is not Verdict.INCONCLUSIVE
        limit = f"; a loss of up to {numbers.percent(allowed)} passes" if is_decided else ""
        yield Fact.of("compared", f"{view}{limit}")
    yield Fact.of(*_of_gate(decision))


def _of_gate(decision: Decision) -> tuple[str, str]:
    """Return the rule that decided, and the minimum detectable change."""
    return "gate", f"{decision.rule.value}: {_sees(decision)}"


def _sees(decision: Decision) -> str:
    """Say the minimum detectable change."""
    visible = decision.min_detectable_percent
    if visible is None:
        return "what it sees cannot be said from so few runs"
    if visible >= 100:  # noqa: PLR2004 - percent
        return "sees no loss at all: the runs differ too much"
    return f"sees a loss of {numbers.percent(visible)} or more, 9 times out of 10"


def _accepted(result: GateResult, tonight: str) -> Iterator[Fact]:
    """Say the accepted number where tonight was held against another, and who accepted it."""
    judgement, baseline = result.judgement, result.input.baseline
    accepted = judgement.accepted
    by = words.accepted_by(baseline.acceptance if baseline else None, tonight)
    decision, number = judgement.decision, ""
    if accepted is not None and decision is not None and decision.reference != accepted:
        far = "" if judgement.measured is None else f": {_how_far(judgement, accepted)}"
        number = f"{numbers.quantity(accepted, judgement.metric.unit)}{far}"
    if number or by:
        yield Fact.of("accepted", "; ".join(filter(None, (number, by))))


def _scaling(judgement: Judgement, gate_input: GateInput) -> Iterator[Fact]:
    """Say how much of the ideal a ratio is, and over which topology."""
    if gate_input.reference is None or judgement.measured is None:
        return
    case, over = (Case.from_id(end.measurement.case_id) for end in gate_input.ends)
    ideal = case.topology.ideal_speedup(over.topology)
    efficiency = numbers.percent(100 * judgement.measured / ideal)
    yield Fact.of(
        "scaling",
        f"{efficiency} of the ideal {ideal:g} over {over.topology}, {case.scaling.value} scaling",
    )


def _how_far(judgement: Judgement, held: float) -> str:
    """Say how far the measured number lies from another, and which way that is."""
    if judgement.measured is None or not held:
        return numbers.ABSENT
    percent = difference_percent(judgement.measured, held)
    told, better = numbers.signed_percent(percent), judgement.metric.better
    if told == "+0.0 %" or better is None:
        return told
    word = "better" if percent * better.sign > 0 else "worse"
    return f"{word} by {numbers.percent(abs(percent))}"


def _way_out(judgement: Judgement) -> Iterator[Fact]:
    is_worse = (judgement.loss_percent or 0.0) > 0
    if is_worse and judgement.verdict in (Verdict.REGRESSED, Verdict.ENVIRONMENT_SHIFT):
        yield Fact.of("accept", phrase("if this is how it is from now on: {}", code(ACCEPT)))


def _gone(result: GateResult) -> Iterator[Fact]:
    """Say where an accepted name stands that no run has any more."""
    metric, measurement = result.judgement.metric, result.input.case.measurement
    baseline = result.input.baseline
    if metric.family is None or baseline is None:
        return
    has_others = any(run.metrics for run in measurement.runs)
    if has_others and not measurement.samples(metric.name).values:
        text = "if it is gone for good, delete its number: {}"
        yield Fact.of("delete", phrase(text, code(baseline.place)))


def _beside(judged: Metric, case: MeasuredCase) -> Iterator[Fact]:
    """Say how far the case's other metrics moved: what moves together often has one cause."""
    told = []
    for metric in case.measurement.metrics:
        name, there = metric.name, case.baselines.get(metric.name)
        # A family would be a page; the names that fail stand in the note.
        if (
            metric.family
            or there is None
            or name in (judged.name, judged.ratio_of)
            or not there.accepted
        ):
            continue
        median = case.measurement.samples(name).median
        if median is not None and there.why_incomparable(metric, case.measurement) is None:
            moved = numbers.signed_percent(difference_percent(median, there.accepted))
            told.append(f"{name} {numbers.quantity(median, metric.unit)} ({moved})")
    if told:
        yield Fact.of("beside", ", ".join(told))


def _runs(measurement: Measurement, name: str, metric: str, *, told: str) -> RunsText:
    """List a metric of the runs; a reason that stands above is not repeated."""
    found = runs_text(name, measurement, [metric], most=RUNS_LISTED)
    runs = (replace(run, reason="") if run.reason in told else run for run in found.runs)
    return replace(found, runs=tuple(runs))


# ------------------------------------------------------------------ of a metric on the page


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
    since = words.since_line(known.explanation, tonight)
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
    held, decision = known.accepted, judgement.decision
    is_other = judgement.accepted not in (None, decision.reference if decision else None)
    who = words.accepted_by(held.acceptance, tonight) if held is not None else ""
    if held is not None and (is_other or who):
        told = numbers.quantity(held.accepted, unit)
        yield "accepted", f"{told}, {who}" if who else told
    yield from _of_rule(judgement)


def _of_rule(judgement: Judgement) -> Iterator[tuple[str, str]]:
    view, decision = rule_view(judgement), judgement.decision
    if decision is None:
        return
    if view is not None:
        yield "compared", view
    elif decision.interval_percent is not None:
        yield "95 % interval", numbers.interval(decision.interval_percent)
    yield "a loss that passes", f"up to {numbers.percent(decision.tolerance_percent)}"
    yield _of_gate(decision)
