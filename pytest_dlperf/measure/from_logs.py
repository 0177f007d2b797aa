"""Measures cases from logs that the user named: of a system in a tree, of a case one by one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from glob import glob
from hashlib import sha256
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from pytest_dlperf.config.cluster import Cluster
from pytest_dlperf.config.systems import System
from pytest_dlperf.config.values import NamedLogs
from pytest_dlperf.files.mistakes import nearest
from pytest_dlperf.formats.log_format import WhichNode
from pytest_dlperf.launch.plan import node_log
from pytest_dlperf.logs.lines import LogFile, readable
from pytest_dlperf.logs.tree import LogIndex, LogSource, index_logs, log_file_name, work_folder
from pytest_dlperf.measure.run import logs_of, metrics_of_runs, with_derived, with_last_line
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.errors import CannotMeasureError
from pytest_dlperf.model.measurement import Estimator, Measurement, Run, RunStatus

_DIGITS: Final = re.compile("([0-9]+)")
_DIGESTED: Final = 1024 * 1024
"""Bytes at either end of a log, by which it is known again however large it is."""


@dataclass(frozen=True, slots=True)
class LogMeasurer:
    """Measures cases from logs that exist, of a case all runs that there are."""

    index: LogIndex
    systems: Mapping[str, System]
    cluster: Cluster

    def measure(self, case: Case) -> Measurement:
        """Read the runs that logs exist of, in the order of their numbers.

        Raises:
            CannotMeasureError: There is no log of this case.
        """
        system = self.systems[case.system]
        check_estimator(system, self.cluster.estimator)
        found = self.index.runs_of(case.id)
        if not found:
            options = f"/{'+'.join(case.options)}" if case.options else ""
            work = work_folder(case)
            name = log_file_name(case, system.log_name, "<run>")
            raise CannotMeasureError(
                f"no logs of {case.id}; give their folder with --dlperf-logs "
                f"{case.system}{options}=DIR, where {work and f'{work}/'}{case.topology}/{name} "
                "lie, or a log under any name with --dlperf-logs CASE=FILE"
            )
        runs = tuple(self._read(case, system, number, logs) for number, logs in found)
        digested = [log for _, same in found for log in self._node_logs(case, same)]
        return Measurement(
            case_id=case.id,
            metrics=metrics_of_runs(system, runs),
            estimator=self.cluster.estimator,
            runs=runs,
            available_runs=len(found),
            logs_digest=_digest(digested),
        )

    def _read(self, case: Case, system: System, run: int, logs: list[str]) -> Run:
        if len(logs) > 1:
            reason = f"{len(logs)} logs claim to be run {run}: {', '.join(map(repr, logs))}"
            log = readable(logs[0])
            return Run(run=run, status=RunStatus.INVALID, reason=reason, log=log)
        of_nodes = self._node_logs(case, logs)
        read = logs_of(system, case, self.cluster.estimator, run=run, logs=of_nodes).finish()
        awaits_others = system.log_node is not WhichNode.FIRST and len(of_nodes) == 1
        found_nothing = not (read.steps or read.metrics)
        if found_nothing and awaits_others and case.topology.nodes > 1:
            missing = readable(str(node_log(of_nodes[0], case.topology.nodes - 1)))
            hint = (
                f"'node: {system.log_node.value}' of {system.file.name} needs the logs of all "
                f"nodes, as in {missing}, or named with commas: --dlperf-logs CASE=FILE,FILE"
            )
            read = replace(read, reason=f"{read.reason}; {hint}")
        device = self.cluster.machine.get("device")
        return with_last_line(with_derived(read, system, case, self.cluster, device=device))

    def _node_logs(self, case: Case, logs: Sequence[str]) -> list[Path]:
        """List the logs of the nodes of a run.

        Where no node but the first has one, all of them print into that one.
        """
        main = Path(logs[0])
        if named := self.index.nodes.get(str(main)):
            return [main, *map(Path, named)]
        others = [node_log(main, node) for node in range(1, case.topology.nodes)]
        return [main, *others] if any(log.exists() for log in others) else [main]


def _digest(logs: Iterable[Path]) -> str:
    """Digest the size, the head and the end of logs, whatever they are named."""
    digest = sha256()
    for log in logs:
        with suppress(OSError), LogFile(log) as file:  # the run says that it cannot be read
            size = file.size
            digest.update(
                b"%d " % size + file.part(0, _DIGESTED) + file.part(size - _DIGESTED, size)
            )
    return digest.hexdigest()


def check_estimator(system: System, estimator: Estimator) -> None:
    """Refuse what cannot be estimated before anything is launched or read."""
    is_defined = system.is_probe or system.log_format.published is not None
    if estimator is Estimator.PUBLISHED and not is_defined:
        raise CannotMeasureError(
            f"the log format {system.log_format.name} of {system.id} has no published "
            "definition of throughput; compare with a cluster whose cluster.yaml says "
            "'estimator: steady'"
        )


# --------------------------------------------------------------- finding what was named


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
