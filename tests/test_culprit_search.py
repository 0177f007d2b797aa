"""The search for a culprit: its probabilities, its questions, and what it says."""

import itertools
import math
import random

import msgspec
import numpy as np
import pytest

from pytest_dlperf.culprit.hunt import (
    Hunt,
    Observation,
    Outcome,
    Shape,
    Together,
    as_part,
    worse_by,
)
from pytest_dlperf.culprit.hypotheses import SHARES, hypotheses_of
from pytest_dlperf.culprit.search import Search
from pytest_dlperf.model.metric import Better

COMMITS = Hunt(weights=(1.0,) * 16, loss=0.03, noise=0.01)


def seeded(seed):
    return random.Random(seed)  # noqa: S311 - noise, no secret


def run(setting, worse, sitting=0):
    return Observation(setting=setting, sitting=sitting, worse=worse)


def hunted(hunt, loss, *, seed=1, spread=0.0):
    """A hunt to its end; ``loss`` is what each culprit adds."""
    draw = seeded(seed)
    search = Search(hunt)
    levels = {}
    for number in range(200):
        sitting = number // 8
        setting = search.next_query(sitting)
        if setting is None:
            return search
        level = levels.setdefault(sitting, draw.gauss(0, spread))
        worse = sum(part for one, part in loss.items() if setting in hunt.settings_with(one))
        search = search.after(run(setting, level + worse + draw.gauss(0, 0.01), sitting))
    raise AssertionError("the hunt does not end")


def test_probabilities_are_those_of_every_answer_on_its_own():
    weights = (1.0, 2.0, 1.0, 3.0, 1.0)
    hunt = Hunt(weights=weights, loss=0.03, noise=0.01)
    runs = [(0, 0.002), (1, 0.005), (2, 0.009), (3, 0.013), (3, 0.018), (4, 0.021), (5, 0.034)]
    search = Search(hunt, [run(*one) for one in runs])

    def log_likelihood(share_at):
        total = 0.0
        for setting, worse in runs:
            away = (worse - 0.03 * share_at[setting]) / 0.01
            width = 0.04 + 0.03 / 2
            stray = 0.01 / width / (1 + ((worse - 0.015) / width) ** 2) / math.pi
            usual = math.exp(-away * away / 2) / math.sqrt(2 * math.pi)
            total += math.log(0.95 * usual + 0.05 * stray)
        return total

    prior = [weight / sum(weights) for weight in weights]
    masses = {}
    for place in range(-1, 6):
        mass = 0.15 if place in (-1, 5) else 0.7 * 0.9 * prior[place]
        shares = {setting: float(setting > place) for setting, _ in runs}
        masses[(place,)] = mass * math.exp(log_likelihood(shares))
    for i, j in itertools.product(range(5), repeat=2):
        # Drawn twice, it is one.
        answer, mass = tuple(sorted({i, j})), 0.7 * 0.1 * prior[i] * prior[j]
        masses.setdefault(answer, 0.0)
        for part in (0.4, 0.6):
            shares = {s: (s > min(i, j)) * part + (s > max(i, j)) * (1 - part) for s, _ in runs}
            masses[answer] += mass / 2 * math.exp(log_likelihood(shares))
    whole = sum(masses.values())
    posterior = search.posterior()
    assert posterior.everywhere == pytest.approx(masses[(-1,)] / whole)
    assert posterior.gone == pytest.approx(masses[(5,)] / whole)
    for one in range(5):
        either = sum(mass for answer, mass in masses.items() if one in answer) / whole
        assert posterior.candidates[one] == pytest.approx(either)


@pytest.mark.parametrize("shape", Shape)
def test_a_hunt_that_is_replayed_goes_on_as_it_would_have(shape):
    hunt = Hunt(weights=(1.0,) * 6, shape=shape, loss=0.03, noise=0.01, spread=0.01)
    search = hunted(hunt, {2: 0.03}, spread=0.01)
    lines = [msgspec.json.encode(one) for one in search.observations]
    kept = msgspec.json.decode(msgspec.json.encode(hunt), type=Hunt)
    assert kept == hunt
    stepwise = Search(hunt)
    for number, line in enumerate(lines):
        seen = msgspec.json.decode(line, type=Observation)
        replayed = Search(kept, search.observations[:number])
        assert stepwise.next_query(number // 8) == replayed.next_query(number // 8) == seen.setting
        stepwise = stepwise.after(seen)
    assert stepwise.finding() == search.finding()


def test_the_culprit_is_named_with_its_loss():
    finding = hunted(COMMITS, {11: 0.03}).finding()
    assert finding.outcome is Outcome.FOUND
    assert finding.culprits == (11,)
    assert finding.certainty >= 0.95
    assert finding.loss == pytest.approx(0.03, rel=0.02)


@pytest.mark.parametrize("everywhere", [False, True])
def test_no_culprit_is_told_with_where_the_loss_is(*, everywhere):
    draw = seeded(3)
    search = Search(COMMITS)
    while (setting := search.next_query(0)) is not None:
        search = search.after(run(setting, 0.03 * everywhere + draw.gauss(0, 0.01)))
    posterior = search.posterior()
    assert search.finding().outcome is Outcome.NONE
    assert (posterior.everywhere > posterior.gone) is everywhere
    assert len(search.observations) < 12


def test_a_commit_that_does_not_build_is_asked_once_and_told_with_its_neighbour():
    search = Search(COMMITS)
    draw = seeded(2)
    while (setting := search.next_query(0)) is not None:
        worse = None if setting == 8 else 0.03 * (setting > 7) + draw.gauss(0, 0.01)
        search = search.after(run(setting, worse))
    assert sum(one.setting == 8 for one in search.observations) == 1
    assert search.finding().culprits == (7, 8)


def test_each_sitting_begins_with_the_good_end_where_they_differ():
    hunt = msgspec.structs.replace(COMMITS, spread=0.02)
    search = hunted(hunt, {5: 0.03}, spread=0.02)
    firsts = {}
    for one in search.observations:
        firsts.setdefault(one.sitting, one.setting)
    assert set(firsts.values()) == {0}
    assert Search(COMMITS).next_query(0) == 8


def test_two_differences_that_act_only_together_are_a_pair():
    hunt = Hunt(weights=(1.0,) * 4, shape=Shape.SUBSETS, loss=0.03, noise=0.01)
    draw = seeded(5)
    search = Search(hunt)
    while (setting := search.next_query(0)) is not None:
        search = search.after(
            run(setting, 0.03 * (setting & 0b1010 == 0b1010) + draw.gauss(0, 0.01))
        )
    finding = search.finding()
    assert (finding.outcome, finding.culprits) == (Outcome.PAIR, (1, 3))
    assert finding.together is Together.BOTH


def test_a_setting_that_ran_before_it_failed_keeps_its_runs():
    known = Search(COMMITS, [run(8, 0.031), run(8, 0.029)])
    broken = known.after(run(8, None))
    assert broken.posterior() == known.posterior()
    assert all(
        Search(COMMITS, [run(8, None), run(8, value)]).next_query(0) != 8 for value in (0.0, 0.015)
    )


@pytest.mark.parametrize(
    ("setting", "worse", "told"),
    [
        (17, 0.0, "not one of 0 to 16"),
        (-1, 0.0, "not one of 0 to 16"),
        (16, None, "is an end"),
        (3, math.nan, "worse by nan"),
    ],
)
def test_a_run_that_cannot_be_is_refused(setting, worse, told):
    with pytest.raises(ValueError, match=told):
        Search(COMMITS).after(run(setting, worse))


@pytest.mark.parametrize("better", Better)
def test_losses_are_the_same_in_both_directions(better):
    worse = worse_by(90.0 if better is Better.HIGHER else 110.0, 100.0, better)
    assert worse > 0
    assert as_part(worse, better) == pytest.approx(0.1)
    with pytest.raises(ValueError, match="above 0"):
        worse_by(0.0, 100.0, better)


def test_the_sitting_of_the_ends_needs_no_run_of_the_good_end():
    hunt = msgspec.structs.replace(COMMITS, spread=0.02, measured_in=4)
    assert Search(hunt).next_query(4) == 8
    assert Search(hunt).next_query(5) == 0


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"weights": ()}, "weights above 0"),
        ({"weights": (1.0, 0.0)}, "weights above 0"),
        ({"weights": (1.0,) * 9, "shape": Shape.SUBSETS}, "9 differences are too many"),
        ({"loss": 0.0}, "loss and noise are above 0"),
        ({"noise": -0.01}, "loss and noise are above 0"),
    ],
)
def test_a_hunt_that_cannot_begin_is_refused(wrong, told):
    with pytest.raises(ValueError, match=told):
        Hunt(**{"weights": (1.0, 1.0), "loss": 0.03, "noise": 0.01, **wrong})


def test_a_second_culprit_that_is_expected_is_looked_for():
    search = hunted(msgspec.structs.replace(COMMITS, loss=0.05), {3: 0.03, 10: 0.02}, seed=4)
    finding = search.finding()
    assert (finding.outcome, finding.culprits) == (Outcome.PAIR, (3, 10))
    stopped = next(
        at.finding()
        for at in (Search(search.hunt, search.observations[:n]) for n in range(30))
        if at.finding().outcome is Outcome.FOUND
    )
    assert stopped.second > 0.5
    assert set(stopped.culprits) < {3, 10}
    assert stopped.loss == pytest.approx({3: 0.03, 10: 0.02}[stopped.culprits[0]], abs=0.003)


def test_fewer_runs_are_left_the_more_is_known():
    search = hunted(COMMITS, {11: 0.03})
    left = [
        Search(COMMITS, search.observations[:n]).finding().runs_left
        for n in range(len(search.observations) + 1)
    ]
    assert 5 < left[0] < 11
    assert left[-1] == 0
    assert left[len(left) // 2] < left[0]


def test_a_level_that_is_not_known_has_no_setting_repeated_for_ever():
    """As two nights leave it: good and bad end are known to a fifth of the loss."""
    hunt = Hunt(
        weights=(1.0,) * 3, loss=1.07, loss_error=0.16, noise=0.07, noise_dof=4,
        level_error=0.24, spread=0.02,
    )  # fmt: skip
    for culprit in range(3):
        search, at_fault, runs = Search(hunt), hunt.settings_with(culprit), 0
        while (setting := search.next_query(0)) is not None and runs < 12:
            worse = 0.48 + 1.08 * (setting in at_fault)
            search = search.after(Observation(setting=setting, sitting=0, worse=worse))
            runs += 1
        assert search.finding().culprits == (culprit,), runs


@pytest.mark.parametrize("shape", Shape)
def test_classes_are_split_as_their_shares_are_predicted(shape):
    hunt = Hunt(weights=(1.0, 2.0, 3.0, 1.0, 2.0), shape=shape, loss=0.03, noise=0.01)
    run_before = [0, 2, hunt.bad_end]
    hypotheses = hypotheses_of(hunt, run_before, set())
    masses = hypotheses.classes.prior / hypotheses.classes.prior.sum()
    predicted = hypotheses.predicted(masses)
    for setting in range(hunt.bad_end + 1):
        of, share, part = hypotheses.split(setting)
        split = np.bincount(share, masses[of] * part, len(SHARES))
        assert split == pytest.approx(predicted[setting])
        assert np.bincount(of, part) == pytest.approx(1.0)


def test_levels_that_are_in_doubt_are_asked_for_rather_than_ever_new_settings():
    """The good end was measured better than it is: neighbours seem to have a part of the loss."""
    hunt = Hunt(
        weights=(1.0,) * 256, loss=0.02, loss_error=0.005, noise=0.01, noise_dof=12,
        level_error=0.0035,
    )  # fmt: skip
    for seed in range(4):
        draw, search = seeded(seed), Search(hunt)
        while (setting := search.next_query(0)) is not None and len(search.observations) < 60:
            worse = 0.0045 + 0.0175 * (setting > 168) + draw.gauss(0, 0.01)
            search = search.after(run(setting, worse))
        assert search.finding().culprits == (168,), seed
        assert len({one.setting for one in search.observations}) < 24, seed


def test_a_hunt_that_does_not_come_to_an_end_is_given_up():
    search = Search(COMMITS, [run(8, 0.015 + 0.01 * (-1) ** n) for n in range(100)])
    assert search.finding().outcome is Outcome.UNDECIDED
    assert search.is_given_up
    assert search.next_query(0) is None
    assert not Search(COMMITS, search.observations[1:]).is_given_up
