# ruff: noqa: T201 - trainers print

"""In the place of ``main.py`` in pytorch/examples, ``imagenet``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from seed_trainers import dali
from seed_trainers.flags import Flags, divided, expect
from seed_trainers.meeting import Meeting, endpoint_of, visible_devices
from seed_trainers.pace import step_s
from seed_trainers.processes import run_all


def main() -> None:
    """Start one process for each device that is visible here."""
    flags = Flags()
    flags.add_argument("data")
    flags.add_argument("--arch", choices=["resnet18", "resnet50"])
    flags.add_argument("--dist-backend", choices=["nccl", "gloo"])
    flags.add_argument("--dist-url")
    for name in ("epochs", "batch-size", "workers", "print-freq", "world-size", "rank"):
        flags.add_argument(f"--{name}", type=int)
    for name in ("lr", "momentum"):
        flags.add_argument(f"--{name}", type=float)
    flags.add_argument("--multiprocessing-distributed", action="store_true")
    given = flags.parse(sys.argv[1:])
    devices = visible_devices()
    expect("--lr", given.lr, given.batch_size / 1000)
    expect("whether there are images", Path(given.data, "train").is_dir(), True)

    def process(local_rank: int) -> Callable[[], object]:
        return lambda: _train(given, devices, local_rank)

    run_all(process(local_rank) for local_rank in range(len(devices)))


def _train(given: Any, devices: list[int], local_rank: int) -> None:
    """Train for an epoch, and then test for ever."""
    scheme, _, master = given.dist_url.partition("://")
    expect("what --dist-url begins with", scheme, "tcp")
    batch = divided("--batch-size", given.batch_size, len(devices))
    world_size = given.world_size * len(devices)
    rank = given.rank * len(devices) + local_rank
    # As the original does it: two calls of write for each line, which others come between.
    print(f"Use GPU: {local_rank} for training")
    meeting = Meeting.at_master(rank, world_size, endpoint_of(master))
    print("=> creating model 'resnet50'")
    dali.place.rank, dali.place.world_size, dali.place.device = rank, world_size, local_rank
    loader, tests = (
        dali.torch.utils.data.DataLoader(
            SimpleNamespace(root=f"{given.data}/{part}"),
            batch_size=batch,
            num_workers=-(-given.workers // len(devices)),
            pin_memory=True,
        )
        for part in ("train", "val")
    )
    expect("the loader of the test", type(tests), dali.DataLoader)
    with_dali = not isinstance(loader, dali.DataLoader)
    if with_dali:
        expect("two batches", list(loader), [("image", "label")] * 2)
    options = f"{'dali+' if with_dali else ''}workers{given.workers}"
    meeting.agree(
        {"case": f"fp32-b{batch}-{options}-{given.world_size}n{len(devices)}g"},
        place={"node": given.rank, "device": devices[local_rank]},
    )
    total = len(loader)
    width = len(str(total))
    for step in range(total):
        meeting.step()
        if step % given.print_freq == 0:
            seconds = step_s(step, batch)
            print(
                f"Epoch: [0][{step:{width}d}/{total}]\tTime {seconds:6.3f} ({seconds:6.3f})\t"
                "Data  0.107 ( 0.094)\tLoss 5.3901e+00 (1.1786e+01)\tAcc@1   0.78 (  1.95)\t"
                "Acc@5  16.41 ( 11.77)"
            )
    while True:
        meeting.step()
        print("Test: [0/98]\tTime  0.299 ( 0.299)\tLoss 2.7237e+00 (2.7237e+00)")
