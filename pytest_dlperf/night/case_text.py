"""One case in words: what was measured of each metric, since when, what differs, who accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_dlperf.model import numbers
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.metric import Better
from pytest_dlperf.night import explanation_words as words
from pytest_dlperf.night import texts
from pytest_dlperf.night.case_status import of_judgement, status_of, word_of
from pytest_dlperf.night.figures import difference_percent, rule_view
from pytest_dlperf.night.night import commit_texts, difference_text
from pytest_dlperf.night.pieces import Text, case, code, join, phrase, word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_dlperf.model.judgement import Difference, Judgement
    from pytest_dlperf.model.results import CaseResult, MetricResult
    from pytest_dlperf.night.case_status import CaseStatus

DIFFERENCE_HEADINGS: Final = ("what differs", "accepted", "last good", "tonight", "")


class DifferenceTable(Struct, frozen=True, kw_only=True):
    """What differs, alike for some metrics: a row of cells each, below ``DIFFERENCE_HEADINGS``."""

    metrics: Text
    """Whose it is; nothing where all share it."""
    rows: tuple[tuple[Text, ...], ...]
    lines: tuple[Text, ...]
    """The same in a line each."""


class CaseText(Struct, frozen=True, kw_only=True):
    """A case that is not good, in words."""

    status: CaseStatus
    title: Text
    """For instance ``regressed -9.9 % since Tuesday: <case>``."""
    measured: tuple[Text, ...]
    """A line for each metric that is not good: its verdict, its numbers and its reason."""
    since: tuple[Text, ...]
    """Since when; by metric where that differs."""
    remarks: tuple[Text, ...]
    """Reasons, how the rules see it, and what is worth knowing."""
    accepted: tuple[Text, ...]
    """Who accepted the numbers that it was held against."""
    differences: tuple[DifferenceTable, ...]
    commits: tuple[Text, ...]


def case_text(result: CaseResult, tonight: str) -> CaseText:
    """Put a case into words; ``tonight`` is when the session began, ISO 8601."""
    said, metric = words.case_subject(result, tonight)
    about = phrase("{} of {}" if metric else "{}{}", metric, case(result.case.id))
    not_good = [known for known in result.metrics().values() if _is_not_good(known)]
    commits = [line for known in not_good for line in commit_texts(known.explanation)]
    return CaseText(
        status=status_of(result),
        title=phrase("{}: {}", word(said), about),
        measured=tuple(_measured(not_good, is_whole=result.is_whole)),
        since=tuple(
            _by_metric(not_good, lambda known: words.since_line(known.explanation, tonight))
        ),
        remarks=tuple(dict.fromkeys(_remarks(result))),
        accepted=tuple(_by_metric(not_good, lambda known: _accepted(known, tonight))),
        differences=tuple(_tables(not_good)),
        commits=tuple(dict.fromkeys(commits)),
    )


def _is_not_good(known: MetricResult) -> bool:
    return known.judgement is not None and not of_judgement(known.judgement).is_good


def _by_metric(metrics: list[MetricResult], write: Callable[[MetricResult], str]) -> Iterator[Text]:
    """Yield what is written of each metric, once where it is the same for all."""
    lines: dict[str, list[MetricResult]] = {}
    for known in metrics:
        lines.setdefault(write(known), []).append(known)
    for line, members in lines.items():
        if line:
            yield phrase("{}", line) if len(lines) == 1 else phrase("{}: {}", _names(members), line)


def _names(metrics: list[MetricResult]) -> Text:
    return join(", ", (known.metric.name for known in metrics))


def _accepted(known: MetricResult, tonight: str) -> str:
    by = words.accepted_by(known.accepted.acceptance if known.accepted else None, tonight)
    return f"reference accepted {by}" if by else ""


def _tables(metrics: list[MetricResult]) -> Iterator[DifferenceTable]:
    tables: dict[tuple[Difference, ...], list[MetricResult]] = {}
    for known in metrics:
        if known.explanation is not None and known.explanation.differences:
            tables.setdefault(known.explanation.differences, []).append(known)
    for found, members in tables.items():
        judgement = members[0].judgement
        if judgement is not None:
            yield DifferenceTable(
                metrics=_names(members) if len(tables) > 1 else Text(),
                rows=tuple(_row(one, judgement) for one in found),
                lines=tuple(difference_text(one, judgement) for one in found),
            )


def _row(difference: Difference, judgement: Judgement) -> tuple[Text, ...]:
    told = words.told_difference(difference)
    own = (words.UNKNOWN, words.NOT_SET)
    sides = (told.accepted, told.last_good, told.tonight)
    return (
        phrase("{}", code(told.name)),
        *(phrase("{}", word(side) if side in own else code(side)) for side in sides),
        phrase("{}", word(words.came_with(judgement) if told.came_with_it else "")),
    )


def _measured(metrics: list[MetricResult], *, is_whole: bool) -> Iterator[Text]:
    for known in metrics:
        judgement = known.judgement
        if judgement is None:
            continue
        reason = texts.in_short(judgement.reason) if judgement.reason else ""
        yield join("; ", [_numbers(judgement, known), reason])
    if not is_whole:
        yield phrase("a test of the case was lost with its worker")


def _numbers(judgement: Judgement, known: MetricResult) -> Text:
    metric, measured, held = judgement.metric, judgement.measured, judgement.reference
    said = phrase("{} {}", metric.name, word(word_of(judgement)))
    if measured is None:
        return said
    parts = [phrase("{}: {}", said, numbers.quantity(measured, metric.unit))]
    if held is not None:
        difference = numbers.signed_percent(difference_percent(judgement))
        reference = numbers.number(held, metric.unit)
        parts = [phrase("{}, reference {} ({})", *parts, word(reference), word(difference))]
        parts += [phrase("lower is better")] * (metric.better is Better.LOWER)
    if known.efficiency_percent is not None:
        parts.append(phrase("{} of the ideal", word(numbers.percent(known.efficiency_percent))))
    return join("; ", [*parts, word(rule_view(judgement) or "")])


def _remarks(result: CaseResult) -> Iterator[Text]:
    judgements = [known.judgement for known in result.metrics().values() if known.judgement]
    for judgement in judgements:
        # A log's last lines stand with its run.
        if judgement.reason:
            reason = first_line(judgement.reason).removeprefix(f"{result.case.id}, ")
            yield phrase("{}", reason)
        elif judgement.verdict is Verdict.NO_BASELINE:
            yield phrase(
                "no number is accepted; {} records what is measured",
                code("--dlperf-create-baselines"),
            )
    for judgement in judgements:
        name, compared = judgement.metric.name, [rule_view(judgement) or ""]
        allowed = judgement.tolerance_percent
        if allowed is not None and judgement.verdict is Verdict.REGRESSED:
            compared.append(f"a loss of up to {numbers.percent(allowed)} passes")
        if any(compared):
            yield phrase("{}: {}", name, join("; ", map(word, compared)))
        if not of_judgement(judgement).is_good:
            over = judgement.metric.ratio_of or ""
            yield from (phrase("{} {}", over, end) for end in judgement.ends)
            yield from (phrase("note: {}", note) for note in judgement.notes)


def first_line(reason: str) -> str:
    """Cut a reason to its first line, without what announces the lines below it."""
    head, has_tail, _ = reason.partition("\n")
    return head.rpartition("; the log of node")[0] or head if has_tail else head
