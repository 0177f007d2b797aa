"""Command lines side by side: which arguments differ, each by its name."""

from __future__ import annotations

import difflib
import re
import shlex
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

GIVEN: Final = "given"
"""Stands for the value of an option that takes none."""

_OPTION: Final = re.compile(r"(--?[A-Za-z_][\w.:/-]*)(?:=(.*))?", re.DOTALL)
_NO_VALUE: Final = re.compile(r"--|--?[A-Za-z_].*", re.DOTALL)
_ASSIGNMENT: Final = re.compile(r"([+~]*[A-Za-z_][\w.@/-]*)=(.*)", re.DOTALL)
_SHELLS: Final = ("sh", "bash", "dash", "zsh")
_SCRIPT_FOLLOWS: Final = re.compile(r"-[a-z]*c")
_NUMBER: Final = re.compile(r"[-+]?[0-9.][0-9.,eE_+-]*")
_MANY_WORDS: Final = 1000
"""With so many words ``difflib`` skips frequent ones: comparing all pairs would take minutes."""


class _Item(NamedTuple):
    """An option or setting with its value, or a positional argument, which has no ``name``.

    ``loose`` is the argument that was taken for the option's value because it follows it.
    """

    name: str
    value: str
    loose: str | None = None

    @property
    def option(self) -> str:
        return self.name.partition(" ")[0]


def side_by_side(
    lines: Sequence[Sequence[str] | None],
) -> Iterator[tuple[str, tuple[str | None, ...]]]:
    """Yield each argument by name, with its value on each line; ``None`` on one that lacks it.

    An option and its value are one, whether a blank or ``=`` stands between them; so are the name
    and value of ``key=value``, and the order of options does not count. Positional arguments are
    ``argument 2`` by their place behind the ``program``. A shell's script is taken for its words.
    Lines that are ``None`` are not known.
    Names come in the order of the last known line, then what only others have.
    """
    known = [index for index, line in enumerate(lines) if line is not None]
    read = _read([_words(lines[index] or ()) for index in known])
    for name, values in (*_named(read), *_placed(read)):
        spread: list[str | None] = [None] * len(lines)
        for index, value in zip(known, values, strict=True):
            spread[index] = value
        yield name, tuple(spread)


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


def _read(lines: Sequence[Sequence[str]]) -> list[list[_Item]]:
    """Split lines into items; which options take a value follows from all lines together."""
    flags: set[str] = set()
    while True:
        read = [list(_items(line, flags)) for line in lines]
        more = set(_flags(lines, read))
        if not more:
            return read
        flags |= more


def _items(line: Sequence[str], flags: Collection[str]) -> Iterator[_Item]:
    rest = list(reversed(line))
    while rest:
        argument = rest.pop()
        option, setting = _OPTION.fullmatch(argument), _ASSIGNMENT.fullmatch(argument)
        if option is None:
            yield _Item("", argument) if setting is None else _Item(setting[1], setting[2])
        elif option[2] is not None:
            yield _valued(option[1], option[2])
        elif option[1] in flags or not rest or _NO_VALUE.fullmatch(rest[-1]):
            yield _Item(option[1], GIVEN)
        else:
            value = rest.pop()
            yield _valued(option[1], value)._replace(loose=value)


def _valued(option: str, value: str) -> _Item:
    """Name ``--env A=1`` and the like by what they set."""
    setting = _ASSIGNMENT.fullmatch(value)
    return _Item(option, value) if setting is None else _Item(f"{option} {setting[1]}", setting[2])


def _flags(lines: Sequence[Sequence[str]], read: Sequence[Sequence[_Item]]) -> Iterator[str]:
    """Yield options that another line has without the value, or whose value it has without them."""
    counts = [Counter(line) for line in lines]
    free = [
        {item.loose or item.value for item in items if item.loose or not item.name}
        for items in read
    ]
    valued = [{item.option for item in items if item.value != GIVEN} for items in read]
    alone = [{item.name for item in items if item.value == GIVEN} for items in read]
    for mine, items in enumerate(read):
        for item in items:
            # A number is the value of something.
            if item.loose is None or _NUMBER.fullmatch(item.loose):
                continue
            if any(
                item.option in alone[other]
                or (
                    item.option not in valued[other]
                    and item.loose in free[other]
                    and counts[mine][item.loose] <= counts[other][item.loose]
                )
                for other in range(len(read))
            ):
                yield item.option


def _named(read: Sequence[Sequence[_Item]]) -> Iterator[tuple[str, tuple[str | None, ...]]]:
    given: list[dict[str, list[str]]] = [{} for _ in read]
    for line, items in zip(given, read, strict=True):
        for item in items:
            line.setdefault(item.name, []).append(item.value)
    for name in dict.fromkeys(name for line in reversed(given) for name in line if name):
        values = [line.get(name, []) for line in given]
        if max(map(len, values)) > 1:
            # Given several times: only the values that not all lines have are listed.
            common = Counter(values[0])
            for one in values[1:]:
                common &= Counter(one)
            values = [_without(one, common) for one in values]
        yield name, tuple(", ".join(one) if one else None for one in values)


def _without(values: Sequence[str], common: Counter[str]) -> list[str]:
    left = common.copy()
    rest = []
    for value in values:
        if left[value]:
            left[value] -= 1
        else:
            rest.append(value)
    return rest


def _placed(read: Sequence[Sequence[_Item]]) -> Iterator[tuple[str, tuple[str | None, ...]]]:
    """Lay positional arguments side by side, along the last line."""
    lines = [[item.value for item in items if not item.name] for items in read]
    if not lines:
        return
    found: dict[tuple[int, int], list[str | None]] = {}
    last = lines[-1]
    for index, line in enumerate(lines):
        is_long = len(last) + len(line) > _MANY_WORDS
        blocks = difflib.SequenceMatcher(None, last, line, autojunk=is_long).get_opcodes()
        for _, at, end, other_at, other_end in blocks:
            for offset, value in enumerate(line[other_at:other_end]):
                # Those for which the last line has no place follow the last that it has.
                place = (at + offset, 0) if at + offset < end else (end - 1, at + offset - end + 1)
                found.setdefault(place, [None] * len(lines))[index] = value
    for place in sorted(found):
        yield f"argument {sum(place)}" if sum(place) else "program", tuple(found[place])
