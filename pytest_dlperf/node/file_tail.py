"""The files that a program writes beside its output: what is new in them."""

import contextlib
import glob
import os
import stat

_LONGEST_LINE = 1 << 20
_MAX_BYTES = 1 << 25


class FileTail:
    """The files of a name, in which ``*`` stands for anything but a slash.

    What a file holds already is of an earlier run; one that gets shorter was written anew.
    """

    def __init__(self, name: str) -> None:
        """Begin at the ends of the files that are there."""
        # Brackets and question marks are what they are.
        self._pattern = glob.escape(name).replace("[*]", "*")
        self._seen = {path: _state(path) for path in glob.glob(self._pattern)}
        self._offsets = {path: size for path, (size, _) in self._seen.items()}

    def take(self) -> bytes:
        """Give some lines that are new and have ended."""
        for path in sorted(glob.glob(self._pattern)):
            size, _ = _state(path)
            offset = self._offsets.get(path, 0)
            if size != offset:
                lines = _lines_at(path, 0 if size < offset else offset)
                self._offsets[path] = (0 if size < offset else offset) + len(lines)
                if lines:
                    return lines
        return b""

    def whole(self) -> bytes:
        """Give all of the files that have changed since the begin, each with its last line's end.

        For when the program has ended: a document that is written as a whole stays in one piece.
        """
        found = b""
        for path in sorted(glob.glob(self._pattern)):
            if _state(path) not in ((0, 0), self._seen.get(path)):
                with contextlib.suppress(OSError), open(path, "rb") as file:
                    text = file.read(_MAX_BYTES)
                    found += text if text.endswith(b"\n") else text + b"\n"
        return found


def _state(path: str) -> "tuple[int, int]":
    """Give size and time of a file's last change; zeros where it is none: a pipe never ends."""
    with contextlib.suppress(OSError):
        status = os.stat(path)
        if stat.S_ISREG(status.st_mode):
            return status.st_size, status.st_mtime_ns
    return 0, 0


def _lines_at(path: str, offset: int) -> bytes:
    with contextlib.suppress(OSError), open(path, "rb") as file:
        file.seek(offset)
        text = file.read(_LONGEST_LINE)
        is_one_line = len(text) == _LONGEST_LINE and b"\n" not in text
        return text if is_one_line else text[: text.rfind(b"\n") + 1]
    return b""
