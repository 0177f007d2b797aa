"""ResNet-18 on synthetic images, trained on all devices of a run, on CPUs or on GPUs.

Run it with torchrun, which starts one process per device::

    python -m torch.distributed.run --nproc-per-node=2 -m pytest_dlperf.trainers.resnet

Without torchrun it trains in this process alone. Every process prints the lines that
``pytest_dlperf.trainers.steps`` describes. The model is the v1.5 form of the ResNet of
He et al., "Deep Residual Learning for Image Recognition" (2016), table 1, as torchvision has it.
"""

from __future__ import annotations

import argparse
import gc
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from pytest_dlperf.trainers.steps import SYNCHRONIZE, StepLog

if TYPE_CHECKING:
    from collections.abc import Sequence

CLASSES: Final = 1000
STAGES: Final = ((64, 1), (128, 2), (256, 2), (512, 2))
"""Channels and stride of the four stages; each has two blocks."""
PRECISIONS: Final = ("fp32", "bf16")
SEED: Final = 20200701
SMALLEST_IMAGE: Final = 33
"""Below it, one pixel is left in the last stage, and a batch of one has no variance there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankInfo:
    """Where this process stands in the run, as torchrun tells it."""

    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    devices_per_node: int = 1

    @classmethod
    def from_environment(cls) -> RankInfo | None:
        """What torchrun told this process; ``None`` if it was started otherwise."""
        if "TORCHELASTIC_RUN_ID" not in os.environ:
            return None
        return cls(
            rank=int(os.environ["RANK"]),
            local_rank=int(os.environ["LOCAL_RANK"]),
            world_size=int(os.environ["WORLD_SIZE"]),
            devices_per_node=int(os.environ["LOCAL_WORLD_SIZE"]),
        )


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and what goes around them."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )
        self.shortcut = (
            nn.Identity()
            if stride == 1 and channels_in == channels
            else nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False),
                nn.BatchNorm2d(channels),
            )
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Add the residual to the shortcut."""
        return nn.functional.relu(self.residual(images) + self.shortcut(images))


def resnet18() -> nn.Sequential:
    """ResNet-18, with the initial weights of the original paper's authors."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2, padding=1),
    ]
    channels_in = 64
    for channels, stride in STAGES:
        layers += [BasicBlock(channels_in, channels, stride), BasicBlock(channels, channels, 1)]
        channels_in = channels
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels_in, CLASSES)]
    model = nn.Sequential(*layers)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line.

    Raises:
        SystemExit: An argument is unknown or out of range; standard error says which.
    """
    parser = argparse.ArgumentParser(
        prog="python -m pytest_dlperf.trainers.resnet",
        description="Train ResNet-18 on synthetic images and write a record of each step.",
    )
    add = parser.add_argument
    add("--batch-per-device", type=_count, default=8, metavar="N", help="images per step and rank")
    add("--image-size", type=_image_size, default=64, metavar="PIXELS", help="height and width")
    add("--warmup-steps", type=_count_from_zero, default=5, metavar="N", help="steps to begin with")
    add("--measured-steps", type=_count, default=15, metavar="N", help="steps after those")
    add("--precision", choices=PRECISIONS, default="fp32", help="bf16 is automatic mixed precision")
    add(
        "--repeat-step",
        type=_count,
        default=1,
        metavar="N",
        help="compute each step N times, to see whether a slow-down is noticed",
    )
    return parser.parse_args(arguments)


def choose_device(rank_info: RankInfo) -> torch.device:
    """The GPU that belongs to this process, where there are GPUs, else the CPU.

    Raises:
        SystemExit: The node has fewer GPUs than processes.
    """
    if not torch.cuda.is_available():
        # More threads than one would have the ranks of a machine compete for its cores.
        torch.set_num_threads(1)
        return torch.device("cpu")
    devices = torch.cuda.device_count()
    if rank_info.devices_per_node > devices:
        raise SystemExit(
            f"this node was given {rank_info.devices_per_node} processes, one for each GPU, but "
            f"has {devices}; start fewer, or set CUDA_VISIBLE_DEVICES to nothing to train on CPUs"
        )
    device = torch.device("cuda", rank_info.local_rank)
    torch.cuda.set_device(device)
    return device


def train(options: argparse.Namespace, rank_info: RankInfo, device: torch.device) -> StepLog:
    """Train, and print all records but the last; the process group is there already."""
    cuda = device.type == "cuda"
    torch.manual_seed(SEED)
    model = DistributedDataParallel(resnet18().to(device), device_ids=[device] if cuda else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    generator = torch.Generator().manual_seed(SEED + rank_info.rank)
    size = options.image_size
    images = torch.randn(options.batch_per_device, 3, size, size, generator=generator).to(device)
    labels = torch.randint(CLASSES, (options.batch_per_device,), generator=generator).to(device)
    mixed = options.precision == "bf16"

    distributed.barrier()
    os.environ.setdefault(SYNCHRONIZE, "1")
    log = StepLog(batch_per_device=options.batch_per_device, precision=options.precision)
    for _ in range(options.warmup_steps + options.measured_steps):
        for _ in range(options.repeat_step):
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=mixed):
                loss = criterion(model(images), labels)
            loss.backward()
        optimizer.step()
        log.step(loss)
    # A rank that leaves while others still talk to it makes them abort, and so does a model that
    # outlives the process group: hence this order, the rest of which is in main.
    distributed.barrier()
    return log


def main(arguments: Sequence[str] | None = None) -> None:
    """Train as the command line says.

    Raises:
        SystemExit: An argument is unknown or out of range, or there are too few GPUs.
    """
    options = parse_arguments(arguments)
    launched = RankInfo.from_environment()
    rank_info = launched or RankInfo()
    device = choose_device(rank_info)
    cuda = device.type == "cuda"
    distributed.init_process_group(
        "nccl" if cuda else "gloo",
        # A process that is alone has nobody to meet anywhere.
        store=None if launched else distributed.HashStore(),
        rank=rank_info.rank,
        world_size=rank_info.world_size,
        device_id=device if cuda else None,
    )
    log = train(options, rank_info, device)
    gc.collect()
    distributed.destroy_process_group()
    log.end()


def _count(text: str) -> int:
    return _whole_number(text, least=1)


def _count_from_zero(text: str) -> int:
    return _whole_number(text, least=0)


def _image_size(text: str) -> int:
    return _whole_number(text, least=SMALLEST_IMAGE)


def _whole_number(text: str, *, least: int) -> int:
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} on")
    return int(text)


if __name__ == "__main__":
    main()
