"""A session in a sentence, and the facts of it: when and how it measured, and on what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from pytest_dlperf.model import numbers
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.metric import Metric, Source
from pytest_dlperf.model.results import CaseResult, MetricResult, Results
from pytest_dlperf.report import words
from pytest_dlperf.report.columns import difference_percent, lost
from pytest_dlperf.report.status import (
    NOTHING_MEASURED,
    decisive_metric,
    recovered_from,
    worst_first,
)
from pytest_dlperf.report.text import Text, join, number, phrase, word

_ONE_AND_MORE: Final = {
    Verdict.FAILED: ("failed", "failed"),
    Verdict.HUNG: ("hung", "hung"),
    Verdict.INVALID: ("has no valid number", "have no valid number"),
    Verdict.INCONCLUSIVE: ("is undecided", "are undecided"),
    Verdict.NO_BASELINE: ("has no baseline", "have no baseline"),
    Verdict.LOST: ("was lost with its worker", "were lost with their workers"),
    Verdict.NOT_STARTED: (
        "was not started, for a probe that it needs",
        "were not started, for probes that they need",
    ),
    Verdict.ENVIRONMENT_SHIFT: (
        "is worse, and so is the accepted software",
        "are worse, and so is the accepted software",
    ),
    Verdict.NOT_JUDGED: ("was not judged", "were not judged"),
    Verdict.NOT_MEASURED: ("was not measured", "were not measured"),
    Verdict.SKIPPED: ("was skipped", "were skipped"),
    Verdict.EXPECTED: ("failed as expected", "failed as expected"),
    Verdict.ACCEPTED: ("has a newly accepted number", "have newly accepted numbers"),
    Verdict.RECORDED: ("has its first baseline", "have their first baseline"),
    Verdict.PASS: ("passes", "pass"),
}
"""What is said of one case, and of more than one."""

_NUMBERLESS: Final = (Verdict.FAILED, Verdict.HUNG, Verdict.INVALID, Verdict.LOST)
"""Statuses of cases that gave no number: more than one are summed up, behind all others."""
_ORDER: Final = (
    Verdict.PASS,
    Verdict.RECORDED,
    Verdict.ACCEPTED,
    Verdict.REGRESSED,
    Verdict.INCONCLUSIVE,
    Verdict.NO_BASELINE,
    Verdict.NOT_STARTED,
    Verdict.ENVIRONMENT_SHIFT,
    Verdict.NOT_JUDGED,
    Verdict.NOT_MEASURED,
    Verdict.SKIPPED,
    Verdict.EXPECTED,
    Verdict.IMPROVED,
)


def sentence_of(results: Results) -> Text:
    """Say what a session has come to.

    For instance ``6 of 115 cases got slower, 3 of them new; worst -6.4 %``. Of a red session
    only what makes it red is counted.
    """
    by_status: dict[Verdict, list[CaseResult]] = {}
    for result in worst_first(results.cases):
        by_status.setdefault(result.status, []).append(result)
    bad = {s: cases for s, cases in by_status.items() if s.fails(strict=results.strict)}
    parts: list[Text] = []

    def tell(cases: Sequence[CaseResult], verb: Text) -> None:
        count = phrase("{}", len(cases)) if parts else _of_all(len(cases), len(results.cases))
        parts.append(phrase("{} {}", count, verb))

    for status in _ORDER:
        cases = (bad or by_status).get(status, ())
        if cases:
            tell(cases, _verb(status, cases, results.started))
    broken = [status for status in bad if status in _NUMBERLESS]
    cases = [result for status in broken for result in bad[status]]
    if cases:
        words_of_one = _verb(broken[0], cases, results.started)
        tell(cases, words_of_one if len(broken) == 1 else phrase("gave no number"))
    nothing = not any(result.is_measured for result in results.cases)
    limits = ["interrupted"] * results.interrupted + [NOTHING_MEASURED] * nothing
    return join(": ", [word(", ".join(limits)), join("; ", parts)])


def _of_all(count: int, total: int) -> Text:
    if count < total:
        return phrase("{} of {} cases", count, total)
    few = {1: "the only case", 2: "both cases"}
    return phrase("{}", word(few[total])) if total in few else phrase("all {} cases", total)


def _verb(status: Verdict, members: Sequence[CaseResult], now: str) -> Text:
    if status in (Verdict.REGRESSED, Verdict.IMPROVED):
        return _moved(status, members, now)
    one, more = _ONE_AND_MORE[status]
    said = word(one if len(members) == 1 else more)
    if status in _NUMBERLESS:
        return phrase("{}{}", said, _age(filter(None, map(decisive_metric, members)), now))
    again = sum(recovered_from(result) is not None for result in members)
    if not again:
        return phrase("{}", said)
    if again == len(members):
        return phrase("{} again", said)
    return phrase("{}, {} of them again", said, again)


def _moved(status: Verdict, members: Sequence[CaseResult], now: str) -> Text:
    known = [one for one in map(decisive_metric, members) if one is not None]
    is_time = all(_is_speed(one.metric) for one in known)
    is_loss = status is Verdict.REGRESSED
    better, worse = ("faster", "slower") if is_time else ("better", "worse")
    said = phrase("got {}{}", word(worse if is_loss else better), _age(known, now))
    sizes = [one.judgement for one in known if lost(one.judgement) is not None]
    if not sizes:
        return said
    extreme = max(sizes, key=lambda judgement: abs(lost(judgement) or 0.0))
    percent = number(numbers.signed_percent(difference_percent(extreme)))
    if len(members) == 1:
        return phrase("{}, {}", said, percent)
    return phrase("{}; {} {}", said, word("worst" if is_loss else "most"), percent)


def _age(members: Iterable[MetricResult], now: str) -> Text:
    """Say since when, or how many of them are new."""
    known = list(members)
    ages = [words.since_words(one.explanation, now) for one in known]
    if len(set(ages)) == 1 and ages[0]:
        return phrase(" {}", ages[0])  # a file may say a day that is none
    fresh = sum(words.is_new(one.explanation, now) for one in known)
    return phrase(", {} of them new", fresh) if fresh else phrase("")


def _is_speed(metric: Metric) -> bool:
    return metric.source in (Source.STEPS, Source.RATIO)


# ---------------------------------------------------------------- when, how and on what


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
    told = numbers.percent_range(min(seen), max(seen))
    return f"{told}, {unseen}" if unseen else told


def environment_facts(environment: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Name what the session ran on, and say it in text, whatever the results file holds."""
    for name, value in environment.items():
        if isinstance(value, Mapping):
            yield (
                name,
                ", ".join(f"{key} {_text(item)}" for key, item in value.items()) or numbers.ABSENT,
            )
        else:
            yield name, _text(value)


def _text(value: Any) -> str:
    if value is None:
        return numbers.ABSENT
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_text, value)) or numbers.ABSENT
    return str(value)
