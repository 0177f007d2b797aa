"""What a hunt looks along: commits, images, or versions of a package.

An axis is a row of candidates from one that is good to one that is bad; in one of them the number
changed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.culprit.checkouts import BuildError, Bump, Checkout, Workshop
from pytest_dlperf.culprit.trial import Setup
from pytest_dlperf.files.locks import locked
from pytest_dlperf.files.writing import write_whole
from pytest_dlperf.measure.case_launch import LaunchChange, combined
from pytest_dlperf.model.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
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


class Axis(Struct, frozen=True, kw_only=True):
    """A row of candidates, and how each is measured."""

    kind: str
    """What a candidate is: commit, image or version."""
    row: tuple[Candidate, ...]
    """The good end, then all after it, the oldest first; the last is the bad end."""
    setup: Callable[[int], Setup]
    """Prepares the candidate at a place of the row, or raises a ``BuildError``."""
    commits: Commits | None = None
    """Of a checkout, to go on in."""

    @property
    def good(self) -> Candidate:
        """The good end."""
        return self.row[0]

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """All after the good end."""
        return self.row[1:]


# ------------------------------------------------------------------------------ commits


class Commits(Struct, frozen=True, kw_only=True):
    """Commits of a checkout, the good one first, each measured in a worktree of its own.

    Where the suite lies in the same checkout, its own files of that commit are used, as in a night.
    """

    workshop: Workshop
    commits: tuple[Commit, ...]
    suite: Path
    """The folder that sessions are started in."""
    submodule: Checkout | None = None
    """The one whose commits these are."""
    over: Commit | None = None
    """The commit of the checkout around a submodule."""
    ends_in_merge: bool = False
    """Whether the last one merged the others."""

    @property
    def owner(self) -> Checkout:
        """The checkout that has these commits."""
        return self.submodule or self.workshop.checkout

    def axis(self) -> Axis:
        """Make candidates of them."""
        row = tuple(map(_candidate, self.commits))
        return Axis(kind="commit", row=row, setup=self._setup, commits=self)

    def _setup(self, place: int) -> Setup:
        commit, root, suite = self.commits[place], self.workshop.checkout.root, self.suite.resolve()
        if self.submodule is None or self.over is None:
            tree = self.workshop.tree(commit.name)
        else:
            path = str(self.submodule.root.relative_to(root))
            tree = self.workshop.tree(self.over.name, {path: commit.name})
        folder = tree / suite.relative_to(root) if suite.is_relative_to(root) else suite
        if not folder.is_dir():
            raise BuildError(f"it has no folder {suite.relative_to(root)}")
        return Setup(folder=str(folder), change=LaunchChange(folders={str(root): str(tree)}))

    def inside(self, place: int, packages: PackageSource) -> Axis | None:  # noqa: PLR0911
        """Return what a culprit holds: a merge's branch, a submodule's commits, a requirement.

        ``None`` where it holds nothing to go on in, or several at once.
        """
        commit, owner = self.commits[place], self.owner
        if len(commit.parents) > 1:
            # The merge itself is to blame where no commit of the branch is.
            row = (owner.commit(commit.parents[0]), *owner.branch_of(commit), commit)
            return replace(self, commits=row, ends_in_merge=True).axis()
        bumps = owner.bumps(commit)
        if len(bumps) != 1:
            return None
        [bump] = bumps
        if not bump.is_submodule:
            return packages.within(bump, self._setup(place))
        folder = owner.root / bump.name
        if self.submodule is not None or not (folder / ".git").exists():
            return None
        inner = Checkout(folder)
        try:
            row = (inner.commit(bump.old), *inner.between(bump.old, bump.new))
        except UsageError:  # it went back, or these commits are not here
            return None
        if len(row) <= 2:  # noqa: PLR2004 - the bump itself is the answer
            return None
        return Commits(
            workshop=self.workshop, commits=row, suite=self.suite, submodule=inner, over=commit
        ).axis()


def _candidate(commit: Commit) -> Candidate:
    return Candidate(name=commit.short, title=commit.title, author=commit.author, at=commit.at)


# ------------------------------------------------------------------- images and packages


def images_of(file: Path, option: str, suite: Path) -> Axis:
    """Read a file with an image a line, the good one first; ``#`` begins a comment.

    Each is set by an option such as ``pytorch-bert.container.image={image}``.

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
            f"--images: {file} has to name two images at least, each once: a name a line, the good "
            "one first"
        )

    def setup(place: int) -> Setup:
        setting = ("--dlperf-set", option.replace("{image}", names[place]))
        return Setup(folder=str(suite), arguments=setting)

    return Axis(kind="image", row=tuple(Candidate(name=name) for name in names), setup=setup)


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
        self._problems: dict[str, str] = {}

    def installed(self, what: str, *, with_dependencies: bool = False) -> Path:
        """Return the folder with a requirement, or with what a folder's project installs.

        Raises:
            BuildError: It cannot be installed.
        """
        name = re.sub(r"[^\w.=+-]", "_", what.rpartition("/")[2])
        folder, done = self._folder / name, self._folder / f"{name}.built"
        with locked(self._folder / f"{name}.lock"):
            if not done.exists() and what not in self._problems:
                shutil.rmtree(folder, ignore_errors=True)  # what a kill has left
                words = ["install", "--target", str(folder), what]
                problem = self._pip(*words, *([] if with_dependencies else ["--no-deps"]))[1]
                if problem:
                    self._problems[what] = problem
                else:
                    write_whole(done, "")
        if what in self._problems:
            raise BuildError(f"{what} cannot be installed: {self._problems[what]}")
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
            problem = "is not NAME==OLD..NEW, as in torch==2.8.0..2.9.0"
            raise UsageError(f"--package: {text!r} {problem}")
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
            names = [f"{bump.name}=={one}" for one in self.versions(bump.name, bump.old, bump.new)]
            return Axis(
                kind="version",
                row=tuple(Candidate(name=name) for name in names),
                setup=lambda place: with_packages(
                    base, self.installed(names[place], with_dependencies=True)
                ),
            )
        checkout = Checkout(folder)
        old, new = (checkout.tag_of(bump.name, one) for one in (bump.old, bump.new))
        if old is None or new is None:
            missing = bump.old if old is None else bump.new
            raise UsageError(f"--source: {checkout.root} has no tag of {bump.name} {missing}")
        workshop = Workshop(checkout, self._folder / "sources", None, self._limit_s)
        commits = (checkout.commit(old), *checkout.between(old, new))
        return Axis(
            kind="commit",
            row=tuple(map(_candidate, commits)),
            setup=lambda place: with_packages(
                base, self.installed(str(workshop.tree(commits[place].name)))
            ),
        )

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
