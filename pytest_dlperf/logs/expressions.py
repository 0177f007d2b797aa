"""Regular expressions that users declare for lines of a log: checked, and searched for fast."""

from __future__ import annotations

import re
import string
import warnings
from typing import Final

_META: Final = frozenset(".^$*+?{}[]()|")
_REPEATS: Final = frozenset("*+?{")
_LINE_BOUND: Final = re.compile(r"(?:[^\\\[(\n]|\\[dwb]|\\[^\w\s]|\[(?!\^)|\((?!\?)|\(\?(?:P<|:))*")
_FLAGS: Final = re.compile(r"\(\?[aiLmsux-]")


def compiled(expression: str) -> re.Pattern[bytes]:
    """Compile an expression that is matched within single lines; ``^`` and ``$`` are their ends.

    Raises:
        ValueError: It cannot be used; the message says why and begins with the expression.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            pattern = re.compile(expression.encode(), re.MULTILINE)
    except Warning as warning:
        raise ValueError(
            f"{expression!r} will not mean the same everywhere: {warning}"
        ) from warning
    except (re.error, RecursionError, OverflowError, UnicodeEncodeError) as error:
        raise ValueError(f"{expression!r} is no regular expression: {error}") from error
    if pattern.search(b"") is not None:
        raise ValueError(
            f"{expression!r} matches the empty text; it must name some text of a record"
        )
    if re.search(r"(?<!\\)(?:\\\\)*\\A", expression):
        raise ValueError(f"{expression!r}: write ^ for the begin of a line, not \\A")
    return pattern


def literal_of(expression: str) -> bytes:
    """Find the longest text that stands in every match; empty where none is easily seen.

    To look for a text is several times as fast as for an expression. Only what stands outside of
    groups and classes, and is not optional, is taken.
    """
    if "|" in expression or _FLAGS.search(expression):
        return b""
    runs: list[str] = [""]
    position = 0
    while position < len(expression):
        character = expression[position]
        position += 1
        if character == "\\":
            escaped = expression[position : position + 1]
            position += 1
            character = "" if escaped in string.ascii_letters + string.digits else escaped
        elif character == "[":
            position, character = _after_class(expression, position), ""
        elif character == "(":
            position, character = _after_group(expression, position), ""
        elif character in _META:
            if character == "{":
                # Whatever a count says, the one before it may be absent.
                position = expression.find("}", position) + 1 or len(expression)
            character = ""
        if expression[position : position + 1] in _REPEATS and character:
            # Absent, or there any number of times: neither is part of a fixed text.
            character = ""
        if character:
            runs[-1] += character
        else:
            runs.append("")
    return max(runs, key=len).encode()


def may_be(expression: str, group: str, text: bytes) -> bool:
    """Say whether a named group can take a text, as far as it is seen without those around it."""
    begin = expression.find(f"(?P<{group}>")
    end = _after_group(expression, begin + 1)
    try:
        alone = re.compile(expression[begin:end].encode())
    except re.error:
        return True
    return alone.fullmatch(text) is not None


def stays_in_line(expression: str) -> bool:
    """Say whether no match can hold a line's end, as far as it is easily seen."""
    return _LINE_BOUND.fullmatch(expression) is not None


def _after_class(expression: str, position: int) -> int:
    """Find where a class ends that began before ``position``; a bracket may stand first in it."""
    position += expression[position : position + 1] == "^"
    position += expression[position : position + 1] == "]"
    while position < len(expression) and expression[position] != "]":
        position += 2 if expression[position] == "\\" else 1
    return position + 1


def _after_group(expression: str, position: int) -> int:
    """Find where a group ends that began before ``position``."""
    depth = 1
    while depth and position < len(expression):
        character = expression[position]
        position += 1
        if character == "\\":
            position += 1
        elif character == "[":
            position = _after_class(expression, position)
        elif character in "()":
            depth += 1 if character == "(" else -1
    return position
