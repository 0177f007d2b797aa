"""A session's measurements, each taken once: from logs, or by launching."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import structs

from pytest_dlperf.config.systems import probes_for
from pytest_dlperf.files.locks import shared_once
from pytest_dlperf.gate.accepting import GateOptions
from pytest_dlperf.gate.control import ControlRuns
from pytest_dlperf.gate.family import badness
from pytest_dlperf.gate.inputs import GateInput, MeasuredCase
from pytest_dlperf.gate.repeats import repeats_for
from pytest_dlperf.gate.verdicts import decide
from pytest_dlperf.model.builtin import STEP_TIMES
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.errors import (
    BrokenError,
    CannotMeasureError,
    DlperfError,
    UsageError,
)
from pytest_dlperf.model.judgement import Companion
from pytest_dlperf.model.measurement import (
    Estimator,
    InterleavedRuns,
    Measurement,
    Repeats,
    RunStatus,
)
from pytest_dlperf.model.metric import THROUGHPUT, Metric

if TYPE_CHECKING:
    from pytest_dlperf.launch.allocations import Allocator
    from pytest_dlperf.launch.fleet import HostFault
    from pytest_dlperf.launch.launchers import Launcher
    from pytest_dlperf.logs.tree import LogIndex
    from pytest_dlperf.measure.by_launching import LaunchMeasurer, RunProgress
    from pytest_dlperf.measure.from_logs import LogMeasurer
    from pytest_dlperf.plugin.suite import Suite

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
        self.measurer: LogMeasurer | LaunchMeasurer
        self.launcher: LaunchMeasurer | None = None
        """What launches cases; ``None`` with logs."""
        self._folder = folder
        self._taken: dict[str, Any] = {}
        self._cases: dict[str, Case] = {}
        self._metrics: dict[str, set[str]] = {}
        """Metrics to be judged, by case."""

    @property
    def launches_on_hosts(self) -> bool:
        """Whether cases are launched, and on hosts that were named."""
        return self.launcher is not None and not self.launcher.fleet.is_this_machine

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
        self._cases[case.id] = case
        return self.once("runs", Measurement, case.id, lambda: self._take(case))

    def _take(self, case: Case) -> Measurement:
        if self.launcher is None:
            return self.measurer.measure(case)
        return self.launcher.measure(case, needs=self._probes(case, with_companions=False))

    def _probes(self, case: Case, *, with_companions: bool) -> list[Case]:
        system = self.suite.systems[case.system]
        names = (*system.companions, *system.needs) if with_companions else system.needs
        return probes_for(case, names, self.suite.systems) if names else []

    @property
    def gate_options(self) -> GateOptions:
        """What the session does after a verdict."""
        settings = self.suite.settings
        return GateOptions(
            creates=settings.create_baselines,
            updates=settings.update_baselines,
            reason=settings.reason,
        )

    def family(self, measurement: Measurement, name: str) -> Metric:
        """Return a family of metrics of a case that was measured."""
        return self.suite.metric(self._cases[measurement.case_id], name)

    def gate_inputs(
        self,
        measurement: Measurement,
        metric_name: str,
        reference: Measurement | None,
        *,
        about: Case | None,
    ) -> list[GateInput]:
        """Make the gate's inputs for a metric: of a family, one for each member.

        Members are those of tonight, and those that are accepted.
        """
        case, suite = about or self._cases.get(measurement.case_id), self.suite
        names = [metric_name]
        metric = None if case is None else suite.metric(case, metric_name)
        # Broken runs have no names: one judgement says so of all.
        if case is not None and metric is not None and not measurement.broken_runs:
            known = [one.name for one in measurement.metrics]
            accepted = [metric_name] if metric.family else suite.accepted_members(case, metric_name)
            gone = [suite.metric(case, name) for name in accepted if name not in known]
            measurement = structs.replace(measurement, metrics=(*measurement.metrics, *gone))
            if metric.is_family:
                names = [one.name for one in measurement.metrics if one.family == metric_name]
                # What is wrong with the whole of it, such as a text where a number should be.
                is_broken = any(metric_name in run.missing for run in measurement.runs)
                if is_broken or not (names or accepted):
                    names.append(metric_name)
                    measurement = structs.replace(
                        measurement, metrics=(*measurement.metrics, metric)
                    )
        return [self.gate_input(measurement, name, reference, about=about) for name in names]

    def gate_input(
        self,
        measurement: Measurement,
        metric_name: str,
        reference: Measurement | None,
        *,
        about: Case | None,
    ) -> GateInput:
        """Make the gate's input for a metric, which may be a ratio over a reference."""
        case = about or self._cases.get(measurement.case_id)
        if case is None:
            raise ValueError(f"{measurement.case_id} was not measured in this session")
        if measurement.case_id != case.id:
            raise ValueError(f"a test of {case.id} cannot judge {measurement.case_id}")
        suite, end, base_terms = self.suite, None, None
        metric = suite.metric(case, metric_name)
        if (metric.ratio_of is None) is not (reference is None):
            needs = "is judged by itself" if metric.ratio_of is None else "needs a reference"
            raise ValueError(f"the {metric.name} of {case.id} {needs}")
        if reference is not None:
            over = case.reference
            if over is None or reference.case_id != over.id:
                raise ValueError(
                    f"the {metric.name} of {case.id} is taken over {over or 'nothing'}, "
                    f"not over {reference.case_id}"
                )
            end = MeasuredCase(reference, suite.baselines(over))
        if metric.ratio_of is not None:
            base_terms = suite.terms(case, suite.metric(case, metric.ratio_of))
        own = MeasuredCase(measurement, suite.baselines(case))
        # Logs may be of any day.
        now = None if suite.settings.log_sources else datetime.now().astimezone()
        terms, contradiction = suite.terms(case, metric), None
        if suite.settings.records_baselines and (metric.ratio_of or metric.name) in _OF_STEPS:
            contradiction = self._contradiction(measurement, case)
        return GateInput(metric, own, terms, end, base_terms, now, contradiction)

    def _contradiction(self, measurement: Measurement, case: Case) -> str | None:
        """Find what in the logs contradicts the time that is taken of them, before it is kept."""
        from pytest_dlperf.logs.cross_check import cross_check

        system = self.suite.systems[case.system]
        if system.is_probe or measurement.estimator is Estimator.PUBLISHED:
            return None
        logs = (run.log for run in measurement.runs if run.status is RunStatus.OK and run.log)
        found = (cross_check(log, system.log_format, case).contradictions for log in logs)
        return next((each[0] for each in found if each), None)

    def control_runs(self, gate_input: GateInput) -> ControlRuns:
        """Run the tested and the accepted software, interleaved, as far as possible."""
        measurement, launcher = gate_input.case.measurement, self.launcher
        control = self.suite.cluster.control_settings
        if launcher is None or not control:
            problem = f"nothing can be run beside the logs of {measurement.case_id}"
            return ControlRuns(problem=problem)
        taken_on = measurement.fingerprint
        try:
            taken = self.once(
                "interleaved",
                InterleavedRuns,
                measurement.case_id,
                lambda: launcher.interleaved(
                    self._cases[measurement.case_id],
                    hosts=taken_on.hosts if taken_on else (),
                    pairs=max(MIN_PAIRS, len(measurement.runs) + len(measurement.runs) % 2),
                    control=control,
                ),
            )
        except (CannotMeasureError, BrokenError) as error:
            problem = f"the accepted software could not be run beside it: {error}"
            return ControlRuns(problem=problem)
        return ControlRuns(interleaved=taken)

    def companions(self, measurement: Measurement) -> tuple[Companion, ...]:
        """Measure and judge a red case's companions and what it needs, once, on its hosts."""
        case, launcher = self._cases.get(measurement.case_id), self.launcher
        if launcher is None or case is None or measurement.fingerprint is None:
            return ()
        probes = self._probes(case, with_companions=True)
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
        try:
            measurement = launcher.measure(probe, companion_of=of)
            judgements = [
                decide(one.without_control)
                for metric in system.metrics
                if metric.is_judged
                for one in self.gate_inputs(measurement, metric.name, None, about=probe)
            ]
        except DlperfError as error:
            return structs.replace(found, reason=str(error))
        worst = min(judgements, key=badness)
        return structs.replace(
            found,
            metric=worst.metric.name,
            verdict=worst.verdict,
            difference_percent=worst.decision.difference_percent if worst.decision else None,
            loss_percent=worst.loss_percent,
            reason=worst.reason,
        )


def measuring_from_logs(suite: Suite, index: LogIndex, folder: Path | None) -> Measuring:
    """Measure from the logs in ``index``."""
    from pytest_dlperf.measure.from_logs import LogMeasurer

    measuring = Measuring(suite, folder)
    measuring.measurer = LogMeasurer(index, suite.systems, suite.cluster)
    return measuring


def launching(
    suite: Suite,
    folder: Path | None,
    *,
    engines: Sequence[Launcher | Allocator],
    say: Callable[[str], None],
    show: Callable[[RunProgress], None],
) -> Measuring:
    """Measure by launching: ``say`` tells what a run waits for, ``show`` how far it has come.

    Raises:
        UsageError: There is no such launcher, hosts are wrong, or none takes an option that is set.
    """
    # A session that reads logs does without these.
    from pytest_dlperf.config.settings import own_settings, unknown_engine_options
    from pytest_dlperf.launch.choosing import fleet_of
    from pytest_dlperf.measure.by_launching import LaunchMeasurer

    settings, cluster = suite.settings, suite.cluster
    of_systems = (own_settings(it.launch) for it in suite.systems.values() if it.launch)
    every = chain(settings.launch_settings, cluster.settings, cluster.control_settings, *of_systems)
    known = {option for engine in engines for option in engine.takes}
    if problems := list(unknown_engine_options(every, known)):
        raise UsageError("\n".join(map(str, problems)))
    fleet = fleet_of(settings, cluster, engines, shared_folder=folder, say=say)
    measuring = Measuring(suite, folder)
    measuring.measurer = measuring.launcher = LaunchMeasurer(
        fleet,
        suite.systems,
        cluster,
        settings=(settings.launch_settings, cluster.settings),
        session_dir=settings.session_dir,
        repeats=measuring.repeats,
        say=say,
        show=show,
    )
    return measuring
