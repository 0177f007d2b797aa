"""Recognise what a probe prints or writes: one of the project, one that ships, a serving benchmark.

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
from pytest_dlperf.logs.run_numbers import RunNumbers
from pytest_dlperf.model.measurement import Run, RunStatus, with_members
from pytest_dlperf.model.metric import Metric
from pytest_dlperf.survey.expressions import last_words, literal
from pytest_dlperf.survey.first_system import FirstSystem
from pytest_dlperf.survey.head import HeadOfLog
from pytest_dlperf.survey.line_clusters import named_numbers

MAX_BYTES: Final = 4 * 1024 * 1024
"""A longer output is that of something else."""
_MAX_METRICS: Final = 8
_SPEED: Final = re.compile(
    r"^(?!.*(?:min|max|dev|samples|agg))(?:.*_)?(?:bw|bandwidth|throughput|iops|qps|[gt]flops"
    r"|\w*per_sec(?:ond)?)(?:_bytes)?$",
    re.IGNORECASE,
)
_SERVED: Final = (
    ("Output token throughput (tok/s)", "output_throughput", "tokens/s", "higher"),
    ("Median TTFT (ms)", "ttft_p50", "ms", "lower"),
    ("P99 TTFT (ms)", "ttft_p99", "ms", "lower"),
    ("Median TPOT (ms)", "tpot_p50", "ms", "lower"),
    ("Successful requests", "completed", "requests", "higher"),
)
"""What the benchmarks of vLLM and SGLang print, by the names of the systems that ship for them."""


class ProbeOutput(Struct, frozen=True, kw_only=True):
    """What an output is, and the system that reads it."""

    kind: str
    system: System
    run: Run
    text: str = ""
    """A first system file; empty where the system is one of the project's."""
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
    names.sort(key=lambda name: _word(name) not in printed)
    for name in names:
        text, system = _shipped_probe(name)
        if (run := _read(path, system)) is not None:
            return ProbeOutput(
                kind=f"the output of {name}, which ships",
                system=system,
                run=run,
                text=text,
                unsure=("what follows 'extends' is an example: model, axes and topologies",),
            )
    return _serving_benchmark(path) if b"serving benchmark result" in printed else None


@cache
def _shipped_probe(name: str) -> tuple[str, System]:
    """Return a file that extends a probe that ships, and its system."""
    text = (
        f"# Made by 'pytest-dlperf' from the example of 'pytest-dlperf systems {name}',\n"
        f"# which says what has to be set.\n{comment_of(name)[1]}"
    )
    return text, system_of_text(text, Path("new.yaml").absolute(), BUILTIN_FORMATS)


def _word(system: str) -> bytes:
    return system.partition("_")[0].encode()


def _serving_benchmark(path: Path) -> ProbeOutput | None:
    """Read the table that a serving benchmark prints; the systems that ship read what it writes."""
    printed = path.read_text(encoding="utf-8", errors="replace")
    by_sglang = re.search(r"^Backend: +sglang", printed, re.MULTILINE)
    name = "sglang_bench" if by_sglang else "vllm_bench"
    metrics = {}
    for label, metric, unit, better in _SERVED:
        record = f"^{re.escape(label).replace(chr(92) + ' ', ' ')}: +(?P<value>[0-9.]+)"
        if re.search(record, printed, re.MULTILINE):
            metrics[metric] = {"record": record, "unit": unit, "better": better}
    if not metrics:
        return None
    first = FirstSystem(
        comments=[f"A system that ships starts the server too: pytest-dlperf systems {name}"],
        keys={"framework": name.partition("_")[0], "model": "bench", "metrics": metrics},
        case={"topologies": ["1n1g"]},
        unsure={"model": "what ids call it"},
    )
    system = system_of_text(first.text(), Path("new.yaml").absolute(), BUILTIN_FORMATS)
    run = _read(path, system)
    if run is None:
        return None
    return ProbeOutput(
        kind=f"what {name} prints",
        system=system,
        run=run,
        text=first.text(),
        unsure=tuple(f"{key}: {why}" for key, why in first.unsure.items()),
    )


def probe_of_numbers(head: HeadOfLog) -> ProbeOutput | None:
    """Take the speeds that stand in an output without steps for the metrics of a probe.

    ``None`` where none stands there once, next to its unit, or in the one JSON document by its key,
    and where a trainer is known that can be made to print its steps.
    """
    trainer = head.trainer()
    if trainer is not None and trainer.system:
        return None
    try:
        document = json.loads(head.path.read_bytes()) if head.size <= MAX_BYTES else None
    except ValueError:
        document = None
    is_document = isinstance(document, (dict, list))
    found = dict(_speeds_in(document) if is_document else _speeds_on_lines(head))
    metrics = dict(islice(found.items(), _MAX_METRICS))
    if not metrics:
        return None
    question = "is this to be judged? delete the others"
    first = FirstSystem(
        comments=["Made by 'pytest-dlperf read' of an output in which no line shows a step."],
        keys={"framework": "own", "model": "program", "metrics": metrics},
        case={"topologies": ["1n1g"]},
        unsure={
            "model": "what ids call it",
            **{f"metrics.{name}.{next(iter(one))}": question for name, one in metrics.items()},
        },
    )
    system = system_of_text(first.text(), Path("new.yaml").absolute(), BUILTIN_FORMATS)
    run = _read(head.path, system)
    if run is None:
        return None
    return ProbeOutput(
        kind="an output without steps, whose numbers a probe can take",
        system=system,
        run=run,
        text=first.text(),
        unsure=tuple(f"{key}: {why}" for key, why in first.unsure.items()),
    )


def is_one_document(head: HeadOfLog) -> bool:
    """Say whether an output is one JSON document: no log of steps, whatever repeats in it."""
    text = head.begin.lstrip()
    if text[:1] not in (b"{", b"[") or head.size > MAX_BYTES:
        return False
    try:
        json.loads(head.path.read_bytes())
    except ValueError:
        return False
    return True


def _speeds_in(value: Any, path: str = "") -> Iterator[tuple[str, dict[str, str]]]:
    """Yield a metric for each number of a document that its key calls a speed."""
    key = path.rpartition(".")[2]
    if isinstance(value, (dict, list)):
        named = value.items() if isinstance(value, dict) else enumerate(value)
        for name, inner in named:
            if re.fullmatch(r"[\w-]+", str(name)):
                yield from _speeds_in(inner, f"{path}.{name}" if path else str(name))
    elif isinstance(value, (int, float)) and value > 0 and _SPEED.search(key):
        unit = "B/s" if "bytes" in key else "1/s"
        name = re.sub(r"[^a-z0-9]+", "_", re.sub(r"\b[0-9]+\b", "", path).lower()).strip("_")
        yield name, {"json": path, "unit": unit, "better": "higher"}


def _speeds_on_lines(head: HeadOfLog) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield a metric for each number of a line that stands there once, next to a unit of speed."""
    for kind in head.clusters.rare:
        columns = kind.columns()
        for number in named_numbers(columns):
            # The unit of the number before is none of its name.
            name = re.sub(r"^\S+/s\b", "", number.name)
            name = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
            words = literal(last_words(columns[number.column].before), columns[number.column])
            if "/s" in number.unit and re.match("[a-z]", name):
                record = f"{words}(?P<value>[-+.0-9eE]+) *{re.escape(number.unit)}"
                yield name, {"record": record, "unit": number.unit, "better": "higher"}


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
