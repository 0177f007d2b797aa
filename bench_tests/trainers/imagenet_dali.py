"""Trains as the imagenet example of PyTorch does, on images that NVIDIA DALI reads.

The example's folder (pytorch/examples, imagenet) has to be in PYTHONPATH; it stays as it is, and so
do its arguments. Written for DALI 0.19 and PyTorch 1.6: DALI's CPU threads decode and crop, the GPU
mirrors and normalises. Validation reads as the example does.
"""

from pathlib import Path
from typing import Any, Iterator, Tuple  # noqa: UP035 - for the Python of PyTorch 1.6

import main as example
import torch
import torch.distributed
import torch.utils.data
from nvidia.dali import ops, types
from nvidia.dali.pipeline import Pipeline
from nvidia.dali.plugin.pytorch import DALIClassificationIterator

SIDE = 224
"""Height and width of an image in pixels."""
MEAN = [255 * share for share in (0.485, 0.456, 0.406)]
DEVIATION = [255 * share for share in (0.229, 0.224, 0.225)]


class TrainingImages(Pipeline):  # type: ignore[misc]
    """Reads this rank's share of a folder of JPEG images, augmented as the example does it."""

    def __init__(self, folder: str, batch: int, threads: int, rank: int, world_size: int) -> None:
        """Take a batch of images on the current device, by so many threads."""
        device = torch.cuda.current_device()
        super().__init__(batch, threads, device, seed=12 + device)
        self._files = ops.FileReader(
            file_root=folder, shard_id=rank, num_shards=world_size, random_shuffle=True
        )
        self._decode = ops.ImageDecoder(device="cpu", output_type=types.RGB)
        self._crop = ops.RandomResizedCrop(
            device="cpu",
            size=[SIDE, SIDE],
            interp_type=types.INTERP_LINEAR,
            random_aspect_ratio=[3 / 4, 4 / 3],
            random_area=[0.08, 1.0],
            num_attempts=100,
        )
        self._coin = ops.CoinFlip(probability=0.5)
        self._normalise = ops.CropMirrorNormalize(
            device="gpu",
            crop=(SIDE, SIDE),
            output_dtype=types.FLOAT,
            output_layout=types.NCHW,
            image_type=types.RGB,
            mean=MEAN,
            std=DEVIATION,
        )

    def define_graph(self) -> "Tuple[Any, Any]":  # noqa: UP006 - as said
        """Return images on the GPU, and their classes."""
        files, classes = self._files(name="Reader")
        images = self._crop(self._decode(files))
        return self._normalise(images.gpu(), mirror=self._coin()), classes


class TrainingLoader:
    """Stands in for the example's loader of training images."""

    def __init__(self, folder: str, batch: int, threads: int) -> None:
        """Share the images with the other ranks, if there are any."""
        rank, world_size = 0, 1
        if torch.distributed.is_initialized():
            rank, world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
        images = TrainingImages(folder, batch, threads, rank, world_size)
        images.build()
        share: int = images.epoch_size("Reader") // world_size
        self._batches = DALIClassificationIterator(images, size=share)
        self._length = share // batch

    def __len__(self) -> int:
        """Count the whole batches of an epoch."""
        return self._length

    def __iter__(self) -> "Iterator[Tuple[Any, Any]]":  # noqa: UP006 - as said
        """Yield the images and classes of each batch, for one epoch."""
        for (batch,) in self._batches:
            yield batch["data"], batch["label"].reshape(-1).long()
        self._batches.reset()


_ExampleLoader = torch.utils.data.DataLoader


def _loader(dataset: Any, *, batch_size: int, num_workers: int, **more: Any) -> Any:
    if Path(dataset.root).name == "train":
        return TrainingLoader(dataset.root, batch_size, num_workers)
    return _ExampleLoader(dataset, batch_size=batch_size, num_workers=num_workers, **more)


# Not below: the example starts a process for each device, and each imports this file.
torch.utils.data.DataLoader = _loader

if __name__ == "__main__":
    example.main()
