"""Explain a number that did not simply pass: since when it is so, and what differs.

A measured number came to its level in some night; a case without one was measured whole in some
night for the last time. Only sessions before tonight's count, even if that is in the database.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from functools import cached_property
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.history.levels import (
    Levels,
    SessionPoint,
    days_between,
    has_moved,
    start_of_level,
)
from pytest_dlperf.history.nights import (
    judged_sessions,
    machines_of,
    nights_of,
    origin_of,
    starts_of,
)
from pytest_dlperf.history.rows import seconds_of
from pytest_dlperf.history.series import GREEN, JudgedSession, Point, Series
from pytest_dlperf.history.store import History
from pytest_dlperf.model.baseline import Baseline
from pytest_dlperf.model.commits import SUITE, Checkout, CommitRange, commits_between
from pytest_dlperf.model.differences import compared, compared_acceptance, differences_of
from pytest_dlperf.model.judgement import (
    Difference,
    DifferenceKind,
    Explanation,
    Judgement,
    PastSession,
    Verdict,
)
from pytest_dlperf.model.measurement import Fingerprint, Measurement, differences
from pytest_dlperf.model.results import day_of
from pytest_dlperf.model.statistics import median


class Tonight(Struct, frozen=True, kw_only=True):
    """Tonight's session, whose own measurements are no earlier nights.

    ``started`` is ISO 8601 with its zone; ``commit`` is the suite's, ``checkout`` what else is
    known of that, and ``ci_run`` the address of the CI's run, as far as known.
    """

    session: str
    started: str
    commit: str | None = None
    checkout: Checkout = Checkout()
    ci_run: str | None = None


class Subject(Struct, frozen=True, kw_only=True):
    """What is to be explained: a judgement on a metric, with its measurement and baseline."""

    series: Series
    judgement: Judgement
    measurement: Measurement | None
    baseline: Baseline | None
    has_unfit_hosts: bool = False
    """Whether hosts that cannot be used are why there is no number, and nothing that differs."""
    has_lost_cause: Callable[[Collection[str]], bool] | None = None
    """Whether a session at these commits had one that was found to be the cause, and that the
    checkout has no longer; ``None`` where there is none."""


class _Change(NamedTuple):
    """When a number changed: the last good session, the first one after, the dates since.

    ``red`` is the first of the sessions right before ``since`` that were red.
    """

    last_good: SessionPoint | None
    since: SessionPoint | None
    dates: frozenset[date] = frozenset()
    red: SessionPoint | None = None


def explain(history: History | None, subject: Subject, tonight: Tonight) -> Explanation | None:
    """Explain a judgement by the history; without one, by the accepted number alone.

    ``None`` where there is nothing to explain, or nothing known.

    Raises:
        HistoryError: The history cannot be read.
        ValueError: The start of a session is not a valid time.
    """
    verdict = subject.judgement.verdict
    search = _Search(history, subject, tonight)
    if verdict is Verdict.PASS:
        return search.recovery()
    explained = verdict.is_change or verdict.has_no_number
    return search.explanation() if explained else None


class _Search:
    """The search for one explanation in the history."""

    def __init__(self, history: History | None, subject: Subject, tonight: Tonight) -> None:
        at = tonight.started
        self._history, self._subject, self._tonight = history, subject, tonight
        self._judgement, self._series = subject.judgement, subject.series
        self._now = SessionPoint(day_of(at, at), at, seconds_of(at), subject.judgement.measured)

    def explanation(self) -> Explanation | None:
        """Put together what is known; ``None`` without a session to compare with."""
        judgement, now = self._judgement, self._now
        is_level = judgement.verdict.is_change and judgement.measured and judgement.decision
        change = self._change_of_level() if is_level else self._first_broken()
        if change.since is now and not self._is_seamless(change.last_good, now):
            change = change._replace(since=None)
        if change.last_good is None and change.since is None:
            return None
        return self._describe(change)

    def recovery(self) -> Explanation | None:
        """Tell since when a number was red that passes again; ``None`` where it was not."""
        _, red = self._before(self._now, self._last_accepted(()))
        return Explanation(red_since=self._past_night(red)[0]) if red is not None else None

    # -------------------------------------------------------------- nights that were red

    @cached_property
    def _judged(self) -> list[JudgedSession]:
        """The earlier sessions that judged the metric, the last one first."""
        history, series, until = self._history, self._series, self._now.began
        if history is None:
            return []
        return judged_sessions(history, series, until=until, besides=self._tonight.session)

    def _before(
        self,
        since: SessionPoint,
        accepted: SessionPoint | None,
        known: Collection[int] | None = None,
    ) -> tuple[SessionPoint | None, SessionPoint | None]:
        """Find the last good session before another, and the first red one between.

        An ``accepted`` session was good, whatever its verdict. Only those ``known``, by their ids,
        can be good; ``None``: all.
        """
        red: SessionPoint | None = None
        is_right_before = True
        for night in self._judged:
            if since is not self._now and night.began >= since.began:
                continue
            if accepted is not None and night.began <= accepted.began:
                is_known = accepted.measurement_id is None and night.began == accepted.began
                return (self._session(night) if is_known else accepted), red
            if night.is_red:
                red = self._session(night) if is_right_before else red
            elif night.is_whole:
                if known is None or night.measurement_id in known:
                    return self._session(night), red
                is_right_before = False
        return accepted, red

    # -------------------------------------------------------------- when a number moved

    def _change_of_level(self) -> _Change:
        """Find the first session at tonight's level since the last one known to be good."""
        judgement = self._judgement
        reference = judgement.decision.reference if judgement.decision else 0.0
        levels = Levels(reference, judgement.measured or 0.0)
        known = self._comparable_sessions()
        good = self._last_accepted(known)
        if good is not None:
            known = [one for one in known if one.began > good.began]
        if not has_moved(judgement):
            return _Change(good, None)
        known = known[self._end_of_earlier_story(known, levels) :]
        comparable = {one.measurement_id for one in known if one.measurement_id is not None}
        if judgement.verdict is Verdict.INCONCLUSIVE and levels.are_alike:
            last_good, red = self._before(self._now, good, comparable)
            return _Change(last_good, None, red=red)
        after = known[start_of_level(known, levels) :]
        lost = [at for at, one in enumerate(after, 1) if self._has_lost_cause(one)]
        after = [*after[lost[-1] if lost else 0 :], self._now]
        last_good, red = self._before(after[0], good, comparable)
        return _Change(
            last_good=last_good,
            since=after[0],
            dates=frozenset(one.day for one in after if levels.is_tonights(one)),
            red=red,
        )

    def _end_of_earlier_story(self, known: Sequence[SessionPoint], levels: Levels) -> int:
        """Index of the last session that was green at another commit than a bad one before it."""
        end, moved = 0, None
        for index, one in enumerate(known):
            if levels.is_tonights(one):
                moved = one
            elif moved is not None and one.is_green and self._commits_differ(moved, one):
                end, moved = index, None
        return end

    def _commits_differ(self, one: SessionPoint, other: SessionPoint) -> bool:
        return bool(differences(self._commits_of(one), self._commits_of(other)))

    def _has_lost_cause(self, one: SessionPoint) -> bool:
        has_lost = self._subject.has_lost_cause
        return has_lost is not None and has_lost(self._commits_of(one).values())

    def _commits_of(self, one: SessionPoint) -> dict[str, str]:
        """Return the known commits that an earlier session was measured at."""
        _, taken_on = self._past_night(one)
        return dict(taken_on.commits) if taken_on is not None else {}

    def _comparable_sessions(self) -> list[SessionPoint]:
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

    def _session(self, night: Point | JudgedSession) -> SessionPoint:
        return SessionPoint(
            day_of(night.started, self._now.started),
            night.started,
            night.began,
            night.median,
            night.measurement_id,
            night.verdict_word in GREEN,
        )

    def _last_accepted(self, known: Iterable[SessionPoint]) -> SessionPoint | None:
        """Return the last session whose number was accepted, as the history has it if it does."""
        # A later acceptance, or one by a wrong clock, is not of an earlier night.
        accepted = [one for one in self._accepted_sessions() if one.began < self._now.began]
        if not accepted:
            return None
        last = max(accepted, key=lambda one: one.began)
        return next((one for one in known if one.began == last.began), last)

    def _accepted_sessions(self) -> Iterator[SessionPoint]:
        baseline = self._subject.baseline
        if baseline is None:
            return
        times = [(one.at, median(one.runs)) for one in baseline.sessions if one.runs]
        if baseline.acceptance is not None:
            times.append((baseline.acceptance.at, baseline.accepted))
        for at, number in times:
            with suppress(ValueError):  # a file written by hand may say it in words
                yield SessionPoint(day_of(at, self._now.started), at, seconds_of(at), number)

    # -------------------------------------------------------------- when it broke

    def _first_broken(self) -> _Change:
        """Find the first session without the number since the last whole one."""
        since, dates = self._now, {self._now.day}
        is_skipped = self._judgement.verdict is Verdict.SKIPPED
        # A case that is skipped here may have been accepted on any other machine.
        accepted = None if is_skipped else self._last_accepted(())
        for night in self._judged:
            if night.is_whole or (accepted is not None and night.began <= accepted.began):
                break
            since = self._session(night)
            dates.add(since.day)
        else:
            if is_skipped:
                return _Change(None, None)
        last_good, red = self._before(since, accepted)
        return _Change(last_good, since, dates=frozenset(dates), red=red)

    # ---------------------------------------------------------------- the explanation

    def _describe(self, change: _Change) -> Explanation:
        measurement, baseline, now = self._subject.measurement, self._subject.baseline, self._now
        acceptance = baseline.acceptance if baseline is not None else None
        last_good, since, red = change.last_good, change.since, change.red
        on_good = on_since = None
        good_night = since_night = red_night = None
        if last_good is not None:
            good_night, on_good = self._past_night(last_good)
            if on_good is None and acceptance is not None and acceptance.at == last_good.started:
                good_night = PastSession(
                    at=last_good.started, commit=acceptance.commit, median=last_good.median
                )
        if since is now:
            since_night = PastSession(
                at=now.started,
                commit=self._tonight.commit,
                ci_run=self._tonight.ci_run,
                median=now.median,
            )
        elif since is not None:
            since_night, on_since = self._past_night(since)
        if red is not None:
            red_night, _ = self._past_night(red)
        fingerprint = measurement.fingerprint if measurement is not None else None
        is_hosts = self._subject.has_unfit_hosts and self._judgement.verdict.has_no_number
        checkouts = {SUITE: self._tonight.checkout}
        checkouts.update(measurement.checkouts if measurement else {})
        found = tuple(
            replace(one, checkout=checkouts[one.name].name)
            if one.kind is DifferenceKind.COMMIT and one.name in checkouts
            else one
            for one in (
                ()
                if is_hosts
                else differences_of(
                    compared(fingerprint, self._tonight.commit),
                    accepted=compared_acceptance(baseline),
                    last_good=on_good,
                    since=on_since,
                )
            )
        )
        return Explanation(
            since=since_night,
            red_since=red_night,
            last_good=good_night,
            days=days_between(last_good, now) if last_good is not None else None,
            days_at_level=len(change.dates) or 1,
            differences=found,
            commits=tuple(_commits(found, on_since, checkouts)),
        )

    def _past_night(self, one: SessionPoint) -> tuple[PastSession, Fingerprint | None]:
        """Describe an earlier session, and what it was measured on."""
        if self._history is None or one.measurement_id is None:
            return PastSession(at=one.started, median=one.median), None
        origin, fingerprint = origin_of(self._history, one.measurement_id)
        night = PastSession(
            at=one.started, commit=origin.commit, ci_run=origin.ci_run, median=one.median
        )
        return night, compared(fingerprint, origin.commit)

    def _is_seamless(self, last_good: SessionPoint | None, other: SessionPoint) -> bool:
        """Whether the history would have the nights between the last good session and another."""
        if last_good is None:
            return False
        if last_good.measurement_id is not None or days_between(last_good, other) <= 1:
            return True
        days = self._days(until=other)
        return bool(days) and (days[0] - last_good.day).days <= 1

    def _days(self, *, until: SessionPoint) -> list[date]:
        """List the last days on which the cluster had a session, the oldest first."""
        if self._history is None:
            return []
        starts = starts_of(self._history, self._series, until=until.began)
        return sorted({day_of(started, self._now.started) for started in starts})


def _commits(
    differences: Iterable[Difference], since: Fingerprint | None, checkouts: Mapping[str, Checkout]
) -> Iterator[CommitRange]:
    """Yield the commits that came with the change, of each checkout."""
    ends = since.commits if since else {}
    for one in differences:
        first, last = one.last_good, ends.get(one.name) or one.now
        if one.kind is DifferenceKind.COMMIT and one.came_with_it and first and last:
            found = commits_between(checkouts, one.name, first, last)
            if found is not None:
                yield found
