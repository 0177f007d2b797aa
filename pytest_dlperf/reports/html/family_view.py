"""A family of metrics: one curve over its names, one table, and its worst names in full."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_dlperf.model import numbers
from pytest_dlperf.night.families import Family, Member, families_of
from pytest_dlperf.night.figures import difference_percent, with_unit
from pytest_dlperf.reports.html.drawing import (
    Badge,
    Chart,
    Frame,
    Label,
    Scale,
    Shape,
    Tick,
    badge_of,
    dots,
    limits,
    path,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_dlperf.model.metric import Metric
    from pytest_dlperf.model.results import CaseResult
    from pytest_dlperf.reports.html.metric_view import MetricView

FRAME: Final = Frame(width=1280, height=560, left=130, right=1250, top=44, bottom=470)
FLAT: Final = Frame(width=1280, height=330, left=130, right=1250, top=44, bottom=240)
APART: Final = 110
"""Labels of the axis that would stand nearer to each other are left out."""
SERIES: Final = 6
"""Curves that a chart has colours for; the table has the others."""
WIDE: Final = 16
"""From the lowest to the highest number, so many times as much, an axis is logarithmic."""


class FamilyRow(Struct, frozen=True, kw_only=True):
    """A name of the table."""

    name: str
    series: str
    measured: str
    reference: str
    difference: str
    badge: Badge
    word: str


class FamilyView(Struct, frozen=True, kw_only=True):
    """A family of a case, in texts; ``gain_percent`` of its worst name is for sorting."""

    metric: Metric
    axis: str
    counts: str
    badge: Badge
    word: str
    is_judged: bool
    gain_percent: float | None
    told: str
    cells: dict[str, str]
    charts: tuple[Chart, ...]
    rows: tuple[FamilyRow, ...]
    has_series: bool
    worst: tuple[MetricView, ...]
    """Its worst names, with their runs and their history."""


def family_views(
    result: CaseResult, views: Mapping[str, MetricView], *, strict: bool
) -> Iterator[FamilyView]:
    """Draw the families of a case; ``views`` has the worst names of each."""
    for family in families_of(result):
        worst = [views[m.known.metric.name] for m in family.worst if m.known.metric.name in views]
        if not worst:
            continue
        first, badge = worst[0], badge_of(family.status, strict=strict)
        yield FamilyView(
            metric=family.metric,
            axis=family.axis,
            counts=family.counts,
            badge=badge,
            word=first.word,
            is_judged=any(member.known.judgement is not None for member in family.members),
            gain_percent=first.gain_percent,
            told=first.told,
            cells={
                "median": numbers.counted(len(family.members), "name"),
                "reference": first.cells["reference"],
                "sees": first.cells["sees"],
            },
            charts=tuple(_charts(family, result.case.id, strict=strict)),
            rows=tuple(_row(member, strict=strict) for member in family.members),
            has_series=any(member.series for member in family.members),
            worst=tuple(worst),
        )


def _row(member: Member, *, strict: bool) -> FamilyRow:
    known = member.known
    return FamilyRow(
        name=member.name,
        series=member.series,
        measured=numbers.number(known.median, known.metric.unit),
        reference=numbers.number(known.reference, known.metric.unit),
        difference=numbers.signed_percent(difference_percent(known.judgement)),
        badge=badge_of(member.status, strict=strict),
        word=member.word,
    )


# ------------------------------------------------------------------------------ charts


def _charts(family: Family, case_id: str, *, strict: bool) -> Iterator[Chart]:
    """Draw tonight over the reference, and below it how far the one lies from the other."""
    along, ticks = _along(family)
    series: dict[str, list[Member]] = {}
    for member in sorted(family.members, key=lambda member: along[member.name]):
        series.setdefault(member.series, []).append(member)
    shown = dict(list(series.items())[:SERIES])
    members = [member for of_one in shown.values() for member in of_one]
    values = [
        value
        for member in members
        for value in (member.known.median, member.known.reference)
        if value is not None
    ]
    about = f"{family.metric.name} of {case_id} over {family.axis}"
    below = Label(x=(FRAME.left + FRAME.right) // 2, y=0, text=family.axis, style="m")
    if values:
        up = _up(values)
        shapes = [s for at, name in enumerate(shown) for s in _curves(at, name, shown, along, up)]
        left = len(series) - len(shown)
        yield Chart(
            title=f"{about}, in {family.metric.unit}",
            description=f"{family.counts}; the table has the numbers",
            frame=FRAME,
            up=up.ticks(),
            along=ticks,
            shapes=tuple(shapes),
            labels=(
                _placed(below, FRAME),
                Label(
                    x=10,
                    y=26,
                    text=with_unit(family.metric)
                    + (f"; {left} more curves in the table" if left > 0 else ""),
                ),
            ),
        )
    far = [
        (member, percent)
        for member in members
        if (percent := difference_percent(member.known.judgement)) is not None
    ]
    if far:
        yield Chart(
            title=f"How far {about} lies from its reference, in percent",
            description=", ".join(f"{_named(m)} {numbers.signed_percent(p)}" for m, p in far),
            frame=FLAT,
            up=(scale := _percents([percent for _, percent in far])).ticks(4),
            along=ticks,
            shapes=tuple(_differences(list(shown), far, along, scale, strict=strict)),
            labels=(
                _placed(below, FLAT),
                Label(x=10, y=26, text="difference from the reference (%)"),
            ),
        )


def _named(member: Member) -> str:
    return f"{member.name} {member.series}".strip()


def _placed(label: Label, frame: Frame) -> Label:
    return Label(x=label.x, y=frame.height - 8, text=label.text, style=label.style)


def _curves(
    at: int, name: str, series: Mapping[str, Sequence[Member]], along: Mapping[str, int], up: Scale
) -> Iterator[Shape]:
    """Draw what a series is held against, and over it what was measured."""

    def points(reference: bool) -> list[tuple[int, int]]:
        found = (
            (along[m.name], m.known.reference if reference else m.known.median)
            for m in series[name]
        )
        return [(x, up.at(value)) for x, value in found if value is not None]

    what = f"{name}: " if name else ""
    held, measured = points(True), points(False)
    style = f"series{at}"
    yield Shape(style=f"{style} held", path=path(held), key=f"{what}reference" if held else "")
    yield Shape(style=f"{style} curve", path=path(measured), key=f"{what}tonight")
    yield Shape(style=f"{style} points", path=dots(measured))


def _differences(
    series: Sequence[str],
    far: Sequence[tuple[Member, float]],
    along: Mapping[str, int],
    scale: Scale,
    *,
    strict: bool,
) -> Iterator[Shape]:
    yield Shape(style="axis", path=f"M{FLAT.left} {scale.at(0)}H{FLAT.right}")
    for at, name in enumerate(series):
        of_one = [(along[m.name], scale.at(p)) for m, p in far if m.series == name]
        key = f"{name}: tonight" if name else ""
        yield Shape(style=f"series{at} points", path=dots(of_one), key=key)
    for status in dict.fromkeys(m.status for m, _ in far if not m.status.is_good):
        badge = badge_of(status, strict=strict)
        found = [(along[m.name], scale.at(p)) for m, p in far if m.status is status]
        yield Shape(style="mark", tone=badge.style, path=dots(found), key=badge.word)


def _percents(values: Sequence[float]) -> Scale:
    low, high = limits([*values, 1.0, -1.0])
    return Scale(low=low, high=high, start=FLAT.bottom, end=FLAT.top)


def _up(values: Sequence[float]) -> Scale:
    low, high = min(values), max(values)
    if low > 0 and high / low >= WIDE:
        ends = low / 1.2, high * 1.2
        return Scale(low=ends[0], high=ends[1], start=FRAME.bottom, end=FRAME.top, logarithmic=True)
    low, high = limits(values if low > high / 2 else [*values, 0.0])
    return Scale(low=low, high=high, start=FRAME.bottom, end=FRAME.top)


def _along(family: Family) -> tuple[dict[str, int], tuple[Tick, ...]]:
    """Place the names: sizes by their logarithm, others side by side, numbers in their order."""
    places = family.places
    start, end = FRAME.left + 30, FRAME.right - 50
    sizes = {name: size for name, size in places.items() if size is not None}
    if len(sizes) == len(places):
        places = {name: None for name, _ in sorted(sizes.items(), key=lambda one: one[1])}
    low, high = (min(sizes.values()), max(sizes.values())) if sizes else (0.0, 0.0)
    if len(sizes) == len(places) and low > 0 and high / low >= WIDE:
        scale = Scale(low=low, high=high, start=start, end=end, logarithmic=True)
        found = {name: scale.at(size) for name, size in sizes.items()}
        found = dict(sorted(found.items(), key=lambda one: one[1]))
    else:
        apart = (end - start) / max(len(places) - 1, 1)
        found = {name: round(start + at * apart) for at, name in enumerate(places)}
    ticks, last = [], -APART
    for name, x in found.items():
        label = _short(name)
        if x - last >= APART + 22 * max(len(label) - 5, 0):
            last = x
            ticks.append(Tick(x, label))
    return found, tuple(ticks)


def _short(name: str) -> str:
    """Write a large size as ``16Mi``, another round number as ``16M``, the rest as it is."""
    if not name.isdecimal():
        return name if len(name) <= 12 else f"{name[:11]}…"  # noqa: PLR2004 - what has room
    for base, ends in ((1024, ("Ki", "Mi", "Gi", "Ti")), (1000, ("k", "M", "G", "T"))):
        for power, sign in reversed(list(enumerate(ends, 1))):
            if int(name) and int(name) % base**power == 0:
                return f"{int(name) // base**power}{sign}"
    return name
