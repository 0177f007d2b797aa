"""``pytest-dlperf bisect``: which commit, or which other difference, changed a case's number."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from pytest_dlperf.command.bisected_case import BisectedCase, bisected_case
from pytest_dlperf.command.main import FAULTS, FINE
from pytest_dlperf.command.shell import (
    PYTEST_ARGUMENTS,
    Style,
    file_argument,
    folder_argument,
    integer_argument,
    path_argument,
    text_argument,
    write_report,
)
from pytest_dlperf.culprit import words
from pytest_dlperf.culprit.bisection import (
    MIN_END_RUNS,
    Answer,
    Bisection,
    Budget,
    NotFoundError,
    Question,
)
from pytest_dlperf.culprit.candidates import Candidate, Row, commits_of, differences_of
from pytest_dlperf.culprit.checkouts import SHORT, Checkout, Workshop
from pytest_dlperf.culprit.journal import (
    WORK,
    FoundCommit,
    FoundEntry,
    Journal,
    Run,
    note_found,
)
from pytest_dlperf.culprit.search import Levels, Search
from pytest_dlperf.culprit.trial import AbortedError, Trials, interruptible
from pytest_dlperf.files.ci import step_summary
from pytest_dlperf.gate.noise import pooled_noise
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.judgement import FoundCulprit
from pytest_dlperf.model.numbers import counted, quantity

ABORTED: Final = 128
NOT_TOLD_APART: Final = 125
"""Only what cannot be built or measured is left between the suspects."""
_LISTED: Final = 12


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Find what changed a number, by as few runs of the case as its noise allows: a commit of "
        "GOOD..BAD; without a range, what differs between the last good session and the last one. "
        "Each commit gets a worktree, and is run by the same launchers and leases as a session. "
        "A search that was interrupted goes on when the same command is given again."
    )
    parser.epilog = (
        f"{PYTEST_ARGUMENTS} Exit codes: 0 found, 1 nothing found, 2 misused, 125 some cannot be "
        "told apart as what lies between cannot be measured, 128 aborted: give the command again."
    )
    parser.add_argument("range", type=text_argument, metavar="GOOD..BAD", nargs="?")
    parser.add_argument("--case", required=True, type=text_argument, metavar="CASE")
    parser.add_argument(
        "--metric",
        type=text_argument,
        metavar="NAME",
        help="the metric that changed (default: throughput, and the main metric of a probe)",
    )
    parser.add_argument("--yes", action="store_true", help="start without asking")
    parser.add_argument(
        "--repository",
        type=folder_argument,
        default=".",
        metavar="DIR",
        help="the checkout with GOOD..BAD (default: this folder's); sessions see a worktree in its "
        "place",
    )
    parser.add_argument(
        "--build", type=text_argument, metavar="CMD", help="build a worktree: a shell's command"
    )
    parser.add_argument(
        "--build-limit",
        type=integer_argument,
        default=3600,
        metavar="SECONDS",
        help="end a build that takes longer (default: %(default)s)",
    )
    parser.add_argument(
        "--runs",
        type=integer_argument,
        metavar="N",
        help="spend so many runs and builds at most, failed ones included",
    )
    parser.add_argument(
        "--minutes", type=integer_argument, metavar="N", help="build and run for so long at most"
    )
    parser.add_argument(
        "--work",
        type=path_argument,
        default=WORK,
        metavar="DIR",
        help="where worktrees and what was run are kept; on hosts it has the same path "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--markdown", type=file_argument, metavar="FILE", help="write the answer as Markdown"
    )


def run(options: Namespace) -> int:
    """Search, and return the exit code."""
    style = Style(sys.stdout)
    bisected = bisected_case(options)
    try:
        with interruptible():
            if options.range is None:
                question = _among_differences(options, bisected, style)
            else:
                question = _among_commits(options, bisected)
            style.show(_plan(question))
            if not options.yes and not _is_agreed():
                return FAULTS
            answer = _answer(options, bisected, question, style)
    except NotFoundError as error:
        style.show([style(str(error), "bold", "red")])
        return FAULTS
    except AbortedError as error:
        style.show([f"aborted: {error}. The same command goes on from here"])
        return ABORTED
    _tell(answer, options, bisected, style)
    if not answer.culprits:
        return FAULTS
    return FINE if len(answer.culprits) == 1 else NOT_TOLD_APART


# ------------------------------------------------------------------------- the question


def _row(
    options: Namespace, bisected: BisectedCase, candidates: Sequence[Candidate], good: str
) -> Row:
    def workshop(checkout: Checkout) -> Workshop:
        name = _digest(options.build, checkout.root)
        folder = Path(options.work) / f"trees-{name}"
        return Workshop(checkout, folder, options.build, options.build_limit)

    return Row(
        candidates,
        good=good,
        workshop=workshop,
        suite_cluster=bisected.suite.cluster.directory if options.range else None,
    )


def _digest(*parts: object) -> str:
    return sha256(repr(parts).encode()).hexdigest()[:SHORT]


def _among_commits(options: Namespace, bisected: BisectedCase) -> Question:
    good, dots, bad = options.range.partition("..")
    if not dots or not good or bad.startswith("."):
        raise UsageError(f"{options.range!r} is not GOOD..BAD: two commits, the good one first")
    checkout = Checkout(Path(options.repository))
    checkout.check_clean()
    candidates = commits_of(checkout, good, bad or "HEAD")
    row = _row(options, bisected, candidates, checkout.commit(good).name)
    red = bisected.red_session(candidates[-1].name)
    return _question(bisected, row, "commit", red=red)


def _among_differences(options: Namespace, bisected: BisectedCase, style: Style) -> Question:
    case, (good, bad) = bisected.case, bisected.good_and_bad()
    unit, day = bisected.metric.unit, slice(10)
    numbers = [f"{quantity(it.median, unit)} on {it.started[day]}" for it in (good, bad)]
    style.show([f"{case.id}, {bisected.metric.name}: {', '.join(numbers)}; what differs:"])
    found = differences_of(good.taken_on, bad.taken_on, bisected.checkouts, case.system)
    for one in found:
        title = f" {one.commit.title}" if one.commit is not None else ""
        style.show([f"  {one.words}{title}{f'; not settable: {one.why_not}' * bool(one.why_not)}"])
    if not found:
        raise NotFoundError(
            f"{case.id}: nothing recorded differs; look at hosts, data and the session itself"
        )
    settable = [one for one in found if not one.why_not]
    if not settable:
        raise NotFoundError(f"{case.id}: nothing that differs can be put back; look at it first")
    row = _row(options, bisected, settable, good.started[day])
    not_tried = tuple(one.words for one in found if one.why_not)
    hosts = bad.taken_on.hosts
    return _question(bisected, row, "difference", red=bad, hosts=hosts, not_tried=not_tried)


def _question(bisected: BisectedCase, row: Row, kind: str, **known: Any) -> Question:
    return Question(
        case_id=bisected.case.id,
        metric=bisected.metric,
        row=row,
        kind=kind,
        sessions=bisected.sessions,
        **known,
    )


def _plan(question: Question) -> Iterator[str]:
    """Say what would be measured, and how many runs that may take."""
    candidates = question.row.candidates
    yield f"{question.case_id}, {question.metric.name}: {counted(question.last, question.kind)}"
    if question.kind == "commit":
        yield f"  good: {question.row.good}"
        shown = candidates if question.last <= _LISTED else candidates[-1:]
        if question.last > len(shown):
            yield f"  {question.last - len(shown)} more"
        for one in shown:
            yield f"  {one.name} {one.commit.title if one.commit else ''}".rstrip()
    pooled = pooled_noise(question.sessions)
    for times in (1.5, 3.0):
        levels = Levels(good=1.0, bad=1.0, loss=times, noise=1.0)
        runs = Search(question.last, levels).runs_left() + 2 * MIN_END_RUNS
        loss = f"{times:g} times the noise"
        if pooled is not None:
            loss = f"{100 * times * pooled.deviation:.1f} % ({loss}, by the history)"
        yield f"  runs to expect for a loss of {loss}: {runs:.0f}"


def _is_agreed() -> bool:
    if not sys.stdin.isatty():
        raise UsageError("nothing was run; --yes starts it without asking")
    print("start? [y/N] ", end="", flush=True)  # noqa: T201 - a question
    return sys.stdin.readline().strip().lower() in ("y", "yes")


# --------------------------------------------------------------------------- the search


def _answer(options: Namespace, bisected: BisectedCase, question: Question, style: Style) -> Answer:
    """Search, going on from what was done before; each run is told."""
    candidates = [one.words for one in question.row.candidates]
    identity = {
        "case": question.case_id,
        "metric": question.metric.name,
        "candidates": [question.row.good, *candidates],
        "arguments": bisected.arguments,
        "system": bisected.suite.systems[bisected.case.system].file.read_text(encoding="utf-8"),
        "build": options.build,
    }
    folder = Path(options.work) / _digest(*identity.items())
    journal = Journal(folder)
    try:
        if journal.runs:
            style.show([f"going on after {counted(len(journal.runs), 'run')}, in {folder}"])
        return Bisection(
            question,
            journal,
            Trials(folder / "runs", question.case_id, bisected.arguments),
            Budget(runs=options.runs, seconds=options.minutes and 60 * options.minutes),
            tell=lambda runs, left: _show(question, runs, left, style),
        ).answer()
    finally:
        journal.release()


def _show(question: Question, runs: Sequence[Run], left: float | None, style: Style) -> None:
    style.show([words.progress_line(question, runs, left, now=datetime.now().astimezone())])
    sys.stdout.flush()  # a CI's log is read along


def _tell(answer: Answer, options: Namespace, bisected: BisectedCase, style: Style) -> None:
    """Print the answer, and write it where it is asked for."""
    style.show(words.text_lines(answer))
    history = bisected.suite.settings.history_file
    if answer.culprits and history is not None:
        said = words.headline(answer).removeprefix(words.FOUND)
        commits = tuple(
            FoundCommit(repository=str(one.checkout.root), name=one.name)
            for one in answer.culprits
            if one.checkout is not None and one.commit is not None
        )
        entry = FoundEntry(
            case_id=answer.question.case_id,
            metric=answer.question.metric.name,
            at=datetime.now().astimezone().isoformat(timespec="seconds"),
            found=FoundCulprit(said, dict(words.facts(answer))),
            commits=commits if len(commits) == len(answer.culprits) else (),
        )
        note_found(history, entry)
    text = words.markdown(answer)
    if options.markdown is not None:
        write_report("--markdown", Path(options.markdown), text)
    summary = step_summary(os.environ)
    if summary:
        with Path(summary).open("a", encoding="utf-8") as file:
            file.write(text)
