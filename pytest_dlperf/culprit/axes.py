"""What a hunt looks along: commits, images, or versions of a package.

An axis is a row of candidates from one that is good to one that is bad; in one of them the number
changed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.culprit.checkouts import BuildError, Bump, Checkout, Workshop
from pytest_dlperf.culprit.trial import Setup
from pytest_dlperf.files.writing import make_folder, write_whole
from pytest_dlperf.measure.launch_change import LaunchChange, combined
from pytest_dlperf.model.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pytest_dlperf.culprit.checkouts import Commit

_PACKAGE: Final = re.compile(
    r"(?P<name>[A-Za-z0-9][\w.-]*)==(?P<old>[\w!+-][\w.!+-]*?)\.\.(?P<new>[\w!+-][\w.!+-]*)"
)
_PRE_RELEASE: Final = re.compile(r"\d(?:a|b|rc|\.dev)\d")
_PIP_LIMIT_S: Final = 3600.0


class Candidate(Struct, frozen=True, kw_only=True):
    """One of the row."""

    name: str
    """A short commit, an image or a version."""
    title: str = ""
    author: str = ""
    at: str = ""


class Axis(Protocol):
    """A row of candidates, and how each is measured."""

    @property
    def kind(self) -> str:
        """What a candidate is: commit, image or version."""

    @property
    def good(self) -> Candidate:
        """The end that is good."""

    @property
    def candidates(self) -> Sequence[Candidate]:
        """All after the good end, the oldest first; the last is the bad end."""

    def setup(self, place: int) -> Setup:
        """Prepare candidate number ``place``, 0 being the good end.

        Raises:
            BuildError: It cannot be had.
        """


# ------------------------------------------------------------------------------ commits


class Commits:
    """Commits of a checkout, each measured in a worktree of its own.

    Where the suite lies in the same checkout, its own files of that commit are used, as in a night.
    ``ends_in_merge`` says that the last one merged the others. ``submodule`` is the one whose
    commits these are, ``over`` then the commit of the checkout around it.
    """

    kind = "commit"

    def __init__(  # noqa: PLR0913 - most by name
        self,
        workshop: Workshop,
        commits: Sequence[Commit],
        *,
        good: Commit,
        suite: Path,
        submodule: Checkout | None = None,
        over: Commit | None = None,
        ends_in_merge: bool = False,
    ) -> None:
        """Look along these commits, sessions being started in the folder ``suite``."""
        self.commits = (good, *commits)
        self.workshop, self.suite = workshop, suite.resolve()
        self.submodule, self._over, self.ends_in_merge = submodule, over, ends_in_merge
        self.good, *self.candidates = (
            Candidate(name=one.short, title=one.title, author=one.author, at=one.at)
            for one in self.commits
        )

    @property
    def owner(self) -> Checkout:
        """The checkout that has these commits."""
        return self.submodule or self.workshop.checkout

    def among(
        self,
        commits: Sequence[Commit],
        good: Commit,
        *,
        submodule: Checkout | None = None,
        over: Commit | None = None,
        ends_in_merge: bool = False,
    ) -> Commits:
        """Return an axis of other commits, of a submodule or of the same checkout."""
        return Commits(
            self.workshop,
            commits,
            good=good,
            suite=self.suite,
            submodule=submodule or self.submodule,
            over=over or self._over,
            ends_in_merge=ends_in_merge,
        )

    def setup(self, place: int) -> Setup:
        """Make and build the worktree."""
        commit, root = self.commits[place], self.workshop.checkout.root
        if self.submodule is None or self._over is None:
            tree = self.workshop.tree(commit.name)
        else:
            path = str(self.submodule.root.relative_to(root))
            tree = self.workshop.tree(self._over.name, {path: commit.name})
        inside = self.suite.is_relative_to(root)
        folder = tree / self.suite.relative_to(root) if inside else self.suite
        if not folder.is_dir():
            raise BuildError(f"it has no folder {self.suite.relative_to(root)}")
        return Setup(folder=str(folder), change=LaunchChange(folders={str(root): str(tree)}))


def followed(axis: Axis, place: int, packages: PackageSource) -> Axis | None:  # noqa: PLR0911
    """Return where to go on inside a culprit: a merge's branch, a submodule, a requirement.

    ``None`` where it holds nothing to go on in, or several at once.
    """
    if not isinstance(axis, Commits):
        return None
    commit, owner = axis.commits[place], axis.owner
    if len(commit.parents) > 1:
        # The merge itself is to blame where no commit of the branch is.
        branch, good = owner.branch_of(commit), owner.commit(commit.parents[0])
        return axis.among((*branch, commit), good, ends_in_merge=True)
    bumps = owner.bumps(commit)
    if len(bumps) != 1:
        return None
    [bump] = bumps
    if bump.is_submodule:
        folder = owner.root / bump.name
        if axis.submodule is not None or not (folder / ".git").exists():
            return None
        inner = Checkout(folder)
        try:
            commits = inner.between(bump.old, bump.new)
        except UsageError:  # it went back, or these commits are not here
            return None
        if len(commits) < 2:  # noqa: PLR2004 - the bump itself is the answer
            return None
        return axis.among(commits, inner.commit(bump.old), submodule=inner, over=commit)
    return packages.within(bump, axis.setup(place))


# ------------------------------------------------------------------- images and packages


class Images:
    """Images of a container, in their order in a file."""

    kind = "image"

    def __init__(self, names: Sequence[str], option: str, suite: Path) -> None:
        """Set each by an option such as ``pytorch-bert.container.image={image}``."""
        self.good, *self.candidates = (Candidate(name=name) for name in names)
        self._option, self._suite = option, suite

    @classmethod
    def of_file(cls, file: Path, option: str, suite: Path) -> Images:
        """Read a file with a name a line, the good one first; ``#`` begins a comment.

        Raises:
            UsageError: It cannot be read, or names fewer than two or one twice.
        """
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--images: {file} cannot be read: {error}") from error
        names = [name for line in lines if (name := line.partition("#")[0].strip())]
        if len(names) < 2 or len(set(names)) < len(names):  # noqa: PLR2004 - good and bad
            raise UsageError(
                f"--images: {file} has to name two images at least, each once: a name a line, the "
                "good one first"
            )
        return cls(names, option, suite)

    def setup(self, place: int) -> Setup:
        """Set the image."""
        name = (self.good, *self.candidates)[place].name
        arguments = ("--dlperf-set", self._option.replace("{image}", name))
        return Setup(folder=str(self._suite), arguments=arguments)


class Versions:
    """Versions of a package, each in a folder that goes before the trainer's own packages."""

    kind = "version"

    def __init__(
        self, source: PackageSource, package: str, versions: Sequence[str], base: Setup
    ) -> None:
        """Measure them over a setup that is otherwise the same."""
        self.good, *self.candidates = (Candidate(name=f"{package}=={one}") for one in versions)
        self._source, self._base = source, base

    def setup(self, place: int) -> Setup:
        """Install the version."""
        name = (self.good, *self.candidates)[place].name
        return with_packages(self._base, self._source.installed(name, with_dependencies=True))


class SourceCommits:
    """Commits of a package's own checkout, each installed into a folder."""

    kind = "commit"

    def __init__(
        self, source: PackageSource, workshop: Workshop, commits: Sequence[Commit], base: Setup
    ) -> None:
        """Measure them over a setup that is otherwise the same; the first one is good."""
        self._commits = commits
        self._source, self._workshop, self._base = source, workshop, base
        self.good, *self.candidates = (
            Candidate(name=one.short, title=one.title, author=one.author, at=one.at)
            for one in commits
        )

    def setup(self, place: int) -> Setup:
        """Install it from a worktree."""
        tree = self._workshop.tree(self._commits[place].name)
        return with_packages(self._base, self._source.installed(str(tree)))


def with_packages(setup: Setup, folder: Path) -> Setup:
    """Put the packages of a folder before all others."""
    change = combined([LaunchChange(python_path=(str(folder),)), setup.change])
    return replace(setup, change=change)


class PackageSource:
    """Installs packages for the trainer's Python, each once, into folders of its own."""

    def __init__(
        self, python: str, folder: Path, checkouts: Mapping[str, Path], limit_s: float
    ) -> None:
        """Install below ``folder``; ``checkouts`` are those of packages, by name."""
        self._python, self._folder = python, folder.absolute()
        self._checkouts, self._limit_s = checkouts, limit_s

    def installed(self, what: str, *, with_dependencies: bool = False) -> Path:
        """Return the folder with a requirement, or with what a folder's project installs.

        Raises:
            BuildError: It cannot be installed.
        """
        name = re.sub(r"[^\w.=+-]", "_", what.rpartition("/")[2])
        folder, done = self._folder / name, self._folder / f"{name}.built"
        if not done.exists():
            make_folder(self._folder)
            shutil.rmtree(folder, ignore_errors=True)  # what a kill has left
            words = ["install", "--target", str(folder), what]
            problem = self._pip(*words, *([] if with_dependencies else ["--no-deps"]))[1]
            write_whole(done, problem)
        problem = done.read_text(encoding="utf-8")
        if problem:
            raise BuildError(f"{what} cannot be installed: {problem}")
        return folder

    def versions(self, package: str, old: str, new: str) -> list[str]:
        """List the versions of a package that can be installed, from ``old`` to ``new``.

        Raises:
            UsageError: The index has one of them not, or cannot be asked.
        """
        pre = ["--pre"] if _PRE_RELEASE.search(f"{old} {new}") else []
        output, problem = self._pip("index", "versions", package, *pre)
        listed = re.search(r"^Available versions: (.+)$", output, re.MULTILINE)
        if listed is None:
            raise UsageError(f"--package: the versions of {package} cannot be listed: {problem}")
        known = [one.strip() for one in reversed(listed[1].split(","))]
        for version in (old, new):
            if version not in known:
                raise UsageError(
                    f"--package: the index has no {package}=={version}; its last ones are "
                    f"{', '.join(known[-8:])}"
                )
        first, last = known.index(old), known.index(new)
        if first >= last:
            raise UsageError(f"--package: {package} {old} is not older than {new}")
        return known[first : last + 1]

    def of_text(self, text: str, suite: Path) -> Axis:
        """Read ``NAME==OLD..NEW``.

        Raises:
            UsageError: It has another form, or there are no such versions.
        """
        match = _PACKAGE.fullmatch(text)
        if match is None:
            raise UsageError(
                f"--package: {text!r} is not NAME==OLD..NEW, as in torch==2.8.0..2.9.0"
            )
        bump = Bump(name=match["name"].lower(), old=match["old"], new=match["new"])
        return self._axis(bump, Setup(folder=str(suite)))

    def within(self, bump: Bump, base: Setup) -> Axis | None:
        """Return what lies between two versions; ``None`` where nothing does, or it is unknown."""
        try:
            axis = self._axis(bump, base)
        except UsageError:
            return None
        return axis if len(axis.candidates) > 1 else None

    def _axis(self, bump: Bump, base: Setup) -> Axis:
        folder = self._checkouts.get(bump.name)
        if folder is None:
            return Versions(self, bump.name, self.versions(bump.name, bump.old, bump.new), base)
        checkout = Checkout(folder)
        old, new = (checkout.tag_of(bump.name, one) for one in (bump.old, bump.new))
        if old is None or new is None:
            missing = bump.old if old is None else bump.new
            raise UsageError(f"--source: {checkout.root} has no tag of {bump.name} {missing}")
        workshop = Workshop(checkout, self._folder / "sources", None, self._limit_s)
        commits = (checkout.commit(old), *checkout.between(old, new))
        return SourceCommits(self, workshop, commits, base)

    def _pip(self, *words: str) -> tuple[str, str]:
        """Run pip for the trainer's Python; its output, and what is wrong."""
        command = [sys.executable, "-m", "pip", "--python", self._python]
        command += ["--disable-pip-version-check", *words]
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
            return "", f"pip: {error}"
        lines = done.stderr.strip().splitlines() or [f"pip ended with {done.returncode}"]
        return done.stdout, lines[-1] if done.returncode else ""
