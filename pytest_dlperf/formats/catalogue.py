"""Other people's trainers: how their lines look, and what the numbers on them are of.

The trainers are data, ``catalogue/trainers.yaml``, which is read when a log is first surveyed.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from pytest_dlperf.files.yamlfile import YamlValue, load
from pytest_dlperf.model.work import Covers, RateScope, Timing

FILE: Final = Path(__file__).parent.parent / "catalogue" / "trainers.yaml"


class Reading(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A way to take a printed number: by which group, and what it covers where that counts."""

    timing: Timing
    covers: Covers | None = None
    rate_scope: RateScope | None = None


class Number(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A number on the line of a step that is easily taken for something else."""

    pattern: str
    """Finds it within the line, as its last group."""
    meaning: str
    """What it is."""
    instead: str
    """What to take, so that the time of a step is right."""
    readings: tuple[Reading, ...] = ()
    """The meanings in which it gives the time of steps; empty if in none."""
    one_step_is_fine: bool = False
    """Whether nothing is against it where every step is printed."""
    single_node_is_fine: bool = False
    """Whether nothing is against it where one node trains."""


class Trainer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A trainer whose log is known."""

    name: str
    """Behind "a log of"."""
    literals: tuple[str, ...]
    """Fixed texts, one of which stands in each match of ``pattern``."""
    pattern: str
    names_the_log: bool = True
    """Whether a match tells whose log it is; else only what the numbers on its line are."""
    format: str = ""
    """The shipped format that reads it, if one does."""
    numbers: tuple[Number, ...] = ()
    system: str = ""
    """The system that ships for it; it reads these lines, or has the trainer print others."""
    own_format: dict[str, Any] = {}
    """What to write as ``log.format`` of a system, where none ships that reads these lines."""
    advice: str = ""
    """What else to know before its numbers are believed."""


@cache
def known_trainers() -> tuple[Trainer, ...]:
    """Read the catalogue, in which the order counts: the first trainer that fits is taken.

    Raises:
        YamlError: The file has a mistake.
    """
    return read_trainers(FILE)


def read_trainers(file: Path) -> tuple[Trainer, ...]:
    """Read a file of trainers.

    Raises:
        YamlError: The file has a mistake; the first is named, with its line.
    """
    return load(file, _read)


def _read(root: YamlValue) -> tuple[Trainer, ...] | None:
    try:
        return msgspec.convert(root.plain(), tuple[Trainer, ...])
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$")
        root.at(path.rstrip("`")).fault(message)
        return None
