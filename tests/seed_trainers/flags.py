"""Reading a command line so that nothing in it is overlooked."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

_WORDS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


class Flags(ArgumentParser):
    """Options that must be given, by their whole names, and once each; no other is known."""

    def __init__(self) -> None:
        """Begin without any option."""
        super().__init__(allow_abbrev=False, add_help=False)

    def parse(self, arguments: list[str], *, optional: tuple[str, ...] = ()) -> Any:
        """Read the arguments; only ``optional`` ones may be left out."""
        names = [argument.partition("=")[0] for argument in arguments if argument.startswith("-")]
        for name in names:
            # A negative number is a value, not a name.
            if not name[1:].isdigit() and names.count(name) > 1:
                self.error(f"{name} is given twice")
        for action in self._actions:
            if action.option_strings and action.dest not in optional:
                action.required = True
        return self.parse_args(arguments)


def switch(text: str) -> bool:
    """Read ``True`` or ``false``.

    Raises:
        ValueError: The text is neither.
    """
    try:
        return _WORDS[text.lower()]
    except KeyError:
        raise ValueError(text) from None


def expect(what: str, found: object, wanted: object) -> None:
    """Stop where a value is not as it has to be.

    Raises:
        SystemExit: It is not.
    """
    if found != wanted:
        raise SystemExit(f"{what} is {found!r}; it has to be {wanted!r}")


def divided(what: str, number: int, parts: int) -> int:
    """One of equal parts of a number.

    Raises:
        SystemExit: It has no such parts.
    """
    if number % parts:
        raise SystemExit(f"{what} is {number}, which {parts} cannot share")
    return number // parts
