"""Find the logs that the user named: trees of a system's logs, and files of a case under any name.

``SYSTEM[/OPTIONS]=DIR`` is a tree, ``CASE=FILE`` a run. Both meet where they can be understood: a
file of a system that tells its case, a tree of which one case is wanted.
"""

from __future__ import annotations

import os
import re
from glob import glob, has_magic
from stat import S_ISDIR, S_ISREG
from typing import TYPE_CHECKING, Final

from pytest_dlperf.files.yamlfile import nearest
from pytest_dlperf.logs.tree import LogIndex, LogSource, index_logs, is_named_as_log, place_log
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.numbers import named
from pytest_dlperf.model.results import IgnoredLog

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from pytest_dlperf.config.systems import System
    from pytest_dlperf.config.values import NamedLogs
    from pytest_dlperf.model.case import Case

_CASES_NAMED: Final = 5
_DIGITS: Final = re.compile("([0-9]+)")


def find_logs(given: Iterable[NamedLogs], systems: Mapping[str, System]) -> LogIndex:
    """Find all that the user named.

    Raises:
        UsageError: There is no such system, case or file; the message says what there is.
    """
    finder = _Finder(systems)
    for source in given:
        if source.is_of_case:
            finder.add_case(source)
        else:
            finder.add_system(source)
    return finder.index()


class _Finder:
    """Collects trees and files; files come last, as the runs behind those of the trees."""

    def __init__(self, systems: Mapping[str, System]) -> None:
        self._systems = systems
        self._cases = {case.id: case for s in systems.values() for case in _with_references(s)}
        self._index = LogIndex()
        self._runs: list[tuple[Case, list[str]]] = []
        self._taken: dict[tuple[int, int], tuple[str, str]] = {}
        """How files were named that the user named by themselves, and the case that they are of."""

    def add_system(self, given: NamedLogs) -> None:
        """Take a tree of a system's logs, or a file that tells which of its cases it is of."""
        system = self._systems.get(given.of)
        if system is None:
            raise given.error(
                f"there is no such system; there are: {', '.join(sorted(self._systems))}"
                f"{nearest(given.of, self._systems)}"
            )
        known = sorted({"+".join(case.options) for case in system.cases})
        if given.options is not None and "+".join(given.options) not in known:
            named = ", ".join(filter(None, known)) or "no options at all"
            raise given.error(f"{system.id} has no case with these options; it has: {named}")
        path = given.path(given.places)
        source = LogSource(system.id, given.options, path)
        if S_ISREG(_mode(path)):
            case = self._case_of(path, source, system, given)
            self._add_run(case, [path], given)
            return
        found = _tree(source, system, given)
        if not found.logs and not found.ignored:
            raise given.error(
                f"there is no *.log file below {path}; name a file by its case, "
                "--dlperf-logs CASE=FILE"
            )
        self._index.merge(found)

    def add_case(self, given: NamedLogs) -> None:
        """Take the runs of a case: files, a pattern of files, or those of a tree that are its."""
        case = self._cases.get(given.of)
        if case is None:
            hint = nearest(given.of, self._cases)
            raise given.error(f"there is no such case{hint}; --collect-only -q lists them all")
        whole = given.path(given.places)
        found_mode = _mode(whole)
        if S_ISDIR(found_mode):
            self._add_tree(case, whole, given)
        elif not found_mode and "," in given.places:
            names = [name.strip() for name in given.places.split(",")]
            paths = [given.path(name) for name in names if name]
            nodes = case.topology.nodes
            if len(paths) != nodes:
                raise given.error(
                    f"{len(paths)} files of one run with {nodes} node(s); name the log of each "
                    "node, node 0 first, or one file alone. Further runs are further options"
                )
            self._add_run(case, paths, given)
        elif not found_mode and has_magic(given.places):
            found = sorted(glob(str(whole)), key=_in_order)  # noqa: PTH207 - keeps the user's path
            if not found:
                raise given.error(f"no file is named like {given.places!r}")
            for name in found:
                self._add_run(case, [given.path(name)], given)
        else:
            self._add_run(case, [whole], given)

    def index(self) -> LogIndex:
        """Return all logs by case and run."""
        index = self._index
        placed = self._placed_in_trees() if self._taken else {}
        for identity, (name, case_id) in self._taken.items():
            for other in placed.get(identity, ()):
                if other != case_id:
                    raise UsageError(
                        f"--dlperf-logs {case_id}={name}: the same file is found as a log of "
                        f"{other}; one log is one run of one case"
                    )
        if self._taken:
            index.ignored = [log for log in index.ignored if _identity(log.log) not in self._taken]
        for case, (main, *others) in self._runs:
            if _identity(main) in placed:
                continue
            runs = index.logs.setdefault(case.id, {})
            runs[max(runs, default=0) + 1] = [main]
            index.nodes[main] = others
        return index

    def _case_of(self, path: Path, source: LogSource, system: System, given: NamedLogs) -> Case:
        """Find the case of a file: by its name and folders, or because there is one only."""
        cases = [
            case
            for case in system.cases
            if source.options is None or case.options == source.options
        ]
        try:
            placed = place_log(
                path, source, log_name=system.log_name, cases=_with_references(system)
            )
        except ValueError as error:
            if len(cases) == 1 and not is_named_as_log(path.name):
                return cases[0]
            some = named([case.id for case in cases], _CASES_NAMED)
            raise given.error(
                f"{path} does not say which case it is of: {error}. Name it, "
                f"--dlperf-logs CASE={given.places}; {system.id} has {some}"
            ) from error
        return self._cases[placed]

    def _add_tree(self, case: Case, directory: Path, given: NamedLogs) -> None:
        system = self._systems[case.system]
        found = _tree(LogSource(system.id, case.options, directory), system, given)
        mine = found.logs.pop(case.id, {})
        if not mine:
            raise given.error(
                f"no log below {directory} has the name and the folders of this case; name its "
                f"files, --dlperf-logs '{case.id}={given.places.rstrip('/')}/*.out'"
            )
        others = (
            IgnoredLog(log, f"it is of {other}, and only those of {case.id} were asked for")
            for other, runs in found.logs.items()
            for logs in runs.values()
            for log in logs
        )
        self._index.merge(LogIndex({case.id: mine}, [*found.ignored, *others]))

    def _add_run(self, case: Case, paths: Sequence[Path], given: NamedLogs) -> None:
        for path in paths:
            name = os.fspath(path)
            mode = _mode(path)
            if not mode:
                raise given.error(f"there is no file {name}")
            if not S_ISREG(mode):
                kind = "a folder" if S_ISDIR(mode) else "no regular file"
                raise given.error(f"{name} is {kind}; name a log, which is kept in a file")
            identity = _identity(name)
            if identity in self._taken:
                first, case_id = self._taken[identity]
                spelled = "" if first == name else f" as {first}"
                also = "" if case_id == case.id else f" for {case_id}"
                raise given.error(
                    f"{name} was named before{spelled}{also}; one log is one run of one case"
                )
            self._taken[identity] = name, case.id
        self._runs.append((case, [os.fspath(path) for path in paths]))

    def _placed_in_trees(self) -> dict[tuple[int, int], set[str]]:
        """Say of which cases the logs in trees are."""
        placed: dict[tuple[int, int], set[str]] = {}
        for case_id, runs in self._index.logs.items():
            for log in (log for logs in runs.values() for log in logs):
                placed.setdefault(_identity(log), set()).add(case_id)
        return placed


def _tree(source: LogSource, system: System, given: NamedLogs) -> LogIndex:
    try:
        return index_logs(source, log_name=system.log_name, cases=_with_references(system))
    except OSError as error:
        raise given.error(f"{error.filename}: {error.strerror}") from error


def _with_references(system: System) -> list[Case]:
    """List what there may be logs of: the cases, and what their speedups are taken over."""
    references = {case.reference for case in system.cases}
    return [*system.cases, *filter(None, references)]


def _mode(path: Path) -> int:
    """Say what is there; 0 for nothing, also where a name is too long or a folder is closed."""
    try:
        return path.stat().st_mode
    except OSError:
        return 0


def _identity(path: str) -> tuple[int, int]:
    """Tell files apart, however they are spelled."""
    try:
        found = os.stat(path)  # noqa: PTH116 - the path may be text
    except OSError:  # gone since it was found, or a link to nowhere
        return -1, hash(path)
    return found.st_dev, found.st_ino


def _in_order(name: str) -> list[str | int]:
    """Sort by what numbers in a name are worth: ``run-9`` stands before ``run-10``."""
    return [int(part) if part.isdecimal() else part for part in _DIGITS.split(name)]
