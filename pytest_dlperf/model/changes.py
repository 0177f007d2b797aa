"""What a session has changed in baselines: old, new, difference and why."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineChange:
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

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> BaselineChange:
        """The inverse of ``to_plain``."""
        return cls(**{name: plain[name] for name in cls.__slots__})
