"""One run as a whole: the logs of its nodes, what follows from their numbers, and how it ended."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from pytest_dlperf.config.cluster import Cluster, published_peak
from pytest_dlperf.config.systems import System
from pytest_dlperf.files.masking import in_message
from pytest_dlperf.launch.plan import run_dir
from pytest_dlperf.launch.record import FirstStep, LaunchOutcome, Stop
from pytest_dlperf.logs.arrivals import arrivals_of
from pytest_dlperf.logs.lines import LogFile, readable
from pytest_dlperf.logs.reading import LogReading
from pytest_dlperf.logs.run import RunLogs, RunNumbers
from pytest_dlperf.model.builtin import BUILTIN, WholeRun
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import Estimator, Run, RunStatus, with_members
from pytest_dlperf.model.metric import MEMBER, THROUGHPUT, Metric, Source

NODES_SHOWN: Final = 8
LINES_SHOWN: Final = 20
TAIL_BYTES: Final = 8192
LINE_SHOWN: Final = 200
_NAMES_A_LINE: Final = re.compile(r" line \d+\)|\(line \d+\)")


def metrics_of_runs(system: System, runs: Sequence[Run] = ()) -> tuple[Metric, ...]:
    """Give the metrics that a single run of a system may have; of families, those of these runs."""
    names = dict.fromkeys(name for run in runs for name in run.metrics)
    missing = dict.fromkeys(name for run in runs for name in run.missing)
    single = [metric for metric in system.metrics if metric.source is not Source.RATIO]
    return with_members(single, names | missing)


def has_number(system: System, run: Run) -> bool:
    """Whether a run has a number that a test judges, if its system has any."""
    judged = {metric.name for metric in system.metrics if metric.is_judged}
    return not judged or any(name.partition(MEMBER)[0] in judged for name in run.metrics)


def logs_of(
    system: System, case: Case, estimator: Estimator, *, run: int, logs: Sequence[Path]
) -> RunLogs | RunNumbers:
    """Prepare to read the logs of a run, node 0's first."""
    if system.is_probe:
        return RunNumbers(
            logs, run=run, case=case, log_format=system.log_format, declared=system.declared
        )
    readings = [
        LogReading(
            path,
            number=run,
            case=case,
            log_format=system.log_format,
            window=system.window,
            estimator=estimator,
            unit=system.unit,
            metrics=system.metrics,
            declared=system.declared,
            node=node,
            nodes=len(logs),
        )
        for node, path in enumerate(logs)
    ]
    return RunLogs(readings, node=system.log_node)


def with_derived(  # noqa: PLR0913 - what a run was of
    run: Run,
    system: System,
    case: Case,
    cluster: Cluster,
    outcome: LaunchOutcome | None = None,
    *,
    device: str | None,
) -> Run:
    """Add what follows from the throughput, and what a launch has measured beside its logs.

    ``device`` is the model of the devices, where that is known.
    """
    rate = run.metrics.get(THROUGHPUT)
    if run.status is not RunStatus.OK or rate is None:
        return run
    step = FirstStep() if outcome is None else outcome.first_step
    whole = WholeRun(
        case=case,
        unit=system.unit,
        throughput=rate,
        peak_tflops=cluster.peak_tflops.get(case.precision)
        or published_peak(device, case.precision),
        first_step=step.problem if step.seconds is None else step.seconds,
        device=device,
        file=system.file.name,
    )
    metrics, missing = dict(run.metrics), dict(run.missing)
    for metric in metrics_of_runs(system):
        value = BUILTIN[metric.name].value if metric.name in BUILTIN else None
        found = None if value is None else value(whole)
        if isinstance(found, float):
            metrics[metric.name] = found
        elif found is not None and metric.is_judged:
            missing[metric.name] = found
    return replace(run, metrics=metrics, missing=missing)


# ------------------------------------------------------------------ how it ended


def with_ending(read: Run, outcome: LaunchOutcome, logs: Sequence[Path]) -> Run:
    """Put what the log says and how the processes ended together.

    A trainer that dies after its window is complete has been measured: the death is noted. One
    that dies before has failed, whatever its log looks like; so has a program without steps that
    dies at all. The first line of a reason says what
    happened; below it stand the last lines of the log of the node that was the first to fail.
    """
    run = _ended(read, outcome, logs)
    missing = {name: in_message(why) for name, why in run.missing.items()}
    return replace(run, missing=missing, reason=run.reason and in_message(run.reason))


def _ended(read: Run, outcome: LaunchOutcome, logs: Sequence[Path]) -> Run:
    ending = _ending(outcome)
    sizes = dict(zip(logs, outcome.log_sizes_at_end, strict=False))
    for rank in outcome.first_failed:
        sizes.pop(logs[rank], None)  # it ended before it was asked to
    log = Path(read.log) if read.log else logs[0]
    read = replace(read, log_size_at_end=sizes.get(log))
    if ending is None:
        return with_last_line(read, sizes.get(log))
    status, how = ending
    run = replace(read, log=readable(str(log)))
    if read.status is RunStatus.OK and outcome.error is None and read.steps is not None:
        note = f"{how}, after the last step that counts"
        return replace(run, reason=f"{read.reason}; {note}" if read.reason else note)
    reason = f"{how}; {read.reason}" if read.reason else how
    if any(code is not None for code in outcome.exit_codes):
        told = next((logs[rank] for rank in outcome.first_failed), log)
        if lines := last_words(told, sizes.get(told)):
            head = f"; the log of node {logs.index(told)}, {readable(str(told))}, ends with:"
            reason += "\n".join([head, *lines])
    return replace(run, metrics={}, missing={}, status=status, reason=reason)


def _ending(outcome: LaunchOutcome) -> tuple[RunStatus, str] | None:
    if outcome.error is not None:
        return RunStatus.FAILED, outcome.error
    stop, reason = outcome.stopped
    if stop in (Stop.HUNG, Stop.TIME_LIMIT):
        return RunStatus.HUNG, reason
    if outcome.succeeded:
        return None
    # The others failed because of these, or were ended by us.
    bad = outcome.first_failed or [
        rank for rank, code in enumerate(outcome.exit_codes) if code != 0
    ]
    failures = [f"{_exit_text(outcome.exit_codes[rank])} on node {rank}" for rank in bad]
    left_out = len(failures) - NODES_SHOWN
    more = f" and on {left_out} more nodes" if left_out > 0 else ""
    reason = f"the program ended with {', '.join(failures[:NODES_SHOWN])}{more}"
    return RunStatus.FAILED, reason


def _exit_text(exit_code: int | None) -> str:
    if exit_code is None:
        return "an unknown exit code"
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return f"signal {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"signal {-exit_code}"


def with_last_line(read: Run, sigterm_offset: int | None = None) -> Run:
    """Add what the log ends with where no step was found: that says most, unless a line is named.

    Behind byte ``sigterm_offset`` stands only what the trainer said of being ended.
    """
    reason = read.reason
    if read.log is None:
        return read
    names_a_line = _NAMES_A_LINE.search(reason or "") is not None
    if read.status is RunStatus.INVALID and not read.steps and not names_a_line:
        for line in last_lines(Path(read.log), 1, end=sigterm_offset):
            reason = f"{read.reason}; the log ends with {line!r}"
    return replace(read, log=readable(read.log), reason=reason)


def last_words(log: Path, sigterm_offset: int | None, count: int = LINES_SHOWN) -> list[str]:
    """Read the last lines of a log, and of how it ended apart what it said when it was asked to."""
    lines = partial(last_lines, log)
    if sigterm_offset is None or not (after := lines(count // 2, begin=sigterm_offset)):
        return lines(count)
    before = lines(count - len(after) - 1, end=sigterm_offset)
    return [*before, "(what follows was printed after pytest-dlperf had sent SIGTERM)", *after]


def last_lines(
    log: Path, count: int = LINES_SHOWN, *, begin: int = 0, end: int | None = None
) -> list[str]:
    """Read the last lines of a log that are not empty, between two bytes; long ones are cut.

    Secrets are masked: the lines go into results and reports.
    """
    try:
        with LogFile(log) as file:
            stop = file.seek(0, os.SEEK_END) if end is None else end
            start = max(begin, stop - TAIL_BYTES)
            file.seek(start)
            lines = file.read(max(stop - start, 0)).decode("utf-8", "replace").split("\n")
    except (OSError, ValueError):  # ValueError: no file can have this name
        return []
    if start > begin and len(lines) > 1:
        del lines[0]  # its beginning is not here
    text = "\n".join([line.rstrip() for line in lines if line.strip()][-count:])
    # Some secrets have several lines.
    return [line[:LINE_SHOWN] for line in in_message(text).split("\n") if line]


# ------------------------------------------- what an earlier run of the same name has left


def set_aside(log: Path, why: str) -> dict[str, str]:
    """Rename what an earlier run of the same name has left; give the new names by the old.

    A log's arrivals stay beside it.
    """
    renamed = {}
    for left in (log, run_dir(log)):
        number = 1
        while left.exists():
            kept = left.with_name(f"{left.name}.{why}{number}")
            if not kept.exists():
                left.rename(kept)
                renamed[readable(str(left))] = readable(str(kept))
                if left == log:
                    with suppress(FileNotFoundError):
                        arrivals_of(log).rename(arrivals_of(kept))
            number += 1
    return renamed


def now_at(log: str | None, renamed: Mapping[str, str]) -> str | None:
    """Name a log by where it lies now: renamed itself, or its folder."""
    if log is None or log in renamed:
        return log and renamed[log]
    folder, _, name = log.rpartition("/")
    return f"{renamed[folder]}/{name}" if folder in renamed else log
