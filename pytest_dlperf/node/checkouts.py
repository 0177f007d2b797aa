"""Tells what code a trainer runs from: commits of checkouts, and the content of other folders."""

import hashlib
import os

from pytest_dlperf.node.host_tools import output

TYPE_CHECKING = False  # typing's own would cost its import
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

CONTENT = "content "
"""Stands before a digest of files that are in no checkout."""

_GIT = (
    "env",
    "-u",
    "GIT_DIR",
    "-u",
    "GIT_WORK_TREE",
    "git",
    # It only looks, also at the index: a user may work there.
    "--no-optional-locks",
    "-C",
)  # a hook of another checkout sets these variables
_LAST_COMMITS = 60
_FORMAT = "%h%x1f%aI%x1f%an%x1f%s"
_LONGEST = 300
"""Characters of an author's name or a title."""

_CODE = (".py", ".sh", ".yaml", ".yml", ".toml", ".cu", ".cuh", ".c", ".cc", ".cpp", ".h", ".hpp")
_MAX_ENTRIES = 4000
_MAX_BYTES = 20_000_000


def find_checkouts(paths: "Mapping[str, str]", found: "dict[str, dict[str, Any]]") -> None:
    """Find what the folders and files at these paths are of, by their names.

    ``commit`` has ``+changes`` where some files differ; in no checkout it is a digest of the code.
    ``commits`` are the last ones of its first parents, the last one first: digits, time of the
    author, name, title. ``origin`` is the address that it was cloned from.
    """
    for name, path in paths.items():
        folder = path if os.path.isdir(path) else os.path.dirname(path)  # noqa: PTH112, PTH120
        git = (*_GIT, folder)
        head = output(*git, "rev-parse", "--short=12", "HEAD")
        if head is None:
            # A Git that gives no answer has not said that there is no checkout.
            digest = None if _is_in_checkout(folder) else _digest(path)
            if digest is not None:
                found[name] = {"commit": CONTENT + digest}
        elif head and path == folder:
            changed = output(*git, "status", "--porcelain", "--untracked-files=no")
            lines = output(
                *git, "log", f"-{_LAST_COMMITS}", "--first-parent", "--abbrev=12",
                "--format=" + _FORMAT,
            )  # fmt: skip
            origin = output(*git, "remote", "get-url", "origin")
            found[name] = {
                "commit": head[0] + ("+changes" if changed else ""),
                "commits": [
                    [part[:_LONGEST] for part in line.split("\x1f", 3)]
                    for line in lines or ()
                    if line.count("\x1f") >= 3  # noqa: PLR2004 - of four parts
                ],
                "origin": origin[0] if origin else None,
            }


def _is_in_checkout(folder: str) -> bool:
    while True:
        if os.path.exists(os.path.join(folder, ".git")):  # noqa: PTH110, PTH118 - no pathlib
            return True
        above = os.path.dirname(folder)  # noqa: PTH120 - as above
        if above == folder:
            return False
        folder = above


def _digest(path: str) -> "str | None":
    """Digest the names and contents of code; ``None`` without any, and where it is too much."""
    digest, left, entries, is_empty = hashlib.sha256(), _MAX_BYTES, 0, True
    try:
        for file in _files(path):
            entries += 1
            if entries > _MAX_ENTRIES:
                return None
            if not file.endswith(_CODE) and file != path:
                continue
            with open(file, "rb") as opened:  # noqa: PTH123 - no pathlib
                content = opened.read(left + 1)
            left -= len(content)
            if left < 0:
                return None
            name = os.path.relpath(file, path)
            digest.update(f"{name}\0{len(content)}\0".encode("utf-8", "surrogateescape"))
            digest.update(content)
            is_empty = False
    except OSError:
        return None
    return None if is_empty else digest.hexdigest()[:12]


def _files(path: str) -> "Iterator[str]":
    """Yield a file, or those of a folder in order; not what tools leave there."""
    if os.path.isfile(path):  # noqa: PTH113 - no pathlib
        yield path
    for folder, folders, files in os.walk(path):
        folders[:] = sorted(one for one in folders if one[0] != "." and one != "__pycache__")
        for name in sorted(files):
            yield os.path.join(folder, name)  # noqa: PTH118 - as above
