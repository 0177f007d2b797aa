"""Two runs in one file, as ``>>`` leaves them: which of them is meant is not known."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import log_makers as make
import pytest

from pytest_dlperf.formats.log_format import custom_format
from pytest_dlperf.model.measurement import Estimator, RunStatus

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_dlperf.model.case import Case
    from pytest_dlperf.model.measurement import Window

TIMES = make.seconds(150)
RATES = [500.0, *(9000.0 + 31 * k for k in range(1, 17))]
NOISE = "node1:101:2020 [0] NCCL INFO Channel 00/02 : 0 1 2 3\n"

LOGS: dict[str, tuple[str, Case, Window]] = {
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
def test_a_second_run_behind_the_window_is_told(tmp_path: Path, name: str, between: int) -> None:
    log, case, window = LOGS[name]
    whole = log + NOISE * between
    assert make.measured(tmp_path, whole, name, of=case, window=window).status is RunStatus.OK
    run = make.measured(tmp_path, whole + log, name, of=case, window=window)
    assert run.status is RunStatus.INVALID
    assert "second run" in (run.reason or "")
    line = re.search(r"\(line (\d+)\)", run.reason or "")
    assert line is not None
    assert int(line[1]) > whole.count("\n")


@pytest.mark.parametrize("steps", [60, 119, 5000])
@pytest.mark.parametrize("name", ["paddle_resnet", "dllogger", "tf_models_bert"])
def test_a_run_that_was_killed_and_begun_again(tmp_path: Path, name: str, steps: int) -> None:
    maker = make.OF_ONE_RANK[name]
    log = maker([0.5] * steps) + maker([0.25] * 3000)
    run = make.measured(tmp_path, log, name)
    assert run.status is RunStatus.INVALID
    assert "a second run begins" in (run.reason or "")
    at = f"(line {steps + 1})" if steps < 120 else f"(line {steps + 2})"
    assert (run.reason or "").endswith(at)


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
def test_a_run_that_goes_on_for_epochs_is_one(
    tmp_path: Path, name: str, topology: str, log: str, estimator: Estimator
) -> None:
    run = make.measured(tmp_path, log, name, of=make.case(topology), estimator=estimator)
    assert (run.status, run.reason) == (RunStatus.OK, None)


@pytest.mark.parametrize("name", ["paddle_resnet", "dllogger"])
def test_a_damaged_line_behind_the_window_is_no_second_run(tmp_path: Path, name: str) -> None:
    log, case, window = LOGS[name]
    damaged = re.sub(r"(batch |Iteration: )130", r"\g<1>13", log)
    assert damaged != log
    clean = make.measured(tmp_path, log, name, of=case, window=window)
    assert make.measured(tmp_path, damaged, name, of=case, window=window) == clean


def test_a_declared_record_may_lack_the_epoch(tmp_path: Path) -> None:
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


def test_published_lines_of_a_second_run_are_seen(tmp_path: Path) -> None:
    for name in ("paddle_resnet", "dllogger", "tf_models_bert"):
        log, case, window = LOGS[name]
        run = make.measured(
            tmp_path, log * 2, name, of=case, window=window, estimator=Estimator.PUBLISHED
        )
        assert run.status is RunStatus.INVALID
        assert "a second run begins in the same file" in (run.reason or "")
