"""Measures cases by training: each repeat is launched, watched and read."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Final, NamedTuple

from msgspec.structs import replace

from pytest_dlperf.config.cluster import Cluster
from pytest_dlperf.config.launch_keys import Devices, StartOn
from pytest_dlperf.config.settings import Setting, resolve
from pytest_dlperf.config.systems import System
from pytest_dlperf.files.masking import Digests
from pytest_dlperf.launch.containers import PYTHON
from pytest_dlperf.launch.fleet import Fleet
from pytest_dlperf.launch.hosts import Node
from pytest_dlperf.launch.plan import SCRATCH, NodeCommand, serving_file, step_files, why_no_steps
from pytest_dlperf.launch.record import RunOrder, Stop
from pytest_dlperf.launch.watch import Progress, RunWatch, full_disk
from pytest_dlperf.logs.tree import COMPANIONS, CONTROL_ARM
from pytest_dlperf.measure.case_launch import MARGIN_S, CaseLaunch, LaunchChange
from pytest_dlperf.measure.from_logs import check_estimator
from pytest_dlperf.measure.launch_facts import launch_facts
from pytest_dlperf.measure.run import (
    has_number,
    logs_of,
    metrics_of_runs,
    now_at,
    set_aside,
    with_derived,
    with_ending,
)
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.errors import (
    BrokenError,
    CannotMeasureError,
    NotStartedError,
    UsageError,
)
from pytest_dlperf.model.measurement import (
    InterleavedRuns,
    Measurement,
    Repeats,
    Run,
    RunStatus,
)

_REPEATABLE: Final = (RunStatus.FAILED, RunStatus.HUNG)
"""May be a mishap. A log that breaks its contract will do so again, and a slow run counts."""


LIKELY_RUNS: Final = 5
"""A case whose number of runs depends on their results rarely takes more."""


class RunProgress(NamedTuple):
    """The progress of one run."""

    run: str
    """Which run of which case."""
    unit: str
    progress: Progress


@dataclass(frozen=True, slots=True)
class LaunchMeasurer:
    """Measures cases by training: launches each repeat and reads the log while it grows."""

    fleet: Fleet
    systems: Mapping[str, System]
    cluster: Cluster
    _: KW_ONLY
    settings: Sequence[Sequence[Setting]]
    """What the user set for systems, the strongest first."""
    session_dir: Path
    """Logs go below it."""
    repeats: Callable[[Case], Repeats]
    say: Callable[[str], None]
    """Tells the user what a run waits for."""
    show: Callable[[RunProgress], None]
    change: LaunchChange | None = None
    """What is launched otherwise than declared."""

    def measure(
        self, case: Case, *, needs: Sequence[Case] = (), companion_of: Measurement | None = None
    ) -> Measurement:
        """Run the case's repeats one after another, on hosts that are its own meanwhile.

        Before it a run of each probe that it ``needs`` has to come to its end there. A
        ``companion_of`` another case is measured on the hosts of that one.

        Raises:
            CannotMeasureError: The system has no launch, or needs what is not here or not set.
            NotStartedError: A probe that it needs broke.
            BrokenError: What it needs is here, and broken.
        """
        below = self.session_dir / COMPANIONS
        hint = f". Judge existing logs with --dlperf-logs {case.system}=DIR"
        with self._as_measurement_errors(hint):
            folder, only = None, self.change.hosts if self.change else ()
            if companion_of is not None:
                folder, taken_on = below / companion_of.case_id, companion_of.fingerprint
                only = taken_on.hosts if taken_on else ()
            launch = self._launch_of(case, folder=folder)
            before = below / case.id / "before"
            probes = [self._launch_of(each, folder=before) for each in needs]
            needed = (launch.needed, *(probe.needed for probe in probes))
            limit_s = self._likely_s(launch) + sum(probe.longest_s for probe in probes)
            with self.fleet.leased(case, *needed, limit_s=limit_s, only=only or None) as leased:
                for probe in probes:
                    run = self._repeated(probe, leased, 1, "1 of 1")
                    if run.status is not RunStatus.OK:
                        reason = f": {run.reason}" if run.reason else ""
                        raise NotStartedError(
                            f"not started, for the probe {probe.case.id}, which it needs, "
                            f"{run.status.value} on the same hosts{reason}"
                        )
                runs = self._runs(launch, leased)
            return self._measurement(launch, leased, runs)

    def interleaved(
        self, case: Case, *, hosts: Sequence[str], pairs: int, control: Sequence[Setting]
    ) -> InterleavedRuns:
        """Run what is tested and the accepted software interleaved on these hosts, A B B A A B B A.

        ``hosts`` are names as in ``Fingerprint.hosts``, node 0 first. Each side has ``pairs`` runs;
        the first broken one ends it all. ``control`` makes a launch one of the accepted software:
        it overrides all other settings. Raises what ``measure`` does.
        """
        below = self.session_dir / CONTROL_ARM
        with self._as_measurement_errors():
            candidate = self._launch_of(case, folder=below / "candidate")
            accepted = self._launch_of(case, before=control, folder=below / "control")
            if candidate.variables == accepted.variables:
                # Whatever is tested would be found to be as slow as itself.
                raise CannotMeasureError(
                    f"'control' in cluster.yaml sets nothing for {case.system} that differs from "
                    "what is tested"
                )
            needed = (candidate.needed, accepted.needed)
            limit_s = pairs * (candidate.longest_s + accepted.longest_s)
            with self.fleet.leased(case, *needed, limit_s=limit_s, only=hosts) as leased:
                runs = self._run_interleaved(candidate, accepted, leased, pairs)
            return InterleavedRuns(
                candidate=self._measurement(candidate, leased, runs[0]),
                control=self._measurement(accepted, leased, runs[1]),
            )

    @contextmanager
    def _as_measurement_errors(self, hint: str = "") -> Iterator[None]:
        """Raise what all measurers do; the ``hint`` goes to a case that cannot be measured here."""
        try:
            yield
        except CannotMeasureError as error:
            raise CannotMeasureError(f"{error}{hint}") from error
        except UsageError as error:
            raise BrokenError(str(error)) from error
        except OSError as error:
            raise BrokenError(f"{error.filename or self.session_dir}: {error.strerror}") from error

    def _measurement(
        self, launch: CaseLaunch, leased: Sequence[Node], runs: Sequence[Run]
    ) -> Measurement:
        taken_on = self.fleet.fingerprint(launch.case, launch.needed, leased)
        facts = launch_facts(launch, self.fleet.engine, Digests(self.cluster.directory.parent))
        return Measurement(
            case_id=launch.case.id,
            metrics=metrics_of_runs(launch.system, runs),
            estimator=self.cluster.estimator,
            runs=tuple(runs),
            fingerprint=replace(taken_on, launch=facts),
            checkouts=self.fleet.checkouts(launch.needed, leased),
        )

    def plan(self, case: Case) -> tuple[NodeCommand, ...]:
        """Plan the first run of a case, without a look at any host."""
        with self._as_measurement_errors():
            launch = self._launch_of(case, look=False)
            nodes = self.fleet.planned_nodes(case, scratch=launch.scratch)
        return launch.commands(nodes, run=1, log=launch.log(1))

    def dry_run_text(self, case: Case) -> str:
        """Show what a queue would be asked for; without one, nothing."""
        with self._as_measurement_errors():
            launch = self._launch_of(case, look=False)
            return self.fleet.describe_request(case, launch.needed, self._likely_s(launch))

    def _launch_of(
        self,
        case: Case,
        *,
        look: bool = True,
        before: Sequence[Setting] = (),
        folder: Path | None = None,
    ) -> CaseLaunch:
        """Prepare a launch; ``before`` overrides what was set, logs go below ``folder``."""
        system = self.systems[case.system]
        check_estimator(system, self.cluster.estimator)
        spec, engine = system.launch, self.fleet.engine
        if spec is None:
            raise CannotMeasureError(
                f"{system.file.name} says nothing under 'launch'; leave the system out of this "
                "cluster by naming the others under 'systems' in its cluster.yaml"
            )
        settings = (before, *self.settings)
        variables = resolve(spec, system.id, settings, case=case)
        if self.change is not None:
            variables = self.change.of_variables(variables)
        container = None if engine.has_own_files else variables.container
        if spec.start_on is StartOn.HEAD:
            starts = f"{case.id} starts its other nodes from the first one (start_on: head), which"
            if self.fleet.allocator is not None:
                raise CannotMeasureError(
                    f"{starts} cannot be done on hosts that {engine.name} gives; launch it over "
                    "ssh, or inside an allocation of Slurm"
                )
            if container is not None:
                raise UsageError(
                    f"{starts} a container would not end at; name the runtime in its command "
                    "instead, and --dlperf-set container.runtime=none"
                )
        if container is not None or variables.image is not None:
            python = variables.python or PYTHON
        else:
            python = variables.python or (engine.python if engine.has_own_files else sys.executable)
        here = self.fleet.is_this_machine and container is None and python == sys.executable
        if look and here and (missing := spec.missing_modules()):
            hint = f": {spec.install_hint}" if spec.install_hint else ""
            raise CannotMeasureError(
                f"{case.system} needs the Python module {', '.join(missing)}{hint}. Where another "
                f"Python has it: --dlperf-set {case.system}.python=/path/to/python"
            )
        self.fleet.check_size(case, accelerators=spec.devices is not Devices.CPU)
        return CaseLaunch(
            system=system,
            spec=spec,
            case=case,
            variables=variables,
            container=container,
            python=python,
            folder=folder or self.session_dir,
            scratch=self.cluster.scratch or SCRATCH,
            device=self.cluster.machine.get("device"),
            change=self.change,
            settings=settings,
        )

    def _runs(self, launch: CaseLaunch, leased: Sequence[Node]) -> list[Run]:
        repeats = self.repeats(launch.case)
        most = f"at most {repeats.at_most}" if repeats.may_be_fewer else f"{repeats.at_most}"
        runs: list[Run] = []
        for number in range(1, repeats.at_most + 1):
            run = self._repeated(launch, leased, number, f"{number} of {most}", pauses=bool(runs))
            runs.append(run)
            # The verdict of the case; further runs would not change it.
            is_broken = run.status is not RunStatus.OK or not has_number(launch.system, run)
            if is_broken or repeats.is_enough(runs):
                break
        return runs

    def _run_interleaved(
        self, candidate: CaseLaunch, control: CaseLaunch, leased: Sequence[Node], pairs: int
    ) -> tuple[list[Run], list[Run]]:
        """Run both sides; what drifts meanwhile meets both alike, for the order alternates."""
        runs: tuple[list[Run], list[Run]] = ([], [])
        sides = ((candidate, "what is tested", runs[0]), (control, "accepted software", runs[1]))
        for number in range(1, pairs + 1):
            for launch, arm, mine in sides if number % 2 else reversed(sides):
                which = f"{number} of {pairs} of {arm}"
                run = self._repeated(launch, leased, number, which, pauses=any(runs))
                mine.append(run)
                if run.status is not RunStatus.OK:
                    return runs
        return runs

    def _repeated(
        self,
        launch: CaseLaunch,
        leased: Sequence[Node],
        number: int,
        which: str,
        *,
        pauses: bool = False,
    ) -> Run:
        """Run once, after the pause between two runs; again if it failed and the system says so."""

        def show(progress: Progress) -> None:
            run = f"{launch.case.id}  run {which}"
            self.show(RunProgress(run, launch.system.unit, progress))

        attempts: list[Run] = []
        while True:
            if attempts or pauses:
                time.sleep(launch.pause_s)
            run = self._run(launch, leased, number, show)
            if run.status not in _REPEATABLE or len(attempts) == launch.spec.retries:
                return replace(run, failed_attempts=tuple(attempts))
            renamed = set_aside(launch.log(number), "attempt")
            attempts.append(replace(run, log=now_at(run.log, renamed)))
            self.say(
                f"{launch.case.id}, run {number}: {run.status.value}; it is run again "
                f"({len(attempts)} of {launch.spec.retries})"
            )

    def _run(
        self,
        launch: CaseLaunch,
        leased: Sequence[Node],
        number: int,
        show: Callable[[Progress], None],
    ) -> Run:
        system, spec, case = launch.system, launch.spec, launch.case
        log = launch.log(number)
        set_aside(log, "interrupted")
        nodes = self.fleet.nodes(
            leased, case, launch.needed, time_limit_s=spec.time_limit_s + MARGIN_S, log=log
        )
        logs = [node.log for node in nodes]
        read_logs = logs[:1] if spec.start_on is StartOn.HEAD else logs
        watch = RunWatch(
            logs_of(system, case, self.cluster.estimator, run=number, logs=read_logs),
            folders=[path.parent for path in logs],
            work_of_step=case.work_of_step(system.unit),
            first_step_limit_s=spec.first_step_limit_s,
            step_limit_s=spec.step_limit_s,
            end_early=not spec.run_to_end,
            on_progress=show,
        )
        order = RunOrder(
            nodes=nodes,
            plan=lambda nodes: launch.commands(nodes, run=number, log=log),
            time_limit_s=spec.time_limit_s,
            scratch=launch.scratch,
            head_only=spec.start_on is StartOn.HEAD,
            files={
                **({} if spec.steps is None else step_files()),
                **({} if spec.server is None else serving_file()),
            },
            look=watch.look,
            say=self.say,
        )
        outcome = self.fleet.run(order, launch.variables)
        outcome = replace(outcome, first_step=watch.first_step)
        # What was printed after a node had failed does not count: others may train on alone.
        has_shown_enough = outcome.stopped.stop is Stop.COMPLETE
        read = watch.finish(() if has_shown_enough else outcome.log_sizes_at_end)
        if read.status is not RunStatus.OK:
            hints = [read.reason]
            # Where the trainer has died, its last words are the reason.
            died = outcome.stopped.stop is Stop.EXITED and not outcome.succeeded
            if spec.steps is not None and not (read.steps or died):
                hints.append(why_no_steps(spec.steps, logs))
            if spec.log_file is not None and not read.steps:
                hints.append(f"is launch.log_file {spec.log_file!r} what the trainer writes?")
            read = replace(read, reason="; ".join(filter(None, hints)))
            if not (outcome.succeeded or outcome.error):
                # A trainer may have died of it before the watch has seen it.
                outcome = replace(outcome, error=full_disk(log.parent))
        taken_on = self.fleet.fingerprint(case, launch.needed, leased)
        device = taken_on.machine.get("device")
        read = with_derived(read, system, case, self.cluster, outcome, device=device)
        return with_ending(read, outcome, logs)

    def _likely_s(self, launch: CaseLaunch) -> float:
        """Say for how long a case needs its hosts, unless it takes more runs than most do."""
        repeats = self.repeats(launch.case)
        runs = repeats.at_most
        return launch.longest_s * (min(runs, LIKELY_RUNS) if repeats.may_be_fewer else runs)
