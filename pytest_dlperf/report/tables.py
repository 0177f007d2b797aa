"""The tables of a session's metrics, which all forms have: rows of a case, families of metrics."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.model import numbers
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.metric import MEMBER, Metric
from pytest_dlperf.model.results import BaselineChange, CaseResult, MetricResult
from pytest_dlperf.report import printing
from pytest_dlperf.report.status import metric_words, severity, word_of, worst_of_families

CHANGE_HEADINGS: Final = ("case", "metric", "unit", "old", "new", "diff", "by", "why")
_SIMPLY: Final = (Verdict.PASS, Verdict.RECORDED)


class Column(Struct, frozen=True):
    """A column of the tables of metrics."""

    heading: str
    cell: Callable[[CaseResult, MetricResult], str]
    rank: int = 0
    """Where a terminal is narrow, the lowest is left out first; those with 0 stay."""
    is_left: bool = False
    """Whether its cells stand to the left."""


class Row(Struct, frozen=True, kw_only=True):
    """A metric of a case, or several at once, and the status of it."""

    metric: str
    """Its name; empty where the case has none."""
    status: Verdict
    verdict: str
    cells: dict[str, str]
    """By the headings of the columns."""


def _minimum(_: CaseResult, known: MetricResult) -> str:
    decision = known.judgement.decision if known.judgement else None
    return numbers.detectable_loss(decision.min_detectable_percent if decision else None)


def _runs(result: CaseResult, known: MetricResult) -> str:
    """Count the runs that have a metric, as ``4/5`` where some have not."""
    if known.metric.ratio_of is not None or result.measurement is None:
        return numbers.ABSENT
    every = result.measurement.runs
    usable = sum(known.metric.name in run.metrics for run in every)
    return str(usable) if usable == len(every) else f"{usable}/{len(every)}"


def difference(known: MetricResult) -> str:
    """Write how far a metric lies above its reference."""
    return numbers.signed_percent(known.judgement.difference_percent if known.judgement else None)


COLUMNS: Final = [
    Column("metric", lambda _, it: it.metric.name, is_left=True),
    Column("median", lambda _, it: numbers.number(it.median, it.metric.unit)),
    Column("unit", lambda _, it: it.metric.unit or numbers.ABSENT, 5, is_left=True),
    Column("reference", lambda _, it: numbers.number(it.reference, it.metric.unit), 6),
    Column("diff", lambda _, it: difference(it)),
    Column("sees", _minimum, 7),
    Column("of ideal", lambda _, it: numbers.percent(it.efficiency_percent), 4),
    Column("spread", lambda _, it: numbers.variation(it.spread), 2),
    Column("mean", lambda _, it: numbers.number(it.mean, it.metric.unit), 1),
    Column("runs", _runs, 3),
]
"""In the order in which tables have them. Whoever adds a row adds a column."""


def columns_of(rows: Iterable[Row]) -> list[Column]:
    """Return the first column, and those of which a row has anything."""
    first, *others = COLUMNS
    every = [row.cells for row in rows]
    return [
        first,
        *(it for it in others if any(cells[it.heading] != numbers.ABSENT for cells in every)),
    ]


def row_of(result: CaseResult, name: str, verdict: str, status: Verdict) -> Row:
    """Make the row of one of a case's metrics."""
    known = result.metrics().get(name)
    if known is not None:
        cells = {column.heading: column.cell(result, known) for column in COLUMNS}
    else:
        cells = {column.heading: numbers.ABSENT for column in COLUMNS}
        cells["metric"] = name or numbers.ABSENT
    return Row(metric=name, status=status, verdict=verdict, cells=cells)


def case_rows(result: CaseResult, *, every: bool = False) -> list[Row]:
    """Choose the metrics that are worth a row, the worst first; or ``every`` judged one.

    Worth a row is what does not simply pass. Of a case of which nothing is, or that broke as a
    whole, the first metric stands for all. The verdict of the last row counts the others.
    """
    known, verdicts, status = result.metrics(), metric_words(result), result.status
    if not verdicts or status in (Verdict.LOST, Verdict.NOT_MEASURED):
        return [row_of(result, next(iter(known), ""), status.value, status)]
    names = sorted(verdicts, key=[*known, *verdicts].index)
    judgements = result.judgements.values()
    if every:
        shown = names
    elif len(set(verdicts.values())) == 1 and all(one.measured is None for one in judgements):
        shown = []  # one cause, and no number of any of them to show
    else:
        shown = [name for name in names if verdicts[name][1] not in _SIMPLY]
    told = {one.metric.name for one in worst_of_families(known[n] for n in shown if n in known)}

    def place(name: str) -> tuple[int, bool, float]:
        # The names of a family stand behind the other metrics, the largest loss first.
        is_member = name in known and bool(known[name].metric.family)
        return verdicts[name][1].rank, is_member, severity(known[name])[1] if is_member else 0.0

    shown = sorted((name for name in shown if name in told or name not in known), key=place)
    names.sort(key=lambda name: verdicts[name][1].rank)
    others = Counter(verdicts[name][0] for name in names if name not in shown)
    is_one = len(names) == 1
    counted = "; ".join(said if is_one else f"{count} {said}" for said, count in others.items())
    if not shown:
        return [row_of(result, names[0], counted, status)]
    *first, last = shown
    end = "; ".join(filter(None, (verdicts[last][0], counted)))
    return [
        *(row_of(result, name, *verdicts[name]) for name in first),
        row_of(result, last, end, verdicts[last][1]),
    ]


def change_row(change: BaselineChange) -> Sequence[str]:
    """Return the cells of an accepted number, below ``CHANGE_HEADINGS``."""
    return (
        change.case_id,
        change.metric,
        change.unit,
        numbers.number(change.old, change.unit),
        numbers.number(change.new, change.unit),
        numbers.signed_percent(change.difference_percent),
        printing.person(change.by),
        printing.reason(change.why),
    )


def with_unit(metric: Metric) -> str:
    """Name a metric and its unit, if it has one: ``peak_memory (MB)``."""
    return f"{metric.name} ({metric.unit})" if metric.unit else metric.name


_NUMBER: Final = re.compile(r"p?[0-9]+(?:\.[0-9]+)?[kKmMgGtT]?(?:i?[bB])?")
"""Such as ``4096``, ``4k``, ``1.5MiB`` or ``p99``."""


class Member(Struct, frozen=True, kw_only=True):
    """A name of a family."""

    name: str
    """What it is called on the axis, such as ``1048576``."""
    series: str
    """What else names it, such as ``out`` or ``all_reduce``; empty where nothing does."""
    known: MetricResult

    @property
    def status(self) -> Verdict:
        """What its judgement comes to."""
        judgement = self.known.judgement
        return Verdict.NOT_JUDGED if judgement is None else judgement.status

    @property
    def word(self) -> str:
        """Its verdict; nothing where no test judges it."""
        return "" if self.known.judgement is None else word_of(self.known.judgement)


class Family(Struct, frozen=True, kw_only=True):
    """The names of a family of a case, in the order of its log."""

    metric: Metric
    """What it says of all names, by its own name."""
    axis: str
    """What the names are on: ``size``, ``percentile``."""
    members: tuple[Member, ...]

    @property
    def worst(self) -> tuple[MetricResult, ...]:
        """The worst names, the worst first: those that are not good, or the first of equals."""
        ranked = sorted(worst_of_families(m.known for m in self.members), key=severity)
        bad = tuple(one for one in ranked if one.judgement and not one.judgement.status.is_good)
        return bad or tuple(ranked[:1])

    @property
    def counts(self) -> str:
        """How many names there are, and how many have which verdict."""
        told = numbers.counted(len(self.members), "name")
        words = Counter(member.word for member in self.members if member.word)
        found = ", ".join(f"{count} {word}" for word, count in words.items())
        return f"{told}: {found}" if found else told


def families_of(result: CaseResult) -> list[Family]:
    """Gather the families of a case of which anything is known."""
    found: dict[str, list[MetricResult]] = {}
    for known in result.metrics().values():
        if known.metric.family and (known.judgement is not None or known.median is not None):
            found.setdefault(known.metric.family, []).append(known)
    return [_family(name, members) for name, members in found.items()]


def _family(name: str, members: Sequence[MetricResult]) -> Family:
    first = members[0].metric
    parts = [one.metric.member_name.split(MEMBER) for one in members]
    # A results file may say anything.
    named_by = first.named_by[: min(map(len, parts))] or ("name",)
    columns = [{part[place] for part in parts} for place in range(len(named_by))]
    numeric = [
        place
        for place, names in enumerate(columns)
        if len(names) > 1 and all(map(_NUMBER.fullmatch, names))
    ]
    # The axis is the last part of the names with numbers, or the last one.
    at = numeric[-1] if numeric else len(named_by) - 1
    return Family(
        metric=replace(first, name=name, family=None),
        axis=named_by[at],
        members=tuple(
            Member(name=part[at], series=MEMBER.join((*part[:at], *part[at + 1 :])), known=one)
            for part, one in zip(parts, members, strict=True)
        ),
    )
