"""``pytest-dlperf bisect``: which commit, image or version changed a case's number."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_dlperf.command.hunted_case import (
    ABORTED,
    HuntedCase,
    add_building,
    add_hunting,
    ends_by_nights,
    hunt,
    hunt_inside,
    hunted_case,
    packages_of,
    tell,
    workshop_of,
)
from pytest_dlperf.command.main import FAULTS, FINE
from pytest_dlperf.command.shell import (
    PYTEST_ARGUMENTS,
    Style,
    file_argument,
    folder_argument,
    text_argument,
)
from pytest_dlperf.culprit.axes import Axis, Commits, images_of
from pytest_dlperf.culprit.checkouts import Checkout
from pytest_dlperf.culprit.hunt import Hunt, Outcome
from pytest_dlperf.culprit.hunting import MIN_END_RUNS, NotFoundError, Question
from pytest_dlperf.culprit.search import forecast
from pytest_dlperf.culprit.trial import AbortedError, interruptible
from pytest_dlperf.gate.noise import pooled_noise
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.numbers import counted

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator


NOT_TOLD_APART: Final = 125
"""Only what cannot be built or measured is left between the suspects."""
_WEIGHT_OF_TOUCHED: Final = 5.0
_LISTED: Final = 12


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Find the commit that changed a number, by as few runs of the case as its noise allows. "
        "Each commit gets a worktree, is built once, and is run by the same launchers and leases "
        "as a session. A hunt that was interrupted goes on when the same command is given again."
    )
    parser.epilog = (
        f"{PYTEST_ARGUMENTS} Exit codes: 0 found, 1 nothing found, 2 misused, 125 some cannot be "
        "told apart as what lies between cannot be measured, 128 aborted: give the command again."
    )
    parser.add_argument("range", nargs="?", type=text_argument, metavar="GOOD..BAD")
    parser.add_argument("--case", required=True, type=text_argument, metavar="CASE")
    parser.add_argument(
        "--repository",
        type=folder_argument,
        default=".",
        metavar="DIR",
        help="the checkout with these commits (default: this folder's); sessions see a worktree "
        "in its place",
    )
    parser.add_argument(
        "--prior-paths",
        action="append",
        type=text_argument,
        metavar="PATH",
        help="suspect commits more that touch it; may be given several times",
    )
    parser.add_argument(
        "--images",
        type=file_argument,
        metavar="FILE",
        help="look along the images in this file, a name a line, the good one first",
    )
    parser.add_argument(
        "--image-option",
        type=text_argument,
        default="container.image={image}",
        metavar="OPTION",
        help="what sets an image, as in --dlperf-set SYSTEM.OPTION (default: %(default)s)",
    )
    parser.add_argument(
        "--package",
        type=text_argument,
        metavar="NAME==OLD..NEW",
        help="look along the versions of a package",
    )
    add_building(parser)
    add_hunting(parser)


def run(options: Namespace) -> int:
    """Hunt, and return the exit code."""
    style = Style(sys.stdout)
    given = [options.range, options.images, options.package]
    if sum(one is not None for one in given) != 1:
        raise UsageError("name what to look along: GOOD..BAD, --images FILE or --package")
    hunted = hunted_case(options, options.case)
    axis = _axis(options, hunted)
    question = _question(options, hunted, axis)
    if options.dry_run:
        style.show(_plan(question, options))
        return FINE
    try:
        with interruptible():
            answers = [hunt(options, hunted, question, style)]
            answers += hunt_inside(options, hunted, question, answers[0], axis, style)
    except NotFoundError as error:
        style.show([style(str(error), "bold", "red")])
        return FAULTS
    except AbortedError as error:
        style.show([f"aborted: {error}. The same command goes on from here"])
        return ABORTED
    tell(answers, options, hunted, style)
    outcome, is_one = answers[0].finding.outcome, answers[0].sole_culprit is not None
    if outcome is Outcome.FOUND:
        return FINE if is_one else NOT_TOLD_APART
    return FINE if outcome is Outcome.PAIR else FAULTS


def _axis(options: Namespace, hunted: HuntedCase) -> Axis:
    suite = Path.cwd()
    if options.images is not None:
        option = f"{hunted.case.system}.{options.image_option}"
        return images_of(Path(options.images), option, suite)
    if options.package is not None:
        return packages_of(options, hunted).of_text(options.package, suite)
    good, dots, bad = options.range.partition("..")
    if not dots or not good or bad.startswith("."):
        raise UsageError(f"{options.range!r} is not GOOD..BAD: two commits, the good one first")
    checkout = Checkout(Path(options.repository))
    checkout.check_clean()
    commits = checkout.between(good, bad or "HEAD")
    workshop = workshop_of(options, checkout)
    row = (checkout.commit(good), *commits)
    return Commits(workshop=workshop, commits=row, suite=suite).axis()


def _question(options: Namespace, hunted: HuntedCase, axis: Axis) -> Question:
    weights, known = _weights(options, axis), None
    if axis.commits is not None:
        ends = (axis.row[0].name, axis.row[-1].name)
        known = ends_by_nights(hunted, *ends, weights, options.error)
    return Question(
        case_id=hunted.case.id,
        metric=hunted.metric,
        kind=axis.kind,
        good=axis.good,
        candidates=axis.candidates,
        weights=weights,
        known=known,
        setup=axis.setup,
        sessions=hunted.sessions,
        spread=hunted.spread,
    )


def _weights(options: Namespace, axis: Axis) -> tuple[float, ...]:
    if not options.prior_paths or axis.commits is None:
        return tuple(1.0 for _ in axis.candidates)
    good, *others = axis.commits.commits
    touched = axis.commits.owner.touched(good, others[-1], tuple(options.prior_paths))
    if not touched:
        named = ", ".join(options.prior_paths)
        raise UsageError(f"--prior-paths: none of these commits touches {named}")
    return tuple(_WEIGHT_OF_TOUCHED if one.name in touched else 1.0 for one in others)


def _plan(question: Question, options: Namespace) -> Iterator[str]:
    """Say what would be measured, and how many runs that may take."""
    names = [one.name for one in question.candidates]
    yield f"{question.case_id}, {question.metric.name}: {counted(len(names), question.kind)}"
    yield f"  good: {question.good.name} {question.good.title}".rstrip()
    shown = question.candidates if len(names) <= _LISTED else question.candidates[-1:]
    if len(names) > len(shown):
        yield f"  {len(names) - len(shown)} more"
    for one in shown:
        yield f"  {one.name} {one.title}".rstrip()
    pooled = pooled_noise(question.sessions)
    noise = pooled.deviation if pooled is not None else None
    for times in (1.5, 2.0, 3.0, 5.0):
        hunt = Hunt(weights=question.weights, loss=times, noise=1.0, error=options.error)
        runs = forecast(hunt).runs + 2 * MIN_END_RUNS
        loss = f"{times:g} times the noise"
        if noise is not None:
            loss = f"{100 * times * noise:.1f} % ({loss}, by the history)"
        yield f"  runs to expect for a loss of {loss}: {runs:.0f}"
