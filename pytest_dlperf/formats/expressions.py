"""Regular expressions that users declare for lines of a log.

They run on Python's engine, which may try for ever where what is repeated repeats itself: such an
expression is refused when it is declared. Reading a log has a limit of time for any other.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from functools import cache, cached_property, lru_cache
from itertools import chain
from typing import Final

from msgspec import Struct

_CHARACTER: Final = re.compile(r"[^.^$*+?{}\[\]()|\\]|\\[^a-zA-Z0-9]", re.DOTALL)
_SEEN_LATE: Final = re.compile(r"\(\?[(aiLmsux-]")
"""Flags and conditions, with which no text is easily seen."""

TOKENS: Final = re.compile(
    r"\\[1-9][0-9]*|\\x[0-9a-fA-F]{2}|\\0[0-7]{0,2}|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]"
    r"|\(\?(?:P[=<]|<?[=!]|[(#>:]|[a-zA-Z-]+)?"
    r"|\{[0-9]*,?[0-9]*\}[+?]?|[*+?][+?]?|.",
    re.DOTALL,
)
_UNBOUNDED: Final = re.compile(r"[*+].?|\{[0-9]*,\}.?")
_MARKS: Final = (
    rb"(?: {0,9}[0-9]{1,6}: "  # srun --label
    rb"|(?:\w{3} \w{3} {1,2}[0-9]{1,2} [0-9:]{8} [0-9]{4})?"  # mpirun
    rb"\[[0-9]{1,5},[0-9]{1,6}\]<std\w{3}>: ?"
    rb"|\[[A-Za-z_]{1,20}[0-9]{1,6}\]: ?"  # torchrun
    rb"|\xef\xbb\xbf"  # a file that was joined to another
    rb"|\(\w{1,60} (?:rank=[0-9]{1,6}, )?pid=[0-9]{1,10}(?:, ip=[0-9a-f.:]{1,40})?\) "  # Ray
    rb"|[^|\n]{0,200}[0-9]%\|[^|\n]{0,400}\| {0,9}[0-9.kMG]{1,15}/[0-9.kMG?]{1,15} "
    rb"\[[^\]\n]{0,200}\] ?)+"  # tqdm
)
"""What launchers and bars print in front of a program's line."""


class Expression(Struct, frozen=True, dict=True):
    """An expression over bytes that is matched on single lines; ``^`` and ``$`` are their ends."""

    pattern: str

    def __hash__(self) -> int:
        return hash(self.pattern)

    @property
    def groupindex(self) -> Mapping[str, int]:
        """The number of each named group."""
        return self._compiled.groupindex

    @cached_property
    def literal(self) -> bytes:
        """A text that stands in each match; to look for it is several times as fast.

        Empty where none is easily seen.
        """
        return max(texts_of(self.pattern), key=len)

    @cached_property
    def _compiled(self) -> re.Pattern[bytes]:
        return re.compile(self.pattern.encode(), re.MULTILINE)

    @cached_property
    def _behind_marks(self) -> re.Pattern[bytes] | None:
        """What finds a line's begin behind the marks that others print in front of it."""
        if not self.pattern.startswith("^"):
            return None
        return re.compile(b"^%b(?:%b)" % (_MARKS, self.pattern[1:].encode()), re.MULTILINE)

    def search(self, text: bytes) -> re.Match[bytes] | None:
        """Find the first match."""
        return next(self.finditer(text), None)

    def finditer(self, text: bytes) -> Iterator[re.Match[bytes]]:
        """Find all matches, one behind the other; without any, those behind marks."""
        found = self._compiled.finditer(text)
        if self._behind_marks is None:
            return found
        first = next(found, None)
        if first is None:
            return self._behind_marks.finditer(text)
        return chain([first], found)

    def may_take(self, group: str, text: bytes) -> bool:
        """Say whether a named group can take a text, as far as it is seen without those around."""
        begin = end = self.pattern.find(f"(?P<{group}>")
        depth = 0
        for token in TOKENS.finditer(self.pattern, begin):
            depth += (token[0][0] == "(") - (token[0] == ")")
            end = token.end()
            if not depth:
                break
        try:
            return re.fullmatch(self.pattern[begin:end].encode(), text) is not None
        except re.error:
            return True


@lru_cache(maxsize=256)
def compiled(expression: str) -> Expression:
    """Check an expression that is matched on single lines; ``^`` and ``$`` are their ends.

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
        raise ValueError(f"{expression!r} is not a regular expression: {error}") from error
    if _nests_repetitions(expression):
        raise ValueError(
            f"{expression!r} repeats a repetition, as in (a+)+, which may take for ever on a long "
            "line; write it without one of them, or with at most so many rounds, as in (a+){1,9}"
        )
    if any(not match[0] for text in (b"", b"ab  1.") for match in pattern.finditer(text)):
        raise ValueError(
            f"{expression!r} matches the empty text; it must name some text of a record"
        )
    return Expression(expression)


def _nests_repetitions(expression: str) -> bool:
    """Say whether a group is repeated without bound that holds a repetition without bound."""
    holds = [False]
    closed = False
    for part in TOKENS.findall(expression):
        if part == ")":
            closed = holds.pop()
            holds[-1] = holds[-1] or closed
            continue
        if _UNBOUNDED.fullmatch(part):
            if closed:
                return True
            holds[-1] = True
        if part[0] == "(":
            holds += [False] * part.count("(")
        closed = False
    return False


@cache
def texts_of(expression: str) -> tuple[bytes, ...]:
    """Find texts that stand in every match, as far as they are easily seen; some may be empty.

    Only what stands outside of groups and classes, and is not optional, is taken.
    """
    if _SEEN_LATE.search(expression):
        return (b"",)
    runs = [""]
    depth = 0
    for part in TOKENS.findall(expression):
        if part == "|" and not depth:
            return (b"",)
        if not depth and _CHARACTER.fullmatch(part):
            runs[-1] += part[-1]
            continue
        depth += (part[0] == "(") - (part == ")")
        if part[0] in "*+?{":
            # Absent, or there any number of times: neither is part of a fixed text.
            runs[-1] = runs[-1][:-1]
        runs.append("")
    return tuple(run.encode() for run in runs)
