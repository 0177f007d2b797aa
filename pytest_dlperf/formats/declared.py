"""Metrics that a system declares: which numbers of its logs they are, and in which unit."""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_dlperf.formats.expressions import Expression, compiled, may_be
from pytest_dlperf.formats.log_format import WhichNode

if TYPE_CHECKING:
    from pytest_dlperf.model.metric import Metric

_GROUPS: Final = ("value", "step", "rank", "unit")

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


class Over(str, Enum):
    """The part of a run whose numbers are taken."""

    WINDOW = "window"
    """The steps that are measured."""
    RUN = "run"
    """All of the log: numbers that are printed once, at the begin or at the end."""


class DeclaredMetric(Struct, frozen=True, kw_only=True):
    """A metric whose numbers the log prints, and how to find them.

    ``record`` has the group ``value``, and may have ``step``, ``rank`` and ``unit``.
    """

    metric: Metric
    record: Expression
    printed_in: str
    """The unit of the printed numbers, where they do not say it themselves."""
    node: WhichNode
    over: Over

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


def declared_metric(
    metric: Metric,
    *,
    record: str,
    printed_in: str | None = None,
    node: WhichNode = WhichNode.FIRST,
    over: Over = Over.WINDOW,
) -> DeclaredMetric:
    """Say how a log shows a metric, as a system file declares it.

    Raises:
        ValueError: The expression or the unit cannot be used; the message says why.
    """
    pattern = compiled(record)
    unknown = sorted(pattern.groupindex.keys() - set(_GROUPS))
    if unknown:
        raise ValueError(f"{record!r} has the group {unknown[0]}; known are {', '.join(_GROUPS)}")
    if "value" not in pattern.groupindex:
        raise ValueError(
            f"{record!r} has no group 'value'; write (?P<value>[-+.0-9eE]+) where the number stands"
        )
    if metric.sanity is not None and metric.sanity.finite and not _shows_nan(record):
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
        printed_in=printed_in,
        node=node,
        over=over,
    )


def _shows_nan(record: str) -> bool:
    """Say whether numbers that are none are found as trainers print them."""
    return any(may_be(record, "value", text) for text in (b"nan", b"NaN", b"NAN"))
