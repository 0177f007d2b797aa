"""Find the logs that the user named: those of a system in a tree, those of a case one by one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from glob import glob
from typing import Final

from pytest_dlperf.config.systems import System
from pytest_dlperf.config.values import NamedLogs
from pytest_dlperf.files.mistakes import nearest
from pytest_dlperf.logs.tree import LogIndex, LogSource, index_logs
from pytest_dlperf.model.case import Case

_DIGITS: Final = re.compile("([0-9]+)")


def find_logs(given: Iterable[NamedLogs], systems: Mapping[str, System]) -> LogIndex:
    """Find all that the user named.

    Raises:
        UsageError: There is no such system, case or file; the message says what there is.
    """
    index = LogIndex()
    cases = {case.id: case for system in systems.values() for case in _with_references(system)}
    # The names of the logs in a tree number their runs; files are the runs behind those.
    for source in sorted(given, key=lambda source: source.is_of_case):
        if source.is_of_case:
            _add_case(index, source, cases)
        else:
            _add_system(index, source, systems)
    return index


def _add_system(index: LogIndex, given: NamedLogs, systems: Mapping[str, System]) -> None:
    """Add the tree of a system's logs."""
    system = systems.get(given.of)
    if system is None:
        raise given.error(
            f"there is no such system; there are: {', '.join(sorted(systems))}"
            f"{nearest(given.of, systems)}"
        )
    known = sorted({"+".join(case.options) for case in system.cases})
    if given.options is not None and "+".join(given.options) not in known:
        named = ", ".join(filter(None, known)) or "no options at all"
        raise given.error(f"{system.id} has no case with these options; it has: {named}")
    source = LogSource(system.id, given.options, given.path(given.places))
    by_case = "name a file by its case, --dlperf-logs CASE=FILE"
    try:
        found = index_logs(source, log_name=system.log_name, cases=_with_references(system))
    except OSError as error:
        raise given.error(f"{error.filename}: {error.strerror}; {by_case}") from error
    if not found.logs and not found.ignored:
        raise given.error(f"there is no *.log file below {source.directory}; {by_case}")
    index.merge(found)


def _add_case(index: LogIndex, given: NamedLogs, cases: Mapping[str, Case]) -> None:
    """Add runs of a case: the file of each node of one, or each file that a pattern matches."""
    case = cases.get(given.of)
    if case is None:
        hint = nearest(given.of, cases)
        raise given.error(f"there is no such case{hint}; --collect-only -q lists them all")
    names = [os.fspath(given.path(name.strip())) for name in given.places.split(",")]
    if len(names) == 1:
        found = sorted(glob(names[0]), key=_in_order)  # noqa: PTH207 - keeps the user's path
        named = [[name] for name in found] or [names]
    elif len(names) == case.topology.nodes:
        named = [names]
    else:
        raise given.error(
            f"{len(names)} files of one run with {case.topology.nodes} node(s); name the log of "
            "each node, node 0 first, or one file alone. Further runs are further options"
        )
    runs = index.logs.setdefault(case.id, {})
    known = {os.path.realpath(log) for logs in runs.values() for log in logs}
    for files in named:
        for name in files:
            if os.path.isdir(name):  # noqa: PTH112 - takes names that are too long, as below
                pattern = f"{given.places.rstrip('/')}/*.out"
                raise given.error(
                    f"{name} is a folder; name its files, --dlperf-logs '{case.id}={pattern}'"
                )
            if not os.path.isfile(name):  # noqa: PTH113 - as above
                raise given.error(f"there is no file {name}")
        main, *others = files
        if os.path.realpath(main) not in known:
            known.add(os.path.realpath(main))
            runs[max(runs, default=0) + 1] = [main]
            index.nodes[main] = others


def _with_references(system: System) -> list[Case]:
    """List what there may be logs of: the cases, and what their speedups are taken over."""
    references = {case.reference for case in system.cases}
    return [*system.cases, *filter(None, references)]


def _in_order(name: str) -> list[str | int]:
    """Sort by what numbers in a name are worth: ``run-9`` stands before ``run-10``."""
    return [int(part) if part.isdecimal() else part for part in _DIGITS.split(name)]
