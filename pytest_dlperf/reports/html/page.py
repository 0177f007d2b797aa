"""The page of a session: its head, its cases, how trainings scale, what it ran on."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from pytest_dlperf.model.results import parse_time
from pytest_dlperf.reports import history_words, numbers
from pytest_dlperf.reports.case_status import counts, headline, worst_first
from pytest_dlperf.reports.environment import environment_facts, session_facts
from pytest_dlperf.reports.figures import CHANGE_HEADINGS, change_row
from pytest_dlperf.reports.html.case_view import CaseView, case_view, log_tails
from pytest_dlperf.reports.html.drawing import Badge, badge_of
from pytest_dlperf.reports.html.history_chart import FRAME
from pytest_dlperf.reports.html.render import render
from pytest_dlperf.reports.html.scaling_chart import scaling_charts
from pytest_dlperf.reports.remarks import remark_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_dlperf.history.series import CaseHistory
    from pytest_dlperf.model.records import CaseResult
    from pytest_dlperf.model.results import Results

MAX_POINTS: Final = 50_000
"""Points of all histories of a page: 12 bytes each. Of more, the last ones are drawn."""
TAILED: Final = 100
"""Cases that show how their logs end, the worst."""
RECENT_SHOWN: Final = 10
"""Lines that the head has room for."""


def html_page(results: Results, histories: Mapping[str, Mapping[str, CaseHistory]]) -> str:
    """Write the whole page; ``histories`` are by case id and metric, as far as there are any."""
    max_points = MAX_POINTS // max(sum(map(len, histories.values())), 1)
    cases = [
        case_view(
            result,
            number=number,
            histories=histories.get(result.case.id, {}),
            max_points=max_points,
            tails=log_tails(result) if number <= TAILED else (),
            strict=results.strict,
        )
        for number, result in enumerate(worst_first(results.cases), 1)
    ]
    return render(
        "page.html.j2",
        results=results,
        headline=headline(results).capitalize(),
        headline_style=_style(results),
        facts=session_facts(results),
        counts=list(_counts(results, cases)),
        cases=cases,
        worst=[case for case in cases if case.badge.is_bad][:8],
        opened=3,
        remarks=[*remark_lines(results.cases), *_recent(results, histories)],
        columns=_columns(cases),
        scaling=list(scaling_charts(results.cases, {view.case.id: view for view in cases})),
        has_history=bool(histories),
        plot=FRAME,
        environment=list(environment_facts(results.environment)),
        changes=list(map(change_row, results.baseline_changes)),
        change_headings=CHANGE_HEADINGS,
    )


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


def _recent(results: Results, by_case: Mapping[str, Mapping[str, CaseHistory]]) -> list[str]:
    """Say what changed lately, of the metrics that are judged."""
    judged = {result.case.id: _judged(result) for result in worst_first(results.cases)}
    histories = {
        case_id: {name: by_case[case_id][name] for name in names if name in by_case[case_id]}
        for case_id, names in judged.items()
        if case_id in by_case
    }
    lines = [*_changes(histories, results.started), *_drift(histories)]
    more = len(lines) - RECENT_SHOWN
    return [*lines[:RECENT_SHOWN], f"and {more} more"] if more > 0 else lines


def _judged(result: CaseResult) -> list[str]:
    return [name for name, known in result.metrics().items() if known.metric.is_judged]


def _changes(histories: Mapping[str, Mapping[str, CaseHistory]], started: str) -> Iterator[str]:
    """Tell the new levels of the last 30 days, a line for each case and day."""
    since = f"{(parse_time(started) - timedelta(days=30)).date()}"
    found: dict[tuple[str, str], list[str]] = {}
    for case_id, by_metric in histories.items():
        for name, history in by_metric.items():
            for change in history.change_points or ():
                told = f"{name} {numbers.signed_percent(change.difference_percent)}"
                found.setdefault((change.at[:10], case_id), []).append(told)
    for (at, case_id), levels in sorted(found.items(), key=lambda one: one[0][0], reverse=True):
        if at >= since:
            yield f"{case_id}: level changed on {at}: {', '.join(levels)}"


def _drift(histories: Mapping[str, Mapping[str, CaseHistory]]) -> Iterator[str]:
    """Tell the drift of a case's first metric that has one, and name the others."""
    for case_id, by_metric in histories.items():
        drifts = {name: one.drift for name, one in by_metric.items() if one.drift is not None}
        if drifts:
            first, *others = drifts
            more = f"; also {', '.join(others)}" if others else ""
            yield f"{case_id}: {first} {history_words.drift(drifts[first])}{more}"


def _style(results: Results) -> str:
    """Choose the colour of the head: green only if all was measured and is good."""
    found = counts(results.cases)
    if any(status.fails(strict=results.strict) for status in found):
        return "bad"
    is_good = bool(found) and all(status.is_good for status in found)
    return "good" if is_good and not results.interrupted else "open"


def _counts(results: Results, cases: Sequence[CaseView]) -> Iterator[tuple[Badge, int, CaseView]]:
    for status, number in counts(results.cases).items():
        badge = badge_of(status, strict=results.strict)
        first = next(case for case in cases if case.badge == badge)
        yield badge, number, first
