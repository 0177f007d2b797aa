"""A training command as its user types it, and what of it differs between cases, runs and nodes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Container, Iterator, Mapping, Sequence
from math import prod
from typing import Final

from msgspec import Struct

from pytest_dlperf.formats.meanings import vocabulary
from pytest_dlperf.model.errors import UsageError

_SHELL: Final = re.compile(r"[|&;<>`]|\$\(")
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


class _Launcher(Struct, frozen=True, kw_only=True):
    """What starts a script, and its options that a plan says itself, since they are of nodes."""

    programs: tuple[str, ...]
    nodes: str
    per_node: str = ""
    placed: tuple[str, ...] = ()
    """Options of nodes that have a value, beside ``nodes`` and ``per_node``."""
    switches: tuple[str, ...] = ()
    """Those without one."""
    flags: tuple[str, ...] = ()
    """Other options without a value: what stands behind another one may be the script."""


_LAUNCHERS: Final[Mapping[str, _Launcher]] = {
    "torchrun": _Launcher(
        programs=("torchrun", "torch.distributed.run", "torch.distributed.launch"),
        nodes="nnodes",
        per_node="nproc_per_node",
        placed=(
            *("node_rank", "master_addr", "master_port", "local_addr"),
            *("rdzv_backend", "rdzv_endpoint", "rdzv_id", "rdzv_conf"),
        ),
        switches=("standalone", "use_env"),
        flags=("m", "module", "no_python"),
    ),
    "accelerate": _Launcher(
        programs=("accelerate", "accelerate.commands.launch"),
        nodes="num_machines",
        placed=(
            *("num_processes", "machine_rank", "main_process_ip", "main_process_port"),
            "dynamo_backend",
        ),
        switches=("multi_gpu", "same_network"),
        flags=(
            *("m", "module", "no_python", "cpu", "use_fsdp", "use_deepspeed", "quiet", "debug"),
        ),
    ),
    "deepspeed": _Launcher(
        programs=("deepspeed", "deepspeed.launcher.runner"),
        nodes="num_nodes",
        per_node="num_gpus",
        placed=(
            *("hostfile", "include", "exclude", "node_rank", "master_addr", "master_port"),
            "ssh_port",
        ),
        switches=("no_ssh", "force_multi"),
        flags=("m", "module", "no_python", "no_local_rank"),
    ),
    "paddle": _Launcher(
        programs=("paddle.distributed.launch",),
        nodes="nnodes",
        per_node="nproc_per_node",
        placed=("rank", "master", "host", "ips", "devices", "gpus", "log_dir"),
    ),
}

_SRUN_FLAGS: Final = frozenset(
    (
        *("-E", "-K", "-k", "-l", "-O", "-Q", "-s", "-u", "-v", "-X", "-Z"),
        *("--contiguous", "--disable-status", "--exact", "--exclusive", "--kill-on-bad-exit"),
        *("--label", "--no-kill", "--overcommit", "--overlap", "--oversubscribe", "--pty"),
        *("--quiet", "--spread-job", "--unbuffered", "--use-min-nodes", "--verbose"),
    )
)
_PYTHON_FLAGS: Final = frozenset(f"-{letter}" for letter in "bBdEhiIOPqsSuvVx")
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
    script: str | None = None
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
    words = _without_srun(words, command)
    if not words:
        raise UsageError(f"--command: {given!r} names no program")
    own = _launcher(words, command)
    _read_own(own, command)
    if any("$" in argument for argument in command.arguments):
        command.notes.append("no shell reads the command: '$' and what follows stays as it is")
    return command


def _without_srun(words: list[str], command: OwnCommand) -> list[str]:
    """Leave out ``srun``, and take what it says of nodes: sessions start programs by themselves."""
    if not words or _name(words[0]) != "srun":
        return words
    options, rest = _without_options(words[1:], _SRUN_FLAGS)
    said = {before.rstrip("="): value for _, before, value in _options(options)}
    command.nodes = _count(said.get("-N") or said.get("--nodes")) or 1
    tasks = _count(said.get("--ntasks-per-node")) or 1
    if tasks > 1:
        command.devices_per_node = tasks
        command.notes.append(
            f"srun starts {tasks} processes on a node, a session one: torchrun in front of the "
            "script starts one for each device"
        )
    command.notes.append("srun is left out: inside an allocation a session starts the nodes itself")
    return rest


def _without_options(words: list[str], flags: Container[str]) -> tuple[list[str], list[str]]:
    """Split words into the options in front, with their values, and what follows."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        word = words[at]
        is_joined = "=" in word or (word[1] != "-" and len(word) > 2)  # noqa: PLR2004 - as in -N4
        at += 1 if is_joined or word in flags else 2
    return words[:at], words[at:]


def _launcher(words: list[str], command: OwnCommand) -> list[str]:
    """Take the launcher off, and what it says of nodes; leave its other options and the script."""
    program = _name(words[0])
    rest = words[1:]
    if program.startswith("python"):
        command.launcher = "python"
        # Its module stands behind -m, which is the last of its own options.
        own = rest[: rest.index("-m")] if "-m" in rest else rest
        options, behind = _without_options(own, _PYTHON_FLAGS)
        rest = rest[len(options) :]
        if any(one.startswith("-c") for one in options):
            raise UsageError(f"--command: {command.text!r} names no script; put its code into one")
        if set(options) - {"-u"}:
            command.notes.append(f"Python's own options are left out: {' '.join(options)}")
        if not behind and rest[:1] == ["-m"] and len(rest) > 1:
            program, behind = rest[1], rest[2:]
            if not _launcher_of(program):
                command.script = program
                command.arguments = ["-m", _literal(program)]
                return behind
            rest = behind
        else:
            return _script(rest, command)
    command.launcher = _launcher_of(program)
    if not command.launcher:
        command.script = words[0]
        command.arguments = [_literal(words[0])]
        return rest
    if program == "accelerate" and rest[:1] == ["launch"]:
        rest = rest[1:]
    return _script(_launcher_options(rest, command), command)


def _launcher_of(program: str) -> str:
    """Name the launcher that a program or module is, if it is one."""
    known = (name for name, launcher in _LAUNCHERS.items() if program in launcher.programs)
    return next(known, "")


def _launcher_options(words: list[str], command: OwnCommand) -> list[str]:
    launcher = _LAUNCHERS[command.launcher]
    placed = {launcher.nodes, launcher.per_node, *launcher.placed} - {""}
    said: dict[str, str] = {}
    while words and words[0].startswith("-"):
        word = words.pop(0)
        name, is_joined, value = word.lstrip("-").partition("=")
        name = name.replace("-", "_")
        if name in launcher.switches:
            continue
        if name in placed:
            said[name] = value if is_joined or not words else words.pop(0)
            continue
        if name in vocabulary().options("precision"):
            said_of = value if is_joined else "".join(words[:1])
            command.precision = _PRECISIONS.get(said_of, command.precision)
        command.arguments.append(_literal(word))
        if not is_joined and name not in launcher.flags and words:
            command.arguments.append(_literal(words.pop(0)))
        if name in ("m", "module"):
            break
    command.nodes = _count(said.get(launcher.nodes, "").rpartition(":")[2]) or command.nodes
    if command.launcher == "accelerate":
        world = said.get("num_processes", "")
        per_node = str(int(world) // command.nodes) if world.isdigit() else ""
    else:
        default = "1" if command.launcher == "torchrun" else ""
        listed = said.get("devices", said.get("gpus", ""))  # of Paddle, by number
        default = str(len(listed.split(","))) if listed else default
        per_node = said.get(launcher.per_node, default)
    command.devices_per_node = _count(per_node)
    return words


def _script(words: list[str], command: OwnCommand) -> list[str]:
    if not words:
        raise UsageError(f"--command: {command.text!r} names no script")
    command.script = words[0]
    command.arguments.append(_literal(words[0]))
    return words[1:]


def _read_own(words: Sequence[str], command: OwnCommand) -> None:
    """Read the script's own arguments, and have placeholders stand for what a case says."""
    options = list(_options(words))
    precision = vocabulary().options("precision")
    wanted = {
        **{name: _first(options, name) for name in ("global_batch", "sequence_length", "steps")},
        "batch_per_device": _first(options, "batch_per_replica"),
        **{way: _first(options, way) for way in _WAYS},
        **_told_of_nodes(options, command),
    }
    devices = prod(
        int(options[at][2] or 1) for way in ("tp", "pp", "cp") if (at := wanted[way]) is not None
    )
    if wanted["global_batch"] is not None:
        wanted["batch_per_device"] = None
    found = {at: name for name, at in wanted.items() if at is not None}
    at = _first(options, "accumulation")
    parts = int(options[at][2] or 1) if at is not None else 1
    for index, (name, before, value) in enumerate(options):
        template: str | None
        if index in found and value is not None:
            # A step is one of the optimizer: it takes what is accumulated for it.
            is_batch = found[index] == "batch_per_device"
            is_part = parts > 1 and is_batch
            # A replica on several devices has a batch, each of them has none.
            name_of = "batch_per_replica" if is_batch and devices > 1 else found[index]
            template = f"{{{name_of}{f'/{parts}' if is_part else ''}}}"
            _note(command, found[index], int(value) * (parts if is_part else 1))
            command.batch_is_of_device |= is_batch and ("device" in name or "gpu" in name)
        else:
            template = None if value is None else _literal(value)
        flag = name in _PRECISIONS and value is None
        said = value if name in precision else name if flag else None
        command.precision = _PRECISIONS.get(said or "", command.precision)
        words_of = [_literal(before)] if template is None else [_literal(before), template]
        if template is not None and before.endswith("="):
            words_of = [_literal(before) + template]
        command.arguments += words_of
        if not name:
            command.positional += words_of
        elif index not in found and not flag and name not in precision:
            command.others += words_of


def _told_of_nodes(
    options: Sequence[tuple[str, str, str | None]], command: OwnCommand
) -> dict[str, int | None]:
    """Find what a script is told of its nodes; without a launcher that is all that is known."""
    found = {name: _first(options, name) for name in _HERE}
    counts = {name: int(options[at][2] or 1) for name, at in found.items() if at is not None}
    if command.launcher == "python":
        command.devices_per_node = counts.get("devices_per_node", command.devices_per_node or 1)
        command.nodes = counts.get("nodes", command.nodes)
    known = {"devices_per_node": command.devices_per_node, "nodes": command.nodes}
    return {name: at for name, at in found.items() if counts.get(name) == known[name]}


def _note(command: OwnCommand, name: str, value: int) -> None:
    if name == "sequence_length":
        command.sequence_length = value
    elif name == "steps":
        command.steps = value
    elif name in _WAYS:
        if value > 1:
            command.ways[name] = value
    elif name not in _HERE:
        command.batch, command.batch_is_global = value, name == "global_batch"


def _first(options: Sequence[tuple[str, str, str | None]], fact: str) -> int | None:
    """Find the option with the most telling name of a fact, and a count for a value."""
    for name in vocabulary().options(fact):
        for index, (said, _, value) in enumerate(options):
            if said == name and value is not None and value.isdigit() and 0 < int(value) < 10**9:
                return index
    return None


def _options(words: Sequence[str]) -> Iterator[tuple[str, str, str | None]]:
    """Yield each argument as its plain name, the text in front of its value, and the value."""
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        before, is_joined, value = word.partition("=")
        # As in --training.local-batch-size and, of Hydra, model.seq_len: the last part counts.
        name = before.lstrip("-").rpartition(".")[2].replace("-", "_").lower()
        if is_joined:
            yield name, f"{before}=", value
        elif word.startswith("-") and at < len(words) and not words[at].startswith("-"):
            yield name, word, words[at]
            at += 1
        else:
            yield name if word.startswith("-") else "", word, None


def _count(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() and int(text) else None


def _name(word: str) -> str:
    return word.rpartition("/")[2]


def _literal(text: str) -> str:
    """Write a text as a template that becomes it."""
    return text.replace("{", "{{").replace("}", "}}")
