"""Recognize the logs of other systems, so that a log in the wrong place is called what it is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pytest_dlperf.logs.reader import records, regions
from pytest_dlperf.logs.shipped import BUILTIN_FORMATS

if TYPE_CHECKING:
    import io

    from pytest_dlperf.logs.formats import LogFormat

REACH: Final = 16 * 1024 * 1024
"""Bytes of a log that are looked through; trainers print long before."""

# In this order: what is told apart by less comes after. Every repetition is bounded and within a
# line, so that no text takes more than a moment.
_NEIGHBOURS: Final[tuple[tuple[str, bytes], ...]] = (
    (
        "a log in the later PaddleCV print format (batch_cost, ips)",
        rb"Pass N, train batch N\] [^\n\r\0]{0,400}batch_cost ",
    ),
    ("a PaddleCV log of 2019 (trainbatch)", rb"Pass N, trainbatch [0-9]"),
    (
        "a PLSC 2.x log",
        rb"Training: [0-9]{4}-[^\n\r\0]{0,300}throughput: [0-9.]{1,20} imgs/sec",
    ),
    (
        "a PaddleClas log",
        rb"elapse_avg: ?[0-9]|elapse: ?[0-9.]{1,20} ?s|batch_cost: ?[0-9]",
    ),
    (
        "a log of NVIDIA's PyTorch BERT (Training Iteration)",
        rb"Training Epoch: N Training Iteration: [0-9]",
    ),
    (
        "a log of NVIDIA's TensorFlow ResNet-50",
        rb"DLL [0-9]{4}-[^\n\r\0]{0,60} - \(N, N\) (?:imgs_per_sec|total_ips) : ",
    ),
    ("a log of NVIDIA's TensorFlow BERT", rb"throughput_train : "),
    (
        "a dllogger log of NVIDIA's MXNet ResNet-50",
        rb"DLL [0-9]{4}-[^\n\r\0]{0,300} train\.ips : ",
    ),
    (
        "a log of NVIDIA's MXNet ResNet-50",
        rb"Epoch\[N\] Batch \[N-N\]\tSpeed: [^\n\r\0\t]{0,60}\tLR:",
    ),
    (
        "an MXNet log of insightface (Speedometer)",
        rb"Epoch\[N\] Batch \[N-N\]\tSpeed: ",
    ),
    ("a GluonCV log of MXNet", rb"Epoch\[N\] ?Batch ?\[N\]\tSpeed: "),
    ("a partial_fc log of MXNet", rb"Iter:N Rank:[^\n\r\0]{0,60} it/sec Total:"),
    ("a TensorFlow 2 log of Keras's TimeHistory", rb"TimeHistory: [0-9.]{1,20} seconds, "),
    ("a GluonNLP BERT log of MXNet", rb"\[step N\]\tmlm_loss="),
    ("a PaddleNLP BERT log", rb"progress: N/N, step: N, [^\n\r\0]{0,300}speed: "),
    (
        "a MindSpore log",
        (
            rb"epoch: N,? (?:current epoch percent|step: N, (?:loss is|outputs are))"
            rb"|per step time: [0-9.]{1,20} ms"
        ),
    ),
    (
        "a OneFlow log",
        (
            rb"train: (?:epoch N, )?iter N, loss|step: N, total_loss: "
            rb"|\[rank:N\] iter: N/N|[0-9] time N\.N loss "
        ),
    ),
    ("a HugeCTR log", rb"\[HUGECTR\]|\[HCTR\]"),
    ("a Megatron-LM log", rb"iteration {1,12}N/ {1,12}N \| consumed samples:"),
    (
        "a Megatron log of DeepSpeed",
        rb"iteration {1,12}N/ {1,12}N \| elapsed time per iteration \(ms\)",
    ),
    ("a dllogger log of another trainer", rb"DLL [0-9]{4}-[0-9]{2}-[0-9]{2} "),
)
"""Patterns of records; an ``N`` by itself stands for a number."""

_NUMBER: Final = re.compile(rb"\bN\b")


def recognise(file: io.FileIO, log_format: LogFormat) -> str | None:
    """Say what a log is that holds no record of ``log_format``; ``None`` where nothing tells."""
    file.seek(0)
    others = [other for other in BUILTIN_FORMATS.values() if other.name != log_format.name]
    patterns = [
        (name, re.compile(_NUMBER.sub(b"[0-9]{1,15}", pattern))) for name, pattern in _NEIGHBOURS
    ]
    for region in regions(file):
        for other in others:
            if next(iter(records(region, other)), None) is not None:
                return f"a log of format {other.name}"
        for name, pattern in patterns:
            if pattern.search(region.buffer, 0, region.end) is not None:
                return name
        if region.offset > REACH:
            break
    return None
