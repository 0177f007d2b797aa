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
from pytest_dlperf.model.errors import UsageError

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
_OF_HOOKS: Final = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")


class GitError(UsageError):
    """A command of Git failed; the message is Git's own."""


def git(folder: Path, *arguments: str, limit_s: float = 10.0) -> str:
    """Run a command of Git in a folder, without hooks, and return its output.

    Raises:
        GitError: It failed, or took too long.
    """
    # What a surrounding command of Git sets is not about this folder.
    environment = {k: v for k, v in os.environ.items() if k not in _OF_HOOKS}
    try:
        done = subprocess.run(  # noqa: S603 - git itself, with our own words
            ["git", "-C", str(folder), "-c", "core.hooksPath=/dev/null", *arguments],  # noqa: S607
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=limit_s,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise GitError(f"git {arguments[0]}: {error}") from error
    if done.returncode:
        words = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise GitError(f"git {arguments[0]}: {words[-1]}")
    return done.stdout.strip("\n")


def git_or_nothing(folder: Path, *arguments: str) -> str:
    """Run a command of Git in a folder and return its output, empty if it fails."""
    try:
        return git(folder, *arguments)
    except GitError:
        return ""


def repository_at(
    remote: str | None, environment: Mapping[str, str] = os.environ
) -> Repository | None:
    """Return the repository that a remote's address leads to, if its forge is known."""
    match = _REMOTE.fullmatch(remote or "")
    if match is None:
        return None
    host = match["host"] or match["ssh"]
    base, commits = f"https://{host}", _PUBLIC_FORGES.get(host)
    for engine in ENGINES:
        server = _SERVER.fullmatch(environment.get(engine.server, ""))
        if server is not None and server["host"] == host:
            base, commits = server[0].rstrip("/"), engine.commits
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
