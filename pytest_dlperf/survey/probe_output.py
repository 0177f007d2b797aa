"""Recognise what a probe prints or writes: one of the project, one that ships, or bare speeds.

Each system was tried: its metrics are what it reads from this very output.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.config.extends import comment_of, is_trainer, shipped_systems
from pytest_dlperf.config.systems import System, system_of_text
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS
from pytest_dlperf.logs.run import RunNumbers
from pytest_dlperf.model.measurement import Run, RunStatus, with_members
from pytest_dlperf.model.metric import Metric
from pytest_dlperf.survey.draft import Draft
from pytest_dlperf.survey.expressions import words_before
from pytest_dlperf.survey.head import HeadOfLog
from pytest_dlperf.survey.line_clusters import named_numbers, unit_of

MAX_BYTES: Final = 4 * 1024 * 1024
"""A longer output is that of something else."""
_MAX_METRICS: Final = 8
_SPEED: Final = re.compile(
    r"^(?!.*(?:min|max|dev|samples|agg))(?:.*_)?(?:bw|bandwidth|throughput|iops|qps|[gt]flops"
    r"|\w*per_sec(?:ond)?)(?:_bytes)?$",
    re.IGNORECASE,
)


class ProbeOutput(Struct, frozen=True, kw_only=True):
    """What an output is, and the system that reads it."""

    kind: str
    system: System
    run: Run
    draft: str | None = None
    """A first system file, where the project has none."""
    unsure: tuple[str, ...] = ()

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
    names = [name for name in sorted(shipped_systems(), reverse=True) if not is_trainer(name)]
    for name in sorted(names, key=lambda name: name.partition("_")[0].encode() not in printed):
        text, system = _shipped_probe(name)
        if (run := _read(path, system)) is not None:
            unsure = "what follows 'extends' is an example: model, axes and topologies"
            kind = f"the output of {name}, which ships"
            return ProbeOutput(kind=kind, system=system, run=run, draft=text, unsure=(unsure,))
    return None


@cache
def _shipped_probe(name: str) -> tuple[str, System]:
    """Return a file that extends a probe that ships, and its system."""
    text = (
        f"# Made by 'pytest-dlperf' from the example of 'pytest-dlperf systems {name}',\n"
        f"# which says what has to be set.\n{comment_of(name)[1]}"
    )
    return text, system_of_text(text, Path("new.yaml").absolute(), BUILTIN_FORMATS)


def probe_of_numbers(head: HeadOfLog) -> ProbeOutput | None:
    """Take the speeds that stand in an output without steps for the metrics of a probe.

    ``None`` where none stands there once, next to its unit, or in the one JSON document by its key,
    and where a trainer is known that can be made to print its steps.
    """
    trainer = head.trainer()
    if trainer is not None and trainer.system:
        return None
    document = document_of(head)
    found = _speeds_on_lines(head) if document is None else _speeds_in(document)
    metrics = dict(islice(dict(found).items(), _MAX_METRICS))
    question = "is this to be judged? delete the others"
    asked = {f"metrics.{name}.{next(iter(one))}": question for name, one in metrics.items()}
    draft = Draft(
        comments=("Made by 'pytest-dlperf read' of an output in which no line shows a step.",),
        keys={"framework": "own", "model": "program", "metrics": metrics},
        case={"topologies": ["1n1g"]},
        unsure={"model": "what ids call it", **asked},
    )
    system = draft.system(BUILTIN_FORMATS) if metrics else None
    run = None if system is None else _read(head.path, system)
    if system is None or run is None:
        return None
    return ProbeOutput(
        kind="an output without steps, whose numbers a probe can take",
        system=system,
        run=run,
        draft=draft.text(),
        unsure=tuple(f"{key}: {why}" for key, why in draft.unsure.items()),
    )


def document_of(head: HeadOfLog) -> Any:
    """Return the one JSON document that an output is; ``None`` if it is anything else."""
    if head.begin.lstrip()[:1] not in (b"{", b"[") or head.size > MAX_BYTES:
        return None
    try:
        return json.loads(head.path.read_bytes())
    except ValueError:
        return None


def _speeds_in(value: Any, path: str = "") -> Iterator[tuple[str, dict[str, str]]]:
    """Yield a metric for each number of a document that its key calls a speed."""
    key = path.rpartition(".")[2]
    if isinstance(value, (dict, list)):
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            if re.fullmatch(r"[\w-]+", str(name)):
                yield from _speeds_in(inner, f"{path}.{name}" if path else str(name))
    elif isinstance(value, (int, float)) and value > 0 and _SPEED.search(key):
        unit = "B/s" if "bytes" in key else "1/s"
        name = _name(re.sub(r"\b[0-9]+\b", "", path))
        yield name, {"json": path, "unit": unit, "better": "higher"}


def _speeds_on_lines(head: HeadOfLog) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield a metric for each number of a line that stands there once, next to a unit of speed."""
    for kind in head.clusters.rare:
        for text, column in named_numbers(kind.columns()).items():
            # The unit of the number before is none of its name.
            name, unit = _name(re.sub(r"^\S+/s\b", "", text)), unit_of(column)
            behind = f" *{re.escape(unit)}" if column.behind.lstrip().startswith(unit) else ""
            if "/s" in unit and re.match("[a-z]", name):
                record = f"{words_before(column)}(?P<value>[-+.0-9eE]+){behind}"
                yield name, {"record": record, "unit": unit, "better": "higher"}


def _name(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


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
