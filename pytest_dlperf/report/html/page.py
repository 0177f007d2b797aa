"""The page of a session: its head, its cases, how trainings scale; all that comes in is text."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, Final

import jinja2
from markupsafe import Markup

from pytest_dlperf.model import numbers
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.metric import MEMBER
from pytest_dlperf.model.results import Origin, Results
from pytest_dlperf.report import printing, words
from pytest_dlperf.report.facts import terms
from pytest_dlperf.report.html.case import CaseView, case_view, log_tails
from pytest_dlperf.report.html.charts import scaling_charts
from pytest_dlperf.report.html.drawing import badge_of
from pytest_dlperf.report.overview import environment_facts, session_facts
from pytest_dlperf.report.session import SessionReport
from pytest_dlperf.report.status import counts, worst_first
from pytest_dlperf.report.tables import CHANGE_HEADINGS, change_row, difference
from pytest_dlperf.report.text import Piece, Role, Text, phrase

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


TEMPLATES: Final = Path(__file__).parent / "templates"
# What a browser must not get as it is: control characters but tab and line feed, characters that
# turn the direction of writing or cannot be seen, and halves of characters, which no file can hold.
_UNSHOWN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ufffe\uffff\ud800-\udfff]"
)
_ELEMENTS: Final = {Role.CODE: "code", Role.STRONG: "b"}


def render(**values: Any) -> str:
    r"""Make the page.

    Every value is escaped; what cannot be shown stands there as its code (``\x1b``). The page
    loads nothing and runs nothing but the package's own script.
    """
    return _environment().get_template("page.html.j2").render(values)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "badge": badge_of,
        "difference": difference,
        "number": numbers.number,
        "quantity": numbers.quantity,
        "terms": terms,
    }
    environment.globals |= {"own_file": _own_file, "content_hash": _content_hash}
    return environment


def _shown(value: Any) -> Any:
    if isinstance(value, Markup):
        return value
    if isinstance(value, Text):
        return Markup(rendered(value))  # noqa: S704 - each piece is escaped
    if value is None:
        # "None" is nothing to read, and an empty place would hide that a number is missing.
        msg = "a template writes a value that is not there"
        raise TypeError(msg)
    return _visible(value if isinstance(value, str) else str(value))


def _visible(text: str) -> str:
    return text if text.isprintable() else _UNSHOWN.sub(lambda found: ascii(found[0])[1:-1], text)


def rendered(text: Text) -> str:
    """Write each piece by its role; the ids of cases lead to their articles."""
    return "".join(map(_piece, text.pieces))


def _piece(piece: Piece) -> str:
    text = escape(_visible(piece.text))
    if piece.address is not None:
        return f'<a href="{escape(piece.address)}">{text}</a>'
    if piece.role is Role.CASE:
        return f'<a class="id" href="#case-{text}">{text}</a>'
    element = _ELEMENTS.get(piece.role)
    return f"<{element}>{text}</{element}>" if element else text


@cache
def _own_file(name: str) -> Markup:
    # Nothing but the package's own text gets into a page unescaped, and only here.
    return Markup((TEMPLATES / name).read_text(encoding="utf-8").strip())  # noqa: S704


@cache
def _content_hash(name: str) -> str:
    digest = hashlib.sha256(str(_own_file(name)).encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
