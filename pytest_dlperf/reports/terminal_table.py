"""The table of the summary: a row per case, with as many columns as the terminal has room for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_dlperf.model.case import SINGLE_DEVICE
from pytest_dlperf.model.judgement import Quantity
from pytest_dlperf.reports import numbers
from pytest_dlperf.reports.case_status import CaseStatus, words_of
from pytest_dlperf.reports.figures import (
    by_training,
    difference_percent,
    efficiency_percent,
    held_against,
    run_count,
)
from pytest_dlperf.reports.tables import listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_dlperf.model.case import Topology
    from pytest_dlperf.model.judgement import Judgement
    from pytest_dlperf.model.records import CaseResult

_GAP: Final = 2
_VERDICT_ROOM: Final = 20
"""Columns of the widest verdict that counts when columns are chosen; a wider one goes below."""

_THROUGHPUT: Final = ("median", "reference", "diff", "sees", "spread", "mean", "runs")
_SPEEDUP: Final = ("ratio", "reference", "diff", "sees")
_KEYS: Final = (
    *((Quantity.THROUGHPUT, name) for name in ("unit", *_THROUGHPUT)),
    *((Quantity.SPEEDUP, name) for name in _SPEEDUP),
)
_LEAVE_OUT: Final = (
    (Quantity.THROUGHPUT, "mean"),
    (Quantity.THROUGHPUT, "spread"),
    (Quantity.SPEEDUP, "reference"),
    (Quantity.THROUGHPUT, "runs"),
    (Quantity.SPEEDUP, "sees"),
    (Quantity.THROUGHPUT, "reference"),
    (Quantity.THROUGHPUT, "unit"),
    (Quantity.SPEEDUP, "diff"),
    (Quantity.SPEEDUP, "ratio"),
    (Quantity.THROUGHPUT, "sees"),
)
"""What makes room for the rest, the least important first."""
_NO_REASON: Final = ("unit", "runs", "mean")
"""What does not explain a verdict: the single runs stand below it."""
_MIN_TOPOLOGIES: Final = 2
"""With fewer the table says it all."""
_LEGEND: Final = "sees: the smallest loss that the gate finds, 9 times out of 10"

Key = tuple[Quantity, str]


@dataclass(frozen=True, slots=True)
class Row:
    """The cells of a case."""

    case_id: str
    cells: dict[Key, str]
    verdicts: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """The verdicts in one line."""
        return "; ".join(self.verdicts)


def row_of(result: CaseResult, *, is_reference: bool = False) -> Row:
    """The cells of a case; ``is_reference`` for one that was measured without being selected."""
    measurement = result.measurement
    by_throughput = result.judgements.get(Quantity.THROUGHPUT)
    by_speedup = result.judgements.get(Quantity.SPEEDUP)
    has_speedup = result.case != result.case.single_device
    held_speedup = held_against(result, Quantity.SPEEDUP) if has_speedup else None
    cells = {
        (Quantity.THROUGHPUT, "unit"): measurement.unit if measurement else numbers.ABSENT,
        (Quantity.THROUGHPUT, "median"): numbers.throughput(
            measurement.median if measurement else None
        ),
        (Quantity.THROUGHPUT, "mean"): numbers.throughput(
            measurement.mean if measurement else None
        ),
        (Quantity.THROUGHPUT, "spread"): numbers.spread(
            measurement.spread if measurement else None
        ),
        (Quantity.THROUGHPUT, "runs"): run_count(measurement),
        (Quantity.THROUGHPUT, "reference"): numbers.throughput(
            held_against(result, Quantity.THROUGHPUT)
        ),
        (Quantity.THROUGHPUT, "diff"): numbers.signed_percent(difference_percent(by_throughput)),
        (Quantity.THROUGHPUT, "sees"): _sees(by_throughput),
        (Quantity.SPEEDUP, "ratio"): numbers.speedup(result.speedup if has_speedup else None),
        (Quantity.SPEEDUP, "reference"): numbers.speedup(held_speedup),
        (Quantity.SPEEDUP, "diff"): numbers.signed_percent(difference_percent(by_speedup)),
        (Quantity.SPEEDUP, "sees"): _sees(by_speedup),
    }
    words = ("for speedups",) if is_reference else tuple(_verdict_words(result))
    return Row(result.case.id, cells, words)


def _sees(judgement: Judgement | None) -> str:
    return numbers.detectable_loss(judgement.min_detectable_percent if judgement else None)


def _verdict_words(result: CaseResult) -> list[str]:
    """The verdicts; of several, what is simply in order has no room here."""
    words = words_of(result)
    return [word for word, standing in words if len(words) == 1 or standing is not CaseStatus.PASS]


class Table:
    """How the rows are laid out: the columns that there is room for, and their widths."""

    def __init__(self, rows: Sequence[Row], *, width: int) -> None:
        """Choose the columns for a terminal of ``width`` columns."""
        shown = [key for key in _KEYS if any(row.cells[key] != numbers.ABSENT for row in rows)]
        units = {row.cells[_KEYS[0]] for row in rows} - {numbers.ABSENT}
        self._unit = units.pop() if len(units) == 1 else None
        if self._unit is not None or not units:
            shown = [key for key in shown if key[1] != "unit"]
        self._keys = shown
        self._widths = {
            key: max(len(key[1]), *(len(row.cells[key]) for row in rows)) for key in shown
        }
        self._case = max(len("case"), *(len(row.case_id) for row in rows))
        self._verdict = max(len(row.verdict) for row in rows)
        needed = min(self._verdict, _VERDICT_ROOM)
        self._left_out: list[Key] = []
        for key in _LEAVE_OUT:
            if self._case + self._numbers_width() + _GAP + needed <= width:
                break
            if key in self._keys:
                self._keys.remove(key)
                self._left_out.append(key)
        # A longer id stands in a line of its own.
        self._case = min(self._case, max(width - self._numbers_width() - _GAP - needed, 4))
        self._verdict_room = width - self._case - self._numbers_width() - _GAP

    def _numbers_width(self) -> int:
        return sum(_GAP + width for key, width in self._widths.items() if key in self._keys)

    def head(self) -> Iterator[str]:
        """What the columns are, and above it what they are of."""
        groups: dict[Quantity, int] = {}
        for key in self._keys:
            groups[key[0]] = groups.get(key[0], -_GAP) + _GAP + self._widths[key]
        titles = {Quantity.THROUGHPUT: self._unit or "throughput", Quantity.SPEEDUP: "speedup"}
        above = " " * self._case
        for quantity, room in groups.items():
            title = titles[quantity]
            # A title that is wider than its columns begins further left.
            begin = len(above) + _GAP + max(room - len(title), 0)
            if room > len(title) + 4:
                rest = room - len(title) - 2
                title = f"{'-' * (rest // 2)} {title} {'-' * (rest - rest // 2)}"
                begin = len(above) + _GAP
            above = above.ljust(begin) + title
        if groups:
            yield above
        names = [key[1].rjust(self._widths[key]) for key in self._keys]
        yield (" " * _GAP).join(["case".ljust(self._case), *names, "verdict"])

    def lines(self, row: Row) -> Iterator[str]:
        """A row: one line, unless the id or the verdicts are longer than there is room."""
        case = row.case_id
        if len(case) > self._case:
            yield case
            case = ""
        cells = [row.cells[key].rjust(self._widths[key]) for key in self._keys]
        first, *below = (row.verdict,) if len(row.verdict) <= self._verdict_room else row.verdicts
        yield (" " * _GAP).join([case.ljust(self._case), *cells, first])
        for words in below:
            yield words.rjust(self._case + self._numbers_width() + _GAP + len(first))

    def left_out(self, row: Row, *, with_all: bool) -> Iterator[str]:
        """The numbers of a row that there was no column for; without all, those that explain."""
        for quantity, name in reversed(self._left_out):
            cell = row.cells[quantity, name]
            if cell != numbers.ABSENT and (with_all or name not in _NO_REASON):
                of = "speedup " if quantity is Quantity.SPEEDUP else ""
                yield f"{of}{name} {cell}".replace("speedup ratio", "speedup")

    def legend(self) -> str | None:
        """What needs saying of the columns."""
        return _LEGEND if any(name == "sees" for _, name in self._keys) else None


def speedup_lines(results: Iterable[CaseResult], *, width: int) -> Iterator[str]:
    """For each training with several topologies its speedups, in lines of ``width`` columns."""
    for name, members in by_training(results).items():
        speedups = {
            result.case.topology: result.speedup
            for result in members
            if result.speedup is not None and result.case.topology != SINGLE_DEVICE
        }
        if len(speedups) >= _MIN_TOPOLOGIES:
            yield from _speedups(name, speedups, width)


def _speedups(name: str, speedups: dict[Topology, float], width: int) -> Iterator[str]:
    by_size = sorted(speedups, key=lambda topology: (topology.world_size, topology))
    pieces = []
    for topology in by_size:
        ideal = topology.world_size
        percent = efficiency_percent(speedups[topology], ideal)
        reached = numbers.speedup(speedups[topology])
        pieces.append(f" {topology} {reached} of {ideal} ({percent:.0f} %)")
    yield from listed(f"{name}  speedup", pieces, width)
