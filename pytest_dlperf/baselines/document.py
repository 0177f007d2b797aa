"""Changes a baseline file so that every line that is not changed keeps its bytes.

ruamel.yaml's only home, imported on writing. It renders the document before and after a change;
what differs between the two is carried over into the lines of the file as it stands. So comments
and layout stay, also where ruamel.yaml would write them otherwise.
"""

from __future__ import annotations

import re
import sys
from difflib import SequenceMatcher
from io import StringIO
from typing import TYPE_CHECKING, Any, Final

from pytest_dlperf.files.yamlfile import content_lines, lines_of
from pytest_dlperf.model.case import Topology
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.metric import ENTRY_KEYS, SHARED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_dlperf.baselines.reading import CaseKey, Definition

_METRIC_KEYS: Final = (
    "accepted",
    "mean",
    "over",
    "reference",
    "runs",
    "strays",
    "sessions",
    "tolerance_percent",
    "note",
    *SHARED,
)
"""The keys of a metric, in the order in which new ones are written.

Those of an entry are its metrics, in the order in which they are declared, and then what it says
of all of them. The last one is never changed. So the line stays between a change of this entry and
one more entry behind it, and git merges a branch with the one and a branch with the other.
"""

_BLOCKS: Final = ("acceptance", "launch", "sessions")
"""Keys whose values stand on lines of their own, as long as those around them do."""

_DIGITS = re.compile(r"([0-9]+)")
_BARE = re.compile(r"[A-Za-z][A-Za-z0-9_/.-]*")
# What YAML 1.1 takes for something else than text.
_YAML_WORDS: Final = ("yes", "no", "on", "off", "true", "false", "null", "y", "n")


class LayoutError(UsageError):
    """A file is laid out in a way in which its entries cannot be changed."""


class Document:
    """The text of a baseline file, open for changes."""

    def __init__(self, text: str) -> None:
        """Parse a text that has been read as baselines before."""
        from ruamel.yaml import YAML
        from ruamel.yaml.error import YAMLError

        # Changes are made to whole lines that end alike; at the end the text is as it was in that.
        self._end = "\r\n" if "\r\n" in text else "\n"
        self._has_end = text.endswith("\n")
        self._text = text if self._has_end else text + self._end
        self._yaml = YAML()
        self._yaml.preserve_quotes = True
        self._yaml.width = 1_000_000
        self._yaml.indent(mapping=2, sequence=4, offset=2)
        try:
            self._root = self._yaml.load(self._text.replace("\r\n", "\n"))
        except YAMLError as error:
            raise LayoutError(str(error)) from error
        self._before = self._rendered()

    def define(self, metric: str, definition: Definition | None) -> None:
        """Write of which kind the numbers of a metric are; ``None`` removes it."""
        if definition is None:
            self._root["metrics"].pop(metric, None)
            self._root["metrics"] = self._root["metrics"] or None
            return
        unit = {"unit": definition.unit} if definition.unit else {}
        kind = _styled({**unit, "better": definition.better.value})
        self._filled(self._root, "metrics")[metric] = kind

    def set(self, key: CaseKey, values: Mapping[str, Any], *, metric: str | None = None) -> None:
        """Write values of an entry, or of one of its metrics; ``None`` removes one.

        Entry and metric are made if need be.
        """
        place, order = self._entry(key), self._entry_order()
        if metric is not None and values:
            place, order = self._metric(place, metric, values), _METRIC_KEYS
        for name in sorted(values, key=order.index):
            value = values[name]
            if value is None:
                place.pop(name, None)
            elif name == "sessions" and (kept := _overlap(place.get(name) or (), value)):
                del place[name][:-kept]
                place[name].extend(map(_styled, value[kept:]))
            else:
                _put(place, name, _styled(value, is_block=name in _BLOCKS), order)

    def delete(self, key: CaseKey) -> None:
        """Take an entry out, and its variant if that was the last one."""
        variant, topology = key
        entries = self._root["entries"]
        del entries[variant][topology]
        if not entries[variant]:
            del entries[variant]
        if not entries:
            self._root["entries"] = None

    def text(self) -> str:
        """Give the text with all changes made."""
        text = _carried_over(self._text, self._before, self._rendered(), self._end)
        return text if self._has_end else text.removesuffix(self._end)

    def _rendered(self) -> str:
        stream = StringIO()
        self._yaml.dump(self._root, stream)
        return stream.getvalue()

    def _entry(self, key: CaseKey) -> Any:
        """Find the entry, or make one between its neighbours."""
        from ruamel.yaml.comments import CommentedMap

        variant, topology = key
        entries = self._filled(self._root, "entries")
        if entries.get(variant) is None:
            is_before = [_order(one) < _order(variant) for one in entries]
            _insert(entries, variant, CommentedMap(), is_before)
        group = entries[variant]
        if topology not in group:
            own = Topology.parse(topology)
            _insert(group, topology, CommentedMap(), [Topology.parse(one) < own for one in group])
        return group[topology]

    def _metric(self, entry: Any, name: str, values: Mapping[str, Any]) -> Any:
        """Find a metric of an entry as a mapping, or make one between its neighbours."""
        from ruamel.yaml.comments import CommentedMap

        if not isinstance(entry.get(name), dict):
            made = CommentedMap({"accepted": entry[name]} if name in entry else {})
            made.fa.set_flow_style()
            _put(entry, name, made, self._entry_order())
        if any(isinstance(value, (dict, list)) for value in values.values()):
            entry[name].fa.set_block_style()
        return entry[name]

    def _entry_order(self) -> Sequence[str]:
        return (*(self._root["metrics"] or ()), *ENTRY_KEYS)

    @staticmethod
    def _filled(mapping: Any, name: str) -> Any:
        from ruamel.yaml.comments import CommentedMap

        if mapping[name] is None:
            mapping[name] = CommentedMap()
        return mapping[name]


def as_text(values: Mapping[str, Any]) -> str:
    """Write values as a text of its own: mappings below their keys, all else on its line."""
    from ruamel.yaml import YAML

    stream = StringIO()
    YAML().dump({name: _styled(value, is_block=True) for name, value in values.items()}, stream)
    return stream.getvalue()


def _overlap(stands: Sequence[Any], wanted: Sequence[Any]) -> int:
    """How many items stay: the last of those that stand, which are the first of the wanted."""
    sizes = range(min(len(stands), len(wanted)), 0, -1)
    return next((size for size in sizes if list(stands[-size:]) == wanted[:size]), 0)


def _put(mapping: Any, key: str, value: Any, order: Sequence[str]) -> None:
    """Put a value where an order has its key."""
    _insert(mapping, key, value, [order.index(one) < order.index(key) for one in mapping])


def _insert(mapping: Any, key: str, value: Any, is_before: Sequence[bool]) -> None:
    """Put a value behind the last of those that belong in front of it."""
    if key in mapping:
        mapping[key] = value
        return
    places = [index for index, before in enumerate(is_before) if before]
    mapping.insert(max(places, default=-1) + 1, key, value)


def _order(variant: str) -> list[str | int]:
    """Order variants by their parts, numbers by their size."""
    parts = _DIGITS.split(variant)
    return [int(part) if index % 2 else part for index, part in enumerate(parts)]


def _styled(value: Any, *, is_block: bool = False) -> Any:
    """Style a value for ruamel.yaml: on one line, text in quotes where it needs them."""
    from ruamel.yaml.comments import CommentedMap, CommentedSeq
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    if isinstance(value, dict):
        mapping = CommentedMap(
            (_styled(key), _styled(item, is_block=is_block and key in _BLOCKS))
            for key, item in value.items()
        )
        if not is_block:
            mapping.fa.set_flow_style()
        return mapping
    if isinstance(value, (list, tuple)):
        sequence = CommentedSeq(_styled(item) for item in value)
        if not is_block:
            sequence.fa.set_flow_style()
        return sequence
    if not isinstance(value, str):
        return value
    is_bare = _BARE.fullmatch(value) and value.lower() not in _YAML_WORDS
    return value if is_bare else DoubleQuotedScalarString(value)


# -------------------------------------------------------------- into the lines of the file


class _Lines:
    """The lines of a text, and those of them that say something."""

    def __init__(self, text: str) -> None:
        self.all = lines_of(text)
        self.places = content_lines(text)
        self.content = [self.all[place].rstrip() for place in self.places]
        self.keys: list[tuple[str, ...]] = []
        """What tells each line from others: its own beginning, below those that it belongs to."""
        above: list[tuple[int, bool, str]] = []
        for line in self.content:
            # An item of a list belongs to the key above it also where it is no further in.
            is_item = line.lstrip().startswith("- ")
            depth = (_indent(line), is_item)
            while above and above[-1][:2] >= depth:
                above.pop()
            head = " ".join(line.split()) if is_item else line.partition(":")[0].strip()
            above.append((*depth, head))
            self.keys.append(tuple(name for *_, name in above))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _carried_over(text: str, before: str, after: str, end_of_line: str) -> str:
    """Change a text as its rendered form has changed.

    Only lines that say something are compared. Comments and empty lines stay where they are,
    unless the lines on both sides of them go.
    """
    own, old, new = _Lines(text), _Lines(before), _Lines(after)
    spans = _spans(own, old)
    parts: list[str] = []
    done = 0
    for first, last, lines in _changes(old, new):
        if _is_cut(spans, first) or _is_cut(spans, last):
            raise LayoutError("what is changed stands in one piece with something else")
        if first < last:
            start = own.places[spans[first][0]]
            end = own.places[spans[last - 1][1] - 1] + 1
        else:
            start = end = own.places[spans[first - 1][1] - 1] + 1
        parts += own.all[done:start]
        shift, least = 0, sys.maxsize
        for line in lines:
            indent = _indent(line)
            if indent <= least:
                # Not beside a line that goes and lies further out.
                is_deep = first < last and _indent(old.content[first]) >= indent
                near = _beside(indent, first if is_deep else first - 1, old)
                shift = _indent(own.content[spans[near][0]]) - _indent(old.content[near])
                least = indent
            parts.append(f"{' ' * (indent + shift)}{line.lstrip()}{end_of_line}")
        done = end
    return "".join([*parts, *own.all[done:]])


def _beside(indent: int, at: int, lines: _Lines) -> int:
    """Find the nearest line from here upward that a line stands beside, or below."""
    return next(i for i in range(at, -1, -1) if _indent(lines.content[i]) <= indent)


def _changes(old: _Lines, new: _Lines) -> Iterator[tuple[int, int, list[str]]]:
    """Ranges of old lines, and the new ones that take their places."""
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, old.keys, new.keys, False).get_opcodes():
        if tag != "equal":
            yield i1, i2, new.content[j1:j2]
            continue
        for i, j in zip(range(i1, i2), range(j1, j2), strict=True):
            if old.content[i] != new.content[j]:
                yield i, i + 1, [new.content[j]]


def _spans(own: _Lines, old: _Lines) -> list[tuple[int, int]]:
    """For each rendered line, the range of the text's own lines that it stands for."""
    spans: list[tuple[int, int]] = []
    for _, i1, i2, j1, j2 in SequenceMatcher(None, own.keys, old.keys, False).get_opcodes():
        if i2 - i1 == j2 - j1:
            spans += [(index, index + 1) for index in range(i1, i2)]
        elif j1 == j2:  # a line that is rendered within the one before it
            spans[-1] = (spans[-1][0], i2)
        else:
            spans += [(i1, i2)] * (j2 - j1)
    return spans


def _is_cut(spans: Sequence[tuple[int, int]], at: int) -> bool:
    """Say whether the lines in front of a place and behind it are rendered as one."""
    return 0 < at < len(spans) and spans[at - 1][1] > spans[at][0]
