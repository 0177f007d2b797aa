"""The steady estimator on logs whose every step time is known."""

import math
from datetime import datetime

import log_makers as make
import pytest

from pytest_dlperf.formats.log_format import custom_format
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS
from pytest_dlperf.model.measurement import RunStatus, Window

TOPOLOGIES = ("1n1g", "1n8g", "4n8g", "10n16g")


def per_rank(topology, count):
    devices = make.case(topology).topology.devices_per_node
    return [
        [round(time, 3) for time in make.seconds(count, base=0.2 + 0.003 * rank)]
        for rank in range(devices)
    ]


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_paddle_resnet_is_samples_over_summed_durations(tmp_path, topology):
    times = make.seconds(130)
    case = make.case(topology)
    run = make.measured(tmp_path, make.paddle_resnet(times), "paddle_resnet", of=case)
    assert run.metrics.get("throughput") == pytest.approx(
        case.global_batch * 100 / math.fsum(times[20:120])
    )
    assert (run.status, run.steps, run.reason) == (RunStatus.OK, 100, None)


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_dllogger_is_the_time_from_iteration_25_to_125(tmp_path, topology):
    times = make.seconds(149)
    case = make.case(topology)
    log = make.dllogger(times, global_batch=case.global_batch)
    run = make.measured(tmp_path, log, "dllogger", of=case)
    assert run.metrics.get("throughput") == pytest.approx(
        case.global_batch * 100 / math.fsum(times[25:125])
    )
    assert run.steps == 100


@pytest.mark.parametrize("block", [1, 7, 61, 1000])
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_pytorch_imagenet_is_the_mean_over_all_local_ranks(tmp_path, topology, block):
    ranks = per_rank(topology, 150)
    case = make.case(topology)
    log = make.pytorch_imagenet(ranks, block=block)
    run = make.measured(tmp_path, log, "pytorch_imagenet", of=case)
    window = [time for times in ranks for time in times[26:126]]
    assert run.metrics.get("throughput") == pytest.approx(
        case.global_batch * len(window) / math.fsum(window)
    )
    assert run.steps == 100


@pytest.mark.parametrize("block", [1, 5, 17])
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_plsc_is_the_time_from_batch_50_to_150(tmp_path, topology, block):
    case = make.case(topology)
    devices = case.topology.devices_per_node
    batch = case.global_batch
    ranks = [[500.0, *(9000.0 + 37 * k + rank for k in range(1, 17))] for rank in range(devices)]
    log = make.plsc(ranks, block=block, global_batch=batch)
    run = make.measured(tmp_path, log, "plsc", of=case, window=make.PLSC_WINDOW)
    passed = sum(10 * batch / rate for rank in ranks for rate in rank[6:16]) / devices
    assert run.metrics.get("throughput") == pytest.approx(batch * 100 / passed, rel=0.001 / passed)
    assert run.steps == 100


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_tf_models_bert_is_the_time_from_step_20_to_120(tmp_path, topology, copies):
    times = make.seconds(130)
    case = make.case(topology)
    log = make.tf_models_bert(times, copies=copies)
    run = make.measured(tmp_path, log, "tf_models_bert", of=case)
    assert run.metrics.get("throughput") == pytest.approx(
        case.global_batch * 100 / math.fsum(times[20:120]), rel=1e-6
    )
    assert run.steps == 100


@pytest.mark.parametrize("block", [1, 130])
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_dlperf_goes_by_the_mean_time_of_the_ranks_own_clocks(tmp_path, topology, block):
    ranks = per_rank(topology, 130)
    case = make.case(topology)
    log = make.dlperf_header(case) + make.dlperf(ranks, block=block)
    run = make.measured(tmp_path, log, "dlperf", of=case)
    mean_s = math.fsum(math.fsum(times[20:120]) for times in ranks) / len(ranks)
    expected = case.global_batch * 100 / mean_s
    assert run.metrics.get("throughput") == pytest.approx(expected, rel=1e-6)
    assert run.steps == 100


@pytest.mark.parametrize("name", ["tf_models_bert", "dllogger"])
def test_midnight_lies_between_steps_like_any_other_moment(tmp_path, name):
    maker = make.OF_ONE_RANK[name]
    log = maker([0.5] * 130, start=datetime(2020, 12, 31, 23, 59, 30, 250000))  # noqa: DTZ001
    assert make.measured(tmp_path, log, name).metrics.get("throughput") == pytest.approx(256)


def told_of_epochs(run, steps):
    said = f"{steps} step(s) at the begin of 2 epoch(s) are left out"
    return run.status is RunStatus.OK and said in (run.reason or "")


@pytest.mark.parametrize("pause_s", [0.0, 60.0])
@pytest.mark.parametrize("name", ["paddle_resnet", "dllogger", "plsc", "pytorch_imagenet"])
def test_what_lies_between_epochs_does_not_count(tmp_path, name, pause_s):
    times = [round(time, 3) for time in make.seconds(200)]
    settling = BUILTIN_FORMATS[name].settling_steps
    window = [times[k] for k in range(20 + settling, 120 + settling) if k % 53]
    for epoch in (1, 2, 3):
        times[epoch * 53] += pause_s
    log = {
        "paddle_resnet": lambda: make.paddle_resnet(times, epoch_length=53),
        "dllogger": lambda: make.dllogger(times, epoch_length=53),
        "plsc": lambda: make.plsc([[128 / time for time in times]], period=1, epoch_length=53),
        "pytorch_imagenet": lambda: make.pytorch_imagenet([times], epoch_length=53),
    }[name]()
    run = make.measured(tmp_path, log, name)
    expected = 128 * len(window) / math.fsum(window)
    assert run.metrics.get("throughput") == pytest.approx(expected, rel=1e-4)
    assert run.steps == 98
    assert told_of_epochs(run, 2)


@pytest.mark.parametrize("name", ["paddle_resnet", "dllogger", "pytorch_imagenet"])
def test_epochs_of_one_step_leave_nothing_to_measure(tmp_path, name):
    maker = {**make.OF_ONE_RANK, "pytorch_imagenet": lambda t, **k: make.pytorch_imagenet([t], **k)}
    run = make.measured(tmp_path, maker[name]([0.5] * 200, epoch_length=1), name)
    assert run.status is RunStatus.INVALID
    assert "are the first of an epoch" in (run.reason or "")


@pytest.mark.parametrize("block", [1, 60, 1000])
def test_ranks_may_be_epochs_apart_in_the_file(tmp_path, block):
    ranks = per_rank("1n4g", 150)
    case = make.case("1n4g")
    log = make.pytorch_imagenet(ranks, epoch_length=53, block=block)
    run = make.measured(tmp_path, log, "pytorch_imagenet", of=case)
    window = [times[k] for times in ranks for k in range(26, 126) if k % 53]
    assert run.metrics.get("throughput") == pytest.approx(512 * len(window) / math.fsum(window))
    assert told_of_epochs(run, 2)


def test_an_index_may_reach_the_total(tmp_path):
    records = "".join(
        f"{make.pytorch_record(epoch, index, 13, 0.5)}\n"
        for epoch in range(10)
        for index in range(14)
    )
    run = make.measured(tmp_path, records, "pytorch_imagenet")
    assert (run.metrics.get("throughput"), run.steps) == (256, 93)


@pytest.mark.parametrize("interval", [2, 10, 50])
def test_stamps_of_some_steps_are_enough(tmp_path, interval):
    times = make.seconds(200)
    run = make.measured(tmp_path, make.tf_models_bert(times, interval=interval), "tf_models_bert")
    begin, end = -(-20 // interval) * interval, 120 // interval * interval
    assert run.metrics.get("throughput") == pytest.approx(
        128 * (end - begin) / math.fsum(times[begin:end]), rel=1e-6
    )
    assert run.steps == end - begin


STAMPED = r"(?P<timestamp>[\d.]+) rank (?P<rank>\d+) step (?P<step>\d+) "
STAMPED_IN_EPOCHS = (
    r"(?P<timestamp>[\d.]+) rank (?P<rank>\d+) epoch (?P<epoch>\d+) step (?P<step>\d+)"
)
PRINTED_BY_RANKS = {
    "labelled stamps": STAMPED,
    "stamps": STAMPED.replace("?P<rank>", "?:"),
    "stamps in epochs": STAMPED_IN_EPOCHS.replace("?P<rank>", "?:"),
    "labelled stamps in epochs": STAMPED_IN_EPOCHS,
    "labelled seconds": r"rank (?P<rank>\d+) epoch \d+ step (?P<step>\d+) took (?P<seconds>[\d.]+)",
    "seconds": r"rank \d+ epoch \d+ step (?P<step>\d+) took (?P<seconds>[\d.]+)",
}


@pytest.mark.parametrize("name", PRINTED_BY_RANKS)
def test_ranks_count_by_their_mean_however_they_print(tmp_path, name):
    in_epochs = "in epochs" in name
    lines = []
    for rank, seconds in enumerate((1.0, 1.064)):
        at = 0.0
        for step in range(1, 131):
            # Validation of a length of its own stands between the epochs.
            at += seconds + (7 + rank if in_epochs and step == 61 else 0)
            epoch, number = divmod(step - 1, 60) if in_epochs else (0, step - 1)
            shown = "" if name.endswith("stamps") else f"epoch {epoch} "
            lines.append((at, f"rank {rank} {shown}step {number + 1} took {seconds}"))
    log = "".join(f"{at:.3f} {line}\n" for at, line in sorted(lines))
    record = PRINTED_BY_RANKS[name].rstrip()
    log_format = custom_format("mine", record=record, ranks="local")
    run = make.measured(tmp_path, log, log_format, of=make.case("1n2g"))
    assert run.status is RunStatus.OK, run.reason
    assert run.metrics["throughput"] == pytest.approx(2 * 128 / 1.032, rel=1e-4)


def test_an_interval_as_long_as_the_window_is_too_long(tmp_path):
    run = make.measured(tmp_path, make.tf_models_bert([0.5] * 300, interval=100), "tf_models_bert")
    assert run.status is RunStatus.INVALID
    assert run.reason is not None
    assert "step 100 is the only one printed of steps 20 to 120" in run.reason


def test_durations_of_some_steps_stand_for_all(tmp_path):
    times = make.seconds(130)
    run = make.measured(tmp_path, make.paddle_resnet(times, interval=10), "paddle_resnet")
    assert run.metrics.get("throughput") == pytest.approx(128 * 10 / math.fsum(times[20:120:10]))
    assert run.steps == 10


@pytest.mark.parametrize("name", ["dllogger", "paddle_resnet"])
@pytest.mark.parametrize("epoch_length", [15, 57])
def test_an_epochs_unprinted_end_makes_steps_uncountable(tmp_path, name, epoch_length):
    log = make.OF_ONE_RANK[name]([0.5] * 300, epoch_length=epoch_length, interval=5)
    run = make.measured(tmp_path, log, name, window=Window(warmup_steps=20, measured_steps=20))
    if name == "dllogger" and epoch_length == 57:
        assert (run.metrics.get("throughput"), run.reason) == (256, None)
    else:
        assert run.metrics.get("throughput") == (256 if epoch_length == 57 else None)
    if epoch_length == 15:
        assert "an epoch ends before the window does" in (run.reason or "")


def test_an_epochs_printed_length_makes_steps_countable(tmp_path):
    times = [0.5 if 26 <= k < 126 else 0.9 for k in range(300)]
    log = make.pytorch_imagenet([times], epoch_length=57, interval=10)
    run = make.measured(tmp_path, log, "pytorch_imagenet")
    assert (run.metrics.get("throughput"), run.steps) == (256, 9)
    assert told_of_epochs(run, 14)


def test_no_warm_up_measures_from_the_end_of_the_first_step(tmp_path):
    window = Window(warmup_steps=0, measured_steps=50)
    run = make.measured(tmp_path, make.dlperf([[0.5] * 60]), "dlperf", window=window)
    assert (run.metrics.get("throughput"), run.steps) == (256, 49)


@pytest.mark.parametrize(
    ("record", "line", "expected"),
    [
        (r"it (?P<step>\d+): (?P<seconds>[\d.]+)", "it {k}: 0.25", 4 * 128),
        (r"it (?P<step>\d+): (?P<milliseconds>[\d.]+)ms", "it {k}: 250ms", 4 * 128),
        (r"it (?P<step>\d+): (?P<samples_per_second>[\d.]+)", "it {k}: 300.5", 300.5),
        (r"^(?P<timestamp>[\d.]+) it (?P<step>\d+)$", "{t} it {k}", 4 * 128),
        (r"it (?P<step>\d+) at (?P<timestamp>.*)", "it {k} at 2020-12-31T23:{m:02}:{s:05.2f}", 512),
        (r"(?P<timestamp>\S+) it (?P<step>\d+)", "23:{m:02}:{s:05.2f} it {k}", 4 * 128),
    ],
)
def test_a_declared_format_is_measured_by_its_timing(tmp_path, record, line, expected):
    log = "".join(
        line.format(k=k, t=1597933942 + k / 4, m=int(k / 4 // 60), s=k / 4 % 60) + "\n"
        for k in range(130)
    )
    run = make.measured(tmp_path, f"begin\n{log}end\n", custom_format("mine", record=record))
    assert run.metrics.get("throughput") == pytest.approx(expected)
    assert run.steps == 100


@pytest.mark.parametrize(("scope", "factor"), [("global", 1), ("node", 2), ("rank", 16)])
@pytest.mark.parametrize("label", ["", " rank {r}"])
def test_a_printed_speed_covers_what_its_scope_says(tmp_path, scope, factor, label):
    log = "".join(
        f"it {k}{label.format(r=r)}: {speed} samples/s\n"
        for k in range(1, 130)
        for r, speed in enumerate((100, 150) * 4)
    )
    mine = custom_format(
        "mine",
        record=rf"it (?P<step>\d+){' rank (?P<rank>[0-9]+)' if label else ''}: "
        r"(?P<samples_per_second>\d+) samples/s",
        ranks="local",
        rate_scope=scope,
    )
    run = make.measured(tmp_path, log, mine, of=make.case("2n8g"))
    assert run.metrics.get("throughput") == pytest.approx(120 * factor)


def test_a_resumed_run_is_measured_where_its_first_step_is_declared(tmp_path):
    log = "".join(f"it {k}: 0.5\n" for k in range(5001, 5200))
    record = r"it (?P<step>\d+): (?P<seconds>[\d.]+)"
    declared = custom_format("mine", record=record, first_step=5001)
    assert make.measured(tmp_path, log, declared).metrics.get("throughput") == 256
    left_open = make.measured(tmp_path, log, custom_format("mine", record=record))
    assert left_open.reason is not None
    assert "begins too late: step 5001 is the first" in left_open.reason
