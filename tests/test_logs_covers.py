"""What a printed number covers: the last step, all since the record before, or since the start."""

import math

import log_makers as make
import pytest

from pytest_dlperf.formats.log_format import custom_format
from pytest_dlperf.model.measurement import RunStatus, Window

TIMES = make.seconds(200)
SECONDS = r"it (?P<step>\d+) took (?P<seconds>[\d.]+)"
RATE = r"it (?P<step>\d+): (?P<samples_per_second>[\d.]+)"


def means(interval, begin):
    """The mean of the steps since the record before, or since the start where it is 0."""
    return [
        (k, math.fsum(TIMES[(k - interval) * begin : k]) / (interval if begin else k))
        for k in range(interval, 201, interval)
    ]


@pytest.mark.parametrize("speeds", [False, True])
@pytest.mark.parametrize("ranks", [1, 2])
def test_means_since_the_record_before_stand_for_all_of_them(tmp_path, ranks, speeds):
    case = make.case(f"1n{ranks}g")
    log = "".join(
        f"it {k}: {case.global_batch / mean:.6f}\n" if speeds else f"it {k} took {mean:.6f}\n"
        for k, mean in means(10, 1)
        for _ in range(ranks)
    )
    mine = custom_format(
        "mine", record=RATE if speeds else SECONDS, covers="since_last", ranks="local"
    )
    run = make.measured(tmp_path, log, mine, of=case)
    expected = case.global_batch * 100 / math.fsum(TIMES[20:120])
    assert run.metrics.get("throughput") == pytest.approx(expected, rel=1e-5)
    assert run.steps == 100
    # The record of step 30 covers steps of the warm-up, too.
    late = make.measured(
        tmp_path, log, mine, of=case, window=Window(warmup_steps=25, measured_steps=95)
    )
    expected = case.global_batch * 90 / math.fsum(TIMES[30:120])
    assert late.metrics.get("throughput") == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_total_is_shared_by_the_steps_since_the_record_before(tmp_path, ranks):
    case = make.case(f"1n{ranks}g")
    log = "".join(
        f"it {k} took {10 * mean:.6f}\n" for k, mean in means(10, 1) for _ in range(ranks)
    )
    mine = custom_format("mine", record=SECONDS, covers="total_since_last", ranks="local")
    run = make.measured(tmp_path, log, mine, of=case)
    expected = case.global_batch * 100 / math.fsum(TIMES[20:120])
    assert run.metrics.get("throughput") == pytest.approx(expected, rel=1e-5)
    hole = log.replace(f"it 60 took {10 * means(10, 1)[5][1]:.6f}\n", "")
    assert make.measured(tmp_path, hole, mine, of=case).status is RunStatus.INVALID


def test_totals_of_which_every_other_is_missing_are_refused(tmp_path):
    """Each looks as if it were of twice as many steps."""
    log = "".join(
        f"it {k} took {10 * mean:.6f}\n" for k, mean in means(10, 1) if k <= 20 or k % 20 == 0
    )
    mine = custom_format("mine", record=SECONDS, covers="total_since_last")
    run = make.measured(tmp_path, log, mine)
    assert run.status is RunStatus.INVALID
    assert "records are 10 to 20 steps apart" in str(run.reason)


def test_a_speed_has_no_total():
    with pytest.raises(ValueError, match="is of durations"):
        custom_format("mine", record=RATE, covers="total_since_last")


@pytest.mark.parametrize("speeds", [False, True])
@pytest.mark.parametrize("interval", [1, 10])
def test_means_since_the_start_are_differenced(tmp_path, interval, speeds):
    log = "".join(
        f"it {k}: {128 / mean:.6f}\n" if speeds else f"it {k} took {mean:.6f}\n"
        for k, mean in means(interval, 0)
    )
    record = RATE if speeds else SECONDS
    run = make.measured(tmp_path, log, custom_format("mine", record=record, covers="since_start"))
    expected = 128 * 100 / math.fsum(TIMES[20:120])
    assert run.metrics.get("throughput") == pytest.approx(expected, rel=1e-3)
    assert (run.steps, run.reason) == (100, None)


@pytest.mark.parametrize(
    ("decimals", "status", "said"),
    [
        (4, RunStatus.OK, None),
        (2, RunStatus.OK, "uncertain by"),
        (1, RunStatus.INVALID, "too coarse"),
    ],
)
def test_the_digits_of_a_mean_since_the_start_limit_it(tmp_path, decimals, status, said):
    log = "".join(f"it {k} took {0.75:.{decimals}f}\n" for k in range(1, 151))
    mine = custom_format("mine", record=SECONDS, covers="since_start")
    run = make.measured(tmp_path, log, mine)
    assert run.status is status
    assert run.reason is None if said is None else said in (run.reason or "")


def test_means_since_the_start_over_epochs_are_refused(tmp_path):
    log = "".join(f"epoch {k // 60} it {k % 60} took 0.7500\n" for k in range(150))
    mine = custom_format("mine", record=rf"epoch (?P<epoch>\d+) {SECONDS}", covers="since_start")
    run = make.measured(tmp_path, log, mine)
    assert run.status is RunStatus.INVALID
    assert "an epoch begins within the window" in (run.reason or "")


def test_few_printed_steps_are_told(tmp_path):
    log = "".join(f"it {k} took 0.5\n" for k in range(25, 301, 25))
    run = make.measured(tmp_path, log, custom_format("mine", record=SECONDS))
    assert run.metrics.get("throughput") == 256
    assert run.reason == "4 steps of the 100 that are measured count"
