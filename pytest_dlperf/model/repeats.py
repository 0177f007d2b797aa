"""How many runs of a case are taken: a fixed number, or as many as a gate's rule asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, final

if TYPE_CHECKING:
    from collections.abc import Sequence


class Repeats(Protocol):
    """Says after each run whether there are enough."""

    @property
    def at_most(self) -> int | None:
        """The largest number of runs; ``None`` for all that there are."""

    @property
    def may_be_fewer(self) -> bool:
        """Whether some runs may suffice before the largest number is reached."""

    def is_enough(self, throughputs: Sequence[float]) -> bool:
        """Whether runs with these throughputs, in the order in which they were run, suffice."""


@final
@dataclass(frozen=True, slots=True)
class FixedRepeats:
    """A fixed number of runs; ``None`` for all that there are."""

    at_most: int | None

    @property
    def may_be_fewer(self) -> bool:
        """They may not."""
        return False

    def is_enough(self, throughputs: Sequence[float]) -> bool:
        """Whether the number is reached."""
        return self.at_most is not None and len(throughputs) >= self.at_most
