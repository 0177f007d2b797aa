"""How a number is written: in the gate's reasons, reports, notices and commands alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

ABSENT: Final = "-"
"""Stands for a number that is not there."""

_MAX_WRITTEN_OUT: Final = 1e9
"""From here on a number is written with its exponent: three hundred digits help no reader."""

_ALL_PERCENT: Final = 100


def number(value: float | None, unit: str | None = None) -> str:
    """Write a number without its unit, in the digits that suit it.

    Rates and numbers without a unit have two decimals, as the original benchmark prints them, and
    four significant digits below 10; ratios have two decimals, percentages three digits, all else
    four digits and never fewer than its integral part has.
    """
    if value is None:
        return ABSENT
    if abs(value) >= _MAX_WRITTEN_OUT:
        return f"{value:.4g}"
    size = abs(float(f"{value:.4g}"))  # as it will be read: 999.96 is 1000
    if unit == "x":
        return f"{value:.2f}"
    if unit is None or "s" in unit.split("/")[1:]:
        return f"{value:.2f}" if size >= 10 else f"{value:.4g}"  # noqa: PLR2004
    if unit == "%":
        return f"{value:.3g}"
    decimals = 0 if size >= 1000 else 1 if size >= 100 else 2  # noqa: PLR2004 - four digits
    return f"{value:.{decimals}f}" if size >= 10 else f"{value:.4g}"  # noqa: PLR2004


def quantity(value: float | None, unit: str | None = None) -> str:
    """Write a number, then its unit if it has one."""
    written = number(value, unit)
    return f"{written} {unit}" if unit and value is not None else written


def percent(value: float | None) -> str:
    """Write a percentage: one decimal, no sign."""
    if value is None:
        return ABSENT
    return f"{value:.1f} %" if abs(value) < _MAX_WRITTEN_OUT else f"{value:.4g} %"


def signed_percent(value: float | None) -> str:
    """Write a difference in percent: one decimal, with its sign; what rounds to 0 has a plus."""
    if value is None:
        return ABSENT
    written = f"{value:+.1f} %" if abs(value) < _MAX_WRITTEN_OUT else f"{value:+.4g} %"
    return "+0.0 %" if written == "-0.0 %" else written


def percent_range(low: float, high: float) -> str:
    """Write two percentages as ``2.1 to 66.0 %``, or as one where they look the same."""
    first, last = percent(low), percent(high)
    return first if first == last else f"{first.removesuffix(' %')} to {last}"


def interval(ends: tuple[float, float] | None) -> str:
    """Write both ends of an interval in percent, with their signs."""
    if ends is None:
        return ABSENT
    low, high = map(signed_percent, ends)
    return f"{low.removesuffix(' %')} to {high}"


def variation(coefficient: float | None) -> str:
    """Write a coefficient of variation in percent."""
    return percent(None if coefficient is None else 100 * coefficient)


def detectable_loss(value: float | None) -> str:
    """Write a minimum detectable change in percent: a loss of more than all does not exist."""
    return percent(value) if value is None or value < _ALL_PERCENT else "no loss"


def duration(seconds: float) -> str:
    """Write a time in the largest unit that suits it."""
    for unit, length_s in (("s", 1), ("min", 60)):
        if round(seconds / length_s) < 120:  # noqa: PLR2004 - two of the next unit
            return f"{seconds / length_s:.0f} {unit}"
    return f"{seconds / 3600:.1f} h"


def counted(count: int, noun: str) -> str:
    """Write a number of things: ``1 case``, ``2 cases``."""
    return f"{count} {noun}{'s' * (count != 1)}"


def named(names: Sequence[str], most: int) -> str:
    """Name the first of several things: ``a, b and 3 more``."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
