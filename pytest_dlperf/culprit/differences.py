"""Which of the differences between two nights can be put back, and how."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.culprit.checkouts import SHORT, BuildError, Checkout
from pytest_dlperf.culprit.trial import Setup
from pytest_dlperf.measure.case_launch import ArgumentEdit, LaunchChange, combined
from pytest_dlperf.model.commits import SUITE, news_of
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.node.probe import PACKAGES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_dlperf.culprit.axes import PackageSource
    from pytest_dlperf.culprit.checkouts import Workshop
    from pytest_dlperf.model.differences import MeasuredOn
    from pytest_dlperf.model.measurement import LaunchFacts

_IMAGE: Final = "container.image"
_OF_HOSTS: Final = "it belongs to the hosts"
_MASKED: Final = "***"
_PLACEHOLDER: Final = re.compile(r"\{[a-z_0-9]+\}")


class Suspect(Struct, frozen=True, kw_only=True):
    """One difference, and what puts it back."""

    name: str
    then: str
    """How it was in the good night; empty where it was not there."""
    tonight: str
    change: LaunchChange = LaunchChange()
    arguments: tuple[str, ...] = ()
    """Of pytest."""
    package: str | None = None
    """A requirement to install in its place."""
    root: str | None = None
    """Of the checkout whose commit it is; ``then`` and ``tonight`` are whole names."""
    why_not: str | None = None
    """Why it cannot be put back; then there is nothing else."""

    @property
    def words(self) -> str:
        """The difference for people."""
        if self.root:
            then, now = (text[:SHORT] for text in (self.then, self.tonight))
        else:
            then, now = (text or "not set" for text in (self.then, self.tonight))
        return f"{self.name} ({then} → {now})" if then != now else self.name


def suspects_of(
    good: MeasuredOn, tonight: MeasuredOn, checkouts: Mapping[str, str], system: str
) -> list[Suspect]:
    """List what differs; ``checkouts`` are folders by the names that fingerprints know them by."""
    found = []
    if good.launch is not None and tonight.launch is not None:
        found += [*_of_launch(good.launch, tonight.launch, system)]
    is_contained = tonight.launch is not None and _IMAGE in tonight.launch.options
    found += _of_commits(good.all_commits, tonight.all_commits, checkouts)
    for suspect in _changed(good.software, tonight.software):
        if not re.fullmatch(PACKAGES, suspect.name):
            found.append(replace(suspect, why_not=_OF_HOSTS))
        elif is_contained:
            found.append(replace(suspect, why_not="it lies in the image"))
        elif " + " in suspect.then:
            found.append(replace(suspect, why_not="hosts had several"))
        else:
            found.append(replace(suspect, package=f"{suspect.name}=={suspect.then}"))
    found += [replace(one, why_not=_OF_HOSTS) for one in _changed(good.machine, tonight.machine)]
    if good.hosts and tonight.hosts and set(good.hosts) != set(tonight.hosts):
        found.append(
            Suspect(
                name="hosts",
                then=", ".join(good.hosts),
                tonight=", ".join(tonight.hosts),
                why_not="runs stay on tonight's hosts; --dlperf-hosts names others",
            )
        )
    return found


def _changed(good: Mapping[str, str], tonight: Mapping[str, str]) -> Iterator[Suspect]:
    """Yield what both sides know and is not the same."""
    for name, now in tonight.items():
        if name in good and good[name] != now:
            yield Suspect(name=name, then=good[name], tonight=now)


def _of_launch(good: LaunchFacts, tonight: LaunchFacts, system: str) -> Iterator[Suspect]:
    steps = SequenceMatcher(a=tonight.arguments, b=good.arguments, autojunk=False)
    for kind, start, stop, first, last in steps.get_opcodes():
        if kind == "equal":
            continue
        words, others = good.arguments[first:last], tonight.arguments[start:stop]
        name = "argument" if start else "program"
        suspect = Suspect(name=name, then=" ".join(words), tonight=" ".join(others))
        edit = ArgumentEdit(start, stop, words)
        yield _unless_hidden(replace(suspect, change=LaunchChange(arguments=(edit,))))
    for name in dict.fromkeys((*tonight.environment, *good.environment)):
        value = good.environment.get(name)
        if value != tonight.environment.get(name):
            now = tonight.environment.get(name, "")
            suspect = Suspect(name=name, then=value or "", tonight=now)
            change = LaunchChange(environment={name: value})
            yield _unless_hidden(replace(suspect, change=change))
    sides = [
        {"launcher": one.launcher, "working directory": one.working_directory or "", **one.options}
        for one in (good, tonight)
    ]
    for name in dict.fromkeys((*sides[1], *sides[0])):
        then, now = (side.get(name, "") for side in sides)
        if then == now:
            continue
        suspect = Suspect(name=name, then=then, tonight=now)
        if name == _IMAGE and then and now:
            setting = ("--dlperf-set", f"{system}.{_IMAGE}={then}")
            yield _unless_hidden(replace(suspect, arguments=setting))
        else:
            yield replace(suspect, why_not="it is set where the launch is declared")


def check_launch(planned: LaunchFacts, session: LaunchFacts, started: str, system: str) -> None:
    """Refuse runs that are not launched as those of a session were: they explain another number.

    Raises:
        UsageError: They differ; the message names what, and how to have it.
    """
    found = [*_of_launch(planned, session, system)]
    if not found:
        return
    told = [
        f"{one.name} was {one.tonight or 'not set'}, and would be {one.then or 'not set'}"
        for one in found
    ]
    settings = [
        f"{system}.env.{one.name}={'VALUE' if _MASKED in one.tonight else one.tonight}"
        for one in found
        if one.name in session.environment
    ]
    options = "".join(f" --dlperf-set {quote(one)}" for one in settings)
    raise UsageError(
        f"runs would not be launched as those of the session of {started[:16].replace('T', ' ')}: "
        f"{'; '.join(told)}. They need its system files, and its options behind --, as in "
        f"-- bench_tests{options}"
    )


def _unless_hidden(suspect: Suspect) -> Suspect:
    """Give up what was masked, or differs between folders, in what a fingerprint keeps."""
    if _MASKED in suspect.then:
        why = "its value of then is not kept; what stands in the system file or cluster.yaml is"
    elif _PLACEHOLDER.search(suspect.then):
        why = "it names a folder or host that differs from run to run"
    else:
        return suspect
    return Suspect(name=suspect.name, then=suspect.then, tonight=suspect.tonight, why_not=why)


def _of_commits(
    good: Mapping[str, str], tonight: Mapping[str, str], checkouts: Mapping[str, str]
) -> Iterator[Suspect]:
    """Yield each checkout once, behind the others one that the trainer does not run from."""
    roots = set()
    changed = (one for one in _changed(good, tonight) if one.then and one.tonight)
    for one in sorted(changed, key=lambda one: one.name == SUITE):
        suspect = replace(one, name=f"commit of {one.name}")
        try:
            checkout = Checkout(Path(checkouts.get(one.name, "")))
            sides = (side.partition("+")[0] for side in (one.then, one.tonight))
            ends = [checkout.commit(side).name for side in sides]
        except UsageError as error:
            yield replace(suspect, why_not=str(error))
            continue
        root, name = str(checkout.root), checkout.root.name
        if root in roots:
            continue
        roots.add(root)
        suspect = Suspect(name=f"commit of {name}", then=ends[0], tonight=ends[1], root=root)
        if "+" in one.then + one.tonight:
            said = news_of(name, one.then, one.tonight)
            yield replace(suspect, name=said, why_not="no commit has the changes")
        elif one.name == SUITE:
            yield replace(suspect, why_not="what it changes of a run stands in the launch")
        else:
            yield suspect


class PuttingBack:
    """Sets up sessions with some of the differences put back."""

    def __init__(
        self, folder: Path, packages: PackageSource, trees: Mapping[str, Workshop]
    ) -> None:
        """Start sessions in a folder; ``trees`` make worktrees of checkouts, by root."""
        self._folder, self._packages, self._trees = folder, packages, trees

    def setup(self, suspects: Sequence[Suspect], back: Sequence[bool]) -> Setup:
        """Put those back for which ``back`` is true.

        Raises:
            BuildError: A package cannot be installed, or a commit not built.
        """
        arguments: tuple[str, ...] = ()
        changes: list[LaunchChange] = []
        for suspect, is_back in zip(suspects, back, strict=True):
            if suspect.root is not None:
                # Both sides are worktrees: what no commit has is in neither.
                commit = suspect.then if is_back else suspect.tonight
                tree = self._trees[suspect.root].tree(commit)
                changes.append(LaunchChange(folders={suspect.root: str(tree)}))
            elif is_back and suspect.package is not None:
                folder = str(self._packages.installed(suspect.package))
                changes.insert(0, LaunchChange(python_path=(folder,)))  # before all others
            elif is_back:
                changes.append(suspect.change)
                arguments += suspect.arguments
        return Setup(folder=str(self._folder), arguments=arguments, change=combined(changes))

    def why_not(self, suspect: Suspect) -> str | None:
        """Return why a difference cannot be put back, after trying what takes no run."""
        if suspect.why_not is not None:
            return suspect.why_not
        try:
            self.setup([suspect], [True])
        except BuildError as error:
            return str(error)
        return None
