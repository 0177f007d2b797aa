"""Cases that are measured by training: each repeat is launched, watched and read."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_dlperf.launch.fleet import HostFaultError, NotEnoughHostsError
from pytest_dlperf.launch.launcher import LauncherError
from pytest_dlperf.launch.leases import LeaseError
from pytest_dlperf.launch.pace import Progress
from pytest_dlperf.launch.plan import plan_run, run_directory
from pytest_dlperf.launch.preflight import Requirements
from pytest_dlperf.launch.run import RunOrder, run_on_hosts
from pytest_dlperf.launch.spec import Devices, StartOn, VariableKind
from pytest_dlperf.launch.template import fill, names_in
from pytest_dlperf.launch.variables import (
    MissingVariableError,
    VariableError,
    needed_paths,
    resolve,
)
from pytest_dlperf.launch.watch import LEAST_FREE_BYTES, RunWatch, free_bytes
from pytest_dlperf.logs.tree import log_path
from pytest_dlperf.measure.cannot import CannotMeasureError, UnfitError, check_estimator
from pytest_dlperf.measure.ending import with_ending
from pytest_dlperf.measure.log_tail import readable
from pytest_dlperf.measurement import Measurement, Run, RunStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_dlperf.cases import Case
    from pytest_dlperf.launch.fleet import Fleet
    from pytest_dlperf.launch.leases import Lease
    from pytest_dlperf.launch.plan import Node, NodeCommand
    from pytest_dlperf.launch.spec import LaunchSpec
    from pytest_dlperf.launch.variables import Assignment, LaunchVariables
    from pytest_dlperf.measurement import Estimator
    from pytest_dlperf.systems import System

_REPEATABLE: Final = (RunStatus.FAILED, RunStatus.HUNG)
"""What may be a mishap; a log that breaks its contract will do so again, and a slow run counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """How far one run of a case has come."""

    case: Case
    run: int
    runs: int
    unit: str
    progress: Progress


class LaunchMeasurer:
    """Measures cases by training: launches each repeat and reads the log while it grows."""

    def __init__(  # noqa: PLR0913 - all that a launch takes, by name
        self,
        fleet: Fleet,
        systems: Mapping[str, System],
        estimator: Estimator,
        *,
        assignments: Sequence[Sequence[Assignment]],
        session_directory: Path,
        repeats: int | None,
        say: Callable[[str], None],
        show: Callable[[RunProgress], None],
    ) -> None:
        """Launch ``repeats`` runs of a case (``None``: the system's number).

        ``assignments`` are what the user set for systems, the strongest first. Logs go below
        ``session_directory``. ``say`` tells the
        user what a run waits for, ``show`` how far it has come.
        """
        self._fleet = fleet
        self._systems = systems
        self._estimator = estimator
        self._assignments = assignments
        self._session_directory = session_directory
        self._repeats = repeats
        self._say = say
        self._show = show

    def measure(self, case: Case) -> Measurement:
        """Run the case's repeats one after another, on hosts that are its own meanwhile.

        Raises:
            CannotMeasureError: The system has no launch, or needs what is not here or not set.
            UnfitError: What it needs is here, and broken.
        """
        system = self._systems[case.system]
        check_estimator(system, self._estimator)
        try:
            launch = self._launch_of(system, case)
            with self._fleet.leased(case, launch.needed) as leases:
                runs = self._runs(launch, leases)
        except (NotEnoughHostsError, MissingVariableError) as error:
            raise CannotMeasureError(
                f"{error}. Logs that exist are judged with --dlperf-logs {case.system}=DIR"
            ) from error
        except (HostFaultError, LauncherError, LeaseError, VariableError) as error:
            raise UnfitError(str(error)) from error
        except OSError as error:
            raise UnfitError(
                f"{error.filename or self._session_directory}: {error.strerror}"
            ) from error
        return Measurement(
            case_id=case.id, unit=system.unit, estimator=self._estimator, runs=tuple(runs)
        )

    def plan(self, case: Case) -> tuple[NodeCommand, ...]:
        """What the first run of a case would execute, without a look at any host.

        Raises:
            CannotMeasureError: The system has no launch, or needs what is not here or not set.
            UnfitError: The hosts cannot be found out.
        """
        system = self._systems[case.system]
        try:
            launch = self._launch_of(system, case, look=False)
            nodes = self._fleet.planned_nodes(case)
        except (NotEnoughHostsError, MissingVariableError) as error:
            raise CannotMeasureError(str(error)) from error
        except (LauncherError, VariableError) as error:
            raise UnfitError(str(error)) from error
        log = log_path(self._session_directory, case, system.log_name, 1)
        return launch.commands(nodes, run=1, log=log)

    def _launch_of(self, system: System, case: Case, *, look: bool = True) -> _Launch:
        spec = system.launch
        if spec is None:
            raise CannotMeasureError(
                f"{system.file.name} says nothing under 'launch'; judge existing logs with "
                f"--dlperf-logs {case.system}=DIR, or leave the system out of this cluster by "
                "naming the others under 'systems' in its cluster.yaml"
            )
        variables = resolve(spec, system.id, self._assignments, case=case)
        here = self._fleet.is_this_machine and variables.python in (None, sys.executable)
        if look and here and (missing := spec.missing_modules()):
            hint = f": {spec.install_hint}" if spec.install_hint else ""
            raise CannotMeasureError(
                f"{case.system} needs the Python module {', '.join(missing)}{hint}"
            )
        self._fleet.check_size(case, accelerators=spec.devices is Devices.GPU)
        return _Launch(system=system, spec=spec, case=case, variables=variables)

    def _runs(self, launch: _Launch, leases: Sequence[Lease]) -> list[Run]:
        system, spec = launch.system, launch.spec
        pause_s = launch.variables.pause_s
        count = self._repeats or system.repeats
        runs: list[Run] = []
        for number in range(1, count + 1):
            attempts: list[Run] = []
            while True:
                if runs or attempts:
                    time.sleep(spec.pause_s if pause_s is None else pause_s)
                run = self._run(launch, leases, number, count)
                if run.status not in _REPEATABLE or len(attempts) == spec.retries:
                    break
                attempts.append(self._kept(run, launch))
                self._say(
                    f"{launch.case.id}, run {number}: {run.status.value}; it is run again "
                    f"({len(attempts)} of {spec.retries})"
                )
            runs.append(replace(run, failed_attempts=tuple(attempts)))
            if run.status is not RunStatus.OK:
                break  # the verdict of the case; further runs would not change it
        return runs

    def _run(self, launch: _Launch, leases: Sequence[Lease], number: int, count: int) -> Run:
        system, spec, case = launch.system, launch.spec, launch.case
        log = log_path(self._session_directory, case, system.log_name, number)
        _set_aside(log, "interrupted")
        places = self._fleet.places(leases, log)
        head_only = spec.start_on is StartOn.HEAD
        window = system.window
        steps = system.log_format.settling_steps + window.warmup_steps + window.measured_steps

        def show(progress: Progress) -> None:
            nonlocal steps
            steps = progress.steps
            self._show(
                RunProgress(case=case, run=number, runs=count, unit=system.unit, progress=progress)
            )

        watch = RunWatch(
            logs=[place.log for place in (places[:1] if head_only else places)],
            case=case,
            log_format=system.log_format,
            window=window,
            estimator=self._estimator,
            number=number,
            first_step_limit_s=spec.first_step_limit_s,
            step_limit_s=spec.step_limit_s,
            end_early=not spec.run_to_end,
            on_progress=show,
        )
        try:
            outcome = run_on_hosts(
                self._fleet.launcher,
                RunOrder(
                    places=places,
                    plan=lambda nodes: launch.commands(nodes, run=number, log=log),
                    time_limit_s=spec.time_limit_s,
                    head_only=head_only,
                    watch=watch,
                    on_wait=self._say,
                ),
            )
            # What was printed after a node had failed does not count: others may train on alone.
            read = watch.finish(outcome.log_size_at_failure)
        finally:
            watch.close()
        if read.status is RunStatus.OK:
            # The last steps may have come between two looks.
            show(Progress(step=steps, steps=steps, throughput=read.throughput, left_s=0.0))
        elif not (outcome.succeeded or outcome.error):
            outcome = replace(outcome, error=_full_disk(log.parent))
        logs = [place.log for place in places]
        return with_ending(read, outcome, logs, time_limit_s=spec.time_limit_s)

    def _kept(self, failed: Run, launch: _Launch) -> Run:
        """Put a failed attempt's log out of the way of the next one's."""
        log = log_path(self._session_directory, launch.case, launch.system.log_name, failed.run)
        kept = _set_aside(log, "attempt")
        return replace(failed, log=readable(str(kept)) if kept else failed.log)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Launch:
    """How one case is started, with all that the user has set."""

    system: System
    spec: LaunchSpec
    case: Case
    variables: LaunchVariables

    @property
    def needed(self) -> Requirements:
        """What has to be on each host."""
        paths = needed_paths(self.spec, self.variables, self.case)
        folders = {p.name: p.path for p in paths if p.kind is VariableKind.FOLDER}
        folder = self.spec.working_directory
        # Where it depends on the run, the supervisor alone can tell whether it is there.
        if folder is not None and names_in(folder) <= set(self.variables.values):
            working_directory = fill(folder, self.variables.values)
            is_new = working_directory not in folders.values()
            if is_new and Path(working_directory).is_absolute():
                folders["working_directory"] = working_directory
        return Requirements(
            python=self.variables.python or sys.executable,
            folders=folders,
            files={p.name: p.path for p in paths if p.kind is VariableKind.FILE},
            modules=self.spec.requires_modules,
            accelerators=self.spec.devices is Devices.GPU,
        )

    def commands(self, nodes: Sequence[Node], *, run: int, log: Path) -> tuple[NodeCommand, ...]:
        """What each node executes."""
        return plan_run(
            self.spec,
            case=self.case,
            window=self.system.window,
            settling_steps=self.system.log_format.settling_steps,
            system_directory=self.system.file.parent,
            run=run,
            nodes=nodes,
            variables=self.variables,
            python=sys.executable,
            log=log,
        )


def _full_disk(folder: Path) -> str | None:
    """What a trainer may have died of that could write no more, before the watch has seen it."""
    try:
        free = free_bytes(folder)
    except OSError:
        return None
    if free >= LEAST_FREE_BYTES:
        return None
    return f"the disk is full: {free} bytes are free in {folder}, where the logs of the run lie"


def _set_aside(log: Path, why: str) -> Path | None:
    """Keep what an earlier run of the same name has left, out of the new run's way.

    Returns where its log is kept, ``None`` if there was none.
    """
    kept_log = None
    for left in (log, run_directory(log)):
        number = 1
        while left.exists():
            kept = left.with_name(f"{left.name}.{why}{number}")
            if not kept.exists():
                left.rename(kept)
                kept_log = kept if left == log else kept_log
            number += 1
    return kept_log
