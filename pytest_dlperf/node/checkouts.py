"""Tells what code a trainer runs from: commits of checkouts."""

from typing import Any

from pytest_dlperf.node.host_tools import output

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
_CHANGES_NAMED = 3


def checkout_at(path: str) -> "dict[str, Any] | None":
    """Find the checkout that a folder lies in.

    Behind a ``+`` the ``commit`` names tracked files that differ from it. ``commits`` are the last
    ones of its first parents, the last one first: digits, time of the author, name, title.
    ``folder`` is its own, and ``origin`` the address that it was cloned from.
    """
    git = (*_GIT, path)
    head = output(*git, "rev-parse", "--show-toplevel", "--short=12", "HEAD")
    if not head:
        return None
    folder, commit = head
    changed = output(*git, "status", "--porcelain", "--untracked-files=no")
    log = (f"-{_LAST_COMMITS}", "--first-parent", "--abbrev=12", "--format=" + _FORMAT)
    commits = [line.split("\x1f", 3) for line in output(*git, "log", *log) or ()]
    origin = output(*git, "remote", "get-url", "origin")
    return {
        "commit": commit + ("+" + _named(changed) if changed else ""),
        "folder": folder,
        "commits": [
            [part[:_LONGEST] for part in parts]
            for parts in commits
            if len(parts) == 4  # noqa: PLR2004 - of four parts
        ],
        "origin": origin[0] if origin else None,
    }


def _named(changed: "list[str]") -> str:
    """Name some of the files that ``git status`` has listed, renamed ones by the new name."""
    names = [line[3:].split(" -> ")[-1].strip('"') for line in changed]
    more = len(names) - _CHANGES_NAMED
    return ", ".join(names[:_CHANGES_NAMED]) + (f" and {more} more" if more > 0 else "")
