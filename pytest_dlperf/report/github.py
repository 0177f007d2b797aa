"""Reports for GitHub Actions: the summary of the step, and annotations of the run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from pytest_dlperf.files.writing import open_regular
from pytest_dlperf.model import numbers
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.results import CaseResult
from pytest_dlperf.report import printing
from pytest_dlperf.report.entries import TEXTS_SHOWN
from pytest_dlperf.report.facts import Weight, case_facts, case_title, gaps
from pytest_dlperf.report.markdown import markdown_page
from pytest_dlperf.report.session import SessionReport
from pytest_dlperf.report.status import worst_first

_SUMMARY_BYTES: Final = 1_000_000
"""Bytes of a step's summary that are used. GitHub shows none at all above 1 MiB, and what follows
in the step may add to it."""
_ANNOTATIONS: Final = 10
"""Annotations of one kind that GitHub shows for a step."""
_MESSAGE_LENGTH: Final = 2000
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
        page = markdown_page(session, max_bytes=_SUMMARY_BYTES - size - len(before))
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

    def told(result: CaseResult) -> tuple[str, str]:
        lines = [*map(str, gaps(result))]
        for fact in case_facts(result, results.started):
            if fact.weight < Weight.FULL:
                lines += [f"{fact.label} {text}" for text in fact.first(TEXTS_SHOWN)]
        return str(case_title(result, results.started)), "\n".join(lines)

    errors = [told(result) for result in cases if result.status.is_alarm]
    errors += [("pytest-dlperf", fault) for fault in faults]
    warnings = []
    for status in _ABSENCES:
        if ids := [result.case.id for result in cases if result.status is status]:
            title = f"{len(ids)} of {len(cases)} cases {status.value}"
            warnings.append((title, numbers.named(ids, 20)))
    warnings += [told(one) for one in cases if one.status is Verdict.ENVIRONMENT_SHIFT]
    if results.strict:
        errors, warnings = errors + warnings, []
    if results.interrupted:
        warnings.insert(0, ("the session was interrupted", str(session.sentence)))
    yield from _annotations("error", errors)
    yield from _annotations("warning", warnings)


def _annotations(kind: str, told: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield as many as GitHub shows; where there are more, the last sums up the others."""
    if len(told) > _ANNOTATIONS:
        rest = [title for title, _ in told[_ANNOTATIONS - 1 :]]
        told = [*told[: _ANNOTATIONS - 1], (f"{len(rest)} more", "\n".join(rest))]
    for title, message in told:
        # In one line, which nothing in its texts can end or add to.
        text, heading = printing.plain(message), _data(printing.printable(title))
        if len(text) > _MESSAGE_LENGTH:
            text = f"{text[:_MESSAGE_LENGTH]}…"
        heading = heading.replace(":", "%3A").replace(",", "%2C")
        yield f"::{kind} title={heading}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
