"""Recognise what a program without steps prints or writes: sizes in a table, JSON, a last number.

Each proposal is a system file that was tried: its metrics are what it reads from this very output.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.config.extends import comment_of, shipped_systems
from pytest_dlperf.config.systems import system_of_text
from pytest_dlperf.files.yamlfile import YamlError
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS
from pytest_dlperf.logs.run_numbers import RunNumbers
from pytest_dlperf.model.measurement import Run, RunStatus, with_members
from pytest_dlperf.survey.first_system import FirstSystem
from pytest_dlperf.survey.numbers_in_lines import known_forms, last_numbers
from pytest_dlperf.survey.printed_numbers import Proposal, documents, id_word, tables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pytest_dlperf.config.systems import System
    from pytest_dlperf.model.metric import Metric

MAX_BYTES: Final = 4 * 1024 * 1024
"""A longer output is that of something else."""


class ProbeOutput(Struct, frozen=True, kw_only=True):
    """What an output is, and the system file that reads it."""

    kind: str
    system: System
    run: Run
    first: FirstSystem | None = None
    """The file, where it is made for this output."""
    example: str = ""
    """The file, where it extends a system that ships."""
    unsure: tuple[str, ...] = ()
    file: str = ""
    """The argument that names it, where the program writes it instead of printing it."""

    @property
    def text(self) -> str:
        """The file; empty where the system is one of the project's."""
        return self.example if self.first is None else self.first.text()

    @property
    def metrics(self) -> Sequence[Metric]:
        """Its metrics, of families the names that were found."""
        return with_members(self.system.metrics, self.run.metrics)


def known_probe(path: Path, systems: Mapping[str, System]) -> ProbeOutput | None:
    """Recognise the output of a probe of the project, or of one that ships."""
    if path.stat().st_size > MAX_BYTES:
        return None
    for system in systems.values():
        if system.is_probe and (run := _read(path, system)) is not None:
            return ProbeOutput(kind=f"as {system.id} reads it", system=system, run=run)
    printed = path.read_bytes().lower()
    # Of two that write the same keys, it is the one that the output names.
    names = sorted(shipped_systems(), reverse=True)
    names.sort(key=lambda name: _word(name) not in printed)
    for name in names:
        if (probe := _shipped_probe(name)) is None:
            continue  # a training
        text, system = probe
        if (run := _read(path, system)) is not None:
            return ProbeOutput(
                kind=f"the output of {name}, which ships",
                system=system,
                run=run,
                example=text,
                unsure=("what follows 'extends' is an example: model, axes and topologies",),
            )
    return None


@cache
def _shipped_probe(name: str) -> tuple[str, System] | None:
    """Return a file that extends a probe that ships, and its system; ``None`` of a training."""
    shipped = shipped_systems()[name].read_text(encoding="utf-8")
    if re.search(r"^(?:window|unit):", shipped, re.MULTILINE):
        return None
    text = (
        f"# Made by 'pytest-dlperf' from the example of 'pytest-dlperf systems {name}',\n"
        f"# which says what has to be set.\n{comment_of(name)[1]}"
    )
    return text, system_of_text(text, Path("new.yaml").absolute(), BUILTIN_FORMATS)


def _word(system: str) -> bytes:
    return system.partition("_")[0].encode()


def table_probe(path: Path, name: str) -> ProbeOutput | None:
    """Recognise a table with a row for each size, below a line that names its columns."""
    return _proposed(path, name, tables)


def loose_probe(path: Path, name: str) -> ProbeOutput | None:
    """Recognise JSON, and numbers with a name or alone at the end of an output.

    ``name`` is what the program is called.
    """
    ways = (documents, known_forms, last_numbers)
    return next(filter(None, (_proposed(path, name, way) for way in ways)), None)


def unread_probe(name: str) -> ProbeOutput:
    """Draft the probe of a program whose number nobody has seen."""
    doubt = "have it print such a line, or say which one to read"
    unsure = {"model": "what ids call it", "metrics.result.record": doubt}
    record = r"^result\s+(?P<value>[-+.,0-9A-Za-z]+)"
    first = FirstSystem(
        comments=(),
        keys={
            "framework": id_word(name),
            "model": "probe",
            "metrics": {"result": {"record": record, "unit": "s", "better": "lower"}},
        },
        case={"topologies": ["1n1g"]},
        unsure=unsure,
    )
    system = system_of_text(first.text(), Path("new.yaml").absolute(), BUILTIN_FORMATS)
    said = tuple(f"{key.removeprefix('metrics.')}: {why}" for key, why in unsure.items())
    run = Run(run=1, status=RunStatus.INVALID)
    return ProbeOutput(kind="no number", system=system, run=run, first=first, unsure=said)


# ------------------------------------------------------------------------- try what is proposed


def _proposed(
    path: Path, name: str, propose: Callable[[str], Iterator[Proposal]]
) -> ProbeOutput | None:
    if path.stat().st_size > MAX_BYTES:
        return None
    text = path.read_text(encoding="utf-8-sig", errors="replace").replace("\r\n", "\n")
    for proposal in propose(text):
        unsure = {"model": "what ids call it", **proposal.unsure}
        first = FirstSystem(
            comments=proposal.comments,
            keys={
                "framework": id_word(name) or "own",
                "model": "probe",
                "metrics": proposal.metrics,
            },
            case={"topologies": ["1n1g"]},
            unsure=unsure,
        )
        found = _tried(path, first.text())
        if found is not None:
            said = (f"{key.removeprefix('metrics.')}: {why}" for key, why in unsure.items())
            return ProbeOutput(
                kind=proposal.kind, system=found[0], run=found[1], first=first, unsure=tuple(said)
            )
    return None


def _tried(path: Path, text: str) -> tuple[System, Run] | None:
    """Read the output as a file says; ``None`` where one of its metrics is not there."""
    try:
        system = system_of_text(text, path.with_name("new.yaml").absolute(), BUILTIN_FORMATS)
    except YamlError:
        return None
    run = _read(path, system)
    return None if run is None else (system, run)


def _read(path: Path, system: System) -> Run | None:
    reader = RunNumbers(
        [path],
        run=1,
        case=system.cases[0],
        log_format=replace(system.log_format, facts=()),
        declared=system.declared,
    )
    run = reader.finish()
    judged = {metric.name for metric in system.metrics if metric.is_judged}
    is_whole = run.status is RunStatus.OK and run.metrics and not judged & run.missing.keys()
    return run if is_whole else None
