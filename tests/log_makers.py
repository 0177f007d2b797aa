"""Writes logs as the trainers do, with times that a test chooses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from pytest_dlperf.formats.log_format import LogFormat
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS
from pytest_dlperf.logs.reading import LogReading
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import Estimator, Run, Window

WINDOW = Window(warmup_steps=20, measured_steps=100)
PLSC_WINDOW = Window(warmup_steps=50, measured_steps=100)
START = datetime(2020, 9, 15, 14, 29, 18, 553769)  # noqa: DTZ001 - logs tell no zone


def case(topology: str = "1n1g", *, batch: int = 128, precision: str = "fp32") -> Case:
    return Case.from_id(f"framework-model-{precision}-b{batch}-{topology}")


def measured(  # noqa: PLR0913 - a log and everything that it is judged by
    path: Path,
    content: bytes | str,
    log_format: LogFormat | str,
    *,
    of: Case | None = None,
    window: Window = WINDOW,
    estimator: Estimator = Estimator.STEADY,
    limit: int | None = None,
    buffer_size: int = 1 << 18,
) -> Run:
    """Write a log below ``path`` and measure it."""
    log = path / "run.log"
    log.write_bytes(content.encode() if isinstance(content, str) else content)
    return LogReading(
        log,
        number=1,
        case=of or case(),
        log_format=BUILTIN_FORMATS[log_format] if isinstance(log_format, str) else log_format,
        window=window,
        estimator=estimator,
        buffer_size=buffer_size,
    ).finish(limit)


def seconds(count: int, *, base: float = 0.35) -> list[float]:
    """Step times that all differ a little, with a slow first step, in tenths of milliseconds."""
    return [7.5, *(round(base + (k * 7919 % 101) / 1000, 4) for k in range(1, count))]


def _numbered(count: int, first: int, epoch_length: int | None) -> Iterator[tuple[int, int]]:
    """Epoch and printed number of each step."""
    for k in range(count):
        epoch, index = divmod(k, epoch_length) if epoch_length else (0, k)
        yield epoch, index + first


def _text(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def paddle_resnet_header(*, batch_per_node: int, trainers: int) -> str:
    return _text(
        (
            f"PADDLE_TRAINERS_NUM {trainers} ",
            "PADDLE_TRAINER_ID 0 ",
            "2020-09-10 08:27:37,894-INFO: -------------  Configuration Arguments -------------",
            f"2020-09-10 08:27:37,894-INFO:                batch_size : {batch_per_node}",
            "2020-09-10 08:27:37,894-INFO:           test_batch_size : 16",
            "2020-09-10 08:27:37,894-INFO: ----------------------------------------------------",
        )
    )


def paddle_resnet(
    times: Sequence[float],
    *,
    epoch_length: int | None = None,
    interval: int = 1,
    prefix: str = "2020-09-10 08:27:41,009-INFO: ",
    tests: bool = False,
) -> str:
    """Batches from 0; with ``tests``, a test after each epoch."""
    lines = []
    for k, (epoch, batch) in enumerate(_numbered(len(times), 0, epoch_length)):
        if tests and epoch and batch == 0:
            lines += [
                f"{prefix}[Pass {epoch - 1}, test  batch {b}] \tloss 6.90000, acc1 0.00000, "
                "acc5 0.00000, elapse 0.0457 sec"
                for b in range(3)
            ]
            lines.append(f"{prefix}[End pass {epoch - 1}]\ttrain_loss 2.61537, test_loss 2.1")
        if batch % interval == 0:
            lines.append(
                f"{prefix}[Pass {epoch}, train batch {batch}] \tloss 6.92724, acc1 0.00000, "
                f"acc5 0.00000, lr 0.00100, elapse {times[k]:.4f} sec"
            )
    return _text(lines)


def dllogger_header(*, batch: int, world_size: int) -> str:
    return (
        f"DLL {START} - PARAMETER data : /imagenet  arch : resnet50  batch_size : {batch}  "
        "optimizer_batch_size : -1  lr : 0.1  prof : 130  distributed : True  gpu : 0  "
        f"world_size : {world_size} \n"
    )


def dllogger(  # noqa: PLR0913 - a log has so many sides
    times: Sequence[float],
    *,
    epoch_length: int | None = None,
    interval: int = 1,
    start: datetime = START,
    global_batch: int = 128,
    said_s: float | None = None,
) -> str:
    """Iterations from 1; their speed is that of their times, or of ``said_s``."""
    lines = []
    now = start
    for k, (epoch, iteration) in enumerate(_numbered(len(times), 1, epoch_length)):
        now += timedelta(seconds=times[k])
        if iteration % interval == 0:
            lines.append(
                f"DLL {now} - Epoch: {epoch} Iteration: {iteration}  train.loss : 6.67351  "
                f"train.total_ips : {global_batch / (said_s or times[k] or 1e9):.2f} img/s"
            )
    return _text(lines)


def pytorch_record(epoch: int, index: int, total: int, time: float) -> str:
    width = len(str(total))
    return (
        f"Epoch: [{epoch}][{index:{width}d}/{total}]\tTime {time:6.3f} ({time:6.3f})\t"
        "Data  0.107 ( 0.094)\tLoss 5.3901e+00 (1.1786e+01)\tAcc@1   0.78 (  1.95)\t"
        "Acc@5  16.41 ( 11.77)"
    )


def pytorch_imagenet(
    ranks: Sequence[Sequence[float]],
    *,
    epoch_length: int | None = None,
    interval: int = 1,
    block: int | None = None,
    heads: bool = True,
) -> str:
    """Indexes from 0; the ranks take turns by step, or by ``block`` lines."""
    outputs = []
    for rank, times in enumerate(ranks):
        total = epoch_length or len(times)
        head = [f"Use GPU: {rank} for training", "=> creating model 'resnet50'"] if heads else []
        outputs.append(
            [
                *head,
                *(
                    pytorch_record(epoch, index, total, times[k])
                    for k, (epoch, index) in enumerate(_numbered(len(times), 0, epoch_length))
                    if index % interval == 0
                ),
                "Test: [0/3]\tTime  0.299 ( 0.299)\tLoss 2.7237e+00 (2.7237e+00)",
                " * Acc@1 0.100 Acc@5 0.500",
            ]
        )
    return _text(_taking_turns(outputs, block or 1))


def _taking_turns(outputs: Sequence[Sequence[str]], block: int) -> Iterator[str]:
    longest = max(map(len, outputs))
    for begin in range(0, longest, block):
        for output in outputs:
            yield from output[begin : begin + block]


def plsc_header(*, batch: int, world_size: int) -> str:
    return _text(
        (
            f"INFO 2020-11-20 08:30:45,491 entry.py:157] \ttrain_batch_size: {batch}",
            "INFO 2020-11-20 08:30:45,491 entry.py:157] \ttest_batch_size: 120",
            f"INFO 2020-11-20 08:30:45,491 entry.py:159] trainer_id: 3, num_trainers: {world_size}",
        )
    )


def plsc(  # noqa: PLR0913 - a log has so many sides
    ranks: Sequence[Sequence[float]],
    *,
    period: int = 10,
    block: int = 1,
    global_batch: int = 128,
    waiting_s: float = 0.0,
    epoch_length: int | None = None,
) -> str:
    """Batches 0, ``period``, … with the given speeds, and so much waiting for data per step."""
    outputs = []
    for rates in ranks:
        now = START
        lines = []
        for k, rate in enumerate(rates):
            steps = period if k else 1
            now += timedelta(seconds=steps * (global_batch / rate + waiting_s))
            epoch, batch = divmod(k * period, epoch_length) if epoch_length else (0, k * period)
            lines.append(
                f"INFO {f'{now:%Y-%m-%d %H:%M:%S,%f}'[:-3]} entry.py:1027] Pass:{epoch} "
                f"batch:{batch} lr:0.10000000 loss:44.003868 qps:{rate:.2f}"
            )
        outputs.append(lines)
    return _text(_taking_turns(outputs, block))


def tf_models_bert(
    times: Sequence[float],
    *,
    interval: int = 1,
    start: datetime = START,
    copies: bool = False,
) -> str:
    """Steps from 1; with ``copies``, each record a second time and without a stamp."""
    lines = []
    now = start
    for k, time in enumerate(times, 1):
        now += timedelta(seconds=time)
        if k % interval:
            continue
        record = (
            f"Train Step: {k}/{len(times)}  / loss = 5.302196025848389  "
            "masked_lm_accuracy = 0.000000  lm_example_loss = 4.608097"
        )
        if copies:
            lines.append(f"INFO:tensorflow:{record}")
        lines.append(
            f"I{now:%m%d %H:%M:%S.%f} 140555885927296 model_training_utils.py:505] {record}"
        )
    return _text(lines)


def dlperf_header(of: Case) -> str:
    topology = of.topology
    return _text(
        f"dlperf run rank={rank} world_size={topology.world_size} nodes={topology.nodes} "
        f"devices_per_node={topology.devices_per_node} batch_per_device={of.batch_per_replica} "
        f"precision={of.precision}"
        for rank in range(topology.devices_per_node)
    )


def dlperf(ranks: Sequence[Sequence[float]], *, block: int = 1) -> str:
    """Steps from 1, each rank on a clock of its own."""
    outputs = []
    for rank, times in enumerate(ranks):
        now = 1000.0 * rank + 3.25
        lines = []
        for k, time in enumerate(times, 1):
            now += time
            lines.append(f"dlperf step rank={rank} step={k} time={now:.6f} loss=6.9078")
        outputs.append([*lines, f"dlperf end rank={rank}"])
    return _text(_taking_turns(outputs, block))


OF_ONE_RANK: Mapping[str, Callable[..., str]] = {
    "paddle_resnet": paddle_resnet,
    "dllogger": dllogger,
    "tf_models_bert": tf_models_bert,
    "pytorch_imagenet": lambda times: pytorch_imagenet([times]),
    "dlperf": lambda times: dlperf([times]),
}
"""Makers of a log with given step times, by format."""
