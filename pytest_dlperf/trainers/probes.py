"""Small measurements of a host without accelerators: memory, compute, network, disk and data.

Each is a command, which the systems of its name start::

    python -m pytest_dlperf.trainers.probes memory --megabytes=256

and prints a line for each number: ``dlperf probe add 21.4 GB/s``. GB are 10^9 bytes. A result that
is wrong, such as a checkpoint read back with other values, ends the program with exit code 1.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
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


def gemm(size: int) -> None:
    """Multiply two square matrices of single precision, by the BLAS that NumPy has."""
    left, right = np.ones((size, size), np.float32), np.ones((size, size), np.float32)
    product = np.empty_like(left)
    seconds = _fastest(lambda: np.matmul(left, right, out=product))
    if not (product == size).all():
        raise SystemExit("the product is wrong")
    _print("gemm", 2 * size**3 / seconds / 1e9, "GFLOP/s")


def all_reduce(kilobytes: Sequence[int], backend: str) -> None:
    """Sum tensors of all ranks of a torchrun; bus bandwidth is what nccl-tests define it to be."""
    import torch
    from torch import distributed

    distributed.init_process_group(backend)
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


def checkpoint(directory: Path, megabytes: int) -> None:
    """Save by torch.distributed.checkpoint, and load from disk instead of the page cache.

    The files are in a new folder below ``directory``, which is removed.
    """
    import torch
    from torch.distributed import checkpoint as dcp

    state = {f"layer{number}": torch.rand(megabytes, 125_000) for number in range(2)}
    size = sum(tensor.nbytes for tensor in state.values())
    with TemporaryDirectory(prefix="checkpoint.", dir=directory) as folder:
        started = time.perf_counter()
        dcp.save(state, storage_writer=dcp.FileSystemWriter(folder))  # ends with fsync
        _print("save", size / (time.perf_counter() - started) / 1e9, "GB/s")
        for file in Path(folder).iterdir():
            with file.open("rb") as opened:
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        loaded = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
        started = time.perf_counter()
        dcp.load(loaded, storage_reader=dcp.FileSystemReader(folder))
        _print("load", size / (time.perf_counter() - started) / 1e9, "GB/s")
    if not all(torch.equal(tensor, loaded[name]) for name, tensor in state.items()):
        raise SystemExit("the checkpoint was read back with other values")


def compile_cold(directory: Path, layers: int) -> None:
    """Compile a training step with empty caches."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(directory)
    import torch
    from torch import nn

    blocks = (block for _ in range(layers) for block in (nn.Linear(64, 64), nn.GELU()))
    model = nn.Sequential(*blocks)
    batch = torch.rand(16, 64)
    started = time.perf_counter()
    compiled = torch.compile(model)
    compiled(batch).sum().backward()
    _print("cold_start", time.perf_counter() - started, "s")
    if not torch.allclose(compiled(batch), model(batch), atol=1e-4):
        raise SystemExit("the compiled model computes something else")


def loader(workers: int, samples: int) -> None:
    """Load images of 224 x 224 that each worker cuts, flips and normalises."""
    from torch.utils.data import DataLoader

    # Without a limit, a worker that cannot hand over its batch is waited for without end.
    limit_s = 60 if workers else 0
    rows = DataLoader(_Images(samples), batch_size=32, num_workers=workers, timeout=limit_s)
    iterator = iter(rows)
    seen = len(next(iterator))  # the workers have started
    started, first = time.perf_counter(), seen
    for batch in iterator:
        seen += len(batch)
    if seen != samples:
        raise SystemExit(f"{seen} of {samples} samples were loaded")
    _print("samples_per_second", (seen - first) / (time.perf_counter() - started), "samples/s")


class _Images:
    def __init__(self, count: int) -> None:
        self._count = count
        self._image = np.random.default_rng(0).integers(0, 255, (256, 256, 3), np.uint8)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, at: int) -> np.ndarray:
        top, left = at % 32, at // 32 % 32
        image = self._image[top : top + 224, left : left + 224][:, :: 1 - 2 * (at % 2)]
        return np.ascontiguousarray(((image / np.float32(255) - 0.45) / 0.22).transpose(2, 0, 1))


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
    one = kinds.add_parser("gemm")
    one.add_argument("--size", type=int, default=2048, help="rows and columns")
    one.set_defaults(run=gemm)
    one = kinds.add_parser("all_reduce")
    one.add_argument("--kilobytes", type=int, nargs="+", default=[64, 1024, 16384])
    one.add_argument("--backend", default="gloo")
    one.set_defaults(run=all_reduce)
    one = kinds.add_parser("checkpoint")
    one.add_argument("--directory", type=Path, required=True, help="on the disk to measure")
    one.add_argument("--megabytes", type=int, default=1000)
    one.set_defaults(run=checkpoint)
    one = kinds.add_parser("compile")
    one.add_argument("--directory", type=Path, required=True, help="an empty folder for caches")
    one.add_argument("--layers", type=int, default=4)
    one.set_defaults(run=compile_cold)
    one = kinds.add_parser("loader")
    one.add_argument("--workers", type=int, default=0)
    one.add_argument("--samples", type=int, default=4096)
    one.set_defaults(run=loader)
    options = vars(parser.parse_args(arguments))
    del options["kind"]
    options.pop("run")(**options)


if __name__ == "__main__":
    main()
