"""The last sessions of each cluster: the last whole one, and a broken one after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct

from pytest_dlperf.model.results import Origin, parse_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_dlperf.history.store import History
    from pytest_dlperf.model.results import Results

_SESSIONS: Final = """
    SELECT cluster, started, ended, interrupted, environment,
    (SELECT count(DISTINCT case_id) FROM measurements
        WHERE session_id = sessions.id AND median IS NOT NULL) AS cases
    FROM sessions
"""


class _SessionRow(NamedTuple):
    """A row of ``sessions``, and how many of its cases have a number."""

    cluster: str
    started: str
    ended: str | None
    interrupted: int
    environment: str
    cases: int


_CLOCKS_DIFFER_S: Final = 3600.0
"""How far ahead a session's clock may be."""


class PastSession(Struct, frozen=True, kw_only=True):
    """A session, as far as ``history overdue`` needs it."""

    cluster: str
    started: str
    """ISO 8601 with its zone, like ``ended``."""
    ended: str | None
    """``None`` while it runs, and if it was killed."""
    interrupted: bool
    cases: int
    """Number of cases with a number."""
    origin: Origin

    @property
    def began_s(self) -> float:
        """When it began, in seconds of the Unix epoch."""
        return _seconds(self.started)

    @property
    def ended_s(self) -> float:
        """When it ended, likewise; when it began if its end is unknown."""
        return _seconds(self.ended) if self.ended else self.began_s


class LastSessions(Struct, frozen=True, kw_only=True):
    """The last sessions of a cluster."""

    cluster: str
    whole: PastSession | None
    """The last one that ended and measured enough cases."""
    later: PastSession | None
    """The last one that began after it, and did not."""


def sessions_of_history(history: History) -> Iterator[PastSession]:
    """Yield all sessions of the database."""
    for row in history.tuples(_SESSIONS, _SessionRow):
        yield PastSession(
            cluster=row.cluster,
            started=row.started,
            ended=row.ended,
            interrupted=bool(row.interrupted),
            cases=row.cases,
            origin=Origin.of(history.decoded(row.environment, dict[str, Any])),
        )


def session_of_results(results: Results) -> PastSession:
    """Make the session of a results file, which only whole sessions write."""
    return PastSession(
        cluster=results.cluster,
        started=results.started,
        ended=results.ended or results.started,
        interrupted=results.interrupted,
        cases=sum(
            any(known.median is not None for known in result.metrics().values())
            for result in results.cases
        ),
        origin=results.origin,
    )


def last_sessions(
    sessions: Iterable[PastSession], *, min_cases: int, now_s: float
) -> list[LastSessions]:
    """Find the last sessions of each cluster; one with fewer cases is not whole.

    A session that ended in the future had a wrong clock, and is left out: it would be the last one
    until then.
    """
    by_cluster: dict[str, list[PastSession]] = {}
    for session in sessions:
        by_cluster.setdefault(session.cluster, []).append(session)
    found = []
    for cluster, all_known in sorted(by_cluster.items()):
        known = [one for one in all_known if one.ended_s <= now_s + _CLOCKS_DIFFER_S]
        whole = [one for one in known if _is_whole(one, min_cases)]
        last = max(whole, key=lambda one: one.ended_s, default=None)
        later = [one for one in known if last is None or one.began_s > last.began_s]
        rest = [one for one in later if one is not last]
        latest = max(rest, key=lambda one: one.began_s, default=None)
        found.append(LastSessions(cluster=cluster, whole=last, later=latest))
    return found


def _is_whole(session: PastSession, min_cases: int) -> bool:
    is_ended = session.ended is not None and not session.interrupted
    return is_ended and session.cases >= min_cases


def _seconds(text: str) -> float:
    try:
        return parse_time(text).timestamp()
    except (ValueError, OverflowError):
        return 0.0
