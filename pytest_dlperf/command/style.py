"""Colours and width of what the command prints; plain text of 80 columns where it is piped."""

from __future__ import annotations

import os
import shutil
import textwrap
from typing import TYPE_CHECKING, Final

from pytest_dlperf.reports import numbers

if TYPE_CHECKING:
    from typing import TextIO

_CODES: Final = {"bold": "1", "red": "31", "green": "32", "yellow": "33"}
_USUAL_WIDTH: Final = 80
_MIN_WIDTH: Final = 40


class Style:
    """How text is written to one stream."""

    def __init__(self, stream: TextIO) -> None:
        """Look whether the stream is a terminal, and what the user says about colours."""
        plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
        self._is_coloured = stream.isatty() and not plain
        # The width of a terminal says nothing of a file; COLUMNS is what the user says.
        usual = (_USUAL_WIDTH, 24)
        width = (
            shutil.get_terminal_size(usual).columns
            if stream.isatty() or os.environ.get("COLUMNS")
            else _USUAL_WIDTH
        )
        self.width = max(width, _MIN_WIDTH)

    def __call__(self, text: str, *markup: str) -> str:
        """Text with its markup (bold, red, green, yellow), as far as the stream shows it."""
        if not self._is_coloured or not markup:
            return text
        return f"\033[{';'.join(_CODES[name] for name in markup)}m{text}\033[0m"


def counted(number: int, what: str) -> str:
    """A number of things: ``1 case``, ``2 cases``."""
    return f"{number} {what}{'s' * (number != 1)}"


def wrapped(text: str, width: int) -> list[str]:
    """Text in lines of so many columns, none of them a command to what runs this.

    The names of options stay whole.
    """
    lines = _wrapped(text, width)
    inert = [numbers.inert(line) for line in lines]
    # Where a line broke, its rest may begin as no line may; the backslash takes a column.
    return inert if inert == lines else [numbers.inert(line) for line in _wrapped(text, width - 1)]


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
