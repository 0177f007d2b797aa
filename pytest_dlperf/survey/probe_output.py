"""Recognise what a probe prints or writes: one of the project, one that ships, a serving benchmark.

Each system was tried: its metrics are what it reads from this very output.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.config.extends import comment_of, is_trainer, shipped_systems
from pytest_dlperf.config.systems import system_of_text
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS
from pytest_dlperf.logs.run_numbers import RunNumbers
from pytest_dlperf.model.measurement import Run, RunStatus, with_members
from pytest_dlperf.survey.first_system import FirstSystem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_dlperf.config.systems import System
    from pytest_dlperf.model.metric import Metric

MAX_BYTES: Final = 4 * 1024 * 1024
"""A longer output is that of something else."""
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
