"""A hunt from run to run, of trials that are drawn instead of run."""

from __future__ import annotations

import math
import random
import re
from contextlib import contextmanager

import pytest
from msgspec.structs import replace
from results_makers import THROUGHPUT

from pytest_dlperf.culprit.axes import Candidate
from pytest_dlperf.culprit.checkouts import BuildError
from pytest_dlperf.culprit.hunt import Hunt, Outcome
from pytest_dlperf.culprit.hunting import Budget, Hunting, NotFoundError, Question
from pytest_dlperf.culprit.journal import Journal, KnownEnds
from pytest_dlperf.culprit.trial import AbortedError, Setup, Trial
from pytest_dlperf.culprit.words import text_lines

CANDIDATES = tuple(Candidate(name=f"c{number}") for number in range(1, 9))
GOOD, BAD = 100.0, 80.0
NOISE = 0.005
"""Between runs, as a part of the level."""


class Drawn:
    """Trials whose numbers are drawn around the level of a setting; ``None`` is a broken run."""

    def __init__(self, level):
        self._level, self._draw = level, random.Random(1)  # noqa: S311 - noise
        self.settings: list[int] = []
        self.numbers: set[int] = set()

    def run(self, number, setup, hosts=()):
        assert number not in self.numbers, "each has a folder of its own"
        self.numbers.add(number)
        assert hosts in {(), ("gpu1",)}
        self.settings.append(int(setup.folder))
        level = self._level(int(setup.folder))
        if level is None:
            return Trial(problem="failed: out of memory", seconds=30.0)
        value = level * self._draw.gauss(1, NOISE)
        return Trial(value=value, seconds=60.0, metric=THROUGHPUT, hosts=("gpu1",))


def slow_from(first):
    return lambda setting: BAD if setting >= first else GOOD


def setup_of(setting):
    return Setup(folder=str(setting))


def question(setup=setup_of, *, known=None):
    return Question(
        case_id="own-net-fp32-b4-1n1g", metric=THROUGHPUT, kind="commit",
        good=Candidate(name="c0"), candidates=CANDIDATES, setup=setup, known=known,
    )  # fmt: skip


def known_ends():
    weights, loss = tuple(1.0 for _ in CANDIDATES), math.log(GOOD / BAD)
    hunt = Hunt(weights=weights, loss=loss, noise=NOISE, measured_in=0)
    return KnownEnds(hunt=hunt, good=GOOD, bad=BAD)


@contextmanager
def hunting(
    folder,
    trials,
    asked=None,
    *,
    runs=None,
    tell=lambda _: None,
):
    journal = Journal(folder / "hunt", {})
    try:
        yield Hunting(
            asked or question(), journal, trials, Budget(runs=runs),
            tell=tell,
        )  # fmt: skip
    finally:
        journal.release()


def answered(folder, trials, asked=None):
    with hunting(folder, trials, asked) as hunt:
        return hunt.answer()


def test_the_same_hunt_goes_on_from_its_journal(tmp_path):
    trials = Drawn(slow_from(5))

    def tell(progress):
        if progress.runs_left is not None:
            raise AbortedError("the machine went down")

    with hunting(tmp_path, trials, tell=tell) as hunt, pytest.raises(AbortedError):
        hunt.answer()
    begun = len(trials.settings)
    assert begun > 6, "both ends, and a run between"
    answer = answered(tmp_path, trials)
    assert [one.name for one in answer.culprits] == ["c5"]
    assert answer.runs == len(trials.settings) > begun
    assert answered(tmp_path, trials).culprits == answer.culprits
    assert answer.runs == len(trials.settings), "the answer is there without a run"


def test_ends_that_do_not_differ_are_told_with_numbers(tmp_path):
    trials = Drawn(slow_from(99))
    with pytest.raises(
        NotFoundError, match=r"do not differ: c0 has 1?\d+\.\d+ images/s \(.* in 8 runs\), c8 has"
    ):
        answered(tmp_path, trials)
    assert trials.settings == [0, 8] * 8
    # The same command does not believe it for ever.
    trials = Drawn(slow_from(5))
    assert [one.name for one in answered(tmp_path, trials).culprits] == ["c5"]
    assert trials.settings[:6] == [0, 8] * 3


@pytest.mark.parametrize(
    ("level", "said"),
    [
        (GOOD, "none of these: the change is gone: c8 is good now"),
        (BAD, "none of these: c0 is as bad now: look at uncommitted changes in train.py"),
    ],
)
def test_a_loss_that_no_commit_has_is_told_with_numbers(tmp_path, level, said):
    asked = replace(question(known=known_ends()), not_tried=("uncommitted changes in train.py",))
    answer = answered(tmp_path, Drawn(lambda _: level), asked)
    assert answer.finding.outcome is Outcome.NONE
    headline, good, bad, *_ = text_lines([answer])
    assert f": {said}, " in headline
    assert good.startswith("  good end: 100.00 images/s before; now ")
    assert bad.startswith("  bad end: 80.00 images/s before; now ")


def test_a_budget_that_is_too_small_is_told(tmp_path):
    trials = Drawn(slow_from(5))
    with (
        hunting(tmp_path, trials, runs=4) as hunt,
        pytest.raises(NotFoundError, match="the budget is spent after 4 runs of both ends"),
    ):
        hunt.answer()
    with hunting(tmp_path, trials, runs=3) as hunt:
        answer = hunt.answer()
    assert answer.finding.outcome is Outcome.UNDECIDED
    assert answer.is_out_of_budget
    assert (answer.runs, answer.runs_now) == (7, 3)
    headline, suspects, *_ = text_lines([answer])
    assert "undecided: the budget is spent after 7 runs" in headline
    assert re.match(r"  suspects: (c\d|none of these) \(\d+ %\), ", suspects)
    # Each night may spend as many again.
    with hunting(tmp_path, trials, runs=7) as hunt:
        answer = hunt.answer()
    assert [one.name for one in answer.culprits] == ["c5"]
    assert "runs, " in (spent := list(text_lines([answer]))[-1])
    assert spent.endswith(f"({answer.runs - 7} now)")


def test_a_gain_is_hunted_and_said_to_be_one(tmp_path):
    answer = answered(tmp_path, Drawn(lambda setting: GOOD if setting >= 5 else BAD))
    assert [one.name for one in answer.culprits] == ["c5"]
    lines = list(text_lines([answer]))
    assert any(line.startswith("  change of throughput: +2") for line in lines)
    assert "  searched for: a gain: the bad end is better than the good one" in lines


def test_what_cannot_be_measured_is_passed_over_but_at_the_ends(tmp_path):
    def setup(setting):
        if setting == 4:
            raise BuildError("no compiler")
        return setup_of(setting)

    answer = answered(tmp_path, Drawn(slow_from(5)), question(setup))
    assert [one.name for one in answer.culprits] == ["c4", "c5"]
    assert answer.problems == {"c4": "no compiler"}
    # The same command builds again what did not build.
    answer = answered(tmp_path, Drawn(slow_from(5)))
    assert [one.name for one in answer.culprits] == ["c5"]
    assert not answer.problems
    with pytest.raises(NotFoundError, match=r"^BAD, c8, cannot be measured: failed: out of memory"):
        answered(tmp_path / "other", Drawn(lambda setting: GOOD if setting < 8 else None))


def test_a_night_on_which_the_good_end_breaks_too_ends_the_hunt(tmp_path):
    trials = Drawn(lambda setting: None if len(trials.settings) > 8 else slow_from(5)(setting))
    with pytest.raises(AbortedError, match="c0 cannot be measured, and could be before: failed"):
        answered(tmp_path, trials)
