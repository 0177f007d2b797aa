"""Median, mean, spread and speedup of the runs of a case."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert, to_builtins

from pytest_dlperf.measure.run import last_words
from pytest_dlperf.model import statistics
from pytest_dlperf.model.measurement import Estimator, Measurement, Run, RunStatus
from pytest_dlperf.model.metric import (
    SPEEDUP_METRIC,
    THROUGHPUT,
    Better,
    Metric,
    Source,
    throughput,
)


def measurement(*throughputs, estimator=Estimator.PUBLISHED):
    runs = (
        Run(
            run=number,
            status=RunStatus.OK if value is not None else RunStatus.INVALID,
            metrics={} if value is None else {THROUGHPUT: value},
        )
        for number, value in enumerate(throughputs, 1)
    )
    return Measurement(
        case_id="paddle-resnet50-fp32-b128-4n8g",
        estimator=estimator,
        metrics=(throughput("images/s"), SPEEDUP_METRIC),
        runs=tuple(runs),
    )


def median(measured):
    return measured.samples(THROUGHPUT).median


def test_a_published_case_has_its_printed_figures():
    many = measurement(9256.12, 9349.71, 9359.18, 9353.71, 9346.64, 9306.93)
    one = measurement(354.32, 354.71, 353.04, 352.08, 352.07, 352.39)

    samples = many.samples(THROUGHPUT)
    assert (samples.median, samples.mean) == (9348.17, 9328.72)
    assert many.ratio(SPEEDUP_METRIC, one) == 26.5
    assert samples.spread == pytest.approx(0.0043, abs=5e-5)


def test_steady_numbers_are_not_rounded():
    assert median(measurement(0.5312345, estimator=Estimator.STEADY)) == 0.5312345


def test_broken_runs_are_kept_but_not_counted():
    mixed = measurement(100.0, None, 300.0)
    assert (median(mixed), len(mixed.runs), len(mixed.broken_runs)) == (200.0, 3, 1)


def test_without_runs_there_are_no_numbers():
    nothing = measurement(None)
    samples = nothing.samples(THROUGHPUT)
    assert (samples.median, samples.mean, samples.spread) == (None, None, None)
    assert measurement(100.0).samples(THROUGHPUT).spread is None
    assert nothing.ratio(SPEEDUP_METRIC, measurement(100.0)) is None
    for over in (nothing, measurement(0.004)):  # which is rounded to nothing
        assert measurement(100.0).ratio(SPEEDUP_METRIC, over) is None


def test_numbers_of_any_size_have_a_mean_and_a_spread():
    samples = measurement(1.5e308, 1.7e308, 1.6e308, estimator=Estimator.STEADY).samples(THROUGHPUT)
    assert samples.mean == pytest.approx(1.6e308)
    assert samples.spread == pytest.approx(0.0625)


def test_a_speedup_over_another_estimator_is_refused():
    steady = measurement(100.0, estimator=Estimator.STEADY)
    with pytest.raises(ValueError, match="one estimator and unit"):
        measurement(100.0).ratio(SPEEDUP_METRIC, steady)


def test_the_order_of_the_runs_changes_nothing():
    values = (8940.3, 8468.23, 8781.78, 8648.47, 8851.62)
    means = {measurement(*order).samples(THROUGHPUT).mean for order in permutations(values)}
    assert len(means) == 1


@given(st.lists(st.floats(1e-3, 1e9), min_size=1, max_size=12))
def test_median_and_mean_lie_between_the_extremes(values):
    for middle in (statistics.median(values), statistics.mean(values)):
        assert min(values) * (1 - 1e-12) <= middle <= max(values) * (1 + 1e-12)


def test_measurements_pass_between_processes_unchanged():
    one = measurement(100.0, None, 300.25)
    assert convert(to_builtins(one), Measurement) == one


def test_only_what_the_benchmark_printed_is_rounded():
    seconds = Metric(name="step_time_p50", unit="s", better=Better.LOWER, source=Source.STEPS)
    numbers = {THROUGHPUT: 352.7249, seconds.name: 0.036294}
    measured = Measurement(
        case_id="paddle-resnet50-fp32-b128-4n8g",
        estimator=Estimator.PUBLISHED,
        metrics=(throughput("images/s"), seconds),
        runs=(Run(run=1, status=RunStatus.OK, metrics=numbers),),
    )
    assert median(measured) == 352.72
    assert measured.samples(seconds.name).median == 0.036294


def test_what_a_trainer_says_of_being_ended_stands_apart(tmp_path):
    log = tmp_path / "node0.log"
    before, after = "step 1\nout of memory\n", "Terminated\n"
    log.write_text(before + after, encoding="utf-8")
    first, second, note, last = last_words(log, len(before), 6)
    assert (first, second, last) == ("step 1", "out of memory", "Terminated")
    assert "SIGTERM" in note
    assert last_words(log, None, 6) == ["step 1", "out of memory", "Terminated"]
