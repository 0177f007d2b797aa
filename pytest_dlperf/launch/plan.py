"""The plan of a run: what each of its nodes executes, where, and where its output goes.

A system's launch entry is written once for all of its cases; what differs between cases, runs and
nodes stands in it as ``{field}``. Arguments reach the program as they are: no shell reads them, so
a value never becomes a second argument, whatever is in it. ``{{`` and ``}}`` are literal braces.
``FIELDS`` says which fields there are.
"""

from __future__ import annotations

import difflib
import importlib.util
import math
import re
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_dlperf.cases import Case
    from pytest_dlperf.measurement import Window

FIELDS: Final[Mapping[str, str]] = {
    "python": "path of the Python interpreter that runs the tests",
    "framework": "framework of the case, as in 'pytorch'",
    "model": "model of the case, as in 'resnet50'",
    "precision": "precision of the case, as in 'fp32'",
    "nodes": "number of nodes in the run",
    "devices_per_node": "number of devices on each node",
    "world_size": "number of devices in the whole run",
    "node_rank": "number of this node, from 0",
    "node_address": "address of this node",
    "master_address": "address of node 0",
    "master_port": "TCP port, free on node 0, where the nodes of this run meet",
    "options": "options of the case, sorted, as in 'dali+workers8'; empty without any",
    "batch_per_device": "samples per step on one device",
    "batch_per_node": "samples per step on one node",
    "global_batch": "samples per step in the whole run",
    "warmup_steps": "steps at the start that are not measured",
    "measured_steps": "steps that are measured",
    "steps": "steps that a run needs: settling (by log format), warm-up and measured",
    "run": "number of this run among the repeats of its case, from 1",
    "run_directory": "absolute path of the folder for this run's own files",
    "system_directory": "absolute path of the folder that the system file lies in",
}
"""What may stand between braces in a launch entry, and what it becomes."""

LOG_SUFFIX: Final = ".log"

_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec:
    """What one node of a run executes, with placeholders for all that differs between runs.

    ``command`` is the program and its arguments; ``environment`` is added to what the node has
    anyway. Placeholders may stand in both and in ``working_directory``, where ``None`` is the
    folder that the tests were started in. ``requires_modules`` are the Python modules that have to
    be importable before a run makes sense, ``install_hint`` says how to get them. A run is ended
    after ``time_limit_s`` seconds; ``pause_s`` seconds pass between two runs.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    working_directory: str | None = None
    requires_modules: tuple[str, ...] = ()
    install_hint: str | None = None
    time_limit_s: float = 1800.0
    pause_s: float = 0.0

    def problems(self) -> tuple[str, ...]:
        """All that is wrong with the entry, one message each; empty when nothing is."""
        return tuple(self._problems())

    def missing_modules(self) -> tuple[str, ...]:
        """Those of ``requires_modules`` that the running interpreter does not find.

        Nothing is imported but the parents of dotted names.
        """
        return tuple(name for name in self.requires_modules if not _is_importable(name))

    def _problems(self) -> Iterator[str]:
        if not self.command or not self.command[0]:
            yield "command names no program; the first word is the program to start"
        for path, text in self._templates():
            yield from _template_problems(path, text)
        for name in self.environment:
            if not name or "=" in name or "\0" in name:
                yield f"environment has the name {name!r}, which no variable can have"
        if not (math.isfinite(self.time_limit_s) and self.time_limit_s > 0):
            yield f"time_limit_s is a number of seconds above zero, not {self.time_limit_s!r}"
        if not (math.isfinite(self.pause_s) and self.pause_s >= 0):
            yield f"pause_s is a number of seconds from zero on, not {self.pause_s!r}"

    def _templates(self) -> Iterator[tuple[str, str]]:
        for index, argument in enumerate(self.command):
            yield f"command[{index}]", argument
        for name, value in self.environment.items():
            yield f"environment.{name}", value
        if self.working_directory is not None:
            yield "working_directory", self.working_directory


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCommand:
    """What one node of one run executes, ready to start.

    ``environment`` is only what the launch entry adds. The node's output, errors included, goes
    to ``log``.
    """

    node_rank: int
    address: str
    arguments: tuple[str, ...]
    environment: dict[str, str]
    working_directory: str | None
    log: Path


def run_directory(log: Path) -> Path:
    """The folder for a run's own files: it has the main log's name without ``.log``.

    Tools that read ``*/*.log`` so find main logs only.

    Raises:
        ValueError: The name does not end in ``.log``.
    """
    if log.suffix != LOG_SUFFIX:
        raise ValueError(f"the log of a run is named *{LOG_SUFFIX}, unlike {str(log)!r}")
    return log.with_suffix("")


def plan_run(  # noqa: PLR0913 - a run has this many sides; all are given by name
    spec: LaunchSpec,
    *,
    case: Case,
    window: Window,
    settling_steps: int,
    system_directory: Path,
    run: int,
    addresses: Sequence[str],
    master_port: int,
    log: Path,
) -> tuple[NodeCommand, ...]:
    """Say what each node of a run executes, node 0 first.

    The output of node 0 goes to ``log``, that of every other node to ``node<rank>.log`` in the
    run's own folder. ``addresses`` are those of the nodes, node 0 first.

    Raises:
        ValueError: The launch entry is malformed, the number of addresses is not the number of
            nodes, or the log is not named ``*.log``.
    """
    if problems := spec.problems():
        raise ValueError(f"launch entry of {case.system}: {'; '.join(problems)}")
    topology = case.topology
    if len(addresses) != topology.nodes:
        raise ValueError(
            f"{case.id} needs {topology.nodes} addresses, one for each node, not {len(addresses)}"
        )
    log = log.absolute()
    own_files = run_directory(log)
    common: dict[str, object] = {
        "python": sys.executable,
        "framework": case.framework,
        "model": case.model,
        "precision": case.precision,
        "nodes": topology.nodes,
        "devices_per_node": topology.devices_per_node,
        "world_size": topology.world_size,
        "master_address": addresses[0],
        "master_port": master_port,
        "options": "+".join(case.options),
        "batch_per_device": case.batch_per_device,
        "batch_per_node": case.batch_per_device * topology.devices_per_node,
        "global_batch": case.global_batch,
        "warmup_steps": window.warmup_steps,
        "measured_steps": window.measured_steps,
        "steps": settling_steps + window.warmup_steps + window.measured_steps,
        "run": run,
        "run_directory": own_files,
        "system_directory": system_directory.absolute(),
    }
    commands = []
    for rank, address in enumerate(addresses):
        values = {**common, "node_rank": rank, "node_address": address}
        directory = spec.working_directory
        commands.append(
            NodeCommand(
                node_rank=rank,
                address=address,
                arguments=tuple(_filled(argument, values) for argument in spec.command),
                environment={
                    name: _filled(value, values) for name, value in spec.environment.items()
                },
                working_directory=None if directory is None else _filled(directory, values),
                log=log if rank == 0 else own_files / f"node{rank}{LOG_SUFFIX}",
            )
        )
    return tuple(commands)


def _filled(template: str, values: Mapping[str, object]) -> str:
    """Put the values in, in one pass: braces inside a value stay as they are."""

    def replacement(match: re.Match[str]) -> str:
        name = match[1]
        return match[0][0] if name is None else str(values[name])

    return _PLACEHOLDER.sub(replacement, template)


def _template_problems(path: str, template: str) -> Iterator[str]:
    if "\0" in template:
        yield f"{path} {template!r} holds a NUL character, which no program can be given"
    for match in _PLACEHOLDER.finditer(template):
        name = match[1]
        if name is None:
            if len(match[0]) == 1:
                yield (
                    f"{path} {template!r} has a single {match[0]!r} at character "
                    f"{match.start() + 1}; a literal brace is written twice, "
                    f"{match[0] * 2!r}"
                )
        elif name not in FIELDS:
            nearest = difflib.get_close_matches(name, FIELDS, n=1)
            suggestion = f"did you mean {{{nearest[0]}}}? " if nearest else ""
            yield (
                f"{path} {template!r} has the unknown placeholder {match[0]}; {suggestion}"
                f"allowed are {', '.join(FIELDS)}"
            )


def _is_importable(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
