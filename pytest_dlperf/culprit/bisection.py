"""A search from its first run to its answer: both ends are measured, then what tells most."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.culprit.candidates import Candidate, Row, check_launch
from pytest_dlperf.culprit.checkouts import BuildError
from pytest_dlperf.culprit.journal import Journal, Run
from pytest_dlperf.culprit.search import Found, Levels, Search, Seen, as_part, levels_of, worse_by
from pytest_dlperf.culprit.trial import AbortedError, Trial, Trials
from pytest_dlperf.model import numbers
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.errors import DlperfError
from pytest_dlperf.model.measurement import Fingerprint
from pytest_dlperf.model.metric import Better, Metric
from pytest_dlperf.model.statistics import median

MIN_END_RUNS: Final = 3
_MAX_END_RUNS: Final = 8
_MAX_LEANING_RUNS: Final = 20
_LEANING: Final = 1.5
"""Ends whose difference is more standard errors are measured more often before it is given up."""


class NotFoundError(DlperfError):
    """Nothing can be searched: the ends are not what they are said to be."""


class Budget(Struct, frozen=True, kw_only=True):
    """How far one process may go; failed builds and runs count as well."""

    runs: int | None = None
    seconds: float | None = None


class KnownSession(Struct, frozen=True, kw_only=True):
    """A session of the history with the number, and what it was measured on."""

    started: str
    median: float
    taken_on: Fingerprint


class Question(Struct, frozen=True, kw_only=True):
    """Which of a row of candidates changed a number."""

    case_id: str
    metric: Metric
    row: Row
    kind: str
    """What the candidates are: ``commit`` or ``difference``."""
    sessions: tuple[tuple[float, ...], ...] = ()
    """Runs of earlier sessions, which show the noise."""
    spread: float | None = None
    """How much their levels differ, by the history; natural logarithm."""
    hosts: tuple[str, ...] = ()
    not_tried: tuple[str, ...] = ()
    """What differs as well, and cannot be put back."""
    red: KnownSession | None = None
    """The session that was bad; runs of the bad end are launched alike."""

    @property
    def last(self) -> int:
        """The setting with all candidates: the bad end."""
        return len(self.row.candidates)

    def direction(self, good: float, bad: float) -> Better:
        """Return the direction in which the bad end is worse: of a gain, the other one."""
        better = self.metric.better or Better.HIGHER
        if better.is_worse(bad, good):
            return better
        return Better.LOWER if better is Better.HIGHER else Better.HIGHER


class Progress(Struct, frozen=True, kw_only=True):
    """How a search stands after a run."""

    run: Run
    runs: int
    """All that were done, those of both ends included."""
    runs_left: float | None
    """To expect; ``None`` while the ends are measured."""
    seconds_a_run: float


class Answer(Struct, frozen=True, kw_only=True):
    """What a search says at its end."""

    question: Question
    levels: Levels
    found: Found | None
    probabilities: tuple[float, ...]
    """Of each candidate."""
    certainty: float
    """Of what is most probable."""
    runs: int
    runs_now: int
    """By this process; the others are from before an interruption."""
    seconds: float
    problems: Mapping[str, str]
    """Why settings could not be measured, by name."""
    is_out_of_budget: bool

    @property
    def culprits(self) -> tuple[Candidate, ...]:
        """The one at fault, or neighbours that cannot be told apart."""
        changes = () if self.found is None else self.found.changes
        return tuple(self.question.row.candidates[one] for one in changes)

    def change_percent(self, worse: float) -> float:
        """Turn a logarithm as the search has it into a change of the number."""
        better = self.question.direction(self.levels.good, self.levels.bad)
        sign = -1 if better is self.question.metric.better else 1
        return 100 * sign * as_part(worse, better)


class Bisection:
    """One search; ``tell`` gets each run."""

    def __init__(
        self,
        question: Question,
        journal: Journal,
        trials: Trials,
        budget: Budget,
        *,
        tell: Callable[[Progress], None],
    ) -> None:
        """Go on from what the journal has."""
        self._question, self._journal, self._trials = question, journal, trials
        self._budget, self._tell = budget, tell
        self._hosts = question.hosts or journal.hosts
        self._sitting, self._begun = journal.sitting, len(journal.runs)
        self._levels: Levels | None = None
        """``None`` while the ends are measured."""

    def answer(self) -> Answer:
        """Search until it is decided, or the budget is spent.

        Raises:
            NotFoundError: The ends do not differ as they should, or cannot be measured.
            AbortedError: It cannot go on now.
            UsageError: Runs are launched otherwise than those of the bad session.
        """
        levels = self._levels = self._measured_levels()
        search = self._searched(levels)
        while (setting := search.next_setting(self._sitting)) is not None and not self._is_spent():
            self._measure(setting)
            search = self._searched(levels)
        question, runs = self._question, self._journal.runs
        return Answer(
            question=question,
            levels=levels,
            found=search.found(),
            probabilities=tuple(search.probabilities),
            certainty=search.best()[1],
            runs=len(runs),
            runs_now=len(self._now),
            seconds=sum(one.seconds for one in runs),
            problems={question.row.name(run.setting): run.problem for run in runs if run.problem},
            is_out_of_budget=setting is not None,
        )

    @property
    def _now(self) -> list[Run]:
        """This process's runs, which the budget is for."""
        return self._journal.runs[self._begun :]

    def _is_spent(self) -> bool:
        runs, limit = self._now, self._budget
        return (limit.runs is not None and len(runs) >= limit.runs) or (
            limit.seconds is not None and sum(one.seconds for one in runs) >= limit.seconds
        )

    def _searched(self, levels: Levels) -> Search:
        """Replay the search. What failed before is tried again: it may build by now."""
        better = self._question.direction(levels.good, levels.bad)
        seen = [
            Seen(one.setting, one.sitting, one.value and worse_by(one.value, levels.good, better))
            for number, one in enumerate(self._journal.runs)
            if not one.is_end and (one.value is not None or number >= self._begun)
        ]
        return Search(self._question.last, levels, seen)

    # ------------------------------------------------------------------------- a run

    def _measure(self, setting: int) -> None:
        """Measure a setting; that it does not run is believed where the good end does."""
        run = self._run(setting)
        if run.problem is None:
            return
        is_end = setting in (0, self._question.last)
        if not is_end and run.is_built:
            setting, is_end = 0, True
            run = self._run(0)
        if run.problem is not None and is_end:
            text = f"{self._question.row.name(setting)} cannot be measured, and could be before"
            raise AbortedError(f"{text}: {run.problem}")

    def _run(self, setting: int) -> Run:
        question, began, is_built = self._question, time.monotonic(), False
        moved: Mapping[str, str] = {}
        try:
            setup = question.row.setup(setting)
            moved = setup.change.folders
            is_built = True
            number = len(self._journal.runs)
            trial = self._trials.run(number, setup, question.metric, self._hosts)
        except BuildError as error:
            trial = Trial(problem=str(error))
        red = question.red
        if setting == question.last and red and red.taken_on.launch and trial.launch:
            system = Case.from_id(question.case_id).system
            check_launch(trial.launch, red.taken_on.launch, red.started, system, moved)
        # Other hosts would have another level.
        self._hosts = self._hosts or trial.hosts
        run = Run(
            setting=setting,
            sitting=self._sitting,
            is_end=self._levels is None,
            value=trial.value,
            problem=trial.problem,
            seconds=round(time.monotonic() - began, 3),
            ended=time.time(),
            hosts=self._hosts,
            is_built=is_built,
        )
        self._journal.add(run)
        runs, left = self._journal.runs, None
        if self._levels is not None:
            left = self._searched(self._levels).runs_left()
        seconds = median([one.seconds for one in runs])
        self._tell(Progress(run=run, runs=len(runs), runs_left=left, seconds_a_run=seconds))
        return run

    # ------------------------------------------------------------------- both ends

    def _measured_levels(self) -> Levels:
        """Measure both ends in turn, until their difference is beyond doubt or nothing."""
        question, last = self._question, self._question.last
        sitting = next(
            (one.sitting for one in reversed(self._journal.runs) if one.is_end), self._sitting
        )
        while True:
            good, bad = (
                [
                    one.value
                    for one in self._journal.runs
                    if one.is_end and (one.sitting, one.setting) == (sitting, end)
                    if one.value is not None
                ]
                for end in (0, last)
            )
            levels = None
            if min(len(good), len(bad)) >= MIN_END_RUNS:
                better = question.direction(median(good), median(bad))
                levels = levels_of(good, bad, better, question.sessions)
            if levels is not None and levels.is_loss:
                spread = levels.noise if question.spread is None else question.spread
                return replace(levels, spread=spread, sitting=sitting)
            if sitting != self._sitting:  # hosts may have another level
                sitting = self._sitting
                continue
            is_leaning = levels is not None and levels.loss > _LEANING * levels.loss_error
            if len(good) >= (_MAX_LEANING_RUNS if is_leaning else _MAX_END_RUNS):
                if self._now:
                    raise NotFoundError(self._no_difference(good, bad))
                self._sitting += 1  # they did not differ; perhaps they do now
                sitting = self._sitting
                continue
            if self._is_spent():
                raise NotFoundError(
                    f"the budget is spent after {numbers.counted(len(self._now), 'run')} of both "
                    f"ends, and whether they differ is not known: that takes {MIN_END_RUNS} to "
                    f"{_MAX_LEANING_RUNS} runs of each. Nothing was searched"
                )
            setting = last if len(bad) <= len(good) else 0
            run = self._run(setting)
            if run.problem is not None:
                needed = ". Both ends need the system file with this very case" * run.is_built
                raise NotFoundError(
                    f"{'BAD' if setting else 'GOOD'}, {question.row.name(setting)}, cannot be "
                    f"measured: {run.problem}{needed}; nothing was searched"
                )

    def _no_difference(self, good: list[float], bad: list[float]) -> str:
        question, unit = self._question, self._question.metric.unit
        sides = [
            f"{question.row.name(setting)} has {numbers.quantity(median(values), unit)} "
            f"({min(values):.6g} to {max(values):.6g} in {numbers.counted(len(values), 'run')})"
            for setting, values in ((0, good), (question.last, bad))
        ]
        others = numbers.named(question.not_tried, 3) or "driver, hosts and the session itself"
        look = f" or BAD is bad for another reason: look at {others}."
        return (
            f"GOOD and BAD do not differ: {', '.join(sides)}. Either the change is gone"
            f"{look if question.kind == 'difference' else ', or GOOD is not good.'} "
            "The same command measures both anew"
        )
