"""How a case stands, as the page shows it: its word with a sign and a class of the style."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pytest_dlperf.reports.case_status import CaseStatus

_SIGNS: Final = {
    CaseStatus.FAILED: "✕",
    CaseStatus.HUNG: "■",
    CaseStatus.INVALID: "!",
    CaseStatus.REGRESSED: "▼",
    CaseStatus.INCONCLUSIVE: "?",
    CaseStatus.NO_BASELINE: "○",
    CaseStatus.LOST: "∅",
    CaseStatus.ENVIRONMENT_SHIFT: "≈",
    CaseStatus.NOT_JUDGED: "·",
    CaseStatus.NOT_MEASURED: "·",
    CaseStatus.SKIPPED: "–",  # noqa: RUF001 - a sign, no hyphen
    CaseStatus.EXPECTED: "◇",
    CaseStatus.ACCEPTED: "✎",
    CaseStatus.RECORDED: "✎",
    CaseStatus.IMPROVED: "▲",
    CaseStatus.PASS: "✓",
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


def badge_of(standing: CaseStatus, *, strict: bool = False) -> Badge:
    """The badge of what stands so; in a ``strict`` session more is bad."""
    return Badge(
        word=standing.value,
        style=standing.value.replace("_", "-").replace(" ", "-"),
        sign=_SIGNS[standing],
        rank=standing.rank,
        is_bad=standing.fails(strict=strict),
    )
