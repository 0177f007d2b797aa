"""What a forge has of checkouts: pages of commits and of what lies between two."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Final

from pytest_dlperf.files.ci import ENGINES
from pytest_dlperf.files.environment import git
from pytest_dlperf.model.commits import Checkout, Commit, Repository

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# User and password stand before an @: neither gets into a link.
_REMOTE: Final = re.compile(
    r"(?:(?:https?|ssh|git)://(?:[^@/]+@)?(?P<host>[\w.-]+)(?::\d+)?/|(?:[^@/:]+@)?(?P<ssh>[\w.-]+):)"
    r"(?P<path>[\w.~/-]+?)(?:\.git)?/?",
    re.ASCII,
)
_SERVER: Final = re.compile(r"https?://(?P<host>[\w.-]+)(?::\d+)?/?", re.ASCII)
_COMMIT: Final = re.compile(r"([0-9a-f]{7,64})(?:\+changes)?", re.ASCII)
_PUBLIC_FORGES: Final = {
    "github.com": "commit",
    "codeberg.org": "commit",
    "gitea.com": "commit",
    "gitlab.com": "-/commit",
    "bitbucket.org": "commits",
}
"""Path of the commits' pages below a repository's own."""


def describe_commit_page(
    folder: Path, commit: str | None, environment: Mapping[str, str] = os.environ
) -> str | None:
    """Return the address of a commit's page, if the forge of the folder's remote is known."""
    found = _COMMIT.fullmatch(commit or "")
    if found is None:
        return None
    repository = repository_at(git(folder, "remote", "get-url", "origin"), environment)
    return None if repository is None else repository.commit(found[1])


def repository_at(
    remote: str | None, environment: Mapping[str, str] = os.environ
) -> Repository | None:
    """Return the repository that a remote's address leads to, if its forge is known."""
    found = _REMOTE.fullmatch(remote or "")
    if found is None:
        return None
    host = found["host"] or found["ssh"]
    base, commits = f"https://{host}", _PUBLIC_FORGES.get(host)
    for forge in filter(None, (engine.forge for engine in ENGINES)):
        server = _SERVER.fullmatch(environment.get(forge.server, ""))
        if server is not None and server["host"] == host:
            base, commits = server[0].rstrip("/"), forge.commits
    if commits is None:
        return None
    return Repository(address=f"{base}/{found['path'].strip('/')}", commits=commits)


def described(found: Mapping[str, Any]) -> Checkout:
    """Describe a checkout by what was found where it lies (``node.checkouts``)."""
    repository = repository_at(found.get("origin"))
    return Checkout(
        commits=tuple(
            Commit(
                name=name,
                at=at,
                author=author,
                title=title,
                address=None if repository is None else repository.commit(name),
            )
            for name, at, author, title in found.get("commits", ())
        ),
        repository=repository,
    )
