"""Trainers whose logs are known: how a line of a step looks, and what its numbers are of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_dlperf.logs.timing import Covers, RateScope, Timing


@dataclass(frozen=True, slots=True)
class Reading:
    """A way to take a printed number: by which group, and with what it covers where that counts."""

    timing: Timing
    covers: Covers | None = None
    scope: RateScope | None = None


@dataclass(frozen=True, slots=True)
class Number:
    """A number on the lines of a trainer's steps that is easily taken for something else.

    ``pattern`` finds it within a line, as its only group.
    """

    pattern: bytes
    meaning: str
    """What it is, behind "that number is"."""
    instead: str
    """What to write so that the step's time is right, behind "take"."""
    readings: tuple[Reading, ...] = ()
    """As what it may be taken; without any, it tells nothing of the time of steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainer:
    """A trainer by its log.

    In ``pattern`` an ``N`` by itself stands for a number. Every repetition is bounded and within a
    line, so that no text takes more than a moment. Each match holds one of ``literals``.
    """

    name: str
    """Behind "a log of"."""
    literals: tuple[bytes, ...]
    pattern: bytes
    format: str = ""
    """The shipped format that reads it, if one does."""
    header_only: bool = False
    """Whether the pattern is of what stands before the first step, and not of steps."""
    numbers: tuple[Number, ...] = ()
    starter: Mapping[str, Any] = field(default_factory=dict)
    """What to write as ``log.format`` of a system; empty where no line of it has a step."""
    advice: str = ""
    """What else to know before its numbers are believed."""


_TEXT: Final = rb"[^\n\r\0]{0,400}"

TRAINERS: Final[tuple[Trainer, ...]] = (
    Trainer(
        name="PaddleCV's later print format (batch_cost, ips)",
        literals=(b"batch_cost ",),
        pattern=rb"Pass N, train batch N\] " + _TEXT + rb"batch_cost ",
    ),
    Trainer(
        name="PaddleCV of 2019 (trainbatch)",
        literals=(b", trainbatch ",),
        pattern=rb"Pass N, trainbatch [0-9]",
    ),
    Trainer(
        name="PLSC 2.x",
        literals=(b" imgs/sec",),
        pattern=rb"Training: [0-9]{4}-" + _TEXT + rb"throughput: [0-9.]{1,20} imgs/sec",
    ),
    Trainer(
        name="PaddleClas",
        literals=(b"elapse_avg: ", b"elapse: ", b"batch_cost: "),
        pattern=rb"elapse_avg: ?[0-9]|elapse: ?[0-9.]{1,20} ?s|batch_cost: ?[0-9]",
    ),
    Trainer(
        name="NVIDIA's PyTorch BERT (Training Iteration)",
        literals=(b" Training Iteration: ",),
        pattern=rb"Training Epoch: N Training Iteration: [0-9]",
    ),
    Trainer(
        name="NVIDIA's TensorFlow ResNet-50",
        literals=(b"imgs_per_sec : ", b"total_ips : "),
        pattern=rb"DLL [0-9]{4}-[^\n\r\0]{0,60} - \(N, N\) (?:imgs_per_sec|total_ips) : ",
    ),
    Trainer(
        name="NVIDIA's TensorFlow BERT",
        literals=(b"throughput_train : ",),
        pattern=rb"throughput_train : ",
    ),
    Trainer(
        name="NVIDIA's MXNet ResNet-50 (dllogger)",
        literals=(b" train.ips : ",),
        pattern=rb"DLL [0-9]{4}-[^\n\r\0]{0,300} train\.ips : ",
    ),
    Trainer(
        name="NVIDIA's MXNet ResNet-50",
        literals=(b"\tSpeed: ",),
        pattern=rb"Epoch\[N\] Batch \[N-N\]\tSpeed: [^\n\r\0\t]{0,60}\tLR:",
    ),
    Trainer(
        name="insightface with MXNet (Speedometer)",
        literals=(b"\tSpeed: ",),
        pattern=rb"Epoch\[N\] Batch \[N-N\]\tSpeed: ",
    ),
    Trainer(
        name="GluonCV with MXNet",
        literals=(b"\tSpeed: ",),
        pattern=rb"Epoch\[N\] ?Batch ?\[N\]\tSpeed: ",
    ),
    Trainer(
        name="partial_fc with MXNet",
        literals=(b" it/sec Total:",),
        pattern=rb"Iter:N Rank:[^\n\r\0]{0,60} it/sec Total:",
    ),
    Trainer(
        name="TensorFlow 2 with Keras's TimeHistory",
        literals=(b"TimeHistory: ",),
        pattern=rb"TimeHistory: [0-9.]{1,20} seconds, ",
    ),
    Trainer(
        name="GluonNLP BERT with MXNet",
        literals=(b"\tmlm_loss=",),
        pattern=rb"\[step N\]\tmlm_loss=",
    ),
    Trainer(
        name="PaddleNLP BERT",
        literals=(b"progress: ",),
        pattern=rb"progress: N/N, step: N, " + _TEXT + rb"speed: ",
    ),
    Trainer(
        name="MindSpore",
        literals=(b"epoch: ", b"per step time: "),
        pattern=(
            rb"epoch: N,? (?:current epoch percent|step: N, (?:loss is|outputs are))"
            rb"|per step time: [0-9.]{1,20} ms"
        ),
    ),
    Trainer(
        name="OneFlow",
        literals=(b"train: ", b", total_loss: ", b"[rank:", b" time "),
        pattern=(
            rb"train: (?:epoch N, )?iter N, loss|step: N, total_loss: "
            rb"|\[rank:N\] iter: N/N|[0-9] time N\.N loss "
        ),
    ),
    Trainer(
        name="HugeCTR",
        literals=(b"[HUGECTR]", b"[HCTR]"),
        pattern=rb"\[HUGECTR\]|\[HCTR\]",
    ),
    Trainer(
        name="Megatron-LM",
        literals=(b" | consumed samples:",),
        pattern=rb"iteration {1,12}N/ {1,12}N \| consumed samples:",
    ),
    Trainer(
        name="Megatron by DeepSpeed",
        literals=(b" | elapsed time per iteration (ms)",),
        pattern=rb"iteration {1,12}N/ {1,12}N \| elapsed time per iteration \(ms\)",
    ),
    Trainer(
        name="NVIDIA's PyTorch image classification before its first step",
        literals=(b" data_backend : ",),
        pattern=rb"DLL [0-9]{4}-[^\n\r\0]{0,60} - PARAMETER [^\n\r\0]{0,4000} data_backend : ",
        format="dllogger",
        header_only=True,
    ),
    Trainer(
        name="another trainer, by dllogger",
        literals=(b"DLL ",),
        pattern=rb"DLL [0-9]{4}-[0-9]{2}-[0-9]{2} ",
    ),
)
"""In this order: what is told apart by less comes after."""
