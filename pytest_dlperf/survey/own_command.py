"""A training command as its user types it, and what of it differs between cases, runs and nodes."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Container, Iterator, Sequence
from math import prod
from typing import Final

from msgspec import Struct

from pytest_dlperf.formats.meanings import vocabulary
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.survey.machine import is_installed

_SHELL: Final = re.compile(r"[|&;<>`]|\$\(")
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_LAUNCHERS: Final = {
    **dict.fromkeys(("torchrun", "torch.distributed.run", "torch.distributed.launch"), "torchrun"),
    **dict.fromkeys(("accelerate", "accelerate.commands.launch"), "accelerate"),
    **dict.fromkeys(("deepspeed", "deepspeed.launcher.runner"), "deepspeed"),
    "paddle.distributed.launch": "paddle",
}
"""What starts a script, by its program or module."""
_NODES: Final = ("nnodes", "num_machines", "num_nodes")
_PER_NODE: Final = ("nproc_per_node", "num_gpus")
_PLACED: Final = frozenset(
    re.findall(
        r"\w+",
        "node_rank master_addr master_port local_addr rdzv_backend rdzv_endpoint rdzv_id rdzv_conf "
        "num_processes machine_rank main_process_ip main_process_port dynamo_backend hostfile "
        "include exclude ssh_port rank master host ips devices gpus log_dir",
    )
) | {*_NODES, *_PER_NODE}
"""Options of launchers that a plan says itself, since they are of nodes."""
_SWITCHES: Final = {
    *("standalone", "use_env", "multi_gpu", "same_network", "no_ssh", "force_multi")
}
"""Those without a value."""
_FLAGS: Final = _SWITCHES | {
    *("no_python", "cpu", "use_fsdp", "use_deepspeed", "quiet", "debug", "no_local_rank")
}
"""All options of launchers without a value: what stands behind another one may be the script."""
_SRUN_FLAGS: Final = {
    *("contiguous", "disable_status", "exact", "exclusive", "kill_on_bad_exit", "label", "no_kill"),
    *("overcommit", "overlap", "oversubscribe", "pty", "quiet", "spread_job", "unbuffered"),
    *("use_min_nodes", "verbose", *"EKklOQsuvXZ"),
}
_PYTHON_FLAGS: Final = {*"bBdEhiIOPqsSuvVx"}
_WAYS: Final = ("tp", "pp", "cp", "ep")
_HERE: Final = ("devices_per_node", "nodes")
"""What a script may be told of nodes, whose launcher says it as well or not at all."""
_PRECISIONS: Final = {
    **dict.fromkeys(("bf16", "bfloat16", "bf16-mixed", "bf16-true", "torch.bfloat16"), "bf16"),
    **dict.fromkeys(("fp16", "float16", "half", "16", "16-mixed", "16-true"), "fp16"),
    **dict.fromkeys(("fp32", "float32", "32", "32-true", "no"), "fp32"),
    "amp": "amp",
    "fp8": "fp8",
}


class OwnCommand(Struct, kw_only=True):
    """What a command says; ``arguments`` are templates of ``launch.arguments``."""

    text: str
    launcher: str = ""
    """``torchrun``, ``accelerate``, ``deepspeed``, ``paddle``, ``python`` or, for others, empty."""
    environment: dict[str, str] = {}
    nodes: int = 1
    devices_per_node: int | None = None
    """``None`` where the command says it takes what is there."""
    script: str = ""
    """The file or module that trains."""
    arguments: list[str] = []
    others: list[str] = []
    """Options of the script that no case says: what a system that ships does not set itself."""
    positional: list[str] = []
    """Its arguments without a name."""
    batch: int | None = None
    batch_is_global: bool = False
    batch_is_of_device: bool = False
    """Whether its argument's name says so."""
    sequence_length: int | None = None
    ways: dict[str, int] = {}
    """The parallel layout, without ways of one."""
    steps: int | None = None
    precision: str | None = None
    is_guessed: bool = False
    """Whether it was made up for a script."""
    notes: list[str] = []


class _Option(Struct, frozen=True):
    """An argument: its plain name, the text in front of its value, and the value."""

    name: str
    before: str
    value: str | None

    @property
    def count(self) -> int | None:
        """Its value, if that is a count."""
        return _count(self.value)

    @property
    def words(self) -> list[str]:
        """It as typed, in a template."""
        return self.with_value(None if self.value is None else _literal(self.value))

    def with_value(self, value: str | None) -> list[str]:
        before = _literal(self.before)
        if value is None:
            return [before]
        return [before + value] if before.endswith("=") else [before, value]


def read_command(text: str) -> OwnCommand:
    """Read what a user types to train.

    Raises:
        UsageError: It needs a shell, or names no program.
    """
    given = text.replace("\\\n", " ").strip()
    if _SHELL.search(given):
        raise UsageError(
            f"--command: {given!r} needs a shell, for pipes and the like; put it into a script, "
            "and name that: --command 'bash train.sh'"
        )
    try:
        words = shlex.split(given)
    except ValueError as error:
        raise UsageError(f"--command: {given!r}: {error}") from error
    command = OwnCommand(text=given)
    while words and (match := _ASSIGNMENT.fullmatch(words[0])):
        command.environment[match[1]] = _literal(match[2])
        words.pop(0)
    if words and _name(words[0]) == "srun":
        words = _without_srun(words[1:], command)
    if not words:
        raise UsageError(f"--command: {given!r} names no program")
    words = _without_launcher(words, command)
    if not words:
        raise UsageError(f"--command: {given!r} names no script")
    command.script, *own = words
    command.arguments.append(_literal(command.script))
    _read_own([*_options(own)], command)
    if any("$" in argument for argument in command.arguments):
        command.notes.append("no shell reads the command: '$' and what follows stays as it is")
    return command


def as_typed(command: OwnCommand) -> list[str]:
    """Return the program and its arguments as they are typed, with an interpreter that has torch.

    Where the environment of this Python is not on the path, its torchrun is not either.
    """
    words = shlex.split(command.text)
    while words and _ASSIGNMENT.fullmatch(words[0]):
        words.pop(0)
    if words[:1] == ["torchrun"] and is_installed("torch"):
        return [sys.executable, "-m", "torch.distributed.run", *words[1:]]
    return [sys.executable, *words[1:]] if words[:1] in (["python"], ["python3"]) else words


def _without_srun(words: list[str], command: OwnCommand) -> list[str]:
    """Leave out ``srun``, and take what it says of nodes: sessions start programs by themselves."""
    options, rest = _without_options(words, _SRUN_FLAGS)
    said = {each.name: each.count for each in options}
    command.nodes = said.get("N") or said.get("nodes") or 1
    tasks = said.get("ntasks_per_node") or 1
    if tasks > 1:
        command.devices_per_node = tasks
        command.notes.append(
            f"srun starts {tasks} processes on a node, a session one: torchrun in front of the "
            "script starts one for each device"
        )
    command.notes.append("srun is left out: inside an allocation a session starts the nodes itself")
    return rest


def _without_launcher(words: list[str], command: OwnCommand) -> list[str]:
    """Take what starts the script off, with what it says; leave the script and its arguments."""
    program, rest = _name(words[0]), words[1:]
    if program.startswith("python"):
        command.launcher = "python"
        options, rest = _without_options(rest, _PYTHON_FLAGS)
        if any(one.name == "c" for one in options):
            raise UsageError(f"--command: {command.text!r} names no script; put its code into one")
        if left_out := [word for one in options if one.name != "u" for word in one.words]:
            command.notes.append(f"Python's own options are left out: {' '.join(left_out)}")
        if rest[:1] != ["-m"]:
            return rest
        program, rest = "".join(rest[1:2]), rest[2:]
        if program not in _LAUNCHERS:
            command.arguments.append("-m")
            return [program, *rest] if program else []
    elif program not in _LAUNCHERS:
        return words
    command.launcher = _LAUNCHERS[program]
    if program == "accelerate" and rest[:1] == ["launch"]:
        rest = rest[1:]
    options, rest = _without_options(rest, _FLAGS)
    _read_launcher(options, command)
    if rest[:1] in (["-m"], ["--module"]):
        command.arguments.append(rest.pop(0))
    return rest


def _read_launcher(options: Sequence[_Option], command: OwnCommand) -> None:
    said = {each.name: each.value or "" for each in options if each.name in _PLACED}
    for option in options:
        if option.name in vocabulary().options("precision"):
            command.precision = _PRECISIONS.get(option.value or "", command.precision)
        if option.name not in _PLACED | _SWITCHES:
            command.arguments += option.words
    nodes = next((said[name] for name in _NODES if name in said), "")
    command.nodes = _count(nodes.rpartition(":")[2]) or command.nodes
    listed = said.get("devices", said.get("gpus", ""))  # of Paddle, by number
    default = "1" if command.launcher == "torchrun" else ""
    usual = str(len(listed.split(","))) if listed else default
    command.devices_per_node = _count(next((said[n] for n in _PER_NODE if n in said), usual))
    if world := _count(said.get("num_processes")):
        command.devices_per_node = world // command.nodes or None


def _without_options(
    words: Sequence[str], flags: Container[str]
) -> tuple[list[_Option], list[str]]:
    """Split words into the options in front, with their values, and what follows.

    What marks a module ends them; its name follows.
    """
    options, left = list[_Option](), [*words]
    while left and left[0].startswith("-") and left[0] not in {"-m", "--module"}:
        word = left.pop(0)
        before, is_joined, value = word.partition("=")
        name = before.lstrip("-").replace("-", "_")
        if is_joined:
            options.append(_Option(name, f"{before}=", value))
        elif word[1] != "-" and len(word) > 2:  # noqa: PLR2004 - as in -N4
            options.append(_Option(word[1], word[:2], word[2:]))
        else:
            options.append(_Option(name, word, left.pop(0) if left and name not in flags else None))
    return options, left


def _read_own(options: Sequence[_Option], command: OwnCommand) -> None:
    """Read the script's own arguments, and have placeholders stand for what a case says."""
    at = {
        fact: index
        for fact in ("global_batch", "sequence_length", "steps", *_WAYS, *_HERE)
        if (index := _first(options, fact)) is not None
    }
    if "global_batch" not in at and (index := _first(options, "batch_per_replica")) is not None:
        at["batch_per_device"] = index
    counts = {fact: options[index].count or 1 for fact, index in at.items()}
    if command.launcher == "python":  # nothing else says it
        command.devices_per_node = counts.get("devices_per_node", command.devices_per_node or 1)
        command.nodes = counts.get("nodes", command.nodes)
    known = {"devices_per_node": command.devices_per_node, "nodes": command.nodes}
    placeholders = {
        index: fact for fact, index in at.items() if known.get(fact, counts[fact]) == counts[fact]
    }
    # A step is one of the optimizer: it takes what is accumulated for it.
    accumulated = _first(options, "accumulation")
    parts = 1 if accumulated is None else options[accumulated].count or 1
    if "batch_per_device" in at:
        # A replica on several devices has a batch, each of them has none.
        is_split = prod(counts.get(way, 1) for way in ("tp", "pp", "cp")) > 1
        fact = "batch_per_replica" if is_split else "batch_per_device"
        placeholders[at["batch_per_device"]] = f"{fact}{f'/{parts}' if parts > 1 else ''}"
        name = options[at["batch_per_device"]].name
        command.batch_is_of_device = "device" in name or "gpu" in name
        command.batch = counts["batch_per_device"] * parts
    for index, option in enumerate(options):
        is_flag = option.name in _PRECISIONS and option.value is None
        is_precision = is_flag or option.name in vocabulary().options("precision")
        if is_precision:
            said = option.name if is_flag else option.value or ""
            command.precision = _PRECISIONS.get(said, command.precision)
        placeholder = placeholders.get(index)
        words = option.words if placeholder is None else option.with_value(f"{{{placeholder}}}")
        command.arguments += words
        if not option.name:
            command.positional += words
        elif placeholder is None and not is_precision:
            command.others += words
    command.sequence_length, command.steps = counts.get("sequence_length"), counts.get("steps")
    command.ways = {way: counts[way] for way in _WAYS if counts.get(way, 1) > 1}
    command.batch_is_global = "global_batch" in counts
    command.batch = counts.get("global_batch", command.batch)


def _first(options: Sequence[_Option], fact: str) -> int | None:
    """Find the option with the most telling name of a fact, and a count for a value."""
    named = ((name, at) for name in vocabulary().options(fact) for at in range(len(options)))
    counts = (at for name, at in named if options[at].name == name and options[at].count)
    return next(counts, None)


def _options(words: Sequence[str]) -> Iterator[_Option]:
    left = [*words]
    while left:
        word = left.pop(0)
        before, is_joined, value = word.partition("=")
        # As in --training.local-batch-size and, of Hydra, model.seq_len: the last part counts.
        name = before.lstrip("-").rpartition(".")[2].replace("-", "_").lower()
        if is_joined:
            yield _Option(name, f"{before}=", value)
        elif word.startswith("-") and left and not left[0].startswith("-"):
            yield _Option(name, word, left.pop(0))
        else:
            yield _Option(name if word.startswith("-") else "", word, None)


def _count(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() and 0 < int(text) < 10**9 else None


def _name(word: str) -> str:
    return word.rpartition("/")[2]


def _literal(text: str) -> str:
    """Write a text as a template that becomes it."""
    return text.replace("{", "{{").replace("}", "}}")
