"""How the gate's reasons and notes write numbers."""

from __future__ import annotations


def number(value: float, unit: str | None = None) -> str:
    """Two decimals, four significant digits below 10; then the unit where it is known."""
    shown = f"{value:.2f}" if abs(value) >= 10 else f"{value:.4g}"  # noqa: PLR2004
    return f"{shown} {unit}" if unit else shown


def runs(count: int) -> str:
    """So many runs."""
    return f"{count} run" if count == 1 else f"{count} runs"
