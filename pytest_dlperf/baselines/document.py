"""Changes entries in the text of a baseline file; comments and texts of the others stay.

The only home of ruamel.yaml, imported on writing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from io import StringIO
from typing import Any, Final

from pytest_dlperf.model.baseline import BaselineKeys
from pytest_dlperf.model.case import Topology
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.metric import MEMBER, SHARED

Order = Callable[[str], Any]
"""Makes a sort key of a mapping's keys."""

_KEYS: Final = (*[k for k in BaselineKeys.__struct_fields__ if k not in SHARED], *SHARED)
"""The keys of a metric, in their order."""
_BLOCKS: Final = ("acceptance", "launch", "sessions")
"""Keys whose values get lines of their own; so do metrics."""
_NULL: Final = re.compile(r"(~|null|Null|NULL|)\Z")
_DIGITS: Final = re.compile(r"([0-9]+)")
_BARE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_/.-]*|[0-9]+n[0-9]+g")
# YAML 1.1 does not read these as text.
_YAML_WORDS: Final = ("yes", "no", "on", "off", "true", "false", "null", "y", "n")


class LayoutError(UsageError):
    """The layout of a file does not let its entries be changed."""


class Document:
    """The text of a baseline file, open for changes."""

    def __init__(self, text: str) -> None:
        """Parse a text that has been read as baselines before."""
        from ruamel.yaml.error import YAMLError

        self._end = "\r\n" if "\r\n" in text else "\n"
        self._yaml = _round_trip()
        try:
            self._root = self._yaml.load(text.replace("\r\n", "\n"))
        except YAMLError as error:
            raise LayoutError(str(error)) from error

    def define(self, metric: str, definition: Mapping[str, Any]) -> None:
        """Write unit and direction of a metric, behind the others."""
        if standing := self._inserted(("metrics", metric), definition, len, metric.__eq__):
            _update(standing, {}, definition, [*definition].index)

    def change(self, key: tuple[str, str], old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        """Write an entry: what is not as it was before."""
        known = [*self._root["metrics"], *SHARED]

        def order(name: str) -> int:
            return known.index(name.partition(MEMBER)[0])

        ordered = {name: new[name] for name in sorted(new, key=order)}
        if standing := self._inserted(("entries", *key), ordered, len, _natural, Topology.parse):
            _update(standing, old, ordered, order)

    def _inserted(self, path: Sequence[str], value: Any, *orders: Order) -> Any:
        """Find what stands at a place, or insert the value there, with all that is above it."""
        node = self._root
        for at, (name, order) in enumerate(zip(path, orders, strict=True), 1):
            if not node.get(name):
                for above in reversed(path[at:]):
                    value = {above: value}
                _put(node, name, value, order)
                return None
            node = node[name]
        return node

    def text(self) -> str:
        """Return the text with all changes."""
        stream = StringIO()
        self._yaml.dump(self._root, stream)
        return stream.getvalue().replace("\n", self._end)


def as_text(values: Mapping[str, Any]) -> str:
    """Write values as YAML, a key on each line."""
    from ruamel.yaml.comments import CommentedMap

    stream = StringIO()
    _round_trip().dump(CommentedMap({name: _styled(one) for name, one in values.items()}), stream)
    return stream.getvalue()


def _round_trip() -> Any:
    """Make a reader and writer for which every scalar but nothing is text as it is written."""
    from ruamel.yaml import YAML
    from ruamel.yaml.resolver import VersionedResolver

    class Resolver(VersionedResolver):
        @property
        def versioned_resolver(self) -> Any:
            return {first: [("tag:yaml.org,2002:null", _NULL)] for first in ("", "~", "n", "N")}

    yaml = YAML()
    yaml.Resolver = Resolver
    yaml.preserve_quotes = True
    yaml.width = 1_000_000
    yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml


def _update(node: Any, old: Mapping[str, Any], new: Mapping[str, Any], order: Order) -> None:
    """Write what is not as before, and take away what is no longer there."""
    for name in [one for one in node if one not in new]:
        _pop(node, name)
    if any(isinstance(value, (dict, list)) for value in new.values()):
        node.fa.set_block_style()
    for name in sorted(new, key=order):
        before, value = old.get(name), new[name]
        if name not in _KEYS and isinstance(value, dict) and isinstance(node.get(name), dict):
            _update(node[name], before or {}, value, _KEYS.index)
        elif value != before:
            _put(node, name, value, order)


def _put(node: Any, name: str, value: Any, order: Order) -> None:
    """Set a value, or insert it in its order; comments below stay behind it."""
    if name in node:
        below = _taken(node, name)
        node[name] = _styled(value, name)
    else:
        before = [one for one in node if order(one) < order(name)]
        below = _taken(node, before[-1]) if before else ""
        at = [*node].index(before[-1]) + 1 if before else 0
        node.insert(at, name, _styled(value, name))
    _give(node, name, below)


def _pop(node: Any, name: str) -> None:
    names = [*node]
    at, below = names.index(name), _taken(node, name)
    del node[name]
    if at:
        _give(node, names[at - 1], below)


def _last_line(node: Any, key: Any) -> tuple[Any, Any, int]:
    """Find the last value below a key that ends a line, and where its comments are kept."""
    value = node[key]
    if isinstance(value, (dict, list)) and value and not value.fa.flow_style():  # type: ignore[union-attr]
        return _last_line(value, [*value][-1] if isinstance(value, dict) else len(value) - 1)
    return node, key, 2 if isinstance(node, dict) else 0


def _taken(node: Any, key: Any) -> str:
    """Take away the comment lines below a value, which ruamel.yaml keeps with it."""
    node, key, slot = _last_line(node, key)
    token = (node.ca.items.get(key) or [None] * 4)[slot]
    if token is None:
        return ""
    own, _, below = token.value.partition("\n")
    token.value = f"{own}\n"
    return str(below)


def _give(node: Any, key: Any, below: str) -> None:
    from ruamel.yaml.error import CommentMark
    from ruamel.yaml.tokens import CommentToken

    if below:
        node, key, slot = _last_line(node, key)
        tokens = node.ca.items.setdefault(key, [None] * 4)
        own = tokens[slot].value.rstrip("\n") if tokens[slot] else ""
        tokens[slot] = CommentToken(f"{own}\n{below}", CommentMark(0), None)


def _natural(variant: str) -> list[str | int]:
    """Return a sort key that orders numbers by their size."""
    parts = _DIGITS.split(variant)
    return [int(part) if index % 2 else part for index, part in enumerate(parts)]


def _styled(value: Any, name: str = "") -> Any:
    """Style a value for ruamel.yaml: on one line, text in quotes where it needs them."""
    from ruamel.yaml.comments import CommentedMap, CommentedSeq
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    styled: Any
    if isinstance(value, dict):
        styled = CommentedMap({_styled(key): _styled(one, key) for key, one in value.items()})
    elif isinstance(value, (list, tuple)):
        styled = CommentedSeq(map(_styled, value))
    elif isinstance(value, str):
        is_bare = _BARE.fullmatch(value) and value.lower() not in _YAML_WORDS
        return value if is_bare else DoubleQuotedScalarString(value)
    else:
        return None if value is None else str(value)
    is_metric = name and name not in _KEYS and isinstance(value, dict)
    has_lines = is_metric and any(isinstance(one, (dict, list)) for one in value.values())
    if name not in _BLOCKS and not has_lines:
        styled.fa.set_flow_style()
    return styled
