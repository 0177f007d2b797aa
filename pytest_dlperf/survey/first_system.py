"""Write the system file that a trainer begins with, as far as a log of it or its command tells."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from msgspec import Struct

from pytest_dlperf.model.case import Topology
from pytest_dlperf.model.measurement import Window
from pytest_dlperf.model.work import Work

_BARE: Final = re.compile(r"-{0,2}[A-Za-z][A-Za-z0-9_./-]*")
_WORDS: Final = ("true", "false", "yes", "no", "on", "off", "null", "none", "y", "n", "nan", "inf")
_WIDTH: Final = 100
_BLOCKS: Final = ("log", "metrics", "launch")
"""Keys whose contents stand on lines of their own, where people add to them."""


class FirstSystem(Struct, frozen=True, kw_only=True):
    """What a system file says, and its text."""

    comments: Sequence[str]
    keys: Mapping[str, Any]
    """All but the cases, in their order."""
    case: Mapping[str, Any]
    unsure: Mapping[str, str] = {}
    """Remarks on keys that were guessed; those below others by path: ``log.format.json``."""

    def text(self) -> str:
        """Return the file."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        for comment in self.comments:
            yield "# " + "".join(each if each.isprintable() else " " for each in comment)
        if {path.split(".", maxsplit=1)[0] for path in self.unsure} & {*self.keys, *self.case}:
            yield "# Where it says ?, look again."
        for key, value in self.keys.items():
            yield from self._nested(key, value, key, "")
        yield "cases:"
        for number, (key, value) in enumerate(self.case.items()):
            yield ("  - " if not number else "    ") + self._entry(key, value, key)

    def _nested(self, key: str, value: Any, path: str, indent: str) -> Iterator[str]:
        line = indent + self._entry(key, value, path)
        has_remarks = any(each.startswith(f"{path}.") for each in self.unsure)
        is_long = len(line) > _WIDTH or has_remarks
        if isinstance(value, dict) and value and (is_long or (key in _BLOCKS and not indent)):
            yield f"{indent}{key}:{self._remark(path)}"
            for name, inner in value.items():
                yield from self._nested(name, inner, f"{path}.{name}", f"{indent}  ")
        elif isinstance(value, list) and is_long:
            yield f"{indent}{key}:"
            yield from (f"{indent}  - {written(each)}" for each in value)
        else:
            yield line

    def _entry(self, key: str, value: Any, path: str) -> str:
        return f"{key}: {written(value)}{self._remark(path)}"

    def _remark(self, path: str) -> str:
        remark = self.unsure.get(path)
        return f"  # ? {remark}" if remark else ""


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
    return "'" + text.replace("'", "''") + "'" if text.isprintable() else json.dumps(text)


def window_keys(window: Window) -> dict[str, int]:
    """Give what ``window`` of a system says."""
    return {"warmup_steps": window.warmup_steps, "measured_steps": window.measured_steps}


# ------------------------------------------------------------------------------- of a log alone


class ShippedSystem(Struct, frozen=True):
    """The name of a system that ships."""

    name: str
    ranks: str = ""
    """Who prints into the log, where it is not who usually does."""


Form: TypeAlias = "str | ShippedSystem | Mapping[str, Any]"
"""What reads a log: a format that ships, the format of a system that ships, or one of its own."""


class Starter(Struct, frozen=True, kw_only=True):
    """What a log tells of the training that has printed it."""

    source: str
    """The log."""
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
    metrics: Mapping[str, Mapping[str, Any] | None] = {}
    """What it declares of them; ``None`` takes away one that the log does not show."""
    unsure: Mapping[str, str] = {}
    """Remarks on keys that were guessed."""

    def file(self) -> FirstSystem:
        """Give the smallest system file that reads the log."""
        named = {"framework": self.framework} if self.framework else {}
        keys: dict[str, Any]
        if isinstance(self.format, ShippedSystem):
            keys = {"extends": self.format.name, **named, "model": self.model}
            if self.format.ranks:
                keys["log"] = {"format": {"ranks": self.format.ranks}}
        else:
            log = {"name": self.log_name, "format": self.format}
            keys = {**named, "model": self.model, "unit": self.unit, "log": log}
        keys["window"] = window_keys(self.window)
        if self.metrics:
            keys["metrics"] = self.metrics
        return FirstSystem(
            comments=[f"Made by 'pytest-dlperf read' from {self.source}."],
            keys=keys,
            case=self._case(),
            unsure=self.unsure,
        )

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
