"""A first system file: what it says, what of it is in doubt, and its text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from pytest_dlperf.config.systems import System, system_of_text
from pytest_dlperf.files.yamlfile import YamlError
from pytest_dlperf.formats.log_format import LogFormat
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import Window

_BARE: Final = re.compile(r"-{0,2}[A-Za-z][A-Za-z0-9_./-]*")
_WORDS: Final = ("true", "false", "yes", "no", "on", "off", "null", "none", "y", "n", "nan", "inf")
_WIDTH: Final = 100
_BLOCKS: Final = ("log", "metrics", "launch")
"""Keys whose contents stand on lines of their own, where people add to them."""


class Draft(Struct, kw_only=True):
    """What a system file says, and the questions about it."""

    comments: tuple[str, ...]
    keys: dict[str, Any]
    """All but the cases, in their order."""
    case: dict[str, Any]
    unsure: dict[str, str] = {}
    """Questions by the path of the key: ``log.format.json``."""

    def system(self, formats: Mapping[str, LogFormat]) -> System | None:
        """Read it; ``None`` where it would not be valid."""
        try:
            return system_of_text(self.text(), Path("new.yaml").absolute(), formats)
        except YamlError:
            return None

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
            yield ("    " if number else "  - ") + self._entry(key, value, key)

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
        return f"  # ? {self.unsure[path]}" if path in self.unsure else ""


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
    """Say a window as a system file does."""
    return {"warmup_steps": window.warmup_steps, "measured_steps": window.measured_steps}


def case_keys(case: Case) -> dict[str, Any]:
    """Say a case of a training as a system file does."""
    work, ways = case.training_work, dict(case.training_work.layout.ways)
    of_one = "batch_per_replica" if ways else "batch_per_device"
    found = {
        "precision": case.precision,
        "global_batch" if work.is_global else of_one: work.batch,
        "sequence_length": work.sequence_length,
        "parallel": ways,
        "options": list(case.options),
        "topologies": [str(case.topology)],
        "reference": "none" if case.topology.world_size > 1 else None,
    }
    return {key: value for key, value in found.items() if value not in (None, {}, [])}
