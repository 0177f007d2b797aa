"""``pytest-dlperf why``: which of tonight's differences changed a case's number."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from pytest_dlperf.command.hunted_case import (
    ABORTED,
    HuntedCase,
    add_building,
    add_hunting,
    hunt,
    hunted_case,
    planned_launch,
    tell,
    within,
    workshop_of,
)
from pytest_dlperf.command.main import FAULTS, FINE
from pytest_dlperf.command.shell import PYTEST_ARGUMENTS, Style, text_argument
from pytest_dlperf.culprit.axes import Candidate, Commits, PackageSource
from pytest_dlperf.culprit.checkouts import SHORT, Checkout
from pytest_dlperf.culprit.differences import PuttingBack, Suspect, check_launch, suspects_of
from pytest_dlperf.culprit.hunt import (
    MAX_DIFFERENCES,
    Ends,
    Outcome,
    Shape,
    hunt_of,
    of_nights,
    worse_by,
)
from pytest_dlperf.culprit.hunting import NotFoundError, Question
from pytest_dlperf.culprit.journal import FoundCommit, KnownEnds
from pytest_dlperf.culprit.search import forecast
from pytest_dlperf.culprit.trial import AbortedError, Setup, interruptible
from pytest_dlperf.gate.noise import pooled_noise
from pytest_dlperf.history.nights import judged_sessions, nights_of, origin_of
from pytest_dlperf.history.series import GREEN
from pytest_dlperf.history.store import History
from pytest_dlperf.measure.case_launch import checkouts_of
from pytest_dlperf.model.commits import SUITE
from pytest_dlperf.model.differences import MeasuredOn
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.metric import Better
from pytest_dlperf.model.numbers import quantity

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Sequence

    from pytest_dlperf.culprit.hunting import Answer

_USUAL_NOISE: Final = 0.01
_USUAL_DOF: Final = 2
_LEVEL_OF_TREES: Final = 0.2
"""Part of a loss: a worktree lacks data and caches that no commit has."""


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Put what differs between the last good night and tonight back, in halves, until it is "
        "known what changed a number: variables, arguments, the image, versions of packages, the "
        "commit of the trainer's checkout. If it is the commit, the commits are searched."
    )
    parser.epilog = (
        f"{PYTEST_ARGUMENTS} Exit codes: 0 found, 1 nothing found, 2 misused, 128 aborted: give "
        "the command again."
    )
    parser.add_argument("case", type=text_argument, metavar="CASE")
    parser.add_argument(
        "--python",
        type=text_argument,
        metavar="PATH",
        help="the trainer's Python, for which packages are installed (default: what sessions set)",
    )
    add_building(parser)
    add_hunting(parser)


class Nights:
    """The last good night of a case, and tonight, as the history has them."""

    def __init__(self, hunted: HuntedCase) -> None:
        """Find them.

        Raises:
            NotFoundError: The last session has no number, passed, or no good night is known.
            UsageError: There is no history.
        """
        case = hunted.case.id
        file = hunted.suite.settings.history_file
        with History.read_if_there(file, busy_s=10) as history:
            if history is None:
                raise UsageError(f"there is no history {file}; what differs tonight is not known")
            found = judged_sessions(history, hunted.series, until=math.inf, besides="")
            if not found:
                raise UsageError(f"the history has no session that judged {case}")
            if not found[0].is_whole:
                word = found[0].verdict_word or "not judged"
                raise NotFoundError(
                    f"{case}: {word} in the last session ({found[0].started}), so there is no "
                    "number to ask about. Hosts and what they lack are not settable"
                )
            nights = nights_of(history, hunted.series, until=math.inf)
            self.tonight, *before = reversed(nights)
            verdict = self.tonight.verdict_word
            if verdict == Verdict.PASS.value:
                raise NotFoundError(f"{case}: the last session passed; there is nothing to explain")
            wanted = [word for word in GREEN if word != verdict]
            good = next((one for one in before if one.verdict_word in wanted), None)
            if good is None:
                raise NotFoundError(f"{case}: the history has no good night before the last one")
            self.good = good
            self.sides = tuple(
                MeasuredOn.of_night(fingerprint, origin.commit)
                for night in (good, self.tonight)
                for origin, fingerprint in [origin_of(history, night.measurement_id)]
                if fingerprint is not None
            )


def run(options: Namespace) -> int:
    """Try the differences apart, and return the exit code."""
    style = Style(sys.stdout)
    hunted = hunted_case(options, options.case)
    try:
        nights = Nights(hunted)
        with interruptible():
            answers = _hunted(options, hunted, nights, style)
    except NotFoundError as error:
        style.show([str(error)])
        return FAULTS
    except AbortedError as error:
        style.show([f"aborted: {error}. The same command goes on from here"])
        return ABORTED
    if not answers:
        return FINE if options.dry_run else FAULTS
    tell(answers, options, hunted, style)
    return FINE if answers[0].finding.outcome in (Outcome.FOUND, Outcome.PAIR) else FAULTS


def _hunted(options: Namespace, hunted: HuntedCase, nights: Nights, style: Style) -> list[Answer]:
    case, settings = hunted.case, hunted.suite.settings
    if len(nights.sides) < 2:  # noqa: PLR2004 - good and tonight
        raise NotFoundError(f"{case.id}: what both nights were measured on is not known")
    good, tonight = nights.sides
    sources = (settings.launch_settings, hunted.suite.cluster.settings)
    checkouts = checkouts_of(hunted.suite.systems[case.system], case, sources)
    checkouts[SUITE] = str(settings.systems_directories[0])
    suspects = suspects_of(good, tonight, checkouts, case.system)
    trees = {s.root: workshop_of(options, Checkout(Path(s.root))) for s in suspects if s.root}
    packages = PackageSource(options.python or hunted.python, Path(options.work) / "packages")
    putting_back = PuttingBack(Path.cwd(), packages, trees)
    style.show([_nights_line(hunted, nights)])
    settable = _settable(suspects, putting_back, options, style)
    if not suspects:
        text = "nothing recorded differs; look at hosts, data and the night itself"
        raise NotFoundError(f"{case.id}: {text}")
    if not settable:
        raise NotFoundError(f"{case.id}: nothing that differs can be put back; look at it first")
    _check_launch(options, hunted, nights)
    groups = _groups(settable)
    not_tried = tuple(one.words for one in suspects if one not in settable)
    question = replace(
        _question(hunted, nights, groups, putting_back, options), not_tried=not_tried
    )
    if options.dry_run:
        if question.known is not None:
            style.show([f"runs to expect: {forecast(question.known.hunt).runs:.0f}"])
        return []
    answer = hunt(options, hunted, question, style)
    while (one := _culprit(answer, groups)) is not None and len(one) > 1:
        # Of many a group was found, whose members are tried apart.
        groups = _groups(one)
        question = _question(hunted, nights, groups, putting_back, options)
        answer = hunt(options, hunted, question, style)
    answers = [answer]
    if one is not None and (root := one[0].root) is not None:
        checkout = trees[root].checkout
        ends = one[0].then, one[0].tonight
        row = (checkout.commit(ends[0]), *checkout.between(*ends))
        commits = Commits(
            workshop=trees[root],
            commits=row,
            suite=Path.cwd(),
            cluster=hunted.suite.cluster.directory,
        )
        if len(row) > 2:  # noqa: PLR2004 - between both ends lie others
            question = within(question, answer, commits)
            answers.append(hunt(options, hunted, question, style))
    return answers


def _settable(
    suspects: Sequence[Suspect], putting_back: PuttingBack, options: Namespace, style: Style
) -> list[Suspect]:
    """List all differences, and return those that can be put back."""
    found = []
    for suspect in suspects:
        why_not = suspect.why_not if options.dry_run else putting_back.why_not(suspect)
        found += [] if why_not else [suspect]
        style.show([f"  {suspect.words}; {f'not settable: {why_not}' if why_not else 'settable'}"])
        if why_not and suspect.root and suspect.then != suspect.tonight:
            style.show([f"    to do: {_bisect(suspect, suspect.root, options)}"])
    return found


def _bisect(suspect: Suspect, root: str, options: Namespace) -> str:
    """Write the command that searches the commits of a checkout."""
    command = f"pytest-dlperf bisect {suspect.then[:SHORT]}..{suspect.tonight[:SHORT]}"
    if not Path.cwd().resolve().is_relative_to(root):
        command += f" --repository {quote(root)}"
    metric = f" --metric {quote(options.metric)}" if options.metric else ""
    return f"{command} --case {quote(options.case)}{metric}"


def _check_launch(options: Namespace, hunted: HuntedCase, nights: Nights) -> None:
    """Refuse runs that are not launched as tonight's were."""
    planned = planned_launch(options, hunted, Setup(folder=str(Path.cwd())))
    tonight = nights.sides[-1].launch
    if planned is not None and tonight is not None:
        check_launch(planned, tonight, nights.tonight.started, hunted.case.system)


def _culprit(answer: Answer, groups: Sequence[tuple[Suspect, ...]]) -> tuple[Suspect, ...] | None:
    if answer.sole_culprit is None:
        return None
    return groups[[_name(group) for group in groups].index(answer.sole_culprit.name)]


def _groups(suspects: Sequence[Suspect]) -> list[tuple[Suspect, ...]]:
    """Have groups where there are more than can be tried in all combinations."""
    size = math.ceil(len(suspects) / MAX_DIFFERENCES)
    return [tuple(suspects[at : at + size]) for at in range(0, len(suspects), size)]


def _name(group: Sequence[Suspect]) -> str:
    return ", ".join(one.words for one in group)


def _question(
    hunted: HuntedCase,
    nights: Nights,
    groups: Sequence[tuple[Suspect, ...]],
    putting_back: PuttingBack,
    options: Namespace,
) -> Question:
    good, tonight = nights.good, nights.tonight
    metric, spread = hunted.metric, hunted.spread
    pooled = pooled_noise(hunted.sessions)
    noise = pooled.deviation if pooled is not None else _USUAL_NOISE
    errors = [noise / math.sqrt(one.runs) for one in (good, tonight)]
    ends = Ends(
        good=good.median,
        bad=tonight.median,
        loss=abs(worse_by(tonight.median, good.median, metric.better or Better.HIGHER)),
        loss_error=math.hypot(*errors),
        noise=noise,
        noise_dof=pooled.dof if pooled is not None else _USUAL_DOF,
        level_error=errors[0],
    )
    if ends.loss < noise / 2:
        raise NotFoundError(
            f"{hunted.case.id}: the number is that of the last good night; it may have come "
            "little by little"
        )
    hunt = of_nights(hunt_of(ends, len(groups), spread, options.error))
    has_trees = any(one.root for group in groups for one in group)
    error = math.hypot(hunt.level_error, _LEVEL_OF_TREES * hunt.loss * has_trees)
    hunt = replace(hunt, shape=Shape.SUBSETS, level_error=error)

    def setup(setting: int) -> Setup:
        is_back = [not setting >> bit & 1 for bit, group in enumerate(groups) for _ in group]
        return putting_back.setup([one for group in groups for one in group], is_back)

    return Question(
        case_id=hunted.case.id,
        metric=metric,
        kind="difference",
        good=Candidate(name=f"the night of {good.started[:10]}"),
        candidates=tuple(_candidate(group) for group in groups),
        setup=setup,
        sessions=hunted.sessions,
        spread=spread,
        hosts=nights.sides[1].hosts,
        known=KnownEnds(hunt=hunt, good=good.median, bad=tonight.median),
    )


def _candidate(group: Sequence[Suspect]) -> Candidate:
    """Name a group; of a single commit, tell whose it is."""
    if len(group) == 1 and group[0].root is not None:
        checkout = Checkout(Path(group[0].root))
        last = checkout.commit(group[0].tonight)
        if last.parents[:1] == (group[0].then,):
            return Candidate(
                name=_name(group),
                title=last.title,
                author=last.author,
                at=last.at,
                commit=FoundCommit(repository=str(checkout.root), name=last.short),
            )
    return Candidate(name=_name(group))


def _nights_line(hunted: HuntedCase, nights: Nights) -> str:
    unit = hunted.metric.unit
    return (
        f"{hunted.case.id}, {hunted.metric.name}: {quantity(nights.good.median, unit)} on "
        f"{nights.good.started[:10]}, {quantity(nights.tonight.median, unit)} on "
        f"{nights.tonight.started[:10]}; what differs:"
    )
