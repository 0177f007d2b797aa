"""What is known before a hunt: its ends, its cost, how sure it can be."""

import pytest
from msgspec.structs import replace

from pytest_dlperf.culprit.hunt import Hunt, ends_of
from pytest_dlperf.culprit.search import forecast
from pytest_dlperf.model.metric import Better

GOOD = [100.4, 99.1, 100.9, 99.6, 100.2]


@pytest.mark.parametrize("better", Better)
def test_both_ends_are_measured_whatever_direction_is_better(better):
    factor = 0.95 if better is Better.HIGHER else 1 / 0.95
    bad = [run * factor for run in reversed(GOOD)]
    ends = ends_of(GOOD, bad, better)
    assert ends.is_loss
    assert ends.loss == pytest.approx(0.0513, abs=1e-4)
    assert ends.noise_dof == 8
    turned = ends_of(bad, GOOD, better)
    assert not turned.is_loss


def test_a_loss_within_the_noise_is_none():
    ends = ends_of(GOOD, [run * 0.995 for run in reversed(GOOD)], Better.HIGHER)
    assert ends.loss == pytest.approx(0.005, abs=1e-4)
    assert not ends.is_loss


def test_one_gross_outlier_moves_no_end():
    ends = ends_of([*GOOD[:4], 60.0], [95.3, 94.2, 95.9, 94.7, 95.1], Better.HIGHER)
    assert ends.good == pytest.approx(100, abs=0.5)
    assert ends.is_loss


def test_earlier_sessions_show_the_noise_of_one_run_each():
    assert ends_of([100.0], [95.0], Better.HIGHER) is None
    sessions = [[run * level for run in GOOD] for level in (1.0, 1.02, 0.99)]
    ends = ends_of([100.0], [95.0], Better.HIGHER, sessions=sessions)
    assert ends.noise == pytest.approx(0.007, abs=0.001)
    assert ends.is_loss


def test_an_end_without_runs_is_refused():
    with pytest.raises(ValueError, match="both ends have runs above 0"):
        ends_of(GOOD, [], Better.HIGHER)


def test_a_faint_loss_costs_more_runs():
    clear = Hunt(weights=(1.0,) * 16, loss=0.03, noise=0.01)
    faint = replace(clear, loss=0.01)
    cheap, dear = forecast(clear, trials=20), forecast(faint, trials=20)
    assert cheap.runs < 10
    assert dear.runs > 3 * cheap.runs


def test_a_sitting_that_may_differ_costs_more_than_that_of_the_ends():
    hunt = Hunt(weights=(1.0,) * 16, loss=0.03, noise=0.01, spread=0.02)
    apart = forecast(hunt, trials=20)
    known = forecast(replace(hunt, measured_in=2), trials=20)
    assert known.runs == forecast(replace(hunt, spread=0.0), trials=20).runs
    assert apart.runs > known.runs + 0.5
