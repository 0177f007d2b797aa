"""Write the first system file of a suite: what differs from a system that ships."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_dlperf.config.starter import written

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_WIDTH = 100


@dataclass(kw_only=True)
class FirstSystem:
    """What the file says; ``unsure`` are remarks on keys that were guessed."""

    source: str
    """What it was made from, in a few words."""
    extends: str
    model: str
    keys: dict[str, Any] = field(default_factory=dict)
    """What differs from the base, beside model, launch and cases."""
    launch: dict[str, Any] = field(default_factory=dict)
    case: dict[str, Any]
    unsure: Mapping[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """Return the file."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield f"# Made by 'pytest-dlperf init' from {self.source}."
        yield f"# It says what differs from what 'pytest-dlperf systems {self.extends}' shows."
        if self.unsure:
            yield "# Where it says ?, look again."
        yield self._entry("extends", self.extends)
        yield self._entry("model", self.model)
        for key, value in self.keys.items():
            yield from self._nested(key, value, "")
        if self.launch:
            yield from self._nested("launch", self.launch, "", broken=True)
        yield "cases:"
        for number, (key, value) in enumerate(self.case.items()):
            yield ("  - " if not number else "    ") + self._entry(key, value)

    def _nested(self, key: str, value: Any, indent: str, *, broken: bool = False) -> Iterator[str]:
        line = indent + self._entry(key, value)
        if isinstance(value, dict) and value and (broken or len(line) > _WIDTH):
            yield f"{indent}{key}:"
            for name, inner in value.items():
                yield from self._nested(name, inner, f"{indent}  ")
        elif isinstance(value, list) and len(line) > _WIDTH:
            yield f"{indent}{key}:"
            yield from _items(value, f"{indent}  - ")
        else:
            yield line

    def _entry(self, key: str, value: Any) -> str:
        remark = self.unsure.get(key)
        return f"{key}: {written(value)}" + (f"  # ? {remark}" if remark else "")


def _items(values: Sequence[Any], indent: str) -> Iterator[str]:
    yield from (indent + written(value) for value in values)
