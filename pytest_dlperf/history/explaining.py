"""Explain a number that did not simply pass: since when it is so, and what is not as before.

What has a number came to its level in some night; what was not measured was whole in some night for
the last time. Only sessions before tonight's count, also where that is in the database already.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from pytest_dlperf.history.nights import (
    asked_sessions,
    machines_of,
    nights_of,
    origin_of,
    starts_of,
)
from pytest_dlperf.history.rows import seconds_of
from pytest_dlperf.history.series import Day
from pytest_dlperf.history.trends import drift_of, level_began
from pytest_dlperf.model.differences import Surroundings, differences_of
from pytest_dlperf.model.explanation import Explanation, PastNight
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.measurement import differences
from pytest_dlperf.model.results import day_of
from pytest_dlperf.model.statistics import median

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_dlperf.history.series import AskedSession, Night, Series
    from pytest_dlperf.history.store import History
    from pytest_dlperf.model.baseline import Baseline
    from pytest_dlperf.model.judgement import Judgement
    from pytest_dlperf.model.measurement import Measurement

_NO_CHANGE: Final = 0.01
"""What is inconclusive and no further from its reference, as a part of that, began nowhere."""
_MOST_OF: Final = 0.5
"""How much of tonight's difference a drift has to make to be what there is to tell."""
_FEW_NIGHTS: Final = 10
"""So few nights do not show which days of the week have one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tonight:
    """The session that asks: none of its own measurements is an earlier night.

    ``started`` is ISO 8601 with its zone; ``commit`` is the suite's and ``ci_run`` the address of
    the CI's run, as far as known.
    """

    session: str
    started: str
    commit: str | None = None
    ci_run: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is to be explained: a judgement on a metric of a case, and what it rests on."""

    series: Series
    judgement: Judgement
    measurement: Measurement | None
    baseline: Baseline | None


class _Session(NamedTuple):
    """A place in time: a session of the history, tonight, or one that the baseline names.

    ``day`` is as tonight's reader sees it. ``measurement_id`` is ``None`` where the history does
    not have it.
    """

    day: date
    started: str
    began: float
    median: float | None = None
    measurement_id: int | None = None


class _Change(NamedTuple):
    """When it came: the last session before, the first one with it, and the dates that have it."""

    last_good: _Session | None
    since: _Session | None
    dates: frozenset[date] = frozenset()
    is_gradual: bool = False


def explain(history: History | None, subject: Subject, tonight: Tonight) -> Explanation | None:
    """Explain a judgement, as far as the history tells; without one, by the accepted number alone.

    ``None`` where there is nothing to explain, or nothing known.

    Raises:
        HistoryError: The history cannot be read.
        ValueError: Tonight's session began at no time.
    """
    judgement = subject.judgement
    if not (judgement.verdict.is_of_change or judgement.verdict.is_of_nothing):
        return None
    at = tonight.started
    now = _Session(day_of(at, at), at, seconds_of(at), judgement.measured)
    if judgement.verdict.is_of_change and judgement.measured and judgement.reference:
        change = _of_level(history, subject, tonight, now)
    else:
        change = _of_break(history, subject, tonight, now)
    if change.since is now and not _is_seamless(history, subject.series, change.last_good, now):
        change = change._replace(since=None)
    if change.last_good is None and change.since is None:
        return None
    return _explanation(history, subject, tonight, now, change)


# ------------------------------------------------------------------ when a number moved


def _has_moved(judgement: Judgement) -> bool:
    """Say whether tonight's number is off its reference in the verdict's direction.

    A control arm may tell a loss where it is not, and the history has no control of other nights.
    """
    measured, reference = judgement.measured, judgement.reference
    better, verdict = judgement.metric.better, judgement.verdict
    if verdict is Verdict.INCONCLUSIVE:
        return True
    if measured is None or reference is None or better is None or measured == reference:
        return False
    gained = (measured > reference) == (better.sign > 0)
    return verdict is Verdict.ENVIRONMENT_SHIFT or gained == (verdict is Verdict.IMPROVED)


def _of_level(
    history: History | None, subject: Subject, tonight: Tonight, now: _Session
) -> _Change:
    """Find the first session at tonight's level since the last one that is known to be good."""
    judgement = subject.judgement
    levels = _Levels(judgement.reference or 0.0, judgement.measured or 0.0)
    known = [] if history is None else _comparable(history, subject, tonight, now)
    good = _known_good(subject.baseline, known, now)
    if good is not None:
        known = [one for one in known if one.began > good.began]
    if not _has_moved(judgement):
        return _Change(good, None)
    if judgement.verdict is Verdict.INCONCLUSIVE and levels.are_alike:
        return _Change(known[-1] if known else good, None)
    start = _drifting_from(known, levels, now)
    is_gradual = start is not None
    if start is None:
        start = _stepped_at(known, levels)
    after = [*known[start:], now]
    return _Change(
        last_good=known[start - 1] if start else good,
        since=after[0],
        dates=frozenset(one.day for one in after if is_gradual or levels.has_tonights(one)),
        is_gradual=is_gradual,
    )


class _Levels(NamedTuple):
    """The level that tonight is held against, and tonight's."""

    reference: float
    tonight: float

    @property
    def are_alike(self) -> bool:
        return abs(self.tonight / self.reference - 1) < _NO_CHANGE

    def has_tonights(self, one: _Session) -> bool:
        middle, number = (self.reference + self.tonight) / 2, one.median or 0.0
        return number == self.tonight or (number > middle) == (self.tonight > middle)

    def began(self, values: Sequence[float]) -> int:
        return level_began(values, reference=self.reference, tonight=self.tonight)


def _comparable(
    history: History, subject: Subject, tonight: Tonight, now: _Session
) -> list[_Session]:
    """List the earlier whole sessions of the metric on tonight's machine, the oldest first."""
    nights = nights_of(history, subject.series, until=now.began, besides=tonight.session)
    fingerprint = subject.measurement.fingerprint if subject.measurement is not None else None
    if fingerprint is not None:
        machines = machines_of(history, {night.fingerprint for night in nights})
        nights = [
            night
            for night in nights
            if not differences(machines.get(night.fingerprint, {}), fingerprint.machine)
        ]
    return [_session(night, now) for night in nights if not night.broken and night.median > 0]


def _session(night: Night | AskedSession, now: _Session) -> _Session:
    return _Session(
        day_of(night.started, now.started),
        night.started,
        night.began,
        night.median,
        night.measurement_id,
    )


def _known_good(
    baseline: Baseline | None, known: Iterable[_Session], now: _Session
) -> _Session | None:
    """Give the last session that somebody has accepted, as the history has it if it does."""
    # What was accepted after tonight began, or by a wrong clock, is no earlier night.
    accepted = [one for one in _accepted_sessions(baseline, now) if one.began < now.began]
    if not accepted:
        return None
    last = max(accepted, key=lambda one: one.began)
    return next((one for one in known if one.began == last.began), last)


def _accepted_sessions(baseline: Baseline | None, now: _Session) -> Iterator[_Session]:
    if baseline is None:
        return
    times = [(one.at, median(one.runs)) for one in baseline.sessions if one.runs]
    if baseline.acceptance is not None:
        times.append((baseline.acceptance.at, baseline.accepted))
    for at, number in times:
        with suppress(ValueError):  # a file written by hand may say it in words
            yield _Session(day_of(at, now.started), at, seconds_of(at), number)


def _stepped_at(known: Sequence[_Session], levels: _Levels) -> int:
    """Give the index of the first session at tonight's level, going by one number a day."""
    days = _by_date(known)
    day = levels.began([median([one.median or 0.0 for one in there]) for there in days])
    # Of a day with several sessions, some may have been before it.
    first = max(day - 1, 0)
    around = [one.median or 0.0 for there in days[first : day + 1] for one in there]
    return sum(map(len, days[:first])) + levels.began(around)


def _drifting_from(known: Sequence[_Session], levels: _Levels, now: _Session) -> int | None:
    """Give the index from which the number has drifted here; ``None`` where it came at once."""
    days = _by_date([*known, now])
    drift = drift_of(
        [
            Day(
                index=0,
                started=there[0].started,
                began=there[0].began,
                median=median([one.median or 0.0 for one in there]),
                runs=0,
            )
            for there in days
        ]
    )
    whole = 100 * (levels.tonight / levels.reference - 1)
    if drift is None or drift.percent / whole < _MOST_OF:
        return None
    return sum(map(len, days[: -drift.nights]))


def _by_date(sessions: Iterable[_Session]) -> list[list[_Session]]:
    days: dict[date, list[_Session]] = {}
    for one in sessions:
        days.setdefault(one.day, []).append(one)
    return list(days.values())


# ------------------------------------------------------------------ when it broke


def _of_break(
    history: History | None, subject: Subject, tonight: Tonight, now: _Session
) -> _Change:
    """Find the first session after the last whole one that has asked for it in vain."""
    broken: list[_Session] = []
    whole = None
    if history is not None:
        series, until, own = subject.series, now.began, tonight.session
        for night in asked_sessions(history, series, until=until, besides=own):
            if night.is_whole:
                whole = _session(night, now)
                break
            broken.append(_session(night, now))
    # What cannot be measured here may have been accepted anywhere.
    if subject.judgement.verdict is not Verdict.SKIPPED:
        accepted = _known_good(subject.baseline, filter(None, [whole]), now)
        whole = max(filter(None, [whole, accepted]), key=lambda one: one.began, default=None)
    if whole is None and subject.judgement.verdict is Verdict.SKIPPED:
        return _Change(None, None)
    since = [one for one in broken if whole is None or one.began > whole.began]
    return _Change(
        last_good=whole,
        since=since[-1] if since else now,
        dates=frozenset(one.day for one in (*since, now)),
    )


# ------------------------------------------------------------------ what there is to say


def _explanation(
    history: History | None, subject: Subject, tonight: Tonight, now: _Session, change: _Change
) -> Explanation:
    measurement, baseline = subject.measurement, subject.baseline
    acceptance = baseline.acceptance if baseline is not None else None
    last_good, since = change.last_good, change.since
    before = first_bad = None
    good_night = since_night = None
    if last_good is not None:
        good_night, before = _night(history, last_good)
        if before is None and acceptance is not None and acceptance.at == last_good.started:
            good_night = PastNight(
                at=last_good.started, commit=acceptance.commit, median=last_good.median
            )
    if since is now:
        since_night = PastNight(
            at=tonight.started, commit=tonight.commit, ci_run=tonight.ci_run, median=now.median
        )
    elif since is not None:
        since_night, first_bad = _night(history, since)
    accepted = None
    if acceptance is not None and baseline is not None:
        accepted = Surroundings.of_acceptance(acceptance, baseline.machine)
    fingerprint = measurement.fingerprint if measurement is not None else None
    return Explanation(
        since=since_night,
        last_good=good_night,
        nights=_days_between(last_good, now) if last_good is not None else None,
        nights_at_level=len(change.dates) or 1,
        or_earlier=_may_be_earlier(history, subject.series, change),
        unmeasured_nights=_unmeasured(history, subject.series, change, now),
        is_gradual=change.is_gradual,
        differences=differences_of(
            accepted=accepted,
            last_good=before,
            first_bad=first_bad,
            tonight=Surroundings.of_night(fingerprint, tonight.commit),
        ),
    )


def _may_be_earlier(history: History | None, series: Series, change: _Change) -> bool:
    """Say whether the history begins after the last good night, and with what has changed."""
    since, good = change.since, change.last_good
    if since is None or good is None or since.measurement_id is None:
        return False
    return not _is_seamless(history, series, good, since)


def _is_seamless(
    history: History | None, series: Series, last_good: _Session | None, now: _Session
) -> bool:
    """Say whether the history would know of nights between the last good one and another."""
    if last_good is None:
        return False
    if last_good.measurement_id is not None or _days_between(last_good, now) <= 1:
        return True
    days = [] if history is None else _days_of(history, series, now, until=now)
    return bool(days) and (days[0] - last_good.day).days <= 1


def _night(history: History | None, one: _Session) -> tuple[PastNight, Surroundings | None]:
    """Tell what is known of an earlier session, and what it was measured on."""
    if history is None or one.measurement_id is None:
        return PastNight(at=one.started, median=one.median), None
    origin, fingerprint = origin_of(history, one.measurement_id)
    night = PastNight(at=one.started, commit=origin.commit, ci_run=origin.ci_run, median=one.median)
    return night, Surroundings.of_night(fingerprint, origin.commit)


def _days_between(one: _Session, other: _Session) -> int:
    return (other.day - one.day).days


def _days_of(history: History, series: Series, now: _Session, *, until: _Session) -> list[date]:
    """List the last days on which the cluster had a session, the oldest first."""
    starts = starts_of(history, series, until=until.began)
    return sorted({day_of(started, now.started) for started in starts})


def _unmeasured(history: History | None, series: Series, change: _Change, now: _Session) -> int:
    """Count nights without the metric between both, where the cluster's nights come daily.

    Days of the week that have none, and what lies before the history, are no such nights.
    """
    last_good, since = change.last_good, change.since
    if history is None or last_good is None or since is None:
        return 0
    gap = _days_between(last_good, since)
    if gap <= 1:
        return 0
    nights = _days_of(history, series, now, until=since)
    gaps = [(after - before).days for before, after in pairwise(nights)]
    if not gaps or median(gaps) > 1:
        return 0
    usual = {night.weekday() for night in nights} if len(nights) >= _FEW_NIGHTS else set(range(7))
    between = (last_good.day + timedelta(days) for days in range(1, gap))
    return sum(day >= nights[0] and day.weekday() in usual for day in between)
