"""Gaps between time stamps that stand out, and means that are no times of steps."""

import math
import random
from datetime import datetime, timedelta
from itertools import accumulate

import log_makers as make
import pytest

from pytest_dlperf.formats.log_format import custom_format
from pytest_dlperf.logs.mean_since_start import step_behind_mean
from pytest_dlperf.model.measurement import RunStatus

START = datetime(2026, 3, 29, 1, 59, 30)  # noqa: DTZ001 - logs tell no zone
STEP_S = 0.25
"""Steps 21 to 120 are measured."""
PLAIN = custom_format("plain", record=r"(?P<timestamp>\d+-\d+-\d+ [\d:,]+) step (?P<step>\d+) ")


def plain(times):
    stamps = (START + timedelta(seconds=each) for each in accumulate(times))
    lines = enumerate(stamps, 1)
    return "".join(f"{f'{now:%Y-%m-%d %H:%M:%S,%f}'[:-3]} step {k} done\n" for k, now in lines)


@pytest.mark.parametrize("pause_s", [3.0, 40.0, 600.0])
@pytest.mark.parametrize("format_of", ["dlperf", "tf_models_bert", "plain"])
def test_a_gap_is_told(tmp_path, pause_s, format_of):
    """As where a run died and went on with the next step."""
    times = [STEP_S] * 70 + [STEP_S + pause_s] + [STEP_S] * 60
    log = plain(times) if format_of == "plain" else make.OF_ONE_RANK[format_of](times)
    run = make.measured(tmp_path, log, PLAIN if format_of == "plain" else format_of)
    assert run.metrics == {"throughput": pytest.approx(128 * 100 / (25 + pause_s), rel=1e-3)}
    assert f"{pause_s + STEP_S:.4g} s pass from the stamp of step 70 to that of step 71" in str(
        run.reason
    )
    assert run.paused is (pause_s > 25)


@pytest.mark.parametrize(
    "times",
    [
        [STEP_S * (1 + k % 5) for k in range(130)],
        [STEP_S * (8 if k % 10 == 0 else 1) for k in range(130)],
        [STEP_S * (4 if k == 70 else 1) for k in range(130)],
        [5.0] + [STEP_S] * 18 + [60.0] + [STEP_S] * 120,
    ],
    ids=["uneven", "a checkpoint in ten", "one of four steps' time", "before the window"],
)
def test_steps_that_vary_are_no_gap(tmp_path, times):
    run = make.measured(tmp_path, plain(times), PLAIN)
    assert (run.status, run.reason) == (RunStatus.OK, None)


def test_stamps_of_whole_seconds_stand_together(tmp_path):
    times = [STEP_S] * 150
    stamps = (START + timedelta(seconds=each) for each in accumulate(times))
    log = "".join(f"{now:%Y-%m-%d %H:%M:%S} step {k} done\n" for k, now in enumerate(stamps, 1))
    run = make.measured(tmp_path, log, PLAIN)
    assert run.status is RunStatus.OK
    assert "pass from" not in str(run.reason)


def test_a_gap_among_stamps_that_do_not_move_otherwise(tmp_path):
    """Steps of less than the second that stamps show, and an hour that has not passed."""
    hours = [2 if k < 70 else 3 for k in range(130)]
    log = "".join(f"2026-03-29 0{hour}:00:00 step {k} done\n" for k, hour in enumerate(hours, 1))
    run = make.measured(tmp_path, log, PLAIN)
    assert "3600 s pass from the stamp of step 70 to that of step 71" in str(run.reason)


def of_each_step():
    """What single steps may take: all of it is true."""
    count = 150
    noise = random.Random(3)  # noqa: S311 - no secret
    smooth = {
        "even": [0.3] * count,
        "warming up": [0.3 * (1 + 2 * math.exp(-k / 25)) for k in range(count)],
        "slowing down": [0.3 * (1 + k / 500) for k in range(count)],
        "speeding up": [0.3 * (2 - k / count) for k in range(count)],
        "a fresh start": [9.0, *[0.12] * (count - 1)],
        "throttled": [0.3 if k < 70 else 0.45 for k in range(count)],
        "in waves": [0.3 * (1 + 0.2 * math.sin(k / 9)) for k in range(count)],
    }
    noisy = {
        f"{name}, noisy by {part}": [each * noise.gauss(1, part) for each in times]
        for name, times in smooth.items()
        for part in (0.001, 0.01, 0.1)
    }
    return smooth | noisy


@pytest.mark.parametrize("interval", [1, 10, 20])
def test_a_mean_since_the_start_is_told_from_times_of_single_steps(interval):
    for name, times in of_each_step().items():
        steps = range(interval, len(times) + 1, interval)
        printed = [f"{times[step - 1]:.4f}".encode() for step in steps]
        assert step_behind_mean(steps, [*map(float, printed)], printed) is None, name
    slow = [*accumulate([9.0] + [0.12] * 149)]
    means = [f"{slow[step - 1] / step:.4f}".encode() for step in steps]
    found = step_behind_mean(steps, [*map(float, means)], means)
    assert found == pytest.approx(0.12, rel=0.02)
