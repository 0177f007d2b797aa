"""What the history says of the last weeks, for the head of the page."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from pytest_dlperf.model.results import parse_time
from pytest_dlperf.reports import history_words, numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_dlperf.history.series import CaseHistory

RECENT: Final = timedelta(days=30)
"""A level that changed before that is told with its case alone."""
SHOWN: Final = 10
"""Lines that the head has room for."""


def recent_lines(histories: Iterable[CaseHistory], started: str) -> list[str]:
    """Levels that changed in the last weeks before ``started``, the newest first, then drift."""
    histories = list(histories)
    lines = [*_changes(histories, started), *_drift(histories)]
    more = len(lines) - SHOWN
    return [*lines[:SHOWN], f"and {more} more"] if more > 0 else lines


def _changes(histories: Iterable[CaseHistory], started: str) -> Iterator[str]:
    try:
        since = f"{(parse_time(started) - RECENT).date()}"
    except (ValueError, OverflowError):
        return
    found = [
        (change.at[:10], history.case_id, change.difference_percent)
        for history in histories
        for change in history.change_points or ()
        if change.at[:10] >= since
    ]
    for at, case_id, percent in sorted(found, key=lambda change: change[0], reverse=True):
        yield f"{case_id}: level changed on {at} by {numbers.signed_percent(percent)}"


def _drift(histories: Iterable[CaseHistory]) -> Iterator[str]:
    for history in histories:
        if history.drift is not None:
            yield f"{history.case_id} {history_words.drift(history.drift)}"
