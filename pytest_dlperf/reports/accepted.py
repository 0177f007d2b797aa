"""What a session has changed in baselines: old, new, difference and why."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pytest_dlperf.reports import numbers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedChange:
    """One number of one case that was accepted.

    ``old`` and ``new`` are in ``unit``; ``old`` is ``None`` where there was no number.
    """

    case_id: str
    quantity: str
    unit: str
    old: float | None
    new: float
    why: str

    @property
    def difference_percent(self) -> float | None:
        """How far the new number lies above the old one."""
        return None if self.old is None else (self.new / self.old - 1) * 100

    def to_plain(self) -> dict[str, Any]:
        """The change as builtins, as it stands in the results file."""
        return {**asdict(self), "difference_percent": self.difference_percent}


def change_lines(changes: Sequence[AcceptedChange]) -> Iterator[str]:
    """A table of the changes."""
    rows = [("case", "unit", "old", "new", "diff", "why")]
    for change in changes:
        written = numbers.speedup if change.quantity == "speedup" else numbers.throughput
        rows.append(
            (
                change.case_id,
                change.unit,
                written(change.old),
                written(change.new),
                numbers.signed_percent(change.difference_percent),
                change.why,
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for case, unit, *figures, why in rows:
        cells = [text.rjust(width) for text, width in zip(figures, widths[2:5], strict=True)]
        yield "  ".join([case.ljust(widths[0]), unit.ljust(widths[1]), *cells, why]).rstrip()
