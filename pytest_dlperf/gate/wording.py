"""How numbers are written, in the gate's reasons and notes as in reports."""

from __future__ import annotations

from typing import Final

_FEW_DIGITS: Final = 1e9
"""What is larger is written with its exponent: nobody reads three hundred digits."""


def digits(value: float, unit: str | None = None) -> str:
    """Write a number without its unit, in as many digits as that has use for.

    Rates and numbers without a unit have two decimals, as the original benchmark prints them, and
    four significant digits below 10; ratios have two decimals, percentages three digits, all else
    four digits and never fewer than its integral part has.
    """
    size = abs(value)
    if size >= _FEW_DIGITS:
        return f"{value:.4g}"
    if unit == "x":
        return f"{value:.2f}"
    if unit is None or "s" in unit.split("/")[1:]:
        return f"{value:.2f}" if size >= 10 else f"{value:.4g}"  # noqa: PLR2004
    if unit == "%":
        return f"{value:.3g}"
    decimals = 0 if size >= 1000 else 1 if size >= 100 else 2  # noqa: PLR2004 - four digits
    return f"{value:.{decimals}f}" if size >= 10 else f"{value:.4g}"  # noqa: PLR2004


def number(value: float, unit: str | None = None) -> str:
    """Write a number, then its unit where it is known."""
    shown = digits(value, unit)
    return f"{shown} {unit}" if unit else shown


def signed_percent(value: float) -> str:
    """One decimal with its sign; what rounds to nothing has a plus."""
    text = f"{value:+.1f} %" if abs(value) < _FEW_DIGITS else f"{value:+.4g} %"
    return "+0.0 %" if text == "-0.0 %" else text


def runs(count: int) -> str:
    """Write a number of runs."""
    return f"{count} run" if count == 1 else f"{count} runs"
