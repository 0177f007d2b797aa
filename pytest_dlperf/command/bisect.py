"""``pytest-dlperf bisect``: which commit changed a case's number."""

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
    hunted_case,
    planned_launch,
    tell,
    workshop_of,
)
from pytest_dlperf.command.main import FAULTS, FINE
from pytest_dlperf.command.shell import (
    PYTEST_ARGUMENTS,
    Style,
    folder_argument,
    text_argument,
)
from pytest_dlperf.culprit.axes import Commits
from pytest_dlperf.culprit.checkouts import BuildError, Checkout
from pytest_dlperf.culprit.differences import check_launch
from pytest_dlperf.culprit.hunt import Hunt, Outcome
from pytest_dlperf.culprit.hunting import MIN_END_RUNS, NotFoundError, Question
from pytest_dlperf.culprit.search import forecast
from pytest_dlperf.culprit.trial import AbortedError, interruptible
from pytest_dlperf.gate.noise import pooled_noise
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.numbers import counted

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator

    from pytest_dlperf.culprit.journal import KnownEnds

NOT_TOLD_APART: Final = 125
"""Only what cannot be built or measured is left between the suspects."""
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
    parser.add_argument("range", type=text_argument, metavar="GOOD..BAD")
    parser.add_argument("--case", required=True, type=text_argument, metavar="CASE")
    parser.add_argument(
        "--repository",
        type=folder_argument,
        default=".",
        metavar="DIR",
        help="the checkout with these commits (default: this folder's); sessions see a worktree "
        "in its place",
    )
    add_building(parser)
    add_hunting(parser)


def run(options: Namespace) -> int:
    """Hunt, and return the exit code."""
    style = Style(sys.stdout)
    hunted = hunted_case(options, options.case)
    try:
        with interruptible():
            question = _question(options, hunted)
            if options.dry_run:
                style.show(_plan(question, options))
                return FINE
            answer = hunt(options, hunted, question, style)
    except NotFoundError as error:
        style.show([style(str(error), "bold", "red")])
        return FAULTS
    except AbortedError as error:
        style.show([f"aborted: {error}. The same command goes on from here"])
        return ABORTED
    tell([answer], options, hunted, style)
    outcome, is_one = answer.finding.outcome, answer.sole_culprit is not None
    if outcome is Outcome.FOUND:
        return FINE if is_one else NOT_TOLD_APART
    return FINE if outcome is Outcome.PAIR else FAULTS


def _question(options: Namespace, hunted: HuntedCase) -> Question:
    good, dots, bad = options.range.partition("..")
    if not dots or not good or bad.startswith("."):
        raise UsageError(f"{options.range!r} is not GOOD..BAD: two commits, the good one first")
    checkout = Checkout(Path(options.repository))
    checkout.check_clean()
    commits = (checkout.commit(good), *checkout.between(good, bad or "HEAD"))
    axis = Commits(
        workshop=workshop_of(options, checkout),
        commits=commits,
        suite=Path.cwd(),
        cluster=hunted.suite.cluster.directory,
    )
    first, *candidates = axis.row
    return Question(
        case_id=hunted.case.id,
        metric=hunted.metric,
        kind="commit",
        good=first,
        candidates=tuple(candidates),
        known=None if options.dry_run else _known_ends(options, hunted, axis),
        setup=axis.setup,
        sessions=hunted.sessions,
        spread=hunted.spread,
    )


def _known_ends(options: Namespace, hunted: HuntedCase, axis: Commits) -> KnownEnds | None:
    """Ask nights at both ends, and refuse runs that are not launched as the last bad one was.

    Raises:
        UsageError: They would not be.
    """
    good, *others = (one.name for one in axis.row)
    at_bad = [night for night in hunted.nights if others[-1] in night.commits]
    if not at_bad:
        return None
    try:
        planned = planned_launch(options, hunted, axis.setup(len(others)))
    except BuildError:
        return None  # the hunt says so
    if planned is None:
        return None
    red = [night for night in at_bad if night.verdict != Verdict.PASS]
    if red and red[-1].launch is not None:
        check_launch(planned, red[-1].launch, red[-1].started, hunted.case.system)
    return ends_by_nights(hunted, (good, others[-1]), planned, len(others), options.error)


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
        hunt = Hunt(weights=(1.0,) * len(names), loss=times, noise=1.0, error=options.error)
        runs = forecast(hunt).runs + 2 * MIN_END_RUNS
        loss = f"{times:g} times the noise"
        if noise is not None:
            loss = f"{100 * times * noise:.1f} % ({loss}, by the history)"
        yield f"  runs to expect for a loss of {loss}: {runs:.0f}"
