"""Numbers that have lost a digit or their decimal point."""

import log_makers as make
import pytest

from pytest_dlperf.formats.log_format import custom_format
from pytest_dlperf.model.measurement import Estimator, RunStatus

STAMPS = custom_format("stamps", record=r"(?P<timestamp>[\d:.]+) it (?P<step>\d+)$")


def refused(run, text, line):
    assert run.status is RunStatus.INVALID
    assert repr(text) in (run.reason or "")
    assert (run.reason or "").endswith(f"(line {line})")


@pytest.mark.parametrize("estimator", Estimator)
@pytest.mark.parametrize(
    ("name", "text", "damaged", "line"),
    [
        ("paddle_resnet", "0.3942", "03942", 71),
        ("paddle_resnet", "0.3942", "0.942", 71),
        ("pytorch_imagenet", "0.394", "0394", 73),
        ("pytorch_imagenet", "0.394", "0.39", 73),
    ],
)
def test_a_shipped_trainer_prints_all_its_decimals(  # noqa: PLR0913, PLR0917 - a log and its damage
    tmp_path, name, text, damaged, line, estimator
):
    log = make.OF_ONE_RANK[name]([0.5] * 70 + [float(text)] + [0.5] * 80)
    assert make.measured(tmp_path, log, name, estimator=estimator).status is RunStatus.OK
    assert log.count(text) >= 1
    run = make.measured(tmp_path, log.replace(text, damaged), name, estimator=estimator)
    refused(run, damaged, line)


@pytest.mark.parametrize("step", [25, 125])
@pytest.mark.parametrize("estimator", Estimator)
def test_a_stamp_of_a_shipped_trainer_has_all_its_digits(tmp_path, step, estimator):
    lines = make.dllogger([0.5] * 150).splitlines()
    stamp = lines[step - 1][4:30]
    for damaged in (stamp.replace(" 14", " 4"), stamp[:-1], stamp.replace(".", "")):
        log = "\n".join(lines).replace(stamp, damaged)
        run = make.measured(tmp_path, log, "dllogger", estimator=estimator)
        assert run.status is RunStatus.INVALID
        assert damaged in (run.reason or "") or "steps are missing" in (run.reason or "")


@pytest.mark.parametrize("interval", [1, 10])
@pytest.mark.parametrize("step", [20, 70, 120])
def test_a_date_that_lost_a_digit_of_its_hour(tmp_path, interval, step):
    mine = custom_format("mine", record=r"(?P<timestamp>\S+ \S+) it (?P<step>\d+)$")
    lines = [
        f"2021-02-21 12:{k // 60:02}:{k % 60:02},250 it {k}" for k in range(interval, 151, interval)
    ]
    at = step // interval - 1
    whole = "\n".join(lines) + "\n"
    assert make.measured(tmp_path, whole, mine).metrics["throughput"] == 128
    lines[at] = lines[at].replace(" 12:", " 2:")
    run = make.measured(tmp_path, "\n".join(lines) + "\n", mine)
    assert run.status is RunStatus.INVALID
    assert (run.reason or "").endswith(f"(line {at + 1})")


@pytest.mark.parametrize(
    ("step", "damaged"),
    [(20, "4:00:10.0"), (20, "14:0:10.0"), (120, "14:1:00.0"), (120, "15:01:0.0")],
)
def test_a_stamp_at_an_end_that_lost_a_digit(tmp_path, step, damaged):
    def stamp(k):
        seconds = k // 2 + (3600 if k > 119 else 0)
        return f"{14 + seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}.{k % 2 * 5}"

    lines = [f"{stamp(k)} it {k}" for k in range(1, 151)]
    lines[step - 1] = f"{damaged} it {step}"
    run = make.measured(tmp_path, "\n".join(lines) + "\n", STAMPS)
    assert run.status is RunStatus.INVALID


def test_a_last_stamp_without_its_point(tmp_path):
    log = make.dlperf([[0.5] * 150])
    stamp = f"{3.25 + 60:.6f}"
    run = make.measured(tmp_path, log.replace(stamp, stamp.replace(".", "")), "dlperf")
    assert run.status is RunStatus.INVALID
    assert "it is damaged (line 120)" in (run.reason or "")


def test_a_stamp_in_the_window_that_lost_a_digit_is_no_midnight(tmp_path):
    lines = [f"22:{10 + k // 60:02}:{k % 60:02}.5 it {k}" for k in range(1, 151)]
    lines[70] = lines[70].replace("22:", "2:", 1)
    run = make.measured(tmp_path, "\n".join(lines) + "\n", STAMPS)
    refused(run, lines[70].split()[0], 71)


def test_elapsed_milliseconds_without_their_point(tmp_path):
    record = r"it (?P<step>\d+) time:(?P<elapsed_milliseconds>[\d.]+)ms"
    mine = custom_format("mine", record=record)
    log = "".join(f"it {k} time:{1000 + 94.4 * k:.1f}ms\n" for k in range(1, 151))
    assert make.measured(tmp_path, log, mine).status is RunStatus.OK
    damaged = log.replace("12328.0ms", "123280ms")
    assert damaged != log
    run = make.measured(tmp_path, damaged, mine)
    assert run.status is RunStatus.INVALID
    assert (run.reason or "").endswith("(line 120)")


def test_a_stamp_may_grow_by_a_digit_in_a_pause(tmp_path):
    times = [0.25] * 150
    times[119] = 20.0
    log = "".join(f"{65 + sum(times[:k])} it {k}\n" for k in range(1, 151))
    assert make.measured(tmp_path, log, STAMPS).status is RunStatus.OK
