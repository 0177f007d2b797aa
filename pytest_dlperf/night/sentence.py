"""A session in a sentence: how many cases got slower, how many of them tonight, and the worst."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_dlperf.model import numbers
from pytest_dlperf.model.metric import Source
from pytest_dlperf.night import explanation_words as words
from pytest_dlperf.night.case_status import (
    NOTHING_MEASURED,
    CaseStatus,
    decisive_metric,
    is_measured,
    recovered_from,
    status_of,
    worst_first,
)
from pytest_dlperf.night.figures import difference_percent, lost
from pytest_dlperf.night.pieces import Text, join, number, phrase, word

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_dlperf.model.metric import Metric
    from pytest_dlperf.model.results import CaseResult, MetricResult, Results

_ONE_AND_MORE: Final = {
    CaseStatus.FAILED: ("failed", "failed"),
    CaseStatus.HUNG: ("hung", "hung"),
    CaseStatus.INVALID: ("has no valid number", "have no valid number"),
    CaseStatus.INCONCLUSIVE: ("is undecided", "are undecided"),
    CaseStatus.NO_BASELINE: ("has no baseline", "have no baseline"),
    CaseStatus.LOST: ("was lost with its worker", "were lost with their workers"),
    CaseStatus.NOT_STARTED: (
        "was not started, for a probe that it needs",
        "were not started, for probes that they need",
    ),
    CaseStatus.ENVIRONMENT_SHIFT: (
        "is worse, and so is the accepted software",
        "are worse, and so is the accepted software",
    ),
    CaseStatus.NOT_JUDGED: ("was not judged", "were not judged"),
    CaseStatus.NOT_MEASURED: ("was not measured", "were not measured"),
    CaseStatus.SKIPPED: ("was skipped", "were skipped"),
    CaseStatus.EXPECTED: ("failed as expected", "failed as expected"),
    CaseStatus.ACCEPTED: ("has a newly accepted number", "have newly accepted numbers"),
    CaseStatus.RECORDED: ("has its first baseline", "have their first baseline"),
    CaseStatus.PASS: ("passes", "pass"),
}
"""What is said of one case, and of more than one."""

_NUMBERLESS: Final = (CaseStatus.FAILED, CaseStatus.HUNG, CaseStatus.INVALID, CaseStatus.LOST)
"""Statuses of cases that gave no number: more than one are summed up, behind all others."""
_ORDER: Final = (
    CaseStatus.PASS,
    CaseStatus.RECORDED,
    CaseStatus.ACCEPTED,
    CaseStatus.REGRESSED,
    CaseStatus.INCONCLUSIVE,
    CaseStatus.NO_BASELINE,
    CaseStatus.NOT_STARTED,
    CaseStatus.ENVIRONMENT_SHIFT,
    CaseStatus.NOT_JUDGED,
    CaseStatus.NOT_MEASURED,
    CaseStatus.SKIPPED,
    CaseStatus.EXPECTED,
    CaseStatus.IMPROVED,
)


def sentence_of(results: Results) -> Text:
    """Say what a session has come to.

    For instance ``6 of 115 cases got slower, 3 of them tonight; worst -6.4 %``. Of a red session
    only what makes it red is counted.
    """
    by_status: dict[CaseStatus, list[CaseResult]] = {}
    for result in worst_first(results.cases):
        by_status.setdefault(status_of(result), []).append(result)
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
    nothing = not any(map(is_measured, results.cases))
    limits = ["interrupted"] * results.interrupted + [NOTHING_MEASURED] * nothing
    return join(": ", [word(", ".join(limits)), join("; ", parts)])


def _of_all(count: int, total: int) -> Text:
    if count < total:
        return phrase("{} of {} cases", count, total)
    few = {1: "the only case", 2: "both cases"}
    return phrase("{}", word(few[total])) if total in few else phrase("all {} cases", total)


def _verb(status: CaseStatus, members: Sequence[CaseResult], tonight: str) -> Text:
    if status in (CaseStatus.REGRESSED, CaseStatus.IMPROVED):
        return _moved(status, members, tonight)
    one, more = _ONE_AND_MORE[status]
    said = word(one if len(members) == 1 else more)
    if status in _NUMBERLESS:
        return phrase("{}{}", said, _age(filter(None, map(decisive_metric, members)), tonight))
    again = sum(recovered_from(result) is not None for result in members)
    if not again:
        return phrase("{}", said)
    if again == len(members):
        return phrase("{} again", said)
    return phrase("{}, {} of them again", said, again)


def _moved(status: CaseStatus, members: Sequence[CaseResult], tonight: str) -> Text:
    known = [one for one in map(decisive_metric, members) if one is not None]
    is_time = all(_is_speed(one.metric) for one in known)
    is_loss = status is CaseStatus.REGRESSED
    better, worse = ("faster", "slower") if is_time else ("better", "worse")
    said = phrase("got {}{}", word(worse if is_loss else better), _age(known, tonight))
    holding = sum(words.is_known(one.explanation, tonight) for one in known)
    if holding:
        said = phrase("{}, {} of them known", said, holding)
    sizes = [one.judgement for one in known if lost(one.judgement) is not None]
    if not sizes:
        return said
    extreme = max(sizes, key=lambda judgement: abs(lost(judgement) or 0.0))
    percent = number(numbers.signed_percent(difference_percent(extreme)))
    if len(members) == 1:
        return phrase("{}, {}", said, percent)
    return phrase("{}; {} {}", said, word("worst" if is_loss else "most"), percent)


def _age(members: Iterable[MetricResult], tonight: str) -> Text:
    """Say since when, or how many of them began tonight."""
    known = list(members)
    ages = [words.since_words(one.explanation, tonight) for one in known]
    if len(set(ages)) == 1 and ages[0]:
        return phrase(" {}", ages[0])  # a file may say a day that is none
    fresh = sum(words.is_new(one.explanation, tonight) for one in known)
    return phrase(", {} of them tonight", fresh) if fresh else phrase("")


def _is_speed(metric: Metric) -> bool:
    return metric.source in (Source.STEPS, Source.RATIO)
