"""Trainers whose formats a user would declare: a kind of time each, as their lines print it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fuzz_training import Step, Trainer, comma_stamp

from pytest_dlperf.formats.log_format import custom_format

if TYPE_CHECKING:
    from collections.abc import Callable


SEQUENCE_LENGTH: Final = 512


def declared(
    name: str,
    record: str | dict[str, Any],
    line: Callable[[Step], str],
    *,
    declares: dict[str, Any] | None = None,
    **printing: Any,
) -> Trainer:
    """Make a trainer and its format; ``record`` is an expression, or ``json`` or ``csv``."""
    form = {"record": record} if isinstance(record, str) else record
    return Trainer(
        name=name,
        log_format=custom_format(name, **form, **(declares or {})),
        line=line,
        **printing,
    )


def _global(step: Step) -> float:
    """Samples per second, of the run, since the record before."""
    return step.training.case.global_batch / step.mean


def _of_a_device(step: Step) -> float:
    return _global(step) / step.training.case.topology.world_size


def _clock(step: Step) -> str:
    minutes, seconds = divmod(int(step.elapsed), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes:02}:{seconds:02}"


DECLARED: Final = (
    declared(
        "seconds",
        r"step (?P<step>\d+) took (?P<seconds>[\d.]+) s",
        lambda step: f"step {step.printed} took {step.seconds:.4f} s, loss 3.1",
        epochs=False,
        least_seconds=0.1,
    ),
    declared(
        "totals_since_the_last",
        r"Iter: (?P<step>\d+) Time\(\d+ iters\): (?P<seconds>[\d.]+)s ",
        lambda step: (
            f"[INFO][RK0]: Iter: {step.printed} Time(10 iters): "
            f"{step.mean * step.training.interval:.6f}s Loss: 0.14"
        ),
        declares={"covers": "total_since_last"},
        epochs=False,
        least_seconds=0.1,
    ),
    declared(
        "seconds_in_epochs",
        r"epoch (?P<epoch>\d+) step (?P<step>\d+) took (?P<seconds>[\d.]+) s",
        lambda step: f"epoch {step.epoch} step {step.printed} took {step.seconds:.4f} s, loss 3.1",
        first=0,
        least_seconds=0.1,
    ),
    declared(
        "seconds_of_ranks",
        r"rank (?P<rank>\d+) step (?P<step>\d+) time (?P<seconds>[\d.]+) ",
        lambda step: f"rank {step.rank} step {step.printed} time {step.seconds:.3f} loss 3.1",
        declares={"ranks": "local"},
        epochs=False,
        least_seconds=0.3,
    ),
    declared(
        "seconds_since_the_start",
        r"iteration: (?P<step>\d+)/\d+  loss: [\d.]+  time: (?P<seconds_per_step>[\d.]+) s/iter",
        lambda step: (
            f"  iteration: {step.printed}/9999  loss: 3.1  time: {step.elapsed / step.number:.6f} "
            "s/iter"
        ),
        declares={"covers": "since_start"},
        epochs=False,
        least_seconds=0.1,
    ),
    declared(
        "milliseconds_since_the_last",
        r"iteration +(?P<step>\d+)/ +\d+ \| consumed samples: +\d+ \| elapsed time per iteration "
        r"\(ms\): (?P<milliseconds>[\d.]+) ",
        lambda step: (
            f" iteration {step.printed:8}/     999 | consumed samples:         5504 | elapsed time "
            f"per iteration (ms): {step.mean * 1000:.1f} | lm loss: 1.825991E+00 |"
        ),
        declares={"covers": "since_last"},
        epochs=False,
    ),
    declared(
        "samples_per_second",
        r"step (?P<step>\d+) \| (?P<samples_per_second>[\d,.]+) samples/s",
        lambda step: f"step {step.printed} | {_global(step):,.2f} samples/s | loss 3.1",
        epochs=False,
    ),
    declared(
        "samples_per_second_of_ranks",
        r"\[rank (?P<rank>\d+)\] step (?P<step>\d+) rate (?P<samples_per_second>[\d.]+) ",
        lambda step: (
            f"[rank {step.rank}] step {step.printed} rate {_of_a_device(step):.3f} loss 3.1"
        ),
        declares={"ranks": "local", "rate_scope": "rank"},
        epochs=False,
    ),
    declared(
        "tokens_per_second_of_a_device",
        r"step: +(?P<step>\d+) .*tps: (?P<tokens_per_second>[\d,]+) ",
        lambda step: (
            f"[rank0]:[titan] {comma_stamp(step)} - root - INFO - step: {step.printed:2}  loss:  "
            f"3.24405  memory:  9.46GiB(64.99%)  tps: "
            f"{_of_a_device(step) * SEQUENCE_LENGTH:,.0f}  tflops: 0.52"
        ),
        declares={"rate_scope": "device"},
        epochs=False,
        sequence_length=SEQUENCE_LENGTH,
    ),
    declared(
        "steps_per_second",
        r"step: (?P<step>\d+), .*speed: (?P<steps_per_second>[\d.]+) steps/s",
        lambda step: (
            f"epoch: 1, step: {step.printed}, loss: 10.4, speed: {1 / step.mean:.6f} steps/s"
        ),
        epochs=False,
    ),
    declared(
        "timestamp",
        r"(?P<timestamp>\d+-\d+-\d+ [\d:,]+) - root - INFO - step: +(?P<step>\d+) ",
        lambda step: f"{comma_stamp(step)} - root - INFO - step: {step.printed:2}  loss:  3.24405",
        epochs=False,
        least_seconds=0.2,
    ),
    declared(
        "time_of_day",
        r"\[(?P<timestamp>[\d:.]+)\] Iter: (?P<step>\d+) ",
        lambda step: (
            f"[{step.now:%H:%M:%S}.{step.now.microsecond // 1000:03d}] Iter: {step.printed} "
            "Loss: 0.1406 lr:0.001"
        ),
        epochs=False,
        least_seconds=0.2,
    ),
    declared(
        "seconds_since_1970",
        r"(?P<step>\d+) time (?P<timestamp>[\d.]+) loss",
        lambda step: f"{step.printed} time {1.6e9 + step.elapsed:.3f} loss 0.547",
        epochs=False,
        least_seconds=0.2,
    ),
    declared(
        "stamps_of_nameless_ranks",
        r"at (?P<timestamp>\d+-\d+-\d+ [\d:,]+) ended (?P<step>\d+)\b",
        lambda step: f"at {comma_stamp(step)} ended {step.printed}",
        declares={"ranks": "local"},
        epochs=False,
        least_seconds=0.2,
    ),
    declared(
        "elapsed_seconds",
        r"step:(?P<step>\d+)/\d+ train_time:(?P<elapsed_seconds>[\d.]+)s",
        lambda step: f"step:{step.printed}/3375 train_time:{step.elapsed:.3f}s step_avg:449.03ms",
        epochs=False,
        least_seconds=0.2,
    ),
    declared(
        "elapsed_minutes",
        r"train (?P<step>\d+)/\d+ \[(?P<elapsed_seconds>[\d:]+)<",
        lambda step: f"train {step.printed}/3375 [{_clock(step)}<12:00, loss=3.1]",
        epochs=False,
        least_seconds=20.0,
    ),
    declared(
        "epoch_milliseconds_by_samples",
        {
            "json": {"step": "metadata.step", "epoch_milliseconds": "time_ms"},
            "where": {"key": "tracked_stats"},
        },
        lambda step: (
            f'0: :::MLLOG {{"namespace": "", "time_ms": '
            f'{1_721_026_805_975 + round(step.elapsed * 1000)}, "key": "tracked_stats", "value": '
            f'{{"throughput": 1.92}}, "metadata": {{"file": "x", "step": '
            f"{step.number * step.training.case.global_batch}}}}}"
        ),
        declares={"steps_in": "samples"},
        epochs=False,
        least_seconds=0.2,
    ),
    declared(
        "csv",
        {"csv": {"step": "step", "seconds": "step_time"}},
        lambda step: f"{step.printed},3.1,{step.seconds:.4f}",
        head=lambda _, __: ["step,loss,step_time"],
        clean=True,
        epochs=False,
        least_seconds=0.1,
    ),
    declared(
        "counted",
        r"loss: [\d.]+ took (?P<milliseconds>[\d.]+) ms",
        lambda step: f"loss: 3.1 took {step.mean * 1000:.2f} ms",
        declares={"step_every": 1},
        numbered=False,
        epochs=False,
        intervals=(1,),
    ),
    declared(
        "counted_by_ten",
        r"(?P<timestamp>\d+-\d+-\d+ [\d:,]+) loss: [\d.]+",
        lambda step: f"{comma_stamp(step)} loss: 3.1",
        declares={"step_every": 10},
        numbered=False,
        epochs=False,
        intervals=(10,),
        least_seconds=0.2,
    ),
)
