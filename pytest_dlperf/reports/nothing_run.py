"""Lines for a session that runs no test: the plans of a dry run, and why nothing was selected."""

from __future__ import annotations

import re
import shlex
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from pytest_dlperf.launch.record import masked_arguments, masked_environment
from pytest_dlperf.model.errors import BrokenError, CannotMeasureError
from pytest_dlperf.reports import numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pytest_dlperf.config.cluster import Cluster
    from pytest_dlperf.launch.plan import NodeCommand
    from pytest_dlperf.model.case import Case

_OPERATORS: Final = frozenset(("and", "or", "not", "true", "false"))
_SHOWN: Final = 3
_VALUES_SHOWN: Final = 12
_ARGUMENT: Final = re.compile(r"""(\w+)\s*=\s*(?:'([^']*)'|"([^"]*)"|(\w+))""")
# A word that is not forbidden; "not" itself is none.
_WANTED_MARK: Final = re.compile(r"(?<!not )\b([A-Za-z_]\w*)\b(?!\s*\()")
_MARKER: Final = re.compile(r"\bdlperf\s*\(([^)]*)\)")


def dry_run_lines(
    cases: Sequence[Case], planned: Callable[[Case], Sequence[NodeCommand]]
) -> Iterator[str]:
    """Yield each case, and a line for each of its nodes; what looks like a secret is masked."""
    launched = 0
    for case in cases:
        yield case.id
        try:
            commands = planned(case)
        except (CannotMeasureError, BrokenError) as error:
            yield f"  cannot be launched: {error}"
        else:
            launched += 1
            yield from map(_node_line, commands)
    missing = len(cases) - launched
    cannot = f", {missing} of them cannot be launched" if missing else ""
    yield f"{numbers.counted(len(cases), 'case')}{cannot}; nothing was run"
    if launched:
        yield "ports and scratch folders are examples: a run is given free ones"


def _node_line(command: NodeCommand) -> str:
    words = masked_arguments(command.arguments)
    environment = masked_environment(command.environment)
    if environment:
        words = ["env", *(f"{name}={value}" for name, value in environment.items()), *words]
    folder = command.working_directory
    change = f"cd {shlex.quote(folder)} && " if folder is not None else ""
    return f"  node {command.node_rank} on {command.host}: {change}{shlex.join(words)}"


def selection_lines(
    keywords: str,
    markers: str,
    cases: Sequence[Case],
    is_known: Callable[[str], bool],
    cluster: Cluster,
) -> Iterator[str]:
    """Yield the words of ``-k`` and values of ``-m "dlperf(…)"`` that no test has, and near ones.

    ``is_known`` says whether a word stands in the name of any test. An expression whose words are
    all known, and which nothing fits as a whole, gets the cases that have the most of them.
    """
    words = [word for word in re.findall(r"[^\s()]+", keywords) if word.lower() not in _OPERATORS]
    unknown = [word for word in words if not is_known(word)]
    parts = {part for case in cases for part in _parts(case)}
    for word in dict.fromkeys(unknown):
        yield f"-k: no test has {word!r} in its name{_near(word, parts)}"
    if words and not unknown:
        ids = _nearest(words, [case.id for case in cases])
        if ids:
            yield f"-k: no test fits the whole expression; near: {', '.join(ids)}"
    for arguments in _MARKER.findall(markers):
        yield from _marker(arguments, cases)
    for mark in dict.fromkeys(_WANTED_MARK.findall(_MARKER.sub("", markers))):
        if mark not in _OPERATORS and not is_known(mark):
            yield f"-m: no case of cluster {cluster.name} has the mark {mark}{_runs(cluster)}"


def _runs(cluster: Cluster) -> str:
    """Name the systems of the cluster, where it does not run all."""
    if cluster.systems is None:
        return ""
    shown = numbers.named(cluster.systems, _VALUES_SHOWN)
    return f"; its cluster.yaml lists the systems {shown}"


def _parts(case: Case) -> Iterable[str]:
    """Return the words that people select a case by."""
    batch = f"b{case.batch_per_device}"
    names = (case.framework, case.model, case.precision, batch, str(case.topology))
    pieces = (piece for name in names for piece in name.split("_"))
    return (*names, *case.options, *pieces)


def _near(word: str, known: Iterable[str]) -> str:
    near = get_close_matches(word.lower(), sorted(known), n=_SHOWN)
    return f"; near: {', '.join(near)}" if near else ""


def _nearest(words: Sequence[str], ids: Iterable[str]) -> list[str]:
    """Return the ids that have the most of the words, where they have more than one."""

    def found(case_id: str) -> int:
        return sum(word.lower() in case_id for word in words)

    ranked = sorted(ids, key=found, reverse=True)[:_SHOWN]
    return [case_id for case_id in ranked if found(case_id) > 1]


def _marker(arguments: str, cases: Sequence[Case]) -> Iterator[str]:
    for name, *quoted in _ARGUMENT.findall(arguments):
        wanted = "".join(quoted)
        axes = [case.axes() for case in cases]
        if axes and name not in axes[0]:
            yield f"-m: cases have no {name!r}; they have {', '.join(axes[0])}"
            continue
        values = {str(of_case[name]) for of_case in axes}
        if wanted not in values:
            shown = sorted(values - {""})
            if len(shown) > _VALUES_SHOWN:
                shown = get_close_matches(wanted, shown, n=_SHOWN) or shown[:_VALUES_SHOWN]
            yield f"-m: no case has {name}={wanted!r}; there are {', '.join(shown)}"
