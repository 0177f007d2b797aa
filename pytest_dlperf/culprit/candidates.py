"""A row of candidates: what differs between a good and a bad session, each with what puts it back.

Setting ``k`` has the first ``k`` candidates as in the bad session, and the others put back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from shlex import quote
from typing import Final

from msgspec import Struct, json
from msgspec.structs import replace

from pytest_dlperf.culprit.checkouts import BuildError, Checkout, Workshop
from pytest_dlperf.culprit.trial import Setup
from pytest_dlperf.measure.case_launch import ArgumentEdit, LaunchChange, combined
from pytest_dlperf.model.commits import SUITE, Commit, news_of
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.measurement import Fingerprint, LaunchFacts
from pytest_dlperf.model.numbers import named

_IMAGE: Final = "container.image"
_OF_HOSTS: Final = "it is as it is installed on the hosts"
_MASKED: Final = "***"
_DIGEST: Final = re.compile(r"\*\*\*[0-9a-f]+")
_PLACEHOLDER: Final = re.compile(r"\{[a-z_0-9]+\}")
_SHOWN: Final = 3


class Candidate(Struct, frozen=True, kw_only=True):
    """A commit, or another difference, and what puts it back."""

    name: str
    then: str = ""
    """How it was in the good session; empty where it was not there."""
    now: str = ""
    change: LaunchChange = LaunchChange()
    arguments: tuple[str, ...] = ()
    """Of pytest."""
    checkout: Checkout | None = None
    """Of a commit; ``then`` is the commit before."""
    commit: Commit | None = None
    why_not: str | None = None
    """Why it cannot be put back."""

    @property
    def words(self) -> str:
        """The difference for people."""
        if self.commit is not None or self.then == self.now:
            return self.name
        return f"{self.name} ({self.then or 'not set'} → {self.now or 'not set'})"


class Row:
    """Candidates in their order; commits of one checkout stand together, the oldest first."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        *,
        good: str,
        workshop: Callable[[Checkout], Workshop],
        suite_cluster: Path | None = None,
    ) -> None:
        """Name the good end; ``workshop`` makes the worktrees of a checkout.

        With a ``suite_cluster``, the folder of the cluster's files, sessions start in a worktree if
        they are started in its checkout: a suite there has its own files of that commit.
        """
        self.candidates, self.good = candidates, good
        self._workshop, self._cluster = workshop, suite_cluster and suite_cluster.resolve()

    def name(self, setting: int) -> str:
        """Name a setting for people."""
        if self._cluster is not None:
            return self.candidates[setting - 1].name if setting else self.good
        back = [one.words for one in self.candidates[setting:]]
        return f"{named(back, _SHOWN)} put back" if back else "that of now"

    def setup(self, setting: int) -> Setup:
        """Prepare a setting.

        Raises:
            BuildError: A commit cannot be built.
        """
        arguments: list[str] = []
        changes: list[LaunchChange] = []
        commits: dict[Path, tuple[Checkout, str]] = {}
        for number, one in enumerate(self.candidates):
            if one.checkout is not None and one.commit is not None:
                root, is_bad = one.checkout.root, number < setting
                if is_bad or root not in commits:
                    commits[root] = one.checkout, one.commit.name if is_bad else one.then
            elif number >= setting:
                changes.append(one.change)
                arguments += one.arguments
        folder = Path.cwd().resolve()
        for root, (checkout, commit) in commits.items():
            tree = self._workshop(checkout).tree(commit)
            changes.append(LaunchChange(folders={str(root): str(tree)}))
            if self._cluster is None:
                continue
            # The variables of the cluster may be in no commit.
            cluster = self._cluster
            committed = cluster.is_relative_to(root) and tree / cluster.relative_to(root)
            if cluster.is_dir() and not (committed and committed.is_dir()):
                arguments.append(f"--dlperf-baselines={cluster.parent}")
            if folder.is_relative_to(root):
                folder = tree / folder.relative_to(root)
                if not folder.is_dir():
                    raise BuildError(f"it has no folder {folder.relative_to(tree)}")
        return Setup(folder=str(folder), arguments=tuple(arguments), change=combined(changes))


# --------------------------------------------------------------- what two sessions differ in


def commits_of(checkout: Checkout, good: str, bad: str) -> list[Candidate]:
    """List the commits after ``good`` up to ``bad``."""
    then, found = checkout.commit(good).name, []
    for commit in checkout.between(good, bad):
        found.append(Candidate(name=commit.name, then=then, checkout=checkout, commit=commit))
        then = commit.name
    return found


def differences_of(
    good: Fingerprint, now: Fingerprint, checkouts: Mapping[str, str], system: str
) -> list[Candidate]:
    """List what differs; ``checkouts`` are folders by the names that fingerprints know them by."""
    found = []
    if good.launch is not None and now.launch is not None:
        found += _of_launch(good.launch, now.launch, system)
    for then, there in ((good.software, now.software), (good.machine, now.machine)):
        # Where nothing is known of one side, nothing differs.
        changed = _changed(then, there) if then and there else ()
        found += [replace(one, why_not=_OF_HOSTS) for one in changed]
    if good.hosts and now.hosts:
        hosts = [{"hosts": ", ".join(sorted(side.hosts))} for side in (good, now)]
        stay = "runs stay on the hosts of now; --dlperf-hosts names others"
        found += [replace(it, why_not=stay) for it in _changed(*hosts)]
    return [*found, *_of_commits(good.commits, now.commits, checkouts)]


def _changed(good: Mapping[str, str], now: Mapping[str, str]) -> Iterator[Candidate]:
    for name in dict.fromkeys((*now, *good)):
        if good.get(name, "") != now.get(name, ""):
            yield Candidate(name=name, then=good.get(name, ""), now=now.get(name, ""))


def _of_launch(good: LaunchFacts, now: LaunchFacts, system: str) -> list[Candidate]:
    found = []
    steps = SequenceMatcher(a=now.arguments, b=good.arguments, autojunk=False)
    for kind, start, stop, first, last in steps.get_opcodes():
        if kind != "equal":
            words, others = good.arguments[first:last], now.arguments[start:stop]
            edit = LaunchChange(arguments=(ArgumentEdit(start, stop, words),))
            one = Candidate(name="argument" if start else "program", change=edit)
            found.append(replace(one, then=" ".join(words), now=" ".join(others)))
    for one in _changed(good.environment, now.environment):
        change = LaunchChange(environment={one.name: good.environment.get(one.name)})
        found.append(replace(one, change=change))
    sides = [
        {"launcher": one.launcher, "working directory": one.working_directory or "", **one.options}
        for one in (good, now)
    ]
    for one in _changed(*sides):
        if one.name == _IMAGE and one.then and one.now:
            setting = ("--dlperf-set", f"{system}.{_IMAGE}={one.then}")
            found.append(replace(one, arguments=setting))
        else:
            found.append(replace(one, why_not="it is set where the launch is declared"))
    return [
        replace(one, why_not=why_hidden) if (why_hidden := _why_hidden(one.then)) else one
        for one in found
    ]


def _why_hidden(then: str) -> str | None:
    """Return why a text cannot be put back as a fingerprint keeps it; ``None`` if it can."""
    if _MASKED in then:
        return "its value of then is not kept; what stands in the system file or cluster.yaml is"
    if _PLACEHOLDER.search(then):
        return "it names a folder or host that differs from run to run"
    return None


def _of_commits(
    good: Mapping[str, str], now: Mapping[str, str], checkouts: Mapping[str, str]
) -> Iterator[Candidate]:
    """Yield the commits of each checkout once, behind the others one that no trainer runs from."""
    roots = set()
    changed = (one for one in _changed(good, now) if one.then and one.now)
    for one in sorted(changed, key=lambda one: one.name == SUITE):
        missing = replace(one, name=f"commit of {one.name}")
        try:
            checkout = Checkout(Path(checkouts.get(one.name, "")))
            ends = [side.partition("+")[0] for side in (one.then, one.now)]
            name = checkout.root.name
            if checkout.root in roots:
                continue
            roots.add(checkout.root)
            missing = replace(missing, name=f"commit of {name}")
            if "+" in one.then + one.now:
                said, why_not = news_of(name, one.then, one.now), "no commit has the changes"
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
    found = _of_launch(planned, json.decode(known, type=LaunchFacts), system)
    if not found:
        return
    told = "; ".join(
        f"{it.name} was {it.now or 'not set'}, and is {it.then or 'not set'}" for it in found
    )
    options = [
        f" --dlperf-set {quote(f'{system}.env.{one.name}={one.now}')}"
        for one in found
        if one.name in session.environment
    ]
    raise UsageError(
        f"runs are not launched as those of the session of {started[:16].replace('T', ' ')}: "
        f"{told}. They need its system files, and its options behind --, as in "
        f"-- bench_tests{''.join(options).replace(_MASKED, 'VALUE')}"
    )
