"""The published definitions: the original benchmark's arithmetic, to its second decimal."""

import log_makers as make
import pytest

from pytest_dlperf.formats.log_format import custom_format
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS
from pytest_dlperf.model.measurement import Estimator, RunStatus, Window

TOPOLOGIES = ("1n1g", "1n8g", "10n16g")


def published(path, log, name, *, of=None, window=make.WINDOW):
    return make.measured(path, log, name, of=of, window=window, estimator=Estimator.PUBLISHED)


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_paddle_resnet_is_the_mean_of_each_lines_speed(tmp_path, topology):
    times = make.seconds(120)
    case = make.case(topology)
    run = published(tmp_path, make.paddle_resnet(times), "paddle_resnet", of=case)
    speeds = [round(case.global_batch / time, 4) for time in times[20:120]]
    assert run.metrics.get("throughput") == pytest.approx(sum(speeds) / 100, abs=0.0051)
    assert run.metrics.get("throughput") == round(run.metrics.get("throughput") or 0, 2)
    assert run.steps == 100


def test_lines_of_tests_are_no_steps(tmp_path):
    times = make.seconds(130)
    plain = published(tmp_path, make.paddle_resnet(times), "paddle_resnet")
    tested = make.paddle_resnet(times, epoch_length=40, tests=True)
    assert tested.count("elapse") == 139
    run = published(tmp_path, tested, "paddle_resnet")
    assert run.metrics.get("throughput") is not None
    assert run.metrics.get("throughput") == plain.metrics.get("throughput")


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_dllogger_leaves_out_five_iterations_before_the_warm_up(tmp_path, topology):
    times = [0.5] * 25 + [0.25] * 100 + [9.0] * 20
    case = make.case(topology)
    log = make.dllogger(times, global_batch=case.global_batch)
    run = published(tmp_path, log, "dllogger", of=case)
    assert (run.metrics.get("throughput"), run.steps) == (case.global_batch * 4, 100)


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_tf_models_bert_is_the_time_between_two_lines(tmp_path, topology):
    times = [0.5] * 20 + [0.25] * 100 + [9.0] * 20
    case = make.case(topology)
    run = published(tmp_path, make.tf_models_bert(times), "tf_models_bert", of=case)
    assert (run.metrics.get("throughput"), run.steps) == (case.global_batch * 4, 100)


def test_tf_models_bert_goes_by_the_time_of_day(tmp_path):
    times = [0.5] * 60 + [24 * 3600 + 0.5] + [0.5] * 80
    # The original did not look at the date.
    assert (
        published(tmp_path, make.tf_models_bert(times), "tf_models_bert").metrics.get("throughput")
        == 256
    )


def test_tf_models_bert_never_begins_before_line_20(tmp_path):
    window = Window(warmup_steps=10, measured_steps=110)
    log = make.tf_models_bert([0.5] * 130)
    run = published(tmp_path, log, "tf_models_bert", window=window)
    # 110 steps are reckoned with, and the time of 100 is taken: so did the original.
    assert run.metrics.get("throughput") == 281.6


def test_pytorch_imagenet_takes_lines_as_they_stand_in_the_file(tmp_path):
    case = make.case("1n2g")
    ranks = [[0.4] * 150, [0.6] * 150]
    by_turns = published(
        tmp_path, make.pytorch_imagenet(ranks, block=1), "pytorch_imagenet", of=case
    )
    assert by_turns.metrics.get("throughput") == 512.0
    # Blocks of 60 lines, two of them the head: 52 and then 48 lines of 0.4 s, 60 of 0.6 s ...
    in_blocks = published(
        tmp_path, make.pytorch_imagenet(ranks, block=60), "pytorch_imagenet", of=case
    )
    assert in_blocks.metrics.get("throughput") == round(256 / ((48 * 0.4 + 52 * 0.6) / 100), 2)


def test_of_records_glued_on_a_line_the_first_is_taken(tmp_path):
    times = [0.5 if k % 2 else 0.25 for k in range(300)]
    lines = [make.pytorch_record(0, k, 300, time) for k, time in enumerate(times)]
    glued = "".join(f"{a}{b}\n\n" for a, b in zip(lines[::2], lines[1::2], strict=True))
    assert published(tmp_path, glued, "pytorch_imagenet").metrics.get("throughput") == 512.0


def test_of_records_glued_on_a_line_the_last_tells_the_index(tmp_path):
    lines = [make.pytorch_record(0, k, 300, 0.5) for k in range(300)]
    lines[5:7] = [make.pytorch_record(0, 5, 300, 50.5) + lines[6]]
    window = Window(warmup_steps=0, measured_steps=100)
    run = published(tmp_path, "\n".join(lines), "pytorch_imagenet", window=window)
    # Index 5 alone would not count, but with index 6 behind it its time does.
    assert run.metrics.get("throughput") == 128.0


def test_of_glued_lines_of_paddle_the_last_is_taken(tmp_path):
    times = [0.25, 0.5] * 120
    log = make.paddle_resnet(times).replace("elapse 0.2500 sec\n", "elapse 0.2500 sec")
    assert log.count("\n") == 120
    assert published(tmp_path, log, "paddle_resnet").metrics.get("throughput") == 256


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_plsc_is_the_mean_of_ten_lines_per_node(tmp_path, topology):
    case = make.case(topology)
    topo = case.topology
    ranks = [[100.0 * k + rank for k in range(1, 32)] for rank in range(topo.devices_per_node)]
    log = make.plsc(ranks)
    rates = [float(line.rsplit("qps:")[1]) for line in log.splitlines()]
    counted = rates[5 * topo.nodes : 15 * topo.nodes]
    run = published(tmp_path, log, "plsc", of=case, window=make.PLSC_WINDOW)
    assert run.metrics.get("throughput") == pytest.approx(sum(counted) / len(counted), abs=0.0051)
    assert run.steps == 10 * topo.nodes


def test_plsc_counts_the_first_pass_only(tmp_path):
    log = make.plsc([[5000.0] * 16])
    log = log.replace("Pass:0 batch:140", "Pass:1 batch:0").replace(
        "Pass:0 batch:15", "Pass:1 batch:1"
    )
    run = published(tmp_path, log, "plsc", window=make.PLSC_WINDOW)
    assert run.reason is not None
    assert "has 14 lines that count; the published definition needs 15" in run.reason


def test_lines_of_one_rank_do_not_pass_for_all(tmp_path):
    case = make.case("1n4g")
    one = make.pytorch_imagenet([[0.5] * 200], heads=False)
    run = published(tmp_path, one, "pytorch_imagenet", of=case)
    assert run.metrics.get("throughput") is None
    assert run.reason.startswith("a step stands in the log 1 time(s); the case")
    five = make.pytorch_imagenet([[0.5] * 200] * 5, heads=False)
    run = published(tmp_path, five, "pytorch_imagenet", of=case)
    assert run.reason.startswith("step 0 stands in the log more than 4 time(s)")


@pytest.mark.parametrize("name", ["dllogger", "tf_models_bert"])
def test_lines_of_every_tenth_step_are_no_lines_of_steps(tmp_path, name):
    maker = make.OF_ONE_RANK[name]
    run = published(tmp_path, maker([0.5] * 1300, interval=10), name)
    assert run.status is RunStatus.INVALID
    assert run.reason is not None
    assert "counts lines of every 1 step(s), and this log prints every 10" in run.reason
    assert "needed 120" in run.reason


def test_lines_that_are_not_printed_are_too_few(tmp_path):
    run = published(tmp_path, make.paddle_resnet([0.5] * 130, interval=10), "paddle_resnet")
    assert run.reason == (
        "too few steps: the log has 13 lines that count, and prints every 10 steps; the published "
        "definition needs 120 (the last step is on line 13)"
    )
    assert run.steps == 13


def test_another_log_period_has_no_published_number(tmp_path):
    log = make.plsc([[5000.0] * 40], period=5)
    run = published(tmp_path, log, "plsc", window=make.PLSC_WINDOW)
    assert run.reason is not None
    assert "lines of every 10 step(s), and this log prints every 5" in run.reason


@pytest.mark.parametrize(
    ("name", "window"),
    [
        ("dllogger", Window(warmup_steps=0, measured_steps=100)),
        ("tf_models_bert", Window(warmup_steps=5, measured_steps=15)),
    ],
)
def test_windows_that_the_definition_cannot_have(tmp_path, name, window):
    maker = make.OF_ONE_RANK[name]
    run = published(tmp_path, maker([0.5] * 150), name, window=window)
    assert run.reason is not None
    assert "the published definition has no number for lines" in run.reason


@pytest.mark.parametrize(
    "log_format",
    [
        BUILTIN_FORMATS["dlperf"],
        custom_format("mine", record="it (?P<step>[0-9]+) (?P<seconds>[0-9.]+)"),
    ],
    ids=lambda log_format: log_format.name,
)
def test_formats_of_our_own_have_no_published_definition(tmp_path, log_format):
    with pytest.raises(ValueError, match="has no published definition"):
        make.measured(tmp_path, b"", log_format, estimator=Estimator.PUBLISHED)
