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

from pytest_dlperf.formats.expressions import Expression
from pytest_dlperf.formats.keyed import (
    VALUE,
    AnyMatch,
    AnyRecord,
    CsvKeys,
    JsonKeys,
    declared_record,
)
from pytest_dlperf.formats.log_format import WhichNode
from pytest_dlperf.model.metric import MEMBER, Metric

_FIXED_GROUPS: Final = (VALUE, "step", "rank", "unit")
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_.+%]+")
MAX_NAME: Final = 80
"""Characters of a member's name at most."""

_PREFIXES: Final = {"": 1.0, "k": 1e3, "K": 1e3, "Ki": 1024.0} | {
    prefix: base**power
    for power, letter in enumerate("MGTP", 2)
    for prefix, base in ((letter, 1e3), (f"{letter}i", 1024.0))
}
_OF_BASES: Final = _PREFIXES | {"n": 1e-9, "u": 1e-6, "µ": 1e-6, "m": 1e-3}
_BASES: Final = dict.fromkeys(("bytes", "B"), ("B", 1.0)) | {
    base: (kind, worth)
    for kind, base, worth in (
        *(("J", "Wh", 3.6e3), ("J", "J", 1.0), ("W", "W", 1.0), ("", "%", 0.01)),
        *(("s", "min", 60.0), ("s", "h", 3.6e3), ("s", "s", 1.0)),
    )
}
"""What units with or without a prefix are of, and worth in it."""


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
    record: AnyRecord
    printed_in: str
    """The unit of the printed numbers, where they do not say it themselves."""
    node: WhichNode
    over: Over

    @property
    def by_key(self) -> JsonKeys | CsvKeys | None:
        """Where JSON or CSV has its numbers, if they are not found by lines."""
        return None if isinstance(self.record, Expression) else self.record

    @property
    def values(self) -> Mapping[str, str]:
        """The groups of numbers, and what each adds to a member's name."""
        groups = (name for name in self.record.groupindex if name.startswith(VALUE))
        return {name: name[len(VALUE) + 1 :] for name in groups}

    def member_name(self, match: AnyMatch, more: str) -> str:
        """Return the name of the member whose number was found; empty without a family.

        Raises:
            ValueError: A part of it is empty or too long.
        """
        if not self.metric.is_family:
            return ""
        groups = (name for name in self.metric.named_by if name in self.record.groupindex)
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
        return _PREFIXES[prefix] * unit_factor(printed, self.metric.unit)


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
    kind, worth = _worth(printed)
    kind_kept, worth_kept = _worth(kept)
    if kind is not None and (kind == kind_kept or (kind == "" and kind_kept == "B")):
        return worth / worth_kept
    prefix = printed.removesuffix(kept).strip()
    if prefix in _PREFIXES and prefix:
        return _PREFIXES[prefix]
    raise ValueError(
        f"what {printed!r} is worth in {kept!r} is not known; known are multiples of B, J, W and s "
        "(kB, MiB, kWh, ms, …), and k, M, G, T before any unit"
    )


def _worth(unit: str) -> tuple[str | None, float]:
    """Return what a unit is of, if that is known, and how many of it."""
    for base, (kind, worth) in _BASES.items():
        if unit.endswith(base) and unit.removesuffix(base) in _OF_BASES:
            return kind, worth * _OF_BASES[unit.removesuffix(base)]
    return ("", _PREFIXES[unit]) if unit in _PREFIXES else (None, 1.0)


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
    found = declared_record(record, json, csv, where)
    values = [name for name in found.groupindex if name.startswith(VALUE)]
    if not values:
        near = get_close_matches(VALUE, found.groupindex, n=1)
        instead = f", in place of (?P<{near[0]}>" if near else ""
        raise ValueError(
            f"{found.pattern!r} has no group 'value'; write (?P<value>[-+.0-9eE]+) where the "
            f"number stands{instead}"
        )
    named_by = [name for name in found.groupindex if name not in {*_FIXED_GROUPS, *values}]
    if "epoch" in named_by:
        raise ValueError(f"{record!r} has the group epoch, which only records of steps have")
    if len(values) > 1:
        if VALUE in values:
            raise ValueError(f"{record!r} has the groups {', '.join(values)}; name each: value_in")
        named_by.append(VALUE)
    is_finite = metric.sanity is not None and metric.sanity.finite
    if is_finite and isinstance(found, Expression):
        texts = b"nan", b"NaN", b"NAN"
        if not all(any(found.may_take(group, text) for text in texts) for group in values):
            raise ValueError(
                f"the group 'value' of {record!r} takes no NaN, which would be overlooked; write "
                "(?P<value>[-+.0-9A-Za-z]+), or 'sanity: {finite: false}' if NaN is allowed"
            )
    printed_in = metric.unit if printed_in is None else printed_in
    unit_factor(printed_in, metric.unit)
    return DeclaredMetric(
        metric=replace(metric, named_by=tuple(named_by)),
        record=found,
        printed_in=printed_in,
        node=node,
        over=over,
    )
