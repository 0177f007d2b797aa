"""Holds YAML files against JSON Schemas, with mistakes told by line and key path.

A validator of its own, since those that there are know neither lines nor the words that this
package has for mistakes, and scalars have to be read as ``YamlValue`` reads them: a version stays
what it looks like, and ``1e5`` is a number. It knows the part of JSON Schema (2020-12) that the
schemas of this package use, and refuses a schema that uses more.

Keywords of ours, which other programs pass over: ``x-allowed`` says in words what may stand at a
place, ``x-refused`` what a key is that has no allowed form, ``x-unit`` what a number counts.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final

from pytest_dlperf.files.yamlfile import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_dlperf.files.yamlfile import YamlValue

_WORDS: Final = frozenset({"$schema", "title", "description", "x-allowed", "x-refused", "x-unit"})
_RULES: Final = frozenset(
    {
        "$defs",
        "$ref",
        "additionalProperties",
        "enum",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "items",
        "minItems",
        "minimum",
        "pattern",
        "patternProperties",
        "properties",
        "propertyNames",
        "required",
        "type",
    }
)
_SCALARS: Final = frozenset({"string", "number", "integer", "boolean"})
_ANY_SCALAR: Final = frozenset({"string", "number", "boolean"})


def check(value: YamlValue, schema: Mapping[str, Any]) -> bool:
    """Report all that the schema does not allow, and say whether there was nothing.

    Raises:
        ValueError: The schema says something that is not known here.
    """
    before = value.mistakes
    _Checker(schema).check(value, schema)
    return value.mistakes == before


class _Checker:
    """Checks values against one schema."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root

    def check(self, value: YamlValue, rule: Mapping[str, Any]) -> None:
        rule = self._resolved(rule)
        types = _types(rule)
        if value.is_empty and "null" in types:
            return
        if value.is_mapping and "object" in types:
            self._mapping(value, rule)
        elif value.is_list and "array" in types:
            self._list(value, rule)
        elif types & _SCALARS and (value.is_scalar or not types - _SCALARS):
            _scalar(value, rule, types & _SCALARS)
        elif types:
            value.fault_found(_allowed(rule))

    def _resolved(self, rule: Mapping[str, Any]) -> Mapping[str, Any]:
        """The rule itself, or the one that it refers to, with the words of both."""
        unknown = set(rule) - _WORDS - _RULES
        if unknown:
            raise ValueError(f"a schema has keywords that are not known here: {sorted(unknown)}")
        if "$ref" not in rule:
            return rule
        own = {key: said for key, said in rule.items() if key != "$ref"}
        if not set(own) <= _WORDS:
            raise ValueError(f"beside a $ref only words may stand, not {sorted(set(own) - _WORDS)}")
        name = str(rule["$ref"]).removeprefix("#/$defs/")
        defined = self._root.get("$defs", {})
        if name not in defined:
            raise ValueError(f"{rule['$ref']!r} is not defined; there are: {', '.join(defined)}")
        return {**self._resolved(defined[name]), **own}

    def _mapping(self, value: YamlValue, rule: Mapping[str, Any]) -> None:
        properties = rule.get("properties", {})
        patterns = rule.get("patternProperties", {})
        others = rule.get("additionalProperties", True)
        names = rule.get("propertyNames", {})
        entries = value.entries()
        for key, item in entries:
            if "pattern" in names and not re.search(names["pattern"], key):
                says = names.get("x-refused", f"is not of the form {names['pattern']}")
                item.fault(f"{key!r} {says}")
                continue
            rules = [properties[key]] if key in properties else []
            rules += [other for form, other in patterns.items() if re.search(form, key)]
            if not rules and others is False:
                item.fault(
                    f"unknown key {key!r}; allowed: {', '.join(properties)}"
                    f"{nearest(key, properties)}"
                )
            elif not rules and others is not True:
                rules = [others]
            for one in rules:
                self.check(item, one)
        present = {key for key, _ in entries}
        for key in rule.get("required", ()):
            if key not in present:
                value.fault(f"the key {key!r} is missing")

    def _list(self, value: YamlValue, rule: Mapping[str, Any]) -> None:
        if value.is_empty_list:
            if rule.get("minItems", 0):
                value.fault(f"found an empty list; allowed: {_allowed(rule)}")
            return
        items = value.items(_allowed(rule))
        if len(items) < rule.get("minItems", 0):
            value.fault(f"found {len(items)} items; allowed: at least {rule['minItems']}")
        for item in items:
            if "items" in rule:
                self.check(item, rule["items"])


def _types(rule: Mapping[str, Any]) -> frozenset[str]:
    types = rule.get("type", ())
    return frozenset([types] if isinstance(types, str) else types)


def _allowed(rule: Mapping[str, Any]) -> str:
    """What may stand at a place, in words."""
    if "x-allowed" in rule:
        return str(rule["x-allowed"])
    if "object" in _types(rule):
        names = ", ".join(rule.get("properties", ()))
        return f"a mapping with {names}" if names else "a mapping"
    return "a list" if "array" in _types(rule) else "text"


def _scalar(value: YamlValue, rule: Mapping[str, Any], types: frozenset[str]) -> None:
    """Check with the readers that read the value later, so that both say the same.

    Raises:
        ValueError: The rule is none that they can check.
    """
    if "enum" in rule:
        value.choice(rule["enum"])
    elif types == {"string"}:
        text = value.text(_allowed(rule))
        if text is not None and not re.search(rule.get("pattern", ""), text):
            value.fault_found(_allowed(rule))
    elif types == _ANY_SCALAR:
        value.scalar(_allowed(rule))
    elif types == {"boolean"}:
        value.yes_or_no()
    elif types == {"integer"} and "minimum" in rule:
        value.whole_number(rule["minimum"])
    elif types == {"number"} and (rule.get("exclusiveMinimum") == 0 or rule.get("minimum") == 0):
        value.positive_number(
            or_zero="minimum" in rule,
            below=rule.get("exclusiveMaximum", math.inf),
            unit=rule.get("x-unit", ""),
        )
    else:
        raise ValueError(f"no scalar is read like this here: {dict(rule)}")
