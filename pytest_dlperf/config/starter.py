"""Write the system file that a new trainer begins with, as far as a log of it tells."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_dlperf.model.case import Topology
    from pytest_dlperf.model.measurement import Window
    from pytest_dlperf.model.work import Work

_BARE: Final = re.compile(r"-{0,2}[A-Za-z][A-Za-z0-9_./-]*")
_WORDS: Final = ("true", "false", "yes", "no", "on", "off", "null", "none", "y", "n", "nan", "inf")


@dataclass(frozen=True, slots=True)
class Shipped:
    """The name of a system that ships."""

    name: str


Form: TypeAlias = "str | Shipped | Mapping[str, Any]"
"""What reads a log: a format that ships, the format of a system that ships, or one of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Starter:
    """What a system file has to say at least; ``unsure`` are remarks on keys that were guessed."""

    source: str
    """The log that it was made from."""
    framework: str
    """Empty where it is that of a system which is extended."""
    model: str
    unit: str
    log_name: str
    format: Form
    window: Window
    precision: str
    work: Work
    topology: Topology
    options: tuple[str, ...] = ()
    metrics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    unsure: Mapping[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """Return the file."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield f"# Made by 'pytest-dlperf read' from {self.source}. Where it says ?, look again."
        if isinstance(self.format, Shipped):
            yield self._entry("extends", self.format.name)
            if self.framework:
                yield self._entry("framework", self.framework)
            yield self._entry("model", self.model)
        else:
            yield from self._whole(self.format)
        yield self._entry(
            "window",
            {
                "warmup_steps": self.window.warmup_steps,
                "measured_steps": self.window.measured_steps,
            },
        )
        if self.metrics and not isinstance(self.format, Shipped):
            yield "metrics:"
            for name, metric in self.metrics.items():
                yield "  " + self._entry(name, metric)
        yield "cases:"
        for number, (key, value) in enumerate(self._case().items()):
            yield ("  - " if not number else "    ") + self._entry(key, value)

    def _whole(self, log_format: str | Mapping[str, Any]) -> Iterator[str]:
        yield self._entry("framework", self.framework)
        yield self._entry("model", self.model)
        yield self._entry("unit", self.unit)
        yield "log:"
        yield "  " + self._entry("name", self.log_name)
        if isinstance(log_format, str):
            yield "  " + self._entry("format", log_format)
        else:
            yield "  format:"
            for key, value in log_format.items():
                yield from self._nested(key, value, "    ")

    def _case(self) -> dict[str, Any]:
        work, layout = self.work, self.work.layout
        batch = "batch_per_replica" if layout.ways else "batch_per_device"
        found: dict[str, Any] = {
            "precision": self.precision,
            "global_batch" if work.is_global else batch: work.batch,
        }
        if work.sequence_length is not None:
            found["sequence_length"] = work.sequence_length
        if layout.ways:
            found["parallel"] = layout.ways
        if self.options:
            found["options"] = list(self.options)
        found["topologies"] = [str(self.topology)]
        if self.topology.world_size > 1:
            found["reference"] = "none"
        return found

    def _nested(self, key: str, value: Any, indent: str) -> Iterator[str]:
        if isinstance(value, dict) and len(written(value)) > 60:  # noqa: PLR2004 - on lines of their own
            yield f"{indent}{key}:"
            for name, inner in value.items():
                yield from self._nested(name, inner, f"{indent}  ")
        else:
            yield indent + self._entry(key, value)

    def _entry(self, key: str, value: Any) -> str:
        remark = self.unsure.get(key)
        return f"{key}: {written(value)}" + (f"  # ? {remark}" if remark else "")


def written(value: Any) -> str:
    """Write a value as YAML, on one line."""
    if value is None or isinstance(value, bool):
        return {None: "~", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {written(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(written, value)) + "]"
    text = str(value)
    if _BARE.fullmatch(text) and (text == "none" or text.lower() not in _WORDS):
        return text
    return "'" + text.replace("'", "''") + "'"
