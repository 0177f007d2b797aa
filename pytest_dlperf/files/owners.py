"""Who owns a file, by the ``CODEOWNERS`` of its checkout."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from pytest_dlperf.files.environment import git

_PLACES: Final = (".github", ".gitlab", ".gitea", ".", "docs")
"""Folders in which forges look for the file; the first that is there counts."""
_LARGEST: Final = 3_000_000
"""Bytes; GitHub reads no file that is larger."""


def owners_of(file: Path) -> tuple[str, ...]:
    """Return the owners of a file; none outside a Git checkout.

    As for forges, the last pattern that matches counts, and one without owners takes them away.
    """
    top = git(file.parent, "rev-parse", "--show-toplevel")
    if not top:
        return ()
    root = Path(top)
    try:
        path = file.resolve().relative_to(root.resolve()).as_posix()
    except ValueError:
        return ()
    return next((names for rule, names in reversed(_rules(root)) if rule.fullmatch(path)), ())


def _rules(root: Path) -> list[tuple[re.Pattern[str], tuple[str, ...]]]:
    for place in _PLACES:
        try:
            with (root / place / "CODEOWNERS").open(encoding="utf-8", errors="replace") as opened:
                lines = opened.read(_LARGEST).splitlines()
        except OSError:
            continue
        # GitLab's sections begin with a bracket.
        parts = [re.split(r"\s#|^#", line)[0].split() for line in lines]
        return [
            (_pattern(first), tuple(owners))
            for first, *owners in filter(None, parts)
            if not first.startswith(("[", "^["))
        ]
    return []


def _pattern(glob: str) -> re.Pattern[str]:
    """Translate a pattern, which has the form of ``.gitignore``'s."""
    is_anchored = "/" in glob.rstrip("/")
    body = glob.strip("/")
    pieces = {"**/": "(?:.*/)?", "/**": "/.*", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    text = "".join(
        pieces.get(part, re.escape(part)) for part in re.split(r"(\*\*/|/\*\*|\*\*|\*|\?)", body)
    )
    below = (
        "/.*" if glob.endswith("/") else "" if glob.endswith("*") and is_anchored else "(?:/.*)?"
    )
    return re.compile(("" if is_anchored else "(?:.*/)?") + text + below)
