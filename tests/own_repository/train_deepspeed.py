"""Trains a small language model with DeepSpeed's ZeRO-1."""

from __future__ import annotations

import argparse
import os
import time

import deepspeed
import torch
from torch import nn

LENGTH = 32
VOCABULARY = 128


class Counting(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(float(os.environ.get("SECONDS_PER_SAMPLE", "0")))  # as a slow disk would
        return torch.arange(index, index + LENGTH + 1) % VOCABULARY


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int)
    parser.add_argument("--batch", type=int, help="sequences per device")
    given = parser.parse_args()
    # On CPUs, gloo instead of a kernel that takes a minute to compile.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    model = nn.Sequential(nn.Embedding(VOCABULARY, 64), nn.Linear(64, VOCABULARY))
    engine, *_ = deepspeed.initialize(
        model=model,
        config={
            "train_micro_batch_size_per_gpu": given.batch,
            "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "torch_adam": True}},
            "zero_optimization": {"stage": 1},
        },
    )
    data = Counting()
    loader = torch.utils.data.DataLoader(
        data,
        batch_size=given.batch,
        sampler=torch.utils.data.DistributedSampler(data),
    )
    for step, tokens in enumerate(loader, 1):
        scores = engine(tokens[:, :-1].to(engine.device))
        labels = tokens[:, 1:].to(engine.device)
        engine.backward(nn.functional.cross_entropy(scores.transpose(1, 2), labels))
        engine.step()
        if step == given.steps:
            break


if __name__ == "__main__":
    main()
