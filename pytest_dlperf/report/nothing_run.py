"""Lines for a session that runs no test: the plans of a dry run, and why nothing was selected."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from typing import Final

from pytest_dlperf.files.masking import hide, hide_variables, hide_words
from pytest_dlperf.launch.plan import NodeCommand
from pytest_dlperf.model import numbers
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.errors import BrokenError, CannotMeasureError

_OPERATORS: Final = frozenset(("and", "or", "not"))
_SHOWN: Final = 3
_VALUES_SHOWN: Final = 12
_ARGUMENT: Final = re.compile(r"""(\w+)\s*=\s*('[^']*'|"[^"]*"|\w+)""")
_MARKER: Final = re.compile(r"\bdlperf\s*\(([^)]*)\)")


def dry_run_lines(
    cases: Sequence[Case],
    planned: Callable[[Case], Sequence[NodeCommand]],
    shown: Callable[[Case], str],
) -> Iterator[str]:
    """Yield each case, and a line for each of its nodes; what is named as a secret is hidden.

    Below stands what is ``shown`` of the job that a queue would get.
    """
    launched = 0
    for case in cases:
        yield case.id
        try:
            commands, job = planned(case), hide(shown(case))
        except (CannotMeasureError, BrokenError) as error:
            yield f"  cannot be launched: {error}"
        else:
            launched += 1
            yield from map(_node_line, commands)
            yield from (f"  | {line}" for line in job.splitlines())
    missing = len(cases) - launched
    cannot = f", {missing} of them cannot be launched" if missing else ""
    yield f"{numbers.counted(len(cases), 'case')}{cannot}; nothing was run"
    if launched:
        yield "ports and scratch folders are examples: a run is given free ones"


def _node_line(command: NodeCommand) -> str:
    words, folder = hide_words(command.arguments), command.working_directory
    if environment := hide_variables(command.environment):
        words = ["env", *(f"{name}={value}" for name, value in environment.items()), *words]
    change = f"cd {shlex.quote(folder)} && " if folder is not None else ""
    notes = [f"launch.log_file: {command.log_file}"] if command.log_file is not None else []
    if command.python_path:
        notes.append(f"in front of PYTHONPATH: {':'.join(command.python_path)}")
    note = f"  # {'; '.join(notes)}" if notes else ""
    return f"  node {command.node_rank} on {command.host}: {change}{shlex.join(words)}{note}"


def selection_lines(
    keywords: str, markers: str, cases: Sequence[Case], names: Sequence[str]
) -> Iterator[str]:
    """Say which words of ``-k`` and values of ``-m`` no test has; ``names`` are in lower case."""
    parts = sorted({part for case in cases for part in re.split("[-_+]", case.id)})
    for word in dict.fromkeys(re.findall(r"[^\s()]+", keywords)):
        if word.lower() not in _OPERATORS and not any(word.lower() in name for name in names):
            near = ", ".join(get_close_matches(word.lower(), parts, n=_SHOWN))
            yield f"-k: no test has {word!r} in its name{f'; near: {near}' if near else ''}"
    for arguments in _MARKER.findall(markers):
        for name, written in _ARGUMENT.findall(arguments):
            yield from _wrong_value(name, written, [case.marker() for case in cases])


def _wrong_value(name: str, written: str, marked: Sequence[dict[str, object]]) -> Iterator[str]:
    known, wanted = [marker[name] for marker in marked if name in marker], written.strip("'\"")
    if marked and not known:
        yield f"-m: cases have no {name!r}; they have {', '.join(marked[0])}"
    elif wanted not in map(str, known):
        values = sorted({str(value) for value in known} - {""})
        if len(values) > _VALUES_SHOWN:
            values = get_close_matches(wanted, values, n=_SHOWN) or values[:_VALUES_SHOWN]
        yield f"-m: no case has {name}={wanted!r}; there are {', '.join(values)}"
    elif not any(
        str(one) == wanted and isinstance(one, str) == (written != wanted) for one in known
    ):
        # pytest takes what is quoted for a text, and else for a number.
        is_quoted = written != wanted
        right, kind = (wanted, "a number") if is_quoted else (repr(wanted), "a text")
        yield f"-m: {name} is {kind}: write {name}={right}"
