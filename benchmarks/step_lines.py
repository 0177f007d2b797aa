"""What a printed step costs its trainer, against the bare write of the same line.

    python benchmarks/step_lines.py [--steps 20000] [--repeats 5]

The lines go into a file, and times are those of the processor. Printed are steps of a plain loop,
with a loss that is a number and with one that is a tensor (needs torch), and those of Hugging
Face's Trainer (needs transformers): all that the callback does in a step of two batches. Also what
``launch.steps`` adds to the start of a Python that trains nothing. A step that takes more than
0.1 ms more than its write is a failure.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from timing import interleaved

from pytest_dlperf.launch.step_lines import TRAINER, step_files
from pytest_dlperf.trainers.steps import StepLog

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT_S = 100e-6
LINE = (
    b"dlperf step rank=0 step=10000 time=123.456789 tokens=8192 loss=6.90776 peak_memory_mb=440.7\n"
)


def bare_write() -> None:
    """Write a line and do nothing else."""
    os.write(1, LINE)


def of_a_loop() -> Callable[[], None]:
    """Print steps whose loss is a number."""
    log = StepLog(global_batch=8)
    return lambda: log.step(6.90776, tokens=8192)


def of_a_loop_with_tensors() -> Callable[[], None]:
    """Print steps whose loss is a tensor on the CPU."""
    import torch

    log = StepLog(global_batch=8)
    loss = torch.ones(1, requires_grad=True).sum()
    return lambda: log.step(loss, tokens=8192)


def of_hugging_face(folder: Path) -> Callable[[], None]:
    """Do what the callback does in a step of a Trainer with two micro batches."""
    import torch
    from transformers import Trainer, TrainingArguments

    from pytest_dlperf.trainers import HuggingFaceSteps

    loss = torch.tensor(3.45)
    arguments = TrainingArguments(
        output_dir=str(folder), use_cpu=True, report_to=[], gradient_accumulation_steps=2
    )
    trainer = Trainer(model=torch.nn.Linear(1, 1), args=arguments)
    trainer.training_step = lambda *_: loss
    steps = HuggingFaceSteps(trainer)
    steps.on_train_begin(arguments, trainer.state, trainer.control, model=trainer.model)
    batch = {"input_ids": torch.zeros(8, 512, dtype=torch.long)}

    def step() -> None:
        trainer.training_step(trainer.model, batch)
        trainer.training_step(trainer.model, batch)
        steps.on_step_end(arguments, trainer.state, trainer.control)

    return step


def seconds(call: Callable[[], None], count: int) -> float:
    """Time a call, in seconds of the processor: what else runs on the machine is not in it."""
    began = time.process_time()
    for _ in range(count):
        call()
    return (time.process_time() - began) / count


def start_ups(folder: Path, repeats: int) -> tuple[float, float]:
    """Time the start of Python with and without the files in front of its path."""
    for name, text in step_files().items():
        (folder / name).write_text(text, encoding="ascii")
    with_files = ["env", f"PYTHONPATH={folder}", f"{TRAINER}=huggingface", sys.executable]
    commands = {"with": with_files, "without": ["env", sys.executable]}
    commands = {name: [*command, "-c", "pass"] for name, command in commands.items()}
    taken = interleaved(commands, folder, repeats)
    with_s, without_s = (median(one.cpu_s for one in taken[name]) for name in commands)
    return with_s, without_s


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20000)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    results = os.dup(1)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        calls = {"bare write": bare_write, "a loop, a number": of_a_loop()}
        if find_spec("torch"):
            calls["a loop, a tensor"] = of_a_loop_with_tensors()
        if find_spec("transformers"):
            calls["Hugging Face's Trainer"] = of_hugging_face(folder)
        with (folder / "log").open("wb") as log:
            os.dup2(log.fileno(), 1)
            for call in calls.values():
                call()
                sys.__dict__.pop("dlperf_steps", None)  # of which there is one in a process else
            taken: dict[str, list[float]] = {name: [] for name in calls}
            for _ in range(given.repeats):
                for name, call in calls.items():
                    taken[name].append(seconds(call, given.steps))
            os.dup2(results, 1)
        floor = median(taken["bare write"])
        print("| a step of | us | over the bare write |\n|---|---|---|")
        for name, times in taken.items():
            print(f"| {name} | {median(times) * 1e6:.1f} | {median(times) / floor:.1f} |")
        with_s, without_s = start_ups(folder, given.repeats)
        print(
            f"start of Python: {with_s * 1e3:.1f} ms with the files, {without_s * 1e3:.1f} ms "
            f"without, ratio {with_s / without_s:.2f}"
        )
    if max(map(median, taken.values())) - floor > LIMIT_S:
        sys.exit(f"a step takes more than {LIMIT_S * 1e3:g} ms")


if __name__ == "__main__":
    main()
