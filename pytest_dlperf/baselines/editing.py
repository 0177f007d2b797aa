"""Edits the text of a baseline file line by line: whatever is not changed keeps its bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

from pytest_dlperf.files.yamlfile import Problem, YamlError, YamlValue, first_anchor, load
from pytest_dlperf.model.case import Topology

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

KEYS: Final = (
    "throughput",
    "speedup",
    "mean",
    "runs",
    "strays",
    "sessions",
    "tolerance_percent",
    "note",
    "accepted",
    "machine",
    "recorded",
)
"""The keys of an entry, in the order in which new ones are written.

The last one is never changed. So the line stays between a change of this entry and one more entry
behind it, and git merges a branch with the one and a branch with the other.
"""

# All that ends a line for YAML 1.1, or line numbers would shift behind the rarer ones.
_LINE_END = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_BATCH = re.compile(r"-b([0-9]+)")
_IN_BRACES: Final = (
    "a baseline can be added only to entries written one below the other, not in braces"
)


@dataclass(frozen=True, slots=True)
class Inline:
    """A value that stands on its key's line."""

    text: str


@dataclass(frozen=True, slots=True)
class Block:
    """A value below its key's line; ``lines`` are indented from where the block begins."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MoreItems:
    """Items behind those of a list, one line each; beyond ``at_most`` the oldest go."""

    items: tuple[str, ...]
    at_most: int


@dataclass(frozen=True, slots=True)
class _Splice:
    """Characters from ``start`` up to ``end`` that give way to ``text``."""

    start: int
    end: int
    text: str


Key = tuple[str, str]
"""Variant and topology."""


def add_entries(file: Path, text: str, new: Mapping[Key, Mapping[str, Inline | Block]]) -> str:
    """The file's text with more entries, each between its neighbours by topology.

    A variant that the file lacks gets a group, behind the one that precedes it by precision,
    batch and options.

    Raises:
        YamlError: The text has mistakes, or is laid out in a way that cannot be extended.
    """
    layout = _Layout(file, text)
    groups = layout.groups()
    indent, step = layout.indentation(groups)
    splices = []
    for variant in sorted({variant for variant, _ in new}, key=_order):
        entries = sorted(
            ((Topology.parse(key[1]), values) for key, values in new.items() if key[0] == variant),
            key=lambda entry: entry[0],
        )
        group = groups.get(variant)
        if group is None:
            lines = [f"{' ' * (indent - step)}{variant}:"]
            for topology, values in entries:
                lines += _topology_lines(topology, values, indent=indent, step=step)
            splices.append(layout.lines_after(layout.line_before(groups, variant), lines))
            continue
        column = indent if group.is_empty else group.column
        for topology, values in entries:
            after = layout.entries.key_lines[variant]
            for name, value in group.entries(or_nothing=True):
                if Topology.parse(name) < topology:
                    after = max(after, layout.last_line(value))
            lines = _topology_lines(topology, values, indent=column, step=step)
            splices.append(layout.lines_after(after, lines))
    return layout.spliced(splices)


def change_entries(
    file: Path,
    text: str,
    changes: Mapping[Key, Mapping[str, Inline | Block | MoreItems | None]],
) -> str:
    """The file's text with values of entries changed, added, or, where ``None``, removed.

    A value that stands on its key's line is replaced within it, so that a comment behind it stays.

    Raises:
        YamlError: The text has mistakes, or is laid out in a way that cannot be changed.
    """
    layout = _Layout(file, text)
    groups = layout.groups()
    splices: list[_Splice] = []
    for (variant, topology), values in changes.items():
        group = groups[variant]
        entry = dict(group.entries())[topology]
        splices += _changes_of(layout, entry, group, group.key_lines[topology], values)
    return layout.spliced(splices)


def _changes_of(
    layout: _Layout,
    entry: YamlValue,
    group: YamlValue,
    line: int,
    values: Mapping[str, Inline | Block | MoreItems | None],
) -> list[_Splice]:
    """What changes an entry, whose own key stands on ``line``."""
    if entry.is_flow:
        layout.refuse(
            entry,
            "the entry is written in braces; write its keys one below the other, then it can be "
            "changed",
        )
    standing = dict(entry.entries())
    key_lines = entry.key_lines
    step = max(1, entry.column - group.column)
    splices: list[_Splice] = []
    for name in sorted(values, key=KEYS.index):
        new = values[name]
        if name in standing:
            splices += layout.replaced(standing[name], key_lines[name], name, entry.column, new)
        elif new is not None:
            before = KEYS[: KEYS.index(name)]
            ends = [layout.last_line(standing[other]) for other in before if other in standing]
            lines = _entry_lines({name: _whole(new)}, indent=entry.column, step=step)
            splices.append(layout.lines_after(max(ends, default=line), lines))
    return splices


def _topology_lines(
    topology: Topology, values: Mapping[str, Inline | Block], *, indent: int, step: int
) -> list[str]:
    return [
        f"{' ' * indent}{topology}:",
        *_entry_lines(values, indent=indent + step, step=step),
    ]


def _whole(value: Inline | Block | MoreItems) -> Inline | Block:
    return Block(value.items[-value.at_most :]) if isinstance(value, MoreItems) else value


def _entry_lines(values: Mapping[str, Inline | Block], *, indent: int, step: int) -> list[str]:
    lines: list[str] = []
    for name in sorted(values, key=KEYS.index):
        value = values[name]
        if isinstance(value, Inline):
            lines.append(f"{' ' * indent}{name}: {value.text}")
        else:
            lines.append(f"{' ' * indent}{name}:")
            lines += [f"{' ' * (indent + step)}{line}" for line in value.lines]
    return lines


def _order(variant: str) -> tuple[str, int, str]:
    """By precision, batch as a number, options."""
    batch = _BATCH.search(variant)
    if batch is None:
        return variant, 0, ""
    return variant[: batch.start()], int(batch[1]), variant[batch.end() :]


class _Layout:
    """Where things stand in the text of one baseline file."""

    def __init__(self, file: Path, text: str) -> None:
        """Parse the text.

        Raises:
            YamlError: It is no YAML, or has anchors, or its entries stand in braces.
        """
        self._file = file
        ends = list(_LINE_END.finditer(text))
        self._end = ends[0][0] if ends else "\n"
        # Edits are made to whole lines; the end that the last one lacks is taken off again.
        self._lacks_end = not ends or ends[-1].end() < len(text)
        self.text = text + self._end if self._lacks_end else text
        ends = list(_LINE_END.finditer(self.text))
        self._starts = [0, *(end.end() for end in ends)]
        self.entries, self._entries_line = load(file, self._entries_of, text=self.text)
        anchor = first_anchor(self.text)
        if anchor is not None:
            message = (
                "the file has an anchor or alias (& or *), so that a line may mean several "
                "entries; write out what they stand for, then it can be changed"
            )
            raise YamlError([Problem(file, anchor, "$", message)])

    def _entries_of(self, root: YamlValue) -> tuple[YamlValue, int]:
        """The entries, and the line of their key."""
        entries = next((value for key, value in root.entries() if key == "entries"), None)
        if entries is None or entries.is_flow:
            self.refuse(root, _IN_BRACES)
        return entries, root.key_lines["entries"]

    def refuse(self, where: YamlValue, message: str) -> NoReturn:
        """Give up at a place.

        Raises:
            YamlError: Always.
        """
        raise YamlError([Problem(self._file, where.line, where.path, message)])

    def groups(self) -> dict[str, YamlValue]:
        """The entries' groups by variant."""
        groups = dict(self.entries.entries(or_nothing=True))
        for group in groups.values():
            if group.is_flow:
                self.refuse(group, _IN_BRACES)
        return groups

    def indentation(self, groups: Mapping[str, YamlValue]) -> tuple[int, int]:
        """How far the file indents topologies, and one level."""
        outer = self.entries.column if groups else 2
        for group in groups.values():
            if not group.is_empty:
                return group.column, max(1, group.column - outer)
        step = max(1, outer)
        return outer + step, step

    def line_before(self, groups: Mapping[str, YamlValue], variant: str) -> int:
        """The line behind which a new group goes: the end of those that precede it."""
        ends = [
            max(self.entries.key_lines[name], self.last_line(group))
            for name, group in groups.items()
            if _order(name) < _order(variant)
        ]
        return max(ends, default=self._entries_line)

    def last_line(self, value: YamlValue) -> int:
        """The last line, from 1, that holds something of a value."""
        line = value.end_line
        # Empty lines below a block text are nobody's.
        while line > value.line and not self._line(line).strip():
            line -= 1
        return line

    def _line(self, line: int) -> str:
        return self.text[self._starts[line - 1] : self._starts[line]]

    def lines_after(self, line: int, lines: Sequence[str]) -> _Splice:
        """New lines behind a line, which is counted from 1."""
        start = self._starts[line]
        return _Splice(start, start, "".join(f"{new}{self._end}" for new in lines))

    def replaced(
        self,
        value: YamlValue,
        key_line: int,
        name: str,
        column: int,
        new: Inline | Block | MoreItems | None,
    ) -> list[_Splice]:
        """What makes a standing value into a new one."""
        if isinstance(new, MoreItems):
            if value.is_list and not value.is_flow:
                return self._more_items(value, new)
            if not value.is_empty:
                self.refuse(value, "the list is written in brackets; write one item per line")
            new = _whole(new)
        span = value.span
        on_its_line = span.line == key_line - 1 and not value.is_block_text
        if isinstance(new, Inline) and on_its_line and not value.is_empty:
            start = self._starts[span.line] + span.column
            return [_Splice(start, self._starts[span.end_line] + span.end_column, new.text)]
        lines = [] if new is None else _entry_lines({name: new}, indent=column, step=2)
        text = "".join(f"{line}{self._end}" for line in lines)
        start, end = self._starts[key_line - 1], self._starts[self.last_line(value)]
        return [_Splice(start, max(end, self._starts[key_line]), text)]

    def _more_items(self, value: YamlValue, new: MoreItems) -> list[_Splice]:
        items = value.items("a list")
        pad = " " * value.column
        after = self.last_line(items[-1])
        splices = [self.lines_after(after, [f"{pad}{item}" for item in new.items])]
        for item in items[: max(0, len(items) + len(new.items) - new.at_most)]:
            start, end = self._starts[item.line - 1], self._starts[self.last_line(item)]
            splices.append(_Splice(start, end, ""))
        return splices

    def spliced(self, splices: Sequence[_Splice]) -> str:
        """The text with all splices made; those at one place stand in the order given."""
        parts, position = [], 0
        # What is added at a place stands in front of what is replaced there.
        for splice in sorted(splices, key=lambda one: (one.start, one.end > one.start)):
            parts.append(self.text[position : splice.start])
            parts.append(splice.text)
            position = splice.end
        text = "".join([*parts, self.text[position:]])
        return text.removesuffix(self._end) if self._lacks_end else text
