"""A search from its first run to its answer: both ends are measured, then what tells most."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from pytest_dlperf.culprit.candidates import Candidate, Row, check_launch
from pytest_dlperf.culprit.checkouts import BuildError
from pytest_dlperf.culprit.journal import Journal, Run
from pytest_dlperf.culprit.search import Found, Levels, Search, Seen, levels_of, worse_by
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

    def is_spent(self, runs: Sequence[Run]) -> bool:
        """Whether these runs have used it up."""
        seconds = sum(one.seconds for one in runs)
        return (self.runs is not None and len(runs) >= self.runs) or (
            self.seconds is not None and seconds >= self.seconds
        )


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


class Answer(Struct, frozen=True, kw_only=True):
    """What a search says at its end."""

    question: Question
    search: Search
    runs: tuple[Run, ...]
    runs_now: int
    """By this process; the others are from before an interruption."""
    is_out_of_budget: bool

    @property
    def found(self) -> Found | None:
        """The changes at fault, and what they cost; ``None`` if that is undecided."""
        return self.search.found()

    @property
    def culprits(self) -> tuple[Candidate, ...]:
        """The one at fault, or neighbours that cannot be told apart."""
        found = self.found
        return tuple(self.question.row.candidates[one] for one in found.changes) if found else ()


class Bisection:
    """One search; ``tell`` gets all runs after each one, and how many more to expect, if known."""

    def __init__(
        self,
        question: Question,
        journal: Journal,
        trials: Trials,
        budget: Budget,
        *,
        tell: Callable[[Sequence[Run], float | None], None],
    ) -> None:
        """Go on from what the journal has."""
        self._question, self._journal, self._trials = question, journal, trials
        self._budget, self._tell = budget, tell
        self._begun = len(journal.runs)
        self._sitting = journal.runs[-1].sitting if journal.runs else 0
        self._hosts = question.hosts
        if journal.runs and not journal.is_stale:
            self._hosts = question.hosts or journal.runs[-1].hosts

    def answer(self) -> Answer:
        """Search until it is decided, or the budget is spent.

        Raises:
            NotFoundError: The ends do not differ as they should, or cannot be measured.
            AbortedError: It cannot go on now.
            UsageError: Runs are launched otherwise than those of the bad session.
        """
        search = self._search()
        if self._journal.is_stale and (search is None or search.next_setting() is not None):
            self._sitting += 1  # hosts may have another level
            search = None
        search = search or self._measured_ends()
        while (setting := search.next_setting()) is not None and not self._is_spent():
            self._measure(setting)
            search = self._search() or search
        return Answer(
            question=self._question,
            search=search,
            runs=tuple(self._journal.runs),
            runs_now=len(self._now),
            is_out_of_budget=setting is not None,
        )

    @property
    def _now(self) -> list[Run]:
        """This process's runs, which the budget is for."""
        return self._journal.runs[self._begun :]

    def _is_spent(self) -> bool:
        return self._budget.is_spent(self._now)

    def _search(self) -> Search | None:
        """Replay the runs; ``None`` before both ends are known to differ in this sitting.

        Each run is held against the good end of its own sitting. What failed before is tried again:
        it may build by now.
        """
        levels = self._levels(self._sitting)
        if levels is None or not levels.is_loss:
            return None
        better = self._question.direction(levels.good, levels.bad)
        seen = []
        for number, run in enumerate(self._journal.runs):
            of_its_own = self._levels(run.sitting)
            if run.is_end or of_its_own is None:
                continue
            if run.value is not None:
                seen.append(Seen(run.setting, worse_by(run.value, of_its_own.good, better)))
            elif number >= self._begun:
                seen.append(Seen(run.setting, None))
        return Search(self._question.last, levels, seen)

    # ------------------------------------------------------------------------- a run

    def _measure(self, setting: int) -> None:
        """Measure a setting; that it does not run is believed where the good end does."""
        row, last = self._question.row, self._question.last
        run, is_built = self._run(setting)
        if run.problem is not None and is_built and setting not in (0, last):
            setting = 0
            run, _ = self._run(0)
        if run.problem is not None and setting in (0, last):
            text = f"{row.name(setting)} cannot be measured, and could be before"
            raise AbortedError(f"{text}: {run.problem}")

    def _run(self, setting: int, *, is_end: bool = False) -> tuple[Run, bool]:
        """Measure a setting once; also tell whether it could be built."""
        question, began, runs = self._question, time.monotonic(), self._journal.runs
        moved: Mapping[str, str] | None = None
        try:
            setup = question.row.setup(setting)
            moved = setup.change.folders
            trial = self._trials.run(len(runs), setup, question.metric, self._hosts)
        except BuildError as error:
            trial = Trial(problem=str(error))
        red = question.red
        if setting == question.last and red and red.taken_on.launch and trial.launch:
            system = Case.from_id(question.case_id).system
            check_launch(trial.launch, red.taken_on.launch, red.started, system, moved or {})
        # Other hosts would have another level.
        self._hosts = self._hosts or trial.hosts
        run = Run(
            setting=setting,
            sitting=self._sitting,
            is_end=is_end,
            value=trial.value,
            problem=trial.problem,
            seconds=round(time.monotonic() - began, 3),
            ended=time.time(),
            hosts=self._hosts,
        )
        self._journal.add(run)
        search = None if is_end else self._search()
        self._tell(runs, None if search is None else search.runs_left())
        return run, moved is not None

    # ------------------------------------------------------------------- both ends

    def _ends(self, sitting: int) -> list[list[float]]:
        """Return what a sitting has measured of the good end, and of the bad one."""
        ends = [one for one in self._journal.runs if one.is_end and one.sitting == sitting]
        return [
            [one.value for one in ends if one.setting == end and one.value is not None]
            for end in (0, self._question.last)
        ]

    def _levels(self, sitting: int) -> Levels | None:
        good, bad = self._ends(sitting)
        if min(len(good), len(bad)) < MIN_END_RUNS:
            return None
        better = self._question.direction(median(good), median(bad))
        return levels_of(good, bad, better, self._question.sessions)

    def _measured_ends(self) -> Search:
        """Measure both ends in turn, until their difference is beyond doubt or nothing."""
        question, last = self._question, self._question.last
        while (search := self._search()) is None:
            good, bad = self._ends(self._sitting)
            levels = self._levels(self._sitting)
            is_leaning = levels is not None and levels.loss > _LEANING * levels.loss_error
            if len(good) >= (_MAX_LEANING_RUNS if is_leaning else _MAX_END_RUNS):
                if self._now:
                    raise NotFoundError(self._no_difference(good, bad))
                self._sitting += 1  # they did not differ; perhaps they do now
                continue
            if self._is_spent():
                raise NotFoundError(
                    f"the budget is spent after {numbers.counted(len(self._now), 'run')} of both "
                    f"ends, and whether they differ is not known: that takes {MIN_END_RUNS} to "
                    f"{_MAX_LEANING_RUNS} runs of each. Nothing was searched"
                )
            setting = last if len(bad) <= len(good) else 0
            run, is_built = self._run(setting, is_end=True)
            if run.problem is not None:
                needed = ". Both ends need the system file with this very case" * is_built
                raise NotFoundError(
                    f"{'BAD' if setting else 'GOOD'}, {question.row.name(setting)}, cannot be "
                    f"measured: {run.problem}{needed}; nothing was searched"
                )
        return search

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
