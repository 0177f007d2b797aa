"""What looks sound record by record, and is not: clocks that jump, means, damage at the ends."""

import json
import math
import random
from datetime import datetime, timedelta
from itertools import accumulate

import log_makers as make
import pytest

from pytest_dlperf.formats.log_format import custom_format
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import Estimator, RunStatus, Window

BATCH = 8
OF = Case.from_id(f"framework-model-bf16-gb{BATCH}-s512-1n1g")
START = datetime(2026, 3, 29, 1, 59, 30)  # noqa: DTZ001 - logs tell no zone
STEP_S = 0.25
"""Steps 21 to 120 are measured: 100 steps of 8 samples in 25 s are 32 samples/s."""

TITAN = custom_format(
    "titan", record=r"(?P<timestamp>\d+-\d+-\d+ [\d:,]+) - root - INFO - step: +(?P<step>\d+) "
)
PLAIN = custom_format("plain", record=r"(?P<timestamp>\d+-\d+-\d+ [\d:,]+) step (?P<step>\d+) ")


def titan(times, jumps, said):
    """Lines with a time stamp, by a clock that jumps before some steps, and a speed."""
    now, lines = START, []
    for step, (time, by_speed) in enumerate(zip(times, said, strict=True), 1):
        now += timedelta(seconds=time + jumps.get(step, 0.0))
        lines.append(
            f"[titan] {f'{now:%Y-%m-%d %H:%M:%S,%f}'[:-3]} - root - INFO - step: {step:2}  loss:  "
            f"3.24405  memory:  9.46GiB(64.99%)  tps: {round(BATCH * 512 / by_speed):,}  "
            "tflops: 0.52\n"
        )
    return "".join(lines)


def plain(times):
    stamps = (START + timedelta(seconds=each) for each in accumulate(times))
    lines = enumerate(stamps, 1)
    return "".join(f"{f'{now:%Y-%m-%d %H:%M:%S,%f}'[:-3]} step {k} done\n" for k, now in lines)


# ------------------------------------------------------------------------------- gaps of stamps


@pytest.mark.parametrize("jump_s", [3600.0, 30.0, 3.0])
@pytest.mark.parametrize("step", [22, 57, 120])
def test_a_clock_that_was_set_is_contradicted_by_the_speed_on_the_line(tmp_path, jump_s, step):
    """Summer time begins, or a node finds its time server."""
    times = [STEP_S] * 130
    run = make.measured(tmp_path, titan(times, {step: jump_s}, times), TITAN, of=OF)
    assert run.status is RunStatus.INVALID
    assert f"{jump_s + STEP_S:.4g} s pass from the stamp of step {step - 1} to" in str(run.reason)
    assert f"the clock was set, or the training paused; measure it again (line {step})" in str(
        run.reason
    )


def test_a_pause_that_the_speed_on_the_line_confirms_is_told(tmp_path):
    """100 steps take 25 s and the pause 60: 800 samples in 85 s."""
    times = [STEP_S] * 57 + [STEP_S + 60.0] + [STEP_S] * 70
    run = make.measured(tmp_path, titan(times, {}, times), TITAN, of=OF)
    assert run.metrics == {"throughput": pytest.approx(800 / 85)}
    assert run.reason == (
        "60.25 s pass from the stamp of step 57 to that of step 58, where 0.25 s are usual: the "
        "training paused or was resumed, or the clock was set; else it would be 32 samples/s"
    )


@pytest.mark.parametrize(
    "slow",
    [
        *(dict.fromkeys(steps, 20) for steps in (range(57, 59), range(57, 62), range(116, 125))),
        {57: 4, 58: 20, 59: 4},
    ],
    ids=["two", "five", "at the end", "among less slow ones"],
)
def test_slow_steps_in_a_row_are_no_contradiction(tmp_path, slow):
    """The lines of all of them print how slow they were."""
    times = [STEP_S * slow.get(step, 1) for step in range(1, 131)]
    run = make.measured(tmp_path, titan(times, {}, times), TITAN, of=OF)
    assert run.status is RunStatus.OK, run.reason
    assert run.metrics == {"throughput": pytest.approx(800 / sum(times[20:120]))}


@pytest.mark.parametrize("jump_s", [0.0, 3600.0])
def test_stamps_among_many_slow_steps(tmp_path, jump_s):
    """More than are looked at one by one: what a line prints is compared with usual lines."""
    times = [STEP_S * (20 if step in range(300, 500) else 1) for step in range(1, 1031)]
    jumping = [time + jump_s * (step == 400) for step, time in enumerate(times, 1)]
    lines = make.dllogger(jumping).splitlines(keepends=True)
    log = "".join(
        f"{line.partition('total_ips')[0]}total_ips : {128 / time:.2f} img/s\n"
        for line, time in zip(lines, times, strict=True)
    )
    window = Window(warmup_steps=20, measured_steps=1000)
    run = make.measured(tmp_path, log, "dllogger", window=window)
    if jump_s:
        assert "by the time or speed on the same line 20 times: the clock" in str(run.reason)
    else:
        throughput = 128 * 1000 / sum(times[25:1025])
        assert run.metrics == {"throughput": pytest.approx(throughput, rel=1e-3)}


@pytest.mark.parametrize(
    "said", ["{:.0f} samples/s", "{:,.2f} images/sec", "it/s: {:.2f}", "128 images, {:.1f} img/s"]
)
@pytest.mark.parametrize(("jump_s", "is_refused"), [(3600.0, True), (40.0, True), (3.0, False)])
def test_the_speed_on_lines_of_ones_own_contradicts_most_of_a_window(
    tmp_path, said, jump_s, is_refused
):
    """A gap of less may be a checkpoint that the speed leaves out: it is told."""
    times = [STEP_S] * 70 + [STEP_S + jump_s] + [STEP_S] * 60
    lines = plain(times).splitlines()
    log = "".join(f"{line} loss 3.1 {said.format(128 / STEP_S)}\n" for line in lines)
    run = make.measured(tmp_path, log, PLAIN)
    assert ("on the same line 1 times: the clock was set" in str(run.reason)) == is_refused
    assert (run.status is RunStatus.INVALID) == is_refused
    # Those of the line behind the pause say that it was one.
    slow = [128 / time for time in times]
    log = "".join(
        f"{line} loss 3.1 {said.format(rate)}\n" for line, rate in zip(lines, slow, strict=True)
    )
    told = make.measured(tmp_path, log, PLAIN)
    assert (told.status, told.paused) == (RunStatus.OK, is_refused)
    assert "else it would be 512 samples/s" in str(told.reason)


@pytest.mark.parametrize(
    "said", ["data 512 samples/s", "mean 512 samples/s", "took 0.25 s", "8 GiB/s"]
)
def test_what_is_none_of_a_step_contradicts_no_gap(tmp_path, said):
    times = [STEP_S] * 70 + [STEP_S + 600.0] + [STEP_S] * 60
    log = "".join(f"{line} {said}\n" for line in plain(times).splitlines())
    run = make.measured(tmp_path, log, PLAIN)
    assert (run.status, run.paused) == (RunStatus.OK, True)


@pytest.mark.parametrize("pause_s", [3.0, 40.0, 600.0])
@pytest.mark.parametrize("format_of", ["dlperf", "tf_models_bert", "plain"])
def test_a_gap_that_nothing_contradicts_is_told(tmp_path, pause_s, format_of):
    """As where a run died and went on with the next step."""
    times = [STEP_S] * 70 + [STEP_S + pause_s] + [STEP_S] * 60
    log = plain(times) if format_of == "plain" else make.OF_ONE_RANK[format_of](times)
    run = make.measured(tmp_path, log, PLAIN if format_of == "plain" else format_of)
    assert run.metrics == {"throughput": pytest.approx(128 * 100 / (25 + pause_s), rel=1e-3)}
    assert f"{pause_s + STEP_S:.4g} s pass from the stamp of step 70 to that of step 71" in str(
        run.reason
    )
    assert "else it would be 512 samples/s" in str(run.reason)


@pytest.mark.parametrize("step", [22, 64, 120])
@pytest.mark.parametrize("measured", [100, 1000])
@pytest.mark.parametrize("buffer_size", [1000, 1 << 18])
def test_stamps_that_are_not_read_one_by_one_are_looked_through(
    tmp_path, step, measured, buffer_size
):
    """The speed on dllogger's lines is the same before and behind an hour that has not passed."""
    step += measured - 100 if step == 120 else 0
    times = [STEP_S] * (measured + 30)
    times[step - 1 + 5] += 3600.0  # the window of this trainer begins five steps later
    window = Window(warmup_steps=20, measured_steps=measured)
    log = make.dllogger(times, said_s=STEP_S)
    run = make.measured(tmp_path, log, "dllogger", window=window, buffer_size=buffer_size)
    assert run.status is RunStatus.INVALID
    assert f"of step {step + 4} to that of step {step + 5}, 1.44e+04 times the usual, and" in str(
        run.reason
    )


@pytest.mark.parametrize("log_format", ["dllogger", "tf_models_bert"])
def test_the_published_definition_is_told_of_gaps_as_well(tmp_path, log_format):
    """The speed that dllogger prints contradicts; TensorFlow's trainer prints none."""
    times = [STEP_S] * 70 + [STEP_S + 3600.0] + [STEP_S] * 60
    says = {"said_s": STEP_S} if log_format == "dllogger" else {}
    log = make.OF_ONE_RANK[log_format](times, **says)
    run = make.measured(tmp_path, log, log_format, estimator=Estimator.PUBLISHED)
    assert "from the stamp of step 70 to that of step 71" in str(run.reason)
    expected = {"throughput": round(128 / 36.25, 2)} if log_format == "tf_models_bert" else {}
    assert run.metrics == expected


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


def every(interval, log):
    lines = log.splitlines(keepends=True)
    return "".join(line for step, line in enumerate(lines, 1) if step % interval == 0)


@pytest.mark.parametrize("interval", [20, 25, 30, 40, 50])
@pytest.mark.parametrize("step", [61, 99])
def test_a_gap_among_few_stamps_is_held_against_those_outside(tmp_path, interval, step):
    """Every 50th step is printed: two stamps count, between which an hour has not passed."""
    times = [STEP_S] * 210
    right = make.measured(tmp_path, every(interval, plain(times)), PLAIN)
    assert right.metrics == {"throughput": pytest.approx(512)}
    assert right.reason is None
    log = titan(times, {step: 3600.0}, times)
    contradicted = make.measured(tmp_path, every(interval, log), TITAN, of=OF)
    assert "the clock was set, or the training paused; measure it again" in str(contradicted.reason)
    times[step - 1] += 3600.0
    told = make.measured(tmp_path, every(interval, plain(times)), PLAIN)
    assert "else it would be 512 samples/s" in str(told.reason)


def test_two_stamps_alone_are_told(tmp_path):
    run = make.measured(tmp_path, every(60, plain([STEP_S] * 120)), PLAIN)
    assert run.metrics == {"throughput": pytest.approx(512)}
    assert run.reason == (
        "only 2 stamps count, and none beside them: a pause or a clock that was set would not be "
        "seen"
    )


# ------------------------------------------------------------------- a damaged stamp at an end


@pytest.mark.parametrize(
    ("line", "before", "damaged"),
    [(20, "14:29:33", "14:09:33"), (20, "14:29:33", "03:29:33"), (120, "14:29:58", "14:59:58")],
)
def test_a_stamp_at_an_end_is_held_against_the_one_outside(tmp_path, line, before, damaged):
    """TensorFlow's: step 20 ends the warm-up, and step 120 the window."""
    lines = make.tf_models_bert([10.0] + [STEP_S] * 129).splitlines(keepends=True)
    assert f" {before}." in lines[line - 1]
    lines[line - 1] = lines[line - 1].replace(before, damaged)
    run = make.measured(tmp_path, "".join(lines), "tf_models_bert")
    assert run.status is RunStatus.INVALID
    assert f"{damaged}." in str(run.reason)
    assert f"it is damaged (line {line})" in str(run.reason)


def test_a_damaged_date_at_the_end_of_the_window_of_plsc(tmp_path):
    """100 batches behind batch 50, whose record is the sixth: the last is the 16th."""
    lines = make.plsc([[500.0] * 30]).splitlines(keepends=True)
    lines[15] = lines[15].replace("2020-09-15", "2020-09-25")
    run = make.measured(tmp_path, "".join(lines), "plsc", window=make.PLSC_WINDOW)
    assert run.status is RunStatus.INVALID
    assert "it is damaged (line 16)" in str(run.reason)


# ---------------------------------------------------------------------- means since the start

KERAS = custom_format(
    "keras", record=r"(?P<step>\d+)/500 \[.*- (?P<milliseconds>\d+)ms/step - loss"
)
SWIFT = custom_format("swift", json={"step": "step", "steps_per_second": "train_speed(iter/s)"})
FACTORY = custom_format(
    "factory", json={"step": "current_steps", "tokens_per_second": "throughput"}
)
KERAS_SINCE_START = custom_format(
    "keras",
    record=r"(?P<step>\d+)/500 \[.*- (?P<milliseconds>\d+)ms/step - loss",
    covers="since_start",
)


def keras(step, seconds):
    """A bar like that of Keras, by which it is not known."""
    return f"{step:3}/500 [====>....] - left: 1:02 - {seconds * 1000:.0f}ms/step - loss: 2.3\n"


def swift(step, seconds):
    return (
        json.dumps({"loss": 1.9, "step": step, "train_speed(iter/s)": round(1 / seconds, 6)}) + "\n"
    )


def factory(step, seconds):
    speed = round(BATCH * 512 / seconds, 2)
    return json.dumps({"current_steps": step, "loss": 1.9, "throughput": speed}) + "\n"


def means(times):
    return [total / count for count, total in enumerate(accumulate(times), 1)]


@pytest.mark.parametrize(
    ("log_format", "line"),
    [(KERAS, keras), (SWIFT, swift), (FACTORY, factory)],
    ids=["keras", "swift", "factory"],
)
@pytest.mark.parametrize("interval", [1, 10])
def test_a_mean_since_the_start_is_seen_by_how_it_moves(tmp_path, log_format, line, interval):
    """A first step of 9 s, and others of about 0.12: the mean of step 70 is 0.247 s."""
    noise = random.Random(7)  # noqa: S311 - no secret
    times = [9.0, *(0.12 * noise.gauss(1, 0.02) for _ in range(150))]
    printed = enumerate(means(times), 1)
    log = "".join(line(step, each) for step, each in printed if step % interval == 0)
    run = make.measured(tmp_path, log, log_format, of=OF)
    assert run.status is RunStatus.INVALID
    assert "moves as a mean of all steps so far does: it says 0.2" in str(run.reason)
    assert " a step adds 0.1" in str(run.reason)
    assert "write 'covers: since_start'" in str(run.reason)


@pytest.mark.parametrize(
    ("log_format", "line"),
    [(KERAS, keras), (SWIFT, swift), (FACTORY, factory)],
    ids=["keras", "swift", "factory"],
)
@pytest.mark.parametrize("interval", [20, 25, 30, 40])
def test_means_of_few_records_are_held_against_those_outside(tmp_path, log_format, line, interval):
    """Three to five of them are in the window; those before and behind tell the rest."""
    noise = random.Random(7)  # noqa: S311 - no secret
    times = [9.0, *(0.12 * noise.gauss(1, 0.02) for _ in range(350))]
    log = "".join(line(step, each) for step, each in enumerate(means(times), 1))
    run = make.measured(tmp_path, every(interval, log), log_format, of=OF)
    assert "moves as a mean of all steps so far does: it says 0." in str(run.reason)
    assert " a step adds 0.1" in str(run.reason)
    cut = every(interval, "".join(log.splitlines(keepends=True)[:120]))
    if interval == 30:  # four records, and none beside
        told = make.measured(tmp_path, cut, log_format, of=OF)
        assert told.status is RunStatus.OK
        assert "may be a mean of all steps so far, which 4 records do not tell: it says 0.2" in str(
            told.reason
        )


def test_what_the_message_says_reads_it_rightly(tmp_path):
    """The mean of step 120 is (9 + 119 x 0.12) / 120 = 0.194 s, that of step 20 0.564."""
    log = "".join(keras(step, each) for step, each in enumerate(means([9.0] + [0.12] * 149), 1))
    run = make.measured(tmp_path, log, KERAS_SINCE_START, of=OF)
    assert run.metrics == {"throughput": pytest.approx(100 * BATCH / (120 * 0.194 - 20 * 0.564))}


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


@pytest.mark.parametrize("times", of_each_step().values(), ids=of_each_step())
@pytest.mark.parametrize("interval", [1, 10, 20, 25])
def test_times_of_single_steps_do_not_move_so(tmp_path, times, interval):
    log = "".join(keras(step, each) for step, each in enumerate(times, 1) if step % interval == 0)
    run = make.measured(tmp_path, log, KERAS, of=OF)
    assert run.status is RunStatus.OK
    assert "mean of all" not in str(run.reason)
