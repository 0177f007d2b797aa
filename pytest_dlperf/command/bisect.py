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

from msgspec.structs import replace

from pytest_dlperf.command.bisected_case import BisectedCase, bisected_case
from pytest_dlperf.command.main import FAULTS, FINE
from pytest_dlperf.command.shell import (
    PYTEST_ARGUMENTS,
    Style,
    add,
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
from pytest_dlperf.culprit.journal import WORK, FoundCommit, FoundEntry, Journal, Run, note_found
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
_OPTIONS: Final[Sequence[tuple[str, str, Any, Any, str]]] = (
    ("--repository", "DIR", folder_argument, ".", "the checkout with GOOD..BAD (default: here)"),
    ("--build", "CMD", text_argument, None, "build a worktree: a shell's command"),
    ("--build-limit", "SECONDS", integer_argument, 3600, "for one build (default: %(default)s)"),
    ("--runs", "N", integer_argument, None, "spend so many runs and builds at most"),
    ("--minutes", "N", integer_argument, None, "build and run for so long at most"),
    ("--work", "DIR", path_argument, WORK, "for worktrees and runs (default: %(default)s)"),
)


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
    main = "throughput, and the main metric of a probe"
    add(parser, "--metric", help=f"the metric that changed (default: {main})")
    parser.add_argument("--yes", action="store_true", help="start without asking")
    for name, metavar, kind, default, text in _OPTIONS:
        parser.add_argument(name, metavar=metavar, type=kind, default=default, help=text)
    add(parser, "--markdown", help="write the answer as Markdown too")


def run(options: Namespace) -> int:
    """Search, and return the exit code."""
    style = Style(sys.stdout)
    bisected = bisected_case(options)
    try:
        with interruptible():
            ask = _among_commits if options.range else _among_differences
            question = ask(options, bisected, style)
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
    style.show(words.text_lines(answer))
    text = words.markdown(answer)
    if options.markdown is not None:
        write_report("--markdown", Path(options.markdown), text)
    if summary := step_summary(os.environ):
        with Path(summary).open("a", encoding="utf-8") as file:
            file.write(text)
    if not answer.culprits:
        return FAULTS
    if (history := bisected.suite.settings.history_file) is not None:
        note_found(history, _entry(answer))
    return FINE if len(answer.culprits) == 1 else NOT_TOLD_APART


def _entry(answer: Answer) -> FoundEntry:
    """Note the answer for the explanations of later sessions."""
    commits = tuple(
        FoundCommit(repository=str(culprit.checkout.root), name=culprit.name)
        for culprit in answer.culprits
        if culprit.checkout is not None and culprit.commit is not None
    )
    said = words.headline(answer).removeprefix(words.FOUND)
    return FoundEntry(
        case_id=answer.question.case_id,
        metric=answer.question.metric.name,
        at=datetime.now().astimezone().isoformat(timespec="seconds"),
        found=FoundCulprit(said, dict(words.facts(answer))),
        commits=commits if len(commits) == len(answer.culprits) else (),
    )


# ------------------------------------------------------------------------- the question


def _question(
    options: Namespace, bisected: BisectedCase, candidates: Sequence[Candidate], good: str
) -> Question:
    def workshop(checkout: Checkout) -> Workshop:
        folder = Path(options.work) / f"trees-{_digest(options.build, checkout.root)}"
        return Workshop(checkout, folder, options.build, options.build_limit)

    row = Row(
        candidates,
        good=good,
        workshop=workshop,
        suite_cluster=bisected.suite.cluster.directory if options.range else None,
    )
    return Question(
        case_id=bisected.case.id,
        metric=bisected.metric,
        row=row,
        kind="commit" if options.range else "difference",
        sessions=bisected.sessions,
    )


def _digest(*parts: object) -> str:
    return sha256(repr(parts).encode()).hexdigest()[:SHORT]


def _among_commits(options: Namespace, bisected: BisectedCase, _: Style) -> Question:
    good, dots, bad = options.range.partition("..")
    if not dots or not good or bad.startswith("."):
        raise UsageError(f"{options.range!r} is not GOOD..BAD: two commits, the good one first")
    checkout = Checkout(Path(options.repository))
    checkout.check_clean()
    candidates = commits_of(checkout, good, bad or "HEAD")
    question = _question(options, bisected, candidates, checkout.commit(good).name)
    return replace(question, red=bisected.red_session(candidates[-1].name))


def _among_differences(options: Namespace, bisected: BisectedCase, style: Style) -> Question:
    case, (good, bad) = bisected.case, bisected.good_and_bad()
    unit, day = bisected.metric.unit, slice(10)
    numbers = [f"{quantity(it.median, unit)} on {it.started[day]}" for it in (good, bad)]
    style.show([f"{case.id}, {bisected.metric.name}: {', '.join(numbers)}; what differs:"])
    differing = differences_of(good.taken_on, bad.taken_on, bisected.checkouts, case.system)
    for candidate in differing:
        title = f" {candidate.commit.title}" if candidate.commit is not None else ""
        problem = f"; not settable: {candidate.why_not}" if candidate.why_not else ""
        style.show([f"  {candidate.words}{title}{problem}"])
    settable = [candidate for candidate in differing if not candidate.why_not]
    if not settable:
        raise NotFoundError(
            f"{case.id}: nothing that differs can be put back; look at it first"
            if differing
            else f"{case.id}: nothing recorded differs; look at hosts, data and the session itself"
        )
    question = _question(options, bisected, settable, good.started[day])
    not_tried = tuple(candidate.words for candidate in differing if candidate.why_not)
    return replace(question, red=bad, hosts=bad.taken_on.hosts, not_tried=not_tried)


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


def _answer(options: Namespace, bisected: BisectedCase, question: Question, style: Style) -> Answer:
    """Search, going on from what was done before; each run is told."""
    identity = (
        question.case_id,
        question.metric.name,
        [question.row.good, *(one.words for one in question.row.candidates)],
        bisected.arguments,
        bisected.suite.systems[bisected.case.system].file.read_text(encoding="utf-8"),
        options.build,
    )

    def tell(runs: Sequence[Run], left: float | None) -> None:
        style.show([words.progress_line(question, runs, left, now=datetime.now().astimezone())])
        sys.stdout.flush()  # a CI's log is read along

    folder = Path(options.work) / _digest(*identity)
    journal = Journal(folder)
    try:
        if journal.runs:
            style.show([f"going on after {counted(len(journal.runs), 'run')}, in {folder}"])
        trials = Trials(folder / "runs", question.case_id, bisected.arguments)
        budget = Budget(runs=options.runs, seconds=options.minutes and 60 * options.minutes)
        return Bisection(question, journal, trials, budget, tell=tell).answer()
    finally:
        journal.release()
