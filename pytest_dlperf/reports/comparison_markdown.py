"""A comparison of two results as GitHub-flavoured Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_dlperf.reports import comparison_words as words
from pytest_dlperf.reports import numbers
from pytest_dlperf.reports.markdown_text import code, details, inline, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_dlperf.results.comparing import ComparedCase, Comparison


def comparison_markdown(comparison: Comparison) -> str:
    """The page."""
    return "\n\n".join(_parts(comparison)) + "\n"


def _parts(comparison: Comparison) -> Iterator[str]:
    sides = (("A", comparison.first), ("B", comparison.second))
    yield "# dlperf: B compared with A"
    yield f"**{words.found(comparison)}.**"
    mean = words.mean(comparison)
    if mean is not None:
        yield f"{mean}."
    yield table(
        ("", "cluster", "started", "estimator", "session"),
        [
            (
                name,
                inline(side.cluster),
                inline(words.started(side)),
                side.estimator.value,
                code(side.session),
            )
            for name, side in sides
        ],
    )
    yield "## Cases"
    yield table(
        ("case", "unit", "runs", "A", "B", "B/A", "95 % interval", "speedup B/A", ""),
        [_row(case) for case in comparison.cases],
        right="  rrrrrr",
    )
    yield from words.remarks(comparison)
    if comparison.contrasts:
        yield "## What else differs"
        yield table(
            ("", "A", "B"),
            [
                (inline(fact.name), _known(fact.first), _known(fact.second))
                for fact in comparison.contrasts
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


def _row(case: ComparedCase) -> tuple[str, ...]:
    return (
        code(case.case_id),
        inline(case.unit),
        *words.cells(case),
        case.difference.value,
    )


def _known(value: str | None) -> str:
    return numbers.ABSENT if value is None else inline(value)


def _listed(what: str, case_ids: Sequence[str]) -> str:
    summary = f"{words.counted_cases(len(case_ids))} {inline(what)}"
    return details(summary, "\n".join(f"- {code(case_id)}" for case_id in case_ids))
