"""A session's measurements, each taken once: from logs, or by launching."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pytest
from msgspec.structs import replace

from pytest_dlperf.config.systems import probes_for
from pytest_dlperf.files.locks import shared_once
from pytest_dlperf.gate.accepting import GateOptions
from pytest_dlperf.gate.inputs import GateInput, MeasuredCase
from pytest_dlperf.gate.repeats import repeats_for
from pytest_dlperf.gate.verdicts import badness, decide
from pytest_dlperf.model.builtin import STEP_TIMES
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.errors import BrokenError, CannotMeasureError, DlperfError, UsageError
from pytest_dlperf.model.judgement import Companion
from pytest_dlperf.model.measurement import (
    Estimator,
    InterleavedRuns,
    Measurement,
    Repeats,
    RunStatus,
)
from pytest_dlperf.model.metric import THROUGHPUT
from pytest_dlperf.plugin.suite import Suite

if TYPE_CHECKING:
    from pytest_dlperf.launch.fleet import HostFault
    from pytest_dlperf.logs.tree import LogIndex
    from pytest_dlperf.measure.by_launching import LaunchMeasurer
    from pytest_dlperf.report.live import LiveReport

T = TypeVar("T")

_OF_STEPS: Final = (THROUGHPUT, *STEP_TIMES)
MIN_PAIRS: Final = 4
"""Runs of the accepted software at least, and as many beside them of what is tested. The number is
even: then what gets slower and slower in A B B A weighs on both alike."""


class Measuring:
    """Takes each measurement of a session once: from logs, or by launching.

    With a folder it is shared with the other processes of the session: the first that needs a case
    measures it, the others wait and read the result.
    """

    def __init__(self, suite: Suite, folder: Path | None) -> None:
        self.suite = suite
        self.index: LogIndex | None = None
        """The logs to read."""
        self.launcher: LaunchMeasurer | None = None
        """What launches cases instead."""
        self._folder = folder
        self._taken: dict[str, Any] = {}
        self.cases: dict[str, Case] = {}
        """Those measured so far, by id."""
        self._metrics: dict[str, set[str]] = {}
        """Metrics to be judged, by case."""

    def read_logs(self) -> None:
        """Measure from the logs that the user named."""
        from pytest_dlperf.measure.from_logs import find_logs

        self.index = find_logs(self.suite.settings.log_sources, self.suite.systems)

    def launch(self, config: pytest.Config, live: LiveReport) -> None:
        """Measure by launching; ``live`` tells what a run waits for, and how far it has come."""
        # A session that reads logs does without these.
        from pytest_dlperf.config.settings import own_settings, unknown_engine_options
        from pytest_dlperf.launch.choosing import built_in_allocators, fleet_of
        from pytest_dlperf.launch.launchers import DEFAULT_PYTHON, built_in_launchers
        from pytest_dlperf.measure.by_launching import LaunchMeasurer

        suite, settings, cluster = self.suite, self.suite.settings, self.suite.cluster
        hook, python = config.hook, cluster.python or DEFAULT_PYTHON
        engines = [
            *built_in_launchers(settings.ssh_command, python),
            *chain(*hook.pytest_dlperf_launchers(config=config, python=python)),
            *built_in_allocators(cluster),
            *chain(*hook.pytest_dlperf_allocators(config=config, cluster=cluster)),
        ]
        of_systems = (own_settings(it.launch) for it in suite.systems.values() if it.launch)
        every = chain(
            settings.launch_settings, cluster.settings, cluster.control_settings, *of_systems
        )
        known = {option for engine in engines for option in engine.takes}
        if problems := list(unknown_engine_options(every, known)):
            raise UsageError("\n".join(map(str, problems)))
        self.launcher = LaunchMeasurer(
            fleet_of(settings, cluster, engines, shared_folder=self._folder, say=live.say),
            suite.systems,
            cluster,
            settings=(settings.launch_settings, cluster.settings),
            session_dir=settings.session_dir,
            repeats=self.repeats,
            say=live.say,
            show=live.show,
        )

    @property
    def host_faults(self) -> Sequence[HostFault]:
        """Faults of hosts found so far."""
        return self.launcher.fleet.faults if self.launcher is not None else ()

    def select(self, tests: Iterable[tuple[Case, str]]) -> None:
        """Note the selected tests: cases, and names of metrics."""
        for case, name in tests:
            measured = self.suite.metric(case, name).ratio_of
            ends = (case,) if measured is None else filter(None, (case, case.reference))
            for end in ends:
                self._metrics.setdefault(end.id, set()).add(measured or name)

    def repeats(self, case: Case) -> Repeats:
        """Return as many runs as the rules ask for that will judge a case, and its baseline."""
        suite = self.suite
        accepted = suite.baselines(case)
        metrics = [
            suite.metric(case, member)
            for name in self._metrics.get(case.id, ())
            for member in suite.accepted_members(case, name) or [name]
        ]
        # What no baseline is held against, such as a loss that has to fall, one run shows.
        held = [metric for metric in metrics if metric.better is not None]
        terms = {metric: suite.terms(case, metric) for metric in held or [suite.main_metric(case)]}
        return repeats_for(accepted, terms, records=suite.settings.records_baselines)

    def once(self, what: str, kind: type[T], case_id: str, take: Callable[[], T]) -> T:
        """Return what there is of this kind for a case, taken now if there is none."""
        # Neither has a dot: two files never have one name.
        name = f"{case_id}.{what}"
        if name not in self._taken:
            self._taken[name] = shared_once(self._folder, name, kind, take)
        taken: T = self._taken[name]
        return taken

    def measure(self, case: Case) -> Measurement:
        """Return the case's measurement, taken once per session.

        Raises:
            UsageError: It would be recorded, and the system file marks a number as in doubt.
        """
        system = self.suite.systems[case.system]
        if self.suite.settings.records_baselines and (doubts := system.doubts):
            raise UsageError("\n".join(map(str, doubts)))
        self.cases[case.id] = case
        return self.once("runs", Measurement, case.id, lambda: self._take(case))

    def _take(self, case: Case) -> Measurement:
        suite = self.suite
        if self.launcher is not None:
            needs = probes_for(case, suite.systems[case.system].needs, suite.systems)
            return self.launcher.measure(case, needs=needs)
        if self.index is None:
            raise AssertionError("there is nothing to measure by")
        from pytest_dlperf.measure.from_logs import LogMeasurer

        return LogMeasurer(self.index, suite.systems, suite.cluster).measure(case)

    @property
    def gate_options(self) -> GateOptions:
        """What the session does after a verdict."""
        settings = self.suite.settings
        return GateOptions(
            creates=settings.create_baselines,
            updates=settings.update_baselines,
            reason=settings.reason,
        )

    def gate_inputs(
        self, measurement: Measurement, name: str, reference: Measurement | None
    ) -> list[GateInput]:
        """Make the gate's inputs for a metric: of a family, one for each member.

        Members are those of now, and those that are accepted.
        """
        case, suite, end = self.cases.get(measurement.case_id), self.suite, None
        if case is None:
            raise ValueError(f"{measurement.case_id} was not measured in this session")
        metric = suite.metric(case, name)
        if (metric.ratio_of is None) is not (reference is None):
            needs = "is judged by itself" if metric.ratio_of is None else "needs a reference"
            raise ValueError(f"the {name} of {case.id} {needs}")
        if reference is not None:
            over = case.reference
            if over is None or reference.case_id != over.id:
                raise ValueError(
                    f"the {name} of {case.id} is taken over {over or 'nothing'}, "
                    f"not over {reference.case_id}"
                )
            end = MeasuredCase(reference, suite.baselines(over))
        names = [name]
        # Broken runs have no names: one judgement says so of all.
        if not measurement.broken_runs:
            known = [one.name for one in measurement.metrics]
            accepted = [name] if metric.family else suite.accepted_members(case, name)
            more = [suite.metric(case, member) for member in accepted if member not in known]
            if metric.is_family:
                members = [*measurement.metrics, *more]
                names = [one.name for one in members if one.family == name]
                # What is wrong with the whole of it, such as a text where a number should be.
                is_broken = any(name in run.missing for run in measurement.runs)
                if is_broken or not (names or accepted):
                    names.append(name)
                    more.append(metric)
            measurement = replace(measurement, metrics=(*measurement.metrics, *more))
        own, base = MeasuredCase(measurement, suite.baselines(case)), metric.ratio_of
        # Logs may be of any day.
        now = None if suite.settings.log_sources else datetime.now().astimezone()
        contradiction = None
        if suite.settings.records_baselines and (base or name) in _OF_STEPS:
            contradiction = self._contradiction(measurement, case)
        metrics = [suite.metric(case, one) for one in names]
        return [
            GateInput(one, own, suite.terms(case, one), end, now, contradiction) for one in metrics
        ]

    def _contradiction(self, measurement: Measurement, case: Case) -> str | None:
        """Find what in the logs contradicts the time that is taken of them, before it is kept."""
        from pytest_dlperf.logs.cross_check import cross_check

        system = self.suite.systems[case.system]
        if system.is_probe or measurement.estimator is Estimator.PUBLISHED:
            return None
        logs = (run.log for run in measurement.runs if run.status is RunStatus.OK and run.log)
        found = (cross_check(log, system.log_format, case).contradictions for log in logs)
        return next((each[0] for each in found if each), None)

    def control_runs(self, measurement: Measurement) -> InterleavedRuns | str:
        """Run the tested and the accepted software, interleaved; else return why not."""
        launcher, control = self.launcher, self.suite.cluster.control_settings
        if launcher is None or not control:
            return f"nothing can be run beside the logs of {measurement.case_id}"
        taken_on = measurement.fingerprint
        try:
            return self.once(
                "interleaved",
                InterleavedRuns,
                measurement.case_id,
                lambda: launcher.interleaved(
                    self.cases[measurement.case_id],
                    hosts=taken_on.hosts if taken_on else (),
                    pairs=max(MIN_PAIRS, len(measurement.runs) + len(measurement.runs) % 2),
                    control=control,
                ),
            )
        except (CannotMeasureError, BrokenError) as error:
            return f"the accepted software could not be run beside it: {error}"

    def companions(self, measurement: Measurement) -> tuple[Companion, ...]:
        """Measure and judge a red case's companions and what it needs, once, on its hosts."""
        case, launcher = self.cases.get(measurement.case_id), self.launcher
        if launcher is None or case is None or measurement.fingerprint is None:
            return ()
        system = self.suite.systems[case.system]
        probes = probes_for(case, (*system.companions, *system.needs), self.suite.systems)
        if not probes:
            return ()
        found: tuple[Companion, ...] = self.once(
            "companions",
            tuple[Companion, ...],
            case.id,
            lambda: tuple(self._companion(launcher, probe, measurement) for probe in probes),
        )
        return found

    def _companion(self, launcher: LaunchMeasurer, probe: Case, of: Measurement) -> Companion:
        system = self.suite.systems[probe.system]
        found = Companion(case_id=probe.id, resource=system.resource or system.id)
        self.cases.setdefault(probe.id, probe)
        try:
            measurement = launcher.measure(probe, companion_of=of)
            judgements = [
                decide(one.without_control)
                for metric in system.metrics
                if metric.is_judged
                for one in self.gate_inputs(measurement, metric.name, None)
            ]
        except DlperfError as error:
            return replace(found, reason=str(error))
        worst = min(judgements, key=badness)
        return replace(
            found,
            metric=worst.metric.name,
            verdict=worst.verdict,
            difference_percent=worst.decision.difference_percent if worst.decision else None,
            loss_percent=worst.loss_percent,
            reason=worst.reason,
        )
