"""Times whole commands in turn, so that a drift of the machine's speed meets all of them alike."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Usage:
    """What one finished process took: seconds of processor and wall time, peak memory in KiB."""

    cpu_s: float
    wall_s: float
    peak_kib: int


def run(command: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> Usage:
    """Run a command to its end.

    Raises:
        RuntimeError: It failed; the message holds what it printed.
    """
    started = time.perf_counter()
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    output = process.stdout.read() if process.stdout else ""
    # wait4 tells the usage of this very process and its children.
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{command} ended with {process.returncode}:\n{output[-2000:]}")
    return Usage(usage.ru_utime + usage.ru_stime, time.perf_counter() - started, usage.ru_maxrss)


def interleaved(
    commands: Mapping[str, Sequence[str]],
    cwd: Path,
    repeats: int,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, list[Usage]]:
    """Run the commands A B C A B C …, after one round that does not count."""
    taken: dict[str, list[Usage]] = {name: [] for name in commands}
    for round_number in range(repeats + 1):
        for name, command in commands.items():
            usage = run(command, cwd, environment)
            if round_number:
                taken[name].append(usage)
    return taken


def middle(usages: Sequence[Usage]) -> Usage:
    """The medians."""
    return Usage(
        median(usage.cpu_s for usage in usages),
        median(usage.wall_s for usage in usages),
        round(median(usage.peak_kib for usage in usages)),
    )
