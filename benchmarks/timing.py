"""Times what is compared in turn, so that a drift of the machine's speed meets all sides alike."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Usage:
    """What one finished process took, and what it printed."""

    cpu_s: float
    wall_s: float
    peak_mib: float
    output: str


def run(
    command: Sequence[str],
    environment: Mapping[str, str] = MappingProxyType({}),
    cwd: Path | None = None,
) -> Usage:
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
    wall_s = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{command} ended with {process.returncode}:\n{output[-2000:]}")
    cpu_s = usage.ru_utime + usage.ru_stime
    return Usage(cpu_s, wall_s, usage.ru_maxrss / 1024, output.strip())


def seconds(work: Callable[[], object]) -> float:
    """How long it takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def interleaved(sides: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """Measure the sides A B C A B C …; the first round may have more to do than the others."""
    taken: dict[str, list[T]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            taken[name].append(side())
    return taken


def middle(usages: Sequence[Usage]) -> Usage:
    """The medians; with what the last one printed."""
    return Usage(
        median(usage.cpu_s for usage in usages),
        median(usage.wall_s for usage in usages),
        median(usage.peak_mib for usage in usages),
        usages[-1].output,
    )
