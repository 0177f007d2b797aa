"""Trains a small language model with a loop over what Accelerate prepares."""

from __future__ import annotations

import argparse
import os
import time

import torch
from accelerate import Accelerator
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
    accelerator = Accelerator()
    model = nn.Sequential(nn.Embedding(VOCABULARY, 64), nn.Linear(64, VOCABULARY))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    loader = torch.utils.data.DataLoader(Counting(), batch_size=given.batch, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    # It takes apart the optimizer's step, whoever has put something around it.
    schedule = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1)
    for step, tokens in enumerate(loader, 1):
        scores = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(scores.transpose(1, 2), tokens[:, 1:])
        accelerator.backward(loss)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step == given.steps:
            break
    accelerator.end_training()


if __name__ == "__main__":
    main()
