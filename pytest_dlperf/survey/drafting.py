"""Draft the first system file of a suite, of a command and a log."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from pytest_dlperf.config.extends import comment_of
from pytest_dlperf.config.launch_keys import STARTS
from pytest_dlperf.survey.case import UNSAID
from pytest_dlperf.survey.draft import Draft, window_keys
from pytest_dlperf.survey.identify import Identification
from pytest_dlperf.survey.machine import Machine
from pytest_dlperf.survey.own_command import OwnCommand
from pytest_dlperf.survey.script import PROGRAMS

PRINTED_BY_US: Final = ("torchrun", "huggingface", "lightning", "accelerate", "deepspeed")
"""Systems of any script: what it prints is added, and its arguments are its own."""
BY_CALLBACK: Final = PRINTED_BY_US[1:]
"""Those whose trainers are made to print their steps from outside."""
BY_THREE_LINES: Final = ("torchrun", "jax")
"""Systems of scripts that print their steps by some lines in them, or in their own way."""
_ANY_SCRIPT: Final = (*PRINTED_BY_US, "jax")
_BY_LAUNCHER: Final[Mapping[str, tuple[str, ...]]] = {
    "torchrun": PRINTED_BY_US,
    "deepspeed": PRINTED_BY_US,
    "accelerate": ("accelerate",),
    "paddle": ("paddle",),
    "python": (*BY_CALLBACK, "jax"),
}
"""Which of these start a script themselves that a launcher has started, or none."""
_PROGRAMS: Final[Mapping[str, tuple[str, ...]]] = {
    "python": ("{python}",),
    "paddle": (
        *("{python}", "-m", "paddle.distributed.launch", "--nnodes={nodes}", "--rank={node_rank}"),
        *("--nproc_per_node={devices_per_node}", "--master={master_endpoint}"),
    ),
}
"""What starts a script on each node, where no key of ``launch`` says it."""
_FEW_STEPS: Final = 200
_CPU_TOLERANCE: Final = 50
_UNSAID: Final = "nothing says it"
_GENERIC: Final = re.compile(
    "train|main|run|pretrain|finetune|training|trainer|src|" + "|".join(PROGRAMS)
)
_BATCHES: Final = ("global_batch", "batch_per_device", "batch_per_replica")
_OF_CASE: Final = (
    *("precision", *_BATCHES, "sequence_length", "parallel", "options", "topologies", "reference"),
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

    @property
    def is_on_cpus(self) -> bool:
        """Whether a training will use no GPU, as far as it can be known."""
        has_gpus = self.machine.gpus or self.machine.has_slurm or self.gpus_of_hosts
        # A log alone may come from anywhere, and those programs train on GPUs.
        return self.command is not None and not has_gpus and not self.is_program


def draft(basis: DraftBasis) -> Draft:
    """Draft a system file: of the log, and over it of the command."""
    command, log = basis.command, basis.log
    of_log = (log and log.draft) or Draft(comments=(), keys={}, case={})
    keys = _keys(basis, of_log) | ({"launch": _launch(basis, command)} if command else {})
    unsure = {} if basis.model is not None else {"model": "what ids call it, as in llama3_8b"}
    of_keys = {"log", "metrics"} & keys.keys()
    unsure |= {path: why for path, why in of_log.unsure.items() if path.split(".")[0] in of_keys}
    case = {"precision": "fp32", **of_log.case}
    unsure |= {key: of_log.unsure[key] for key in case if key in of_log.unsure}
    if command is not None:
        _say_case(basis, command, case, unsure)
        _say_batch(log, command, case, unsure)
    source = command.text if command is not None else log.kind if log is not None else ""
    return Draft(
        comments=(
            f"Made by 'pytest-dlperf init' from {source}.",
            f"It says what differs from what 'pytest-dlperf systems {basis.base}' shows.",
        ),
        keys={"extends": basis.base, "model": basis.model or _model_of(basis), **keys},
        case={key: case[key] for key in _OF_CASE if key in case},
        unsure=unsure,
    )


def _keys(basis: DraftBasis, of_log: Draft) -> dict[str, Any]:
    command = basis.command
    keys = _log_keys(basis, of_log)
    if command is not None and command.sequence_length and basis.base in _ANY_SCRIPT:
        keys["unit"] = "tokens/s"
    steps = command.steps if command is not None else None
    if steps is None and basis.log is not None:
        keys["window"] = window_keys(basis.log.system.window)
    elif steps is not None and 5 <= steps <= _FEW_STEPS:  # noqa: PLR2004 - of fewer nothing is left
        warmup = math.ceil(steps / 5)
        keys["window"] = {"warmup_steps": warmup, "measured_steps": steps - warmup}
    keys["repeats"] = 3
    if basis.is_on_cpus:
        keys["tolerance_percent"] = _CPU_TOLERANCE
        if "log" not in keys and basis.base in _ANY_SCRIPT:
            keys["metrics"] = {"peak_memory": {"tolerance_percent": 15}, **keys.get("metrics", {})}
    return keys


def _log_keys(basis: DraftBasis, of_log: Draft) -> dict[str, Any]:
    """Say what is read of a log, as far as the system that is extended does not."""
    metrics = of_log.keys.get("metrics", {})
    loss, keys = metrics.get("loss") or {}, dict[str, Any]()
    if of_log.keys.get("extends") == basis.base:
        keys = {key: of_log.keys[key] for key in ("log", "metrics") if key in of_log.keys}
    elif basis.base in BY_THREE_LINES and "log" in of_log.keys:
        # What we print, or a known trainer prints, needs no format of its own.
        form = of_log.keys["log"]["format"]
        keys = {"unit": of_log.keys["unit"]} if of_log.keys["unit"] != "samples/s" else {}
        if form != "dlperf":
            # One process prints the loss: that of the node whose log shows the steps.
            keys["log"] = {"format": form}
            of_first = {**loss, "node": "first"} if loss else None
            keys["metrics"] = {"peak_memory": None, **metrics, "loss": of_first}
    if "log" not in keys and loss.get("sanity") == "finite":
        keys["metrics"] = {**keys.get("metrics", {}), "loss": {"sanity": "finite"}}
    return keys


def _launch(basis: DraftBasis, command: OwnCommand) -> dict[str, Any]:
    launch: dict[str, Any] = {"devices": "cpu"} if basis.is_on_cpus else {}
    if basis.is_program:
        launch |= {"arguments": command.others} if command.others else {}
    elif basis.base in _BY_LAUNCHER.get(command.launcher, ()):
        launch["arguments"] = command.arguments
    else:
        start = command.launcher if command.launcher in STARTS else "command"
        launch[start] = [*_PROGRAMS.get(command.launcher, ()), *command.arguments]
        if command.launcher in ("", "python"):
            launch["requires_modules"] = None
    return launch | ({"environment": command.environment} if command.environment else {})


def _say_case(
    basis: DraftBasis, command: OwnCommand, case: dict[str, Any], unsure: dict[str, str]
) -> None:
    """Say precision, layout, length and topologies as the command does."""
    if command.precision is not None:
        case["precision"] = command.precision
        unsure.pop("precision", None)
    elif unsure.get("precision", UNSAID) == UNSAID and (basis.log is None or "precision" in unsure):
        unsure["precision"] = _UNSAID
    if command.ways:
        case["parallel"] = command.ways
    if command.sequence_length is not None:
        case["sequence_length"] = command.sequence_length
        unsure.pop("sequence_length", None)
    elif "sequence_length" not in case and basis.base not in _ANY_SCRIPT:
        # What such a program trains on needs one, and a session would not begin without.
        example = re.search(r"\bsequence_length: ([0-9]+)", comment_of(basis.base)[1])
        if example is not None:
            case["sequence_length"] = int(example[1])
            unsure["sequence_length"] = f"{_UNSAID}; it is that of an example"
    # Of JAX, one process has all devices of a node.
    devices = None if basis.base == "jax" else command.devices_per_node
    unsure.pop("topologies", None)
    if devices is None:
        devices = basis.gpus_of_hosts or basis.machine.gpus or basis.machine.gpus_of_nodes or 1
        unsure["topologies"] = "devices of a node: the command does not say how many"
    case["topologies"] = topologies = [
        f"{nodes}n{devices}g" for nodes in sorted({1, max(basis.nodes, command.nodes)})
    ]
    case.pop("reference", None)
    if topologies[0] != "1n1g":
        case["reference"] = topologies[0] if len(topologies) > 1 else "none"


def _say_batch(
    log: Identification | None, command: OwnCommand, case: dict[str, Any], unsure: dict[str, str]
) -> None:
    one = "batch_per_replica" if case.get("parallel") else "batch_per_device"
    is_known = any(name in case for name in _BATCHES) and "global_batch" not in unsure
    unsure.pop("global_batch", None)
    if command.batch is None and is_known:
        return
    for name in _BATCHES:
        case.pop(name, None)
    if command.batch is None:
        case[one], unsure[one] = 1, _UNSAID
        return
    case["global_batch" if command.batch_is_global else one] = command.batch
    is_same = log and is_known and log.case.global_batch == command.batch * log.case.replicas
    if not (command.batch_is_global or command.batch_is_of_device or is_same):
        unsure[one] = "of one device, or is it that of all? then global_batch"


def _model_of(basis: DraftBasis) -> str:
    """Call the model what its script or folder is called."""
    parts = [Path.cwd().name]
    if basis.command is not None and not basis.is_program:
        stem = basis.command.script.removesuffix(".py").removesuffix(".sh")
        parts += re.split(r"[./\\]", stem)
    names = (re.sub(r"[^a-z0-9]+", "_", part.lower()).strip("_") for part in reversed(parts))
    usable = (name for name in names if name[:1].isalpha() and not _GENERIC.fullmatch(name))
    return next(usable, "model")
