"""Something to tell at the end of a session."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Note:
    """One thing to tell; a bad one makes the session fail."""

    text: str
    is_bad: bool = False
