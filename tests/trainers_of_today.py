"""A stand-in for the interpreter that starts a trainer of today on one node.

It takes the whole command line that the plan gives a node, reads what the trainer would take of it,
and prints what that node's processes print: the layout and the batch that it was told, and steps of
known times. So a flag that means something else than its case makes a run invalid, or changes its
throughput.
"""
# ruff: noqa: T201 - trainers print

from __future__ import annotations

import json
import os
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

TIMES: Final = [2.0] * 21 + [0.4, 0.6] * 30
"""Seconds of the steps: half a second each from the 22nd on, in the mean."""
ENDS: Final = list(accumulate(TIMES))
MEMORY_GIB: Final = 40.0
ARRIVAL_S: Final = 0.02
"""What a step really takes of a trainer that prints no time."""


@dataclass(frozen=True, slots=True)
class Node:
    """What torchrun, or the trainer's own launcher, was told."""

    nodes: int
    rank: int
    devices: int

    @property
    def world(self) -> int:
        return self.nodes * self.devices

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    @property
    def is_last(self) -> bool:
        return self.rank == self.nodes - 1


def flags(arguments: list[str], *needed: str, switches: tuple[str, ...] = ()) -> Namespace:
    """Read the flags that a trainer needs, and leave those of its model alone."""
    parser = ArgumentParser(allow_abbrev=False)
    for name in needed:
        parser.add_argument(name, required=True)
    for name in switches:
        parser.add_argument(name, action="store_true")
    return parser.parse_known_args(arguments)[0]


def keys(arguments: list[str]) -> dict[str, str]:
    """Read ``key=value``, with hyphens in front or not; the last of two wins."""
    return dict(each.lstrip("-").split("=", 1) for each in arguments if "=" in each)


def loss(step: int) -> float:
    return 11 - step / 50


def of_first(lines: Iterator[str], node: Node) -> Iterator[str]:
    """What the first rank alone prints."""
    return lines if node.is_first else iter(())


# ------------------------------------------------------------------------------ Megatron, NeMo


def megatron_step(step: int, steps: int, batch: int) -> str:
    return (
        f" [2026-05-18 16:04:46.338112] iteration {step:8d}/{steps:8d} | "
        f"consumed samples: {step * batch:12d} | elapsed time per iteration (ms): "
        f"{TIMES[step - 1] * 1000:.1f} | throughput per GPU (TFLOP/s/GPU): 239.8 | "
        f"learning rate: 1.500000E-04 | global batch size: {batch:5d} | "
        f"lm loss: {loss(step):.6E} | loss scale: 1.0 | grad norm: 1.234 | "
        "number of skipped iterations:   0 | number of nan iterations:   0 |"
    )


def megatron(node: Node, arguments: list[str]) -> Iterator[str]:
    given = flags(
        arguments,
        *("--tensor-model-parallel-size", "--pipeline-model-parallel-size"),
        *("--context-parallel-size", "--expert-model-parallel-size", "--global-batch-size"),
        *("--micro-batch-size", "--seq-length", "--train-iters", "--log-interval"),
        switches=("--bf16", "--fp16", "--log-throughput"),
    )
    tp, pp = int(given.tensor_model_parallel_size), int(given.pipeline_model_parallel_size)
    cp, batch = int(given.context_parallel_size), int(given.global_batch_size)
    replicas = node.world // (tp * pp * cp)
    if node.is_first:
        yield (
            f"using world size: {node.world}, data-parallel size: {replicas}, "
            f"context-parallel size: {cp}, hierarchical context-parallel sizes: None, "
            f"tensor-model-parallel size: {tp}, pipeline-model-parallel size: {pp}"
        )
        kind = "bfloat16" if given.bf16 else "float16" if given.fp16 else "float32"
        for name, value in (
            ("expert_model_parallel_size", given.expert_model_parallel_size),
            ("params_dtype", f"torch.{kind}"),
            ("seq_length", given.seq_length),
        ):
            yield f"  {name} {'.' * (48 - len(name))} {value}"
    for step in range(1, int(given.train_iters) + 1):
        if node.is_last:
            yield megatron_step(step, int(given.train_iters), batch)
        if step <= 2:
            first = node.rank * node.devices
            for rank in range(first, first + node.devices):
                if rank // (tp * cp) % replicas == 0:
                    mib = MEMORY_GIB * 1024 * step / 2
                    yield (
                        f"[Rank {rank}] (after {step} iterations) memory (MB) | allocated: 7000.00 "
                        f"| max allocated: {mib:.2f} | reserved: 61480.00 | max reserved: 61480.00"
                    )


def megatron_bridge(node: Node, arguments: list[str]) -> Iterator[str]:
    given = flags(
        arguments,
        *("--tensor_model_parallel_size", "--pipeline_model_parallel_size", "--mode", "--recipe"),
        *("--global_batch_size", "--micro_batch_size", "--seq_length", "--max_steps"),
    )
    if keys(arguments)["logger.log_interval"] != "1":
        raise SystemExit("its recipes print every tenth step unless they are told otherwise")
    if node.is_first:
        tp, pp = given.tensor_model_parallel_size, given.pipeline_model_parallel_size
        yield f"> initialized tensor model parallel with size {tp}"
        yield f"> initialized pipeline model parallel with size {pp}"
    steps, batch = int(given.max_steps), int(given.global_batch_size)
    for step in range(1, steps + 1):
        if node.is_first:
            yield f"Step Time : {TIMES[step - 1]:.2f}s GPU utilization: 58.2MODEL_TFLOP/s/GPU"
        if node.is_last:
            yield megatron_step(step, steps, batch).replace(".338112", "")
        if node.is_first and step <= 2:
            yield (
                f"[Rank 0] (after {step} iterations) memory (GB) | mem-allocated-gigabytes: 7.0 | "
                f"mem-max-allocated-gigabytes: {MEMORY_GIB} | mem-max-reserved-gigabytes: 61.48"
            )


def nemo(node: Node, arguments: list[str]) -> Iterator[str]:
    said = keys(arguments)
    if (said["trainer.num_nodes"], said["trainer.devices"]) != (str(node.nodes), str(node.devices)):
        raise SystemExit("Lightning was told another world than torchrun")
    batch = int(said["data.global_batch_size"])
    yield f"Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/{node.world}"
    yield f"All distributed processes registered. Starting with {node.world} processes"
    for step in range(int(said["trainer.max_steps"])):
        yield (
            f"Training epoch 0, iteration {step}/{int(said['trainer.max_steps']) - 1} | "
            f"lr: 2.999e-07 | global_batch_size: {batch} | global_step: {step} | "
            f"reduced_train_loss: {loss(step + 1):.4} | "
            f"train_step_timing in s: {TIMES[step]:.4} | consumed_samples: {(step + 1) * batch}"
        )


def nemo_automodel(node: Node, arguments: list[str]) -> Iterator[str]:
    said = keys(arguments)
    batch = int(said["step_scheduler.global_batch_size"])
    begin = "2026-08-10 15:55:20 | INFO | root |"
    yield f"{begin} World size: {node.world}"
    yield f"step_scheduler:\n  global_batch_size: {batch}\ndistributed:"
    yield f"  tp_size: {said['distributed.tp_size']}\n  cp_size: {said['distributed.cp_size']}"
    for step in range(int(said["step_scheduler.max_steps"])):
        tps = batch * int(said["dataset.seq_len"]) / TIMES[step]
        yield (
            f"{begin} step {step} | epoch 0 | loss {loss(step):.4f} | grad_norm 1.5436 | "
            f"lr 1.00e-05 | mem {MEMORY_GIB:.2f} GiB | tps {tps:.2f}({tps / node.world:.2f}/gpu) | "
            "num_label_tokens 21541"
        )


# ----------------------------------------------------------------------------------- vision


def timm(node: Node, arguments: list[str]) -> Iterator[str]:
    given = flags(
        arguments, "--model", "--data-dir", "--batch-size", "--log-interval", switches=("--amp",)
    )
    batch = int(given.batch_size) * node.world
    first = node.rank * node.devices
    for rank in range(first, first + node.devices):
        yield (
            "Training in distributed mode with multiple processes, 1 device per process."
            f"Process {rank}, total {node.world}, device cuda:{rank - first}."
        )
    if not node.is_first:
        return
    if given.amp:
        yield "Using native Torch AMP. Training in mixed precision."
    else:
        yield "AMP not enabled. Training in torch.float32."
    for step, took in enumerate(TIMES):
        mean = ENDS[step] / (step + 1)
        yield (
            f"Train: 0 [{step:>4d}/1251 ({step / 1251 * 100:>3.0f}%)]  "
            f"Loss: {loss(step):#.3g} ({loss(0):#.3g})  Time: {took:.3f}s, {batch / took:>7.2f}/s  "
            f"({mean:.3f}s, {batch / mean:>7.2f}/s)  LR: 1.000e-05  Data: 0.001 (0.010)"
        )


def pytorch_imagenet(arguments: list[str]) -> Iterator[str]:
    given = flags(
        arguments,
        *("--arch", "--batch-size", "--print-freq", "--dist-url", "--world-size", "--rank"),
        switches=("--multiprocessing-distributed",),
    )
    devices = len(os.environ["CUDA_VISIBLE_DEVICES"].split(","))
    if int(given.batch_size) % devices or not given.multiprocessing_distributed:
        raise SystemExit("the batch of a node is shared by its devices")
    yield "Using device: cuda"
    for step, took in enumerate(TIMES, 1):
        for _ in range(devices):
            yield (
                f"Epoch: [0][{step:4d}/1251]\tTime {took:6.3f} ({ENDS[step - 1] / step:6.3f})\t"
                f"Data  0.002 ( 0.010)\tLoss {loss(step):.4e} (1.1e+01)\tAcc@1   0.00 (  0.12)"
            )


def torchvision(node: Node, arguments: list[str]) -> Iterator[str]:
    given = flags(
        arguments, "--model", "--data-path", "--batch-size", "--print-freq", switches=("--amp",)
    )
    yield (
        f"Namespace(amp={given.amp}, batch_size={given.batch_size}, data_path='d', distributed=True"
        f", model='{given.model}', world_size={node.world})"
    )
    for step in range(0, len(TIMES), int(given.print_freq)):
        last = TIMES[max(step - 19, 0) : step + 1]
        yield (
            f"Epoch: [0]  [{step:4d}/1251]  eta: 0:12:34  lr: 0.1  "
            f"img/s: {int(given.batch_size) / TIMES[step]}  loss: {loss(step):.4f} (6.9458)  "
            f"acc1: 0.0000 (0.2103)  acc5: 0.0000 (0.9916)  time: {sum(last) / len(last):.4f}  "
            f"data: 0.0336  max mem: {MEMORY_GIB * 1024:.0f}"
        )


# ------------------------------------------------------------------------------ the others


def paddleformers(arguments: list[str]) -> Iterator[str]:
    environment = os.environ
    devices = len(environment["CUDA_VISIBLE_DEVICES"].split(","))
    node = Node(int(environment["NNODES"]), int(environment["RANK"]), devices)
    _, config, *rest = arguments
    if not config.endswith(".yaml"):
        raise SystemExit(f"{config} is no configuration")
    said = keys(rest)
    if said["save_strategy"] != "'no'":
        raise SystemExit("its reader takes a bare no for false")
    batch = int(said["global_batch_size"])
    ways = ("tensor_model", "pipeline_model", "context", "expert_model")
    begin = "[2026-03-03 18:06:33,717]"
    yield f"{begin} [   DEBUG] - {'max_seq_len':30}: {said['max_seq_len']}"
    for way in ways:
        yield f"{begin} [   DEBUG] - {f'{way}_parallel_size':30}: {said[f'{way}_parallel_size']}"
    yield f"{begin} [   DEBUG] - {'world_size':30}: {node.world}"
    yield (
        f"{begin} [    INFO] -   Total train batch size (w. parallel, distributed & accumulation) "
        f"= {batch}"
    )
    for step in range(1, int(said["max_steps"]) + 1):
        took = TIMES[step - 1]
        yield (
            f"{begin} [    INFO] - loss: {loss(step):.8f}, learning_rate: 8e-08, "
            f"global_step: {step}, current_memory_allocated: 30.5, current_memory_reserved: 61.0, "
            f"max_memory_allocated: {MEMORY_GIB}, max_memory_reserved: 61.0, "
            f"interval_runtime: {took:.4f}, interval_samples_per_second: {batch / took:.4f}, "
            f"interval_steps_per_second: {1 / took:.4f}, progress_or_epoch: 0.01"
        )


def paddle(arguments: list[str]) -> Iterator[str]:
    """The launcher shows what the first rank of its node prints, by a callback of ours."""
    parser = ArgumentParser(allow_abbrev=False)
    for name in ("--nproc_per_node", "--nnodes", "--rank"):
        parser.add_argument(name, type=int)
    for name in ("--log_dir", "--host", "--master"):
        parser.add_argument(name)
    begin = arguments.index("train.py")
    given = parser.parse_args(arguments[:begin])
    node = Node(given.nnodes or 1, given.rank or 0, given.nproc_per_node)
    if node.nodes > 1 and not (given.master and given.host):
        raise SystemExit("the nodes do not know where to meet")
    own = flags(arguments[begin:], "--batch", "--steps")
    rank = node.rank * node.devices
    yield (
        f"dlperf run rank={rank} world_size={node.world} nodes={node.nodes} "
        f"devices_per_node={node.devices} batch_per_device={own.batch} precision=bf16"
    )
    for step in range(1, int(own.steps) + 1):
        yield (
            f"dlperf step rank={rank} step={step} time={ENDS[step - 1]:.6f} loss={loss(step):.6g} "
            "peak_memory_mb=512.3"
        )


def maxtext(arguments: list[str]) -> Iterator[str]:
    """Every process prints; JAX finds the devices of its own node."""
    said, environment = keys(arguments), os.environ
    if not environment["JAX_COORDINATOR_IP"] or not environment["JAX_COORDINATOR_PORT"].isdigit():
        raise SystemExit("the nodes do not know where to meet")
    devices = len(environment["CUDA_VISIBLE_DEVICES"].split(","))
    node = Node(int(environment["NNODES"]), int(environment["NODE_RANK"]), devices)
    batch, length = float(said["per_device_batch_size"]), int(said["max_target_length"])
    for name in ("dtype", "max_target_length"):
        yield f"Config param {name}: {said[name]}"
    yield f"Config param global_batch_size_to_train_on: {batch * node.world:.0f}"
    yield f"Num_devices: {node.world}, shape (1, 1, {node.world}, 1)"
    yield f"Total estimated memory size: {MEMORY_GIB:.1f} GB, estimated output size: 4.4 GB"
    for step, took in enumerate(TIMES[: int(said["steps"])]):
        yield (
            f"completed step: {step}, seconds: {took:.3f}, TFLOP/s/device: 135.158, "
            f"Tokens/s/device: {batch * length / took:.3f}, total_weights: 196608, "
            f"loss: {loss(step):.3f}, lm_loss: {loss(step):.3f}, perplexity: 834.988"
        )


def mlperf(node: Node, arguments: list[str]) -> Iterator[str]:
    """As some benchmarks do, the first rank prints."""
    given = flags(arguments, "--global_batch_size", "--seq_length")
    batch = int(given.global_batch_size)

    def event(key: str, value: object, time_ms: int, **metadata: int) -> str:
        said = {"file": "train.py", "lineno": 4, **metadata}
        kind = {"namespace": "", "time_ms": time_ms, "event_type": "POINT_IN_TIME", "key": key}
        return ":::MLLOG " + json.dumps({**kind, "value": value, "metadata": said})

    start = 1721026805975
    if node.is_first:
        yield event("global_batch_size", batch, start)
        yield event("max_sequence_length", int(given.seq_length), start)
        for step in range(1, len(TIMES) + 1):
            stats = {"train_step_time": TIMES[step - 1], "reduced_train_loss": loss(step)}
            ended = start + round(ENDS[step - 1] * 1000)
            yield event("tracked_stats", stats, ended, samples_count=step * batch)


def litgpt(node: Node, arguments: list[str]) -> Iterator[str]:
    given = flags(
        arguments,
        *("--num_nodes", "--devices", "--precision", "--train.global_batch_size", "--out_dir"),
        *("--train.micro_batch_size", "--train.max_seq_length", "--data"),
    )
    said = vars(given)
    if (given.num_nodes, given.devices) != (str(node.nodes), str(node.devices)):
        raise SystemExit("Fabric was told another world than torchrun")
    yield f"{{'data': {given.data!r},\n 'devices': {given.devices},\n 'num_nodes': {node.nodes},"
    yield f" 'precision': '{given.precision}',\n 'train': {{"
    for name in ("global_batch_size", "max_seq_length", "micro_batch_size"):
        yield f"           '{name}': {said[f'train.{name}']},"
    for step in range(1, len(TIMES) + 1):
        time.sleep(ARRIVAL_S)
        yield (
            f"Epoch 1 | iter {step * 4} step {step} | loss train: {loss(step):.3f}, val: n/a | "
            "iter time: 103.70 ms (step) remaining time: 0:00:03"
        )


def nanogpt(node: Node, arguments: list[str]) -> Iterator[str]:
    said = keys(arguments)
    share, rest = divmod(int(said["gradient_accumulation_steps"]), node.world)
    if rest:
        raise SystemExit("the accumulation does not divide by the devices")
    tokens = share * node.world * int(said["batch_size"]) * int(said["block_size"])
    for _ in range(node.devices):
        yield from (f"Overriding: {name} = {value}" for name, value in said.items())
        yield f"tokens per iteration will be: {tokens:,}"
    if not node.is_first:
        return
    for step in range(int(said["max_iters"])):
        yield (f"iter {step}: loss {loss(step):.4f}, time {TIMES[step] * 1000:.2f}ms, mfu -100.00%")


FIRST_RANK: Final[dict[str, Callable[[Node, list[str]], Iterator[str]]]] = {
    "nemo": nemo,
    "nemo_automodel": nemo_automodel,
    "torchvision": torchvision,
    "litgpt": litgpt,
}
PROGRAMS: Final[dict[str, Callable[[Node, list[str]], Iterator[str]]]] = {
    "megatron": megatron,
    "megatron_bridge": megatron_bridge,
    "timm": timm,
    "mlperf": mlperf,
    "nanogpt": nanogpt,
}


def named(program: list[str]) -> str:
    """Tell a trainer by its program."""
    text = " ".join(program)
    for name, sign in (
        ("megatron", "pretrain_gpt.py "),
        ("megatron_bridge", "scripts/training/run_recipe.py "),
        ("nemo", "nemo.py "),
        ("nemo_automodel", "-m nemo_automodel.cli.app "),
        ("mlperf", "mlperf.py "),
        ("litgpt", "-m litgpt pretrain "),
        ("timm", "--data-dir="),
        ("torchvision", "--data-path="),
        ("nanogpt", "--block_size="),
    ):
        if sign in text:
            return name
    raise SystemExit(f"no trainer is started by {text}")


def printed(arguments: list[str]) -> Iterator[str]:
    """What the trainer prints on this node that such a command starts."""
    if arguments[0].endswith("/main.py"):
        return pytorch_imagenet(arguments)
    if arguments[:2] == ["-m", "maxtext.trainers.pre_train.train"]:
        return maxtext(arguments[2:])
    if arguments[:2] == ["-m", "paddleformers.cli.cli"]:
        return paddleformers(arguments[2:])
    if arguments[:2] == ["-m", "paddle.distributed.launch"]:
        return paddle(arguments[2:])
    parser = ArgumentParser(allow_abbrev=False)
    parser.add_argument("-m", choices=["torch.distributed.run"], required=True)
    for name in ("--nnodes", "--node-rank", "--nproc-per-node", "--master-port"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--master-addr", required=True)
    begin = next(at for at, each in enumerate(arguments) if each.startswith("--master-port")) + 1
    given = parser.parse_args(arguments[:begin])
    node = Node(given.nnodes, given.node_rank, given.nproc_per_node)
    rest = arguments[begin:]
    name = named(rest)
    if name in FIRST_RANK:
        return of_first(FIRST_RANK[name](node, rest), node)
    return PROGRAMS[name](node, rest)


if __name__ == "__main__":
    for line in printed(sys.argv[1:]):
        print(line, flush=True)
