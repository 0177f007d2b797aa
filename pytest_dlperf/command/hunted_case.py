"""What ``bisect`` and ``why`` share: the case, what is known of it, and how a hunt is told."""

from __future__ import annotations

import math
import os
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.command.project import SUITE_FOLDER, read_project
from pytest_dlperf.command.shell import (
    Style,
    chosen_cases,
    file_argument,
    integer_argument,
    path_argument,
    text_argument,
    write_report,
)
from pytest_dlperf.config.launch_variables import strongest
from pytest_dlperf.culprit import words
from pytest_dlperf.culprit.checkouts import SHORT, Checkout, Workshop
from pytest_dlperf.culprit.hunt import Shape, ends_of, hunt_of, of_nights
from pytest_dlperf.culprit.hunting import (
    MIN_END_RUNS,
    Answer,
    Budget,
    Hunting,
    Progress,
    Question,
)
from pytest_dlperf.culprit.journal import (
    HUNTS,
    FoundEntry,
    Journal,
    KnownEnds,
    named_by,
    note_found,
)
from pytest_dlperf.culprit.trial import Trials, measuring
from pytest_dlperf.files.ci import step_summary
from pytest_dlperf.history.case_history import history_of
from pytest_dlperf.history.nights import machines_of, origin_of, runs_of
from pytest_dlperf.history.series import Series
from pytest_dlperf.history.store import History
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.judgement import FoundCulprit
from pytest_dlperf.model.measurement import LaunchFacts  # noqa: TC001 - msgspec reads the type
from pytest_dlperf.model.metric import MEMBER, Better, Metric
from pytest_dlperf.model.numbers import counted
from pytest_dlperf.plugin.suite import Suite, load_suite

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator, Sequence

    from pytest_dlperf.culprit.axes import Commits
    from pytest_dlperf.culprit.trial import Setup
    from pytest_dlperf.model.case import Case
    from pytest_dlperf.model.measurement import Fingerprint
    from pytest_dlperf.model.results import Origin

ABORTED: Final = 128
_PERCENT: Final = 100
_NIGHTS: Final = 90
"""So many of the last ones show the noise."""


class KnownNight(Struct, frozen=True, kw_only=True):
    """A whole night of the history: the commits of its checkouts, its launch and its runs."""

    started: str
    verdict: str | None
    commits: frozenset[str]
    launch: LaunchFacts | None
    runs: tuple[float, ...]


class HuntedCase(Struct, frozen=True, kw_only=True):
    """One metric of a case, and how the user's sessions measure it."""

    suite: Suite
    case: Case
    metric: Metric
    arguments: tuple[str, ...]
    """Of pytest, as in the user's own sessions."""
    spread: float | None = None
    """How much nights differ beyond their runs, by the history."""
    sessions: tuple[tuple[float, ...], ...] = ()
    """Runs of its nights."""
    nights: tuple[KnownNight, ...] = ()

    @property
    def series(self) -> Series:
        """The series of its nights."""
        cluster = self.suite.cluster
        return Series.of(
            self.case, self.metric, cluster=cluster.name, estimator=cluster.estimator.value
        )

    @property
    def python(self) -> str:
        """The trainer's Python, as far as settings say; else this one."""
        settings, cluster = self.suite.settings, self.suite.cluster
        holding = strongest(self.case.system, (settings.launch_settings, cluster.settings))
        python = holding.get(("python", ""))
        return sys.executable if python is None else python.text


def add_hunting(parser: ArgumentParser) -> None:
    """Declare what all hunts take."""
    parser.add_argument(
        "--metric",
        type=text_argument,
        metavar="NAME",
        help="the metric that changed (default: throughput, and the main metric of a probe)",
    )
    parser.add_argument(
        "--certainty",
        dest="error",
        type=_allowed_error,
        default=0.05,
        metavar="PERCENT",
        help="stop when the answer is so sure (default: 95)",
    )
    parser.add_argument(
        "--runs", type=integer_argument, metavar="N", help="spend so many runs at most"
    )
    parser.add_argument(
        "--minutes", type=integer_argument, metavar="N", help="run for so many minutes at most"
    )
    parser.add_argument(
        "--work",
        type=path_argument,
        default=HUNTS,
        metavar="DIR",
        help="where worktrees and what was run are kept; on hosts it has the same path "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the plan and the runs to expect; run nothing"
    )
    parser.add_argument(
        "--markdown", type=file_argument, metavar="FILE", help="write the answer as Markdown"
    )


def add_building(parser: ArgumentParser) -> None:
    """Declare how candidates are made."""
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


def _allowed_error(text: str) -> float:
    from argparse import ArgumentTypeError

    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = math.nan
    if not 50 < percent < _PERCENT:  # noqa: PLR2004 - less is no answer
        raise ArgumentTypeError(f"{text!r} is not a certainty between 50 and 100 percent")
    return 1 - percent / _PERCENT


def hunted_case(options: Namespace, case_id: str) -> HuntedCase:
    """Read the suite as sessions do, and what the history knows of the case.

    Raises:
        UsageError: There is no such case or metric, or it cannot be hunted.
    """
    project = read_project(options)
    suite = load_suite(
        project.settings, more_files=project.more_files, more_formats=project.more_formats
    )
    ids = chosen_cases((case.id for case in suite.cases), [case_id], "there is no case")
    if len(ids) > 1:
        raise UsageError(f"{case_id!r} stands for {len(ids)} cases; name one")
    case = next(case for case in suite.cases if case.id in ids)
    try:
        metric = suite.metric(case, options.metric) if options.metric else suite.main_metric(case)
    except ValueError as error:
        raise UsageError(f"--metric: {error}") from error
    if metric.is_family:
        raise UsageError(
            f"--metric: {metric.name} is a family; name a metric of it, such as "
            f"{metric.name}{MEMBER}NAME"
        )
    if metric.ratio_of is not None:
        raise UsageError(
            f"--metric: {metric.name} is a ratio of two cases; hunt the {metric.ratio_of} of the "
            "one that changed"
        )
    if metric.better is None:
        raise UsageError(f"--metric: {metric.name} has no direction that is better")
    arguments = options.for_pytest or ([SUITE_FOLDER] if Path(SUITE_FOLDER).is_dir() else [])
    found = HuntedCase(suite=suite, case=case, metric=metric, arguments=tuple(arguments))
    with History.read_if_there(project.settings.history_file, busy_s=10) as history:
        if history is None:
            return found
        known = history_of(history, found.series, until=math.inf, machines=machines_of(history))
        nights = {one.measurement_id: one for one in known.nights[-_NIGHTS:] if not one.broken}
        runs = {night: tuple(found) for night, found in runs_of(history, nights).items()}
        origins = {night: origin_of(history, night) for night in runs}
        night_noise = known.night_noise_percent
        return replace(
            found,
            spread=None if night_noise is None else night_noise / _PERCENT,
            sessions=tuple(one for one in runs.values() if len(one) > 1 and min(one) > 0),
            nights=tuple(
                KnownNight(
                    started=night.started,
                    verdict=night.verdict_word,
                    commits=frozenset(_commits(*origins[number])),
                    launch=taken.launch if (taken := origins[number][1]) is not None else None,
                    runs=runs[number],
                )
                for number, night in nights.items()
                if number in runs
            ),
        )


def _commits(origin: Origin, fingerprint: Fingerprint | None) -> Iterator[str]:
    """Yield the commits that a night was a night of: changed files are of none."""
    every = [origin.commit or "", *(fingerprint.commits.values() if fingerprint else ())]
    yield from (commit[:SHORT] for commit in every if commit and "+" not in commit)


def planned_launch(options: Namespace, hunted: HuntedCase, setup: Setup) -> LaunchFacts | None:
    """Say how a run would be launched; ``None`` where its session cannot start."""
    folder = Path(options.work) / "plans"
    trials = Trials(folder, hunted.case.id, hunted.metric.name, hunted.arguments)
    return trials.planned(setup, hunted.suite.cluster.directory.parent)


def ends_by_nights(
    hunted: HuntedCase, ends: tuple[str, str], launch: LaunchFacts, candidates: int, error: float
) -> KnownEnds | None:
    """Return what nights at two commits tell of both ends; ``None`` where that is not enough.

    Commits are named by their first twelve digits, as in fingerprints. Nights with another launch
    differ by more than commits.
    """
    first, last = (
        [
            one
            for night in hunted.nights
            if commit in night.commits and night.launch == launch
            for one in night.runs
            if one > 0
        ]
        for commit in ends
    )
    if min(len(first), len(last)) < MIN_END_RUNS:
        return None
    better = hunted.metric.better or Better.HIGHER
    others = [
        night.runs for night in hunted.nights if not night.commits & {*ends} and min(night.runs) > 0
    ]
    levels = ends_of(first, last, better, sessions=others)
    if levels is None or not levels.is_loss:
        return None
    found = hunt_of(levels, candidates, hunted.spread, error)
    return KnownEnds(hunt=of_nights(found), good=levels.good, bad=levels.bad)


def hunt(options: Namespace, hunted: HuntedCase, question: Question, style: Style) -> Answer:
    """Hunt, going on from what was done before; each run is told.

    Raises:
        DlperfError: As ``Hunting.answer``.
    """
    identity = {
        "case": question.case_id,
        "metric": question.metric.name,
        "kind": question.kind,
        "candidates": [question.good.name, *(one.name for one in question.candidates)],
        "arguments": measuring(hunted.arguments),
        "system": hunted.suite.systems[hunted.case.system].file.read_text(encoding="utf-8"),
        "build": options.build,
        "error": options.error,
    }
    folder = Path(options.work) / named_by(identity)
    journal = Journal(folder, identity)
    try:
        if journal.trials:
            done = sum(one.value is not None for one in journal.trials)
            style.show([f"going on after {counted(done, 'run')}, in {folder}"])
        return Hunting(
            question,
            journal,
            Trials(folder / "runs", question.case_id, question.metric.name, hunted.arguments),
            Budget(
                error=options.error,
                runs=options.runs,
                seconds=None if options.minutes is None else 60 * options.minutes,
            ),
            tell=lambda progress: _show(progress, question, style),
        ).answer()
    finally:
        journal.release()


def _show(progress: Progress, question: Question, style: Style) -> None:
    style.show(words.progress_lines(progress, question, now=datetime.now().astimezone()))
    sys.stdout.flush()  # a CI's log is read along


def tell(answers: Sequence[Answer], options: Namespace, hunted: HuntedCase, style: Style) -> None:
    """Print the answers, and write them where they are asked for."""
    style.show(words.text_lines(answers))
    last, history = answers[-1], hunted.suite.settings.history_file
    if last.culprits and history is not None:
        at = datetime.now().astimezone().isoformat(timespec="seconds")
        said = words.headline(last).removeprefix(words.FOUND)
        found = FoundCulprit(said, dict(words.facts(last)))
        commits = tuple(one.commit for one in last.culprits if one.commit is not None)
        entry = FoundEntry(
            case_id=last.question.case_id,
            metric=last.question.metric.name,
            at=at,
            found=found,
            commits=commits if len(commits) == len(last.culprits) else (),
        )
        note_found(history, entry)
    text = words.markdown(answers)
    if options.markdown is not None:
        write_report("--markdown", Path(options.markdown), text)
    summary = step_summary(os.environ)
    if summary:
        with Path(summary).open("a", encoding="utf-8") as file:
            file.write(text)


# ------------------------------------------------------------------------------- commits


def workshop_of(options: Namespace, checkout: Checkout) -> Workshop:
    """Make worktrees of a checkout as the options build them."""
    name = named_by({"build": options.build, "root": str(checkout.root)})
    folder = Path(options.work) / f"trees-{name}"
    return Workshop(checkout, folder, options.build, options.build_limit)


def within(question: Question, answer: Answer, commits: Commits) -> Question:
    """Ask for the culprit among commits, by the levels that are known of both ends."""
    good, *candidates = commits.row
    known = answer.ends.hunt
    # Another build may have a slightly other level.
    hunt = replace(
        known,
        weights=(1.0,) * len(candidates),
        shape=Shape.ORDERED,
        level_error=max(known.level_error, known.spread),
        measured_in=None,
    )
    return replace(
        question,
        kind="commit",
        good=good,
        candidates=tuple(candidates),
        setup=commits.setup,
        known=replace(answer.ends, hunt=hunt),
    )
