"""The summary at the end of a session: one row per case, the worst first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_dlperf.gate.verdict import Quantity, Verdict
from pytest_dlperf.measurement import RunStatus
from pytest_dlperf.reports import numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_dlperf.cases import Topology
    from pytest_dlperf.gate.verdict import Judgement
    from pytest_dlperf.logs.tree import IgnoredLog
    from pytest_dlperf.session import CaseResult

IGNORED_SHOWN: Final = 20
"""Left-out logs that the terminal lists; the results file has all of them."""

_HEADINGS: Final = (
    "case",
    "runs",
    "median",
    "mean",
    "spread",
    "baseline",
    "diff",
    "speedup",
    "baseline",
    "diff",
    "verdict",
)
_LEGEND: Final = "sees: the smallest loss that the gate finds, 9 times out of 10"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the summary and how it is marked up (names of pytest's terminal writer)."""

    text: str
    markup: tuple[str, ...] = ()


def summary_lines(
    results: Sequence[CaseResult],
    ignored_logs: Sequence[IgnoredLog],
    *,
    width: int,
    with_skipped: bool = False,
    with_runs: bool = True,
) -> Iterator[Line]:
    """The table of the measured cases, the count of the others, and the logs left out."""
    judged = [result for result in results if result.judgements or result.measurement]
    shown = [result for result in judged if with_skipped or not _only_skipped(result)]
    shown.sort(key=_rank)
    if shown:
        yield from _table(shown, width=width, with_runs=with_runs)
    if len(judged) < len(results):
        left = len(results) - len(judged)
        yield Line(f"{left} of {len(results)} cases were not judged", ("yellow",))
    skipped = len(judged) - len(shown)
    if skipped:
        yield Line(f"{skipped} of {len(results)} cases skipped; -rs shows why", ("yellow",))
    yield from _ignored(ignored_logs)


def _only_skipped(result: CaseResult) -> bool:
    verdicts = {judgement.verdict for judgement in result.judgements.values()}
    return result.measurement is None and verdicts == {Verdict.SKIPPED}


def _worst(result: CaseResult) -> Verdict | None:
    """The worst verdict; one that was accepted is none to worry about any more."""
    verdicts = [
        Verdict.IMPROVED if judgement.recorded else judgement.verdict
        for judgement in result.judgements.values()
    ]
    return min(verdicts, key=lambda verdict: verdict.gravity, default=None)


def _rank(result: CaseResult) -> tuple[int, str, str, Topology]:
    """Worst first; among equals the topologies of a training one after the other."""
    case = result.case
    worst = _worst(result)
    # A case that no test has judged stands before the good ones.
    gravity = Verdict.SKIPPED.gravity if worst is None else worst.gravity
    return gravity, case.system, case.variant, case.topology


def _table(results: Sequence[CaseResult], *, width: int, with_runs: bool) -> Iterator[Line]:
    """One line per case; in a narrow terminal two: case and verdict, then the numbers."""
    rows = [_cells(result) for result in results]
    widths = [max(map(len, column)) for column in zip(_HEADINGS, *rows, strict=True)]
    fits = sum(widths) + 2 * (len(widths) - 1) <= width
    case, verdict = 0, len(_HEADINGS) - 1
    yield Line(_row(_HEADINGS, widths, fits=fits), ("bold",))
    for result, cells in zip(results, rows, strict=True):
        markup = _markup(_worst(result))
        if not fits:
            for text in _heads(cells[case], cells[verdict], width):
                yield Line(text, ("bold", *markup))
        yield Line(_row(cells, widths, fits=fits), markup)
        if with_runs and result.measurement is not None:
            for text in _runs(result, width):
                yield Line(text)
    if any(j.smallest_visible_percent for result in results for j in result.judgements.values()):
        yield Line(_LEGEND)


def _heads(case: str, verdict: str, width: int) -> Iterator[str]:
    """Case and verdict in one line where they fit, else below each other."""
    head = f"{case}  {verdict}"
    if len(head) <= width:
        yield head
        return
    yield case
    yield from (f"  {part}" for part in verdict.split("; "))


def _row(cells: Sequence[str], widths: Sequence[int], *, fits: bool) -> str:
    numbers_right = [
        cell.rjust(width) for cell, width in zip(cells[1:-1], widths[1:-1], strict=True)
    ]
    if not fits:
        return "  ".join(["  ", *numbers_right])
    return "  ".join([cells[0].ljust(widths[0]), *numbers_right, cells[-1]])


def _cells(result: CaseResult) -> tuple[str, ...]:
    measurement = result.measurement
    accepted = result.accepted
    by_throughput = result.judgements.get(Quantity.THROUGHPUT)
    by_speedup = result.judgements.get(Quantity.SPEEDUP)
    count = numbers.ABSENT
    if measurement is not None:
        usable, total = len(measurement.throughputs), len(measurement.runs)
        count = str(total) if usable == total else f"{usable}/{total}"
    return (
        result.case.id,
        count,
        numbers.throughput(measurement.median if measurement else None),
        numbers.throughput(measurement.mean if measurement else None),
        numbers.spread(measurement.spread if measurement else None),
        numbers.throughput(_held_against(by_throughput, accepted.throughput if accepted else None)),
        numbers.signed_percent(by_throughput.difference_percent if by_throughput else None),
        numbers.speedup(result.speedup),
        numbers.speedup(_held_against(by_speedup, accepted.speedup if accepted else None)),
        numbers.signed_percent(by_speedup.difference_percent if by_speedup else None),
        _verdict_words(result),
    )


def _held_against(judgement: Judgement | None, accepted: float | None) -> float | None:
    """What the difference is taken from: the last accepted sessions, or the accepted number."""
    return accepted if judgement is None or judgement.reference is None else judgement.reference


def _verdict_words(result: CaseResult) -> str:
    """The verdicts, each with the smallest loss that it would have seen."""
    judgements = result.judgements
    words = {quantity: _words(judgement) for quantity, judgement in judgements.items()}
    if not words:
        return "not judged"
    if list(words) == [Quantity.THROUGHPUT]:
        judgement = judgements[Quantity.THROUGHPUT]
        return words[Quantity.THROUGHPUT] + _sees([judgement])
    if len(set(words.values())) == 1 and len(words) == len(Quantity):
        both = [judgements[Quantity.THROUGHPUT], judgements[Quantity.SPEEDUP]]
        return words[Quantity.THROUGHPUT] + _sees(both)
    return "; ".join(
        f"{quantity.value} {word}{_sees([judgements[quantity]])}"
        for quantity, word in sorted(words.items())
    )


def _words(judgement: Judgement) -> str:
    if not judgement.recorded:
        return judgement.verdict.value
    # What passes for want of a number is recorded; one that stood is given up for another.
    how = "recorded" if judgement.verdict is Verdict.PASS else "accepted"
    return f"{judgement.verdict.value}, {how}"


def _sees(judgements: Sequence[Judgement]) -> str:
    visible = [judgement.smallest_visible_percent for judgement in judgements]
    if None in visible:
        return ""
    losses = list(map(numbers.visible_loss, visible))
    return f" (sees {' and '.join(dict.fromkeys(losses))})"


def _markup(worst: Verdict | None) -> tuple[str, ...]:
    if worst in (None, Verdict.SKIPPED, Verdict.ENVIRONMENT_SHIFT):
        return ("yellow",)
    return ("green",) if worst.passes else ("red",)


def _runs(result: CaseResult, width: int) -> Iterator[str]:
    """The single runs, and what is worth knowing of them."""
    if result.measurement is None:
        return
    line = f"    {result.measurement.unit}"
    for run in result.measurement.runs:
        ok = run.status is RunStatus.OK
        piece = f"  {run.run}: {numbers.throughput(run.throughput) if ok else run.status.value}"
        if len(line) + len(piece) > width:
            yield line
            line = " " * 8
        line += piece
    yield line
    for run in result.measurement.runs:
        for number, attempt in enumerate(run.failed_attempts, start=1):
            reason = f": {numbers.in_short(attempt.reason)}" if attempt.reason else ""
            yield f"    run {run.run}, attempt {number}: {attempt.status.value}{reason}"
        if run.reason:
            yield f"    run {run.run}: {numbers.in_short(run.reason)}"
    read, available = len(result.measurement.runs), result.measurement.available
    if available is not None and read < available:
        yield f"    {read} of {available} logs were read: they decide"
    for judgement in result.judgements.values():
        # Of a speedup that passes, the rows of both ends tell enough.
        ends = () if judgement.verdict is Verdict.PASS else judgement.ends
        # What fails says its reason above, in full; what passes in spite of one says it here.
        is_told = judgement.verdict is not Verdict.ENVIRONMENT_SHIFT or judgement.reason is None
        shifted = () if is_told else (judgement.reason or "",)
        for note in (*shifted, *ends, *judgement.notes):
            yield f"    {judgement.quantity.value}: {numbers.in_short(note)}"


def _ignored(ignored_logs: Sequence[IgnoredLog]) -> Iterable[Line]:
    if not ignored_logs:
        return
    logs_were = "log was" if len(ignored_logs) == 1 else "logs were"
    yield Line(f"{len(ignored_logs)} {logs_were} left out:", ("yellow",))
    for item in ignored_logs[:IGNORED_SHOWN]:
        yield Line(f"  {numbers.printable(item.log)}: {item.reason}")
    more = len(ignored_logs) - IGNORED_SHOWN
    if more > 0:
        yield Line(f"  … and {more} more; --dlperf-json FILE has all of them")
