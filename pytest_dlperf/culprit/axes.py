"""How candidates are had: commits in worktrees of their own, packages in folders of their own."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_dlperf.culprit.checkouts import BuildError, Workshop
from pytest_dlperf.culprit.journal import FoundCommit
from pytest_dlperf.culprit.trial import Setup
from pytest_dlperf.files.locks import locked
from pytest_dlperf.files.writing import write_whole
from pytest_dlperf.measure.case_launch import LaunchChange

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_dlperf.culprit.checkouts import Commit

_PIP_LIMIT_S: Final = 3600.0


class Candidate(Struct, frozen=True, kw_only=True):
    """A commit or a difference that may be at fault."""

    name: str
    """A short commit, or the difference in words."""
    title: str = ""
    author: str = ""
    at: str = ""
    merged: str = ""
    """The commits that a merge brought in, as GOOD..BAD."""
    commit: FoundCommit | None = None
    """``None`` for a difference of another kind."""


class Commits(Struct, frozen=True, kw_only=True):
    """Commits of a checkout, the good one first, each measured in a worktree of its own.

    Where the suite lies in the same checkout, its own files of that commit are used, as in a night.
    """

    workshop: Workshop
    commits: tuple[Commit, ...]
    suite: Path
    """The folder that sessions are started in."""
    cluster: Path
    """The folder of the cluster's files."""

    @property
    def row(self) -> tuple[Candidate, ...]:
        """The good end, then all after it, the oldest first; the last is the bad end."""
        return tuple(map(self._candidate, self.commits))

    def _candidate(self, commit: Commit) -> Candidate:
        return Candidate(
            name=commit.short,
            title=commit.title,
            author=commit.author,
            at=commit.at,
            merged=self.workshop.checkout.merged_by(commit),
            commit=FoundCommit(repository=str(self.workshop.checkout.root), name=commit.short),
        )

    def setup(self, place: int) -> Setup:
        """Prepare the commit at a place of the row.

        Raises:
            BuildError: It cannot be checked out or built.
        """
        commit, root, suite = self.commits[place], self.workshop.checkout.root, self.suite.resolve()
        tree = self.workshop.tree(commit.name)
        folder = tree / suite.relative_to(root) if suite.is_relative_to(root) else suite
        if not folder.is_dir():
            raise BuildError(f"it has no folder {suite.relative_to(root)}")
        return Setup(
            folder=str(folder),
            arguments=tuple(self._where_the_cluster_is(tree)),
            change=LaunchChange(folders={str(root): str(tree)}),
        )

    def _where_the_cluster_is(self, tree: Path) -> Iterator[str]:
        """Yield an option where the variables of the cluster are in no commit."""
        root, cluster = self.workshop.checkout.root, self.cluster.resolve()
        is_committed = cluster.is_relative_to(root) and (tree / cluster.relative_to(root)).is_dir()
        if cluster.is_dir() and not is_committed:
            yield f"--dlperf-baselines={cluster.parent}"


class PackageSource:
    """Installs packages for the trainer's Python, each once, into folders of its own."""

    def __init__(self, python: str, folder: Path) -> None:
        """Install below ``folder``."""
        self._python, self._folder = python, folder.absolute()
        self._problems: dict[str, str] = {}

    def installed(self, requirement: str) -> Path:
        """Return the folder with a requirement, without what that depends on.

        Raises:
            BuildError: It cannot be installed.
        """
        name = re.sub(r"[^\w.=+-]", "_", requirement)
        folder, done = self._folder / name, self._folder / f"{name}.built"
        with locked(self._folder / f"{name}.lock"):
            if not done.exists() and requirement not in self._problems:
                shutil.rmtree(folder, ignore_errors=True)  # what a kill has left
                problem = self._install(requirement, folder)
                if problem:
                    self._problems[requirement] = problem
                else:
                    write_whole(done, "")
        if requirement in self._problems:
            problem = self._problems[requirement]
            raise BuildError(f"{requirement} cannot be installed: {problem}")
        return folder

    def _install(self, requirement: str, folder: Path) -> str:
        """Run pip for the trainer's Python, and return what is wrong."""
        command = [sys.executable, "-m", "pip", "--python", self._python]
        command += ["--disable-pip-version-check", "install", "--no-deps"]
        command += ["--target", str(folder), requirement]
        try:
            done = subprocess.run(  # noqa: S603 - pip, by the user's own configuration
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=_PIP_LIMIT_S,
                check=False,
            )
        except (OSError, subprocess.SubprocessError) as error:
            return f"pip: {error}"
        lines = done.stderr.strip().splitlines() or [f"pip ended with {done.returncode}"]
        return lines[-1] if done.returncode else ""
