"""Explanations of a test's judgements: the history is asked while the test reports.

So the failure's own message has them, and with workers their record. A test that passes costs
nothing; a history that cannot be read costs its explanations and one note, no verdict.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Final, final

from pytest_dlperf.files.environment import describe_ci_run, describe_commit
from pytest_dlperf.model.errors import DlperfError
from pytest_dlperf.model.judgement import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_dlperf.history.explaining import Tonight
    from pytest_dlperf.history.store import History
    from pytest_dlperf.model.baseline import Baseline
    from pytest_dlperf.model.judgement import Judgement
    from pytest_dlperf.plugin.records import TestNotes
    from pytest_dlperf.plugin.suite import Suite
    from pytest_dlperf.plugin.workers import Beginning

_BUSY_S: Final = 0.5
"""How long another process may hold the history before tests go unexplained."""


@final
class Explaining:
    """Explains what tests of one session came to, here or on a worker."""

    def __init__(self, suite: Suite, beginning: Beginning) -> None:
        """Open nothing before there is something to explain."""
        self._suite = suite
        self._beginning = beginning
        self.fault: str | None = None
        """Why the history could not be asked; it is not asked again."""

    def explain(self, notes: TestNotes) -> None:
        """Explain a test's judgements that did not simply pass, in its record."""
        judgements = notes.unexplained()
        if not judgements or self.fault is not None:
            return
        from pytest_dlperf.history.opening import HistoryError
        from pytest_dlperf.history.store import History

        file = self._suite.settings.history_file
        try:
            with History.read_if_there(file, busy_s=_BUSY_S) as history:
                self._explain_all(notes, judgements, history)
        except HistoryError as error:
            self.fault = str(error)

    def _explain_all(
        self, notes: TestNotes, judgements: Sequence[Judgement], history: History | None
    ) -> None:
        from pytest_dlperf.history.explaining import Subject, explain
        from pytest_dlperf.history.series import Series

        case, cluster = notes.record.case, self._suite.cluster
        baselines: Mapping[str, Baseline] = {}
        # What cannot be measured here needs none, and may be a whole suite.
        if any(judgement.verdict is not Verdict.SKIPPED for judgement in judgements):
            with suppress(DlperfError):  # the test has told what is wrong with them
                baselines = self._suite.baselines(case)
        for judgement in judgements:
            name, metric = judgement.metric.name, judgement.metric
            subject = Subject(
                series=Series.of(
                    case, metric, cluster=cluster.name, estimator=cluster.estimator.value
                ),
                judgement=judgement,
                measurement=notes.record.measurements.get(case.id),
                baseline=baselines.get(name),
            )
            notes.explained(name, explain(history, subject, self._tonight))

    @cached_property
    def _tonight(self) -> Tonight:
        from pytest_dlperf.history.explaining import Tonight

        settings = self._suite.settings
        # Logs may be of any day and checkout.
        commit = None if settings.log_sources else describe_commit(settings.systems_directories[0])
        return Tonight(
            session=self._beginning.session,
            started=self._beginning.at,
            commit=commit,
            ci_run=describe_ci_run(),
        )
