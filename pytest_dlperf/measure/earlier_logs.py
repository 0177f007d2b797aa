"""Logs that a run of the same name has left: renamed, so that nothing is written over."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pytest_dlperf.launch.plan import run_dir
from pytest_dlperf.logs.arrivals import arrivals_of
from pytest_dlperf.logs.lines import readable


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
