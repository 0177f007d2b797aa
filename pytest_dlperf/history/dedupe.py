"""Logs that were judged several times: one night, however often somebody looked at it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_dlperf.history.night import Night


def judged_once(nights: Iterable[Night], runs: Mapping[int, Sequence[float]]) -> list[Night]:
    """The nights, the oldest first, with those from the same logs as one.

    ``runs`` are the throughputs of nights from logs, by the measurement's id. Logs are the same
    where the runs of one session are also runs of the other, to the last bit. The fuller session
    counts, at the time of the first one.

    A single run says little, as estimators may round: it is the same only as in the session from
    logs before it.
    """
    kept: list[Night] = []
    held: list[frozenset[float]] = []  # the runs of each that is kept; of launches nothing
    by_run: dict[float, set[int]] = {}
    before: int | None = None
    for night in nights:
        own = frozenset(runs.get(night.measurement_id, ())) if night.is_from_logs else frozenset()
        if not own:
            kept.append(night)
            held.append(own)
            continue
        same = _same(own, held, by_run, before)
        if same is None:
            same = len(kept)
            kept.append(night)
            held.append(own)
        elif len(own) > len(held[same]):
            first = kept[same]
            kept[same] = night._replace(started=first.started, began=first.began)
            held[same] = own
        for run in own:
            by_run.setdefault(run, set()).add(same)
        before = same
    return kept


def _same(
    own: frozenset[float],
    held: Sequence[frozenset[float]],
    by_run: Mapping[float, set[int]],
    before: int | None,
) -> int | None:
    """Which of the nights that are kept is of the same logs."""
    for place in sorted(set().union(*(by_run.get(run, ()) for run in own))):
        both = own & held[place]
        if len(both) == min(len(own), len(held[place])) and (len(both) > 1 or place == before):
            return place
    return None
