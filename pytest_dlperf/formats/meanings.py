"""What printed numbers mean: units and names that any trainer may use, and the lines of known ones.

Both are data, read when a log is first surveyed or a declared record first checked:
``numbers.yaml`` and ``trainers.yaml``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from pytest_dlperf.files.yamlfile import load
from pytest_dlperf.formats.log_format import LogFormat
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.work import Covers, RateScope, TimeKind, Timing

FOLDER: Final = Path(__file__).parent
_PLACEHOLDERS: Final = {
    "number": "[0-9]{1,15}",
    "text": r"[^\n\r\0]{0,400}",
    "value": "([0-9](?:[0-9.,]{0,19}[0-9])?)",
}
"""What stands for an expression in the patterns of trainers."""


class Number(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A number on the line of a step that is easily taken for something else."""

    pattern: str
    """Finds it within the line, as its last group."""
    groups: tuple[Timing, ...] = ()
    """The groups by which it gives the time of steps; none if by no group."""
    rate_scopes: tuple[RateScope, ...] = ()
    """The scopes that are right for it, if it is a speed of so much."""
    covers: Covers | None = None
    """What has to be declared for it, if that counts."""
    meaning: str = ""
    instead: str = ""
    """What to take, so that the time of a step is right."""

    @property
    def declared(self) -> str:
        """How a system file declares it."""
        scope = f", rate_scope: {self.rate_scopes[0].value}" if self.rate_scopes else ""
        covers = f", covers: {self.covers.value}" if self.covers is not None else ""
        return f"{self.groups[0].value}{scope}{covers}"

    def is_read_rightly(self, log_format: LogFormat, case: Case | None) -> bool:
        """Say whether a format that takes it for time declares what it is, of a case if known."""
        scope, scopes = log_format.rate_scope, {*self.rate_scopes}
        of = {case.rates_per_run(each) for each in scopes} if case is not None else set[int]()
        return (
            log_format.timing in self.groups
            and self.covers in {None, log_format.covers}
            and (not scopes or scope in scopes or bool(case and case.rates_per_run(scope) in of))
        )


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

    def numbers_on(self, line: bytes) -> Iterator[tuple[tuple[int, int], Number]]:
        """Find its numbers on a line, with the span of each."""
        for number in self.numbers:
            found = compiled_pattern(number.pattern).search(line)
            if found is not None:
                yield found.span(found.re.groups), number

    def number_at(self, line: bytes, begin: int, end: int) -> Number | None:
        """Find its number on a part of a line."""
        numbers = self.numbers_on(line)
        return next((each for span, each in numbers if begin < span[1] and span[0] < end), None)


@cache
def compiled_pattern(pattern: str) -> re.Pattern[bytes]:
    """Compile a pattern of a trainer."""
    return re.compile(_filled(pattern, _PLACEHOLDERS).encode())


def _filled(pattern: str, words: Mapping[str, str]) -> str:
    for word, expression in words.items():
        pattern = pattern.replace(f"{{{word}}}", expression)
    return pattern


@cache
def known_trainers() -> tuple[Trainer, ...]:
    """Read the known trainers, in which the order counts: the first that fits is taken."""
    return load(FOLDER / "trainers.yaml", tuple[Trainer, ...])


def trainers_in(text: bytes) -> Iterator[Trainer]:
    """Find the trainers of whose lines a text holds one."""
    for trainer in known_trainers():
        # To look for a text is several times as fast as for a pattern.
        possible = any(literal.encode() in text for literal in trainer.literals)
        if possible and compiled_pattern(trainer.pattern).search(text) is not None:
            yield trainer


def is_known(line: bytes, begin: int, log_format: LogFormat) -> bool:
    """Say whether a known trainer's number begins there, which a format takes for what it is."""
    case = log_format.case
    return any(
        span[0] == begin and number.is_read_rightly(log_format, case)
        for trainer in trainers_in(line)
        for span, number in trainer.numbers_on(line)
    )


def known_trainer(text: bytes) -> Trainer | None:
    """Find out which known trainer printed a text; ``None`` where nothing tells."""
    return next((each for each in trainers_in(text) if each.names_the_log), None)


# ------------------------------------------------------------------------- units and names


class Meaning(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a number is, by the unit next to it, or by its name."""

    text: str
    """The expression for either."""
    groups: tuple[Timing, ...] = ()
    """The groups that take it."""
    rate_scope: RateScope | None = None
    instead: str = ""
    """What to do, where no group takes it."""


class FactNames(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What trainers call a fact of a case."""

    names: tuple[str, ...] = ()
    """In logs, and as options."""
    options: tuple[str, ...] = ()


class FoundUnit(Struct, frozen=True):
    """A unit next to a number."""

    unit: Meaning
    text: str
    where: str
    """``behind`` or ``before``."""

    @property
    def is_rate(self) -> bool:
        """Whether it is one of speeds."""
        return any(group.kind is TimeKind.RATE for group in self.unit.groups)


_ENDS: Final = r"\)?\]?[\"']?(?: ?\(\w{1,5}\))?[ \t]{0,9}[:=]?[ \t]{0,9}[\"']?$"
_SCOPES: Final = {
    **dict.fromkeys(("node", "host"), RateScope.NODE),
    **dict.fromkeys(("rank", "replica"), RateScope.RANK),
}
_IS_NAME: Final = re.compile(rb"[ _]")
_NUMBER_FOLLOWS: Final = re.compile(rb" {0,3}[:=]? {0,3}[-0-9]")


class Vocabulary(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """Units and names of numbers."""

    words: dict[str, str]
    units: tuple[Meaning, ...]
    names: tuple[Meaning, ...]
    parts: str
    waits: str
    means: str
    facts: dict[str, FactNames]

    def unit(self, before: bytes, behind: bytes) -> FoundUnit | None:
        """Find the unit of a number by the text around it."""
        for unit, pattern, _ in self._units:
            found = pattern.match(behind)
            # In "took 0.5 tokens per second 7,700" it is that of the next number.
            if found is None:
                continue
            if not (_IS_NAME.search(found[1]) and _NUMBER_FOLLOWS.match(behind, found.end())):
                return FoundUnit(unit, found[1].decode(errors="replace"), "behind")
        for unit, _, pattern in self._units:
            if found := pattern.search(before):
                return FoundUnit(unit, found[1].decode(errors="replace"), "before")
        return None

    def part(self, before: bytes, behind: bytes) -> tuple[str, RateScope] | None:
        """Find the part of all devices that a speed is said to be of, and its scope."""
        of_behind, of_before = self._part_patterns
        found = of_behind.match(behind) or of_before.search(before)
        if found is None:
            return None
        part = next(filter(None, found.groups())).decode().lower()
        return part, _SCOPES.get(part, RateScope.DEVICE)

    def name(self, text: str) -> Meaning | None:
        """Find what a number is by its name."""
        return next((name for name, pattern in self._names if pattern.search(text)), None)

    def last_name(self, before: bytes) -> Meaning | None:
        """Find what a number is by the name that ends right in front of it."""
        ends = ((name, pattern.search(before)) for name, pattern in self._last_names)
        return next((name for name, found in ends if found is not None), None)

    def is_part(self, name: str) -> bool:
        """Say whether a name is that of a time or speed that is not of whole steps."""
        return self._searched(self.parts).search(name) is not None

    def options(self, fact: str) -> tuple[str, ...]:
        """Return what options of trainers call a fact, the most telling first."""
        return (*self.facts[fact].names, *self.facts[fact].options)

    def facts_in_logs(self) -> dict[str, str]:
        """Return the expression for what logs call each fact."""
        return {
            fact: "|".join(said.names).replace("_", "[ _-]")
            for fact, said in self.facts.items()
            if said.names
        }

    def wait(self, before: bytes) -> str | None:
        """Return what the text in front of a number calls a wait, for data or the end."""
        found = self._waits.search(before)
        return None if found is None else found[1].decode(errors="replace")

    def is_mean(self, name: str) -> bool:
        """Say whether a name is that of a mean."""
        return self._searched(self.means).search(name) is not None

    def _searched(self, pattern: str) -> re.Pattern[str]:
        return re.compile(_filled(pattern, self.words), re.IGNORECASE)

    @cached_property
    def _units(self) -> list[tuple[Meaning, re.Pattern[bytes], re.Pattern[bytes]]]:
        of = _filled("(?:{per}{part})?", self.words)
        found = []
        for unit in self.units:
            text = _filled(unit.text, self.words)
            behind = rf" ?[\[(]?({text}){of}(?![\w/:=])"
            # Keys have paths, but what follows the slash of "tokens/s" is no unit of its own.
            begin = "(?<![A-Za-z])" if "per" in text or "/" in text else "(?<![A-Za-z/])"
            before = rf"{begin}({text})(?:{of}|[/_]\w{{1,9}})?{_ENDS}"
            found.append((unit, _bytes_of(behind), _bytes_of(before)))
        return found

    @cached_property
    def _waits(self) -> re.Pattern[bytes]:
        return _bytes_of(rf"(?<![A-Za-z])({_filled(self.waits, self.words)})(?:/\w{{1,9}})?{_ENDS}")

    @cached_property
    def _names(self) -> list[tuple[Meaning, re.Pattern[str]]]:
        return [(name, self._searched(name.text)) for name in self.names]

    @cached_property
    def _last_names(self) -> list[tuple[Meaning, re.Pattern[bytes]]]:
        return [
            (name, _bytes_of(rf"(?:{_filled(name.text, self.words)}){_ENDS}"))
            for name in self.names
        ]

    @cached_property
    def _part_patterns(self) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
        """Find a part behind or within a speed's unit: ``tok/s/gpu``, ``tokens per gpu per s``."""
        part = self.words["part"].replace("(?:", "(", 1)
        said = rf"(?:/|[ _-]?per[ _-]){part}"
        rates = (unit.text for unit in self.units if Timing.SAMPLES_PER_SECOND in unit.groups)
        speeds = _filled("|".join((self.units[0].text, *rates)), self.words)
        per_second = _filled("[ _-]?(?:/|per)[ _-]?{second}", self.words)
        behind = rf"(?: ?(?:{speeds}))?{said}(?![\w:=])| ?[a-z]{{1,30}}{said}{per_second}(?!\w)"
        before = rf"{said}(?:{per_second}|/[a-z_]{{1,30}})?{_ENDS}"
        return _bytes_of(behind), _bytes_of(before)


def _bytes_of(pattern: str) -> re.Pattern[bytes]:
    return re.compile(pattern.encode(), re.IGNORECASE)


@cache
def vocabulary() -> Vocabulary:
    """Read the units and names of numbers."""
    return load(FOLDER / "numbers.yaml", Vocabulary)
