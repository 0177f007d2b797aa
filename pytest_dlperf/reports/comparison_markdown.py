"""A comparison of two results as GitHub-flavoured Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_dlperf.reports import comparison as words
from pytest_dlperf.reports import numbers
from pytest_dlperf.reports.comparison_names import known_facts, title
from pytest_dlperf.reports.markdown_text import code, details, inline, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_dlperf.reports.comparison_names import Names
    from pytest_dlperf.results.comparison import ComparedCase, Comparison


NAMED: Final = 10
"""Slower cases that are named above the table, which has all of them."""


def comparison_markdown(comparison: Comparison, names: Names) -> str:
    """The page."""
    return "\n\n".join(_parts(comparison, names)) + "\n"


def _parts(comparison: Comparison, names: Names) -> Iterator[str]:
    headings = [inline(name.heading) for name in names]
    yield f"# dlperf: {inline(title(names))}"
    yield f"**{words.found(comparison)}.**"
    mean = words.mean(comparison)
    if mean is not None:
        yield f"{mean}."
    yield table(
        ("", *headings),
        [(name, *map(_shown, sides)) for name, *sides in known_facts(comparison, names)],
    )
    yield from _slower(comparison)
    yield "## Cases"
    yield table(
        ("case", "unit", "runs", *headings, "B/A", "95 % interval", "speedup B/A", ""),
        [_row(case) for case in comparison.cases],
        right="  rrrrrr",
    )
    yield from words.remarks(comparison)
    if comparison.differences:
        yield "## What else differs"
        yield table(
            ("", *headings),
            [
                (inline(fact.name), *map(_shown, map(words.known, (fact.first, fact.second))))
                for fact in comparison.differences
            ],
        )
    for (first, second), case_ids in words.groups(comparison.left_out).items():
        yield _listed(f"not compared: A {first}, B {second}", case_ids)
    for what, only in (
        ("only in A", comparison.only_first),
        ("only in B", comparison.only_second),
    ):
        if only:
            yield _listed(what, only)


def _slower(comparison: Comparison) -> Iterator[str]:
    cases = comparison.slower_cases
    if cases:
        yield "Slower, the slowest first:"
        more = [f"- and {len(cases) - NAMED} more"] if len(cases) > NAMED else []
        yield "\n".join(
            [*(f"- {code(case.case_id)} {words.slower(case)}" for case in cases[:NAMED]), *more]
        )


def _row(case: ComparedCase) -> tuple[str, ...]:
    return (
        code(case.case_id),
        inline(case.unit),
        *words.cells(case),
        case.difference.value,
    )


def _shown(fact: str) -> str:
    return fact if fact == numbers.ABSENT else inline(fact)


def _listed(what: str, case_ids: Sequence[str]) -> str:
    summary = f"{words.counted_cases(len(case_ids))} {inline(what)}"
    return details(summary, "\n".join(f"- {code(case_id)}" for case_id in case_ids))
