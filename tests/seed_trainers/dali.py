"""In the place of torch and NVIDIA DALI, as far as the loaders of images need them."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

IMAGES = 1_281_167
place = SimpleNamespace(rank=0, world_size=1, device=0)
"""Which rank this process is."""


class DataLoader:
    """Loads a folder of images with PyTorch."""

    def __init__(self, dataset: Any, *, batch_size: int, num_workers: int, **_: object) -> None:
        """Share the images with the other ranks."""
        self.root, self.threads = dataset.root, num_workers
        self._length: int = -(-IMAGES // (batch_size * place.world_size))

    def __len__(self) -> int:
        """Count the batches of an epoch."""
        return self._length


class Pipeline:
    """Runs a graph of DALI's operators."""

    def __init__(self, batch_size: int, num_threads: int, device_id: int, seed: int) -> None:
        """Do nothing yet."""
        assert device_id == place.device
        assert seed == 12 + device_id
        self.batch_size, self.threads = batch_size, num_threads

    def build(self) -> None:
        """Make the graph once."""
        _images, classes = self.define_graph()
        assert classes == "classes"
        shares = ops.FileReader.call_args.kwargs
        assert (shares["shard_id"], shares["num_shards"]) == (place.rank, place.world_size)

    def define_graph(self) -> Any:
        """Return the outputs."""
        raise NotImplementedError

    def epoch_size(self, reader: str) -> int:
        """Count the images of all shards."""
        assert reader == ops.FileReader.return_value.call_args.kwargs["name"]
        return IMAGES


class DALIClassificationIterator:
    """Iterates over the batches of a pipeline."""

    def __init__(self, pipeline: Pipeline, size: int) -> None:
        """Take one rank's share."""
        assert pipeline.threads
        assert size == IMAGES // place.world_size

    def __iter__(self) -> Any:
        """Yield two batches."""
        label = MagicMock()
        label.reshape.return_value.long.return_value = "label"
        yield from [[{"data": "image", "label": label}]] * 2

    def reset(self) -> None:
        """Begin anew."""


ops = MagicMock()
ops.FileReader.return_value.return_value = ("files", "classes")


def _module(name: str, **members: object) -> ModuleType:
    sys.modules[name] = module = ModuleType(name)
    module.__dict__.update(members)
    parent, _, own = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], own, module)
    return module


_module("nvidia")
_module("nvidia.dali", ops=ops, types=MagicMock())
_module("nvidia.dali.pipeline", Pipeline=Pipeline)
_module("nvidia.dali.plugin")
_module("nvidia.dali.plugin.pytorch", DALIClassificationIterator=DALIClassificationIterator)
torch: Any = _module("torch", cuda=SimpleNamespace(current_device=lambda: place.device))
_module(
    "torch.distributed",
    is_initialized=lambda: True,
    get_rank=lambda: place.rank,
    get_world_size=lambda: place.world_size,
)
_module("torch.utils")
_module("torch.utils.data", DataLoader=DataLoader)
