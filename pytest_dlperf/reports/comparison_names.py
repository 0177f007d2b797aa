"""What the two sides of a comparison are called, and what each of them is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_dlperf.reports import comparison as words
from pytest_dlperf.reports import numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_dlperf.model.results import Results
    from pytest_dlperf.results.comparison import Comparison

LONGEST: Final = 40
"""Columns that a name may take; that of a file is cut."""

_OF_ENVIRONMENT: Final = (("commit", "commit"), ("CI run", "ci_run"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SideName:
    """One side: its letter, what it is called, and the file that it was read from.

    ``label`` is one printable line of ``LONGEST`` columns at most.
    """

    letter: str
    label: str
    file: str

    @property
    def heading(self) -> str:
        """What stands above the numbers of this side: ``A: torch 2.12``."""
        return f"{self.letter}: {self.label}"

    @property
    def in_words(self) -> str:
        """The side within a sentence: ``torch 2.12 (A)``."""
        return f"{self.label} ({self.letter})"


Names = tuple[SideName, SideName]


def side_names(files: Sequence[str], labels: Sequence[str | None]) -> Names:
    """The names of A and B; without a label the file's name, or its path where both have one."""
    short = [Path(file).name for file in files]
    usual = files if short[0] == short[1] else short
    first, second = (
        SideName(
            letter=letter,
            label=numbers.cut(numbers.printable(label or other), LONGEST),
            file=numbers.printable(file),
        )
        for letter, file, label, other in zip("AB", files, labels, usual, strict=True)
    )
    return first, second


def title(names: Names) -> str:
    """``torch 2.13 (B) compared with torch 2.12 (A)``."""
    return f"{names[1].in_words} compared with {names[0].in_words}"


def known_facts(comparison: Comparison, names: Names) -> list[tuple[str, str, str]]:
    """What each session is: the fact's name, that of A, that of B. What neither has is left out."""
    first, second = (
        _facts(side, name)
        for side, name in zip((comparison.first, comparison.second), names, strict=True)
    )
    return [
        (name, words.known(first[name]), words.known(second[name]))
        for name in first
        if first[name] is not None or second[name] is not None
    ]


def origin(results: Results) -> list[tuple[str, str]]:
    """Commit and CI run of a session, where its results have them."""
    found = [(name, results.environment.get(key)) for name, key in _OF_ENVIRONMENT]
    return [(name, value) for name, value in found if isinstance(value, str) and value]


def _facts(side: Results, name: SideName) -> dict[str, str | None]:
    origins = dict(origin(side))
    return {
        "file": name.file,
        "cluster": side.cluster,
        "started": words.started(side),
        "estimator": side.estimator.value,
        "session": side.session,
        **{fact: origins.get(fact) for fact, _ in _OF_ENVIRONMENT},
    }
