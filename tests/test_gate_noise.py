"""The noise between runs, and the errors that follow from it."""

import random

import pytest

from pytest_dlperf.gate.noise import (
    QUANTILE_97_5,
    StandardError,
    location,
    noise,
    pooled_noise,
    t_quantile,
    t_sf,
)
from pytest_dlperf.model.statistics import mad_deviation

EVEN = [985.0, 992.0, 1000.0, 1008.0, 1015.0]


def test_the_noise_leaves_out_what_lies_far_from_the_median():
    runs = EVEN * 6
    assert noise(runs) == pytest.approx(0.0109, abs=0.0002)
    assert noise([*runs, 400.0, 300.0]) == noise(runs)


def test_the_noise_is_never_below_a_fifth_of_a_percent():
    assert noise([1000.0] * 30) == 0.002
    assert noise([1000.0]) == 0.002


def test_many_equal_runs_do_not_hide_how_much_the_others_differ():
    assert noise([1000.0] * 16 + [1006.0] * 14) == pytest.approx(0.003, abs=0.0002)


@pytest.mark.parametrize("count", [5, 9, 10, 30])
def test_the_deviation_from_the_median_is_corrected_for_small_samples(count):
    choose = random.Random(count)  # noqa: S311 - noise
    samples = ([choose.gauss(1000, 10) for _ in range(count)] for _ in range(3000))
    average = sum(map(mad_deviation, samples)) / 3000
    assert average == pytest.approx(10, rel=0.04)


def test_the_location_is_the_mean_without_gross_outliers():
    assert location([990, 1000, 1010, 700], 0.01) == 1000
    assert location([990, 1000, 1013], 0.01) == pytest.approx(1001)


def test_the_location_is_the_median_where_fewer_than_half_are_near_it():
    assert location([1000, 700, 500, 1300, 1600], 0.01) == 1000


def test_the_noise_of_short_sessions_is_pooled_around_their_own_means():
    found = pooled_noise([[99.0, 100.0, 101.0], [990.0, 1000.0, 1010.0], [5.0], []])
    assert found.deviation == pytest.approx(0.01)
    assert found.dof == 4
    assert pooled_noise([[100.0, 101.0], [5.0]]) is None
    assert pooled_noise([]) is None
    quiet = [[100.0, 100.5, 99.5, 100.2, 99.8]]
    assert pooled_noise([*quiet, [50.0, 100.0]]) == pooled_noise(quiet)


def test_the_pooled_noise_leaves_out_accidents_only():
    choose = random.Random(1)  # noqa: S311 - noise
    found = []
    for _ in range(2000):
        sessions = [[choose.gauss(1000, 10) for _ in range(5)] for _ in range(2)]
        if pooled := pooled_noise(sessions):
            found.append(pooled.deviation**2)
    assert (sum(found) / 2000) ** 0.5 == pytest.approx(0.01, rel=0.03)
    stray = pooled_noise([EVEN, [*EVEN[:4], 300.0]])
    assert stray.deviation < 0.013


@pytest.mark.parametrize(
    ("dof", "quantile"), [(1, 12.706), (2, 4.303), (3, 3.182), (8, 2.306), (29, 2.045)]
)
def test_estimated_deviations_are_widened_as_in_the_tables(dof, quantile):
    assert t_sf(quantile, dof) == pytest.approx(0.025, rel=1e-3)
    assert t_quantile(QUANTILE_97_5, dof) == pytest.approx(quantile, rel=1e-3)
    assert t_sf(0.0, dof) == pytest.approx(0.5)


def test_a_ratio_has_the_errors_of_both_ends():
    end = StandardError(value=0.03, dof=4)
    both = StandardError.combined([end, StandardError(value=0.04, dof=4)])
    assert both.value == pytest.approx(0.05)
    assert both.dof == 7
    assert StandardError.combined([end, StandardError(value=1e-6, dof=29)]).dof == 4
