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
from collections.abc import Callable, Sequence
from typing import Final

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from pytest_dlperf.trainers.steps import SYNCHRONIZE, StepLog

CLASSES: Final = 1000
STAGES: Final = ((64, 1), (128, 2), (256, 2), (512, 2))
"""Channels and stride of the four stages; each has two blocks."""
SEED: Final = 20200701
SMALLEST_IMAGE: Final = 33
"""Below it, one pixel is left in the last stage, and a batch of one has no variance there."""


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and what goes around them."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        """Build the block; a stride above 1, in the first convolution, shrinks the image."""
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels:
            convolution = nn.Conv2d(channels_in, channels, 1, stride, bias=False)
            self.shortcut = nn.Sequential(convolution, nn.BatchNorm2d(channels))

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
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m pytest_dlperf.trainers.resnet",
        description="Train ResNet-18 on synthetic images and write a record of each step.",
    )
    add = parser.add_argument
    add("--batch-per-device", type=_from(1), default=8, help="images per step and rank")
    add("--image-size", type=_from(SMALLEST_IMAGE), default=64, help="height and width in pixels")
    add("--warmup-steps", type=_from(0), default=5, help="steps to begin with")
    add("--measured-steps", type=_from(1), default=15, help="steps after those")
    add("--precision", choices=("fp32", "bf16"), default="fp32", help="bf16 is mixed precision")
    help_of_repeats = "compute each step so often, to see whether a slow-down is noticed"
    add("--repeat-step", type=_from(1), default=1, help=help_of_repeats)
    return parser.parse_args(arguments)


def _from(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} on")
        return int(text)

    return number


def choose_device() -> torch.device:
    """The GPU that belongs to this process, where there are GPUs, else the CPU.

    Raises:
        SystemExit: The node has fewer GPUs than processes.
    """
    if not torch.cuda.is_available():
        # More threads than one would have the ranks of a machine compete for its cores.
        torch.set_num_threads(1)
        return torch.device("cpu")
    devices, processes = torch.cuda.device_count(), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if processes > devices:
        raise SystemExit(
            f"this node was given {processes} processes, one for each GPU, but has {devices}; "
            "start fewer, or set CUDA_VISIBLE_DEVICES to nothing to train on CPUs"
        )
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device


def train(options: argparse.Namespace, device: torch.device) -> StepLog:
    """Train, and print all records but the last; the process group is there already."""
    cuda = device.type == "cuda"
    torch.manual_seed(SEED)
    model = DistributedDataParallel(resnet18().to(device), device_ids=[device] if cuda else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    generator = torch.Generator().manual_seed(SEED + distributed.get_rank())
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
    """Train as the command line says."""
    options = parse_arguments(arguments)
    device = choose_device()
    cuda, backend = device.type == "cuda", "nccl" if device.type == "cuda" else "gloo"
    is_launched = "TORCHELASTIC_RUN_ID" in os.environ
    # A process that is alone has nobody to meet anywhere.
    alone = {} if is_launched else {"store": distributed.HashStore(), "rank": 0, "world_size": 1}
    distributed.init_process_group(backend, device_id=device if cuda else None, **alone)
    log = train(options, device)
    gc.collect()
    distributed.destroy_process_group()
    log.end()


if __name__ == "__main__":
    main()
