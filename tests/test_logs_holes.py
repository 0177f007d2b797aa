"""Logs that lack some of their steps, or hold two runs: no number is taken from a guess."""

import re

import log_makers as make
import pytest

from pytest_dlperf.formats.log_format import custom_format
from pytest_dlperf.model.measurement import Estimator, RunStatus, Window

# Logs that lack some of their steps: no number is taken from what little is left

CUSTOM = custom_format("seconds", record=r"it (?P<step>\d+) took (?P<seconds>[\d.]+)")
CUSTOM_STAMPS = custom_format("stamps", record=r"(?P<timestamp>[\d.]+) it (?P<step>\d+)$")
CUSTOM_RATES = custom_format("rates", record=r"it (?P<step>\d+): (?P<samples_per_second>[\d.]+)")
CUSTOM_SHARED = custom_format(
    "shared", record=r"(?P<timestamp>[\d.]+) it (?P<step>\d+)$", ranks="local"
)

MAKERS = {
    **{name: (name, maker) for name, maker in make.OF_ONE_RANK.items()},
    "seconds": (
        CUSTOM,
        lambda times: "".join(f"it {k} took {t}\n" for k, t in enumerate(times, 1)),
    ),
    "stamps": (
        CUSTOM_STAMPS,
        lambda times: "".join(f"{sum(times[:k])} it {k}\n" for k in range(1, len(times) + 1)),
    ),
    "rates": (
        CUSTOM_RATES,
        lambda times: "".join(f"it {k}: {128 / t}\n" for k, t in enumerate(times, 1)),
    ),
    "shared": (
        CUSTOM_SHARED,
        lambda times: "".join(f"{sum(times[:k])} it {k}\n" for k in range(1, len(times) + 1)),
    ),
}


def without(log, begin, end):
    """A log of steps only, without those from ``begin`` to before ``end``, counted from 1."""
    lines = log.splitlines(keepends=True)
    head = next(k for k, line in enumerate(lines) if "GPU" not in line and "=>" not in line)
    del lines[head + begin - 1 : head + end - 1]
    return "".join(lines)


def refused(run):
    assert run.status is RunStatus.INVALID
    assert run.metrics.get("throughput") is None
    assert run.reason is not None
    return run.reason


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        (30, 126),  # from within to the last step of the longest window
        (60, 140),  # and beyond
        (15, 126),  # from in front of the window
        (15, 140),
        (15, 60),
        (100, 128),
        (60, 80),
    ],
)
@pytest.mark.parametrize("name", MAKERS)
def test_a_hole_that_touches_the_window(tmp_path, name, begin, end):
    log_format, maker = MAKERS[name]
    log = maker([0.5] * 150)
    assert make.measured(tmp_path, log, log_format).metrics.get("throughput") == pytest.approx(256)
    reason = refused(make.measured(tmp_path, without(log, begin, end), log_format))
    assert f"none between step {begin - 1} and step {end}, counted from 1" in reason


@pytest.mark.parametrize("name", MAKERS)
def test_an_interval_above_the_window_is_no_measurement(tmp_path, name):
    log_format, maker = MAKERS[name]
    lines = maker([0.5] * 1500).splitlines(keepends=True)
    steps = [line for line in lines if "GPU" not in line and "=>" not in line]
    every = "".join(steps[:1500:110])
    reason = refused(make.measured(tmp_path, every, log_format))
    assert "only every 110 steps are printed, and 100 are measured; measure more" in reason


@pytest.mark.parametrize("name", ["paddle_resnet", "pytorch_imagenet", "seconds"])
def test_one_duration_is_not_a_window(tmp_path, name):
    log_format, maker = MAKERS[name]
    lines = [line for line in maker([0.5] * 301).splitlines(keepends=True) if "0.5" in line]
    run = make.measured(tmp_path, "".join(lines[::100]), log_format)
    assert "the only one printed" in refused(run)
    window = Window(warmup_steps=94 if name == "pytorch_imagenet" else 100, measured_steps=1)
    assert make.measured(tmp_path, "".join(lines), log_format, window=window).steps == 1


def test_a_speed_that_covers_the_whole_window_is_one(tmp_path):
    log = "".join(f"it {k}: 512\n" for k in range(100, 500, 100))
    window = Window(warmup_steps=100, measured_steps=100)
    run = make.measured(tmp_path, log, CUSTOM_RATES, window=window)
    assert (run.metrics.get("throughput"), run.steps) == (512, 100)


def test_the_first_steps_may_be_printed_more_often(tmp_path):
    numbers = [*range(1, 10), *range(10, 200, 10)]
    log = "".join(f"{k / 4} it {k}\n" for k in numbers)
    run = make.measured(tmp_path, log, CUSTOM_STAMPS)
    assert (run.metrics.get("throughput"), run.steps) == (512, 100)


def test_an_epochs_last_interval_may_be_shorter(tmp_path):
    numbers = [n for n in range(1, 500) if n % 120 % 50 == 0]
    log = "".join(f"{k / 4} it {k}\n" for k in numbers)
    window = Window(warmup_steps=100, measured_steps=290)
    run = make.measured(tmp_path, log, CUSTOM_STAMPS, window=window)
    assert (run.metrics.get("throughput"), run.steps) == (512, 260)


@pytest.mark.parametrize("name", ["pytorch_imagenet", "shared"])
def test_unlabelled_steps_of_one_rank_are_in_order(tmp_path, name):
    log_format, maker = MAKERS[name]
    lines = maker([0.5] * 150).splitlines(keepends=True)
    moved = "".join([*lines[:20], *lines[100:], *lines[20:100]])
    assert "steps are out of order" in refused(make.measured(tmp_path, moved, log_format))
    lines[60], lines[61] = lines[61], lines[60]
    assert "out of order" in refused(make.measured(tmp_path, "".join(lines), log_format))


@pytest.mark.parametrize(
    "name", ["dllogger", "tf_models_bert", "paddle_resnet", "pytorch_imagenet"]
)
def test_the_published_lines_stand_for_the_steps_they_should(tmp_path, name):
    maker = make.OF_ONE_RANK[name]
    log = maker([0.5] * 200)
    published = Estimator.PUBLISHED
    assert make.measured(tmp_path, log, name, estimator=published).metrics.get("throughput") == 256
    for begin, end in ((60, 80), (60, 61), (119, 121)):
        run = make.measured(tmp_path, without(log, begin, end), name, estimator=published)
        assert f"none between step {begin - 1} and step {end}" in refused(run)
    behind = make.measured(tmp_path, without(log, 130, 140), name, estimator=published)
    assert behind.metrics.get("throughput") == 256


@pytest.mark.parametrize("buffer_size", [300, 1 << 18])
@pytest.mark.parametrize("lost", [1, 5])
def test_a_later_epoch_tells_that_one_before_is_cut(tmp_path, lost, buffer_size):
    lines = make.dllogger([0.5] * 200, epoch_length=40).splitlines(keepends=True)
    del lines[80 - lost : 80]
    run = make.measured(tmp_path, "".join(lines), "dllogger", buffer_size=buffer_size)
    assert f"an epoch ended with step {40 - lost}, and one before it with step 40" in refused(run)
    first = make.dllogger([0.5] * 200, epoch_length=40).splitlines(keepends=True)
    del first[40 - lost : 40]
    run = make.measured(tmp_path, "".join(first), "dllogger", buffer_size=buffer_size)
    assert f"an epoch ended with step {40 - lost}, and a later one goes on to step" in refused(run)


def test_numbers_that_begin_again_without_an_epoch(tmp_path):
    log = "".join(f"it {k} took 0.5\n" for k in range(1, 41)) * 5
    reason = refused(make.measured(tmp_path, log, CUSTOM))
    assert reason == (
        "steps are out of order: step 1 follows step 40; a second run begins there, in the same "
        "file; if numbering begins again with each epoch, the record needs a group 'epoch'; if "
        "several processes print into it, say which by 'ranks' (line 41)"
    )
    shared = "".join(f"{k / 4} it {k}\n" for k in range(1, 41)) * 5
    assert "the record needs a group 'epoch'" in refused(
        make.measured(tmp_path, shared, CUSTOM_SHARED)
    )
    swapped = log.replace("it 30 took", "it 3 took")
    assert "needs a group" not in refused(make.measured(tmp_path, swapped, CUSTOM))


@pytest.mark.parametrize("lost", [1, 5, 30])
@pytest.mark.parametrize("topology", ["1n1g", "1n2g"])
def test_a_printed_length_tells_that_an_epoch_is_cut(tmp_path, lost, topology):
    case = make.case(topology)
    ranks = [[0.5] * 200] * case.topology.devices_per_node
    log = make.pytorch_imagenet(ranks, epoch_length=60, block=7)
    cut = "".join(
        line
        for line in log.splitlines(keepends=True)
        if "Epoch: [0]" not in line or int(line[11:13]) < 60 - lost
    )
    reason = refused(make.measured(tmp_path, cut, "pytorch_imagenet", of=case))
    assert f"none between step {60 - lost} and step 61" in reason
    # Before the window, it is still known which steps are which.
    window = Window(warmup_steps=70, measured_steps=30)
    times = [[9.0] * 76 + [0.5] * 30 + [9.0] * 50] * len(ranks)
    log = make.pytorch_imagenet(times, epoch_length=60, block=7)
    cut = "".join(
        line
        for line in log.splitlines(keepends=True)
        if "Epoch: [0]" not in line or int(line[11:13]) < 60 - lost
    )
    run = make.measured(tmp_path, cut, "pytorch_imagenet", of=case, window=window)
    assert run.metrics.get("throughput") == case.global_batch * 2


@pytest.mark.parametrize("estimator", Estimator)
@pytest.mark.parametrize("lost", [10, 40])
def test_an_epoch_behind_the_window_tells_that_one_before_is_cut(tmp_path, estimator, lost):
    """Of two epochs of 100 batches, the last 40 of each slow; steps 21 to 120 are measured."""
    times = [*[0.5] * 60, *[1.0] * 40] * 2
    lines = make.paddle_resnet(times, epoch_length=100).splitlines(keepends=True)
    sound = make.measured(tmp_path, "".join(lines), "paddle_resnet", estimator=estimator)
    # The first step of an epoch does not count for the one; the other is a mean of speeds.
    steady, published = 128 * 99 / (59 * 0.5 + 40), (60 * 256 + 40 * 128) / 100
    right = steady if estimator is Estimator.STEADY else published
    assert sound.metrics["throughput"] == pytest.approx(right)
    del lines[100 - lost : 100]
    run = make.measured(tmp_path, "".join(lines), "paddle_resnet", estimator=estimator)
    assert f"an epoch ended with step {99 - lost}, and a later one goes on to step" in refused(run)


@pytest.mark.parametrize("name", ["dllogger", "paddle_resnet"])
def test_a_log_that_begins_within_a_later_epoch(tmp_path, name):
    lines = make.OF_ONE_RANK[name]([0.5] * 400, epoch_length=150).splitlines(keepends=True)
    resumed = make.measured(tmp_path, "".join(lines[150:]), name)
    assert resumed.metrics.get("throughput") == 256
    reason = refused(make.measured(tmp_path, "".join(lines[155:]), name))
    assert "it begins within an epoch that is not the first" in reason


# Two runs in one file, as ``>>`` leaves them: which of them is meant is not known

TIMES = make.seconds(150)
RATES = [500.0, *(9000.0 + 31 * k for k in range(1, 17))]
NOISE = "node1:101:2020 [0] NCCL INFO Channel 00/02 : 0 1 2 3\n"

LOGS = {
    "paddle_resnet": (make.paddle_resnet(TIMES), make.case(), make.WINDOW),
    "dllogger": (make.dllogger(TIMES), make.case(), make.WINDOW),
    "tf_models_bert": (make.tf_models_bert(TIMES), make.case(), make.WINDOW),
    "dlperf": (make.dlperf([TIMES] * 2), make.case("1n2g"), make.WINDOW),
    "pytorch_imagenet": (
        make.pytorch_imagenet([TIMES] * 2, block=60),
        make.case("1n2g"),
        make.WINDOW,
    ),
    "plsc": (
        make.plsc([RATES] * 2, global_batch=256),
        make.case("1n2g"),
        make.PLSC_WINDOW,
    ),
}


@pytest.mark.parametrize("between", [0, 10_000, 200_000])
@pytest.mark.parametrize("name", LOGS)
def test_a_second_run_behind_the_window_is_told(tmp_path, name, between):
    log, case, window = LOGS[name]
    whole = log + NOISE * between
    assert make.measured(tmp_path, whole, name, of=case, window=window).status is RunStatus.OK
    run = make.measured(tmp_path, whole + log, name, of=case, window=window)
    assert run.status is RunStatus.INVALID
    assert "second run" in (run.reason or "")
    line = re.search(r"\(line (\d+)\)", run.reason or "")
    assert int(line[1]) > whole.count("\n")


@pytest.mark.parametrize("estimator", Estimator)
@pytest.mark.parametrize(
    ("name", "topology", "log"),
    [
        ("paddle_resnet", "1n1g", make.paddle_resnet([0.5] * 9000, epoch_length=150, tests=True)),
        ("dllogger", "1n1g", make.dllogger([0.5] * 9000, epoch_length=150)),
        (
            "pytorch_imagenet",
            "1n2g",
            make.pytorch_imagenet([[0.5] * 3000] * 2, epoch_length=150, block=60),
        ),
    ],
)
def test_a_run_that_goes_on_for_epochs_is_one(tmp_path, name, topology, log, estimator):
    run = make.measured(tmp_path, log, name, of=make.case(topology), estimator=estimator)
    assert (run.status, run.reason) == (RunStatus.OK, None)


@pytest.mark.parametrize("name", ["paddle_resnet", "dllogger"])
def test_a_damaged_line_behind_the_window_is_no_second_run(tmp_path, name):
    log, case, window = LOGS[name]
    damaged = re.sub(r"(batch |Iteration: )130", r"\g<1>13", log)
    assert damaged != log
    clean = make.measured(tmp_path, log, name, of=case, window=window)
    assert make.measured(tmp_path, damaged, name, of=case, window=window) == clean


def test_a_declared_record_may_lack_the_epoch(tmp_path):
    record = r"it (?P<step>\d+) took (?P<seconds>[\d.]+)"
    mine = custom_format("mine", record=record)
    log = "".join(f"it {k} took 0.5\n" for k in range(1, 151))
    run = make.measured(tmp_path, log * 2, mine)
    assert run.status is RunStatus.INVALID
    assert "step 2 stands behind step 120" in (run.reason or "")
    assert "the record needs a group 'epoch' (line 152)" in (run.reason or "")
    assert make.measured(tmp_path, log, mine).reason is None
    named = custom_format("mine", record=rf"epoch (?P<epoch>\d+) {record}")
    epochs = "".join(f"epoch {k} {line}\n" for k in (0, 1) for line in log.splitlines())
    assert make.measured(tmp_path, epochs, named).reason is None
