"""A trainer by its log: what tells its lines from others, and what its numbers are of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pytest_dlperf.model.timing import Covers, RateScope, Timing

if TYPE_CHECKING:
    from collections.abc import Mapping

TEXT: Final = rb"[^\n\r\0]{0,400}"
"""What stands between the parts of a record: within a line, and bounded."""
VALUE: Final = rb"([0-9][0-9.,]{0,20})"


@dataclass(frozen=True, slots=True)
class Reading:
    """A way to take a printed number: by which group, and what it covers where that counts."""

    timing: Timing
    covers: Covers | None = None
    scope: RateScope | None = None


TOKENS_PER_DEVICE: Final = (Reading(Timing.TOKENS_PER_SECOND, scope=RateScope.DEVICE),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A number on the line of a step that is easily taken for something else.

    ``pattern`` finds it within the line, as its last group.
    """

    pattern: bytes
    meaning: str
    """What it is."""
    instead: str
    """What to take, so that the time of a step is right."""
    readings: tuple[Reading, ...] = ()
    """As what it may be taken; without any, it tells nothing of the time of steps."""
    one_step_is_fine: bool = False
    """Whether nothing is against it where every step is printed."""
    single_node_is_fine: bool = False
    """Whether nothing is against it where one node trains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainer:
    """A trainer whose log is known.

    In ``pattern`` an ``N`` by itself stands for a number. Every repetition is bounded and within a
    line, so that no text takes more than a moment. Each match holds one of ``literals``.
    """

    name: str
    """Behind "a log of"."""
    literals: tuple[bytes, ...]
    pattern: bytes
    names_the_log: bool = True
    """Whether a match tells whose log it is; else only what the numbers on its line are."""
    format: str = ""
    """The shipped format that reads it, if one does."""
    numbers: tuple[Number, ...] = ()
    system: str = ""
    """The system that ships for it; it reads these lines, or has the trainer print others."""
    own_format: Mapping[str, Any] = field(default_factory=dict)
    """What to write as ``log.format`` of a system, where none ships that reads these lines."""
    advice: str = ""
    """What else to know before its numbers are believed."""
