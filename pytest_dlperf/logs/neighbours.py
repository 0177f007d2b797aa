"""Logs of other systems, by name: so that a log in the wrong place is called what it is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pytest_dlperf.logs.formats import BUILTIN_FORMATS
from pytest_dlperf.logs.reader import records, regions

if TYPE_CHECKING:
    import io

    from pytest_dlperf.logs.formats import LogFormat

REACH: Final = 16 * 1024 * 1024
"""Bytes of a log that are looked through; trainers print long before."""

# In this order: what is told apart by less comes after.
_NEIGHBOURS: Final[tuple[tuple[str, bytes], ...]] = (
    (
        "a log in the later PaddleCV print format (batch_cost, ips)",
        rb"Pass [0-9]+, train batch [0-9]+\] [^\n]*batch_cost ",
    ),
    ("a PaddleCV log of 2019 (trainbatch)", rb"Pass [0-9]+, trainbatch [0-9]+"),
    ("a PLSC 2.x log", rb"Training: [0-9]{4}-[^\n]*throughput: [^\n]*imgs/sec"),
    ("a PaddleClas log", rb"elapse_avg: ?[0-9]|elapse: ?[0-9.]+ ?s|batch_cost: ?[0-9]"),
    (
        "a log of NVIDIA's PyTorch BERT (Training Iteration)",
        rb"Training Epoch: [0-9]+ Training Iteration: [0-9]+",
    ),
    (
        "a log of NVIDIA's TensorFlow ResNet-50",
        rb"DLL [^\n]* - \([0-9]+, [0-9]+\) (?:imgs_per_sec|total_ips) : ",
    ),
    ("a log of NVIDIA's TensorFlow BERT", rb"throughput_train : "),
    ("a dllogger log of NVIDIA's MXNet ResNet-50", rb"DLL [^\n]* train\.ips : "),
    (
        "a log of NVIDIA's MXNet ResNet-50",
        rb"Epoch\[[0-9]+\] Batch \[[0-9]+-[0-9]+\]\tSpeed: [^\n]*\tLR:",
    ),
    (
        "an MXNet log of insightface (Speedometer)",
        rb"Epoch\[[0-9]+\] Batch \[[0-9]+-[0-9]+\]\tSpeed: ",
    ),
    ("a GluonCV log of MXNet", rb"Epoch\[[0-9]+\] ?Batch ?\[[0-9]+\]\tSpeed: "),
    ("a partial_fc log of MXNet", rb"Iter:[0-9]+ Rank:[^\n]* it/sec Total:"),
    ("a TensorFlow 2 log of Keras's TimeHistory", rb"TimeHistory: [0-9.]+ seconds, "),
    ("a GluonNLP BERT log of MXNet", rb"\[step [0-9]+\]\tmlm_loss="),
    ("a PaddleNLP BERT log", rb"progress: [0-9]+/[0-9]+, step: [0-9]+, [^\n]*speed: "),
    (
        "a MindSpore log",
        (
            rb"epoch: [0-9]+,? (?:current epoch percent|step: [0-9]+, (?:loss is|outputs are))"
            rb"|per step time: [0-9.]+ ms"
        ),
    ),
    (
        "a OneFlow log",
        (
            rb"train: (?:epoch [0-9]+, )?iter [0-9]+, loss|step: [0-9]+, total_loss: "
            rb"|\[rank:[0-9]+\] iter: [0-9]+/[0-9]+|[0-9]+ time [0-9]+\.[0-9]+ loss "
        ),
    ),
    ("a HugeCTR log", rb"\[HUGECTR\]|\[HCTR\]"),
    ("a Megatron-LM log", rb"iteration +[0-9]+/ +[0-9]+ \| consumed samples:"),
    (
        "a Megatron log of DeepSpeed",
        rb"iteration +[0-9]+/ +[0-9]+ \| elapsed time per iteration \(ms\)",
    ),
    ("a dllogger log of another trainer", rb"DLL [0-9]{4}-[0-9]{2}-[0-9]{2} "),
)


def recognise(file: io.FileIO, log_format: LogFormat) -> str | None:
    """What a log is that holds no record of ``log_format``; ``None`` when it looks like nothing.

    Raises:
        OSError: The file cannot be read.
    """
    file.seek(0)
    others = [other for other in BUILTIN_FORMATS.values() if other.name != log_format.name]
    patterns = [(name, re.compile(pattern)) for name, pattern in _NEIGHBOURS]
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
