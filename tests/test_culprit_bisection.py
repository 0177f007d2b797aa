"""A search from run to run, of trials that are drawn instead of run."""

import random
import re
from contextlib import contextmanager

import pytest
from results_makers import THROUGHPUT

from pytest_dlperf.culprit import journal
from pytest_dlperf.culprit.bisection import Bisection, Budget, NotFoundError, Question
from pytest_dlperf.culprit.candidates import Candidate
from pytest_dlperf.culprit.checkouts import BuildError
from pytest_dlperf.culprit.journal import Journal
from pytest_dlperf.culprit.trial import AbortedError, Setup, Trial
from pytest_dlperf.culprit.words import text_lines

GOOD, BAD = 100.0, 80.0
NOISE = 0.005
"""Between runs, as a part of the level."""


class Drawn:
    """Trials whose numbers are drawn around the level of a setting; ``None`` is a broken run."""

    def __init__(self, level):
        self._level, self._draw = level, random.Random(1)  # noqa: S311 - noise
        self.settings, self.numbers = [], set()

    def run(self, number, setup, metric, hosts=()):
        assert metric is THROUGHPUT
        assert number not in self.numbers, "each has a folder of its own"
        self.numbers.add(number)
        assert hosts in {(), ("gpu1",)}
        self.settings.append(int(setup.folder))
        level = self._level(int(setup.folder))
        if level is None:
            return Trial(problem="failed: out of memory", hosts=("gpu1",))
        return Trial(value=level * self._draw.gauss(1, NOISE), hosts=("gpu1",))


class Names:
    """A row of eight candidates that are but names."""

    candidates = tuple(Candidate(name=f"c{number}") for number in range(1, 9))
    good = "c0"

    def __init__(self, no_build=()):
        self._no_build = no_build

    def name(self, setting):
        return f"c{setting}"

    def setup(self, setting):
        if setting in self._no_build:
            raise BuildError("no compiler")
        return Setup(folder=str(setting))


def slow_from(first):
    return lambda setting: BAD if setting >= first else GOOD


def question(row=None, *, kind="commit"):
    return Question(
        case_id="own-net-fp32-b4-1n1g", metric=THROUGHPUT, kind=kind, row=row or Names(),
        not_tried=("uncommitted changes in train.py",),
    )  # fmt: skip


@contextmanager
def searching(folder, trials, *, asked=None, runs=None, tell=lambda *_: None):
    kept = Journal(folder / "search")
    try:
        yield Bisection(asked or question(), kept, trials, Budget(runs=runs), tell=tell)
    finally:
        kept.release()


def answered(folder, trials, **how):
    with searching(folder, trials, **how) as search:
        return search.answer()


def names(answer):
    return [one.name for one in answer.culprits]


def test_the_same_search_goes_on_from_its_journal(tmp_path):
    trials = Drawn(slow_from(5))

    def tell(_, left):
        if left is not None:
            raise AbortedError("the machine went down")

    with searching(tmp_path, trials, tell=tell) as search, pytest.raises(AbortedError):
        search.answer()
    begun = len(trials.settings)
    assert begun > 6, "both ends, and a run between"
    answer = answered(tmp_path, trials)
    assert names(answer) == ["c5"]
    assert len(answer.runs) == len(trials.settings) > begun
    assert names(answered(tmp_path, trials)) == ["c5"]
    assert len(answer.runs) == len(trials.settings), "the answer is there without a run"


def test_after_a_pause_both_ends_are_measured_anew(tmp_path, monkeypatch):
    answered(tmp_path, Drawn(slow_from(5)), runs=9)
    monkeypatch.setattr(journal, "_SITTING_S", -1.0)
    trials = Drawn(lambda setting: 0.9 * slow_from(5)(setting))
    assert names(answered(tmp_path, trials)) == ["c5"]
    assert trials.settings[:6] == [8, 0] * 3
    begun = len(trials.settings)
    assert names(answered(tmp_path, trials)) == ["c5"]
    assert len(trials.settings) == begun, "a search that is over has its answer"


@pytest.mark.parametrize("kind", ["commit", "difference"])
def test_ends_that_do_not_differ_are_told_with_numbers(tmp_path, kind):
    trials = Drawn(slow_from(99))
    told = r"do not differ: c0 has 1?\d+\.\d+ images/s \(.* in 8 runs\), c8 has"
    told += ".*: look at uncommitted changes in train.py" * (kind == "difference")
    with pytest.raises(NotFoundError, match=told):
        answered(tmp_path, trials, asked=question(kind=kind))
    assert trials.settings == [8, 0] * 8
    # The same command does not believe it for ever.
    trials = Drawn(slow_from(5))
    assert names(answered(tmp_path, trials)) == ["c5"]
    assert trials.settings[:6] == [8, 0] * 3


def test_a_budget_that_is_too_small_is_told(tmp_path):
    trials = Drawn(slow_from(5))
    with pytest.raises(NotFoundError, match="the budget is spent after 4 runs of both ends"):
        answered(tmp_path, trials, runs=4)
    answer = answered(tmp_path, trials, runs=3)
    assert answer.found is None
    assert (len(answer.runs), answer.runs_now, answer.is_out_of_budget) == (7, 3, True)
    headline, suspects, *_ = text_lines(answer)
    assert "undecided: the budget is spent after 7 runs" in headline
    assert re.match(r"  suspects: c\d \(\d+ %\), ", suspects)
    # Each start may spend as many again.
    answer = answered(tmp_path, trials, runs=9)
    assert names(answer) == ["c5"]
    assert any(line.endswith(f"({len(answer.runs) - 7} now)") for line in text_lines(answer))


def test_what_fails_counts_in_the_budget(tmp_path):
    answer = answered(
        tmp_path, Drawn(slow_from(5)), asked=question(Names(no_build={3, 4, 5})), runs=8
    )
    assert (answer.runs_now, answer.is_out_of_budget) == (8, True)


def test_a_gain_is_searched_and_said_to_be_one(tmp_path):
    answer = answered(tmp_path, Drawn(lambda setting: GOOD if setting >= 5 else BAD))
    assert names(answer) == ["c5"]
    lines = list(text_lines(answer))
    assert any(line.startswith("  change of throughput: +2") for line in lines)
    assert "  searched for: a gain: the bad end is better than the good one" in lines


def test_what_cannot_be_measured_is_passed_over_but_at_the_ends(tmp_path):
    answer = answered(tmp_path, Drawn(slow_from(5)), asked=question(Names(no_build={4})))
    assert names(answer) == ["c4", "c5"]
    assert "  not measured: c4 (no compiler)" in text_lines(answer)
    # The same command builds again what did not build.
    assert names(answered(tmp_path, Drawn(slow_from(5)))) == ["c5"]
    with pytest.raises(NotFoundError, match=r"^BAD, c8, cannot be measured: failed: out of memory"):
        answered(tmp_path / "other", Drawn(lambda setting: GOOD if setting < 8 else None))


def test_a_machine_on_which_the_good_end_breaks_too_ends_the_search(tmp_path):
    trials = Drawn(lambda setting: None if len(trials.settings) > 8 else slow_from(5)(setting))
    with pytest.raises(AbortedError, match="c0 cannot be measured, and could be before: failed"):
        answered(tmp_path, trials)
