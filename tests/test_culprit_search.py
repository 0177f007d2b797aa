"""The search for a culprit: probabilities, the next run, and when an answer is one."""

import math
import random
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from pytest_dlperf.culprit.search import Levels, Search, Seen, as_part, levels_of, worse_by
from pytest_dlperf.model.metric import Better

LEVELS = Levels(good=100.0, bad=97.0, loss=0.03, noise=0.01)
GOOD = [100.4, 99.1, 100.9, 99.6, 100.2]


def searched(share_of, *, levels=LEVELS, seed=1, broken=()):
    """Search to the end; ``share_of`` says which share of the loss a setting has."""
    draw = random.Random(seed)  # noqa: S311 - noise
    seen = []
    search = Search(16, levels)
    while (setting := search.next_setting()) is not None:
        worse = share_of(setting) * levels.loss + draw.gauss(0, levels.noise)
        seen.append(Seen(setting, None if setting in broken else worse))
        search = Search(16, levels, seen)
    return search, seen


def test_probabilities_are_those_of_every_answer_on_its_own():
    runs = [(1, 0.005), (2, 0.009), (3, 0.013), (3, 0.018), (4, 0.021)]
    search = Search(5, replace(LEVELS, dof=10**9), [Seen(at, worse) for at, worse in runs])

    def density(away):
        width = 0.04 + 0.03 / 2
        stray = math.sqrt(2 / math.pi) / width / (1 + (away / width) ** 2)
        return 0.95 * math.exp(-((away / 0.01) ** 2) / 2) / 0.01 + 0.05 * stray

    each = [
        math.prod(density(worse - 0.03 * (setting > culprit)) for setting, worse in runs)
        for culprit in range(5)
    ]
    assert search.probabilities == pytest.approx([one / sum(each) for one in each])


def test_the_culprit_is_named_with_its_loss_after_runs_of_both_sides():
    search, seen = searched(lambda setting: float(setting > 11))
    found = search.found()
    assert list(found.changes) == [11]
    assert found.loss == pytest.approx(0.03, abs=2 * found.loss_error)
    settings = [one.setting for one in seen]
    assert min(settings.count(11), settings.count(12)) >= 2
    assert len(seen) < 14
    # Without the last runs it is as probable, and no answer.
    sides = [at for at, one in enumerate(seen) if one.setting in (11, 12)]
    open_yet = Search(16, LEVELS, seen[: sides[-1]])
    assert open_yet.best()[1] > 0.95
    assert open_yet.found() is None


def test_a_setting_that_does_not_run_is_asked_once_and_told_with_its_neighbour():
    search, seen = searched(lambda setting: float(setting > 7), broken={8}, seed=2)
    assert sum(one.setting == 8 for one in seen) == 1
    assert list(search.found().changes) == [7, 8]


def test_of_two_culprits_one_is_named_or_none():
    def share_of(setting):
        return 0.5 * (setting > 3) + 0.5 * (setting > 12)

    levels = replace(LEVELS, loss=0.05)
    outcomes = [searched(share_of, levels=levels, seed=seed)[0].found() for seed in range(10)]
    named = [one for one in outcomes if one is not None]
    assert all({3, 12} & set(one.changes) for one in named)
    assert 0 < len(named) < len(outcomes)


def test_levels_in_doubt_have_no_setting_repeated_for_ever():
    levels = Levels(good=1.0, bad=0.3, loss=1.07, loss_error=0.16, noise=0.07, level_error=0.24)
    for culprit in range(3):
        seen = []
        while (setting := (search := Search(3, levels, seen)).next_setting()) is not None:
            seen.append(Seen(setting, 0.48 + 1.08 * (setting > culprit)))
            assert len(seen) < 14
        assert list(search.found().changes) == [culprit]


def test_a_search_that_does_not_come_to_an_end_is_given_up():
    seen = [Seen(8, 0.015 + 0.01 * (-1) ** n) for n in range(60)]
    assert Search(16, LEVELS, seen[:20]).next_setting() == 8
    search = Search(16, LEVELS, seen)
    assert (search.next_setting(), search.found()) == (None, None)


def test_fewer_runs_are_left_the_more_is_known():
    _, seen = searched(lambda setting: float(setting > 11))
    left = [Search(16, LEVELS, seen[:n]).runs_left() for n in range(len(seen) + 1)]
    assert 7 < left[0] < 12
    assert left[-1] == 0
    assert left[len(left) // 2] < left[0]
    assert Search(16, replace(LEVELS, loss=0.01)).runs_left() > 3 * left[0]


# --------------------------------------------------------------------------- both ends


@pytest.mark.parametrize("better", Better)
def test_both_ends_are_measured_whatever_direction_is_better(better):
    factor = 0.95 if better is Better.HIGHER else 1 / 0.95
    bad = [run * factor for run in reversed(GOOD)]
    levels = levels_of(GOOD, bad, better)
    assert levels.is_loss
    assert levels.loss == pytest.approx(0.0513, abs=1e-4)
    assert as_part(levels.loss, better) == pytest.approx(1 - 0.95 if factor < 1 else 1 / 0.95 - 1)
    assert not levels_of(bad, GOOD, better).is_loss
    assert worse_by(90.0 if better is Better.HIGHER else 110.0, 100.0, better) > 0


def test_a_loss_within_the_noise_is_none_and_an_outlier_moves_no_end():
    near = levels_of(GOOD, [run * 0.995 for run in reversed(GOOD)], Better.HIGHER)
    assert near.loss == pytest.approx(0.005, abs=1e-4)
    assert not near.is_loss
    levels = levels_of([*GOOD[:4], 60.0], [95.3, 94.2, 95.9, 94.7, 95.1], Better.HIGHER)
    assert levels.good == pytest.approx(100, abs=0.5)
    assert levels.is_loss


def test_earlier_sessions_show_the_noise_of_one_run_each():
    assert levels_of([100.0], [95.0], Better.HIGHER) is None
    sessions = [[run * level for run in GOOD] for level in (1.0, 1.02, 0.99)]
    levels = levels_of([100.0], [95.0], Better.HIGHER, sessions)
    assert levels.noise == pytest.approx(0.007, abs=0.001)
    assert levels.is_loss


@pytest.mark.nightly
@pytest.mark.parametrize("broken", [False, True])
def test_the_simulation_tells_by_its_exit_code_whether_its_bars_are_reached(tmp_path, broken):
    script = Path(__file__).parent.parent / "benchmarks" / "culprit.py"
    words = [script, "--searches", "20", "--only", "strays"]
    if broken:  # naming what is hardly probable
        code = (
            "import pytest_dlperf.culprit.search as s, runpy, sys\ns.SURE, s._MIN_PART = 0.2, -9\n"
        )
        code += f"sys.argv[0] = {str(script)!r}; sys.path.insert(0, {str(script.parent)!r})\n"
        code += f"runpy.run_path({str(script)!r}, run_name='__main__')\n"
        words = ["-c", code, *words[1:]]
    done = subprocess.run(
        [sys.executable, *words], check=False, capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == broken, done.stdout + done.stderr
    assert ("missed  every tenth run" in done.stdout) is broken
