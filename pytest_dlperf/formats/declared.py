"""Metrics that a system declares: which numbers of its logs they are, and in which unit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.formats.expressions import Expression, compiled, may_be
from pytest_dlperf.formats.keyed import ANY, BY_KEY, AnyMatch, CsvKeys, JsonKeys
from pytest_dlperf.formats.log_format import WhichNode
from pytest_dlperf.model.metric import MEMBER, Metric

_VALUE: Final = "value"
_FIXED_GROUPS: Final = (_VALUE, "step", "rank", "unit")
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_.+%]+")
MAX_NAME: Final = 80
"""Characters of a member's name at most."""

_PREFIXES: Final = {
    "k": 1e3,
    "K": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
    "Pi": 2.0**50,
}
_BYTES: Final = {"B": 1.0, "bytes": 1.0, **{f"{name}B": p for name, p in _PREFIXES.items()}}
_JOULES: Final = {**{f"{name}J": p for name, p in _PREFIXES.items()}, "J": 1.0, "Wh": 3.6e3}
_WATTS: Final = {**{f"{name}W": p for name, p in _PREFIXES.items()}, "W": 1.0, "mW": 1e-3}
_SECONDS: Final = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "min": 60.0,
    "h": 3.6e3,
}
_KINDS: Final = (_BYTES, {**_JOULES, "kWh": 3.6e6}, _WATTS, _SECONDS, {"%": 0.01, "": 1.0})
"""What units of one kind are worth in the same one of them."""


class Over(StrEnum):
    """The part of a run whose numbers are taken."""

    WINDOW = "window"
    """The steps that are measured."""
    RUN = "run"
    """All of the log: numbers that are printed once, at the begin or at the end."""


class DeclaredMetric(Struct, frozen=True, kw_only=True):
    """A metric whose numbers the log prints, and how to find them.

    ``record`` has the group ``value``, and may have ``step``, ``rank`` and ``unit``. Of a family
    all other groups name the member; ``value_in`` is the number of one that has ``in`` behind these
    names.
    """

    metric: Metric
    record: Expression
    """What its lines look like; of one with ``by_key``, only what is looked for in words."""
    by_key: JsonKeys | CsvKeys | None = None
    """Where JSON or CSV has its numbers, if they are not found by lines."""
    printed_in: str
    """The unit of the printed numbers, where they do not say it themselves."""
    node: WhichNode
    over: Over

    @property
    def values(self) -> Mapping[str, str]:
        """The groups of numbers, and what each adds to a member's name."""
        groups = (name for name in self.record.groupindex if name.startswith(_VALUE))
        return {name: name[len(_VALUE) + 1 :] for name in groups}

    def member_name(self, match: AnyMatch, more: str) -> str:
        """Return the name of the member whose number was found; empty without a family.

        Raises:
            ValueError: A part of it is empty or too long.
        """
        groups = [name for name in self.metric.named_by if name in self.record.groupindex]
        if not self.metric.is_family:
            return ""
        texts = [(match[name] or b"").decode(errors="replace").strip() for name in groups]
        parts = [_NOT_IN_NAMES.sub("_", text) for text in (*texts, *filter(None, [more]))]
        name = MEMBER.join(parts)
        if not all(parts) or len(name) > MAX_NAME:
            raise ValueError(f"{name[:MAX_NAME]!r} cannot be the name of a member")
        return name

    @property
    def has_step(self) -> bool:
        """Whether each number says which step it is of."""
        return "step" in self.record.groupindex

    def is_on(self, node: int, logs: int) -> bool:
        """Say whether it is looked for in the log of a node, where there are so many logs."""
        return self.node.may_be(node, logs)

    def unit_factor(self, unit: bytes | None, prefix: str = "") -> float:
        """Return what a printed number is multiplied by.

        ``unit`` is what that group took, ``prefix`` one that the number ends with.

        Raises:
            ValueError: The unit is not known.
        """
        printed = unit.decode(errors="replace") if unit else self.printed_in
        if prefix and printed == self.metric.unit:
            return unit_factor(prefix, self.metric.unit)
        return _PREFIXES.get(prefix, 1.0) * unit_factor(printed, self.metric.unit)


@lru_cache(maxsize=256)
def unit_factor(printed: str, kept: str) -> float:
    """Return what one of the unit ``printed`` is worth in the unit ``kept``.

    A prefix alone (k, M, Gi) stands for so many of what is kept, or of bytes.

    Raises:
        ValueError: They are not known to be of one kind.
    """
    if printed == kept:
        return 1.0
    if printed.endswith("/s") and kept.endswith("/s"):
        return unit_factor(printed[:-2], kept[:-2])
    for kind in _KINDS:
        if printed in kind and kept in kind:
            return kind[printed] / kind[kept]
    if kept in _BYTES and printed in _PREFIXES:
        return _PREFIXES[printed] / _BYTES[kept]
    prefix = printed[: -len(kept)] if kept and printed.endswith(kept) else printed
    if prefix.strip() in _PREFIXES:
        return _PREFIXES[prefix.strip()]
    raise ValueError(
        f"what {printed!r} is worth in {kept!r} is not known; known are multiples of B, J, W and s "
        "(kB, MiB, kWh, ms, …), and k, M, G, T before any unit"
    )


def declared_metric(  # noqa: PLR0913 - as a system file says it, by name
    metric: Metric,
    *,
    record: str | None = None,
    json: Mapping[str, str] | None = None,
    csv: Mapping[str, str] | None = None,
    where: Mapping[str, str] = MappingProxyType({}),
    printed_in: str | None = None,
    node: WhichNode = WhichNode.FIRST,
    over: Over = Over.WINDOW,
) -> DeclaredMetric:
    """Say how a log shows a metric, as a system file declares it.

    Raises:
        ValueError: The expression or the unit cannot be used; the message says why.
    """
    if [record, json, csv].count(None) != 2:  # noqa: PLR2004 - one of three
        raise ValueError("give one of 'record', 'json' and 'csv'")
    by_key = _by_key(json, csv, where)
    if by_key is None and where:
        raise ValueError("'where' is of 'json' and 'csv'")
    pattern = (
        compiled(record or "")
        if by_key is None
        else Expression(by_key.pattern, by_key.groupindex, by_key.groups)
    )
    values = [name for name in pattern.groupindex if name.startswith(_VALUE)]
    if not values:
        near = get_close_matches(_VALUE, pattern.groupindex, n=1)
        instead = f", in place of (?P<{near[0]}>" if near else ""
        raise ValueError(
            f"{pattern.pattern!r} has no group 'value'; write (?P<value>[-+.0-9eE]+) where the "
            f"number stands{instead}"
        )
    named_by = [name for name in pattern.groupindex if name not in {*_FIXED_GROUPS, *values}]
    if "epoch" in named_by:
        raise ValueError(f"{record!r} has the group epoch, which only records of steps have")
    if len(values) > 1:
        if _VALUE in values:
            raise ValueError(f"{record!r} has the groups {', '.join(values)}; name each: value_in")
        named_by.append(_VALUE)
    metric = replace(metric, named_by=tuple(named_by))
    is_finite = record is not None and metric.sanity is not None and metric.sanity.finite
    if is_finite and not all(_shows_nan(record, name) for name in values):
        raise ValueError(
            f"the group 'value' of {record!r} takes no NaN, which would be overlooked; write "
            "(?P<value>[-+.0-9A-Za-z]+), or 'sanity: {finite: false}' if NaN is allowed"
        )
    if printed_in is None:
        printed_in = metric.unit
    unit_factor(printed_in, metric.unit)
    return DeclaredMetric(
        metric=metric,
        record=pattern,
        by_key=by_key,
        printed_in=printed_in,
        node=node,
        over=over,
    )


def _by_key(
    json: Mapping[str, str] | None, csv: Mapping[str, str] | None, where: Mapping[str, str]
) -> JsonKeys | CsvKeys | None:
    if csv is not None:
        return CsvKeys(keys=csv, where=where)
    if json is None:
        return None
    names = {group for group in json if group not in _FIXED_GROUPS and _VALUE not in group}
    values = [path for group, path in json.items() if group.startswith(_VALUE)]
    is_wild = any(ANY in path.split(".") for path in values)
    return JsonKeys(keys={**json, BY_KEY: ANY} if is_wild and not names else json, where=where)


def _shows_nan(record: str | None, group: str) -> bool:
    """Say whether numbers that are none are found as trainers print them."""
    return record is not None and any(
        may_be(record, group, text) for text in (b"nan", b"NaN", b"NAN")
    )
