"""Command lines side by side: which arguments differ, each by its name."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import Final

GIVEN: Final = "given"
"""Stands for the value of an option that takes none."""
_OPTION: Final = re.compile(r"(--?[A-Za-z_][\w.:/-]*)(?:=(.*))?", re.DOTALL)
_NO_VALUE: Final = re.compile(r"--|--?[A-Za-z_].*", re.DOTALL)
_ASSIGNMENT: Final = re.compile(r"([+~]*[A-Za-z_][\w.@/-]*)=(.*)", re.DOTALL)
_PLACE: Final = re.compile(r"program|argument \d+")
_SHELLS: Final = ("sh", "bash", "dash", "zsh")
_SCRIPT_FOLLOWS: Final = re.compile(r"-[a-z]*c")


def side_by_side(
    lines: Sequence[Sequence[str] | None],
) -> Iterator[tuple[str, tuple[str | None, ...]]]:
    """Yield each argument by name, with its value on each line; ``None`` on one that lacks it.

    An option and its value are one, whether a blank or ``=`` stands between them; so are the name
    and value of ``key=value``, and the order of options does not count. What follows an option, and
    is none, is taken for its value, unless some line has the option without one. Positional
    arguments are ``argument 2`` by their place behind the ``program``. A shell's script is taken
    for its words. Lines that are ``None`` are not known.
    Names come in the order of the last known line, then what only others have.
    """
    words = [None if line is None else _words(line) for line in lines]
    switches = {switch for line in words for switch in _switches(line or ())}
    read = [None if line is None else _values(line, switches) for line in words]
    known = [values for values in read if values is not None]
    names = dict.fromkeys(name for values in reversed(known) for name in values)
    # Positional arguments come last.
    for name in sorted(names, key=lambda name: _PLACE.fullmatch(name) is not None):
        each = [values.get(name, []) for values in known]
        common: Counter[str] = Counter()
        if max(map(len, each)) > 1:
            # Given several times: only the values that not all lines have are listed.
            common = Counter(each[0])
            for values in each[1:]:
                common &= Counter(values)
        rest = [[*(Counter((values or {}).get(name, ())) - common).elements()] for values in read]
        yield name, tuple(", ".join(values) if values else None for values in rest)


def _switches(line: Sequence[str]) -> Iterator[str]:
    """Yield the options that stand without a value: they take none on other lines either."""
    for word, following in pairwise((*line, "--")):
        if _OPTION.fullmatch(word) and _NO_VALUE.fullmatch(following):
            yield word


def _values(line: Sequence[str], switches: Collection[str]) -> dict[str, list[str]]:
    """Return the values of each argument, by its name."""
    found: dict[str, list[str]] = {}
    rest, places = list(reversed(line)), 0
    while rest:
        word = rest.pop()
        option, setting = _OPTION.fullmatch(word), _ASSIGNMENT.fullmatch(word)
        if option is not None:
            name, value = option.groups()
            if value is None and name not in switches and rest:
                value = rest.pop()
            inner = _ASSIGNMENT.fullmatch(value or "")
            if inner is not None:  # --env A=1 and the like, by what they set
                name, value = f"{name} {inner[1]}", inner[2]
        elif setting is not None:
            name, value = setting.groups()
        else:
            name, value = f"argument {places}" if places else "program", word
            places += 1
        found.setdefault(name, []).append(GIVEN if value is None else value)
    return found


def _words(line: Sequence[str]) -> list[str]:
    words: list[str] = []
    is_shell = False
    for argument in line:
        if is_shell and _SCRIPT_FOLLOWS.fullmatch(words[-1]):
            try:
                words += shlex.split(argument)
            except ValueError:
                words.append(argument)
        else:
            words.append(argument)
        is_shell |= argument.rpartition("/")[2] in _SHELLS
    return words
