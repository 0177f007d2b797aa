"""How numbers and names are written for people."""

from __future__ import annotations

from typing import Final

ABSENT: Final = "-"


def throughput(value: float | None) -> str:
    """Two decimals as the benchmark prints them, four significant digits below 10."""
    if value is None:
        return ABSENT
    return f"{value:.2f}" if abs(value) >= 10 else f"{value:.4g}"  # noqa: PLR2004


def speedup(value: float | None) -> str:
    """Two decimals."""
    return ABSENT if value is None else f"{value:.2f}"


def signed_percent(value: float | None) -> str:
    """One decimal with its sign."""
    return ABSENT if value is None else f"{value:+.1f} %"


def spread(value: float | None) -> str:
    """A coefficient of variation in percent."""
    return ABSENT if value is None else f"{value * 100:.1f} %"


def printable(text: str) -> str:
    """Text from file names and logs, safe for one line of a terminal."""
    if text.isprintable():
        return text
    return text.encode("unicode_escape").decode("ascii")
