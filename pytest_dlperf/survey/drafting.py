"""Draft the first system file of a suite, of a command and a log."""

from __future__ import annotations

import math
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from pytest_dlperf.config.extends import comment_of
from pytest_dlperf.config.launch_keys import STARTS
from pytest_dlperf.model.measurement import Window
from pytest_dlperf.survey.case import UNSAID_BY_LOG
from pytest_dlperf.survey.first_system import FirstSystem, ShippedSystem, Starter, window_keys
from pytest_dlperf.survey.identify import Identification
from pytest_dlperf.survey.machine import Machine, is_installed
from pytest_dlperf.survey.own_command import OwnCommand
from pytest_dlperf.survey.probe_output import ProbeOutput
from pytest_dlperf.survey.script import PROGRAMS

PRINTED_BY_US: Final = ("torchrun", "huggingface", "lightning", "accelerate", "deepspeed")
"""Systems of any script: what it prints is added, and its arguments are its own."""
BY_CALLBACK: Final = PRINTED_BY_US[1:]
"""Those whose trainers are made to print their steps from outside."""
_BY_LAUNCHER: Final[Mapping[str, tuple[str, ...]]] = {
    "torchrun": PRINTED_BY_US,
    "deepspeed": PRINTED_BY_US,
    "accelerate": ("accelerate",),
    "paddle": ("paddle",),
    "python": (*PRINTED_BY_US[1:], "jax"),
}
"""Which of these start a script themselves that a launcher has started, or none."""
BY_THREE_LINES: Final = ("torchrun", "jax")
"""Systems of scripts that print their steps by some lines in them, or in their own way."""
_FEW_STEPS: Final = 200
_REPEATS: Final = 3
_CPU_TOLERANCE: Final = 50
_UNSAID: Final = "nothing says it"
_GENERIC: Final = (
    *PROGRAMS,
    "train",
    "main",
    "run",
    "pretrain",
    "finetune",
    "training",
    "trainer",
    "src",
)


class DraftBasis(Struct, frozen=True, kw_only=True):
    """What a draft is made of."""

    base: str
    """The system that ships, which it extends."""
    command: OwnCommand | None
    log: Identification | None
    is_program: bool = False
    """Whether the command starts the program of that system, which says most of it itself."""
    machine: Machine
    nodes: int = 1
    """Of the hosts that were named."""
    gpus_of_hosts: int = 0
    """Of each of them, where they were named with a number."""
    model: str | None = None
    probe: ProbeOutput | None = None
    """What a known program without steps has printed, in place of a log."""


def draft(basis: DraftBasis) -> FirstSystem:
    """Draft a system file."""
    unsure: dict[str, str] = {}
    command, log = basis.command, basis.log
    keys = _keys(basis)
    starter = log.starter if log is not None else None
    if starter is not None and starter.format == ShippedSystem(basis.base) and starter.metrics:
        keys["metrics"] = keys.get("metrics", {}) | starter.metrics
        unsure |= {key: why for key, why in starter.unsure.items() if key == "metrics"}
    if starter is not None and "log" in keys:
        unsure |= {key: why for key, why in starter.unsure.items() if key.startswith("log.")}
    model = basis.model or _model_of(None if basis.is_program else command)
    if basis.model is None:
        unsure["model"] = "what ids call it, as in llama3_8b"
    source = command.text if command is not None else log.kind if log is not None else ""
    launch = _launch(basis)
    return FirstSystem(
        comments=[
            f"Made by 'pytest-dlperf init' from {source}.",
            f"It says what differs from what 'pytest-dlperf systems {basis.base}' shows.",
        ],
        keys={
            "extends": basis.base,
            "model": model,
            **keys,
            **({"launch": launch} if launch else {}),
        },
        case=_case(basis, unsure),
        unsure=unsure,
    )


def trains_on_cpus(basis: DraftBasis) -> bool:
    """Tell whether a training will use no GPU, as far as it can be known."""
    machine = basis.machine
    has_gpus = machine.gpus or machine.has_slurm or basis.gpus_of_hosts
    # A log alone may come from anywhere, and those programs train on GPUs.
    return basis.command is not None and not has_gpus and not basis.is_program


def _keys(basis: DraftBasis) -> dict[str, Any]:
    log, command = basis.log, basis.command
    keys: dict[str, Any] = {}
    starter = log.starter if log is not None else None
    # What we print, or a known trainer prints, needs no format of its own.
    is_own = starter is not None and not isinstance(starter.format, ShippedSystem)
    if starter is not None and is_own and basis.base in BY_THREE_LINES:
        if starter.unit != "samples/s":
            keys["unit"] = starter.unit
        if starter.format != "dlperf":
            keys["log"] = {"format": starter.format}
            loss = starter.metrics.get("loss")
            others = {name: one for name, one in starter.metrics.items() if name != "loss"}
            keys["metrics"] = {
                "peak_memory": None,
                # One process prints it: that of the node whose log shows the steps.
                "loss": None if loss is None else {**loss, "node": "first"},
                **others,
            }
    loss = None if starter is None else starter.metrics.get("loss")
    if loss is not None and loss.get("sanity") == "finite" and "log" not in keys:
        keys["metrics"] = {"loss": {"sanity": "finite"}}
    is_of_tokens = command is not None and command.sequence_length is not None
    if is_of_tokens and basis.base in (*PRINTED_BY_US, "jax"):
        keys["unit"] = "tokens/s"
    steps = command.steps if command is not None else None
    if steps is not None and 5 <= steps <= _FEW_STEPS:  # noqa: PLR2004 - of fewer nothing is left
        warmup = math.ceil(steps / 5)
        keys["window"] = window_keys(Window(warmup_steps=warmup, measured_steps=steps - warmup))
    elif steps is None and log is not None and log.starter is not None:
        keys["window"] = window_keys(log.starter.window)
    keys["repeats"] = _REPEATS
    if trains_on_cpus(basis):
        keys["tolerance_percent"] = _CPU_TOLERANCE
        if "log" not in keys and basis.base in (*PRINTED_BY_US, "jax"):
            memory = {"peak_memory": {"tolerance_percent": 15}}
            keys["metrics"] = memory | keys.get("metrics", {})
    return keys


def _launch(basis: DraftBasis) -> dict[str, Any]:
    command = basis.command
    if command is None:
        return {}
    launch: dict[str, Any] = {}
    if trains_on_cpus(basis):
        launch["devices"] = "cpu"
    if basis.base in _BY_LAUNCHER.get(command.launcher, ()):
        launch["arguments"] = command.arguments
    elif basis.is_program and command.others:
        launch["arguments"] = command.others
    elif basis.is_program:
        pass
    else:
        start = command.launcher if command.launcher in STARTS else "command"
        launch[start] = [*_PROGRAMS.get(command.launcher, ()), *command.arguments]
        if command.launcher in ("", "python"):
            launch["requires_modules"] = None
    if command.environment:
        launch["environment"] = command.environment
    return launch


_PROGRAMS: Final[Mapping[str, tuple[str, ...]]] = {
    "python": ("{python}",),
    "paddle": (
        *("{python}", "-m", "paddle.distributed.launch", "--nnodes={nodes}", "--rank={node_rank}"),
        *("--nproc_per_node={devices_per_node}", "--master={master_endpoint}"),
    ),
}
"""What starts a script on each node, where no key of ``launch`` says it."""


def _case(basis: DraftBasis, unsure: dict[str, str]) -> dict[str, Any]:
    command = basis.command
    starter = basis.log.starter if basis.log is not None else None
    case: dict[str, Any] = {"precision": "fp32"}
    if command is not None and command.precision is not None:
        case["precision"] = command.precision
    elif starter is not None:
        # Where the log agrees with several, it is one of them.
        case["precision"] = starter.precision
        if "precision" in starter.unsure:
            doubt = starter.unsure["precision"]
            is_unsaid = command is not None and doubt == UNSAID_BY_LOG
            unsure["precision"] = _UNSAID if is_unsaid else doubt
    else:
        unsure["precision"] = _UNSAID
    ways = dict(command.ways) if command is not None else {}
    ways = ways or (dict(starter.work.layout.ways) if starter is not None else {})
    case |= _work(basis, unsure, one="batch_per_replica" if ways else "batch_per_device")
    if ways:
        case["parallel"] = ways
    case["topologies"] = _topologies(basis, unsure)
    if case["topologies"][0] != "1n1g":
        case["reference"] = case["topologies"][0] if len(case["topologies"]) > 1 else "none"
    return case


def _work(basis: DraftBasis, unsure: dict[str, str], *, one: str) -> dict[str, int]:
    """Say batch and length of a case; ``one`` is what the batch of one replica is called."""
    command = basis.command
    starter = basis.log.starter if basis.log is not None else None
    if command is not None and command.batch is not None:
        work = {"global_batch" if command.batch_is_global else one: command.batch}
        is_known = command.batch_is_global or command.batch_is_of_device
        if not is_known and _global_batch(starter) != command.batch * _replicas(starter):
            unsure[one] = "of one device, or is it that of all? then global_batch"
    elif starter is not None and (command is None or "global_batch" not in starter.unsure):
        work = {"global_batch" if starter.work.is_global else one: starter.work.batch}
        if "global_batch" in starter.unsure:
            unsure["global_batch"] = starter.unsure["global_batch"]
    else:
        work = {one: 1}
        unsure[one] = _UNSAID
    length = command.sequence_length if command is not None else None
    if length is None and starter is not None:
        length = starter.work.sequence_length
        if length == 1:
            unsure["sequence_length"] = _UNSAID
    if length is None and basis.base not in (*PRINTED_BY_US, "jax"):
        # What such a program trains on needs one, and a session would not begin without.
        example = re.search(r"\bsequence_length: ([0-9]+)", comment_of(basis.base)[1])
        if example is not None:
            length = int(example[1])
            unsure["sequence_length"] = f"{_UNSAID}; it is that of an example"
    return work if length is None else {**work, "sequence_length": length}


def _global_batch(starter: Starter | None) -> int | None:
    """Give the batch of all devices, where a log says it."""
    if starter is None or "global_batch" in starter.unsure or not starter.work.is_global:
        return None
    return starter.work.batch


def _replicas(starter: Starter | None) -> int:
    return 0 if starter is None else starter.topology.world_size // starter.work.layout.devices


def _topologies(basis: DraftBasis, unsure: dict[str, str]) -> list[str]:
    command, machine = basis.command, basis.machine
    log = basis.log.starter.topology if basis.log is not None and basis.log.starter else None
    devices = command.devices_per_node if command is not None else None
    if basis.base == "jax":
        devices = None  # one process has all of a node
    if devices is None and command is None and log is not None:
        doubts = basis.log.starter.unsure  # type: ignore[union-attr] # not None, see above
        if "topologies" in doubts:
            unsure["topologies"] = doubts["topologies"]
        return [str(log)]
    if devices is None:
        devices = basis.gpus_of_hosts or machine.gpus or machine.gpus_of_nodes or 1
        unsure["topologies"] = "devices of a node: the command does not say how many"
    nodes = max(basis.nodes, command.nodes if command is not None else 1)
    return [f"{each}n{devices}g" for each in dict.fromkeys((1, nodes))]


def _model_of(command: OwnCommand | None) -> str:
    """Call the model what its script or folder is called."""
    script = command.script if command is not None else None
    parts = [Path.cwd().name]
    if script is not None:
        stem = script.removesuffix(".py").removesuffix(".sh")
        parts += re.split(r"[./\\]", stem)
    for part in reversed(parts):
        name = re.sub(r"[^a-z0-9]+", "_", part.lower()).strip("_")
        if name and name[0].isalpha() and name not in _GENERIC:
            return name
    return "model"


def as_typed(command: OwnCommand) -> list[str]:
    """Return the program and its arguments as they are typed, with an interpreter that has torch.

    Where the environment of this Python is not on the path, its torchrun is not either.
    """
    words = shlex.split(command.text)
    while words and "=" in words[0] and not words[0].startswith(("-", "/", ".")):
        words.pop(0)
    if words[:1] == ["torchrun"] and is_installed("torch"):
        return [sys.executable, "-m", "torch.distributed.run", *words[1:]]
    if words[:1] in (["python"], ["python3"]):
        return [sys.executable, *words[1:]]
    return words
