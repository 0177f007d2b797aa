"""The page of a session: its head, its cases, how trainings scale, what it ran on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.metric import MEMBER
from pytest_dlperf.model.results import Origin, Results
from pytest_dlperf.report import printing, words
from pytest_dlperf.report.html.case import CaseView, case_view, log_tails
from pytest_dlperf.report.html.charts import scaling_charts
from pytest_dlperf.report.html.drawing import badge_of
from pytest_dlperf.report.html.render import render
from pytest_dlperf.report.overview import environment_facts, session_facts
from pytest_dlperf.report.session import SessionReport
from pytest_dlperf.report.status import counts, worst_first
from pytest_dlperf.report.tables import CHANGE_HEADINGS, change_row
from pytest_dlperf.report.text import Piece, Text, phrase

MAX_POINTS: Final = 50_000
"""Points of all histories of a page: 12 bytes each. Of more, the last ones are drawn."""
TAILED: Final = 100
"""Cases that show how their logs end, the worst."""
_HEAD_FACTS: Final = ("cluster", "started", "took")
"""Facts of the session that stand in the head; the others stand at the foot."""


def html_page(session: SessionReport) -> str:
    """Write the whole page."""
    results, histories = session.told, session.past.histories
    drawn = sum(MEMBER not in name for of_case in histories.values() for name in of_case)
    cases = [
        case_view(
            result,
            number=number,
            histories=histories.get(result.case.id, {}),
            max_points=MAX_POINTS // max(drawn, 1),
            tails=tuple(log_tails(result)) if session.may_read_logs and number <= TAILED else (),
            session=results,
        )
        for number, result in enumerate(worst_first(results.cases), 1)
    ]
    sentence, facts = str(session.sentence), session_facts(results)
    found, known = counts(results.cases), results.environment.items()
    return render(
        results=results,
        sentence=sentence[:1].upper() + sentence[1:],
        headline_style=_style(results),
        session=session,
        facts=list(_head_facts(session, facts)),
        foot=[fact for fact in facts if fact[0] not in _HEAD_FACTS],
        environment=list(environment_facts({n: v for n, v in known if n not in Origin._fields})),
        counts=[
            (badge_of(status, strict=results.strict), count, _first_with(status, cases))
            for status, count in found.items()
        ],
        cases=cases,
        opened=_first_open(cases),
        columns=_columns(cases),
        scaling=list(scaling_charts(results.cases)),
        has_history=bool(histories),
        changes=list(map(change_row, results.baseline_changes)),
        change_headings=CHANGE_HEADINGS,
    )


def _first_with(status: Verdict, cases: Iterable[CaseView]) -> str:
    return next(case.result.case.id for case in cases if case.result.status is status)


def _head_facts(
    session: SessionReport, facts: Iterable[tuple[str, str]]
) -> Iterator[tuple[str, Text]]:
    for name, value in facts:
        if name == "started":
            day, _, date = session.began.partition(" ")
            yield name, phrase("{}", f"{day} {value}" if date == value[:10] else value)
        elif name in _HEAD_FACTS:
            yield name, phrase("{}", value)
    commit, page, run = session.results.origin
    if commit:
        link = Piece(words.short_commit(commit), address=printing.address(page))
        yield "commit", phrase("{}", link)
    if run:
        address = printing.address(run)
        yield "CI", phrase("{}", Piece("run" if address else run, address=address))


def _first_open(cases: Sequence[CaseView]) -> CaseView | None:
    bad = [case for case in cases if case.badge.is_bad and case.shown is not None]
    lost = [case for case in bad if case.result.status is Verdict.REGRESSED]
    return next(iter([*lost, *bad]), None)


def _columns(cases: Iterable[CaseView]) -> dict[str, str]:
    """Name the judged metrics of all cases, each with its unit where all have the same.

    A metric that some cases lack stands behind the one that it follows in the others.
    """
    units: dict[str, set[str]] = {}
    names: list[str] = []
    for case in cases:
        place = 0
        for name, view in case.by_name.items():
            if name not in units:
                names.insert(place, name)
            place = names.index(name) + 1
            units.setdefault(name, set()).add(view.metric.unit)
    return {name: units[name].pop() if len(units[name]) == 1 else "" for name in names}


def _style(results: Results) -> str:
    """Choose the colour of the head: green only if all was measured and is good."""
    found = counts(results.cases)
    if any(status.fails(strict=results.strict) for status in found):
        return "bad"
    is_good = bool(found) and all(status.is_good for status in found)
    return "good" if is_good and not results.interrupted else "open"
