"""A training command as its user types it, and what of it differs between cases, runs and nodes."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Container, Iterator, Mapping, Sequence
from math import prod
from typing import Final

from msgspec import Struct

from pytest_dlperf.formats.meanings import vocabulary
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.survey.machine import is_installed

_SHELL: Final = re.compile(r"[|&;<>`]|\$\(")
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


class _Launcher(Struct, frozen=True, kw_only=True):
    """What starts a script; its options by what they do, without dashes, by their names."""

    programs: tuple[str, ...]
    nodes: str
    per_node: str = ""
    placed: str
    """Options that a plan says itself, since they are of nodes, with a value behind them."""
    switches: str = ""
    """Those without one."""
    flags: str = ""
    """Others without a value: what stands behind another one may be the script."""


_LAUNCHERS: Final[Mapping[str, _Launcher]] = {
    "torchrun": _Launcher(
        programs=("torchrun", "torch.distributed.run", "torch.distributed.launch"),
        nodes="nnodes",
        per_node="nproc_per_node",
        placed="node_rank master_addr master_port local_addr rdzv_backend rdzv_endpoint rdzv_id "
        "rdzv_conf",
        switches="standalone use_env",
        flags="m module no_python",
    ),
    "accelerate": _Launcher(
        programs=("accelerate", "accelerate.commands.launch"),
        nodes="num_machines",
        placed="num_processes machine_rank main_process_ip main_process_port dynamo_backend",
        switches="multi_gpu same_network",
        flags="m module no_python cpu use_fsdp use_deepspeed quiet debug",
    ),
    "deepspeed": _Launcher(
        programs=("deepspeed", "deepspeed.launcher.runner"),
        nodes="num_nodes",
        per_node="num_gpus",
        placed="hostfile include exclude node_rank master_addr master_port ssh_port",
        switches="no_ssh force_multi",
        flags="m module no_python no_local_rank",
    ),
    "paddle": _Launcher(
        programs=("paddle.distributed.launch",),
        nodes="nnodes",
        per_node="nproc_per_node",
        placed="rank master host ips devices gpus log_dir",
    ),
}
_SRUN_FLAGS: Final = (
    "-E -K -k -l -O -Q -s -u -v -X -Z --contiguous --disable-status --exact --exclusive "
    "--kill-on-bad-exit --label --no-kill --overcommit --overlap --oversubscribe --pty --quiet "
    "--spread-job --unbuffered --use-min-nodes --verbose"
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


class _Option(Struct, frozen=True):
    """An argument: its plain name, the text in front of its value, and the value."""

    name: str
    before: str
    value: str | None

    @property
    def count(self) -> int | None:
        """Its value, if that is a count."""
        return _count(self.value)


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
    _read_own([*_options(_without_launcher(words, command))], command)
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
    if not words or _name(words[0]) != "srun":
        return words
    options, rest = _without_options(words[1:], _SRUN_FLAGS.split())
    said = {each.before.rstrip("="): each.count for each in _options(options)}
    command.nodes = said.get("-N") or said.get("--nodes") or 1
    tasks = said.get("--ntasks-per-node") or 1
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


def _without_launcher(words: list[str], command: OwnCommand) -> list[str]:
    """Take the launcher off and the script, with what they say; leave the script's arguments."""
    program, rest = _name(words[0]), words[1:]
    if program.startswith("python"):
        command.launcher = "python"
        # Its module stands behind -m, which is the last of its own options.
        end = rest.index("-m") if "-m" in rest else len(rest)
        options, behind = _without_options(rest[:end], _PYTHON_FLAGS)
        if any(one.startswith("-c") for one in options):
            raise UsageError(f"--command: {command.text!r} names no script; put its code into one")
        if set(options) - {"-u"}:
            command.notes.append(f"Python's own options are left out: {' '.join(options)}")
        is_module = not behind and rest[end + 1 :]
        rest = rest[end + 1 :] if is_module else rest[len(options) :]
        if not is_module or not (launcher := _launcher_of(rest[0])):
            command.arguments += ["-m"] if is_module else []
            return _without_script(rest, command)
        command.launcher, rest = launcher, rest[1:]
    else:
        command.launcher = _launcher_of(program)
    if not command.launcher:
        return _without_script(words, command)
    if program == "accelerate" and rest[:1] == ["launch"]:
        rest = rest[1:]
    return _without_script(_without_launcher_options(rest, command), command)


def _launcher_of(program: str) -> str:
    """Name the launcher that a program or module is, if it is one."""
    known = (name for name, launcher in _LAUNCHERS.items() if program in launcher.programs)
    return next(known, "")


def _without_launcher_options(words: list[str], command: OwnCommand) -> list[str]:
    launcher = _LAUNCHERS[command.launcher]
    placed = {launcher.nodes, launcher.per_node, *launcher.placed.split()}
    said: dict[str, str] = {}
    while words and words[0].startswith("-"):
        word = words.pop(0)
        name, is_joined, value = word.lstrip("-").partition("=")
        name = name.replace("-", "_")
        if name in launcher.switches.split():
            continue
        has_value = not is_joined and name not in launcher.flags.split() and words
        value = words.pop(0) if has_value else value
        if name in placed:
            said[name] = value
            continue
        if name in vocabulary().options("precision"):
            command.precision = _PRECISIONS.get(value, command.precision)
        command.arguments += [_literal(word), *([_literal(value)] if has_value else [])]
        if name in ("m", "module"):
            break
    command.nodes = _count(said.get(launcher.nodes, "").rpartition(":")[2]) or command.nodes
    listed = said.get("devices", said.get("gpus", ""))  # of Paddle, by number
    default = "1" if command.launcher == "torchrun" else ""
    per_node = said.get(launcher.per_node, str(len(listed.split(","))) if listed else default)
    command.devices_per_node = _count(per_node)
    if command.launcher == "accelerate" and (world := _count(said.get("num_processes"))):
        command.devices_per_node = world // command.nodes or None
    return words


def _without_script(words: list[str], command: OwnCommand) -> list[str]:
    if not words:
        raise UsageError(f"--command: {command.text!r} names no script")
    command.script = words[0]
    command.arguments.append(_literal(words[0]))
    return words[1:]


def _read_own(options: Sequence[_Option], command: OwnCommand) -> None:
    """Read the script's own arguments, and have placeholders stand for what a case says."""
    precision = vocabulary().options("precision")
    facts = ("global_batch", "sequence_length", "steps", *_WAYS)
    wanted = {name: _first(options, name) for name in facts} | _told_of_nodes(options, command)
    if wanted["global_batch"] is None:
        wanted["batch_per_device"] = _first(options, "batch_per_replica")
    counts = {name: options[at].count or 1 for name, at in wanted.items() if at is not None}
    found = {at: name for name, at in wanted.items() if at is not None}
    is_split = prod(counts.get(way, 1) for way in ("tp", "pp", "cp")) > 1
    at = _first(options, "accumulation")
    # A step is one of the optimizer: it takes what is accumulated for it.
    parts = 1 if at is None else options[at].count or 1
    for index, option in enumerate(options):
        fact = found.get(index, "")
        value = None if option.value is None else _literal(option.value)
        if fact == "batch_per_device":
            # A replica on several devices has a batch, each of them has none.
            placeholder = "batch_per_replica" if is_split else fact
            value = f"{{{placeholder}{f'/{parts}' if parts > 1 else ''}}}"
            command.batch_is_of_device = "device" in option.name or "gpu" in option.name
        elif fact:
            value = f"{{{fact}}}"
        is_flag = option.name in _PRECISIONS and value is None
        is_precision = is_flag or option.name in precision
        if is_precision:
            said = option.name if is_flag else option.value or ""
            command.precision = _PRECISIONS.get(said, command.precision)
        words = [_literal(option.before), *([] if value is None else [value])]
        if option.before.endswith("="):
            words = ["".join(words)]
        command.arguments += words
        if not option.name:
            command.positional += words
        elif not fact and not is_precision:
            command.others += words
    command.sequence_length, command.steps = counts.get("sequence_length"), counts.get("steps")
    command.ways = {way: counts[way] for way in _WAYS if counts.get(way, 1) > 1}
    command.batch_is_global = "global_batch" in counts
    command.batch = counts.get("global_batch")
    if "batch_per_device" in counts:
        command.batch = counts["batch_per_device"] * parts


def _told_of_nodes(options: Sequence[_Option], command: OwnCommand) -> dict[str, int | None]:
    """Find what a script is told of its nodes; without a launcher that is all that is known."""
    found = {name: _first(options, name) for name in _HERE}
    counts = {name: options[at].count or 1 for name, at in found.items() if at is not None}
    if command.launcher == "python":
        command.devices_per_node = counts.get("devices_per_node", command.devices_per_node or 1)
        command.nodes = counts.get("nodes", command.nodes)
    known = {"devices_per_node": command.devices_per_node, "nodes": command.nodes}
    return {name: at for name, at in found.items() if counts.get(name) == known[name]}


def _first(options: Sequence[_Option], fact: str) -> int | None:
    """Find the option with the most telling name of a fact, and a count for a value."""
    named = ((name, at) for name in vocabulary().options(fact) for at in range(len(options)))
    counts = (at for name, at in named if options[at].name == name and options[at].count)
    return next(counts, None)


def _options(words: Sequence[str]) -> Iterator[_Option]:
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        before, is_joined, value = word.partition("=")
        # As in --training.local-batch-size and, of Hydra, model.seq_len: the last part counts.
        name = before.lstrip("-").rpartition(".")[2].replace("-", "_").lower()
        if is_joined:
            yield _Option(name, f"{before}=", value)
        elif word.startswith("-") and at < len(words) and not words[at].startswith("-"):
            yield _Option(name, word, words[at])
            at += 1
        else:
            yield _Option(name if word.startswith("-") else "", word, None)


def _count(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() and 0 < int(text) < 10**9 else None


def _name(word: str) -> str:
    return word.rpartition("/")[2]


def _literal(text: str) -> str:
    """Write a text as a template that becomes it."""
    return text.replace("{", "{{").replace("}", "}}")
