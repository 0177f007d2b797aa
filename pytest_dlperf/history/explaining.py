"""Explain a number that did not simply pass: since when it is so, and what differs.

A measured number came to its level in some night; a case without one was measured whole in some
night for the last time. Only sessions before tonight's count, even if that is in the database.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import date, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct

from pytest_dlperf.history.nights import (
    judged_sessions,
    machines_of,
    nights_of,
    origin_of,
    starts_of,
)
from pytest_dlperf.history.rows import seconds_of
from pytest_dlperf.history.series import Day
from pytest_dlperf.history.trends import drift_of, level_began
from pytest_dlperf.model.differences import MeasuredOn, differences_of
from pytest_dlperf.model.judgement import Explanation, PastNight, Verdict
from pytest_dlperf.model.measurement import differences
from pytest_dlperf.model.results import day_of
from pytest_dlperf.model.statistics import difference_percent, median

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_dlperf.history.series import JudgedSession, Night, Series
    from pytest_dlperf.history.store import History
    from pytest_dlperf.model.baseline import Baseline
    from pytest_dlperf.model.judgement import Judgement
    from pytest_dlperf.model.measurement import Measurement

_MIN_CHANGE: Final = 0.01
"""An inconclusive number that is nearer to its reference, as a part of that, has not changed."""
_MIN_DRIFT_SHARE: Final = 0.5
"""A drift that makes less of tonight's difference does not explain it."""
_MIN_NIGHTS_FOR_WEEKDAYS: Final = 10
"""Fewer nights do not show which days of the week have one."""


class Tonight(Struct, frozen=True, kw_only=True):
    """Tonight's session, whose own measurements are no earlier nights.

    ``started`` is ISO 8601 with its zone; ``commit`` is the suite's and ``ci_run`` the address of
    the CI's run, as far as known.
    """

    session: str
    started: str
    commit: str | None = None
    ci_run: str | None = None


class Subject(Struct, frozen=True, kw_only=True):
    """What is to be explained: a judgement on a metric, with its measurement and baseline."""

    series: Series
    judgement: Judgement
    measurement: Measurement | None
    baseline: Baseline | None


class _Session(NamedTuple):
    """A session of the history, tonight's, or one that the baseline names.

    ``day`` is in tonight's time zone. ``measurement_id`` is ``None`` where the history does not
    have the session.
    """

    day: date
    started: str
    began: float
    median: float | None = None
    measurement_id: int | None = None


class _Change(NamedTuple):
    """When a number changed: the last session before, the first one after, the dates since."""

    last_good: _Session | None
    since: _Session | None
    dates: frozenset[date] = frozenset()
    is_gradual: bool = False


def explain(history: History | None, subject: Subject, tonight: Tonight) -> Explanation | None:
    """Explain a judgement by the history; without one, by the accepted number alone.

    ``None`` where there is nothing to explain, or nothing known.

    Raises:
        HistoryError: The history cannot be read.
        ValueError: The start of a session is not a valid time.
    """
    verdict = subject.judgement.verdict
    if not (verdict.is_change or verdict.has_no_number):
        return None
    return _Search(history, subject, tonight).explanation()


class _Search:
    """The search for one explanation in the history."""

    def __init__(self, history: History | None, subject: Subject, tonight: Tonight) -> None:
        at = tonight.started
        self._history, self._subject, self._tonight = history, subject, tonight
        self._judgement, self._series = subject.judgement, subject.series
        self._now = _Session(day_of(at, at), at, seconds_of(at), subject.judgement.measured)

    def explanation(self) -> Explanation | None:
        """Put together what is known; ``None`` without a session to compare with."""
        judgement, now = self._judgement, self._now
        is_level = judgement.verdict.is_change and judgement.measured and judgement.reference
        change = self._change_of_level() if is_level else self._first_broken()
        if change.since is now and not self._is_seamless(change.last_good, now):
            change = change._replace(since=None)
        if change.last_good is None and change.since is None:
            return None
        return self._describe(change)

    # -------------------------------------------------------------- when a number moved

    def _change_of_level(self) -> _Change:
        """Find the first session at tonight's level since the last one known to be good."""
        judgement = self._judgement
        levels = _Levels(judgement.reference or 0.0, judgement.measured or 0.0)
        known = self._comparable_sessions()
        good = self._last_accepted(known)
        if good is not None:
            known = [one for one in known if one.began > good.began]
        if not _has_moved(judgement):
            return _Change(good, None)
        if judgement.verdict is Verdict.INCONCLUSIVE and levels.are_alike:
            return _Change(known[-1] if known else good, None)
        start = _start_of_drift([*known, self._now], levels)
        is_gradual = start is not None
        if start is None:
            start = _start_of_level(known, levels)
        after = [*known[start:], self._now]
        return _Change(
            last_good=known[start - 1] if start else good,
            since=after[0],
            dates=frozenset(one.day for one in after if is_gradual or levels.is_tonights(one)),
            is_gradual=is_gradual,
        )

    def _comparable_sessions(self) -> list[_Session]:
        """List the earlier whole sessions of the metric on tonight's machine, the oldest first."""
        history, measurement = self._history, self._subject.measurement
        if history is None:
            return []
        nights = nights_of(
            history, self._series, until=self._now.began, besides=self._tonight.session
        )
        fingerprint = measurement.fingerprint if measurement is not None else None
        if fingerprint is not None:
            machines = machines_of(history, {night.fingerprint for night in nights})
            nights = [
                night
                for night in nights
                if not differences(machines.get(night.fingerprint, {}), fingerprint.machine)
            ]
        return [self._session(each) for each in nights if not each.broken and each.median > 0]

    def _session(self, night: Night | JudgedSession) -> _Session:
        return _Session(
            day_of(night.started, self._now.started),
            night.started,
            night.began,
            night.median,
            night.measurement_id,
        )

    def _last_accepted(self, known: Iterable[_Session]) -> _Session | None:
        """Return the last session whose number was accepted, as the history has it if it does."""
        # A later acceptance, or one by a wrong clock, is not of an earlier night.
        accepted = [one for one in self._accepted_sessions() if one.began < self._now.began]
        if not accepted:
            return None
        last = max(accepted, key=lambda one: one.began)
        return next((one for one in known if one.began == last.began), last)

    def _accepted_sessions(self) -> Iterator[_Session]:
        baseline = self._subject.baseline
        if baseline is None:
            return
        times = [(one.at, median(one.runs)) for one in baseline.sessions if one.runs]
        if baseline.acceptance is not None:
            times.append((baseline.acceptance.at, baseline.accepted))
        for at, number in times:
            with suppress(ValueError):  # a file written by hand may say it in words
                yield _Session(day_of(at, self._now.started), at, seconds_of(at), number)

    # -------------------------------------------------------------- when it broke

    def _first_broken(self) -> _Change:
        """Find the first session without the number since the last whole one."""
        broken: list[_Session] = []
        whole = None
        if self._history is not None:
            for night in judged_sessions(
                self._history, self._series, until=self._now.began, besides=self._tonight.session
            ):
                if night.is_whole:
                    whole = self._session(night)
                    break
                broken.append(self._session(night))
        # A case that is skipped here may have been accepted on any other machine.
        if self._judgement.verdict is not Verdict.SKIPPED:
            accepted = self._last_accepted(filter(None, [whole]))
            whole = max(filter(None, [whole, accepted]), key=lambda one: one.began, default=None)
        elif whole is None:
            return _Change(None, None)
        since = [one for one in broken if whole is None or one.began > whole.began]
        return _Change(
            last_good=whole,
            since=since[-1] if since else self._now,
            dates=frozenset(one.day for one in (*since, self._now)),
        )

    # ---------------------------------------------------------------- the explanation

    def _describe(self, change: _Change) -> Explanation:
        measurement, baseline, now = self._subject.measurement, self._subject.baseline, self._now
        acceptance = baseline.acceptance if baseline is not None else None
        last_good, since = change.last_good, change.since
        before = first_bad = None
        good_night = since_night = None
        if last_good is not None:
            good_night, before = self._past_night(last_good)
            if before is None and acceptance is not None and acceptance.at == last_good.started:
                good_night = PastNight(
                    at=last_good.started, commit=acceptance.commit, median=last_good.median
                )
        if since is now:
            since_night = PastNight(
                at=now.started,
                commit=self._tonight.commit,
                ci_run=self._tonight.ci_run,
                median=now.median,
            )
        elif since is not None:
            since_night, first_bad = self._past_night(since)
        accepted = None
        if acceptance is not None and baseline is not None:
            accepted = MeasuredOn.of_acceptance(acceptance, baseline.machine)
        fingerprint = measurement.fingerprint if measurement is not None else None
        return Explanation(
            since=since_night,
            last_good=good_night,
            nights=_days_between(last_good, now) if last_good is not None else None,
            nights_at_level=len(change.dates) or 1,
            or_earlier=self._may_be_earlier(change),
            unmeasured_nights=self._unmeasured_nights(change),
            is_gradual=change.is_gradual,
            differences=differences_of(
                accepted=accepted,
                last_good=before,
                first_bad=first_bad,
                tonight=MeasuredOn.of_night(fingerprint, self._tonight.commit),
            ),
        )

    def _past_night(self, one: _Session) -> tuple[PastNight, MeasuredOn | None]:
        """Describe an earlier session, and what it was measured on."""
        if self._history is None or one.measurement_id is None:
            return PastNight(at=one.started, median=one.median), None
        origin, fingerprint = origin_of(self._history, one.measurement_id)
        night = PastNight(
            at=one.started, commit=origin.commit, ci_run=origin.ci_run, median=one.median
        )
        return night, MeasuredOn.of_night(fingerprint, origin.commit)

    def _may_be_earlier(self, change: _Change) -> bool:
        """Whether the history begins after the last good night, and with the change."""
        since, good = change.since, change.last_good
        if since is None or good is None or since.measurement_id is None:
            return False
        return not self._is_seamless(good, since)

    def _is_seamless(self, last_good: _Session | None, other: _Session) -> bool:
        """Whether the history would have the nights between the last good session and another."""
        if last_good is None:
            return False
        if last_good.measurement_id is not None or _days_between(last_good, other) <= 1:
            return True
        days = self._days(until=other)
        return bool(days) and (days[0] - last_good.day).days <= 1

    def _days(self, *, until: _Session) -> list[date]:
        """List the last days on which the cluster had a session, the oldest first."""
        if self._history is None:
            return []
        starts = starts_of(self._history, self._series, until=until.began)
        return sorted({day_of(started, self._now.started) for started in starts})

    def _unmeasured_nights(self, change: _Change) -> int:
        """Count nights without the metric between both, where the cluster's nights come daily.

        Days of the week without nights, and those before the history begins, do not count.
        """
        last_good, since = change.last_good, change.since
        if last_good is None or since is None:
            return 0
        gap = _days_between(last_good, since)
        if gap <= 1:
            return 0
        nights = self._days(until=since)
        gaps = [(after - before).days for before, after in pairwise(nights)]
        if not gaps or median(gaps) > 1:
            return 0
        usual = set(range(7))
        if len(nights) >= _MIN_NIGHTS_FOR_WEEKDAYS:
            usual = {night.weekday() for night in nights}
        between = (last_good.day + timedelta(days) for days in range(1, gap))
        return sum(day >= nights[0] and day.weekday() in usual for day in between)


class _Levels(NamedTuple):
    """The level that tonight is held against, and tonight's."""

    reference: float
    tonight: float

    @property
    def are_alike(self) -> bool:
        return abs(self.tonight / self.reference - 1) < _MIN_CHANGE

    def is_tonights(self, one: _Session) -> bool:
        """Whether a session is nearer to tonight's level."""
        middle, number = (self.reference + self.tonight) / 2, one.median or 0.0
        return number == self.tonight or (number > middle) == (self.tonight > middle)

    def start(self, values: Sequence[float]) -> int:
        """Index of the first value at tonight's level."""
        return level_began(values, reference=self.reference, tonight=self.tonight)


def _has_moved(judgement: Judgement) -> bool:
    """Whether tonight's number is off its reference in the verdict's direction.

    A control arm may show a loss where it is not; the history has no control arm of other nights.
    """
    measured, reference = judgement.measured, judgement.reference
    better, verdict = judgement.metric.better, judgement.verdict
    if verdict is Verdict.INCONCLUSIVE:
        return True
    if measured is None or reference is None or better is None or measured == reference:
        return False
    gained = (measured > reference) == (better.sign > 0)
    return verdict is Verdict.ENVIRONMENT_SHIFT or gained == (verdict is Verdict.IMPROVED)


def _start_of_level(known: Sequence[_Session], levels: _Levels) -> int:
    """Index of the first session at tonight's level, by one number a day."""
    days = _by_date(known)
    day = levels.start([_median_of(there) for there in days])
    # Of a day with several sessions, some may have been before the change.
    first = max(day - 1, 0)
    around = [one.median or 0.0 for there in days[first : day + 1] for one in there]
    return sum(map(len, days[:first])) + levels.start(around)


def _start_of_drift(sessions: Sequence[_Session], levels: _Levels) -> int | None:
    """Index of the session from which the number has drifted; ``None`` where it came at once."""
    days = _by_date(sessions)
    drift = drift_of(
        [
            Day(
                index=0,
                started=there[0].started,
                began=there[0].began,
                median=_median_of(there),
                runs=0,
            )
            for there in days
        ]
    )
    whole = difference_percent(levels.tonight, levels.reference)
    if drift is None or drift.percent / whole < _MIN_DRIFT_SHARE:
        return None
    return sum(map(len, days[: -drift.nights]))


def _by_date(sessions: Iterable[_Session]) -> list[list[_Session]]:
    days: dict[date, list[_Session]] = {}
    for one in sessions:
        days.setdefault(one.day, []).append(one)
    return list(days.values())


def _median_of(sessions: Iterable[_Session]) -> float:
    return median([one.median or 0.0 for one in sessions])


def _days_between(one: _Session, other: _Session) -> int:
    return (other.day - one.day).days
