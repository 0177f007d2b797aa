"""Follows the files that a program writes beside its output: gives what is new in them."""

import contextlib
import glob
import os
import stat
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import BinaryIO

LOOK_S = 0.05
"""Interval between two looks at the files."""

_SEARCH_S = 0.5
_LONGEST_LINE = 1 << 20
_MAX_BYTES = 1 << 25


class FileTail:
    """The files of a name, in which ``*`` stands for anything but a slash.

    What a file holds already is of an earlier run. One that has another first line, as a writer of
    CSV rewrites its file for a further column, is passed over as far as its lines were given, but
    for that first one. One that has fewer lines is another, and is followed from its begin.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._files = {path: _File(path) for path in self._found()}
        for file in self._files.values():
            file.skip()
        self._look_at = self._search_at = 0.0

    def take(self, *, hurry: bool = False) -> bytes:
        """Give some lines that are new and have ended; nothing between two looks."""
        now = time.monotonic()
        if now < self._look_at and not hurry:
            return b""
        if hurry or now >= self._search_at:
            self._search_at = now + _SEARCH_S
            for path in self._found():
                if path not in self._files:
                    self._files[path] = _File(path)
        for file in self._files.values():
            lines = file.take()
            if lines:
                return lines  # the next look is at once: there may be more
        self._look_at = now + LOOK_S
        return b""

    def whole(self) -> bytes:
        """Give all of the files that have changed since the begin, each with its last line's end.

        For when the program has ended: a document that is written as a whole stays in one piece.
        """
        found = b""
        for path in self._found():
            file = self._files.get(path) or _File(path)
            with contextlib.suppress(OSError):
                status = os.stat(path)
                is_new = (status.st_size, status.st_mtime_ns) != file.seen
                if is_new and stat.S_ISREG(status.st_mode):
                    with open(path, "rb") as opened:
                        text = opened.read(_MAX_BYTES)
                    found += text if text.endswith(b"\n") else text + b"\n"
        return found

    def _found(self) -> "list[str]":
        if "*" not in self._name:
            return [self._name]
        # Brackets and question marks are what they are.
        return sorted(glob.glob(glob.escape(self._name).replace("[*]", "*")))


class _File:
    """One file, as far as its lines were given."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.seen = (0, 0)  # size and time of the last change; both are needed
        self._first = b""
        self._offset = 0
        self._count = 0
        self._shorter = (-1, 0)

    def skip(self) -> None:
        """Pass over what it holds."""
        with contextlib.suppress(OSError):
            status = os.stat(self._path)
            if stat.S_ISREG(status.st_mode):
                self.seen = status.st_size, status.st_mtime_ns
                self._offset = status.st_size
                with open(self._path, "rb") as file:
                    self._first = file.readline(_LONGEST_LINE)

    def take(self) -> bytes:
        """Give its next lines that have ended; nothing where it is not there."""
        try:
            status = os.stat(self._path)
            seen = status.st_size, status.st_mtime_ns
            # A pipe could only be waited for.
            if seen == self.seen or not stat.S_ISREG(status.st_mode):
                return b""
            with open(self._path, "rb") as file:
                first = file.readline(_LONGEST_LINE)
                head = b""
                if status.st_size >= self._offset and first.startswith(self._first):
                    file.seek(self._offset)
                elif self._skip_given(file, seen):
                    head = first if self._count and first != self._first else b""
                    self._offset = file.tell()
                else:
                    return b""
                read = file.read(_LONGEST_LINE)
        except OSError:
            return b""
        # Unless there is more than was read, nothing is new until the file changes.
        self.seen = seen if self._offset + len(read) >= status.st_size else (-1, 0)
        lines = read if len(read) == _LONGEST_LINE and b"\n" not in read else _whole_lines(read)
        if first.endswith(b"\n"):
            self._first = first
        self._count += lines.count(b"\n")
        self._offset += len(lines)
        return head + lines

    def _skip_given(self, file: "BinaryIO", seen: "tuple[int, int]") -> bool:
        """Pass over as many lines of a file that was written anew as were given before.

        False where it has fewer and the next look will tell whether it is still being written.
        """
        file.seek(0)
        for _ in range(self._count):
            if not file.readline().endswith(b"\n"):
                if seen != self._shorter:
                    self._shorter = seen
                    return False
                file.seek(0)
                self._count = 0
                break
        return True


def _whole_lines(text: bytes) -> bytes:
    return text[: text.rfind(b"\n") + 1]
