"""Changes the text of a baseline file; unchanged lines keep their bytes.

The only home of ruamel.yaml, imported on writing. It renders the document before and after a
change; the difference is applied to the lines of the file. So comments and layout stay, also where
ruamel.yaml would write them differently.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from io import StringIO
from typing import Any, Final

from msgspec.structs import asdict

from pytest_dlperf.baselines.reading import CaseKey, Definition, Entry
from pytest_dlperf.files.yamlfile import content_lines, lines_of
from pytest_dlperf.model.baseline import (
    Acceptance,
    AcceptedSession,
    Baseline,
    Loss,
    PooledNoise,
    Spread,
)
from pytest_dlperf.model.case import SINGLE_DEVICE, Topology
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.measurement import LaunchFacts
from pytest_dlperf.model.metric import MEMBER, SHARED

_METRIC_KEYS: Final = (
    "accepted",
    "mean",
    "over",
    "reference",
    "runs",
    "strays",
    "sessions",
    "spread",
    "tolerance_percent",
    "note",
    *SHARED,
)
"""The keys of a metric, in the order in which new ones are written.

An entry has its metrics, in the order of their declaration, then the keys that all of them share.
"""

_BLOCKS: Final = ("acceptance", "launch", "sessions")
"""Keys whose values get lines of their own, if the mapping around them has."""

_DIGITS = re.compile(r"([0-9]+)")
_BARE = re.compile(r"[A-Za-z][A-Za-z0-9_/.-]*")
_SHELL_WORD = re.compile(r"[A-Za-z0-9_@%+=:,./{}-]+")
# YAML 1.1 does not read these as text.
_YAML_WORDS: Final = ("yes", "no", "on", "off", "true", "false", "null", "y", "n")


class LayoutError(UsageError):
    """The layout of a file does not let its entries be changed."""


class Document:
    """The text of a baseline file, open for changes."""

    def __init__(self, text: str) -> None:
        from ruamel.yaml import YAML
        from ruamel.yaml.error import YAMLError

        # Changes need whole lines with equal ends; the last end is restored afterwards.
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

    def define(self, metric: str, definition: Definition) -> None:
        """Write unit and direction of a metric."""
        unit = {"unit": definition.unit} if definition.unit else {}
        kind = _styled({**unit, "better": definition.better.value})
        self._filled(self._root, "metrics")[metric] = kind

    def set(self, key: CaseKey, values: Mapping[str, Any], *, metric: str | None = None) -> None:
        """Set values of an entry, or of one of its metrics; ``None`` removes one.

        A missing entry or metric is added.
        """
        place = self._entry(key)
        order: Sequence[str] = self._entry_order((*place, *values))
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

    def text(self) -> str:
        """Return the text with all changes."""
        text = _carried_over(self._text, self._before, self._rendered(), self._end)
        return text if self._has_end else text.removesuffix(self._end)

    def _rendered(self) -> str:
        stream = StringIO()
        self._yaml.dump(self._root, stream)
        return stream.getvalue()

    def _entry(self, key: CaseKey) -> Any:
        """Find the entry, or insert it in its order."""
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
        """Find a metric of an entry as a mapping, or insert it in its order."""
        from ruamel.yaml.comments import CommentedMap

        if not isinstance(entry.get(name), dict):
            made = CommentedMap({"accepted": entry[name]} if name in entry else {})
            made.fa.set_flow_style()
            _put(entry, name, made, self._entry_order((*entry, name)))
        if any(isinstance(value, (dict, list)) for value in values.values()):
            entry[name].fa.set_block_style()
        return entry[name]

    def _entry_order(self, names: Iterable[str]) -> Sequence[str]:
        """List the names of an entry in their order: the members of a family stand together."""
        known = list(self._root["metrics"] or ())
        members = [name for name in dict.fromkeys(names) if MEMBER in name]
        ordered = sorted(members, key=lambda name: known.index(name.partition(MEMBER)[0]))
        return (*known, *ordered, *SHARED)

    @staticmethod
    def _filled(mapping: Any, name: str) -> Any:
        from ruamel.yaml.comments import CommentedMap

        if mapping[name] is None:
            mapping[name] = CommentedMap()
        return mapping[name]


def entry_of(baselines: Mapping[str, Baseline], machine: Mapping[str, str], before: Entry) -> Entry:
    """Make the values of an entry, ``None`` where there is none, without those that people write.

    What ``before`` says for all metrics stays as long as one of them has it.
    """
    metrics: dict[str, dict[str, Any]] = {
        name: {
            "accepted": baseline.accepted,
            "mean": baseline.mean,
            "over": baseline.over,
            "reference": None if baseline.reference == str(SINGLE_DEVICE) else baseline.reference,
            "runs": baseline.runs or None,
            "strays": baseline.strays or None,
            "sessions": baseline.sessions or None,
            "spread": None if baseline.spread == Spread() else baseline.spread,
            "acceptance": baseline.acceptance,
            "machine": None if baseline.machine == machine else baseline.machine,
        }
        for name, baseline in baselines.items()
    }
    shared: dict[str, Any] = {}
    for key in SHARED:
        given = [values[key] for values in metrics.values()]
        old = before.shared.get(key)
        # A metric cannot unset a value of its entry.
        shared[key] = None if None in given else old if old in given else given[0]
        for values in metrics.values():
            values[key] = None if values[key] == shared[key] else values[key]
    return Entry(metrics, shared)


def changed_values(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that differ from the old, as they are written; ``None`` deletes one."""
    return {
        name: _written(value) for name, value in new.items() if value != (old.get(name) or None)
    }


def _written(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_written(one) for one in value]
    if isinstance(value, Loss):
        return [value.percent, value.error]
    if isinstance(value, (Acceptance, AcceptedSession, LaunchFacts, PooledNoise, Spread)):
        facts = asdict(value)
        if isinstance(value, LaunchFacts):
            # As typed, for people to read and try in a terminal.
            facts = {"launcher": value.launcher, "command": _command_line(value.arguments), **facts}
            del facts["arguments"]
        return {name: _written(fact) for name, fact in facts.items() if fact not in (None, (), {})}
    return dict(value) if isinstance(value, Mapping) else value


def _command_line(arguments: Iterable[str]) -> str:
    """Quote arguments for a shell, but not placeholders such as ``{python}``."""
    return " ".join(one if _SHELL_WORD.fullmatch(one) else shlex.quote(one) for one in arguments)


def as_text(values: Mapping[str, Any]) -> str:
    """Write values as YAML: mappings below their keys, other values on one line."""
    from ruamel.yaml import YAML

    stream = StringIO()
    YAML().dump({name: _styled(value, is_block=True) for name, value in values.items()}, stream)
    return stream.getvalue()


def _overlap(old: Sequence[Any], wanted: Sequence[Any]) -> int:
    """Count the items that stay: the last old ones that are the first wanted ones."""
    sizes = range(min(len(old), len(wanted)), 0, -1)
    return next((size for size in sizes if list(old[-size:]) == wanted[:size]), 0)


def _put(mapping: Any, key: str, value: Any, order: Sequence[str]) -> None:
    """Put a value at the place of its key in an order."""
    _insert(mapping, key, value, [order.index(one) < order.index(key) for one in mapping])


def _insert(mapping: Any, key: str, value: Any, is_before: Sequence[bool]) -> None:
    """Put a value behind the last key that belongs before it."""
    if key in mapping:
        mapping[key] = value
        return
    places = [index for index, before in enumerate(is_before) if before]
    mapping.insert(max(places, default=-1) + 1, key, value)


def _order(variant: str) -> list[str | int]:
    """Return a sort key of variants that orders numbers by their size."""
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


# -------------------------------------------------------------- lines of the file


class _Lines:
    """The lines of a text, and those of them with content."""

    def __init__(self, text: str) -> None:
        self.all = lines_of(text)
        self.places = content_lines(text)
        self.content = [self.all[place].rstrip() for place in self.places]
        self.keys: list[tuple[str, ...]] = []
        """Each line's key, with the keys that it stands below."""
        above: list[tuple[int, bool, str]] = []
        for line in self.content:
            # An item of a list belongs to the key above it, also with the same indent.
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
    """Apply the changes of the rendered text to the text itself.

    Only lines with content are compared. Comments and empty lines stay, unless the lines on both
    sides of them go.
    """
    own, old, new = _Lines(text), _Lines(before), _Lines(after)
    spans = _spans(own, old)
    parts: list[str] = []
    done = 0
    for first, last, lines in _changes(old, new):
        if _is_cut(spans, first) or _is_cut(spans, last):
            raise LayoutError("a changed line cannot be told from its neighbours")
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
                # Not beside a deleted line with a smaller indent.
                is_deep = first < last and _indent(old.content[first]) >= indent
                near = _beside(indent, first if is_deep else first - 1, old)
                shift = _indent(own.content[spans[near][0]]) - _indent(old.content[near])
                least = indent
            parts.append(f"{' ' * (indent + shift)}{line.lstrip()}{end_of_line}")
        done = end
    return "".join([*parts, *own.all[done:]])


def _beside(indent: int, at: int, lines: _Lines) -> int:
    """Find the nearest line upward with at most this indent."""
    return next(i for i in range(at, -1, -1) if _indent(lines.content[i]) <= indent)


def _changes(old: _Lines, new: _Lines) -> Iterator[tuple[int, int, list[str]]]:
    """Yield ranges of old lines, and the new lines in their places."""
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, old.keys, new.keys, False).get_opcodes():
        if tag != "equal":
            yield i1, i2, new.content[j1:j2]
            continue
        for i, j in zip(range(i1, i2), range(j1, j2), strict=True):
            if old.content[i] != new.content[j]:
                yield i, i + 1, [new.content[j]]


def _spans(own: _Lines, old: _Lines) -> list[tuple[int, int]]:
    """Find the range of the text's own lines for each rendered line."""
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
    """Whether the lines before and behind a place are rendered as one."""
    return 0 < at < len(spans) and spans[at - 1][1] > spans[at][0]
