"""The results as Markdown: the regressions first, then the matrix.

For GitHub's summary of a step, for a comment or a mail: the tables read in plain text too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from operator import itemgetter
from typing import Final, TypeAlias

from pytest_dlperf.model import numbers
from pytest_dlperf.model.judgement import Judgement, Verdict
from pytest_dlperf.model.measurement import RunStatus
from pytest_dlperf.model.results import CaseResult, Results
from pytest_dlperf.report import printing
from pytest_dlperf.report.columns import (
    CHANGE_HEADINGS,
    by_training,
    change_row,
    difference_percent,
    headings,
    metric_cells,
    scaling_of,
    with_unit,
)
from pytest_dlperf.report.entries import Entry
from pytest_dlperf.report.facts import NUMBERS, case_facts
from pytest_dlperf.report.families import Family, families_of, in_short
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
from pytest_dlperf.report.overview import environment_facts, session_facts
from pytest_dlperf.report.remarks import absences
from pytest_dlperf.report.rows import Row, case_title, gaps, judged_rows
from pytest_dlperf.report.runs import RunsText, RunText, measurements_of, runs_text
from pytest_dlperf.report.session import SessionReport
from pytest_dlperf.report.status import metric_words, worst_first
from pytest_dlperf.report.text import Text, join, phrase, strong

Block: TypeAlias = tuple[str, str]
"""The title of its section, and its text."""
Cells: TypeAlias = Sequence[str]

LINES_SHOWN: Final = 20
"""Left-out logs that the page lists, and reasons for which cases were not measured."""

TEXTS_SHOWN: Final = 20
"""Texts of a fact."""

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
    """Say what is bad in a line: how much, since when, why, and the cause or first suspect."""
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
            section = "No worse than the accepted software now"
            yield from _alarm(result, section, results)
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
    """Yield machine and software of the cases, with all values of what differs among them."""
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
    """Make two blocks: what is wrong, and the runs with the places of their logs."""
    known = in_short(result.metrics().values())
    judgements = [one.judgement for one in known if one.judgement is not None]
    told = [
        phrase("{} {}", strong(fact.label), text)
        for fact in case_facts(result, results.started)
        if fact.label not in NUMBERS
        for text in fact.first(TEXTS_SHOWN)
    ]
    blocks = (
        f"### {rendered(case_title(result, results.started))}",
        table(
            ["", *headings("alarm"), "verdict"],
            map(_alarm_row, judged_rows(result)),
            right=" rrrrr",
        ),
        bullets(map(rendered, (*gaps(result), *told))),
    )
    yield section, "\n\n".join(filter(None, blocks))
    runs = "\n\n".join(_runs_and_logs(result, judgements))
    if runs:
        yield (section, details(f"Runs and logs of {result.case.id}", runs))


def _alarm_row(row: Row) -> Sequence[str]:
    cells = row.cells
    figures = (cells[name] for name in headings("alarm"))
    return inline(cells["directed"]), *figures, _emphasized(cells["verdict"], row.status)


def _runs_and_logs(result: CaseResult, judgements: Sequence[Judgement]) -> Iterator[str]:
    """List runs and logs of all that the verdicts rest on, and what broken runs ended with."""
    if result.measurement is None:
        # Nothing was measured; a reason may be all that there is.
        for judgement in judgements:
            _, has_tail, tail = (judgement.reason or "").partition("\n")
            if has_tail:
                yield fenced(tail.split("\n"))
        return
    has_ratio = any(judgement.metric.ratio_of for judgement in judgements)
    for name, measurement in measurements_of(result, with_reference=has_ratio):
        found = runs_text(name, measurement)
        yield f"{code(name)}\n\n{_runs_table(found)}"
        for run in found.runs:
            _, has_tail, tail = run.reason.partition("\n")
            if has_tail:
                yield f"What run {run.label} ended with:"
                yield fenced(tail.split("\n"))


def _runs_table(found: RunsText) -> str:
    """Show the runs with all their metrics, and what these come to."""

    def row(run: RunText) -> Sequence[str]:
        told = run.cells if run.status is RunStatus.OK else [f"**{cell}**" for cell in run.cells]
        log = code(f"{found.folder}{run.log}") if run.log else ""
        return run.label, *told, log, inline(printing.in_short(run.reason))

    names = [inline(with_unit(metric)) for metric in found.metrics]
    right = "r" * (1 + len(names))
    runs = table(("run", *names, "log", "remark"), map(row, found.runs), right=right)
    sums = zip(found.metrics, found.medians, found.sums, strict=True)
    told = [f"{it.name}: {inline(said)}" for it, median, said in sums if median != numbers.ABSENT]
    return "\n\n".join(filter(None, (runs, bullets(told))))


def _emphasized(word: str, status: Verdict) -> str:
    """Write a verdict, in bold where it is not good, above all where nothing was measured."""
    return inline(word) if status.is_good else f"**{inline(word)}**"


# ---------------------------------------------------------------------------- the matrix


def _matrix(results: Results) -> Iterator[Block]:
    """Make one block for each training of which anything was measured, as they were selected."""
    columns = ("metric", "topology", "devices", *headings("matrix"), "verdict")
    for members in by_training(results.cases).values():
        if all(map(_has_nothing, members)):
            continue  # it stands below, by its reason
        case = members[0].case
        name = f"{code(case.system)} {code(case.variant)}"
        members.sort(key=lambda result: result.case.topology)
        judged, recorded = _matrix_rows([*_reference(members), *members])
        text = f"### {name}{scaling_of(case)}\n\n{table(columns, judged, right='  rrrrrrrr')}"
        yield "Matrix", text
        for result in members:
            for family in families_of(result):
                title = f"{with_unit(family.metric)} of {result.case.id}, {family.counts}"
                yield "Matrix", details(title, _family_table(family))
        if recorded:
            shown = table(("metric", "topology", *headings("recorded")), recorded, right="  rrrr")
            yield "Matrix", details("Recorded, judged by no test", shown)


def _family_table(family: Family) -> str:
    """Show what was measured over the reference, a row for each name."""
    rows = [
        (
            " ".join((code(member.name), inline(member.series))).strip(),
            numbers.number(member.known.median, family.metric.unit),
            numbers.number(member.known.reference, family.metric.unit),
            numbers.signed_percent(difference_percent(member.known.judgement)),
            _emphasized(member.word, member.status) if member.word else numbers.ABSENT,
        )
        for member in family.members
    ]
    return table((family.axis, "measured", "reference", "diff", "verdict"), rows, right=" rrr")


def _has_nothing(result: CaseResult) -> bool:
    is_absent = result.measurement is None and result.reference is None
    return is_absent and result.status in (Verdict.SKIPPED, Verdict.NOT_MEASURED)


def _reference(members: Sequence[CaseResult]) -> Iterator[CaseResult]:
    """Yield the reference topology, where it was measured for the others alone."""
    over = next(filter(None, (result.reference for result in members)), None)
    case = members[0].case.reference
    if over is not None and case is not None and case not in {one.case for one in members}:
        yield CaseResult(case=case, measurement=over)


def _matrix_rows(members: Sequence[CaseResult]) -> tuple[list[Cells], list[Cells]]:
    """Make the rows metric by metric, each over all topologies: with a verdict, and without."""
    names = max((list(result.metrics()) for result in members), key=len)
    judged: dict[str, list[Cells]] = {name: [] for name in names}
    recorded: dict[str, list[Cells]] = {}
    for result in members:
        known, verdicts, topology = result.metrics(), _verdicts_of(result), result.case.topology
        for name in dict.fromkeys([*known, *verdicts]):
            if name in known and known[name].metric.family:
                continue
            cells = metric_cells(result, name)
            if name in verdicts:
                place = str(topology), str(topology.world_size)
                shown = (cells[heading] for heading in headings("matrix"))
                row = [inline(cells["named"]), *place, *shown, verdicts[name]]
                judged.setdefault(name, []).append(row)
            elif known[name].median is not None:
                shown = (cells[heading] for heading in headings("recorded"))
                recorded.setdefault(name, []).append(
                    [inline(cells["named"]), str(topology), *shown]
                )
    return list(chain(*judged.values())), list(chain(*recorded.values()))


def _verdicts_of(result: CaseResult) -> dict[str, str]:
    """Say the verdict on each judged metric; what was only measured for others has none."""
    words, status = metric_words(result), result.status
    if not words:
        return {next(iter(result.metrics()), ""): _emphasized(status.value, status)}
    if status in (Verdict.LOST, Verdict.NOT_MEASURED):
        words = dict.fromkeys(words, (status.value, status))
    return {name: _emphasized(*pair) for name, pair in words.items()}
