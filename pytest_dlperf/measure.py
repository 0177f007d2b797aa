"""How a case gets measured: its logs are read, or it is launched; each case once per session."""

from __future__ import annotations

import json
import os
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_dlperf.locks import locked, write_whole
from pytest_dlperf.logs.reader import LogFile
from pytest_dlperf.logs.throughput import measure_log
from pytest_dlperf.logs.tree import log_path
from pytest_dlperf.measurement import Estimator, Measurement, Run, RunStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_dlperf.cases import Case
    from pytest_dlperf.launch.local import LaunchOutcome, LocalLauncher
    from pytest_dlperf.logs.tree import LogIndex
    from pytest_dlperf.systems import System

TAIL_BYTES: Final = 4096
LAST_LINE_SHOWN: Final = 200


class CannotMeasureError(Exception):
    """The case cannot be measured here; the message says what is missing and what helps."""


class Measurements:
    """The measurements of a session, each taken once.

    With a folder they are shared with the other processes of the session: whoever needs a case
    first measures it, the others wait and read what came out.
    """

    def __init__(self, shared_folder: Path | None) -> None:
        """Share through ``shared_folder``, or keep to this process."""
        self._folder = shared_folder
        self._taken: dict[str, Measurement] = {}

    def once(self, case: Case, measure: Callable[[], Measurement]) -> Measurement:
        """The measurement of a case, taken now if nobody has."""
        if case.id not in self._taken:
            self._taken[case.id] = (
                measure() if self._folder is None else self._shared(self._folder, case, measure)
            )
        return self._taken[case.id]

    def _shared(self, folder: Path, case: Case, measure: Callable[[], Measurement]) -> Measurement:
        file = folder / f"{case.id}.json"
        with locked(folder / f"{case.id}.lock"):
            if file.exists():
                return Measurement.from_plain(json.loads(file.read_text(encoding="utf-8")))
            measurement = measure()
            write_whole(file, json.dumps(measurement.to_plain()))
            return measurement


class LogMeasurer:
    """Measures cases from logs that exist."""

    def __init__(
        self, index: LogIndex, systems: Mapping[str, System], estimator: Estimator
    ) -> None:
        """Take the logs from ``index``."""
        self._index = index
        self._systems = systems
        self._estimator = estimator

    def measure(self, case: Case) -> Measurement:
        """Read every run that a log exists of.

        Raises:
            CannotMeasureError: There is no log of this case.
        """
        system = self._systems[case.system]
        check_estimator(system, self._estimator)
        found = self._index.runs_of(case.id)
        if not found:
            options = f"/{'+'.join(case.options)}" if case.options else ""
            name = f"{system.log_name}_b{case.batch_per_device}_{case.precision}_<run>.log"
            raise CannotMeasureError(
                f"no logs of {case.id}; give their folder with "
                f"--dlperf-logs {case.system}{options}=DIR, where {case.topology}/{name} lie"
            )
        return Measurement(
            case_id=case.id,
            unit=system.unit,
            estimator=self._estimator,
            runs=tuple(self._read(case, system, run, logs) for run, logs in found),
        )

    def _read(self, case: Case, system: System, run: int, logs: list[str]) -> Run:
        if len(logs) > 1:
            reason = f"{len(logs)} logs claim to be run {run}: {', '.join(map(repr, logs))}"
            log = _readable(logs[0])
            return Run(run=run, throughput=None, status=RunStatus.INVALID, reason=reason, log=log)
        return _read_log(Path(logs[0]), run, case, system, self._estimator)


class LaunchMeasurer:
    """Measures cases by training: launches each repeat and reads the log it leaves."""

    def __init__(  # noqa: PLR0913 - all that a launch takes, by name
        self,
        launcher: LocalLauncher,
        systems: Mapping[str, System],
        estimator: Estimator,
        *,
        run_directory: Path,
        repeats: int | None,
        say: Callable[[str], None],
    ) -> None:
        """Launch ``repeats`` runs of a case (``None``: the system's number).

        ``say`` tells the user what a run waits for.
        """
        self._say = say
        self._launcher = launcher
        self._systems = systems
        self._estimator = estimator
        self._run_directory = run_directory
        self._repeats = repeats

    def measure(self, case: Case) -> Measurement:
        """Run the case's repeats one after another, alone on this machine.

        Raises:
            CannotMeasureError: The system has no launch, or needs what is not installed.
        """
        system = self._systems[case.system]
        check_estimator(system, self._estimator)
        spec = system.launch
        if spec is None:
            raise CannotMeasureError(
                f"{system.file.name} says nothing under 'launch'; judge existing logs with "
                f"--dlperf-logs {case.system}=DIR, or leave the system out of this cluster by "
                "naming the others under 'systems' in its cluster.yaml"
            )
        missing = spec.missing_modules()
        if missing:
            hint = f": {spec.install_hint}" if spec.install_hint else ""
            raise CannotMeasureError(
                f"{case.system} needs the Python module {', '.join(missing)}{hint}"
            )
        runs: list[Run] = []
        with locked(_machine_lock(), on_wait=self._on_wait):
            for number in range(1, (self._repeats or system.repeats) + 1):
                if runs and spec.pause_s:
                    time.sleep(spec.pause_s)
                runs.append(self._run(case, system, number))
                if runs[-1].status is not RunStatus.OK:
                    break  # the verdict of the case; further runs would not change it
        return Measurement(
            case_id=case.id, unit=system.unit, estimator=self._estimator, runs=tuple(runs)
        )

    def _on_wait(self) -> None:
        self._say("waiting: another session or worker trains on this machine")

    def _run(self, case: Case, system: System, number: int) -> Run:
        from pytest_dlperf.launch.plan import plan_run

        spec = system.launch
        if spec is None:
            raise AssertionError("measure() has checked the launch")
        log = log_path(self._run_directory, case, system.log_name, number)
        _set_aside(log)
        with ExitStack() as stack:
            port = stack.enter_context(self._launcher.reserved_port())
            commands = plan_run(
                spec,
                case=case,
                window=system.window,
                settling_steps=system.log_format.settling_steps,
                system_directory=system.file.parent,
                run=number,
                addresses=self._launcher.addresses(case.topology.nodes),
                master_port=port,
                log=log,
            )
            outcome = self._launcher.run(commands, time_limit_s=spec.time_limit_s)
        # What was printed after a node had failed does not count: the others may train on alone.
        limit = outcome.log_size_at_failure
        read = _read_log(log, number, case, system, self._estimator, limit=limit)
        return explained(read, outcome, log, time_limit_s=spec.time_limit_s)


def _read_log(  # noqa: PLR0913 - a log and everything that it is judged by
    log: Path,
    number: int,
    case: Case,
    system: System,
    estimator: Estimator,
    *,
    limit: int | None = None,
) -> Run:
    run = measure_log(
        log,
        number=number,
        case=case,
        log_format=system.log_format,
        window=system.window,
        estimator=estimator,
        limit=limit,
    )
    reason = run.reason
    if run.status is RunStatus.INVALID and not run.steps:
        # Where no step was found, what stands there instead says most.
        reason = f"{run.reason}{_last_line(log)}"
    return replace(run, log=_readable(str(log)), reason=reason)


def _readable(path: str) -> str:
    """A path as text that any process and file takes: its bytes need not be Unicode."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def check_estimator(system: System, estimator: Estimator) -> None:
    """Refuse what cannot be estimated before anything is launched or read.

    Raises:
        CannotMeasureError: The system's logs have no published definition of throughput.
    """
    if estimator is Estimator.PUBLISHED and not system.log_format.has_published:
        raise CannotMeasureError(
            f"the log format {system.log_format.name} of {system.id} has no published "
            "definition of throughput; compare with a cluster whose cluster.yaml says "
            "'estimator: steady'"
        )


def explained(read: Run, outcome: LaunchOutcome, log: Path, *, time_limit_s: float) -> Run:
    """Put what the log says and how the processes ended together.

    A trainer that dies after its window is complete has been measured: the death is noted. One
    that dies before has failed, whatever its log looks like.
    """
    ending = _ending(outcome, time_limit_s)
    if ending is None:
        return read
    status, how = ending
    if read.status is RunStatus.OK and outcome.error is None:
        note = f"{how}, after the last step that counts"
        status, reason = RunStatus.OK, f"{read.reason}; {note}" if read.reason else note
    else:
        last_line = _last_line(log) if read.steps else ""
        reason = f"{how}; {read.reason}{last_line}"
    throughput = read.throughput if status is RunStatus.OK else None
    return replace(read, throughput=throughput, status=status, reason=reason)


def _ending(outcome: LaunchOutcome, time_limit_s: float) -> tuple[RunStatus, str] | None:
    """How a run ended that did not end well."""
    if outcome.error is not None:
        return RunStatus.FAILED, outcome.error
    if outcome.timed_out:
        return RunStatus.HUNG, f"it was not done at its time limit of {time_limit_s:g} s"
    bad = [f"{code} on node {rank}" for rank, code in enumerate(outcome.exit_codes) if code != 0]
    if bad:
        return RunStatus.FAILED, f"the trainer ended with exit code {', '.join(bad)}"
    return None


def _last_line(log: Path) -> str:
    """What the log ends with, to say more than an exit code does."""
    try:
        with LogFile(log) as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    last = next((line.strip() for line in reversed(lines) if line.strip()), None)
    return f"; the log ends with {last[:LAST_LINE_SHOWN]!r}" if last else ""


def _machine_lock() -> Path:
    """One lock for this user's sessions here: two runs at once would slow each other down."""
    user = os.getuid() if hasattr(os, "getuid") else "user"
    return Path(tempfile.gettempdir()) / f"pytest-dlperf-{user}" / "this-machine.lock"


def _set_aside(log: Path) -> None:
    """Keep what an interrupted run of the same name has left, out of the new run's way."""
    for left in (log, log.with_suffix("")):
        number = 1
        while left.exists():
            kept = left.with_name(f"{left.name}.interrupted{number}")
            if not kept.exists():
                left.rename(kept)
            number += 1
