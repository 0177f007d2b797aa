"""The terminal that pytest prints the progress of a session on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_PROGRESS: Final = {"progress": len(" [100%]"), "times": len(" 99h 59m")}
_EDGE: Final = 1
"""Columns at the right that pytest leaves free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Console:
    """How results of tests are printed.

    ``verbosity`` is that of test cases. ``prints_lines`` says that what stands for a test may be
    a whole line: other reporters than pytest's own count on a letter. ``width`` and ``column`` are
    columns: of the terminal, and where the next text goes. ``progress`` is how many pytest needs
    for its progress, 0 where it shows none.
    """

    verbosity: int
    prints_lines: bool = False
    width: int = 80
    column: int = 0
    progress: int = 0

    @classmethod
    def of(cls, config: Any) -> Console:
        """The console of a session as it is now."""
        verbosity = config.get_verbosity(config.VERBOSITY_TEST_CASES)
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        if reporter is None:
            return cls(verbosity=verbosity)
        writer = config.get_terminal_writer()
        return cls(
            verbosity=verbosity,
            prints_lines=type(reporter).__module__ == "_pytest.terminal",
            width=writer.fullwidth,
            column=writer.width_of_current_line,
            progress=_progress(reporter),
        )

    @property
    def room(self) -> int:
        """Columns that a line of a test may have, so that pytest's progress fits behind it."""
        return self.width - self.progress - _EDGE

    def line(self, text: str) -> str:
        """``text`` as a line of its own, at whose end pytest puts its progress and a line end."""
        begin = "\n" if self.column else ""
        return begin + (text.ljust(self.room) if self.progress else f"{text}\n")


def begin_file(config: Any, node_id: str) -> None:
    """Keep pytest from telling its progress in a line of its own before the tests of a file.

    It does so to end the line of the last file's tests, which has been ended already.
    """
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    place = getattr(reporter, "currentfspath", None)
    if not isinstance(place, Path) or config.get_terminal_writer().width_of_current_line:
        return
    if place != config.rootpath / node_id.partition("::")[0]:
        reporter.currentfspath = None


def _progress(reporter: Any) -> int:
    # Not public; without it lines end where they end, and the progress stands below them.
    shown: str | bool = getattr(reporter, "_show_progress_info", False)
    if shown == "count":
        total = getattr(getattr(reporter, "_session", None), "testscollected", 0)
        return len(f" [{total}/{total}]")
    return _PROGRESS.get(str(shown), 0)
