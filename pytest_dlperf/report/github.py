"""Reports for GitHub Actions: the summary of the step, and annotations of the run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from pytest_dlperf.files.writing import open_regular
from pytest_dlperf.model import numbers
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.results import CaseResult, Results
from pytest_dlperf.report import printing
from pytest_dlperf.report.entries import TEXTS_SHOWN
from pytest_dlperf.report.facts import Weight, case_facts
from pytest_dlperf.report.markdown import markdown_page
from pytest_dlperf.report.rows import case_title, gaps
from pytest_dlperf.report.session import SessionReport
from pytest_dlperf.report.status import worst_first

SUMMARY_BYTES: Final = 1_000_000
"""Bytes of a step's summary that are used. GitHub shows none at all above 1 MiB, and what follows
in the step may add to it."""
ANNOTATIONS: Final = 10
"""Annotations of one kind that GitHub shows for a step."""
MESSAGE_LENGTH: Final = 2000
"""Characters of a message that are shown."""

_ABSENCES: Final = (Verdict.NOT_JUDGED, Verdict.NOT_MEASURED, Verdict.SKIPPED)


def append_summary(file: Path, session: SessionReport) -> bool:
    """Append the Markdown page to the summary of the step; return whether it has room."""
    with open(file, "ab+", opener=open_regular) as opened:
        size = opened.seek(0, 2)
        before = b""
        if size:
            opened.seek(size - 1)
            # The page must not go on a line, a list or a table that stands there.
            before = b"\n" if opened.read(1) == b"\n" else b"\n\n"
        page = markdown_page(session, max_bytes=SUMMARY_BYTES - size - len(before))
        if page:
            # In one piece: a step may run several sessions at once.
            opened.write(before + page.encode())
    return bool(page)


def annotation_lines(session: SessionReport, faults: Iterable[str] = ()) -> Iterator[str]:
    """Yield commands that annotate the run with what failed, the worst first.

    ``faults`` are what else made the session fail.
    """
    results = session.results
    cases = worst_first(results.cases)
    errors = [_of_case(result, results) for result in cases if result.status.is_alarm]
    errors += [("pytest-dlperf", fault) for fault in faults]
    warnings = []
    if results.interrupted:
        warnings.append(("the session was interrupted", str(session.sentence)))
    shifted = Verdict.ENVIRONMENT_SHIFT
    (errors if results.strict else warnings).extend(
        [
            *_absences(cases),
            *(_of_case(case, results) for case in cases if case.status is shifted),
        ]
    )
    yield from _annotations("error", errors)
    yield from _annotations("warning", warnings)


def _absences(results: Sequence[CaseResult]) -> Iterator[tuple[str, str]]:
    for status in _ABSENCES:
        cases = [result.case.id for result in results if result.status is status]
        if cases:
            title = f"{len(cases)} of {len(results)} cases {status.value}"
            yield title, numbers.named(cases, 20)


def _of_case(result: CaseResult, results: Results) -> tuple[str, str]:
    """Return title and message of a case: each metric that is not good, since when, and why."""
    facts = case_facts(result, results.started)
    told = (
        f"{fact.label} {text}"
        for fact in facts
        if fact.weight < Weight.FULL
        for text in fact.first(TEXTS_SHOWN)
    )
    lines = (*map(str, gaps(result)), *told)
    return str(case_title(result, results.started)), "\n".join(lines)


def _annotations(kind: str, told: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield as many as GitHub shows; where there are more, the last sums up the others."""
    shown = len(told) if len(told) <= ANNOTATIONS else ANNOTATIONS - 1
    for title, message in told[:shown]:
        yield _command(kind, title, message)
    rest = [title for title, _ in told[shown:]]
    if rest:
        yield _command(kind, f"{len(rest)} more", "\n".join(rest))


def _command(kind: str, title: str, message: str) -> str:
    """Write a workflow command in one line, which nothing in its texts can end or add to."""
    text = printing.plain(message)
    if len(text) > MESSAGE_LENGTH:
        text = f"{text[:MESSAGE_LENGTH]}…"
    return f"::{kind} title={_property(printing.printable(title))}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
