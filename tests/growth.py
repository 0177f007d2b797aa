"""What work costs, counted: a busy or slow machine counts the same, and a clock would not."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

MAX_CALLS: Final = 5_000_000
"""Work that is counted stays far below; what goes on for hours is broken off here."""


def calls_of(work: Callable[[], object]) -> int:
    """Count the functions that some work calls, of Python and of C.

    Raises:
        AssertionError: It calls more than it ever should.
    """
    calls = 0

    def count(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}
        if calls > MAX_CALLS:
            raise AssertionError(f"more than {MAX_CALLS:,} calls")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


def bytes_read() -> int:
    """How many bytes this process has read so far, and its children that have ended."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])
