"""A row of candidates: what differs between a good and a bad session, each with what puts it back.

Setting ``k`` has the first ``k`` candidates as in the bad session, and the others put back.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from hashlib import sha256
from pathlib import Path
from shlex import quote
from typing import Final

from msgspec import Struct, json
from msgspec.structs import replace

from pytest_dlperf.culprit.checkouts import SHORT, BuildError, Checkout, Workshop
from pytest_dlperf.culprit.trial import Setup
from pytest_dlperf.files.locks import locked
from pytest_dlperf.files.writing import write_whole
from pytest_dlperf.measure.case_launch import ArgumentEdit, LaunchChange, combined
from pytest_dlperf.model.commits import SUITE, Commit, news_of
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.measurement import Fingerprint, LaunchFacts
from pytest_dlperf.model.numbers import named
from pytest_dlperf.node.probe import PACKAGES

_IMAGE: Final = "container.image"
_OF_HOSTS: Final = "it belongs to the hosts"
_MASKED: Final = "***"
_DIGEST: Final = re.compile(r"\*\*\*[0-9a-f]+")
_PLACEHOLDER: Final = re.compile(r"\{[a-z_0-9]+\}")
_PIP_LIMIT_S: Final = 3600.0
_SHOWN: Final = 3


class Candidate(Struct, frozen=True, kw_only=True):
    """A commit, or another difference, and what puts it back."""

    name: str
    then: str = ""
    """How it was in the good session; empty where it was not there."""
    tonight: str = ""
    change: LaunchChange = LaunchChange()
    arguments: tuple[str, ...] = ()
    """Of pytest."""
    package: str | None = None
    """A requirement to install in its place."""
    checkout: Checkout | None = None
    """Of a commit; ``then`` is the commit before."""
    commit: Commit | None = None
    why_not: str | None = None
    """Why it cannot be put back."""

    @property
    def words(self) -> str:
        """The difference for people."""
        if self.commit is not None or self.then == self.tonight:
            return self.name
        return f"{self.name} ({self.then or 'not set'} → {self.tonight or 'not set'})"


class Row:
    """Candidates in their order; commits of one checkout stand together, the oldest first."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        *,
        good: str,
        workshop: Callable[[Checkout], Workshop],
        packages: Packages,
        suite_cluster: Path | None = None,
    ) -> None:
        """Name the good end; ``workshop`` makes the worktrees of a checkout.

        With a ``suite_cluster``, the folder of the cluster's files, sessions start in a worktree if
        they are started in its checkout: a suite there has its own files of that commit.
        """
        self.candidates, self.good = candidates, good
        self._workshop, self._packages = workshop, packages
        self._cluster = suite_cluster

    def name(self, setting: int) -> str:
        """Name a setting for people."""
        if setting == len(self.candidates):
            return "tonight's" if self._cluster is None else self.candidates[-1].name
        if self._cluster is not None:
            return self.candidates[setting - 1].name if setting else self.good
        return f"{named([one.words for one in self.candidates[setting:]], _SHOWN)} put back"

    def setup(self, setting: int) -> Setup:
        """Prepare a setting.

        Raises:
            BuildError: A package cannot be installed, or a commit not built.
        """
        folder = Path.cwd().resolve()
        arguments: list[str] = []
        changes: list[LaunchChange] = []
        commits: dict[Path, tuple[Checkout, str]] = {}
        for number, one in enumerate(self.candidates):
            if one.checkout is not None and one.commit is not None:
                root = one.checkout.root
                if number < setting:
                    commits[root] = one.checkout, one.commit.name
                else:
                    commits.setdefault(root, (one.checkout, one.then))
            elif number >= setting and one.package is not None:
                installed = self._packages.installed(one.package)
                changes.insert(0, LaunchChange(python_path=(str(installed),)))
            elif number >= setting:
                changes.append(one.change)
                arguments += one.arguments
        for root, (checkout, commit) in commits.items():
            tree = self._workshop(checkout).tree(commit)
            changes.append(LaunchChange(folders={str(root): str(tree)}))
            if self._cluster is not None:
                arguments += self._where_the_cluster_is(root, tree)
                if folder.is_relative_to(root):
                    folder = tree / folder.relative_to(root)
                    if not folder.is_dir():
                        raise BuildError(f"it has no folder {folder.relative_to(tree)}")
        return Setup(folder=str(folder), arguments=tuple(arguments), change=combined(changes))

    def _where_the_cluster_is(self, root: Path, tree: Path) -> Iterator[str]:
        """Yield an option where the variables of the cluster are in no commit."""
        cluster = (self._cluster or Path()).resolve()
        is_committed = cluster.is_relative_to(root) and (tree / cluster.relative_to(root)).is_dir()
        if cluster.is_dir() and not is_committed:
            yield f"--dlperf-baselines={cluster.parent}"

    def why_not(self, candidate: Candidate) -> str | None:
        """Return why a candidate cannot be put back; a package is installed to see that."""
        if candidate.why_not is None and candidate.package is not None:
            try:
                self._packages.installed(candidate.package)
            except BuildError as error:
                return str(error)
        return candidate.why_not


class Packages:
    """Installs packages for the trainer's Python, each once, without what they depend on."""

    def __init__(self, python: str, folder: Path) -> None:
        self._python, self._folder = python, folder.absolute()

    def installed(self, requirement: str) -> Path:
        """Return the folder with a requirement.

        Raises:
            BuildError: It cannot be installed.
        """
        name = sha256(f"{self._python} {requirement}".encode()).hexdigest()[:SHORT]
        folder, done = self._folder / name, self._folder / f"{name}.built"
        command = [sys.executable, "-m", "pip", "--python", self._python]
        command += ["--disable-pip-version-check", "install", "--no-deps"]
        command += ["--target", str(folder), requirement]
        with locked(self._folder / f"{name}.lock"):
            if done.exists():
                return folder
            shutil.rmtree(folder, ignore_errors=True)  # what a kill has left
            try:
                subprocess.run(  # noqa: S603 - pip, by the user's own configuration
                    command, stdin=subprocess.DEVNULL, capture_output=True,
                    encoding="utf-8", errors="replace", timeout=_PIP_LIMIT_S, check=True,
                )  # fmt: skip
            except (OSError, subprocess.SubprocessError) as error:
                said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
                raise BuildError(f"{requirement} cannot be installed: {said[-1]}") from error
            write_whole(done, "")
        return folder


# --------------------------------------------------------------- what two sessions differ in


def commits_of(checkout: Checkout, good: str, bad: str) -> list[Candidate]:
    """List the commits after ``good`` up to ``bad``."""
    then, found = checkout.commit(good).name, []
    for commit in checkout.between(good, bad):
        found.append(Candidate(name=commit.name, then=then, checkout=checkout, commit=commit))
        then = commit.name
    return found


def differences_of(
    good: Fingerprint, tonight: Fingerprint, checkouts: Mapping[str, str], system: str
) -> list[Candidate]:
    """List what differs; ``checkouts`` are folders by the names that fingerprints know them by."""
    found = []
    if good.launch is not None and tonight.launch is not None:
        found += [*_of_launch(good.launch, tonight.launch, system)]
    is_contained = tonight.launch is not None and _IMAGE in tonight.launch.options
    for one in _changed(good.software, tonight.software):
        why_not = None
        if not re.fullmatch(PACKAGES, one.name):
            why_not = _OF_HOSTS
        elif is_contained:
            why_not = "it lies in the image"
        elif not one.then or " + " in one.then:
            why_not = "hosts had several" if one.then else "it was not installed"
        package = None if why_not else f"{one.name}=={one.then}"
        found.append(replace(one, package=package, why_not=why_not))
    machine, hosts = [({"hosts": ", ".join(sorted(side.hosts))}) for side in (good, tonight)]
    found += [replace(one, why_not=_OF_HOSTS) for one in _changed(good.machine, tonight.machine)]
    if all((*machine.values(), *hosts.values())):
        stay = "runs stay on tonight's hosts; --dlperf-hosts names others"
        found += [replace(one, why_not=stay) for one in _changed(machine, hosts)]
    return [*found, *_of_commits(good.commits, tonight.commits, checkouts)]


def _changed(good: Mapping[str, str], tonight: Mapping[str, str]) -> Iterator[Candidate]:
    """Yield what is not the same; what nothing is known of on one side is no difference."""
    for name in dict.fromkeys((*tonight, *good)) if good and tonight else ():
        then, now = (side.get(name, "") for side in (good, tonight))
        if then != now:
            yield Candidate(name=name, then=then, tonight=now)


def _of_launch(good: LaunchFacts, tonight: LaunchFacts, system: str) -> Iterator[Candidate]:
    steps = SequenceMatcher(a=tonight.arguments, b=good.arguments, autojunk=False)
    for kind, start, stop, first, last in steps.get_opcodes():
        if kind != "equal":
            words, others = good.arguments[first:last], tonight.arguments[start:stop]
            one = Candidate(
                name="argument" if start else "program",
                then=" ".join(words),
                tonight=" ".join(others),
                change=LaunchChange(arguments=(ArgumentEdit(start, stop, words),)),
            )
            yield _unless_hidden(one)
    for name in dict.fromkeys((*tonight.environment, *good.environment)):
        value, now = (side.environment.get(name) for side in (good, tonight))
        if value != now:
            change = LaunchChange(environment={name: value})
            one = Candidate(name=name, then=value or "", tonight=now or "", change=change)
            yield _unless_hidden(one)
    sides = [
        {"launcher": one.launcher, "working directory": one.working_directory or "", **one.options}
        for one in (good, tonight)
    ]
    for one in _changed(*sides):
        if one.name == _IMAGE and one.then and one.tonight:
            setting = ("--dlperf-set", f"{system}.{_IMAGE}={one.then}")
            yield _unless_hidden(replace(one, arguments=setting))
        else:
            yield replace(one, why_not="it is set where the launch is declared")


def _unless_hidden(one: Candidate) -> Candidate:
    """Give up what was masked, or differs between folders, in what a fingerprint keeps."""
    if _MASKED in one.then:
        why_not = "its value of then is not kept; what stands in the system file or cluster.yaml is"
    elif _PLACEHOLDER.search(one.then):
        why_not = "it names a folder or host that differs from run to run"
    else:
        return one
    return Candidate(name=one.name, then=one.then, tonight=one.tonight, why_not=why_not)


def _of_commits(
    good: Mapping[str, str], tonight: Mapping[str, str], checkouts: Mapping[str, str]
) -> Iterator[Candidate]:
    """Yield the commits of each checkout once, behind the others one that no trainer runs from."""
    roots = set()
    changed = (one for one in _changed(good, tonight) if one.then and one.tonight)
    for one in sorted(changed, key=lambda one: one.name == SUITE):
        missing = replace(one, name=f"commit of {one.name}")
        try:
            checkout = Checkout(Path(checkouts.get(one.name, "")))
            ends = [side.partition("+")[0] for side in (one.then, one.tonight)]
            name = checkout.root.name
            if checkout.root in roots:
                continue
            roots.add(checkout.root)
            missing = replace(missing, name=f"commit of {name}")
            if "+" in one.then + one.tonight:
                said, why_not = news_of(name, one.then, one.tonight), "no commit has the changes"
                if ends[0] != ends[1]:
                    why_not += f"; put them aside, and bisect {ends[0]}..{ends[1]}"
                yield Candidate(name=said, why_not=why_not)
            elif one.name == SUITE:
                yield replace(missing, why_not="what it changes of a run stands in the launch")
            else:
                yield from commits_of(checkout, *ends)
        except UsageError as error:
            yield replace(missing, why_not=str(error))


def check_launch(
    now: LaunchFacts, session: LaunchFacts, started: str, system: str, moved: Mapping[str, str]
) -> None:
    """Refuse runs that are not launched as those of a session were: they explain another number."""
    # Another worktree may have another salt.
    text, known = (_DIGEST.sub(_MASKED, json.encode(one).decode()) for one in (now, session))
    for root, tree in moved.items():
        place = root if root in known else "{checkout}"
        text = re.sub(rf'[^"\s=:,]*/{re.escape("/".join(Path(tree).parts[-2:]))}', place, text)
    planned = json.decode(text, type=LaunchFacts)
    if moved:
        planned = replace(planned, working_directory=session.working_directory)
    found = [*_of_launch(planned, json.decode(known, type=LaunchFacts), system)]
    if not found:
        return
    told = [
        f"{one.name} was {one.tonight or 'not set'}, and is {one.then or 'not set'}"
        for one in found
    ]
    settings = [
        f"{system}.env.{one.name}={'VALUE' if _MASKED in one.tonight else one.tonight}"
        for one in found
        if one.name in session.environment
    ]
    options = "".join(f" --dlperf-set {quote(one)}" for one in settings)
    raise UsageError(
        f"runs are not launched as those of the session of {started[:16].replace('T', ' ')}: "
        f"{'; '.join(told)}. They need its system files, and its options behind --, as in "
        f"-- bench_tests{options}"
    )
