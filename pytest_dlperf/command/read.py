"""``pytest-dlperf read``: identifies logs, shows what they hold, and what to do next."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_dlperf.command.log_report import report
from pytest_dlperf.command.main import FAULTS, FINE
from pytest_dlperf.command.project import read_project
from pytest_dlperf.command.shell import (
    PYTEST_ARGUMENTS,
    Style,
    add_folders,
    file_argument,
    path_argument,
    write_report,
)
from pytest_dlperf.command.training_log import Found, found_in, head_of
from pytest_dlperf.config.systems import System, read_systems
from pytest_dlperf.files.mistakes import nearest
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.report.printing import printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Show what a log is and holds: format, steps, ranks, the measured metrics, every number "
        "and fact, doubts, and the next command. Of a large log, only the head and the end are "
        "read."
    )
    parser.epilog = PYTEST_ARGUMENTS
    parser.add_argument("logs", nargs="+", type=path_argument, metavar="FILE", help="logs to read")
    parser.add_argument("--case", metavar="CASE", help="the id of the case whose run wrote the log")
    parser.add_argument(
        "--write",
        type=file_argument,
        metavar="FILE",
        help="write a first system file, for a log that no system reads yet",
    )
    add_folders(parser)


def run(options: argparse.Namespace) -> int:
    """Read the logs, print what they hold, and return the exit code."""
    file = None if options.write is None else Path(options.write)
    if file is not None:
        _check_write(file, options.logs)
    heads = [head_of(Path(log)) for log in options.logs]
    project = read_project(options)
    formats = project.formats
    systems, problems = read_systems(project.system_files, formats)
    wanted = _case(options.case, systems)
    style = Style(sys.stdout)
    style.show(f"note: {one}; 'pytest-dlperf check' shows all mistakes" for one in problems[:1])
    code = FINE
    for number, head in enumerate(heads):
        if number:
            style.show([""])
        found = found_in(head, systems, formats, wanted)
        style.show(report(head, found, style, formats=formats, wanted=wanted, file=file))
        code = code if found else FAULTS
        if file is not None:
            _write(file, found)
    return code


def _check_write(file: Path, logs: Sequence[str]) -> None:
    if len(logs) > 1:
        raise UsageError("--write makes a system file from one log; name one")
    if os.path.lexists(file):
        raise UsageError(f"--write: {printable(str(file))} exists; name a new file")
    if file.suffix not in (".yaml", ".yml"):
        raise UsageError(f"--write: system files end with .yaml, unlike {printable(str(file))}")


def _case(given: str | None, systems: Mapping[str, System]) -> Case | None:
    if given is None:
        return None
    known = {case.id: case for system in systems.values() for case in system.cases}
    if given in known:
        return known[given]
    try:
        return Case.from_id(given)
    except ValueError as error:
        raise UsageError(f"--case: {error}{nearest(given, known)}") from error


def _write(file: Path, found: Found) -> None:
    if found is None:
        raise UsageError("--write: nothing was found to write")
    draft = found.draft
    if draft is None:
        raise UsageError(f"--write: {found.system.id} reads such logs already: {found.system.file}")
    write_report("--write", file, draft if isinstance(draft, str) else draft.text())
