"""Whether the night came: the last sessions of each cluster, and what is told where none did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct

from pytest_dlperf.model.numbers import counted
from pytest_dlperf.model.results import Origin, parse_time
from pytest_dlperf.night.explanation_words import dated, short_commit
from pytest_dlperf.night.pieces import phrase
from pytest_dlperf.night.texts import address, printable
from pytest_dlperf.notices.notice import Block, Notice
from pytest_dlperf.reports.markdown_text import bullets, inline

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from pytest_dlperf.history.store import History
    from pytest_dlperf.model.results import Results

_SESSIONS: Final = """
    SELECT cluster, started, ended, interrupted, environment,
    (SELECT count(DISTINCT case_id) FROM measurements
        WHERE session_id = sessions.id AND median IS NOT NULL) AS cases
    FROM sessions
"""
_CLOCKS_DIFFER_S: Final = 3600.0
"""How far ahead a session's clock may be."""
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


class _SessionRow(NamedTuple):
    """A row of ``sessions``, and how many of its cases have a number."""

    cluster: str
    started: str
    ended: str | None
    interrupted: int
    environment: str
    cases: int


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
    whole: PastSession | None = None
    """The last one that ended and measured enough cases."""
    later: PastSession | None = None
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


def is_overdue(last: LastSessions, now: datetime, within_s: float) -> bool:
    """Tell whether no whole session has ended within so many seconds."""
    return last.whole is None or now.timestamp() - last.whole.ended_s > within_s


def overdue_notice(overdue: Sequence[LastSessions], now: datetime, within_s: float) -> Notice:
    """Say of which clusters the night did not come, and what is known of it."""
    named = ", ".join(printable(last.cluster) for last in overdue)
    since = ""
    if len(overdue) == 1:
        whole = overdue[0].whole
        since = f"; the last ended {_when(whole, now)}" if whole else "; there was none before"
    subject = f"dlperf {named}: no whole session within {_lasting(within_s)}{since}"
    lines = [line for last in overdue for line in _lines(last, now)]
    sessions = [one for last in overdue for one in (last.later, last.whole) if one]
    return Notice(
        subject=subject,
        blocks=(Block(tuple(phrase("{}", line) for line in lines)),),
        markdown=f"**{inline(subject)}.**\n\n{bullets(map(inline, lines))}\n",
        cluster=overdue[0].cluster if len(overdue) == 1 else None,
        is_red=True,
        ci_run=next(filter(None, (address(one.origin.ci_run) for one in sessions)), None),
    )


def session_line(session: PastSession, now: datetime) -> str:
    """Say when a whole session ended, and what it was."""
    return printable(
        f"last whole session of {session.cluster}: ended {_when(session, now)}, "
        f"{', '.join(_facts(session))}"
    )


def _lasting(seconds: float) -> str:
    """Write a time in its two largest units: ``2 d 3 h``, ``26 h``, ``5 min``."""
    whole = max(int(seconds), 0)
    if whole < _HOUR:
        return f"{whole // _MINUTE} min"
    hours, minutes = divmod(whole // _MINUTE, 60)
    if whole < 2 * _DAY:
        return f"{hours} h" + (f" {minutes} min" if minutes else "")
    days, hours = divmod(hours, 24)
    return f"{days} d" + (f" {hours} h" if hours else "")


def _lines(last: LastSessions, now: datetime) -> Iterator[str]:
    if last.whole is not None:
        yield session_line(last.whole, now)
    else:
        yield f"no whole session of {printable(last.cluster)} is known"
    if last.later is not None:
        yield _later_line(last.later, now)
    else:
        yield f"no session of {printable(last.cluster)} has begun since, as far as is known here"


def _later_line(session: PastSession, now: datetime) -> str:
    began = f"one began {_day_and_time(session.started, now)}"
    if session.ended is None:
        what = "it has not ended: it still runs, or was killed"
    elif session.interrupted:
        what = f"it was interrupted {_day_and_time(session.ended, now)}"
    else:
        what = f"it ended {_day_and_time(session.ended, now)} with too few cases"
    return printable(f"{began}, {', '.join(_facts(session))}; {what}")


def _facts(session: PastSession) -> Iterator[str]:
    yield f"{counted(session.cases, 'case')} measured"
    commit, _, ci_run = session.origin
    if commit:
        yield f"commit {short_commit(commit)}"
    if ci_run:
        yield ci_run


def _when(session: PastSession, now: datetime) -> str:
    ago = _lasting(now.timestamp() - session.ended_s)
    return f"{_day_and_time(session.ended or session.started, now)} ({ago} ago)"


def _day_and_time(text: str, now: datetime) -> str:
    """Write a time as the clock of the session's own machine showed it."""
    try:
        at = parse_time(text)
    except ValueError:
        return text
    return f"{dated(text, now.isoformat(timespec='seconds'))} {at:%H:%M}"
