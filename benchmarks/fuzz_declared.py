"""Trainers whose formats a user would declare: a kind of time each, as their lines print it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fuzz_training import Step, Trainer, comma_stamp

from pytest_dlperf.formats.log_format import custom_format

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_dlperf.model.case import Case

SEQUENCE_LENGTH: Final = 512


def declared(
    name: str,
    record: str | dict[str, Any],
    line: Callable[[Step, str], str],
    time: Callable[[Step], str],
    *,
    declares: dict[str, Any] | None = None,
    **printing: Any,
) -> Trainer:
    """Make a trainer and its format; ``record`` is an expression, or ``json`` or ``csv``."""
    form = {"record": record} if isinstance(record, str) else record

    def both(step: Step) -> tuple[str, str]:
        text = time(step)
        return line(step, text), text

    return Trainer(
        name=name,
        log_format=custom_format(name, **form, **(declares or {})),
        line=both,
        **printing,
    )


def _global(step: Step) -> float:
    """Samples per second, of the run, since the record before."""
    return step.training.case.global_batch / step.mean


def _plain(text: str) -> float:
    return float(text.replace(",", ""))


def _with_tokens(text: str, case: Case) -> float:
    return _plain(text) / SEQUENCE_LENGTH * case.topology.world_size


def _clock(step: Step) -> str:
    minutes, seconds = divmod(int(step.elapsed), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes:02}:{seconds:02}"


def _milliseconds(text: str, case: Case) -> float:
    del case
    return float(text) / 1000


DECLARED: Final = (
    declared(
        "seconds",
        r"step (?P<step>\d+) took (?P<seconds>[\d.]+) s",
        lambda step, time: f"step {step.printed} took {time} s, loss 3.1",
        lambda step: f"{step.seconds:.4f}",
        epochs=False,
        least_seconds=0.1,
    ),
    declared(
        "totals_since_the_last",
        r"Iter: (?P<step>\d+) Time\(\d+ iters\): (?P<seconds>[\d.]+)s ",
        lambda step, time: f"[INFO][RK0]: Iter: {step.printed} Time(10 iters): {time}s Loss: 0.14",
        lambda step: f"{step.mean * step.training.interval:.6f}",
        declares={"covers": "total_since_last"},
        epochs=False,
        least_seconds=0.1,
    ),
    declared(
        "seconds_in_epochs",
        r"epoch (?P<epoch>\d+) step (?P<step>\d+) took (?P<seconds>[\d.]+) s",
        lambda step, time: f"epoch {step.epoch} step {step.printed} took {time} s, loss 3.1",
        lambda step: f"{step.seconds:.4f}",
        first=0,
        least_seconds=0.1,
    ),
    declared(
        "seconds_of_ranks",
        r"rank (?P<rank>\d+) step (?P<step>\d+) time (?P<seconds>[\d.]+) ",
        lambda step, time: f"rank {step.rank} step {step.printed} time {time} loss 3.1",
        lambda step: f"{step.seconds:.3f}",
        declares={"ranks": "local"},
        epochs=False,
        least_seconds=0.3,
    ),
    declared(
        "seconds_since_the_start",
        r"iteration: (?P<step>\d+)/\d+  loss: [\d.]+  time: (?P<seconds_per_step>[\d.]+) s/iter",
        lambda step, time: f"  iteration: {step.printed}/9999  loss: 3.1  time: {time} s/iter",
        lambda step: f"{step.elapsed / step.number:.6f}",
        declares={"covers": "since_start"},
        epochs=False,
        least_seconds=0.1,
    ),
    declared(
        "milliseconds_since_the_last",
        r"iteration +(?P<step>\d+)/ +\d+ \| consumed samples: +\d+ \| elapsed time per iteration "
        r"\(ms\): (?P<milliseconds>[\d.]+) ",
        lambda step, time: (
            f" iteration {step.printed:8}/     999 | consumed samples:         5504 | elapsed time "
            f"per iteration (ms): {time} | lm loss: 1.825991E+00 |"
        ),
        lambda step: f"{step.mean * 1000:.1f}",
        declares={"covers": "since_last"},
        epochs=False,
        value=_milliseconds,
    ),
    declared(
        "samples_per_second",
        r"step (?P<step>\d+) \| (?P<samples_per_second>[\d,.]+) samples/s",
        lambda step, time: f"step {step.printed} | {time} samples/s | loss 3.1",
        lambda step: f"{_global(step):,.2f}",
        epochs=False,
        value=lambda text, _: _plain(text),
    ),
    declared(
        "samples_per_second_of_ranks",
        r"\[rank (?P<rank>\d+)\] step (?P<step>\d+) rate (?P<samples_per_second>[\d.]+) ",
        lambda step, time: f"[rank {step.rank}] step {step.printed} rate {time} loss 3.1",
        lambda step: f"{_global(step) / step.training.case.topology.world_size:.3f}",
        declares={"ranks": "local", "rate_scope": "rank"},
        epochs=False,
        value=lambda text, case: float(text) * case.topology.world_size,
    ),
    declared(
        "tokens_per_second_of_a_device",
        r"step: +(?P<step>\d+) .*tps: (?P<tokens_per_second>[\d,]+) ",
        lambda step, time: (
            f"[rank0]:[titan] {comma_stamp(step)} - root - INFO - step: {step.printed:2}  loss:  "
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
        lambda step, time: f"epoch: 1, step: {step.printed}, loss: 10.4, speed: {time} steps/s",
        lambda step: f"{1 / step.mean:.6f}",
        epochs=False,
        value=lambda text, case: float(text) * case.global_batch,
    ),
    declared(
        "timestamp",
        r"(?P<timestamp>\d+-\d+-\d+ [\d:,]+) - root - INFO - step: +(?P<step>\d+) ",
        lambda step, time: f"{time} - root - INFO - step: {step.printed:2}  loss:  3.24405",
        comma_stamp,
        epochs=False,
        least_seconds=0.2,
    ),
    declared(
        "time_of_day",
        r"\[(?P<timestamp>[\d:.]+)\] Iter: (?P<step>\d+) ",
        lambda step, time: f"[{time}] Iter: {step.printed} Loss: 0.1406 lr:0.001",
        lambda step: f"{step.now:%H:%M:%S}.{step.now.microsecond // 1000:03d}",
        epochs=False,
        least_seconds=0.2,
    ),
    declared(
        "seconds_since_1970",
        r"(?P<step>\d+) time (?P<timestamp>[\d.]+) loss",
        lambda step, time: f"{step.printed} time {time} loss 0.547",
        lambda step: f"{1.6e9 + step.elapsed:.3f}",
        epochs=False,
        least_seconds=0.2,
    ),
    declared(
        "stamps_of_nameless_ranks",
        r"at (?P<timestamp>\d+-\d+-\d+ [\d:,]+) ended (?P<step>\d+)\b",
        lambda step, time: f"at {time} ended {step.printed}",
        comma_stamp,
        declares={"ranks": "local"},
        epochs=False,
        least_seconds=0.2,
    ),
    declared(
        "elapsed_seconds",
        r"step:(?P<step>\d+)/\d+ train_time:(?P<elapsed_seconds>[\d.]+)s",
        lambda step, time: f"step:{step.printed}/3375 train_time:{time}s step_avg:449.03ms",
        lambda step: f"{step.elapsed:.3f}",
        epochs=False,
        least_seconds=0.2,
    ),
    declared(
        "elapsed_minutes",
        r"train (?P<step>\d+)/\d+ \[(?P<elapsed_seconds>[\d:]+)<",
        lambda step, time: f"train {step.printed}/3375 [{time}<12:00, loss=3.1]",
        _clock,
        epochs=False,
        least_seconds=20.0,
    ),
    declared(
        "epoch_milliseconds_by_samples",
        {
            "json": {"step": "metadata.step", "epoch_milliseconds": "time_ms"},
            "where": {"key": "tracked_stats"},
        },
        lambda step, time: (
            f'0: :::MLLOG {{"namespace": "", "time_ms": {time}, "key": "tracked_stats", "value": '
            f'{{"throughput": 1.92}}, "metadata": {{"file": "x", "step": '
            f"{step.number * step.training.case.global_batch}}}}}"
        ),
        lambda step: str(1_721_026_805_975 + round(step.elapsed * 1000)),
        declares={"steps_in": "samples"},
        epochs=False,
        least_seconds=0.2,
    ),
    declared(
        "csv",
        {"csv": {"step": "step", "seconds": "step_time"}},
        lambda step, time: f"{step.printed},3.1,{time}",
        lambda step: f"{step.seconds:.4f}",
        head=lambda _, __: ["step,loss,step_time"],
        clean=True,
        epochs=False,
        least_seconds=0.1,
    ),
    declared(
        "counted",
        r"loss: [\d.]+ took (?P<milliseconds>[\d.]+) ms",
        lambda _, time: f"loss: 3.1 took {time} ms",
        lambda step: f"{step.mean * 1000:.2f}",
        declares={"step_every": 1},
        numbered=False,
        epochs=False,
        intervals=(1,),
        value=_milliseconds,
    ),
    declared(
        "counted_by_ten",
        r"(?P<timestamp>\d+-\d+-\d+ [\d:,]+) loss: [\d.]+",
        lambda _, time: f"{time} loss: 3.1",
        comma_stamp,
        declares={"step_every": 10},
        numbered=False,
        epochs=False,
        intervals=(10,),
        least_seconds=0.2,
    ),
)
