"""A small Llama 3 for torchtitan: ``--module=titan_tiny --config=llama``.

It has a tokenizer and data of its own, so that nothing is downloaded, and attention that CPUs have.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torchtitan.components.dataloader import BaseDataLoader
from torchtitan.components.loss import CrossEntropyLoss
from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw
from torchtitan.components.tokenizer import BaseTokenizer
from torchtitan.models.common.attention import ScaledDotProductAttention
from torchtitan.models.common.config_utils import decoder_vocab_size
from torchtitan.models.llama3 import model_registry
from torchtitan.trainer import Trainer

VOCABULARY = 256


class Bytes(BaseTokenizer):
    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        pass

    def __init__(self, config: Config, **_others: Any) -> None:
        super().__init__()
        del config

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: list[int]) -> str:
        return bytes(tokens).decode()

    def get_vocab_size(self) -> int:
        return VOCABULARY


class Counting(BaseDataLoader):
    """Sequences that count upwards."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        pass

    def __init__(
        self, config: Config, *, seq_len: int, local_batch_size: int, **_others: Any
    ) -> None:
        del config
        self.samples, self.length = local_batch_size, seq_len

    def __iter__(self) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        positions = torch.arange(self.length).repeat(self.samples, 1)
        for step in range(1 << 30):
            begins = torch.arange(step, step + self.samples)[:, None]
            tokens = (begins + torch.arange(self.length + 1)) % VOCABULARY
            inputs, labels = tokens[:, :-1].clone(), tokens[:, 1:].clone()
            yield {"input": inputs, "positions": positions}, labels

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        pass


def llama() -> Trainer.Config:
    spec = model_registry("debugmodel")
    spec.model.layers = spec.model.layers[:2]
    for layer in spec.model.layers:
        layer.attention.inner_attention = ScaledDotProductAttention.Config()
    return Trainer.Config(
        model_spec=spec,
        loss=CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(spec)),
        optimizer=default_adamw(lr=1e-3),
        lr_scheduler=LRSchedulersContainer.Config(warmup_steps=2),
        tokenizer=Bytes.Config(),
        dataloader=Counting.Config(),
        activation_checkpoint=None,
    )
