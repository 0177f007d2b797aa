"""Plain text: names and texts of users, hosts and logs made safe, and laid out to a width."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final

from pytest_dlperf.model.numbers import ABSENT

# What the engine of a CI obeys in what is printed: GitHub, Gitea and Forgejo a line that begins
# with two colons, whatever blanks stand before them; GitHub, Azure Pipelines and TeamCity
# ``##[error]``, ``##vso[…]`` and ``##teamcity[…]`` anywhere in a line; Buildkite a line that begins
# a group. What others obey, GitLab's sections and Jenkins' notes, begins with a control character.
_OBEYED: Final = re.compile(
    r"^([^\S\n]*)(?=::)|(?<=#)(?=#[A-Za-z]{0,20}\[)|^(?=(?:---|\+\+\+|~~~|\^\^\^)[^\S\n])",
    re.MULTILINE,
)

_LOG_ENDS: Final = re.compile(r"; the log of node \d+, (.*), ends with:$")
"""What announces the last lines of a log."""
_ENDED: Final = " ended with "
_FEW: Final = 5
_MAIL_ADDRESS: Final = re.compile(r"\s*<[^<>]*>\s*$")
# In HTML and Markdown, nothing in it ends a link, or stands in for another address.
_ADDRESS: Final = re.compile(r"https?://[A-Za-z0-9._~:/?#@!$&'*+,;=%-]+")
_LONGEST_NAME: Final = 60
_LONGEST_REASON: Final = 200


def in_short(reason: str) -> str:
    """Write a reason in one line: of the end of a log, which stands below it, the last line.

    That says most, and comes right behind how the program ended; of a run that hung, the last
    steps say more.
    """
    head, *below = reason.split("\n")
    if not below:
        return printable(head)
    log = _LOG_ENDS.search(head)
    if log is None:
        shown = below if head.endswith(":") and len(below) <= _FEW else below[-1:]
        return printable(f"{head} {'; '.join(line.strip() for line in shown)}")
    how, _, more = head[: log.start()].partition("; ")
    last = below[-1].strip()
    parts = (f"{how}: {last}", more) if _ENDED in how else (how, more, last)
    return printable("; ".join(filter(None, (*parts, f"log {log[1]}"))))


def in_full(reason: str) -> str:
    """Write a reason as it is, the lines below the first one indented."""
    head, *below = plain(reason).split("\n")
    return "\n".join([head, *(f"    {line}" for line in below)])


def person(by: str | None) -> str:
    """Name who accepted a number; the address that Git has stays in the file."""
    if by is None:
        return ABSENT
    return cut(printable(_MAIL_ADDRESS.sub("", by).strip() or by), _LONGEST_NAME)


def reason(why: str) -> str:
    """Write why a number was accepted, cut where that is long."""
    # Unlike of a log, the first lines count.
    return cut(printable(" ".join(why.split())), _LONGEST_REASON)


def address(text: str | None) -> str | None:
    """Return a text that is nothing but an address, and may become a link; ``None`` else."""
    return text if text is not None and _ADDRESS.fullmatch(text) else None


def printable(text: str) -> str:
    """Make text of users, hosts and logs safe for one line of a terminal and of a CI's log."""
    if not text.isprintable():
        text = "".join(
            character
            if character.isprintable()
            else character.encode("unicode_escape").decode("ascii")
            for character in text
        )
    return inert(text)


def plain(text: str) -> str:
    """Make text of several lines as safe; the lines stay."""
    return "\n".join(map(printable, text.split("\n")))


def inert(text: str) -> str:
    """Escape what the engine of a CI would obey as a command: ``::error::…``, ``##vso[…]…``."""
    return _OBEYED.sub(lambda match: f"{match[1] or ''}\\", text)


def columns(text: str) -> int:
    """Count the columns of a terminal that a text takes: some characters take two or none."""
    if text.isascii():
        return len(text)
    return sum(map(_character_columns, text))


def _character_columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "FW" else 1


def cut(text: str, room: int) -> str:
    """Cut a printable text to its beginning, with dots where it does not fit."""
    if columns(text) <= room:
        return text
    room -= len("...")
    kept = ""
    for character in text:
        room -= _character_columns(character)
        if room < 0:
            break
        kept += character
    return f"{kept.rstrip()}..."


# -------------------------------------------------------------------- tables and lines

GAP: Final = "  "
"""What stands between two columns."""

_NO_BREAK: Final = "\N{NO-BREAK SPACE}%"


def padded(
    rows: Iterable[Sequence[str]], align: str, *, min_width: int = 0, max_width: int | None = None
) -> list[list[str]]:
    """Fill the cells of each column up to the same width, within bounds.

    ``align`` has an ``l`` or an ``r`` for each column; its last letter holds for all that follow.
    """
    rows = list(rows)
    widths = [max(min_width, *map(columns, column)) for column in zip(*rows, strict=True)]
    if max_width is not None:
        widths = [min(width, max_width) for width in widths]
    sides = align.ljust(len(widths), align[-1])
    return [list(map(_filled, row, widths, sides)) for row in rows]


def _filled(cell: str, width: int, side: str) -> str:
    blanks = " " * (width - columns(cell))
    return blanks + cell if side == "r" else cell + blanks


def aligned(rows: Iterable[Sequence[str]], align: str) -> list[str]:
    """Return one line for each row; see ``padded``."""
    return [GAP.join(row).rstrip() for row in padded(rows, align)]


def stacked(
    rows: Sequence[Sequence[str]], align: str, *, names: int, width: int
) -> list[tuple[str, ...]]:
    """Return the lines of each row: one, or where the table is wider than ``width`` two.

    Of two lines the first has the cells of the first ``names`` columns, and is left out if these
    are empty.
    """
    whole = aligned(rows, align)
    if max(map(columns, whole)) <= width:
        return [(line,) for line in whole]
    heads = aligned([row[:names] for row in rows], align)
    rest = aligned([row[names:] for row in rows], align[names:] or align[-1])
    return [
        (head, GAP + line) if head else (GAP + line,)
        for head, line in zip(heads, rest, strict=True)
    ]


def wrapped(text: str, width: int, *, indent: int = 0) -> list[str]:
    """Break a text between words; lines after the first are indented.

    Options stay whole, a percentage stays with its sign, and no line is a command to what runs
    the session.
    """
    lines = _wrapped(text, width, indent)
    safe = list(map(inert, lines))
    # Where a line broke, its rest may begin as no line may; the backslash takes a column.
    return safe if safe == lines else list(map(inert, _wrapped(text, width - 1, indent)))


def _wrapped(text: str, width: int, indent: int) -> list[str]:
    lines = textwrap.wrap(
        text.replace(" %", _NO_BREAK),
        width,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_NO_BREAK, " %") for line in lines]
