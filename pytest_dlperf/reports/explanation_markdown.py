"""Explanations as Markdown: titles, what differs as lines and as tables, since when, who."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_dlperf.model import numbers
from pytest_dlperf.night import explanation_words as words
from pytest_dlperf.night.case_status import of_judgement
from pytest_dlperf.reports.markdown_text import code, inline, table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_dlperf.model.judgement import Difference, Explanation, Judgement
    from pytest_dlperf.model.results import CaseResult, MetricResult
    from pytest_dlperf.night.groups import Group

DIFFERENCES_IN_TABLE: Final = 20
_HEADINGS: Final = ("what differs", "accepted", "last good", "tonight", "")


def titled(group: Group) -> str:
    """Write a group's subject, its cases and the metric, on one line."""
    named = words.case_named(inline(group.metric) if group.metric else "", group.names(code))
    return f"**{inline(group.subject)}**: {named}"


def differences(group: Group, *, most: int) -> Iterator[str]:
    """Yield a line for each of the first suspects; the last counts the others."""
    if group.judgement is None:
        return
    found = group.suspects
    for one in found[:most]:
        told = words.told_difference(one)
        sides = ", ".join(f"{side} {_value(value)}" for side, value in told.sides)
        came = f", **{words.came_with(group.judgement)}**" if told.came_with_it else ""
        yield f"{code(told.name)}: {sides}{came}"
    if len(found) > most:
        yield f"and {numbers.counted(len(found) - most, 'more difference')}"


def commits(explanation: Explanation | None) -> Iterator[str]:
    """Yield a line for each commit that came with the change, with a link where there is one."""
    for one in words.told_commits(explanation):
        link = f" ([{'compare' if one.is_range else 'open'}]({one.address}))" if one.address else ""
        yield f"{inline(one.line)}{link}"


def since_lines(result: CaseResult, tonight: str) -> Iterator[str]:
    """Yield since when each metric is as it is, once where it is the same for all."""

    def said(known: MetricResult) -> str:
        return inline(words.since_line(known.explanation, tonight))

    yield from _by_metric(result, said)


def accepted_lines(result: CaseResult, tonight: str) -> Iterator[str]:
    """Yield who accepted the numbers that those not good were held against."""

    def said(known: MetricResult) -> str:
        by = words.accepted_by(known.accepted.acceptance if known.accepted else None, tonight)
        return inline(f"reference accepted {by}") if by else ""

    yield from _by_metric(result, said)


def difference_tables(result: CaseResult) -> Iterator[str]:
    """Yield a table of what differs; more than one where metrics differ in that."""
    tables: dict[tuple[Difference, ...], list[MetricResult]] = {}
    for known in _not_good(result):
        found = known.explanation.differences if known.explanation else ()
        if found:
            tables.setdefault(found, []).append(known)
    for found, metrics in tables.items():
        if len(tables) > 1:
            yield f"{_names(metrics)}:"
        judgement = metrics[0].judgement
        if judgement is not None:
            yield _table(found, judgement)
        if len(found) > DIFFERENCES_IN_TABLE:
            yield f"… and {len(found) - DIFFERENCES_IN_TABLE} more"


def _table(found: tuple[Difference, ...], judgement: Judgement) -> str:
    rows = []
    for one in found[:DIFFERENCES_IN_TABLE]:
        told = words.told_difference(one)
        came = words.came_with(judgement) if told.came_with_it else ""
        sides = (told.accepted, told.last_good, told.tonight)
        rows.append((code(told.name), *map(_value, sides), came))
    return table(_HEADINGS, rows)


def _value(side: str) -> str:
    return side if side in (words.UNKNOWN, words.NOT_SET) else code(side)


def _by_metric(result: CaseResult, write: Callable[[MetricResult], str]) -> Iterator[str]:
    lines: dict[str, list[MetricResult]] = {}
    metrics = _not_good(result)
    for known in metrics:
        lines.setdefault(write(known), []).append(known)
    for line, members in lines.items():
        if line:
            yield line if len(lines) == 1 else f"{_names(members)}: {line}"


def _names(metrics: list[MetricResult]) -> str:
    return ", ".join(inline(known.metric.name) for known in metrics)


def _not_good(result: CaseResult) -> list[MetricResult]:
    return [
        known
        for known in result.metrics().values()
        if known.judgement is not None and not of_judgement(known.judgement).is_good
    ]
