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


def percent(value: float | None) -> str:
    """One decimal without a sign."""
    return ABSENT if value is None else f"{value:.1f} %"


def visible_loss(value: float | None) -> str:
    """The smallest loss that is seen, in percent: nobody can lose more than all."""
    return percent(value) if value is None or value < 100 else "no loss"  # noqa: PLR2004 - percent


def spread(value: float | None) -> str:
    """A coefficient of variation in percent."""
    return ABSENT if value is None else f"{value * 100:.1f} %"


def in_short(reason: str) -> str:
    """A reason in one line: of the last lines of a log, which stand below it, the very last."""
    head, *below = reason.split("\n")
    return printable(f"{head} {below[-1].strip()}" if below else head)


def in_full(reason: str, indent: int) -> str:
    """A reason as it is, the lines below the first one indented."""
    head, *below = map(printable, reason.split("\n"))
    return "\n".join([head, *(f"{' ' * indent}{line}" for line in below)])


def printable(text: str) -> str:
    """Text from file names and logs, safe for one line of a terminal."""
    if text.isprintable():
        return text
    return text.encode("unicode_escape").decode("ascii")
