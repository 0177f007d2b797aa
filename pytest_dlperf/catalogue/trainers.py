"""The trainers whose logs are known, and what must not be believed of their numbers."""

from __future__ import annotations

from typing import Final

from pytest_dlperf.catalogue.benchmark import BENCHMARK_TRAINERS
from pytest_dlperf.catalogue.language import LANGUAGE_TRAINERS
from pytest_dlperf.catalogue.trainer import TEXT, TOKENS_PER_DEVICE, VALUE, Number, Reading, Trainer
from pytest_dlperf.model.timing import Covers, RateScope, Timing

_SINCE_START: Final = Covers.SINCE_START
_EARLIER: Final = "the group elapsed_seconds on 'train_runtime', or 'covers: since_start'"

_OTHERS: Final = (
    Trainer(
        name="Hugging Face's Trainer",
        literals=(b"'learning_rate': ", b"'train_runtime': "),
        pattern=rb"\{(?:'loss': '?[-0-9.einfa]{1,20}'?, " + TEXT + rb"'learning_rate': "
        rb"|'train_runtime': )",
        system="huggingface",
        numbers=(
            Number(
                pattern=rb"'train_tokens_per_second': '?" + VALUE,
                meaning="a mean since the start, with the warm-up",
                instead=_EARLIER,
                readings=(Reading(Timing.TOKENS_PER_SECOND, _SINCE_START, RateScope.GLOBAL),),
            ),
            Number(
                pattern=rb"'train_samples_per_second': '?" + VALUE,
                meaning="a mean since the start, with the warm-up",
                instead=_EARLIER,
                readings=(Reading(Timing.SAMPLES_PER_SECOND, _SINCE_START, RateScope.GLOBAL),),
            ),
            Number(
                pattern=rb"'train_steps_per_second': '?" + VALUE,
                meaning="a mean since the start, with the warm-up",
                instead=_EARLIER,
                readings=(Reading(Timing.STEPS_PER_SECOND, _SINCE_START),),
            ),
            Number(
                pattern=rb"'train_runtime': '?" + VALUE,
                meaning="the time since the start",
                instead="the group elapsed_seconds",
                readings=(Reading(Timing.ELAPSED_SECONDS),),
            ),
        ),
        own_format={
            "record": "'num_input_tokens_seen': [0-9]+, 'train_runtime': "
            "'?(?P<elapsed_seconds>[0-9.]+)",
            "step": "count",
        },
        advice="times are printed with include_num_input_tokens_seen only, every logging_steps "
        "steps (step: {every: …})",
    ),
    Trainer(
        name="Hugging Face's Accelerate example",
        literals=(b": {'",),
        pattern=rb"epoch N: \{'[a-z_]{1,40}': ",
        system="accelerate",
        advice="it prints once an epoch: print a line per step",
    ),
    Trainer(
        name="PyTorch Lightning with rich",
        literals=("•".encode(),),
        pattern=rb"Epoch N/-?[0-9]{1,9} [^\n\r\0]{1,400} [0-9.]{1,12}it/s",
        system="lightning",
        numbers=(
            Number(
                pattern=rb"([0-9.]{1,12})it/s",
                meaning="a moving mean of a progress bar",
                instead="a line per step, printed by a callback",
            ),
        ),
        advice="without a terminal it prints one line, at the end: print a line per step",
    ),
    Trainer(
        name="timm",
        literals=(b"Train: ",),
        pattern=rb"Train: N \[ {0,9}N/N \( {0,3}N%\)\]",
        numbers=(
            Number(
                pattern=rb"/s {1,3}\( {0,9}([0-9.]{1,12})s",
                meaning="a mean since the epoch's start",
                instead="the number in front of the brackets",
            ),
            Number(
                pattern=rb"/s {1,3}\( {0,9}[0-9.]{1,12}s, {1,9}([0-9.]{1,12})/s",
                meaning="a mean since the epoch's start",
                instead="the number in front of the brackets",
            ),
        ),
        system="timm",
    ),
    Trainer(
        name="torchvision's references (MetricLogger)",
        literals=(b"  eta: ",),
        pattern=rb"Epoch: \[N\] {1,4}\[ {0,9}N/N\] {1,4}eta: ",
        numbers=(
            Number(
                pattern=rb" img/s: " + VALUE,
                meaning="the speed of one rank in its last step, without the wait for data",
                instead="no time at all: the step's arrival is measured then",
            ),
            Number(
                pattern=rb" time: " + VALUE,
                meaning="a mean of the last 20 steps",
                instead="'covers: since_last' where every 20th step is printed; else no time at "
                "all: the step's arrival is measured then",
                readings=(
                    Reading(Timing.SECONDS, Covers.SINCE_LAST),
                    Reading(Timing.SECONDS_PER_STEP, Covers.SINCE_LAST),
                ),
            ),
        ),
        system="torchvision",
    ),
    Trainer(
        name="OpenMMLab's MMEngine",
        literals=(b"Epoch(train)",),
        pattern=rb"Epoch\(train\) {1,4}\[ {0,9}N\]\[ {0,9}N/N\]",
        own_format={
            "record": r"Epoch\(train\) +\[ *(?P<epoch>[0-9]+)\]\[ *(?P<step>[0-9]+)/.* time: "
            r"(?P<seconds>[0-9.]+) ",
            "covers": "since_last",
        },
    ),
    Trainer(
        name="OneFlow's LiBai",
        literals=(b"lb.utils.events",),
        pattern=rb"lb\.utils\.events[^\n\r\0]{0,40}\]: {1,4}eta: " + TEXT + rb" s/iter",
        numbers=(
            Number(
                pattern=rb" time: " + VALUE + rb" s/iter",
                meaning="a mean since the start, with the warm-up",
                instead="'covers: since_start': two of them are differenced then",
                readings=(
                    Reading(Timing.SECONDS, _SINCE_START),
                    Reading(Timing.SECONDS_PER_STEP, _SINCE_START),
                ),
            ),
            Number(
                pattern=rb"total_throughput: " + VALUE,
                meaning="a mean since the start, with the warm-up",
                instead="'covers: since_start': two of them are differenced then",
                readings=(Reading(Timing.SAMPLES_PER_SECOND, _SINCE_START, RateScope.GLOBAL),),
            ),
        ),
        own_format={
            "record": r"iteration: (?P<step>[0-9]+)/[0-9]+ .* time: (?P<seconds>[0-9.]+) s/iter",
            "covers": "since_start",
        },
    ),
    Trainer(
        name="detectron2",
        literals=(b"d2.utils.events",),
        pattern=rb"d2\.utils\.events[^\n\r\0]{0,40}\]: {1,4}eta: ",
        numbers=(
            Number(
                pattern=rb" time: " + VALUE,
                meaning="a mean since the start, with the warm-up",
                instead="last_time, or 'covers: since_start'",
                readings=(Reading(Timing.SECONDS, _SINCE_START),),
            ),
        ),
        own_format={
            "record": r"d2\.utils\.events.* iter: (?P<step>[0-9]+) .* last_time: "
            r"(?P<seconds>[0-9.]+) ",
        },
    ),
    Trainer(
        name="TensorFlow's Model Garden (orbit)",
        literals=(b"| steps/sec: ",),
        pattern=rb"train \| step: {1,12}N \| steps/sec: ",
        own_format={
            "record": r"train \| step: +(?P<step>[0-9]+) \| steps/sec: +"
            r"(?P<steps_per_second>[0-9.]+) ",
        },
    ),
    Trainer(
        name="PaddleNLP or PaddleFormers",
        literals=(b"interval_runtime: ",),
        pattern=rb"global_step: N, " + TEXT + rb"interval_runtime: ",
        numbers=(
            Number(
                pattern=rb"interval_runtime: " + VALUE,
                meaning="the time of all steps since the last line",
                instead="interval_samples_per_second, or interval_steps_per_second",
                one_step_is_fine=True,
            ),
            Number(
                pattern=rb"interval_tokens_per_second_per_device: " + VALUE,
                meaning="tokens per second of one device",
                instead="the group tokens_per_second with 'rate_scope: device'",
                readings=TOKENS_PER_DEVICE,
            ),
        ),
        system="paddleformers",
        advice="each rank prints into its own workerlog.N (log.file)",
    ),
    Trainer(
        name="MLPerf (MLLOG)",
        literals=(b":::MLLOG {",),
        pattern=rb":::MLLOG \{",
        numbers=(
            Number(
                pattern=rb'"time_ms": ([0-9]{1,20})',
                meaning="milliseconds since 1970",
                instead="the group epoch_milliseconds",
                readings=(Reading(Timing.EPOCH_MILLISECONDS),),
            ),
        ),
        system="mlperf",
        advice="its steps count samples",
    ),
    Trainer(
        name="NVIDIA's dllogger as JSON (DLLL)",
        literals=(b"DLLL {",),
        pattern=rb"DLLL \{",
        own_format={
            "record": r'DLLL \{"timestamp": "(?P<timestamp>[0-9.]+)".*"type": "LOG", "step": '
            r"\[(?:[0-9]+, )?(?P<step>[0-9]+)\]",
        },
    ),
    Trainer(
        name="NVIDIA's older trainers (NVLOG)",
        literals=(b"NVLOG",),
        pattern=rb"\bNVLOG[A-Z]?(?:v[0-9.]{1,9})?\b",
        advice="it has no step line of one form: declare the record of yours",
    ),
)

_LAST: Final = (
    Trainer(
        name="NVIDIA's PyTorch image classification before its first step",
        literals=(b" data_backend : ",),
        pattern=rb"DLL [0-9]{4}-[^\n\r\0]{0,60} - PARAMETER [^\n\r\0]{0,4000} data_backend : ",
        format="dllogger",
    ),
    Trainer(
        name="another trainer, by dllogger",
        literals=(b"DLL ",),
        pattern=rb"DLL [0-9]{4}-[0-9]{2}-[0-9]{2} ",
    ),
    Trainer(
        name="a progress bar (tqdm)",
        literals=(b"it/s", b"s/it"),
        pattern=rb"N/N \[[0-9:]{4,12}<[0-9:?]{1,12}, {1,9}[0-9.]{1,12}(?:it/s|s/it)",
        names_the_log=False,
        numbers=(
            Number(
                pattern=rb"<[0-9:?]{1,12}, {1,9}([0-9.]{1,12})(?:it/s|s/it)",
                meaning="a moving mean of a progress bar, in steps",
                instead=r"the bar's elapsed time, '/[0-9]+ \[(?P<elapsed_seconds>[0-9:]+)<'",
            ),
        ),
        own_format={
            "record": r"(?P<step>[0-9]+)/[0-9]+ \[(?P<elapsed_seconds>[0-9:]+)<",
        },
        advice="its time is in whole seconds: measure many steps, or print a line per step",
    ),
)

TRAINERS: Final[tuple[Trainer, ...]] = (
    *BENCHMARK_TRAINERS,
    *LANGUAGE_TRAINERS,
    *_OTHERS,
    *_LAST,
)
"""In this order: what is told apart by less comes after."""
