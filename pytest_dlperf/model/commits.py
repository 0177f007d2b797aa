"""What Git and a forge tell of commits: authors and titles may be any text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

SUITE: Final = "suite"
"""The name of the commit of the folder that the system files lie in."""
COMMITS_LISTED: Final = 20
"""Commits of one checkout that an explanation has."""

_COMPARE: Final = {
    "commit": "compare/{first}...{last}",
    "-/commit": "-/compare/{first}...{last}",
    "commits": "branches/compare/{last}..{first}",  # Bitbucket's, the new one first
}
"""Path of a comparison, by that of the commits' pages."""


class Repository(Struct, frozen=True, kw_only=True):
    """A repository of a forge that is known: its page, and the path of its commits below."""

    address: str
    commits: str

    def commit(self, name: str) -> str:
        """Return the address of a commit's page."""
        return f"{self.address}/{self.commits}/{name}"

    def compare(self, first: str, last: str) -> str | None:
        """Return the address of what came after ``first``, up to ``last``; ``None`` without one."""
        path = _COMPARE.get(self.commits)
        return path and f"{self.address}/{path.format(first=first, last=last)}"


class Commit(Struct, frozen=True, kw_only=True):
    """A commit."""

    name: str
    """Its first twelve digits."""
    at: str
    author: str
    title: str
    address: str | None = None
    """The address of its page, if that is known."""


class Checkout(Struct, frozen=True, kw_only=True):
    """A checkout, beside the commit that it is at."""

    commits: tuple[Commit, ...] = ()
    """The last ones of its first parents, the last one first."""
    repository: Repository | None = None
    folder: str = ""
    """Where it lies, if that is known."""

    @property
    def name(self) -> str:
        """What people call it: its folder's name."""
        return self.folder.rpartition("/")[2]


class CommitRange(Struct, frozen=True, kw_only=True):
    """The commits of a checkout that came with a change."""

    checkout: str
    """The name of its folder; where that is not known, that of the difference."""
    folder: str = ""
    """Where it lies, unless that is where the system files lie."""
    first: str
    """The commit of the last session before the change, which is not among them."""
    last: str
    """That of the first session with it."""
    commits: tuple[Commit, ...] = ()
    """The last one first, at most ``COMMITS_LISTED``; empty where the checkout does not know
    both ends."""
    count: int | None = None
    """How many there are; ``None`` where that is unknown."""
    compare: str | None = None
    """The address of the forge's view of them."""


def news_of(checkout: str, before: str, after: str) -> str:
    """Say what of a checkout is new: its commit, uncommitted changes, or both."""
    (first, _, gone), (last, _, changed) = (text.partition("+") for text in (before, after))
    parts = [f"a new commit of {checkout}"] if first != last else []
    parts += [f"uncommitted changes in {changed}"] if changed else []
    return " and ".join(parts) or f"undone changes in {gone}"


def commits_between(
    checkouts: Mapping[str, Checkout], name: str, first: str, last: str
) -> CommitRange | None:
    """List what came to a checkout after one commit, up to another; ``None`` if nothing came.

    Both may have the names of changed files behind them.
    """
    checkout, suite = checkouts.get(name), checkouts.get(SUITE)
    first, last = (commit.partition("+")[0] for commit in (first, last))
    if checkout is None or first == last:
        return None
    begin, end = (_index(checkout.commits, commit) for commit in (last, first))
    commits: tuple[Commit, ...] = ()
    if begin is not None and end is not None:
        if begin > end:
            return None  # an older commit was checked out
        commits = checkout.commits[begin:end]
    return CommitRange(
        checkout=checkout.name or name,
        folder="" if suite is not None and suite.folder == checkout.folder else checkout.folder,
        first=first,
        last=last,
        commits=commits[:COMMITS_LISTED],
        count=len(commits) or None,
        compare=checkout.repository.compare(first, last) if checkout.repository else None,
    )


def _index(commits: tuple[Commit, ...], name: str) -> int | None:
    # Git may have written one of them with more digits.
    names = enumerate(commit.name for commit in commits)
    return next((at for at, other in names if other[: len(name)] == name[: len(other)]), None)
