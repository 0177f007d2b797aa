"""Git checkouts: commits between two ends, and worktrees built once each."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final

from pytest_dlperf.culprit.trial import AbortedError
from pytest_dlperf.files.locks import locked
from pytest_dlperf.files.writing import make_folder, write_whole
from pytest_dlperf.launch.remote_call import dying_with_parent
from pytest_dlperf.model.commits import Commit
from pytest_dlperf.model.errors import UsageError

SHORT: Final = 12
_FIELDS: Final = "%H%x00%an%x00%aI%x00%s"
_OF_HOOKS: Final = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")
_GIT_LIMIT_S: Final = 600.0
_MAX_SHOWN: Final = 5
_LAST_WORDS: Final = 400


class GitError(UsageError):
    """A command of Git failed; the message is Git's own."""


class BuildError(Exception):
    """A candidate cannot be built; the message says why."""


class Checkout:
    """A Git checkout on this machine."""

    def __init__(self, folder: Path) -> None:
        """Find the checkout that a folder lies in."""
        self.root = folder
        try:
            self.root = Path(self.git("rev-parse", "--show-toplevel"))
        except GitError as error:
            raise UsageError(f"{folder} is not in a Git checkout: {error}") from error

    def git(self, *arguments: str, folder: Path | None = None) -> str:
        """Run a command of Git and return its output.

        Raises:
            GitError: It failed, or took ten minutes.
        """
        # What a surrounding command of Git sets is not about this checkout.
        environment = {k: v for k, v in os.environ.items() if k not in _OF_HOOKS}
        where = str(folder or self.root)
        try:
            done = subprocess.run(  # noqa: S603 - git itself
                ["git", "-C", where, "-c", "core.hooksPath=/dev/null", *arguments],  # noqa: S607
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=_GIT_LIMIT_S,
                check=False,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise GitError(f"git {arguments[0]}: {error}") from error
        if done.returncode:
            words = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            raise GitError(f"git {arguments[0]}: {words[-1]}")
        return done.stdout.strip("\n")

    def commit(self, name: str) -> Commit:
        """Find a commit by any name that Git knows."""
        try:
            found = self.git("log", "-1", f"--format={_FIELDS}", "--end-of-options", name, "--")
        except GitError as error:
            hint = "; the clone is shallow: git fetch --unshallow" if self.is_shallow else ""
            raise UsageError(f"there is no commit {name!r} in {self.root}{hint}") from error
        return _commit(found)

    @property
    def is_shallow(self) -> bool:
        """Whether the clone lacks the commits before some."""
        return self.git("rev-parse", "--is-shallow-repository") == "true"

    def check_clean(self) -> None:
        """Raise a ``UsageError`` where files differ from the commit: no candidate has that."""
        changed = self.git("status", "--porcelain", "--untracked-files=no").splitlines()
        if changed:
            named = ", ".join(line[3:] for line in changed[:_MAX_SHOWN])
            more = f" and {len(changed) - _MAX_SHOWN} more" if len(changed) > _MAX_SHOWN else ""
            raise UsageError(
                f"{self.root} has changes that no commit has: {named}{more}; they would be in no "
                "candidate. Commit them, or put them aside with git stash"
            )

    def between(self, good: str, bad: str) -> tuple[Commit, ...]:
        """List the first parents after ``good`` up to ``bad``, the oldest first."""
        first, last = self.commit(good), self.commit(bad)
        if first.name == last.name:
            raise UsageError(f"{good} and {bad} are the same commit, {first.name}")
        base = ""
        with suppress(GitError):
            base = self.git("merge-base", first.name, last.name)[:SHORT]
        if base != first.name:
            if self.is_shallow:
                raise UsageError(
                    f"{self.root} is a shallow clone, which does not reach from {bad} back to "
                    f"{good}: git fetch --unshallow"
                )
            if base == last.name:
                raise UsageError(f"{good} is newer than {bad}; write the good commit first")
            hint = f"; their common ancestor is {base}" if base else ""
            raise UsageError(f"{good} is not an ancestor of {bad}{hint}")
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


# ---------------------------------------------------------------------------- worktrees


class Workshop:
    """Worktrees below a folder, each made and built once, and kept until their folder goes.

    What cannot be built is tried again by the next process: the build, its limit or the machine may
    be another by then.
    """

    def __init__(self, checkout: Checkout, folder: Path, build: str | None, limit_s: float) -> None:
        self.checkout, self._folder = checkout, folder.absolute()
        self._build, self._limit_s = build, limit_s
        self._problems: dict[str, str] = {}

    def tree(self, commit: str) -> Path:
        """Return the built worktree of a commit.

        Raises:
            BuildError: It cannot be checked out or built.
            AbortedError: The build asks for the end of the search: it exits with 128 or more.
        """
        name = commit[:SHORT]
        tree = self._folder / name
        made, built = (self._folder / f"{name}.{what}" for what in ("made", "built"))
        if name in self._problems:
            raise BuildError(self._problems[name])
        # Searches of other cases share it.
        with locked(self._folder / f"{name}.lock"):
            if not made.exists():
                self._make(tree, commit)
                write_whole(made, "")
            if not built.exists():
                # What a build prints stays beside its tree.
                problem = self._run_build(tree, self._folder / f"{name}.log")
                if problem:
                    self._problems[name] = problem
                    raise BuildError(problem)
                write_whole(built, "")
        return tree

    def _make(self, tree: Path, commit: str) -> None:
        make_folder(self._folder)
        git = self.checkout.git
        with suppress(GitError):  # what a kill has left
            git("worktree", "remove", "--force", "--force", str(tree))
        git("worktree", "prune")
        try:
            git("worktree", "add", "--force", "--detach", str(tree), commit)
        except GitError as error:
            raise BuildError(f"it cannot be checked out: {error}") from error

    def _run_build(self, tree: Path, log: Path) -> str:
        """Build, and return what is wrong; empty where it is built."""
        if self._build is None:
            return ""
        # The node or the user may tell trees apart, and link to data that no commit has.
        environment = {**os.environ, "DLPERF_CHECKOUT": str(self.checkout.root)}
        with log.open("wb") as file:
            # A SIGKILL runs none of what follows: the kernel kills the shell with this process.
            program = subprocess.Popen(  # noqa: S603 - the user's own command
                dying_with_parent(["/bin/sh", "-c", self._build]),
                cwd=tree, env=environment, stdin=subprocess.DEVNULL,
                stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            try:
                code = program.wait(self._limit_s)
            except subprocess.TimeoutExpired:
                _end(program)
                return f"the build took longer than {self._limit_s:g} s; --build-limit allows more"
            except BaseException:
                _end(program)
                raise
        if code < 0 or code >= 128:  # noqa: PLR2004 - as `git bisect run` takes it
            raise AbortedError(f"the build ended the search with exit code {code}; see {log}")
        if code == 0:
            return ""
        last = log.read_text(encoding="utf-8", errors="replace").strip()[-_LAST_WORDS:]
        return f"the build failed with exit code {code}: {last.splitlines()[-1] if last else log}"


def _end(program: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(program.pid, signal.SIGKILL)
    program.wait()
