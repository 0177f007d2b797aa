"""Trainers of language models."""

from __future__ import annotations

from typing import Final

from pytest_dlperf.catalogue.trainer import TEXT, TOKENS_PER_DEVICE, VALUE, Number, Reading, Trainer
from pytest_dlperf.model.timing import RateScope, Timing

_OF_ALL: Final = (Reading(Timing.TOKENS_PER_SECOND, scope=RateScope.GLOBAL),)

LANGUAGE_TRAINERS: Final = (
    Trainer(
        name="torchtitan",
        literals=(b"tflops: ",),
        pattern=rb"step: {1,9}N\b" + TEXT + rb"tps: [0-9,]{1,20}\b[^\n\r\0]{0,40}tflops: ",
        numbers=(
            Number(
                pattern=rb"tps: " + VALUE,
                meaning="tokens per second of one device",
                instead="the group tokens_per_second with 'rate_scope: device', or the time stamp",
                readings=TOKENS_PER_DEVICE,
            ),
        ),
        system="torchtitan",
        advice="the first step compiles: keep it in the warm-up",
    ),
    Trainer(
        name="Megatron-LM",
        literals=(b" | consumed samples:",),
        pattern=rb"iteration {1,12}N/ {1,12}N \| consumed samples:",
        numbers=(
            Number(
                pattern=rb"throughput per GPU \(TFLOP/s/GPU\): " + VALUE,
                meaning="floating-point operations, not samples",
                instead="'elapsed time per iteration (ms)' as milliseconds",
            ),
        ),
        system="megatron",
        advice="the last rank prints: of several nodes the last one's log shows the steps",
    ),
    Trainer(
        name="Megatron by DeepSpeed",
        literals=(b" | elapsed time per iteration (ms)",),
        pattern=rb"iteration {1,12}N/ {1,12}N \| elapsed time per iteration \(ms\)",
        own_format={
            "record": r"iteration +(?P<step>[0-9]+)/ +[0-9]+ \| elapsed time per iteration "
            r"\(ms\): (?P<milliseconds>[0-9.]+) ",
            "covers": "since_last",
        },
    ),
    Trainer(
        name="Megatron-Bridge's first rank",
        literals=(b"Step Time : ",),
        pattern=rb"Step Time : [0-9.]{1,12}s GPU utilization: ",
        system="megatron_bridge",
        own_format={"record": "Step Time : (?P<seconds>[0-9.]+)s ", "step": "count"},
        advice="the last rank prints the same with the step's number",
    ),
    Trainer(
        name="NeMo",
        literals=(b"train_step_timing in s: ",),
        pattern=rb"Training epoch N, iteration N/N \| " + TEXT + rb"train_step_timing in s: ",
        system="nemo",
    ),
    Trainer(
        name="NeMo AutoModel",
        literals=(b"/gpu) | num_label_tokens ",),
        pattern=rb"step N \| epoch N \| " + TEXT + rb"\| tps [0-9.]{1,20}\([0-9.]{1,20}/gpu\) \| ",
        numbers=(
            Number(
                pattern=rb"\| tps " + VALUE + rb"\(",
                meaning="tokens per second of all devices",
                instead="the group tokens_per_second with 'rate_scope: global'",
                readings=_OF_ALL,
            ),
            Number(
                pattern=rb"\(" + VALUE + rb"/gpu\)",
                meaning="tokens per second of one device",
                instead="the group tokens_per_second with 'rate_scope: device'",
                readings=TOKENS_PER_DEVICE,
            ),
        ),
        system="nemo_automodel",
    ),
    Trainer(
        name="DeepSpeed",
        literals=(b"RunningAvgSamplesPerSec=",),
        pattern=rb"/global_step=N, RunningAvgSamplesPerSec=",
        system="deepspeed",
        numbers=(
            Number(
                pattern=rb"RunningAvgSamplesPerSec=" + VALUE,
                meaning="a mean since the start, of the time inside the engine alone",
                instead="the time stamp of the line 'step=…, skipped=…' in front of it",
            ),
            Number(
                pattern=rb"CurrSamplesPerSec=" + VALUE,
                meaning="of the last step alone, and of the time inside the engine",
                instead="the time stamp of the line 'step=…, skipped=…' in front of it",
            ),
        ),
        own_format={
            "record": r"^\[(?P<timestamp>[0-9-]+ [0-9:,]+)\] \[INFO\] \[logging\.py:[0-9]+:"
            r"log_dist\] \[Rank 0\] step=(?P<step>[0-9]+), skipped=",
        },
        advice="it prints at log level info, every steps_per_print steps",
    ),
    Trainer(
        name="DeepSpeed's pipeline engine",
        literals=(b" iter time (s): ",),
        pattern=rb"steps: N loss: [^\n\r\0]{0,60} iter time \(s\): [0-9.]{1,20} samples/sec: ",
        own_format={
            "record": r"steps: (?P<step>[0-9]+) loss: .* iter time \(s\): (?P<seconds>[0-9.]+) ",
            "covers": "since_last",
        },
    ),
    Trainer(
        name="MaxText",
        literals=(b"completed step: ",),
        pattern=rb"completed step: N, seconds: [0-9.]{1,20}, ",
        numbers=(
            Number(
                pattern=rb"Tokens/s/device: " + VALUE,
                meaning="tokens per second of one device",
                instead="the group tokens_per_second with 'rate_scope: device', or the seconds",
                readings=TOKENS_PER_DEVICE,
            ),
            Number(
                pattern=rb"samples/s/device: " + VALUE,
                meaning="samples per second of one device",
                instead="the group samples_per_second with 'rate_scope: device', or the seconds",
                readings=(Reading(Timing.SAMPLES_PER_SECOND, scope=RateScope.DEVICE),),
            ),
            Number(
                pattern=rb"TFLOP/s/device: " + VALUE,
                meaning="floating-point operations, not samples",
                instead="the seconds",
            ),
        ),
        system="maxtext",
        advice="its first steps return before the devices have done them: keep ten in the warm-up",
    ),
    Trainer(
        name="modded-nanogpt",
        literals=(b" step_avg:",),
        pattern=rb"step:N/N [^\n\r\0]{0,80}train_time:[0-9.]{1,20}m?s step_avg:",
        numbers=(
            Number(
                pattern=rb"train_time:([0-9.]{1,20})s",
                meaning="the time since the start",
                instead="the group elapsed_seconds",
                readings=(Reading(Timing.ELAPSED_SECONDS),),
            ),
            Number(
                pattern=rb"train_time:([0-9.]{1,20})ms",
                meaning="the time since the start, in milliseconds",
                instead="the group elapsed_milliseconds",
                readings=(Reading(Timing.ELAPSED_MILLISECONDS),),
            ),
            Number(
                pattern=rb"step_avg:([0-9.]{1,20})m?s",
                meaning="a mean since the first steps",
                instead="train_time as elapsed_seconds or elapsed_milliseconds",
            ),
        ),
        own_format={
            "record": "step:(?P<step>[0-9]+)/[0-9]+ .*train_time:"
            "(?P<elapsed_milliseconds>[0-9.]+)ms ",
        },
    ),
    Trainer(
        name="nanoGPT",
        literals=(b": loss ",),
        pattern=rb"iter N: loss [0-9.naif]{1,12}, time [0-9.]{1,12}ms",
        system="nanogpt",
    ),
    Trainer(
        name="litgpt",
        literals=(b"| iter time: ",),
        pattern=rb"\| iter N step N \| " + TEXT + rb"\| iter time: [0-9.]{1,12} ms",
        numbers=(
            Number(
                # With one micro-batch a step, the two numbers are the same.
                pattern=rb"\| iter ([0-9]{1,15}) step (?!\1 )" + TEXT + rb"\| iter time: "
                rb"([0-9.]{1,12}) ms",
                meaning="the time of a micro-batch, not of a step",
                instead="no time at all: the step's arrival is measured then",
            ),
        ),
        system="litgpt",
    ),
    Trainer(
        name="OLMo-core",
        literals=(b"[step=",),
        pattern=rb"\[step=N(?:/N)?,epoch=N",
        own_format={"record": r"\[step=(?P<step>[0-9]+)[/,]"},
        advice="a record takes several lines: measured is when the first of them arrives",
    ),
    Trainer(
        name="Levanter",
        literals=(b"Progress on:",),
        pattern=rb"Progress on:[^\n\r\0]{1,80} rate:",
        numbers=(
            Number(
                pattern=rb" rate:([0-9.]{1,12})",
                meaning="a moving mean of a progress bar",
                instead="what its tracker writes into a file (log.file)",
            ),
        ),
        advice="its numbers go to its tracker: read that file (log.file)",
    ),
)
