"""What ``bisect`` searches: one metric of a case, and what the history knows of it."""

from __future__ import annotations

import math
from argparse import Namespace
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.command.project import pytest_arguments, read_project
from pytest_dlperf.command.shell import chosen
from pytest_dlperf.culprit.bisection import KnownSession, NotFoundError
from pytest_dlperf.history.queries import (
    judged_sessions,
    origin_of,
    points_of,
)
from pytest_dlperf.history.series import GREEN, Finite, Point, Series
from pytest_dlperf.history.store import History
from pytest_dlperf.measure.case_launch import checkouts_of
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.commits import SUITE
from pytest_dlperf.model.differences import compared
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.metric import MEMBER, Metric
from pytest_dlperf.plugin.suite import Suite, load_suite

_SESSIONS: Final = 90
"""So many of the last ones show the noise."""


class BisectedCase(Struct, frozen=True, kw_only=True):
    """One metric of a case, and how the user's sessions measure it."""

    suite: Suite
    case: Case
    metric: Metric
    arguments: tuple[str, ...]
    """Of pytest, as in the user's own sessions."""
    sessions: tuple[tuple[float, ...], ...] = ()
    """Runs of sessions."""

    @property
    def series(self) -> Series:
        """The series of its sessions."""
        cluster = self.suite.cluster
        return Series.of(
            self.case, self.metric, cluster=cluster.name, estimator=cluster.estimator.value
        )

    @property
    def checkouts(self) -> dict[str, str]:
        """The folders that its trainer runs from, by the names that fingerprints know them by."""
        # What sets the variables of its launch, the strongest first.
        sources = self.suite.settings.launch_settings, self.suite.cluster.settings
        found = checkouts_of(self.suite.systems[self.case.system], self.case, sources)
        return {**found, SUITE: str(self.suite.settings.systems_directories[0])}

    def good_and_bad(self) -> tuple[KnownSession, KnownSession]:
        """Find the last good session, and the last one."""
        file = self.suite.settings.history_file
        with History.read_if_there(file, busy_s=10) as history:
            if history is None:
                raise UsageError(f"there is no history {file}; give a range of commits, GOOD..BAD")
            last = judged_sessions(history, self.series, until=math.inf)[:1]
            if not last:
                raise UsageError(f"the history has no session that judged {self.case.id}")
            if not last[0].is_whole:
                word = last[0].verdict_word or "not judged"
                raise NotFoundError(
                    f"{self.case.id}: {word} in the last session ({last[0].started}), so there is "
                    "no number to ask about"
                )
            *before, bad = points_of(history, self.series, until=math.inf)
            if bad.verdict_word == Verdict.PASS.value:
                raise NotFoundError(
                    f"{self.case.id}: the last session passed; there is nothing to explain"
                )
            wanted = {word for word in GREEN if word != bad.verdict_word}
            good = [one for one in before if one.verdict_word in wanted]
            if not good:
                raise NotFoundError(f"{self.case.id}: the history has no good session before")
            return _known(history, good[-1]), _known(history, bad)

    def red_session(self, commit: str) -> KnownSession | None:
        """Find the last session at a commit that did not pass."""
        with History.read_if_there(self.suite.settings.history_file, busy_s=10) as history:
            if history is None:
                return None
            for point in reversed(points_of(history, self.series, until=math.inf)[-_SESSIONS:]):
                known = _known(history, point)
                if point.verdict_word != Verdict.PASS and commit in known.taken_on.commits.values():
                    return known
        return None


def _known(history: History, point: Point) -> KnownSession:
    origin, fingerprint = origin_of(history, point.measurement_id)
    taken_on = compared(fingerprint, origin.commit)
    return KnownSession(started=point.started, median=point.median, taken_on=taken_on)


def bisected_case(options: Namespace) -> BisectedCase:
    """Read the suite as sessions do, and what the history knows of the case."""
    project = read_project(options)
    suite = load_suite(
        project.settings, more_files=project.more_files, more_formats=project.more_formats
    )
    ids = chosen((case.id for case in suite.cases), [options.case], "there is no case")
    if len(ids) > 1:
        raise UsageError(f"{options.case!r} stands for {len(ids)} cases; name one")
    case = next(case for case in suite.cases if case.id in ids)
    try:
        metric = suite.metric(case, options.metric) if options.metric else suite.main_metric(case)
    except ValueError as error:
        raise UsageError(f"--metric: {error}") from error
    why_not = None
    if metric.is_family:
        why_not = f"is a family; name a metric of it, such as {metric.name}{MEMBER}NAME"
    elif metric.ratio_of is not None:
        why_not = f"is a ratio of two cases; give the {metric.ratio_of} of the one that changed"
    elif metric.better is None:
        why_not = "has no direction that is better"
    if why_not is not None:
        raise UsageError(f"--metric: {metric.name} {why_not}")
    arguments = tuple(pytest_arguments(options))
    bisected = BisectedCase(suite=suite, case=case, metric=metric, arguments=arguments)
    with History.read_if_there(project.settings.history_file, busy_s=10) as history:
        if history is None:
            return bisected
        points = points_of(history, bisected.series, until=math.inf)[-_SESSIONS:]
        whole = [point for point in points if not point.broken]
        runs = [history.decoded(point.run_values, tuple[Finite, ...]) for point in whole]
        sessions = tuple(each for each in runs if len(each) > 1 and min(each) > 0)
        return replace(bisected, sessions=sessions)
