"""How the command ends: its exit codes, and the end before anything was done."""

from __future__ import annotations

from typing import Final

from pytest_dlperf.model.errors import UsageError

FINE: Final = 0
FAULTS: Final = 1
MISUSE: Final = 2


class MisuseError(UsageError):
    """The command cannot do what was asked for; the message says what to change."""
