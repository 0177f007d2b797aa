"""A hunt from its first run to its answer: both ends are measured, then what tells most."""

from __future__ import annotations

import time
from itertools import count
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.culprit.axes import Candidate  # noqa: TC001 - msgspec reads the type
from pytest_dlperf.culprit.checkouts import BuildError
from pytest_dlperf.culprit.hunt import (
    Finding,
    Observation,
    Outcome,
    Posterior,
    Shape,
    as_part,
    ends_of,
    hunt_of,
    worse_by,
)
from pytest_dlperf.culprit.journal import Entry, Journal, KnownEnds, TrialEntry
from pytest_dlperf.culprit.search import Search
from pytest_dlperf.culprit.trial import AbortedError, Setup, Trial, Trials
from pytest_dlperf.model import numbers
from pytest_dlperf.model.errors import DlperfError
from pytest_dlperf.model.metric import Better, Metric
from pytest_dlperf.model.statistics import median

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

MIN_END_RUNS: Final = 3
MAX_END_RUNS: Final = 8
_MAX_LEANING_RUNS: Final = 20
_LEANING: Final = 1.5
"""Ends whose difference is more standard errors are measured more often before it is given up."""


class NotFoundError(DlperfError):
    """Nothing can be hunted: the ends are not what they are said to be."""


class Budget(Struct, frozen=True, kw_only=True):
    """How far a hunt may go."""

    error: float = 0.05
    """Allowed probability of a wrong answer."""
    runs: int | None = None
    seconds: float | None = None


class Progress(Struct, frozen=True, kw_only=True):
    """How a hunt stands after a run."""

    trial: TrialEntry
    runs: int
    """All that were done, those of both ends included."""
    runs_left: float | None
    """To expect; ``None`` while the ends are measured."""
    seconds_a_run: float


class Question(Struct, frozen=True, kw_only=True):
    """What is hunted: candidates in their order, or in any combination, and how each is had."""

    case_id: str
    metric: Metric
    kind: str
    good: Candidate
    candidates: tuple[Candidate, ...]
    setup: Callable[[int], Setup]
    """Prepares a setting, as ``Hunt`` counts them, or raises a ``BuildError``."""
    sessions: tuple[tuple[float, ...], ...] = ()
    """Runs of earlier nights, which show the noise."""
    spread: float | None = None
    """Of levels between sittings, as the history knows it; natural logarithm."""
    hosts: tuple[str, ...] = ()
    not_tried: tuple[str, ...] = ()
    """What differs as well, and cannot be put back."""
    known: KnownEnds | None = None
    """Of differences: both ends are two nights, on which no more runs are spent."""

    def named(self, setting: int) -> str:
        """Name a setting for people."""
        if self.known is None or self.known.hunt.shape is Shape.ORDERED:
            return (self.good, *self.candidates)[setting].name
        back = [one.name for bit, one in enumerate(self.candidates) if not setting >> bit & 1]
        return f"{', '.join(back)} put back" if back else "tonight's"

    def direction(self, good: float, bad: float) -> Better:
        """Return the direction in which the bad end is worse: of a gain, the other one."""
        better = self.metric.better or Better.HIGHER
        if better.is_worse(bad, good):
            return better
        return Better.LOWER if better is Better.HIGHER else Better.HIGHER


class Answer(Struct, frozen=True, kw_only=True):
    """What a hunt says at its end."""

    question: Question
    finding: Finding
    ends: KnownEnds
    measured: tuple[tuple[float, ...], tuple[float, ...]]
    """The hunt's own runs of both ends."""
    runs: int
    runs_now: int
    """By this process; the others are from before an interruption."""
    seconds: float
    """Spent on runs."""
    problems: Mapping[str, str]
    """Why candidates could not be measured, by name."""
    is_out_of_budget: bool
    is_given_up: bool
    """After far more runs than were expected."""
    posterior: Posterior

    @property
    def everywhere(self) -> bool:
        """Without a culprit: whether the good end is as bad as well."""
        return self.posterior.everywhere > self.posterior.gone

    @property
    def culprits(self) -> tuple[Candidate, ...]:
        """Those at fault, or neighbours that cannot be told apart."""
        return tuple(self.question.candidates[one] for one in self.finding.culprits)

    @property
    def sole_culprit(self) -> Candidate | None:
        """The one that is at fault, where there is just one."""
        is_one = self.finding.outcome is Outcome.FOUND and len(self.culprits) == 1
        return self.culprits[0] if is_one else None

    def change_percent(self, worse: float) -> float:
        """Turn a logarithm as the finding has it into a change of the number."""
        better = self.question.direction(self.ends.good, self.ends.bad)
        sign = -1 if better is self.question.metric.better else 1
        return 100 * sign * as_part(worse, better)


class Hunting:
    """One hunt; ``tell`` gets each run."""

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
        self._sitting = journal.sitting
        self._begun = len(journal.trials)
        self._numbers = count(self._begun)
        self._ends: KnownEnds | None = None

    # ---------------------------------------------------------------- from run to run

    def answer(self) -> Answer:
        """Hunt until it is decided, or the budget is spent.

        Raises:
            NotFoundError: The ends do not differ as they should, or cannot be measured.
            AbortedError: It cannot go on now.
        """
        ends = self._journal.ends or self._question.known or self._measured_ends()
        if self._journal.ends is None:
            self._journal.add(Entry(ends=ends))
        self._ends = ends
        search = self._search(ends)
        while (setting := search.next_query(self._sitting)) is not None and not self._is_spent():
            self._measure(setting)
            search = self._search(ends)
        return self._said(ends, search, is_out_of_budget=setting is not None)

    @property
    def _now(self) -> list[TrialEntry]:
        """This process's runs, which the budget is for."""
        return [one for one in self._journal.trials[self._begun :] if one.value is not None]

    def _counted(self) -> Iterator[TrialEntry]:
        """Yield runs, and failures that were not long ago: the next process builds again.

        What was built, and did not run, is run again in the next sitting.
        """
        for number, one in enumerate(self._journal.trials):
            is_new = one.sitting == self._sitting if one.seconds else number >= self._begun
            if one.value is not None or is_new:
                yield one

    def _is_spent(self) -> bool:
        trials = self._now
        limit = self._budget
        return (limit.runs is not None and len(trials) >= limit.runs) or (
            limit.seconds is not None and sum(one.seconds for one in trials) >= limit.seconds
        )

    def _search(self, ends: KnownEnds) -> Search:
        """Replay the hunt; the runs that its levels rest on are in these already."""
        better = self._question.direction(ends.good, ends.bad)
        observations = (
            Observation(
                setting=one.setting,
                sitting=one.sitting,
                worse=None if one.value is None else worse_by(one.value, ends.good, better),
            )
            for one in self._counted()
            if not one.is_end
        )
        return Search(ends.hunt, observations)

    def _measure(self, setting: int, *, is_end: bool = False) -> TrialEntry:
        """Measure a setting; one that is broken is believed where the good end is not."""
        trial = self._trial(setting)
        if trial.problem is not None and not is_end:
            self._check_others(setting, trial)
        return self._note(setting, trial, is_end=is_end)

    def _check_others(self, setting: int, trial: Trial) -> None:
        """Raise an error where the ends cannot be measured either: it is no candidate's fault."""
        named = self._question.named
        # What was not built took no time of the hosts.
        is_end = self._ends is not None and setting in (0, self._ends.hunt.bad_end)
        if not is_end and trial.seconds:
            control = self._trial(0)
            if control.problem is None:
                self._note(0, control)
                return
            trial, is_end, setting = control, True, 0
        if is_end:
            known = any(t.setting == setting and t.value for t in self._journal.trials)
            before = ", and could be before" if known else ""
            text = f"{named(setting)} cannot be measured{before}: {trial.problem}"
            raise AbortedError(text) if known else NotFoundError(text)

    def _trial(self, setting: int) -> Trial:
        try:
            setup = self._question.setup(setting)
        except BuildError as error:
            return Trial(problem=str(error))
        trial = self._trials.run(next(self._numbers), setup, self._hosts)
        wanted, found = self._question.metric, trial.metric
        if found is not None and (found.unit, found.better) != (wanted.unit, wanted.better):
            problem = f"its {wanted.name} is in {found.unit}, not in {wanted.unit}"
            return replace(trial, value=None, problem=problem)
        # Other hosts would have another level.
        self._hosts = self._hosts or trial.hosts
        if trial.value is not None and trial.value <= 0:
            return replace(trial, value=None, problem=f"its number is {trial.value:g}")
        return trial

    def _note(self, setting: int, trial: Trial, *, is_end: bool = False) -> TrialEntry:
        entry = TrialEntry(
            setting=setting,
            sitting=self._sitting,
            value=trial.value,
            problem=trial.problem,
            seconds=round(trial.seconds, 3),
            ended=time.time(),
            hosts=self._hosts,
            is_end=is_end,
        )
        self._journal.add(Entry(trial=entry))
        done = [one for one in self._journal.trials if one.value is not None]
        search = self._search(self._ends) if self._ends is not None else None
        self._tell(
            Progress(
                trial=entry,
                runs=len(done),
                runs_left=search.finding().runs_left if search else None,
                seconds_a_run=median([one.seconds for one in done]) if done else 0.0,
            )
        )
        return entry

    def _values_of(self, setting: int, sitting: int | None = None) -> tuple[float, ...]:
        trials = [t for t in self._journal.trials if sitting in (None, t.sitting)]
        return tuple(t.value for t in trials if t.setting == setting and t.value is not None)

    # ------------------------------------------------------------------- both ends

    @property
    def _bad_end(self) -> int:
        return len(self._question.candidates)

    def _measured_ends(self) -> KnownEnds:
        """Measure both ends in turn, until their difference is beyond doubt or nothing."""
        question = self._question
        while True:
            # Nothing but the ends is measured before they are known.
            good, bad = (self._values_of(one, self._sitting) for one in (0, self._bad_end))
            limit, ends = MAX_END_RUNS, None
            if min(len(good), len(bad)) >= MIN_END_RUNS:
                better = self._question.direction(median(good), median(bad))
                ends = ends_of(good, bad, better, sessions=question.sessions)
            if ends is not None and ends.is_loss:
                hunt = hunt_of(ends, self._bad_end, question.spread, self._budget.error)
                hunt = replace(hunt, measured_in=self._sitting)
                return KnownEnds(hunt=hunt, good=ends.good, bad=ends.bad)
            if ends is not None and ends.loss > _LEANING * ends.loss_error:
                limit = _MAX_LEANING_RUNS
            if len(bad) >= limit and len(self._journal.trials) == self._begun:
                self._sitting += 1  # they did not differ; perhaps they do now
                continue
            if len(bad) >= limit:
                raise NotFoundError(self._no_difference(good, bad))
            if self._is_spent():
                raise NotFoundError(
                    f"the budget is spent after {numbers.counted(len(good) + len(bad), 'run')} of "
                    f"both ends, and whether they differ is not known: that takes {MIN_END_RUNS} "
                    f"to {_MAX_LEANING_RUNS} runs of each. Nothing was hunted"
                )
            setting = 0 if len(good) <= len(bad) else self._bad_end
            entry = self._measure(setting, is_end=True)
            if entry.problem is not None:
                word = "BAD" if setting else "GOOD"
                # Where nothing ran, it was not built.
                needed = ". Both ends need the system file with this very case" * bool(
                    entry.seconds
                )
                raise NotFoundError(
                    f"{word}, {question.named(setting)}, cannot be measured: {entry.problem}"
                    f"{needed}; nothing was hunted"
                )

    def _no_difference(self, good: Sequence[float], bad: Sequence[float]) -> str:
        question, unit = self._question, self._question.metric.unit

        def told(values: Sequence[float]) -> str:
            low, high = min(values), max(values)
            return (
                f"{numbers.quantity(median(values), unit)} "
                f"({low:.6g} to {high:.6g} in {numbers.counted(len(values), 'run')})"
            )

        return (
            f"GOOD and BAD do not differ: {question.named(0)} has {told(good)}, "
            f"{question.named(self._bad_end)} has {told(bad)}. Either GOOD is not good or BAD is "
            "not bad any more; nothing was hunted. The same command measures both anew"
        )

    # ----------------------------------------------------------------------- the end

    def _said(self, ends: KnownEnds, search: Search, *, is_out_of_budget: bool) -> Answer:
        question, trials = self._question, self._journal.trials
        return Answer(
            question=question,
            finding=search.finding(),
            ends=ends,
            measured=(self._values_of(0), self._values_of(ends.hunt.bad_end)),
            runs=sum(one.value is not None for one in trials),
            runs_now=len(self._now),
            seconds=sum(one.seconds for one in trials),
            problems={question.named(t.setting): t.problem for t in self._counted() if t.problem},
            is_out_of_budget=is_out_of_budget,
            is_given_up=search.is_given_up,
            posterior=search.posterior(),
        )
