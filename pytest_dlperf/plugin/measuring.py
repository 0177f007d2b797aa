"""A session's measurements, each taken once: from logs, or by launching."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import structs

from pytest_dlperf.baselines.accepting import ADDED_RUNS
from pytest_dlperf.config.systems import probes_for
from pytest_dlperf.config.values import ControlArm
from pytest_dlperf.files.locks import shared_once
from pytest_dlperf.gate.control import ControlRuns
from pytest_dlperf.gate.family import badness
from pytest_dlperf.gate.rules import repeats_for
from pytest_dlperf.gate.verdicts import GateInput, GateOptions, MeasuredCase, decide
from pytest_dlperf.model.baseline import MAX_TOLERANCE_PERCENT
from pytest_dlperf.model.errors import (
    BrokenError,
    CannotMeasureError,
    DlperfError,
    UsageError,
)
from pytest_dlperf.model.judgement import Companion, Companions
from pytest_dlperf.model.measurement import FixedRepeats, InterleavedRuns, Measurement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from pytest_dlperf.config.cluster import Control
    from pytest_dlperf.files.masking import Digests
    from pytest_dlperf.launch.allocations import Allocator
    from pytest_dlperf.launch.fleet import Fleet, HostFault
    from pytest_dlperf.launch.launchers import Launcher
    from pytest_dlperf.launch.plan import NodeCommand
    from pytest_dlperf.logs.tree import LogIndex
    from pytest_dlperf.measure.by_launching import LaunchMeasurer, RunProgress
    from pytest_dlperf.measure.case_launch import LaunchChange
    from pytest_dlperf.measure.from_logs import LogMeasurer
    from pytest_dlperf.model.case import Case
    from pytest_dlperf.model.measurement import LaunchFacts, Repeats
    from pytest_dlperf.model.metric import Metric
    from pytest_dlperf.plugin.suite import Suite

T = TypeVar("T")

MIN_PAIRS: Final = 4
"""Runs of the accepted software at least, and as many beside them of what is tested. The number is
even: then what gets slower and slower in A B B A weighs on both alike."""


class Selection:
    """Metrics to be judged, by case, and how many runs they need."""

    def __init__(self, suite: Suite) -> None:
        """Begin without a case."""
        self._suite = suite
        self._metrics: dict[str, set[str]] = {}

    def add(self, tests: Iterable[tuple[Case, str]]) -> None:
        """Add selected tests: cases, and names of metrics."""
        for case, name in tests:
            measured = self._suite.metric(case, name).ratio_of
            ends = (case,) if measured is None else filter(None, (case, case.reference))
            for end in ends:
                self._metrics.setdefault(end.id, set()).add(measured or name)

    def repeats(self, case: Case) -> Repeats:
        """Return as many runs as the rules ask for that will judge a case, and its baseline."""
        suite = self._suite
        settings, accepted = suite.settings, suite.baselines(case)
        adds_runs = settings.records_baselines
        if adds_runs and settings.log_sources:
            return FixedRepeats(None)
        metrics = [
            suite.metric(case, member)
            for name in self._metrics.get(case.id, ())
            for member in suite.accepted_members(case, name) or [name]
        ]
        # What no baseline is held against, such as a loss that has to fall, one run shows.
        held = [metric for metric in metrics if metric.better is not None]
        terms = {metric: suite.terms(case, metric) for metric in held or [suite.main_metric(case)]}
        # Where tolerances are the rule for good, more runs would be for nothing.
        may_extend = any(
            own.tolerance_of(accepted.get(metric.name)) <= MAX_TOLERANCE_PERCENT
            for metric, own in terms.items()
        )
        at_least = ADDED_RUNS if adds_runs and may_extend else None
        return repeats_for(accepted, terms, at_least=at_least)


@dataclass(slots=True, eq=False)
class Measurements:
    """The measurements of a session, each taken once.

    With a folder it is shared with the other processes of the session: the first that needs a case
    measures it, the others wait and read the result.
    """

    folder: Path | None
    _taken: dict[tuple[str, str], Any] = field(default_factory=dict, init=False)

    def once(self, kind: type[T], case_id: str, take: Callable[[], T]) -> T:
        """Return the result of this kind for a case, taken now if there is none."""
        key = kind.__name__, case_id
        if key not in self._taken:
            # No kind's name has a dot, and no case's: two files never have one name.
            self._taken[key] = shared_once(self.folder, f"{case_id}.{kind.__name__}", kind, take)
        taken: T = self._taken[key]
        return taken


class Measuring:
    """Takes each measurement of a session once, here from logs that exist."""

    launches_on_hosts = False
    """Whether cases are launched, and on hosts that were named."""
    host_faults: Sequence[HostFault] = ()
    """Faults of hosts found so far."""

    def __init__(
        self,
        selection: Selection,
        suite: Suite,
        measurer: LogMeasurer | LaunchMeasurer,
        measurements: Measurements,
    ) -> None:
        """Measure by ``measurer``, and keep what it measures in ``measurements``."""
        self.selection = selection
        self.suite = suite
        self._measurer = measurer
        self._measurements = measurements
        self._cases: dict[str, Case] = {}

    @property
    def gate_options(self) -> GateOptions:
        """What the session does after a verdict."""
        settings = self.suite.settings
        return GateOptions(
            creates=settings.create_baselines,
            updates=settings.update_baselines,
            reason=settings.reason,
            has_control=self.suite.control is not ControlArm.NEVER,
        )

    def measure(self, case: Case) -> Measurement:
        """Return the case's measurement, taken once per session.

        Raises:
            UsageError: It would be recorded, and the system file marks a number as in doubt.
        """
        system = self.suite.systems[case.system]
        if self.suite.settings.records_baselines and (doubts := system.doubts):
            raise UsageError("\n".join(map(str, doubts)))
        self._cases[case.id] = case
        return self._measurements.once(Measurement, case.id, lambda: self._take(case))

    def _take(self, case: Case) -> Measurement:
        return self._measurer.measure(case)

    def companions(self, measurement: Measurement) -> tuple[Companion, ...]:
        """Measure and judge the companions of a red case on its hosts: with logs, nothing."""
        del measurement
        return ()

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
        return GateInput(metric, own, suite.terms(case, metric), end, base_terms, now)

    def control_runs(self, gate_input: GateInput) -> ControlRuns:
        """Run the tested and the accepted software, interleaved: with logs, nothing."""
        case_id = gate_input.case.measurement.case_id
        return ControlRuns(problem=f"nothing can be run beside the logs of {case_id}")


class Launching(Measuring):
    """Takes measurements by launching, on hosts that the user named, or here."""

    _measurer: LaunchMeasurer

    def __init__(
        self,
        selection: Selection,
        suite: Suite,
        measurer: LaunchMeasurer,
        measurements: Measurements,
        fleet: Fleet,
    ) -> None:
        """Launch on a fleet."""
        super().__init__(selection, suite, measurer, measurements)
        self._fleet = fleet
        self.launches_on_hosts = not fleet.is_this_machine

    @property
    def description(self) -> str:
        """Where and how cases are launched, for people."""
        return self._fleet.description

    @property
    def host_faults(self) -> Sequence[HostFault]:  # type: ignore[override] # known later
        """Faults of hosts found so far."""
        return self._fleet.faults

    def change_launches(self, change: LaunchChange) -> None:
        """Launch from now on what a change makes of the plans."""
        self._measurer = replace(self._measurer, change=change)

    def launch_facts(self, case: Case, digests: Digests) -> LaunchFacts:
        """Return what the launch of a case says, as others may read it."""
        return self._measurer.facts(case, digests)

    def planned(self, case: Case) -> tuple[NodeCommand, ...]:
        """Return what the first run of a case would execute."""
        return self._measurer.plan(case)

    def dry_run_text(self, case: Case) -> str:
        """Return what would be submitted for that run; empty where nothing is."""
        return self._measurer.dry_run_text(case)

    def control_runs(self, gate_input: GateInput) -> ControlRuns:
        """Run the tested and the accepted software, interleaved, as far as possible."""
        control = self.suite.cluster.control
        if control is None:
            return super().control_runs(gate_input)
        try:
            taken = self._interleaved(gate_input.case.measurement, control)
        except (CannotMeasureError, BrokenError) as error:
            problem = f"the accepted software could not be run beside it: {error}"
            return ControlRuns(problem=problem)
        return ControlRuns(interleaved=taken)

    def _take(self, case: Case) -> Measurement:
        needs = self._probes(case, self.suite.systems[case.system].needs)
        return self._measurer.measure(case, needs=needs)

    def _probes(self, case: Case, names: Sequence[str]) -> list[Case]:
        return probes_for(case, names, self.suite.systems) if names else []

    def companions(self, measurement: Measurement) -> tuple[Companion, ...]:
        """Measure and judge a red case's companions and what it needs, once, on its hosts."""
        case = self._cases.get(measurement.case_id)
        if case is None or measurement.fingerprint is None:
            return ()
        system = self.suite.systems[case.system]
        probes = self._probes(case, (*system.companions, *system.needs))
        if not probes:
            return ()
        return self._measurements.once(
            Companions,
            case.id,
            lambda: Companions(tuple(self._companion(probe, measurement) for probe in probes)),
        ).found

    def _companion(self, probe: Case, of: Measurement) -> Companion:
        system = self.suite.systems[probe.system]
        found = Companion(case_id=probe.id, resource=system.resource or system.id)
        try:
            measurement = self._measurer.measure(probe, companion_of=of)
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

    def _interleaved(self, measurement: Measurement, control: Control) -> InterleavedRuns:
        taken_on = measurement.fingerprint
        return self._measurements.once(
            InterleavedRuns,
            measurement.case_id,
            lambda: self._measurer.interleaved(
                self._cases[measurement.case_id],
                hosts=taken_on.hosts if taken_on else (),
                pairs=max(MIN_PAIRS, len(measurement.runs) + len(measurement.runs) % 2),
                control=control.settings,
            ),
        )


def measuring_from_logs(suite: Suite, index: LogIndex, measurements: Measurements) -> Measuring:
    """Measure from the logs in ``index``."""
    # Reading and launching cost imports that a session which only collects can do without.
    from pytest_dlperf.measure.from_logs import LogMeasurer

    selection = Selection(suite)
    measurer = LogMeasurer(
        index,
        suite.systems,
        suite.cluster,
        repeats=selection.repeats,
    )
    return Measuring(selection, suite, measurer, measurements)


def launching(  # noqa: PLR0913 - all that a session has, most of it by name
    suite: Suite,
    measurements: Measurements,
    *,
    launchers: Sequence[Launcher],
    allocators: Sequence[Allocator],
    say: Callable[[str], None],
    show: Callable[[RunProgress], None],
) -> Launching:
    """Measure by launching: ``say`` tells what a run waits for, ``show`` how far it has come.

    Raises:
        UsageError: There is no such launcher, hosts are wrong, or none takes an option that is set.
    """
    from pytest_dlperf.config.launch_variables import unknown_engine_options
    from pytest_dlperf.launch.choosing import fleet_of
    from pytest_dlperf.measure.by_launching import LaunchMeasurer

    settings, cluster, selection = suite.settings, suite.cluster, Selection(suite)
    control = cluster.control.settings if cluster.control else ()
    launches = [system.launch for system in suite.systems.values() if system.launch is not None]
    of_systems = (launch.settings for launch in launches)
    every = chain(settings.launch_settings, cluster.settings, control, *of_systems)
    taken = (*(one.takes for one in launchers), *(one.takes for one in allocators))
    known = {option for takes in taken for option in takes}
    if problems := list(unknown_engine_options(every, known)):
        raise UsageError("\n".join(map(str, problems)))
    fleet = fleet_of(
        settings, cluster, launchers, allocators, shared_folder=measurements.folder, say=say
    )
    measurer = LaunchMeasurer(
        fleet,
        suite.systems,
        cluster,
        settings=(settings.launch_settings, cluster.settings),
        session_dir=settings.session_dir,
        repeats=selection.repeats,
        say=say,
        show=show,
    )
    return Launching(selection, suite, measurer, measurements, fleet)
