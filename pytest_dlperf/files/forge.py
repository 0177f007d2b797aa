"""The page that a forge has of a commit: GitHub, GitLab, Gitea, Forgejo and their kin."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from pytest_dlperf.files.environment import git

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

# Who is asked stands before an @, a password too: neither gets into a link.
_REMOTE: Final = re.compile(
    r"(?:(?:https?|ssh|git)://(?:[^@/]+@)?(?P<host>[\w.-]+)(?::\d+)?/|(?:[^@/:]+@)?(?P<ssh>[\w.-]+):)"
    r"(?P<path>[\w.~/-]+?)(?:\.git)?/?",
    re.ASCII,
)
_SERVER: Final = re.compile(r"(?P<scheme>https?)://(?P<host>[\w.-]+)(?P<port>:\d+)?/?", re.ASCII)
_COMMIT: Final = re.compile(r"([0-9a-f]{7,64})(?:\+changes)?", re.ASCII)
_PUBLIC: Final = {
    "github.com": "commit",
    "codeberg.org": "commit",
    "gitea.com": "commit",
    "gitlab.com": "-/commit",
    "bitbucket.org": "commits",
}
"""Where forges that everybody knows have the pages of a repository's commits."""


def describe_commit_page(
    folder: Path, commit: str | None, environment: Mapping[str, str] = os.environ
) -> str | None:
    """Give the address of a commit's page, where the folder's remote or the CI tells it."""
    found = _COMMIT.fullmatch(commit or "")
    if found is None:
        return None
    servers = {host: (base, pages) for host, base, pages in _servers(environment)}
    remote = _REMOTE.fullmatch(git(folder, "remote", "get-url", "origin"))
    if remote is None:
        return None
    host = remote["host"] or remote["ssh"]
    base, pages = servers.get(host, (f"https://{host}", _PUBLIC.get(host)))
    return f"{base}/{remote['path'].strip('/')}/{pages}/{found[1]}" if pages else None


def _servers(environment: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield the forge that this CI belongs to: host, address, and where its commits' pages are."""
    # Gitea's and Forgejo's runners set GitHub's variables, and have its addresses.
    for name, pages in (("GITHUB_SERVER_URL", "commit"), ("CI_SERVER_URL", "-/commit")):
        found = _SERVER.fullmatch(environment.get(name, ""))
        if found is not None:
            yield found["host"], found[0].rstrip("/"), pages
