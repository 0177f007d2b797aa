# ruff: noqa: T201 - trainers print

"""In the place of ``main.py`` in NVIDIA/DeepLearningExamples, ``PyTorch/.../ConvNets``."""

from __future__ import annotations

import os
import sys
from datetime import datetime, timedelta
from pathlib import Path

from seed_trainers.flags import Flags, divided, expect
from seed_trainers.folders import emptied
from seed_trainers.meeting import Meeting, visible_devices
from seed_trainers.pace import SPEED, step_s


def main() -> None:
    """Train one iteration less than it is told."""
    flags = Flags()
    flags.add_argument("data")
    flags.add_argument("--data-backend", choices=["dali-cpu", "dali-gpu", "pytorch", "syntetic"])
    flags.add_argument("--arch", choices=["resnet50"])
    flags.add_argument("-c", choices=["classic", "fanin"])
    flags.add_argument("--lr-schedule", choices=["step", "linear", "cosine"])
    for name in ("-j", "-p", "-b", "--prof", "--epochs", "--warmup", "--optimizer-batch-size"):
        flags.add_argument(name, type=int)
    for name in ("--lr", "--label-smoothing", "--mom", "--wd"):
        flags.add_argument(name, type=float)
    for name in ("--training-only", "--no-checkpoints", "--amp", "--dynamic-loss-scale"):
        flags.add_argument(name, action="store_true")
    flags.add_argument("--workspace")
    flags.add_argument("--raport-file")
    given = flags.parse(sys.argv[1:], optional=("amp", "dynamic_loss_scale"))

    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    devices = visible_devices()
    nodes = divided("WORLD_SIZE", world_size, len(devices))
    local_rank = int(os.environ["LOCAL_RANK"])
    expect("--lr", given.lr, given.b * len(devices) / 1000)
    expect("--dynamic-loss-scale", given.dynamic_loss_scale, given.amp)
    expect("whether there are images", Path(given.data, "train").is_dir(), True)
    raport = Path(given.workspace, given.raport_file)
    expect("the report's folder", raport.parent, Path(given.workspace))
    if local_rank == 0:
        emptied(given.workspace, but="GPU_*.log")  # multiproc.py's, which is where it runs

    meeting = Meeting.at_master(
        rank, world_size, (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    )
    case = f"{'amp' if given.amp else 'fp32'}-b{given.b}-{nodes}n{len(devices)}g"
    place = {"node": rank // len(devices), "device": devices[local_rank]}
    meeting.agree({"case": case}, place=place)
    now = datetime(2020, 9, 15, 23, 59, 18, 553769)  # noqa: DTZ001 - the log tells no zone
    if rank == 0:
        print(
            f"DLL {now} - PARAMETER data : {given.data}  arch : resnet50  batch_size : {given.b}  "
            f"optimizer_batch_size : -1  fp16 : False  static_loss_scale : 1  dynamic_loss_scale : "
            f"{given.dynamic_loss_scale}  prof : {given.prof}  amp : {given.amp}  "
            f"world_size : {world_size} "
        )
    for iteration in range(1, given.prof):
        meeting.step()
        now += timedelta(seconds=step_s(iteration - 1, given.b))
        if rank == 0 and iteration % given.p == 0:
            print(
                f"DLL {now} - Epoch: 0 Iteration: {iteration}  train.loss : 6.67351  "
                f"train.total_ips : {world_size * SPEED:.2f} img/s"
            )
    if rank == 0:
        raport.write_text("{}", encoding="utf-8")
        print(f"DLL {now} - Epoch: 0  train.loss : 7.28801  train.total_ips : 364.26 img/s")
