"""Trainers whose formats a user would declare: a kind of time each, as their lines print it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from fuzz_training import Step, Trainer

from pytest_dlperf.logs.formats import custom_format

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_dlperf.model.case import Case

SEQUENCE_LENGTH: Final = 512


def _fixed(decimals: int) -> str:
    return rf"(?:0|[1-9][0-9]*)\.[0-9]{{{decimals}}}"


def declared(  # noqa: PLR0913 - all of a trainer
    name: str,
    record: str,
    shape: str,
    line: Callable[[Step, str], str],
    time: Callable[[Step], str],
    *,
    declares: dict[str, Any] | None = None,
    **printing: Any,
) -> Trainer:
    """Make a trainer and its format."""

    def both(step: Step) -> tuple[str, str]:
        text = time(step)
        return line(step, text), text

    return Trainer(
        name=name,
        log_format=custom_format(name, record=record, **(declares or {})),
        line=both,
        shape=re.compile(shape),
        **printing,
    )


def _global(step: Step) -> float:
    """Samples per second, of the run, since the record before."""
    return step.training.case.global_batch / step.mean


def _plain(text: str) -> float:
    return float(text.replace(",", ""))


def _with_tokens(text: str, case: Case) -> float:
    return _plain(text) / SEQUENCE_LENGTH * case.topology.world_size


def _milliseconds(text: str, case: Case) -> float:
    del case
    return float(text) / 1000


def _comma_stamp(step: Step) -> str:
    return f"{step.now:%Y-%m-%d %H:%M:%S},{step.now.microsecond // 1000:03d}"


DATED: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2},[0-9]{3}"

DECLARED: Final = (
    declared(
        "seconds",
        r"step (?P<step>\d+) took (?P<seconds>[\d.]+) s",
        _fixed(4),
        lambda step, time: f"step {step.printed} took {time} s, loss 3.1",
        lambda step: f"{step.seconds:.4f}",
        epochs=False,
        least_seconds=0.1,
    ),
    declared(
        "seconds_in_epochs",
        r"epoch (?P<epoch>\d+) step (?P<step>\d+) took (?P<seconds>[\d.]+) s",
        _fixed(4),
        lambda step, time: f"epoch {step.epoch} step {step.printed} took {time} s, loss 3.1",
        lambda step: f"{step.seconds:.4f}",
        first=0,
        least_seconds=0.1,
    ),
    declared(
        "milliseconds",
        r"iter (?P<step>\d+): loss [\d.]+, time (?P<milliseconds>[\d.]+)ms",
        _fixed(2),
        lambda step, time: f"iter {step.printed}: loss 4.0863, time {time}ms",
        lambda step: f"{step.seconds * 1000:.2f}",
        declares={"first_step": 0},
        epochs=False,
        first=0,
        value=_milliseconds,
    ),
    declared(
        "seconds_of_ranks",
        r"rank (?P<rank>\d+) step (?P<step>\d+) time (?P<seconds>[\d.]+) ",
        _fixed(3),
        lambda step, time: f"rank {step.rank} step {step.printed} time {time} loss 3.1",
        lambda step: f"{step.seconds:.3f}",
        declares={"ranks": "local"},
        epochs=False,
        least_seconds=0.3,
    ),
    declared(
        "seconds_of_nameless_ranks",
        r"step (?P<step>\d+) time (?P<seconds>[\d.]+) ",
        _fixed(3),
        lambda step, time: f"step {step.printed} time {time} loss 3.1",
        lambda step: f"{step.seconds:.3f}",
        declares={"ranks": "local"},
        epochs=False,
        least_seconds=0.3,
    ),
    declared(
        "seconds_per_step",
        r"iteration: (?P<step>\d+)/\d+  loss: [\d.]+  time: (?P<seconds_per_step>[\d.]+) s/iter",
        _fixed(4),
        lambda step, time: f"  iteration: {step.printed}/9999  loss: 3.1  time: {time} s/iter",
        lambda step: f"{step.seconds:.4f}",
        epochs=False,
        least_seconds=0.1,
    ),
    declared(
        "samples_per_second",
        r"step (?P<step>\d+) \| (?P<samples_per_second>[\d,.]+) samples/s",
        r"(?:[1-9][0-9]{0,2}(?:,[0-9]{3})*)\.[0-9]{2}",
        lambda step, time: f"step {step.printed} | {time} samples/s | loss 3.1",
        lambda step: f"{_global(step):,.2f}",
        epochs=False,
        value=lambda text, _: _plain(text),
    ),
    declared(
        "samples_per_second_of_ranks",
        r"\[rank (?P<rank>\d+)\] step (?P<step>\d+) rate (?P<samples_per_second>[\d.]+) ",
        _fixed(3),
        lambda step, time: f"[rank {step.rank}] step {step.printed} rate {time} loss 3.1",
        lambda step: f"{_global(step) / step.training.case.topology.world_size:.3f}",
        declares={"ranks": "local", "rate_scope": "rank"},
        epochs=False,
        value=lambda text, case: float(text) * case.topology.world_size,
    ),
    declared(
        "tokens_per_second_of_a_device",
        r"step: +(?P<step>\d+) .*tps: (?P<tokens_per_second>[\d,]+) ",
        r"[1-9][0-9]{0,2}(?:,[0-9]{3})*",
        lambda step, time: (
            f"[rank0]:[titan] {_comma_stamp(step)} - root - INFO - step: {step.printed:2}  loss:  "
            f"3.24405  memory:  9.46GiB(64.99%)  tps: {time}  tflops: 0.52"
        ),
        lambda step: (
            f"{_global(step) * SEQUENCE_LENGTH / step.training.case.topology.world_size:,.0f}"
        ),
        declares={"rate_scope": "device"},
        epochs=False,
        sequence_length=SEQUENCE_LENGTH,
        value=_with_tokens,
    ),
    declared(
        "steps_per_second",
        r"step: (?P<step>\d+), .*speed: (?P<steps_per_second>[\d.]+) steps/s",
        _fixed(6),
        lambda step, time: f"epoch: 1, step: {step.printed}, loss: 10.4, speed: {time} steps/s",
        lambda step: f"{1 / step.mean:.6f}",
        epochs=False,
        value=lambda text, case: float(text) * case.global_batch,
    ),
    declared(
        "timestamp",
        r"(?P<timestamp>\d+-\d+-\d+ [\d:,]+) - root - INFO - step: +(?P<step>\d+) ",
        DATED,
        lambda step, time: f"{time} - root - INFO - step: {step.printed:2}  loss:  3.24405",
        _comma_stamp,
        epochs=False,
        least_seconds=0.2,
    ),
    declared(
        "time_of_day",
        r"\[(?P<timestamp>[\d:.]+)\] Iter: (?P<step>\d+) ",
        r"[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}",
        lambda step, time: f"[{time}] Iter: {step.printed} Loss: 0.1406 lr:0.001",
        lambda step: f"{step.now:%H:%M:%S}.{step.now.microsecond // 1000:03d}",
        epochs=False,
        least_seconds=0.2,
    ),
    declared(
        "seconds_since_1970",
        r"(?P<step>\d+) time (?P<timestamp>[\d.]+) loss",
        r"[1-9][0-9]*\.[0-9]{3}",
        lambda step, time: f"{step.printed} time {time} loss 0.547",
        lambda step: f"{1.6e9 + step.elapsed:.3f}",
        epochs=False,
        least_seconds=0.2,
    ),
    declared(
        "stamps_of_nameless_ranks",
        r"at (?P<timestamp>\d+-\d+-\d+ [\d:,]+) ended (?P<step>\d+)\b",
        DATED,
        lambda step, time: f"at {time} ended {step.printed}",
        _comma_stamp,
        declares={"ranks": "local"},
        epochs=False,
        least_seconds=0.2,
    ),
)
