"""Follows the files that a program writes beside its output: gives what is new in them."""

import contextlib
import glob
import os
import stat
import time

TYPE_CHECKING = False  # typing's own would cost its import
if TYPE_CHECKING:
    from typing import BinaryIO

LOOK_S = 0.05
"""Interval between two looks at the files."""

_SEARCH_S = 0.5
_AT_ONCE_BYTES = 65536
_LONGEST_LINE = 1 << 20
_KNOWN_AGAIN_BYTES = 64
_MAX_FILES = 64
_MAX_BYTES = 1 << 25


class Followed:
    """The files of a name, in which ``*`` stands for anything but a slash.

    What a file holds already is of an earlier run. One that was written anew, as a writer of CSV
    does for a further column, is passed over as far as its lines were given, but for a new first
    one. One that has fewer lines is another, and is followed from its begin.
    """

    def __init__(self, name: str) -> None:
        """Begin at the ends of the files that are there."""
        self._name = name
        self._files = {path: _File(path) for path in self._found()}
        for file in self._files.values():
            file.skip()
        self._look_at = self._search_at = 0.0

    @property
    def wait_s(self) -> float:
        """Seconds until the next look."""
        return max(self._look_at - time.monotonic(), 0.0)

    def take(self, *, hurry: bool = False) -> bytes:
        """Give some lines that are new and have ended; nothing between two looks."""
        now = time.monotonic()
        if now < self._look_at and not hurry:
            return b""
        if hurry or now >= self._search_at:
            self._search_at = now + _SEARCH_S
            for path in self._found():
                if path not in self._files and len(self._files) < _MAX_FILES:
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
                status = os.stat(path)  # noqa: PTH116 - importing pathlib takes long
                is_new = (status.st_size, status.st_mtime_ns) != file.seen
                if is_new and stat.S_ISREG(status.st_mode):
                    with open(path, "rb") as opened:  # noqa: PTH123 - as above
                        text = opened.read(_MAX_BYTES)
                    found += text if text.endswith(b"\n") else text + b"\n"
        return found

    def _found(self) -> "list[str]":
        if "*" not in self._name:
            return [self._name]
        # Brackets and question marks are what they are.
        return sorted(glob.glob(glob.escape(self._name).replace("[*]", "*")))  # noqa: PTH207 - slow


class _File:
    """One file, as far as its lines were given."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._identity = (0, 0)
        self._seen = (0, 0)  # size and time of the last change; both are needed
        self._given = 0
        self._known = b""  # stands in front of what comes next, unless it was written anew
        self._first = b""
        self._count = 0
        self._shorter = (-1, 0)

    @property
    def seen(self) -> "tuple[int, int]":
        """Size and time of the last change when it was looked at."""
        return self._seen

    def skip(self) -> None:
        """Pass over what it holds."""
        with contextlib.suppress(OSError):
            status = os.stat(self._path)  # noqa: PTH116 - importing pathlib takes long
            if stat.S_ISREG(status.st_mode):
                self._identity = status.st_dev, status.st_ino
                self._seen = status.st_size, status.st_mtime_ns
                with open(self._path, "rb") as file:  # noqa: PTH123 - as above
                    size = status.st_size
                    file.seek(max(size - _KNOWN_AGAIN_BYTES, 0))
                    self._pass_over(file.read(min(size, _KNOWN_AGAIN_BYTES)), size)

    def take(self) -> bytes:
        """Give its next lines that have ended; nothing where it is not there."""
        try:
            status = os.stat(self._path)  # noqa: PTH116 - importing pathlib takes long
            identity = status.st_dev, status.st_ino
            seen = status.st_size, status.st_mtime_ns
            # A pipe could only be waited for.
            if (identity, seen) == (self._identity, self._seen) or not stat.S_ISREG(status.st_mode):
                return b""
            with open(self._path, "rb") as file:  # noqa: PTH123 - as above
                if not self._is_known(file, identity, seen):
                    return b""
                lines, position = self._lines(file)
            # Unless there is more than was read, nothing is new until the file changes.
            self._seen = seen if position >= status.st_size else (-1, 0)
        except OSError:
            return b""
        return lines

    def _is_known(
        self, file: "BinaryIO", identity: "tuple[int, int]", seen: "tuple[int, int]"
    ) -> bool:
        """Find where to go on in a file; false where the next look will tell."""
        file.seek(self._given - len(self._known))
        if identity == self._identity and file.read(len(self._known)) == self._known:
            return True
        file.seek(0)
        for _ in range(self._count):
            if not file.readline().endswith(b"\n"):
                if seen != self._shorter:
                    self._shorter = seen  # it may be about to be written
                    return False
                file.seek(0)
                self._count = 0
                break
        self._identity, self._given, self._known = identity, file.tell(), b""
        return True

    def _lines(self, file: "BinaryIO") -> "tuple[bytes, int]":
        """Read the next lines that have ended, and say up to where the file was read."""
        head = b""
        if not self._known and self._count:
            file.seek(0)
            first = file.readline()
            head = b"" if first == self._first else first
            self._first = first
        file.seek(self._given)
        read = file.read(_AT_ONCE_BYTES)
        end = read.rfind(b"\n") + 1
        if not end:
            read += file.read(_LONGEST_LINE - len(read))
            end = read.rfind(b"\n") + 1
        if not end and len(read) == _LONGEST_LINE:
            end = len(read)
        lines = read[:end]
        position = self._given + len(read)
        if lines and not self._count:
            self._first = lines[: lines.find(b"\n") + 1]
        self._count += lines.count(b"\n")
        self._pass_over(lines, self._given + end)
        return head + lines, position

    def _pass_over(self, read: bytes, given: int) -> None:
        self._known = (self._known + read)[-_KNOWN_AGAIN_BYTES:]
        self._given = given
