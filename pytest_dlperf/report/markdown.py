"""The results as Markdown: the regressions first, then the matrix.

For GitHub's summary of a step, for a comment or a mail: the tables read in plain text too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final, TypeAlias

from pytest_dlperf.model import numbers
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.measurement import RunStatus
from pytest_dlperf.model.results import CaseResult, Results
from pytest_dlperf.report import printing
from pytest_dlperf.report.entries import Entry
from pytest_dlperf.report.facts import case_facts, case_title, gaps
from pytest_dlperf.report.markdown_text import (
    FOLDED,
    bullets,
    code,
    details,
    fenced,
    inline,
    rendered,
    table,
)
from pytest_dlperf.report.overview import absences, environment_facts, session_facts
from pytest_dlperf.report.runs import RunText, measurements_of, runs_text, summed_up
from pytest_dlperf.report.session import SessionReport
from pytest_dlperf.report.status import by_training, metric_words, scaling_of, worst_first
from pytest_dlperf.report.tables import (
    CHANGE_HEADINGS,
    Family,
    Row,
    change_row,
    columns_of,
    difference,
    families_of,
    row_of,
    with_unit,
)
from pytest_dlperf.report.text import Text, join, phrase, strong

Block: TypeAlias = tuple[str, str]
"""The title of its section, and its text."""

LINES_SHOWN: Final = 20
"""Lines of a list, and texts of a fact."""

_ABSENT: Final = (
    Verdict.LOST,
    Verdict.SKIPPED,
    Verdict.NOT_MEASURED,
    Verdict.NOT_JUDGED,
)
_NO_ROOM: Final = (
    "**There is no room here for the whole page: folded parts are left out, and its end.**"
)


def markdown_page(session: SessionReport, *, max_bytes: int | None = None) -> str:
    """Write the page, in UTF-8 at most so many bytes long.

    Where that is too little, it goes without what is folded, and ends early. It is empty where not
    even the head has room.
    """
    head, blocks = _head(session), list(_blocks(session))
    page = _joined(head, blocks)
    if max_bytes is None or len(page.encode()) <= max_bytes:
        return page
    head, room, kept = f"{head}\n\n{_NO_ROOM}", max_bytes, []
    room -= len(head.encode()) + 1
    for section, text in blocks:
        if not text.startswith(FOLDED):
            room -= len(f"\n\n## {section}\n\n{text}".encode())
            if room < 0:
                break
            kept.append((section, text))
    page = _joined(head, kept)
    return page if len(page.encode()) <= max_bytes else ""


def _joined(head: str, blocks: Iterable[Block]) -> str:
    pieces = [head]
    for section, members in groupby(blocks, key=itemgetter(0)):
        pieces += [f"## {section}", *(text for _, text in members)]
    return "\n\n".join(pieces) + "\n"


def _head(session: SessionReport) -> str:
    results, said = session.told, rendered(session.sentence)
    facts = [
        *session.facts,
        *(entry.title for entry in session.shifts),
        *map(_in_short, session.expected),
        *(entry.title for entry in session.gains),
    ]
    blocks = (
        f"# dlperf: cluster {inline(results.cluster)}",
        f"**{said[:1].upper()}{said[1:]}.**",
        rendered(session.advice),
        bullets(map(rendered, session.urgent)),
        _some([rendered(_in_short(entry)) for entry in session.bad]),
        _some(list(map(rendered, facts))),
        ", ".join(f"{name} {code(fact)}" for name, fact in session_facts(results)),
    )
    return "\n\n".join(filter(None, blocks))


def _in_short(entry: Entry) -> Text:
    reason = (text for fact in entry.facts if fact.label == "reason" for text in fact.texts)
    return join("; ", [entry.title, *reason, *entry.causes[:1]])


def _blocks(session: SessionReport) -> Iterator[Block]:
    results = session.told
    for result in worst_first(results.cases):
        status = result.status
        if status in _ABSENT:
            continue  # it stands below, by its reason: there may be many with one
        if status.fails(strict=results.strict):
            yield from _alarm(result, "Regressions and failures", results)
        elif status is Verdict.ENVIRONMENT_SHIFT:
            yield from _alarm(result, "No worse than the accepted software now", results)
    yield from _matrix(results)
    ignored = [f"{code(item.log)}: {inline(item.reason)}" for item in results.ignored_logs]
    facts = [*environment_facts(results.environment), *_measured_facts(results)]
    changes = [
        (code(case), metric, inline(unit), *figures, inline(by), inline(why))
        for case, metric, unit, *figures, by, why in map(change_row, results.baseline_changes)
    ]
    sections = {
        "Not measured or not judged": _some(
            [rendered(line) for line in absences(results.cases, _ABSENT, most=10)]
        ),
        "Worth knowing": bullets(map(rendered, session.suspicions)),
        "Accepted": table(CHANGE_HEADINGS, changes, right="   rrr"),
        f"{len(ignored)} logs that were left out": _some(ignored),
        "Environment": table(("fact", "value"), [tuple(map(inline, fact)) for fact in facts]),
    }
    yield from ((title, text) for title, text in sections.items() if text)


def _measured_facts(results: Results) -> Iterator[tuple[str, str]]:
    values: dict[str, set[str]] = {}
    for result in results.cases:
        if result.measurement and (measured_on := result.measurement.fingerprint):
            for name, value in [*measured_on.machine.items(), *measured_on.software.items()]:
                values.setdefault(name, set()).add(value)
    yield from ((name, ", ".join(sorted(found))) for name, found in values.items())


def _some(lines: Sequence[str]) -> str:
    more = len(lines) - LINES_SHOWN
    rest = [f"… and {more} more; the results file (`--dlperf-json`) has all"] if more > 0 else []
    return bullets([*lines[:LINES_SHOWN], *rest])


# ---------------------------------------------------------------- a case with an alarm


def _alarm(result: CaseResult, section: str, results: Results) -> Iterator[Block]:
    told = [
        phrase("{} {}", strong(fact.label), text)
        for fact in case_facts(result, results.started)
        for text in fact.first(LINES_SHOWN)
    ]
    title = f"### {rendered(case_title(result, results.started))}"
    yield section, f"{title}\n\n{bullets(map(rendered, (*gaps(result), *told)))}"
    runs = "\n\n".join(_runs_and_logs(result))
    if runs:
        yield section, details(f"Runs and logs of {result.case.id}", runs)


def _runs_and_logs(result: CaseResult) -> Iterator[str]:
    if result.measurement is None:
        # Nothing was measured; a reason may be all that there is.
        for judgement in result.judgements.values():
            yield from _tail(judgement.reason)
        return
    has_ratio = any(judgement.metric.ratio_of for judgement in result.judgements.values())
    for name, measurement in measurements_of(result, with_reference=has_ratio):
        found = runs_text(name, measurement)

        def row(one: RunText, folder: str = found.folder) -> Sequence[str]:
            is_ok = one.run.status is RunStatus.OK
            log = code(f"{folder}{one.log}") if one.log else ""
            told = one.cells if is_ok else [f"**{cell}**" for cell in one.cells]
            return one.label, *told, log, inline(printing.in_short(one.run.reason or ""))

        names = [inline(with_unit(samples.metric)) for samples in found.samples]
        right = "r" * (1 + len(names))
        sums = [f"{it.metric.name}: {inline(summed_up(it))}" for it in found.samples if it.values]
        yield code(name)
        yield table(("run", *names, "log", "remark"), map(row, found.runs), right=right)
        yield from [bullets(sums)] * bool(sums)
        for one in found.runs:
            for tail in _tail(one.run.reason):
                yield f"What run {one.label} ended with:"
                yield tail


def _tail(reason: str | None) -> Iterator[str]:
    _, has_tail, tail = (reason or "").partition("\n")
    if has_tail:
        yield fenced(tail.split("\n"))


# ---------------------------------------------------------------------------- the matrix


def _matrix(results: Results) -> Iterator[Block]:
    for members in by_training(results.cases).values():
        if all(map(_has_nothing, members)):
            continue  # it stands below, by its reason
        case = members[0].case
        every = [row for result in (*_reference(members), *members) for row in _rows(result)]
        judged = [(result, row) for result, row in every if row.verdict]
        recorded = [(result, row) for result, row in every if not row.verdict]
        title = f"### {code(case.system)} {code(case.variant)}{scaling_of(case)}"
        yield "Matrix", f"{title}\n\n{_metric_table(judged)}"
        for result in members:
            for family in families_of(result):
                title = f"{with_unit(family.metric)} of {result.case.id}, {family.counts}"
                yield "Matrix", details(title, _family_table(family))
        if recorded:
            yield "Matrix", details("Recorded, judged by no test", _metric_table(recorded))


def _rows(result: CaseResult) -> Iterator[tuple[CaseResult, Row]]:
    """Yield a row for each metric; one that no test judges has no verdict."""
    status, known, verdicts = result.status, result.metrics(), metric_words(result)
    if not verdicts:
        verdicts = {next(iter(known), ""): (status.value, status)}
    elif status in (Verdict.LOST, Verdict.NOT_MEASURED):
        verdicts = dict.fromkeys(verdicts, (status.value, status))
    for name in dict.fromkeys((*known, *verdicts)):
        word, of_metric = verdicts.get(name, ("", Verdict.PASS))
        is_member = name in known and known[name].metric.family
        if not is_member and (word or known[name].median is not None):
            yield result, row_of(result, name, word, of_metric)


def _metric_table(rows: Sequence[tuple[CaseResult, Row]]) -> str:
    columns = columns_of(row for _, row in rows)
    metrics = list(dict.fromkeys(row.metric for _, row in rows))
    cells = []
    for result, row in sorted(rows, key=lambda one: metrics.index(one[1].metric)):
        metric, *others = (_cell(row.cells[column.heading]) for column in columns)
        verdict = _emphasized(row.verdict, row.status)
        cells.append((metric, str(result.case.topology), *others, verdict))
    metric, *headings = (column.heading for column in columns)
    right = "".join(" " if column.is_left else "r" for column in columns[1:])
    return table((metric, "topology", *headings, "verdict"), cells, right=f"  {right}")


def _cell(text: str) -> str:
    return text if text == numbers.ABSENT else inline(text)


def _family_table(family: Family) -> str:
    rows = [
        (
            " ".join((code(member.name), inline(member.series))).strip(),
            numbers.number(member.known.median, family.metric.unit),
            numbers.number(member.known.reference, family.metric.unit),
            difference(member.known),
            _emphasized(member.word, member.status) if member.word else numbers.ABSENT,
        )
        for member in family.members
    ]
    return table((family.axis, "measured", "reference", "diff", "verdict"), rows, right=" rrr")


def _emphasized(word: str, status: Verdict) -> str:
    """Write a verdict, in bold where it is not good, above all where nothing was measured."""
    return inline(word) if status.is_good else f"**{inline(word)}**"


def _has_nothing(result: CaseResult) -> bool:
    is_absent = result.measurement is None and result.reference is None
    return is_absent and result.status in (Verdict.SKIPPED, Verdict.NOT_MEASURED)


def _reference(members: Sequence[CaseResult]) -> Iterator[CaseResult]:
    """Yield the reference topology, where it was measured for the others alone."""
    over = next(filter(None, (result.reference for result in members)), None)
    case = members[0].case.reference
    if over is not None and case is not None and case not in {one.case for one in members}:
        yield CaseResult(case=case, measurement=over)
