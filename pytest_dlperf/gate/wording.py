"""How numbers are written, in the gate's reasons and notes as in reports."""

from __future__ import annotations

from typing import Final

_FEW_DIGITS: Final = 1e9
"""What is larger is written with its exponent: nobody reads three hundred digits."""


def number(value: float, unit: str | None = None) -> str:
    """Two decimals, four significant digits below 10; then the unit where it is known."""
    has_decimals = 10 <= abs(value) < _FEW_DIGITS  # noqa: PLR2004
    shown = f"{value:.2f}" if has_decimals else f"{value:.4g}"
    return f"{shown} {unit}" if unit else shown


def signed_percent(value: float) -> str:
    """One decimal with its sign; what rounds to nothing has a plus."""
    text = f"{value:+.1f} %" if abs(value) < _FEW_DIGITS else f"{value:+.4g} %"
    return "+0.0 %" if text == "-0.0 %" else text


def runs(count: int) -> str:
    """Write a number of runs."""
    return f"{count} run" if count == 1 else f"{count} runs"
