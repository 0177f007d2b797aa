"""Git checkouts: commits between two ends, and worktrees built once each."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final

from pytest_dlperf.culprit.trial import AbortedError
from pytest_dlperf.files.checkouts import GitError, git
from pytest_dlperf.files.locks import locked
from pytest_dlperf.files.writing import make_folder, write_whole
from pytest_dlperf.launch.remote_call import dying_with_parent
from pytest_dlperf.model.commits import Commit
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.numbers import named

SHORT: Final = 12
_FIELDS: Final = "%H%x00%an%x00%aI%x00%s"
_GIT_LIMIT_S: Final = 600.0
_MAX_SHOWN: Final = 5
_LAST_WORDS: Final = 400


class BuildError(Exception):
    """A candidate cannot be built; the message says why."""


class Checkout:
    """A Git checkout on this machine."""

    def __init__(self, folder: Path) -> None:
        """Find the checkout that a folder lies in."""
        try:
            self.root = Path(git(folder, "rev-parse", "--show-toplevel"))
        except GitError as error:
            raise UsageError(f"{folder} is not in a Git checkout: {error}") from error

    def git(self, *arguments: str) -> str:
        """Run a command of Git here, which may take ten minutes, and return its output."""
        return git(self.root, *arguments, limit_s=_GIT_LIMIT_S)

    def commit(self, name: str) -> Commit:
        """Find a commit by any name that Git knows."""
        try:
            found = self.git("log", "-1", f"--format={_FIELDS}", "--end-of-options", name, "--")
        except GitError as error:
            raise UsageError(f"there is no commit {name!r} in {self.root}{self._hint()}") from error
        return _commit(found)

    def _hint(self) -> str:
        is_shallow = self.git("rev-parse", "--is-shallow-repository") == "true"
        return "; the clone is shallow: git fetch --unshallow" if is_shallow else ""

    def check_clean(self) -> None:
        """Raise a ``UsageError`` where files differ from the commit: no candidate has that."""
        changed = self.git("status", "--porcelain", "--untracked-files=no").splitlines()
        if changed:
            raise UsageError(
                f"{self.root} has changes that no commit has: "
                f"{named([line[3:] for line in changed], _MAX_SHOWN)}; they would be in no "
                "candidate. Commit them, or put them aside with git stash"
            )

    def between(self, good: str, bad: str) -> tuple[Commit, ...]:
        """List the first parents after ``good`` up to ``bad``, the oldest first."""
        first, last = self.commit(good), self.commit(bad)
        if first.name == last.name:
            raise UsageError(f"{good} and {bad} are the same commit, {first.name}")
        try:
            self.git("merge-base", "--is-ancestor", first.name, last.name)
        except GitError as error:
            problem = f"{good} is not an ancestor of {bad}; write the good commit first"
            raise UsageError(f"{problem}{self._hint()}") from error
        words = ("log", "--first-parent", "--reverse", f"--format={_FIELDS}")
        lines = self.git(*words, f"{first.name}..{last.name}").splitlines()
        return tuple(map(_commit, lines))

    def merged_by(self, commit: Commit) -> str:
        """Return the commits that a merge brought in, as GOOD..BAD; empty for other commits."""
        with suppress(GitError):
            base = self.git("merge-base", f"{commit.name}^1", f"{commit.name}^2")
            return f"{base[:SHORT]}..{commit.name}^2"
        return ""


def _commit(line: str) -> Commit:
    name, author, at, title = line.split("\0")
    return Commit(name=name[:SHORT], author=author, at=at, title=title)


class Workshop:
    """Worktrees below a folder, each made and built once, and kept until their folder goes.

    What cannot be built is tried again by the next process: the build, its limit or the machine may
    be another by then.
    """

    def __init__(self, checkout: Checkout, folder: Path, build: str | None, limit_s: float) -> None:
        self.checkout, self._folder = checkout, folder.absolute()
        self._build, self._limit_s = build, limit_s

    def tree(self, commit: str) -> Path:
        """Return the built worktree of a commit.

        Raises:
            BuildError: It cannot be checked out or built.
            AbortedError: The build asks for the end of the search: it exits with 128 or more.
        """
        name = commit[:SHORT]
        tree, built = self._folder / name, self._folder / f"{name}.built"
        # Searches of other cases share it.
        with locked(self._folder / f"{name}.lock"):
            if not built.exists():
                self._check_out(tree, commit)
                if self._build is not None:
                    # What a build prints stays beside its tree.
                    self._run(self._build, tree, self._folder / f"{name}.log")
                write_whole(built, "")
        return tree

    def _check_out(self, tree: Path, commit: str) -> None:
        make_folder(self._folder)
        with suppress(GitError):  # what a kill, or a build, has left
            self.checkout.git("worktree", "remove", "--force", "--force", str(tree))
        self.checkout.git("worktree", "prune")
        try:
            self.checkout.git("worktree", "add", "--force", "--detach", str(tree), commit)
        except GitError as error:
            raise BuildError(f"it cannot be checked out: {error}") from error

    def _run(self, build: str, tree: Path, log: Path) -> None:
        # The node or the user may tell trees apart, and link to data that no commit has.
        environment = {**os.environ, "DLPERF_CHECKOUT": str(self.checkout.root)}
        with log.open("wb") as file:
            # A SIGKILL runs none of what follows: the kernel kills the shell with this process.
            program = subprocess.Popen(  # noqa: S603 - the user's own command
                dying_with_parent(["/bin/sh", "-c", build]),
                cwd=tree, env=environment, stdin=subprocess.DEVNULL,
                stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            try:
                code = program.wait(self._limit_s)
            except BaseException as error:
                with suppress(ProcessLookupError):
                    os.killpg(program.pid, signal.SIGKILL)
                program.wait()
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                limit = f"{self._limit_s:g} s; --build-limit allows more"
                raise BuildError(f"the build took longer than {limit}") from None
        if code < 0 or code >= 128:  # noqa: PLR2004 - as `git bisect run` takes it
            raise AbortedError(f"the build ended the search with exit code {code}; see {log}")
        if code:
            last = log.read_text(encoding="utf-8", errors="replace").strip()[-_LAST_WORDS:]
            said = last.splitlines()[-1] if last else log
            raise BuildError(f"the build failed with exit code {code}: {said}")
