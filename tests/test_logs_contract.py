"""Logs that break their contract: each says what was found, what was needed, and where."""

import os

import log_makers as make
import pytest

from pytest_dlperf.formats.log_format import custom_format
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS
from pytest_dlperf.logs.reading import LogReading
from pytest_dlperf.model.measurement import Estimator, RunStatus, Window

PLAIN = make.OF_ONE_RANK
"""Trainers whose lines look like those of shipped formats."""


def refused(run):
    assert run.status is RunStatus.INVALID
    assert run.metrics.get("throughput") is None
    assert run.reason is not None
    return run.reason


@pytest.mark.parametrize("estimator", Estimator)
def test_a_log_that_is_not_there(tmp_path, estimator):
    for path, why in (
        (tmp_path / "none.log", "No such file or directory"),
        (tmp_path, "Is a directory"),
    ):
        run = LogReading(
            path,
            number=3,
            case=make.case(),
            log_format=BUILTIN_FORMATS["dllogger"],
            window=make.WINDOW,
            estimator=estimator,
        ).finish()
        assert refused(run) == f"the log cannot be read: {why}"
        assert (run.run, run.log, run.steps) == (3, str(path), 0)


@pytest.mark.parametrize("estimator", Estimator)
def test_what_is_no_regular_file_is_not_waited_for(tmp_path, estimator):
    os.mkfifo(tmp_path / "fifo.log")
    (tmp_path / "endless.log").symlink_to("/dev/zero")
    for name in ("fifo.log", "endless.log"):
        run = LogReading(
            tmp_path / name,
            number=1,
            case=make.case(),
            log_format=BUILTIN_FORMATS["dllogger"],
            window=make.WINDOW,
            estimator=estimator,
        ).finish()
        assert refused(run) == "the log cannot be read: it is not a regular file"


@pytest.mark.parametrize("name", BUILTIN_FORMATS)
def test_a_log_with_nothing_in_it(tmp_path, name):
    assert refused(make.measured(tmp_path, b"", name)) == "the log is empty"
    only_noise = make.measured(tmp_path, "node1:1:1 [0] NCCL INFO Launch mode Parallel\n", name)
    assert refused(only_noise).startswith(
        f"the log holds no step of format {name}; 'pytest-dlperf read FILE'"
    )


def test_a_log_that_no_declared_record_matches(tmp_path):
    mine = custom_format("mine", record=r"it (?P<step>\d+) (?P<seconds>\S+)")
    assert refused(make.measured(tmp_path, "iteration 1: 0.5\n", mine)) == (
        r"no line of the log matches the record's pattern 'it (?P<step>\d+) (?P<seconds>\S+)'; "
        "'pytest-dlperf read FILE' says what is in it"
    )


@pytest.mark.parametrize(
    ("name", "needed", "line"),
    [
        ("paddle_resnet", 120, 84),
        ("dllogger", 125, 84),
        ("tf_models_bert", 120, 84),
        ("pytorch_imagenet", 126, 86),
        ("dlperf", 120, 84),
    ],
)
def test_too_few_steps(tmp_path, name, needed, line):
    run = make.measured(tmp_path, PLAIN[name]([0.5] * 84), name)
    reason = refused(run)
    assert f"too few steps: found 84, needed {needed}" in reason
    assert f"(the last step is on line {line})" in reason
    assert run.steps == 84


def test_a_rank_that_died_before_the_others(tmp_path):
    case = make.case("1n2g")
    ranks = [[0.5] * 200, [0.5] * 70]
    run = make.measured(tmp_path, make.pytorch_imagenet(ranks), "pytorch_imagenet", of=case)
    assert refused(run).startswith("too few steps: found 70, needed 126")
    own = make.dlperf_header(case) + make.dlperf(ranks)
    run = make.measured(tmp_path, own, "dlperf", of=case)
    assert refused(run).startswith("rank 1: too few steps: found 70, needed 120")
    assert run.steps == 120


@pytest.mark.parametrize(("found", "declared"), [(1, "1n4g"), (3, "1n4g"), (5, "1n4g")])
def test_fewer_or_more_ranks_than_declared(tmp_path, found, declared):
    case = make.case(declared)
    times = [[0.5] * 150] * found
    log = make.pytorch_imagenet(times, heads=False)
    reason = refused(make.measured(tmp_path, log, "pytorch_imagenet", of=case))
    assert "has 4 rank(s) that print into it, each once" in reason
    log = make.plsc([[5000.0] * 17] * found)
    reason = refused(make.measured(tmp_path, log, "plsc", of=case, window=make.PLSC_WINDOW))
    assert "has 4 rank(s) that print into it, each once" in reason
    reason = refused(make.measured(tmp_path, make.dlperf(times), "dlperf", of=case))
    assert "rank(s)" in reason or "more ranks than 4: 0, 1, 2, 3, 4" in reason


def test_a_step_that_one_rank_did_not_print(tmp_path):
    case = make.case("1n2g")
    lines = make.pytorch_imagenet([[0.5] * 150] * 2).splitlines(keepends=True)
    at = next(k for k, line in enumerate(lines) if "[ 90/150]" in line)
    del lines[at]
    run = make.measured(tmp_path, "".join(lines), "pytorch_imagenet", of=case)
    assert refused(run).startswith("a step stands in the log 1 time(s)")
    assert run.reason.endswith("(line 185)")


@pytest.mark.parametrize("estimator", Estimator)
def test_epochs_out_of_order(tmp_path, estimator):
    log = make.paddle_resnet([0.5] * 100, epoch_length=50).replace("Pass 0", "Pass 2")
    reason = refused(make.measured(tmp_path, log, "paddle_resnet", estimator=estimator))
    assert "epoch 1 follows epoch 2; a second run begins there" in reason
    assert reason.endswith("(line 51)")


@pytest.mark.parametrize("estimator", Estimator)
def test_identical_copies_are_one_record(tmp_path, estimator):
    log = make.dllogger(make.seconds(150))
    twice = "".join(line * 2 for line in log.splitlines(keepends=True))
    run = make.measured(tmp_path, twice, "dllogger", estimator=estimator)
    assert run.metrics.get("throughput") is not None
    assert run == make.measured(tmp_path, log, "dllogger", estimator=estimator)


@pytest.mark.parametrize("estimator", Estimator)
def test_differing_copies_are_two_processes(tmp_path, estimator):
    lines = make.paddle_resnet([0.5] * 150).splitlines(keepends=True)
    lines.insert(40, lines[39].replace("0.5000", "0.6000"))
    run = make.measured(tmp_path, "".join(lines), "paddle_resnet", estimator=estimator)
    assert "step 39 stands twice with different times" in refused(run)
    assert "ranks: local" in refused(run)
    assert "(line 41)" in refused(run)


@pytest.mark.parametrize("estimator", Estimator)
@pytest.mark.parametrize("value", ["0.0000", "nan", "inf", "-0.5", "1e999", "0.5.5", "soon"])
def test_times_that_cannot_be(tmp_path, value, estimator):
    lines = make.paddle_resnet([0.5] * 150).splitlines(keepends=True)
    lines[70] = lines[70].replace("0.5000", value)
    run = make.measured(tmp_path, "".join(lines), "paddle_resnet", estimator=estimator)
    assert (
        f"the step's time is '{value}'; needed is a finite number above zero (line 71)"
        in refused(run)
    )
    lines[70], lines[10] = lines[71].replace("71]", "70]"), lines[10].replace("0.5000", value)
    outside = make.measured(tmp_path, "".join(lines), "paddle_resnet", estimator=estimator)
    assert outside.metrics.get("throughput") == 256


@pytest.mark.parametrize("estimator", Estimator)
@pytest.mark.parametrize("name", ["dllogger", "tf_models_bert"])
def test_time_that_runs_backwards(tmp_path, name, estimator):
    times = [0.5] * 150
    times[80] = -3.0
    run = make.measured(tmp_path, PLAIN[name](times), name, estimator=estimator)
    assert "time runs backwards" in refused(run)
    assert "(line 81)" in refused(run)


@pytest.mark.parametrize(
    ("step_s", "status"),
    [(0.1, RunStatus.INVALID), (0.5, RunStatus.OK), (10.0, RunStatus.OK)],
)
@pytest.mark.parametrize("estimator", Estimator)
def test_stamps_of_whole_seconds(tmp_path, step_s, status, estimator):
    import re

    log = re.sub(r"(:\d\d)\.\d+", r"\1", make.tf_models_bert([step_s] * 150))
    run = make.measured(tmp_path, log, "tf_models_bert", estimator=estimator)
    assert run.status is status
    if step_s == 0.1:
        assert "1 s in 10 s is an error of 10.0%, allowed are 5%" in refused(run)
    elif step_s == 0.5:
        assert run.reason == "the stamps' resolution of 1 s makes the number uncertain by 2.0%"
    else:
        assert run.reason is None


@pytest.mark.parametrize(
    ("name", "header", "said"),
    [
        (
            "paddle_resnet",
            make.paddle_resnet_header(batch_per_node=128, trainers=32),
            "batch_size (of a node) 128; the case framework-model-fp32-b128-4n8g has 1024 (line 4)",
        ),
        (
            "paddle_resnet",
            make.paddle_resnet_header(batch_per_node=1024, trainers=8),
            "PADDLE_TRAINERS_NUM 8; the case framework-model-fp32-b128-4n8g has 32 (line 1)",
        ),
        (
            "dllogger",
            make.dllogger_header(batch=64, world_size=32),
            "batch_size 64; the case framework-model-fp32-b128-4n8g has 128 (line 1)",
        ),
        (
            "dllogger",
            make.dllogger_header(batch=128, world_size=8),
            "world_size 8; the case framework-model-fp32-b128-4n8g has 32 (line 1)",
        ),
        (
            "tf_models_bert",
            "***** Number of cores used :  8\n",
            "Number of cores used 8; the case framework-model-fp32-b128-4n8g has 32 (line 1)",
        ),
    ],
)
@pytest.mark.parametrize("estimator", Estimator)
def test_a_header_that_contradicts_the_case(tmp_path, name, header, said, estimator):
    log = header + PLAIN[name]([0.5] * 150)
    for buffer_size in (64, 1 << 18):
        run = make.measured(
            tmp_path,
            log,
            name,
            of=make.case("4n8g"),
            estimator=estimator,
            buffer_size=buffer_size,
        )
        assert refused(run) == f"the log says {said}"


@pytest.mark.parametrize("asked", BUILTIN_FORMATS)
@pytest.mark.parametrize("found", PLAIN)
def test_a_log_of_another_format_is_called_by_its_name(tmp_path, asked, found):
    run = make.measured(tmp_path, PLAIN[found]([0.5] * 150), asked)
    if asked == found:
        assert run.metrics.get("throughput") == pytest.approx(256)
    else:
        assert refused(run) == f"this is a log of format {found}, not one of format {asked}"


def test_steps_that_are_no_numbers(tmp_path):
    loose = custom_format("mine", record=r"it (?P<step>\S*) (?P<seconds>\S+)")
    run = make.measured(tmp_path, "it one 0.5\n", loose)
    assert refused(run) == "step 'one' is not a whole number (line 1)"
    run = make.measured(tmp_path, f"it {'9' * 5000} 0.5\n", loose)
    assert "is not a whole number (line 1)" in refused(run)


def test_windows_that_are_none_are_the_callers_mistake(tmp_path):
    for window in (
        Window(warmup_steps=-1, measured_steps=5),
        Window(warmup_steps=0, measured_steps=0),
    ):
        with pytest.raises(ValueError, match="is not a valid window"):
            make.measured(tmp_path, b"", "dllogger", window=window)
