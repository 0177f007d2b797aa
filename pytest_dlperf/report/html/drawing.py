"""Values that templates draw: badges, and charts of scales, paths, labels and a legend.

Templates only give a drawing its elements: places, texts and styles are ready made here and in the
modules of the charts. A style is a class of ``style.css``. Places are whole units of the drawing,
two of which are a pixel where there is room.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from pytest_dlperf.model.judgement import Verdict

_SIGNS: Final = {
    Verdict.FAILED: "✕",
    Verdict.HUNG: "■",
    Verdict.INVALID: "!",
    Verdict.REGRESSED: "▼",
    Verdict.INCONCLUSIVE: "?",
    Verdict.NO_BASELINE: "○",
    Verdict.LOST: "∅",
    Verdict.NOT_STARTED: "⊘",
    Verdict.ENVIRONMENT_SHIFT: "≈",
    Verdict.NOT_JUDGED: "·",
    Verdict.NOT_MEASURED: "·",
    Verdict.SKIPPED: "–",  # noqa: RUF001 - a sign, no hyphen
    Verdict.EXPECTED: "◇",
    Verdict.ACCEPTED: "✎",
    Verdict.RECORDED: "✎",
    Verdict.IMPROVED: "▲",
    Verdict.PASS: "✓",
}


class Badge(Struct, frozen=True, kw_only=True):
    """A word with its sign, readable without colour, and its class in the style.

    ``rank`` is its place among all, 0 being the worst; a ``bad`` one stands open in the page.
    """

    word: str
    style: str
    sign: str
    rank: int = 0
    is_bad: bool = False


def badge_of(status: Verdict, *, strict: bool = False) -> Badge:
    """Make the badge of a status; in a ``strict`` session more is bad."""
    return Badge(
        word=status.value,
        style=status.value.replace("_", "-").replace(" ", "-"),
        sign=_SIGNS[status],
        rank=status.rank,
        is_bad=status.fails(strict=strict),
    )


# ---------------------------------------------------------------------------------- charts


class Frame(Struct, frozen=True, kw_only=True):
    """The size of a drawing, and the ends of the part that values are drawn in."""

    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int


class Tick(Struct, frozen=True):
    """A mark of an axis: its place, and its label, which stands around it (``m``) or ends there."""

    at: int
    label: str
    style: str = "m"


class Shape(Struct, frozen=True):
    """A path in a style. Without a path it is not drawn, without a key not in the legend."""

    style: str
    path: str
    key: str = ""
    """Its entry in the legend."""
    tone: str = ""
    """The style of a verdict, whose colour it has."""
    name: str = ""
    """The id of the element, where another one shows it too."""


class Label(Struct, frozen=True):
    """A text in a drawing, from ``x`` to the right unless its style says otherwise."""

    x: int
    y: int
    text: str
    style: str = ""


class Chart(Struct, frozen=True, kw_only=True):
    """A drawing with its axes and its legend; shapes lie over those before them."""

    title: str
    description: str
    frame: Frame
    up: Sequence[Tick]
    along: Sequence[Tick]
    shapes: tuple[Shape, ...]
    labels: tuple[Label, ...] = ()
    style: str = ""


class Scale:
    """Places values between ``low`` and ``high`` from ``start`` to ``end``.

    A logarithmic scale takes positive values only. What lies beyond the ends does so in the drawing
    too.
    """

    def __init__(
        self, low: float, high: float, start: int, end: int, *, logarithmic: bool = False
    ) -> None:
        self.low, self.high, self.is_logarithmic = low, high, logarithmic
        self._start, self._from = start, self._measured(low)
        self._unit = (end - start) / (self._measured(high) - self._from)

    def at(self, value: float) -> int:
        """Place a value."""
        return round(self._start + (self._measured(value) - self._from) * self._unit)

    def places(self, values: Iterable[float]) -> list[int]:
        """Place many values of a scale that is not logarithmic: a history has thousands."""
        start, low, unit = self._start, self._from, self._unit
        return [round(start + (value - low) * unit) for value in values]

    def holds(self, value: float) -> bool:
        """Whether a value lies between the ends."""
        return self.low <= value <= self.high

    def ticks(self, count: int = 5) -> list[Tick]:
        """Make about so many marks, at round values."""
        if self.is_logarithmic:
            return [
                Tick(self.at(value), f"{value:g}" if value < 1e6 else f"{value:.0e}")  # noqa: PLR2004
                for value in self._round_logarithms()
            ]
        wanted = (self.high - self.low) / count
        power = 10.0 ** math.floor(math.log10(wanted))
        steps = (1.0, 2.0, 2.5, 5.0, 10.0)
        step = power * next(step for step in steps if step * power >= wanted * 0.999)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        values = [number * step for number in range(first, last + 1)]
        return [Tick(self.at(value), f"{value:.10g}") for value in values]

    def _measured(self, value: float) -> float:
        return math.log(value) if self.is_logarithmic else value

    def _round_logarithms(self) -> list[float]:
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        inside: list[float] = []
        for factors in ((1,), (1, 3), (1, 2, 5)):
            values = [factor * 10.0**power for power in powers for factor in factors]
            inside = [value for value in values if self.holds(value)]
            if len(inside) > 2:  # noqa: PLR2004 - two marks do not show what lies between
                break
        return inside


def limits(values: Iterable[float]) -> tuple[float, float]:
    """Find the ends of a scale for these values, with some air; also where all are equal."""
    known = sorted(values)
    low, high = known[0], known[-1]
    air = (high - low) * 0.06 or abs(high) * 0.01 or 1.0
    return low - air, high + air


def path(points: Iterable[tuple[int, int]]) -> str:
    """Return the ``d`` of an SVG path through points, in steps from one to the next."""
    steps: list[int] = []
    before_x = before_y = 0
    for x, y in points:
        steps += (x - before_x, y - before_y)
        before_x, before_y = x, y
    # A minus sign parts two numbers by itself.
    return "m" + "".join([f" {step}" if step >= 0 else str(step) for step in steps]).lstrip()


def bars(xs: Sequence[int], tops: Sequence[int], bottoms: Sequence[int]) -> str:
    """Return the ``d`` of a path of upright lines, each from a top down to its bottom."""
    pieces: list[str] = []
    before_x = before_y = 0
    for x, top, bottom in zip(xs, tops, bottoms, strict=True):
        aside, down = x - before_x, top - before_y
        pieces.append(f"m{aside}{'' if down < 0 else ' '}{down}v{bottom - top}")
        before_x, before_y = x, bottom
    return "".join(pieces)


def dots(points: Iterable[tuple[int, int]]) -> str:
    """Return the ``d`` of a path that is a dot at each point, where lines have round ends."""
    return "".join(f"M{x} {y}h0" for x, y in points)
