"""Real logs of real trainers, cut to size; the published numbers are the original scripts' own."""

from pathlib import Path

import log_makers as make
import pytest

from pytest_dlperf.formats.shipped import BUILTIN_FORMATS
from pytest_dlperf.logs.reading import LogReading
from pytest_dlperf.model.measurement import Estimator, RunStatus, Window

DATA = Path(__file__).parent / "data" / "logs"
SHORT = Window(warmup_steps=10, measured_steps=40)


def measured(log, topology, batch, window, estimator):
    name = next(name for name in BUILTIN_FORMATS if log.startswith(name))
    precision = "amp" if log == "dllogger_1n8g_b128.log" else "fp32"
    return LogReading(
        DATA / log,
        number=1,
        case=make.case(topology, batch=batch, precision=precision),
        log_format=BUILTIN_FORMATS[name],
        window=window,
        estimator=estimator,
    ).finish()


@pytest.mark.parametrize(
    ("log", "topology", "batch", "window", "published", "steady"),
    [
        ("paddle_resnet_1n1g_b8.log", "1n1g", 8, make.WINDOW, 9.65, 9.1725),
        ("dllogger_1n1g_b128.log", "1n1g", 128, SHORT, 367.97, 367.9737),
        ("dllogger_1n8g_b128.log", "1n8g", 128, SHORT, 6064.71, 6064.7060),
        ("pytorch_imagenet_1n2g_b4_glued.log", "1n2g", 4, make.WINDOW, 12.11, 12.6028),
        ("plsc_1n4g_b128.log", "1n4g", 128, make.PLSC_WINDOW, 8871.84, 9920.0768),
        ("tf_models_bert_1n1g_b8.log", "1n1g", 8, make.WINDOW, 506.24, 506.2426),
        ("pytorch_imagenet_1n4g_b2_blocks.log", "1n4g", 2, SHORT, 20.36, 17.9624),
    ],
)
def test_a_whole_run(  # noqa: PLR0913, PLR0917 - a log and its numbers
    log, topology, batch, window, published, steady
):
    run = measured(log, topology, batch, window, Estimator.PUBLISHED)
    assert (run.status, run.reason) == (RunStatus.OK, None)
    assert run.metrics.get("throughput") == published
    run = measured(log, topology, batch, window, Estimator.STEADY)
    # Four ranks shared two cores.
    note = None if "1n4g_b2" not in log else "steps take 1.25 times as long as by what another does"
    assert run.status is RunStatus.OK
    assert run.reason == note or (note is not None and note in (run.reason or ""))
    assert run.metrics.get("throughput") == pytest.approx(steady, rel=1e-4)


@pytest.mark.parametrize("estimator", Estimator)
@pytest.mark.parametrize(
    ("log", "topology"), [("dllogger_1n1g_b128.log", "1n1g"), ("dllogger_1n8g_b128.log", "1n8g")]
)
def test_a_run_of_99_iterations_is_too_short(log, topology, estimator):
    run = measured(log, topology, 128, make.WINDOW, estimator)
    assert run.status is RunStatus.INVALID
    assert run.reason.startswith("too few steps")


def test_the_later_print_format_is_not_taken_for_the_first():
    run = LogReading(
        DATA / "paddlecv_later.log",
        number=1,
        case=make.case(),
        log_format=BUILTIN_FORMATS["paddle_resnet"],
        window=Window(warmup_steps=0, measured_steps=2),
        estimator=Estimator.PUBLISHED,
    ).finish()
    assert run.reason == (
        "this is a log of PaddleCV's later print format (batch_cost, ips), not one of format "
        "paddle_resnet"
    )
