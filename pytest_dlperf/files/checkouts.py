"""Checkouts of Git: commits, and the pages that a forge has of them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pytest_dlperf.files.ci import ENGINES
from pytest_dlperf.model.commits import Checkout, Commit, Repository

# User and password stand before an @: neither gets into a link.
_REMOTE: Final = re.compile(
    r"(?:(?:https?|ssh|git)://(?:[^@/]+@)?(?P<host>[\w.-]+)(?::\d+)?/|(?:[^@/:]+@)?(?P<ssh>[\w.-]+):)"
    r"(?P<path>[\w.~/-]+?)(?:\.git)?/?",
    re.ASCII,
)
_SERVER: Final = re.compile(r"https?://(?P<host>[\w.-]+)(?::\d+)?/?", re.ASCII)
_PUBLIC_FORGES: Final = {
    "github.com": "commit",
    "codeberg.org": "commit",
    "gitea.com": "commit",
    "gitlab.com": "-/commit",
    "bitbucket.org": "commits",
}
"""Path of the commits' pages below a repository's own."""


def git(folder: Path, *arguments: str) -> str:
    """Run a command of Git in a folder and return its output, empty if it fails."""
    try:
        done = subprocess.run(  # noqa: S603 - git itself, with our own words
            ["git", "-C", str(folder), *arguments],  # noqa: S607 - the user's git
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def repository_at(
    remote: str | None, environment: Mapping[str, str] = os.environ
) -> Repository | None:
    """Return the repository that a remote's address leads to, if its forge is known."""
    match = _REMOTE.fullmatch(remote or "")
    if match is None:
        return None
    host = match["host"] or match["ssh"]
    base, commits = f"https://{host}", _PUBLIC_FORGES.get(host)
    for forge in filter(None, (engine.forge for engine in ENGINES)):
        server = _SERVER.fullmatch(environment.get(forge.server, ""))
        if server is not None and server["host"] == host:
            base, commits = server[0].rstrip("/"), forge.commits
    if commits is None:
        return None
    return Repository(address=f"{base}/{match['path'].strip('/')}", commits=commits)


def described(report: Mapping[str, Any]) -> Checkout:
    """Describe a checkout by what was found where it lies (``node.checkouts``)."""
    repository = repository_at(report.get("origin"))
    return Checkout(
        commits=tuple(
            Commit(
                name=name,
                at=at,
                author=author,
                title=title,
                address=None if repository is None else repository.commit(name),
            )
            for name, at, author, title in report.get("commits", ())
        ),
        repository=repository,
        folder=report.get("folder", ""),
    )
