"""How numbers are written, in the gate's reasons and notes as in reports."""

from __future__ import annotations


def number(value: float, unit: str | None = None) -> str:
    """Two decimals, four significant digits below 10; then the unit where it is known."""
    shown = f"{value:.2f}" if abs(value) >= 10 else f"{value:.4g}"  # noqa: PLR2004
    return f"{shown} {unit}" if unit else shown


def signed_percent(value: float) -> str:
    """One decimal with its sign; what rounds to nothing has a plus."""
    text = f"{value:+.1f} %"
    return "+0.0 %" if text == "-0.0 %" else text


def runs(count: int) -> str:
    """So many runs."""
    return f"{count} run" if count == 1 else f"{count} runs"
