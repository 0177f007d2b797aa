"""The log of a training that has no system file yet: identified, measured, made by a short run."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.config.systems import System
from pytest_dlperf.files.mistakes import nearest
from pytest_dlperf.files.writing import make_folder, write_whole
from pytest_dlperf.formats.log_format import LogFormat
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS
from pytest_dlperf.launch.hosts import Host, Node
from pytest_dlperf.launch.launchers import ADDRESS, LocalLauncher
from pytest_dlperf.launch.plan import TRAINER, NodeCommand, step_files
from pytest_dlperf.launch.record import RunOrder, Stop, Stopped
from pytest_dlperf.launch.run import run_on_hosts
from pytest_dlperf.logs.arrivals import arrivals_of
from pytest_dlperf.logs.reading import LogReading, LogState
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.measurement import Estimator, Run
from pytest_dlperf.model.work import Timing
from pytest_dlperf.report.printing import printable
from pytest_dlperf.survey.head import HeadOfLog, NoLogError
from pytest_dlperf.survey.identify import Identification, identify
from pytest_dlperf.survey.own_command import OwnCommand, as_typed
from pytest_dlperf.survey.probe_output import (
    ProbeOutput,
    document_of,
    known_probe,
    probe_of_numbers,
)

_FOLDER: Final = Path(".dlperf/init")
_ENOUGH_STEPS: Final = 40
_ENOUGH_SLOW_STEPS: Final = 10
"""Steps that are enough of a slow training."""
_SLOW_AFTER_S: Final = 40.0
_LOOK_S: Final = 1.0
Found: TypeAlias = "Identification | ProbeOutput | None"


class TrialRun(Struct, frozen=True, kw_only=True):
    """The outcome of a short run."""

    log: Path
    text: str
    found: Found
    exit_code: int | None
    """``None`` if it was ended, as usual."""
    elapsed_s: float


def head_of(path: Path) -> HeadOfLog:
    """Read the head of a log.

    Raises:
        UsageError: It cannot be read.
    """
    shown = printable(str(path))
    try:
        return HeadOfLog(path)
    except IsADirectoryError:
        raise UsageError(f"{shown} is a folder; name the logs in it") from None
    except NoLogError as error:
        raise UsageError(f"{shown}: {error}") from error
    except OSError as error:
        hint = nearest(path.name, (each.name for each in path.parent.glob("*")))
        if error.errno == errno.EINVAL:
            hint = "; a pipe has to be written to a file first: … | tee FILE"
        raise UsageError(f"{shown}: {error.strerror or error}{hint}") from error


def found_in(
    head: HeadOfLog,
    systems: Mapping[str, System],
    formats: Mapping[str, LogFormat],
    wanted: Case | None = None,
) -> Found:
    """Find out what a log is: of a known probe, of a training, or of a program with speeds."""
    if wanted is not None and wanted.work is not None:
        return identify(head, systems, formats, wanted)
    found: Found = known_probe(head.path, systems)
    if found is None and document_of(head) is None:
        found = identify(head, systems, formats, None)
    return found or probe_of_numbers(head)


def measure(head: HeadOfLog, found: Identification, wanted: Case | None) -> Run | None:
    """Measure a log; ``None`` where neither it nor its supervisor says when steps were."""
    system = found.system
    log_format = system.log_format
    if log_format.timing is Timing.ARRIVAL and not arrivals_of(head.path).exists():
        return None
    if wanted is None and not found.cases:  # nothing to check it against
        log_format = replace(log_format, facts=())
    reading = LogReading(
        head.path,
        number=1,
        case=found.case,
        log_format=log_format,
        window=system.window,
        estimator=Estimator.STEADY,
        unit=system.unit,
        metrics=system.metrics,
        declared=system.declared,
    )
    reading.advance(head.read)
    is_enough = head.is_whole or reading.state is LogState.COMPLETE
    return reading.finish(None if is_enough else head.read)


class _Trial:
    """Ends a run once its log shows enough steps."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._started = time.monotonic()
        self._look_at = 0.0

    def look(self) -> Stopped | None:
        now = time.monotonic()
        if now < self._look_at or not isinstance(found := _identified(self._log), Identification):
            return None
        self._look_at = now + _LOOK_S
        enough = _ENOUGH_STEPS if now - self._started <= _SLOW_AFTER_S else _ENOUGH_SLOW_STEPS
        return Stopped(Stop.COMPLETE) if found.steps.total >= enough else None


def run_once(command: OwnCommand, *, steps: str | None, limit_s: float) -> TrialRun:
    """Run a training here until its log shows some steps.

    ``steps`` names the trainer that is made to print them.

    Raises:
        UsageError: It cannot be started.
    """
    folder = _FOLDER.absolute()
    make_folder(folder / "steps")
    logs = (folder / f"train_{number}.log" for number in range(1, 10**6))
    log = next(file for file in logs if not file.exists())
    environment = dict(command.environment)
    if steps is not None:
        for name, text in step_files().items():
            write_whole(folder / "steps" / name, text)
        path = environment.get("PYTHONPATH", os.environ.get("PYTHONPATH"))
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder / "steps"), path]))
        environment[TRAINER] = steps
    host = Host(name="localhost", address=ADDRESS)
    planned = NodeCommand(
        node_rank=0,
        host=host.name,
        address=host.address,
        arguments=tuple(as_typed(command)),
        environment=environment,
        working_directory=None,
        log=log,
    )
    nodes = (Node(host=host, device_ids=(), log=log),)
    started = time.monotonic()
    order = RunOrder(
        nodes=nodes, plan=lambda _: [planned], time_limit_s=limit_s, look=_Trial(log).look
    )
    outcome = run_on_hosts(LocalLauncher(), order)
    has_ended = outcome.stopped.stop is Stop.EXITED
    code = outcome.exit_codes[0] if has_ended else None
    if has_ended and code is None:
        raise UsageError(f"--command: {outcome.error}")
    return TrialRun(
        log=log.relative_to(Path.cwd()),
        text=log.read_text(encoding="utf-8", errors="replace") if log.exists() else "",
        found=_identified(log, has_ended=code == 0),
        exit_code=code,
        elapsed_s=time.monotonic() - started,
    )


def _identified(log: Path, *, has_ended: bool = False) -> Found:
    try:
        head = HeadOfLog(log)
    except (NoLogError, OSError):
        return None  # nothing yet
    if has_ended and (probe := known_probe(log, {})) is not None:
        return probe
    return identify(head, {}, BUILTIN_FORMATS, None)
