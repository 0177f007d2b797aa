"""Pre-trains a small Llama with Hugging Face's Trainer, on sequences that count upwards."""

from __future__ import annotations

import os
import time

import torch
from transformers import HfArgumentParser, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

LENGTH = 32
VOCABULARY = 128


class Counting(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        time.sleep(float(os.environ.get("SECONDS_PER_SAMPLE", "0")))  # as a slow disk would
        tokens = torch.arange(index, index + LENGTH) % VOCABULARY
        return {"input_ids": tokens, "labels": tokens}


def main() -> None:
    (arguments,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=LENGTH,
    )
    trainer = Trainer(model=LlamaForCausalLM(config), args=arguments, train_dataset=Counting())
    trainer.train()


if __name__ == "__main__":
    main()
