"""What the first bytes of a database say, read without SQLite: whether it can be a history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

APPLICATION_ID: Final = 0x444C_5046
"""Written into the file's head ("DLPF"), so that no other program's database is taken for ours."""

_MAGIC: Final = b"SQLite format 3\x00"
_HEAD: Final = 100
_PROGRAM: Final = slice(68, 72)
_ENTRIES: Final = slice(_HEAD + 3, _HEAD + 5)
"""How many entries the root of the table of all tables has: none in a new database."""


def fault_of(file: Path) -> str | None:
    """Why a file can be no history; ``None`` where that is not seen, or there is none yet."""
    try:
        with file.open("rb") as opened:
            head = opened.read(_ENTRIES.stop)
    except OSError:
        return None  # who opens it as a database is told what the matter is
    if not head:
        return None
    if not head.startswith(_MAGIC) or len(head) < _ENTRIES.stop:
        return "is no database"
    program = int.from_bytes(head[_PROGRAM], "big")
    # Of a database in its first moment all else still stands in its log.
    is_new = not program and not any(head[_ENTRIES])
    return None if is_new or program == APPLICATION_ID else "is a database of another program"
