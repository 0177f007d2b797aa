"""Runs torchtitan on CPUs, which it asks for what only other devices have."""

from __future__ import annotations

import resource
import runpy
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace

import torch
from torch import distributed


def memory() -> dict[str, int]:
    """The largest resident size of this process so far."""
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"active_bytes.all.peak": size, "reserved_bytes.all.peak": size}


def nothing(*_: object) -> None:
    pass


DEVICE: dict[str, Callable[..., object]] = {
    "current_device": lambda: 0,
    "empty_cache": nothing,
    "get_device_name": lambda *_: "CPU",
    "get_device_properties": lambda *_: SimpleNamespace(total_memory=16 << 30),
    "memory_stats": lambda *_: memory(),
    "reset_peak_memory_stats": nothing,
}
for name, function in DEVICE.items():
    setattr(torch.cpu, name, function)
torch._utils._get_available_device_type = lambda: "cpu"  # noqa: SLF001 - torchtitan asks it
# It is of a newer PyTorch.
distributed.set_timeout = nothing
# They need Triton, and are of a way of expert parallelism that is not used here.
kernels = ModuleType("torchtitan.distributed.minimal_async_ep.kernels")
kernels.__dict__["__getattr__"] = nothing
sys.modules[kernels.__name__] = kernels

if __name__ == "__main__":
    runpy.run_module("torchtitan.train", run_name="__main__")
