# ruff: noqa: T201 - trainers print

"""In the place of ``train.py`` in PaddlePaddle/models, ``PaddleCV/image_classification``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from seed_trainers.flags import Flags, divided, expect, switch
from seed_trainers.folders import emptied
from seed_trainers.pace import step_s
from seed_trainers.paddle_place import PaddlePlace

_FP16_FLAGS = (
    "use_dynamic_loss_scaling",
    "scale_loss",
    "fuse_elewise_add_act_ops",
    "fuse_bn_act_ops",
)
_FP16_ENVIRONMENT = (
    "FLAGS_conv_workspace_size_limit",
    "FLAGS_cudnn_exhaustive_search",
    "FLAGS_cudnn_batchnorm_spatial_persistent",
)
_LOG_PREFIX = "2020-09-10 08:27:41,009-INFO: "


def main() -> None:
    """Train as many batches as it is told."""
    given = _parsed()
    place = PaddlePlace.told()
    devices = place.devices_per_node
    batch = divided("--batch_size", given.batch_size, devices)
    is_fp16 = bool(given.use_fp16)
    options = [
        *(["dali"] if given.use_dali else []),
        *(["static_loss_scale"] if given.use_dynamic_loss_scaling is False else []),
    ]
    _check(given, is_fp16=is_fp16, devices=devices)
    if place.rank % devices == 0:
        emptied(given.model_save_dir)
    print(f"PADDLE_TRAINERS_NUM {place.world_size} ")
    print(f"PADDLE_TRAINER_ID {place.rank} ")
    if place.rank == 0:
        _log(f"               batch_size : {given.batch_size}")
        _log(f"                 use_dali : {int(given.use_dali)}")
        _log(f" use_dynamic_loss_scaling : {int(given.use_dynamic_loss_scaling is not False)}")
        _log(f"                 use_fp16 : {int(is_fp16)}")
    named = f"-{'+'.join(options)}" if options else ""
    meeting = place.met(f"{'fp16' if is_fp16 else 'fp32'}-b{batch}{named}-{place.topology}")
    for step in range(given.max_iter):
        meeting.step()
        if place.rank == 0 and step % given.print_step == 0:
            _log(
                f"[Pass 0, train batch {step}] \tloss 6.92724, acc1 0.00000, acc5 0.00000, "
                f"lr 0.00100, elapse {step_s(step, batch):.4f} sec"
            )


def _parsed() -> Any:
    flags = Flags()
    for name, kind in {
        "data_dir": str,
        "model_save_dir": str,
        "model": str,
        "data_format": str,
        "lr_strategy": str,
        "total_images": int,
        "class_dim": int,
        "batch_size": int,
        "print_step": int,
        "save_step": int,
        "reader_thread": int,
        "max_iter": int,
        "warm_up_epochs": float,
        "lr": float,
        "momentum_rate": float,
        "l2_decay": float,
        "label_smoothing_epsilon": float,
        "scale_loss": float,
        "validate": switch,
        "use_mixup": switch,
        "use_label_smoothing": switch,
        "use_dali": switch,
        "use_fp16": switch,
        "use_dynamic_loss_scaling": switch,
        "fuse_elewise_add_act_ops": switch,
        "fuse_bn_act_ops": switch,
    }.items():
        flags.add_argument(f"--{name}", type=kind)  # type: ignore[arg-type]
    flags.add_argument("--image_shape", type=int, nargs="+")
    return flags.parse(sys.argv[1:], optional=("use_fp16", *_FP16_FLAGS))


def _check(given: Any, *, is_fp16: bool, devices: int) -> None:
    expect("--image_shape", given.image_shape, [3, 224, 224])
    expect("--data_format", given.data_format, "NHWC" if is_fp16 else "NCHW")
    threads = 10 if given.use_dali else 12 if devices == 4 else 8
    expect("--reader_thread", given.reader_thread, threads)
    for name in _FP16_FLAGS:
        expect(f"whether --{name} is given", getattr(given, name) is not None, is_fp16)
    for name in _FP16_ENVIRONMENT:
        expect(f"whether {name} is set", name in os.environ, is_fp16)
    memory = os.environ["FLAGS_fraction_of_gpu_memory_to_use"]  # noqa: SIM112 - its name
    expect("the share of memory", float(memory), 0.8 if given.use_dali else 0.98)
    if given.use_dali:
        expect(
            "whether DALI_EXTRA_PATH is there", Path(os.environ["DALI_EXTRA_PATH"]).is_dir(), True
        )
    expect("whether there are images", Path(given.data_dir, "train_list.txt").is_file(), True)


def _log(text: str) -> None:
    sys.stderr.write(f"{_LOG_PREFIX}{text}\n")
