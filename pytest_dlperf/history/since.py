"""Explain a number that did not simply pass: since when it is so, and what differs.

A measured number came to its level in some session; a case without one was measured whole in some
session for the last time. Only sessions before this one count, even if it is in the database.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from functools import cached_property
from itertools import groupby
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.history.queries import (
    judged_sessions,
    machines_of,
    origin_of,
    points_of,
)
from pytest_dlperf.history.rows import seconds_of
from pytest_dlperf.history.series import JudgedSession, Series
from pytest_dlperf.history.store import History
from pytest_dlperf.history.trends import level_began
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

_MIN_CHANGE: Final = 0.01
"""An inconclusive number that is nearer to its reference, as a part of that, has not changed."""


class CurrentSession(Struct, frozen=True, kw_only=True):
    """The session that runs, whose own measurements are no earlier ones.

    ``started`` is ISO 8601 with its zone; ``commit`` is the suite's, ``checkout`` what else is
    known of that, and ``ci_run`` the address of the CI's run, as far as known.
    """

    session: str
    started: str
    commit: str | None = None
    checkout: Checkout = Checkout()
    ci_run: str | None = None


class Target(Struct, frozen=True, kw_only=True):
    """What is to be explained: a judgement on a metric, with its measurement and baseline."""

    series: Series
    judgement: Judgement
    measurement: Measurement | None
    baseline: Baseline | None
    has_unfit_hosts: bool = False
    """Whether hosts that cannot be used are why there is no number, and nothing that differs."""


class _Change(NamedTuple):
    """When a number changed: the last good session, the first after it, the days since.

    ``red`` is the first of the sessions right before ``since`` that were red.
    """

    last_good: JudgedSession | None = None
    since: JudgedSession | None = None
    days: Collection[date] = ()
    red: JudgedSession | None = None


def explain(history: History | None, target: Target, current: CurrentSession) -> Explanation | None:
    """Explain a judgement by the history; without one, by the accepted number alone.

    ``None`` where there is nothing to explain, or nothing known.

    Raises:
        HistoryError: The history cannot be read.
        ValueError: The start of a session is not a valid time.
    """
    verdict = target.judgement.verdict
    search = _Search(history, target, current)
    if verdict is Verdict.PASS:
        return search.recovery()
    explained = verdict.is_change or verdict.has_no_number
    return search.explanation() if explained else None


class _Search:
    """The search for one explanation in the history."""

    def __init__(self, history: History | None, target: Target, current: CurrentSession) -> None:
        self._history, self._target, self._current = history, target, current
        self._judgement, self._series = target.judgement, target.series
        at = current.started
        self._now = JudgedSession(at, seconds_of(at), target.judgement.measured)

    def _day(self, session: JudgedSession) -> date:
        return day_of(session.started, self._current.started)

    def explanation(self) -> Explanation | None:
        judgement = self._judgement
        if judgement.verdict.is_change and judgement.measured and judgement.decision:
            change = self._change_of_level(judgement.measured, judgement.decision.reference)
        else:
            change = self._first_broken()
        good = change.last_good
        is_known = good is not None and (
            good.measurement_id or (self._day(self._now) - self._day(good)).days <= 1
        )
        # Without the sessions between, the number may be as it is for longer.
        if change.since is self._now and not is_known:
            change = change._replace(since=None)
        return self._describe(change) if change.last_good or change.since else None

    def recovery(self) -> Explanation | None:
        """Tell since when a number was red that passes again; ``None`` where it was not."""
        _, red = self._before(self._now, self._last_accepted(()))
        return Explanation(red_since=self._past(red)[0]) if red is not None else None

    # ------------------------------------------------------- sessions that were good, and red

    @cached_property
    def _judged(self) -> Sequence[JudgedSession]:
        """The earlier sessions that judged the metric, the last one first."""
        if self._history is None:
            return ()
        return judged_sessions(
            self._history, self._series, until=self._now.began, besides=self._current.session
        )

    def _before(
        self,
        since: JudgedSession,
        accepted: JudgedSession | None,
        known: Collection[int] | None = None,
    ) -> tuple[JudgedSession | None, JudgedSession | None]:
        """Find the last good session before another, and the first red one between.

        An ``accepted`` session was good, whatever its verdict. Only those ``known``, by their ids,
        can be good; ``None``: all.
        """
        red: JudgedSession | None = None
        is_right_before = True
        for session in self._judged:
            if since is not self._now and session.began >= since.began:
                continue
            if accepted is not None and session.began <= accepted.began:
                is_same = not accepted.measurement_id and session.began == accepted.began
                return (session if is_same else accepted), red
            if session.is_red:
                red = session if is_right_before else red
            elif session.is_whole:
                if known is None or session.measurement_id in known:
                    return session, red
                is_right_before = False
        return accepted, red

    def _last_accepted(self, known: Iterable[JudgedSession]) -> JudgedSession | None:
        """Return the last session whose number was accepted, as the history has it if it does."""
        baseline = self._target.baseline
        if baseline is None:
            return None
        times = [(one.at, median(one.runs)) for one in baseline.sessions if one.runs]
        if baseline.acceptance is not None:
            times.append((baseline.acceptance.at, baseline.accepted))
        found = []
        for at, number in times:
            with suppress(ValueError):  # a file written by hand may say it in words
                found.append(JudgedSession(at, seconds_of(at), number))
        # A later acceptance, or one by a wrong clock, is not of an earlier session.
        earlier = [one for one in found if one.began < self._now.began]
        last = max(earlier, key=lambda one: one.began, default=None)
        return last and next((one for one in known if one.began == last.began), last)

    # -------------------------------------------------------------- when a number moved

    def _change_of_level(self, measured: float, reference: float) -> _Change:
        """Find the first session at the level of now since the last one known to be good."""
        known = self._comparable_sessions()
        good = self._last_accepted(known)
        if good is not None:
            known = [one for one in known if one.began > good.began]
        if not _has_moved(self._judgement, measured, reference):
            return _Change(good)

        def is_moved(one: JudgedSession) -> bool:
            middle, number = (reference + measured) / 2, one.median or 0.0
            return number == measured or (number > middle) == (measured > middle)

        end, moved = 0, None
        for index, one in enumerate(known):
            if is_moved(one):
                moved = one
            elif (
                moved is not None
                and one.is_green
                and differences(self._commits(moved), self._commits(one))
            ):
                end, moved = index, None  # green at another commit ends an earlier story
        known = known[end:]
        ids = {one.measurement_id for one in known}
        is_unclear = self._judgement.verdict is Verdict.INCONCLUSIVE
        if is_unclear and abs(measured / reference - 1) < _MIN_CHANGE:
            last_good, red = self._before(self._now, good, ids)
            return _Change(last_good, red=red)
        after = known[self._start_of_level(known, measured, reference) :]
        after = [*after, self._now]
        last_good, red = self._before(after[0], good, ids)
        dates = {self._day(one) for one in after if is_moved(one)}
        return _Change(last_good, after[0], dates, red)

    def _start_of_level(
        self, known: Sequence[JudgedSession], measured: float, reference: float
    ) -> int:
        """Index of the first session at the level of now, by one number a day."""
        days = [[one.median or 0.0 for one in day] for _, day in groupby(known, self._day)]

        def start(values: Sequence[float]) -> int:
            return level_began(values, reference=reference, now=measured)

        # Of a day with several sessions, some may have been before the change.
        day = start([*map(median, days)])
        first = max(day - 1, 0)
        around = [number for numbers in days[first : day + 1] for number in numbers]
        return sum(map(len, days[:first])) + start(around)

    def _comparable_sessions(self) -> list[JudgedSession]:
        """List the earlier whole sessions of the metric on this machine, the oldest first."""
        history, measurement = self._history, self._target.measurement
        if history is None:
            return []
        points = points_of(
            history, self._series, until=self._now.began, besides=self._current.session
        )
        if measurement is not None and measurement.fingerprint is not None:
            machines, machine = machines_of(history), measurement.fingerprint.machine
            points = [
                one for one in points if not differences(machines.get(one.fingerprint, {}), machine)
            ]
        return [one.as_judged for one in points if not one.broken and one.median > 0]

    def _commits(self, one: JudgedSession) -> Mapping[str, str]:
        """Return the known commits that an earlier session was measured at."""
        _, taken_on = self._past(one)
        return taken_on.commits if taken_on is not None else {}

    # -------------------------------------------------------------- when it broke

    def _first_broken(self) -> _Change:
        """Find the first session without the number since the last whole one."""
        since, dates = self._now, {self._day(self._now)}
        is_skipped = self._judgement.verdict is Verdict.SKIPPED
        # A case that is skipped here may have been accepted on any other machine.
        accepted = None if is_skipped else self._last_accepted(())
        for session in self._judged:
            if session.is_whole or (accepted is not None and session.began <= accepted.began):
                break
            since = session
            dates.add(self._day(session))
        else:
            if is_skipped:
                return _Change()
        last_good, red = self._before(since, accepted)
        return _Change(last_good, since, dates, red)

    # ---------------------------------------------------------------- the explanation

    def _describe(self, change: _Change) -> Explanation:
        measurement, current, last_good = self._target.measurement, self._current, change.last_good
        good, on_good = self._past(last_good)
        since, on_since = self._past(change.since)
        if change.since is self._now and since is not None:
            since = replace(since, commit=current.commit, ci_run=current.ci_run)
        checkouts = {SUITE: current.checkout, **(measurement.checkouts if measurement else {})}
        found: tuple[Difference, ...] = ()
        if not (self._target.has_unfit_hosts and self._judgement.verdict.has_no_number):
            found = differences_of(
                compared(measurement.fingerprint if measurement else None, current.commit),
                accepted=compared_acceptance(self._target.baseline),
                last_good=on_good,
                since=on_since,
            )
        return Explanation(
            since=since,
            red_since=self._past(change.red)[0],
            last_good=good,
            days=(self._day(self._now) - self._day(last_good)).days if last_good else None,
            days_at_level=len(change.days) or 1,
            differences=tuple(
                replace(one, checkout=checkouts[one.name].name)
                if one.kind is DifferenceKind.COMMIT and one.name in checkouts
                else one
                for one in found
            ),
            commits=tuple(_commits_of(found, on_since, checkouts)),
        )

    def _past(self, one: JudgedSession | None) -> tuple[PastSession | None, Fingerprint | None]:
        """Describe a session, and what it was measured on."""
        if one is None:
            return None, None
        if self._history is None or not one.measurement_id:
            baseline = self._target.baseline
            acceptance = baseline.acceptance if baseline else None
            is_acceptance = acceptance is not None and acceptance.at == one.started
            commit = acceptance.commit if acceptance and is_acceptance else None
            return PastSession(at=one.started, commit=commit, median=one.median), None
        origin, fingerprint = origin_of(self._history, one.measurement_id)
        session = PastSession(
            at=one.started, commit=origin.commit, ci_run=origin.ci_run, median=one.median
        )
        return session, compared(fingerprint, origin.commit)


def _has_moved(judgement: Judgement, measured: float, reference: float) -> bool:
    """Whether the number is off its reference in the verdict's direction.

    A control arm may show a loss where it is not; the history has no control arm of other sessions.
    """
    better, verdict = judgement.metric.better, judgement.verdict
    if verdict is Verdict.INCONCLUSIVE:
        return True
    if better is None or measured == reference:
        return False
    gained = (measured > reference) == (better.sign > 0)
    return verdict is Verdict.ENVIRONMENT_SHIFT or gained == (verdict is Verdict.IMPROVED)


def _commits_of(
    found: Iterable[Difference], since: Fingerprint | None, checkouts: Mapping[str, Checkout]
) -> Iterator[CommitRange]:
    """Yield the commits that came with the change, of each checkout."""
    ends = since.commits if since else {}
    for one in found:
        first, last = one.last_good, ends.get(one.name) or one.now
        if one.kind is DifferenceKind.COMMIT and one.came_with_it and first and last:
            commits = commits_between(checkouts, one.name, first, last)
            if commits is not None:
                yield commits
