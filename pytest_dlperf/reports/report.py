"""The protocol of all reports, those of this package and those of other plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pytest_dlperf.model.results import TestRecord
    from pytest_dlperf.night.night import Night


class Note(Struct, frozen=True):
    """One line for the end of a session; a bad one makes the session fail."""

    text: str
    is_bad: bool = False


class Line(Struct, frozen=True):
    """A line for pytest's terminal and its markup (names that pytest's terminal writer knows).

    Whatever it holds is shown as text, unless ``is_command`` says that a CI's engine is to obey it.
    """

    text: str
    markup: tuple[str, ...] = ()
    is_command: bool = False


class TestStatus(Struct, frozen=True):
    """The status that pytest prints for a test: ``letter`` by default, ``word`` with ``-v``.

    ``category`` is what pytest counts the test as; ``markup`` colours both.
    """

    __test__ = False  # no test, whatever pytest makes of the name

    category: str
    letter: str
    word: str
    markup: tuple[str, ...] = ()


class Report:
    """A report of a session. Override the moments that it takes part in.

    At its end there is one ``Night`` for all reports: the results, and the session in words. The
    methods are called in the order in which they stand here, on xdist's controller only.
    Import what is expensive inside them: a session that ends early never needs it.
    """

    name: str = "report"
    """What messages call the report: ``the <name> could not be written``."""
    needs_tests: bool = True
    """Whether there is nothing to write where no test of a case ran."""
    is_required: bool = True
    """Whether the session fails if the report cannot be written."""

    def status(self, record: TestRecord, given: TestStatus) -> TestStatus:
        """Return what pytest prints for a test of a case; ``given`` is what it would print."""
        del record
        return given

    def properties(self, record: TestRecord) -> Iterable[tuple[str, str]]:
        """Return names and values for the test's ``user_properties``, which JUnit's file has."""
        del record
        return ()

    def write(self, night: Night) -> Iterable[Note]:
        """Write the report at the session's end, and return what to tell of it.

        Raises:
            OSError: It cannot be written. This is told; the other reports are written.
        """
        del night
        return ()

    def summary(self, night: Night, notes: Sequence[Note]) -> Iterable[Line]:
        """Return lines for the terminal's summary; ``notes`` are those of all reports."""
        del night, notes
        return ()


class FileReport(Report):
    """A report that is one file or folder, named by the user: written even if no test ran."""

    needs_tests = False

    def __init__(self, place: Path) -> None:
        """Take the file or folder that the user named."""
        self.place = place

    def text(self, night: Night) -> str:
        """Return what the file holds; a report that is more than a text overrides ``save``."""
        raise NotImplementedError

    def save(self, night: Night) -> None:
        """Write ``self.place``, and make the folders above it."""
        from pytest_dlperf.files.writing import write_whole

        write_whole(self.place, self.text(night))

    def write(self, night: Night) -> Iterable[Note]:
        """Write the file, and say where it is and whether its folder is new."""
        is_new = not self.place.parent.exists()
        self.save(night)
        if not self.place.exists():
            return [Note(f"no {self.name}: nothing was measured")]
        return [Note(f"{self.name}: {self.place}{', in a new folder' if is_new else ''}")]
