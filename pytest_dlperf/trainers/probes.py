"""Small measurements of hosts without accelerators: memory and network.

Each is a command, which the systems of its name start::

    python -m pytest_dlperf.trainers.probes memory --megabytes=256

and prints a line for each number: ``dlperf probe add 21.4 GB/s``. GB are 10^9 bytes. A result that
is wrong ends the program with exit code 1.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

PASSES: Final = 10
"""How often a kernel is timed; the fastest counts, as in STREAM."""


def memory(megabytes: int, threads: int) -> None:
    """Measure three kernels of STREAM (McCalpin, 1995) on arrays of ``megabytes`` MB each.

    The fourth, triad, takes NumPy two passes over memory.
    """
    count = megabytes * 10**6 // 8
    a, b, c = (np.full(count, value) for value in (1.0, 2.0, 0.0))
    edges = [count * part // threads for part in range(threads + 1)]
    slices = [slice(*ends) for ends in pairwise(edges)]
    kernels: dict[str, tuple[int, Callable[[slice], object]]] = {
        "copy": (2, lambda part: np.copyto(c[part], a[part])),
        "scale": (2, lambda part: np.multiply(c[part], 3.0, out=b[part])),
        "add": (3, lambda part: np.add(a[part], b[part], out=c[part])),
    }
    with ThreadPoolExecutor(threads) as pool:  # NumPy lets go of Python's lock in each kernel
        for name, (arrays, kernel) in kernels.items():
            seconds = _fastest(lambda kernel=kernel: list(pool.map(kernel, slices)))  # type: ignore[misc]
            _print(name, arrays * count * 8 / seconds / 1e9, "GB/s")
    if not (np.array_equal(b, 3 * a) and np.array_equal(c, a + b)):
        raise SystemExit("the sum of the arrays is wrong")


def all_reduce(kilobytes: Sequence[int]) -> None:
    """Sum tensors of all ranks of a torchrun over gloo; bus bandwidth is that of nccl-tests."""
    import torch
    from torch import distributed

    distributed.init_process_group("gloo")
    ranks = distributed.get_world_size()
    if ranks == 1:
        raise SystemExit("all_reduce needs at least two ranks; choose a topology of 1n2g or 2n1g")
    found = {}
    for size in (1000 * each for each in kilobytes):
        tensor = torch.zeros(size // 4)

        def reduce(tensor: torch.Tensor = tensor) -> None:
            distributed.all_reduce(tensor)

        distributed.barrier()
        slowest = torch.tensor([_fastest(reduce)])
        distributed.all_reduce(slowest, distributed.ReduceOp.MAX)
        found[size] = size / slowest.item() * 2 * (ranks - 1) / ranks / 1e9
    total = torch.ones(1)
    distributed.all_reduce(total)
    if total.item() != ranks:
        raise SystemExit("the sum over all ranks is wrong")
    if distributed.get_rank() == 0:
        for size, bandwidth in found.items():
            _print(f"busbw {size}", bandwidth, "GB/s")
        _print("bus_bandwidth", fmean(found.values()), "GB/s")
    distributed.destroy_process_group()


def _fastest(kernel: Callable[[], object]) -> float:
    """Seconds of the fastest pass, after one that does not count."""
    kernel()
    seconds = []
    for _ in range(PASSES):
        started = time.perf_counter()
        kernel()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def _print(name: str, value: float, unit: str) -> None:
    sys.stdout.write(f"dlperf probe {name} {value:.6g} {unit}\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the measurement that the command line names."""
    parser = argparse.ArgumentParser(prog="pytest_dlperf.trainers.probes")
    kinds = parser.add_subparsers(dest="kind", required=True)
    one = kinds.add_parser("memory")
    one.add_argument("--megabytes", type=int, default=256, help="of each of three arrays")
    one.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    one.set_defaults(run=memory)
    one = kinds.add_parser("all_reduce")
    one.add_argument("--kilobytes", type=int, nargs="+", default=[64, 1024, 16384])
    one.set_defaults(run=all_reduce)
    options = vars(parser.parse_args(arguments))
    del options["kind"]
    options.pop("run")(**options)


if __name__ == "__main__":
    main()
