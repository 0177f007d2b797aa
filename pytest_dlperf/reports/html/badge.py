"""How a case stands, as the page shows it: its word with a sign and a class of the style."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pytest_dlperf.reports.standing import Standing

_SIGNS: Final = {
    Standing.FAILED: "✕",
    Standing.HUNG: "■",
    Standing.INVALID: "!",
    Standing.REGRESSED: "▼",
    Standing.INCONCLUSIVE: "?",
    Standing.NO_BASELINE: "○",
    Standing.LOST: "∅",
    Standing.ENVIRONMENT_SHIFT: "≈",
    Standing.NOT_JUDGED: "·",
    Standing.NOT_MEASURED: "·",
    Standing.SKIPPED: "–",  # noqa: RUF001 - a sign, no hyphen
    Standing.EXPECTED: "◇",
    Standing.ACCEPTED: "✎",
    Standing.RECORDED: "✎",
    Standing.IMPROVED: "▲",
    Standing.PASS: "✓",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Badge:
    """A word with its sign, which tells it without colour, and its class in the style.

    ``rank`` is its place among all, 0 being the worst; a ``bad`` one stands open in the page.
    """

    word: str
    style: str
    sign: str
    rank: int = 0
    is_bad: bool = False


def badge_of(standing: Standing, *, strict: bool = False) -> Badge:
    """The badge of what stands so; in a ``strict`` session more is bad."""
    return Badge(
        word=standing.value,
        style=standing.value.replace("_", "-").replace(" ", "-"),
        sign=_SIGNS[standing],
        rank=standing.rank,
        is_bad=standing.fails(strict=strict),
    )
