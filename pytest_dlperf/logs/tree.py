"""Place logs in the folder tree of the original benchmark, and find them there again.

``<root>/<system>[/<work>][/<options>]/<N>n<D>g/<log name>_(b|gb)<batch>_<precision>_<run>.log``,
with the files of further nodes and ranks in a folder of the log's own name beside it. The folder of
the work, as in ``gb256-s4096-tp2_pp4``, is there where a case says more than its batch. A probe has
``<root>/<system>[/<value of an axis>-…]/<N>n<D>g/<log name>_<run>.log``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from pytest_dlperf.model.case import PRECISION_PATTERN, TOPOLOGY_PATTERN, Case
from pytest_dlperf.model.results import IgnoredLog
from pytest_dlperf.model.work import WORK_PATTERN

SUFFIX: Final = ".log"
CONTROL_ARM: Final = "control-arm"
"""The folder of runs that were taken to confirm a verdict: they are none of the case's own."""
COMPANIONS: Final = "companions"
"""The folder of probes' runs on the hosts of another case, before it or once it is red."""
_NAME = re.compile(
    rf"(?P<log_name>.+)_(?P<batch>g?b[1-9][0-9]*)_(?P<precision>{PRECISION_PATTERN})"
    r"_(?P<run>[1-9][0-9]*)\.log",
    re.DOTALL,
)
_PROBE_NAME = re.compile(r"(?P<log_name>.+)_(?P<run>[1-9][0-9]*)\.log", re.DOTALL)
_TOPOLOGY = re.compile(TOPOLOGY_PATTERN)
_WORK = re.compile(WORK_PATTERN)


class LogSource(Struct, frozen=True):
    """A folder of existing logs, and the system (and options) that they are of.

    With ``options`` left open (``None``) a folder directly above a topology's may name them.
    """

    system: str
    options: tuple[str, ...] | None
    directory: Path


class LogIndex(Struct):
    """Logs by case id and run number. More than one log for a run is a fault of the logs."""

    logs: dict[str, dict[int, list[str]]] = {}
    ignored: list[IgnoredLog] = []
    nodes: dict[str, list[str]] = {}
    """Logs of further nodes, if any, by the log of node 0, where the user named these files."""

    def merge(self, other: LogIndex) -> None:
        """Take over what another folder holds."""
        for case_id, runs in other.logs.items():
            mine = self.logs.setdefault(case_id, {})
            for run, paths in runs.items():
                known = mine.setdefault(run, [])
                # The same folder may be named twice, also by way of a link.
                real = {os.path.realpath(path) for path in known}
                known.extend(path for path in paths if os.path.realpath(path) not in real)
        self.ignored.extend(other.ignored)

    def runs_of(self, case_id: str) -> list[tuple[int, list[str]]]:
        """Give run numbers and logs of a case, in the order of the numbers."""
        return sorted(self.logs.get(case_id, {}).items())


def log_path(root: Path, case: Case, log_name: str, run: int) -> Path:
    """Name the place of a run's log below ``root``."""
    folder = root.joinpath(case.system, work_folder(case), "+".join(case.options))
    return folder / str(case.topology) / log_file_name(case, log_name, str(run))


def log_file_name(case: Case, log_name: str, run: str) -> str:
    """Name the file of a run's log."""
    work = case.work
    what = "" if work is None else f"_{work.batch_text}_{case.precision}"
    return f"{log_name}{what}_{run}{SUFFIX}"


def work_folder(case: Case) -> str:
    """Name the folder of what a case's steps do, or of a probe's axes.

    Empty where the batch says it all, or there are no axes.
    """
    if case.work is None:
        return "-".join(case.free_axes.values())
    work = str(case.work)
    return "" if work == case.work.batch_text else work


def index_logs(source: LogSource, *, log_name: str, cases: Iterable[Case]) -> LogIndex:
    """Find the logs of a system's cases at any depth below a folder.

    Raises:
        OSError: The folder itself cannot be read.
    """
    matrix = _Matrix(source, log_name, cases)
    index = LogIndex()
    for path, folders in _walk(source.directory, index):
        try:
            case_id, run = matrix.place(path, folders)
        except _NoPlaceError as error:
            index.ignored.append(IgnoredLog(path, str(error)))
        else:
            index.logs.setdefault(case_id, {}).setdefault(run, []).append(path)
    return index


class _NoPlaceError(Exception):
    """A log belongs to no run."""


class _Matrix:
    """A system's cases, arranged so that a log finds its own by name and folders."""

    def __init__(self, source: LogSource, log_name: str, cases: Iterable[Case]) -> None:
        self._source = source
        self._log_name = log_name
        cases = tuple(cases)
        self._ids = {
            (str(case.work), case.options, str(case.topology), case.precision): case.id
            for case in cases
            if case.work is not None
        }
        self._probes = {
            (work_folder(case), str(case.topology)): case.id for case in cases if case.work is None
        }
        self._option_folders = {
            "+".join(options): options for _, options, *_ in self._ids if options
        }

    def place(self, path: str, folders: tuple[str, ...]) -> tuple[str, int]:
        """Find the case id and run number of a log in these folders, the innermost last."""
        name = os.path.basename(path)  # noqa: PTH119 - a Path for each of 100,000 logs costs
        if self._probes:
            return self._place_probe(name, folders)
        match = _NAME.fullmatch(name)
        if match is None or match["log_name"] != self._log_name:
            form = f"{self._log_name}_(b|gb)<batch>_<precision>_<run>{SUFFIX}"
            raise _NoPlaceError(f"the name is not of the form {form}")
        topology = folders[-1] if folders else ""
        if not _TOPOLOGY.fullmatch(topology):
            raise _NoPlaceError("the folder above it names no topology such as 1n8g")
        options = self._options(folders[:-1])
        work = self._work(folders[:-1], match["batch"])
        case_id = self._ids.get((work, options, topology, match["precision"]))
        if case_id is None:
            variant = f"{match['precision']}, {work}, {topology}"
            with_options = f"options {'+'.join(options)}" if options else "no options"
            named = self._folders_of(work, (options, topology, match["precision"]))
            hint = f"; such logs lie in folders {' or '.join(named)}" if named else ""
            raise _NoPlaceError(
                f"{self._source.system} has no case of {variant}, {with_options}{hint}"
            )
        return case_id, int(match["run"])

    def _place_probe(self, name: str, folders: tuple[str, ...]) -> tuple[str, int]:
        match = _PROBE_NAME.fullmatch(name)
        if match is None or match["log_name"] != self._log_name:
            raise _NoPlaceError(f"the name is not of the form {self._log_name}_<run>{SUFFIX}")
        axes, topology = ("", "", *folders)[-2:]
        # Without axes, the folder above is the system's, or any other.
        place = axes if any(axes for axes, _ in self._probes) else "", topology
        if place not in self._probes:
            named = ", ".join("/".join(filter(None, place)) for place in self._probes)
            raise _NoPlaceError(f"it lies in none of the folders of its cases, {named}")
        return self._probes[place], int(match["run"])

    def _folders_of(self, batch: str, rest: tuple[tuple[str, ...], str, str]) -> list[str]:
        """Name the folders of works that have this batch, and a length or a layout beside it."""
        return [
            work
            for work, *of_case in self._ids
            if tuple(of_case) == rest and work.partition("-")[0] == batch
        ]

    def _options(self, folders: tuple[str, ...]) -> tuple[str, ...]:
        """Find a log's options: as the user said, else as the folder above says."""
        above = self._option_folders.get(folders[-1]) if folders else None
        if self._source.options is None:
            return above or ()
        if above is not None and above != self._source.options:
            raise _NoPlaceError(f"it lies in a folder of the options {'+'.join(above)}")
        return self._source.options

    def _work(self, folders: tuple[str, ...], batch: str) -> str:
        """Find what a log's steps do: as the folder above the options says, else its batch."""
        if folders and folders[-1] in self._option_folders:
            folders = folders[:-1]
        above = folders[-1] if folders else ""
        if "-" not in above or not _WORK.fullmatch(above):
            return batch
        if above.partition("-")[0] != batch:
            raise _NoPlaceError(f"it lies in a folder of {above}")
        return above


def _walk(top: Path, index: LogIndex) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Every ``*.log`` below ``top`` with the names of the folders above it, in a fixed order.

    Links to folders are followed, but each folder is entered once: a loop ends, and a log is
    not found twice.
    """

    def unreadable(error: OSError) -> None:
        if error.filename == os.fspath(top):
            raise error
        why = f"the folder cannot be read: {error.strerror}"
        index.ignored.append(IgnoredLog(str(error.filename), why))

    # The folder of a topology, options or work may itself be what the user named.
    start, seen = top.absolute().parts[-3:], {_identity(top)}
    for folder, below, files in os.walk(top, onerror=unreadable, followlinks=True):
        logs = {name for name in files if name.endswith(SUFFIX)}
        found, below[:] = sorted(below), []
        for name in found:
            path = os.path.join(folder, name)  # noqa: PTH118 - the walk deals in plain strings
            if _NAME.fullmatch(name):
                index.ignored.append(IgnoredLog(path, "it is a folder, named as a log"))
            # Files of further ranks and nodes lie in a folder beside their run's log, and
            # those taken beside a case are read by naming a folder in there.
            own = name + SUFFIX
            is_of_run = own in logs and _PROBE_NAME.fullmatch(own) is not None
            is_aside = is_of_run or name in {CONTROL_ARM, COMPANIONS}
            if not is_aside and (identity := _identity(path)) not in seen:
                seen.add(identity)
                below.append(name)
        names = (*start, *Path(folder).relative_to(top).parts)
        yield from ((os.path.join(folder, name), names) for name in sorted(logs))  # noqa: PTH118


def _identity(path: Path | str) -> tuple[int, int]:
    stat = os.stat(path)  # noqa: PTH116 - as above
    return stat.st_dev, stat.st_ino
