"""Explains verdicts by the history while a test reports, here or on a worker.

So the failure's message has the explanation, and with workers what the test sends. A history that
cannot be read costs its explanations and one note, no verdict.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from typing import Final, final

from msgspec.structs import replace

from pytest_dlperf.culprit.journal import found_since
from pytest_dlperf.files.ci import ci_run_page
from pytest_dlperf.history.series import Series
from pytest_dlperf.history.since import CurrentSession, Target, explain
from pytest_dlperf.history.store import History, HistoryError
from pytest_dlperf.launch.preflight import checkout_here
from pytest_dlperf.model.commits import Checkout
from pytest_dlperf.model.errors import DlperfError
from pytest_dlperf.model.judgement import Explanation, Judgement, Verdict
from pytest_dlperf.model.results import CaseResult
from pytest_dlperf.plugin.suite import Suite
from pytest_dlperf.plugin.workers import WorkerInput

_BUSY_S: Final = 0.5
"""Seconds to wait for a history that another process has locked."""


@final
class Explainer:
    """Explains what tests judge."""

    def __init__(self, suite: Suite, session: WorkerInput) -> None:
        self._suite = suite
        self._session = session
        self.fault: str | None = None
        """Why the history cannot be read; it is not tried again."""

    @cached_property
    def current(self) -> CurrentSession:
        """This session, with the commit that it measures."""
        settings = self._suite.settings
        # Logs may be of any day and checkout: only a launch knows what it has run.
        commit, checkout = None, Checkout()
        if not settings.log_sources:
            commit, checkout = checkout_here(settings.systems_directories[0])
        return CurrentSession(
            session=self._session.session,
            started=self._session.started,
            commit=commit,
            checkout=checkout,
            ci_run=ci_run_page(),
        )

    def explain(
        self, result: CaseResult, before: CaseResult, *, has_unfit_hosts: bool
    ) -> CaseResult:
        """Explain what a test has judged since it reported ``before``."""
        new = [j for n, j in result.judgements.items() if before.judgements.get(n) != j]
        explanations = dict(result.explanations)
        try:
            if new and self.fault is None:
                file = self._suite.settings.history_file
                with History.read_if_there(file, busy_s=_BUSY_S) as history:
                    for judgement in new:
                        name = judgement.metric.name
                        target = self._target(result, judgement, has_unfit_hosts=has_unfit_hosts)
                        companions = explanations.pop(name, Explanation()).companions
                        found = self._explained(history, target)
                        if found is not None or companions:
                            found = replace(found or Explanation(), companions=companions)
                            explanations[name] = found
        except (HistoryError, ValueError) as error:  # ValueError: no such day
            self.fault = str(error)
            return result
        return replace(result, explanations=explanations)

    def _target(self, result: CaseResult, judgement: Judgement, *, has_unfit_hosts: bool) -> Target:
        case, metric, cluster = result.case, judgement.metric, self._suite.cluster
        baseline = None
        # What cannot be measured here needs none, and may be a whole suite.
        if judgement.verdict is not Verdict.SKIPPED:
            with suppress(DlperfError):  # the test has reported their mistakes
                baseline = self._suite.baselines(case).get(metric.name)
        return Target(
            series=Series.of(case, metric, cluster=cluster.name, estimator=cluster.estimator.value),
            judgement=judgement,
            measurement=result.measurement,
            baseline=baseline,
            has_unfit_hosts=has_unfit_hosts,
        )

    def _explained(self, history: History | None, target: Target) -> Explanation | None:
        """Explain a judgement, with what `bisect` has found since the number is as it is."""
        file, series = self._suite.settings.history_file, target.series
        explanation = explain(history, target, self.current)
        if file is None or explanation is None or explanation.began is None:
            return explanation
        found = found_since(file, series.case_id, series.metric, explanation.began.at)
        current = [entry.found for entry in found if not entry.is_lost()]
        return replace(explanation, found=current[-1]) if current else explanation
