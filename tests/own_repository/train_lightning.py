"""Trains a small language model with Lightning."""

from __future__ import annotations

import argparse
import os
import time

import pytorch_lightning as lightning
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


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Embedding(VOCABULARY, 64), nn.Linear(64, VOCABULARY))

    def training_step(self, tokens: torch.Tensor) -> torch.Tensor:
        scores = self.layers(tokens[:, :-1])
        return nn.functional.cross_entropy(scores.transpose(1, 2), tokens[:, 1:])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.01)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int)
    parser.add_argument("--batch", type=int, help="sequences per device")
    parser.add_argument("--devices", type=int)
    parser.add_argument("--nodes", type=int)
    given = parser.parse_args()
    trainer = lightning.Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=given.devices,
        num_nodes=given.nodes,
        max_steps=given.steps,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    loader = torch.utils.data.DataLoader(Counting(), batch_size=given.batch, shuffle=True)
    trainer.fit(Model(), loader)


if __name__ == "__main__":
    main()
