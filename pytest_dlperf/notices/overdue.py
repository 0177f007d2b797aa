"""What is told when the night did not come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_dlperf.model.numbers import counted
from pytest_dlperf.model.results import parse_time
from pytest_dlperf.night.explanation_words import dated, short_commit
from pytest_dlperf.night.pieces import phrase
from pytest_dlperf.night.texts import address, printable
from pytest_dlperf.notices.notice import Block, Notice
from pytest_dlperf.reports.markdown_text import bullets, inline

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from pytest_dlperf.history.last_sessions import LastSessions, PastSession

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


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
    subject = f"dlperf {named}: no whole session within {lasting(within_s)}{since}"
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


def lasting(seconds: float) -> str:
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
    ago = lasting(now.timestamp() - session.ended_s)
    return f"{_day_and_time(session.ended or session.started, now)} ({ago} ago)"


def _day_and_time(text: str, now: datetime) -> str:
    """Write a time as the clock of the session's own machine showed it."""
    try:
        at = parse_time(text)
    except ValueError:
        return text
    return f"{dated(text, now.isoformat(timespec='seconds'))} {at:%H:%M}"
