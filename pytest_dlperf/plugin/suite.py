"""What one session works with: its systems, its cluster and the way its cases get measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_dlperf.config.cluster import (
    UnknownClusterError,
    find_cluster,
    undeclared_systems,
)
from pytest_dlperf.config.options import LOCAL_CLUSTER, Settings
from pytest_dlperf.config.systems import System, load_systems, system_files
from pytest_dlperf.config.values import ControlArm
from pytest_dlperf.files.yamlfile import YamlError, nearest
from pytest_dlperf.logs.formats import merged_formats
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pytest_dlperf.gate.acceptance import Asked
    from pytest_dlperf.gate.control import ControlRuns
    from pytest_dlperf.gate.rules import Terms
    from pytest_dlperf.gate.verdicts import Question
    from pytest_dlperf.launch.fleet import Fleet, HostFault
    from pytest_dlperf.launch.launchers import Launcher
    from pytest_dlperf.launch.plan import NodeCommand
    from pytest_dlperf.logs.formats import LogFormat
    from pytest_dlperf.logs.tree import LogIndex, LogSource
    from pytest_dlperf.measure.by_launching import LaunchMeasurer, RunProgress
    from pytest_dlperf.measure.from_logs import LogMeasurer
    from pytest_dlperf.measure.once import Measurements
    from pytest_dlperf.model.baseline import Baseline
    from pytest_dlperf.model.measurement import InterleavedRuns, Measurement, Repeats


MIN_PAIRS: Final = 4
"""Runs of the accepted software at least, and as many beside them of what is tested. The number is
even: then what gets slower and slower in A B B A weighs on both alike."""
RUN_DIRECTORY_MARK: Final = ".dlperf-session"
"""The file by which a session claims a run directory that the user named."""


class SuiteError(UsageError):
    """The suite cannot be used as it is declared or asked for; the message says what to mend."""


class Suite:
    """Systems, cluster and, once the session runs, logs and measurements."""

    def __init__(
        self,
        settings: Settings,
        *,
        more_files: Iterable[Path] = (),
        more_formats: Iterable[LogFormat] = (),
        lazily: bool = False,
    ) -> None:
        """Read the system files and the cluster's own file.

        ``lazily`` leaves what only running needs: how cases are launched.

        Raises:
            SuiteError: With all mistakes of the system files, or the cluster's.
        """
        self.settings = settings
        try:
            formats = merged_formats(more_formats)
        except ValueError as error:
            raise SuiteError(str(error)) from error
        try:
            files = [*system_files(settings.systems_directories), *more_files]
            self.systems = load_systems(files, formats, lazily=lazily)
            self.cluster = find_cluster(
                settings.baselines_directory, settings.cluster, local=LOCAL_CLUSTER
            )
        except YamlError as error:
            raise SuiteError(_listed("mistakes in YAML files", error)) from error
        except (UnknownClusterError, OSError) as error:
            raise SuiteError(str(error)) from error
        self._check_cluster_systems()
        self._check_assignments()
        self._check_control()
        self._baselines: dict[str, dict[tuple[str, str], Baseline]] = {}
        self._measurer: LogMeasurer | LaunchMeasurer | None = None
        self._measurements: Measurements | None = None
        self._launching: LaunchMeasurer | None = None
        self._fleet: Fleet | None = None

    def _check_cluster_systems(self) -> None:
        for message in undeclared_systems(self.cluster, self.systems):
            raise SuiteError(f"{self.cluster.directory / 'cluster.yaml'} {message}")

    def _check_assignments(self) -> None:
        sets = [(self.settings.assignments, self.cluster.assignments)]
        if self.cluster.control is not None:
            sets.append((self.cluster.control.assignments, ()))
        if not any(any(pair) for pair in sets):
            return  # without reading how systems are launched
        from pytest_dlperf.config.variables import VariableError, check_assignments

        try:
            specs = {name: system.launch for name, system in self.systems.items()}
            for pair in sets:
                check_assignments(specs, pair)
        except VariableError as error:
            raise SuiteError(str(error)) from error

    def _check_control(self) -> None:
        if self.settings.control is ControlArm.ALWAYS and self.cluster.control is None:
            raise SuiteError(
                f"--dlperf-control always: {self.cluster.directory / 'cluster.yaml'} names no "
                "accepted software under 'control'"
            )

    @property
    def cases(self) -> list[Case]:
        """All cases of the systems that the cluster runs, in the order of the files."""
        run = self.cluster.systems
        return [
            case
            for system in self.systems.values()
            if run is None or system.id in run
            for case in system.cases
        ]

    def system_of(self, case: Case) -> System:
        """The system that a case belongs to."""
        return self.systems[case.system]

    # ------------------------------------------------------------------ measuring

    def index_logs(self) -> LogIndex:
        """Find the logs that the user named.

        Raises:
            SuiteError: A system, its options or a folder is not there, or holds no log at all.
        """
        from pytest_dlperf.logs.tree import LogIndex

        index = LogIndex()
        for source in self.settings.log_sources:
            index.merge(self._index(source))
        return index

    def _index(self, source: LogSource) -> LogIndex:
        from pytest_dlperf.logs.tree import index_logs

        given = f"--dlperf-logs {source.system}"
        system = self.systems.get(source.system)
        if system is None:
            raise SuiteError(
                f"{given}: there is no such system; there are: {', '.join(sorted(self.systems))}"
                f"{nearest(source.system, self.systems)}"
            )
        known = sorted({"+".join(case.options) for case in system.cases})
        if source.options is not None and "+".join(source.options) not in known:
            named = ", ".join(filter(None, known)) or "no options at all"
            raise SuiteError(
                f"{given}/{'+'.join(source.options)}: {system.id} has no case with these "
                f"options; it has: {named}"
            )
        references = {case.single_device for case in system.cases}
        try:
            index = index_logs(source, log_name=system.log_name, cases=[*system.cases, *references])
        except OSError as error:
            raise SuiteError(f"{given}: {error.filename}: {error.strerror}") from error
        if not index.logs and not index.ignored:
            raise SuiteError(f"{given}: there is no *.log file below {source.directory}")
        return index

    def claim_session_dir(self) -> None:
        """Take a folder that the user named for the logs of this session alone.

        Raises:
            SuiteError: It holds something already, or cannot be written.
        """
        folder = self.settings.session_dir
        if "session_dir" not in self.settings.places:
            return  # its name holds this process' number
        try:
            folder.mkdir(parents=True, exist_ok=True)
            filled = any(folder.iterdir())
            # Of two sessions that find it empty, one makes the file.
            (folder / RUN_DIRECTORY_MARK).touch(exist_ok=False)
        except FileExistsError:
            filled = True
        except OSError as error:
            raise SuiteError(f"--dlperf-run-dir: {folder}: {error.strerror or error}") from error
        if filled:
            raise SuiteError(
                f"--dlperf-run-dir: {folder} is not empty; the logs of two sessions would mix. "
                "Name a new folder, or judge the logs that are there with --dlperf-logs"
            )

    def measure_from_logs(self, index: LogIndex, measurements: Measurements) -> None:
        """Get ready to measure from the logs in ``index``."""
        # Reading and launching cost imports that a session which only collects can do without.
        from pytest_dlperf.measure.from_logs import LogMeasurer

        self._measurements = measurements
        self._measurer = LogMeasurer(
            index, self.systems, self.cluster.estimator, repeats=self._repeats_of_logs
        )

    def measure_by_launching(
        self,
        measurements: Measurements,
        *,
        launchers: Iterable[Launcher],
        say: Callable[[str], None],
        show: Callable[[RunProgress], None],
    ) -> None:
        """Get ready to measure by launching on the hosts that the user named, or here.

        ``say`` tells the user what a run waits for, ``show`` how far it has come.

        Raises:
            SuiteError: Hosts, launcher or what was set for systems is wrong.
        """
        from pytest_dlperf.launch.choosing import fleet_of
        from pytest_dlperf.measure.by_launching import LaunchMeasurer

        try:
            self._fleet = fleet_of(
                self.settings,
                self.cluster,
                launchers,
                shared_folder=measurements.folder,
                say=say,
            )
        except UsageError as error:
            raise SuiteError(str(error)) from error
        self._measurements = measurements
        self._measurer = self._launching = LaunchMeasurer(
            self._fleet,
            self.systems,
            self.cluster.estimator,
            assignments=(self.settings.assignments, self.cluster.assignments),
            session_dir=self.settings.session_dir,
            repeats=self._repeats,
            say=say,
            show=show,
        )

    @property
    def fixed_repeats(self) -> int | None:
        """How many runs the user asked for; ``None`` where rules and systems say."""
        return None if self.settings.log_sources else self.settings.repeats

    def terms(self, case: Case) -> Terms:
        """What a case is judged by beside its baseline."""
        from pytest_dlperf.gate.rules import Terms

        system = self.system_of(case)
        return Terms(
            tolerance_percent=system.tolerance_percent,
            default_repeats=None if self.settings.log_sources else system.repeats,
            repeats=self.fixed_repeats,
            forced=self.settings.gate,
        )

    def tolerance_percent(self, case: Case) -> float:
        """Return what a case tolerates: its baseline's own percentage, else its system's."""
        return self.terms(case).tolerance_of(self.baseline(case))

    def _repeats(self, case: Case) -> Repeats:
        """How many runs of a case are launched: the rule says it that will judge them."""
        from pytest_dlperf.baselines.accepting import ADDED_RUNS
        from pytest_dlperf.gate.rules import repeats_for
        from pytest_dlperf.model.baseline import MAX_TOLERANCE_PERCENT

        terms, baseline = self.terms(case), self.baseline(case)
        # Where the tolerance is the rule for good, more runs would be for nothing.
        may_extend = terms.tolerance_of(baseline) <= MAX_TOLERANCE_PERCENT
        records = self.settings.records_baselines
        return repeats_for(baseline, terms, at_least=ADDED_RUNS if records and may_extend else None)

    def _repeats_of_logs(self, case: Case) -> Repeats:
        """How many logs of a case are read: all of them, unless the rule decides earlier."""
        from pytest_dlperf.gate.rules import repeats_for
        from pytest_dlperf.model.measurement import FixedRepeats

        if self.settings.records_baselines:
            return FixedRepeats(None)

        return repeats_for(self.baseline(case), self.terms(case))

    def planned(self, case: Case) -> tuple[NodeCommand, ...]:
        """What the first run of a case would execute.

        Raises:
            CannotMeasureError: The case cannot be launched here.
            BrokenError: What it needs is here, and broken.
        """
        if self._launching is None:
            raise AssertionError("it is not said that cases are launched")
        return self._launching.plan(case)

    @property
    def launches_on_hosts(self) -> bool:
        """Whether cases are launched, and on hosts that were named."""
        return self._fleet is not None and not self._fleet.is_this_machine

    @property
    def launch_description(self) -> str:
        """Where and how cases are launched, for people."""
        return self._fleet.description if self._fleet is not None else "nowhere"

    @property
    def host_faults(self) -> list[HostFault]:
        """What is wrong with hosts, as far as it is known."""
        return self._fleet.faults if self._fleet is not None else []

    def measure(self, case: Case) -> Measurement:
        """The case's measurement, taken once per session.

        Raises:
            CannotMeasureError: The case cannot be measured here.
            BrokenError: What it needs is here, and broken.
        """
        from pytest_dlperf.model.measurement import Measurement

        measurer, measurements = self._measurer, self._measurements
        if measurer is None or measurements is None:
            raise AssertionError("it is not said how to measure")
        return measurements.once(Measurement, case.id, lambda: measurer.measure(case))

    # ------------------------------------------------------------------ the accepted software

    @property
    def asked(self) -> Asked:
        """What the session is asked to do with its verdicts."""
        from pytest_dlperf.gate.acceptance import Asked
        from pytest_dlperf.model.judgement import Verdict

        settings = self.settings
        after = {
            ControlArm.ALWAYS: frozenset({Verdict.PASS, Verdict.IMPROVED, Verdict.REGRESSED}),
            ControlArm.ON_REGRESSION: frozenset({Verdict.REGRESSED}),
            ControlArm.NEVER: frozenset[Verdict](),
        }
        can_run = self._launching is not None and self.cluster.control is not None
        # What is slower is accepted with a reason, whoever made it so.
        is_moot = settings.update_baselines and settings.reason is not None
        return Asked(
            control_after=after[settings.control if can_run and not is_moot else ControlArm.NEVER],
            creates=settings.create_baselines,
            updates=settings.update_baselines,
            reason=settings.reason,
        )

    def interleaved(self, measurement: Measurement) -> InterleavedRuns:
        """Runs of a measured case and of the accepted software in turn, once per session.

        Raises:
            CannotMeasureError: The accepted software cannot be launched here.
            BrokenError: What it needs is here, and broken.
        """
        from pytest_dlperf.model.measurement import InterleavedRuns

        launching, measurements, control = (
            self._launching,
            self._measurements,
            self.cluster.control,
        )
        if launching is None or measurements is None or control is None:
            raise AssertionError("there is nothing to run in turn")
        taken_on = measurement.fingerprint
        return measurements.once(
            InterleavedRuns,
            measurement.case_id,
            lambda: launching.interleaved(
                Case.parse(measurement.case_id),
                hosts=taken_on.hosts if taken_on else (),
                pairs=max(MIN_PAIRS, len(measurement.runs) + len(measurement.runs) % 2),
                control=control.assignments,
            ),
        )

    def question(
        self, measurement: Measurement, single_device: Measurement | None, *, about: Case | None
    ) -> Question:
        """Ask about a throughput, or about the speedup over a single device.

        Raises:
            ValueError: The measurements are not those of the case that the test is ``about``.
        """
        from pytest_dlperf.gate.verdicts import End, Question

        case = about or Case.parse(measurement.case_id)
        if measurement.case_id != case.id:
            raise ValueError(f"a test of {case.id} cannot judge {measurement.case_id}")
        single = None
        if single_device is not None:
            over = case.single_device
            if single_device.case_id != over.id:
                raise ValueError(
                    f"the speedup of {case.id} is taken over {over.id}, "
                    f"not over {single_device.case_id}"
                )
            single = End(single_device, self.baseline(over))
        return Question(End(measurement, self.baseline(case)), self.terms(case), single)

    def control_runs(self, question: Question) -> ControlRuns:
        """Run what is asked about and the accepted software, interleaved, as far as that can be."""
        from pytest_dlperf.gate.control import ControlRuns
        from pytest_dlperf.model.errors import BrokenError, CannotMeasureError

        taken: list[InterleavedRuns] = []
        problem = None
        try:
            taken += (self.interleaved(end.measurement) for end in question.ends)
        except (CannotMeasureError, BrokenError) as error:
            problem = f"the accepted software could not be run beside it: {error}"
        return ControlRuns(interleaved=tuple(taken), problem=problem)

    # ------------------------------------------------------------------ baselines

    def baseline(self, case: Case) -> Baseline | None:
        """The accepted numbers of a case; a system's file is read when first needed.

        Raises:
            SuiteError: The file has mistakes.
        """
        if case.system not in self._baselines:
            from pytest_dlperf.baselines.reading import load_baselines

            try:
                self._baselines[case.system] = load_baselines(self.cluster, case.system)
            except YamlError as error:
                raise SuiteError(_listed("mistakes in baselines", error)) from error
        return self._baselines[case.system].get((case.variant, str(case.topology)))

    def other_clusters_with(self, case_id: str) -> list[str]:
        """Names of the other clusters that have numbers of the case's system."""
        system = Case.parse(case_id).system
        files = self.settings.baselines_directory.glob(f"*/{system}.yaml")
        names = {file.parent.name for file in files}
        return sorted(names - {self.cluster.name})


def _listed(what: str, error: YamlError) -> str:
    return "\n".join([f"{what}:", *(f"  {problem}" for problem in error.problems)])
