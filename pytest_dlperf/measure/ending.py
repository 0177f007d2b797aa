"""Puts together what a run's log says, how its processes ended, and what the log ends with."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from pytest_dlperf.files.masking import in_message
from pytest_dlperf.launch.record import LaunchOutcome, Stop
from pytest_dlperf.logs.lines import LogFile, readable
from pytest_dlperf.model.measurement import Run, RunStatus

NODES_SHOWN: Final = 8
LINES_SHOWN: Final = 20
TAIL_BYTES: Final = 8192
LINE_SHOWN: Final = 200
_NAMES_A_LINE: Final = re.compile(r" line \d+\)|\(line \d+\)")


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
