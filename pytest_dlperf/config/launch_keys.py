"""The keys of ``launch`` in a system file, and conditions on the cases that its parts are for."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from typing import Annotated, Final

from msgspec import Meta, Struct, field
from msgspec.structs import asdict

from pytest_dlperf.model.case import Case
from pytest_dlperf.model.keys import (
    Arguments,
    Expression,
    FolderPath,
    Name,
    OneOrMore,
    Part,
    Precision,
    Scalar,
    Seconds,
    SomeOf,
    Text,
    VariableName,
    many,
    text,
)

Count = Annotated[
    Scalar, text(r"^[1-9][0-9]{0,8}\+?$", "a count such as 2, or 2+ for at least so many")
]


class Condition(Part, frozen=True, kw_only=True):
    """Condition on a case: all that is given must hold; nothing given holds for all."""

    precision: OneOrMore[Precision] = ()
    """The case has one of these."""
    without_precision: OneOrMore[Precision] = ()
    """The case has none of these."""
    option: OneOrMore[Text] = ()
    """The case has all of these."""
    without_option: OneOrMore[Text] = ()
    """The case has none of these."""
    nodes: OneOrMore[Count] = ()
    """Number of nodes: 2, [2, 4], or 2+ for at least two."""
    devices_per_node: OneOrMore[Count] = ()
    """Number of devices per node."""
    world_size: OneOrMore[Count] = ()
    """Number of devices in the whole run."""
    sequence_length: OneOrMore[Count] = ()
    """Tokens of one sample."""
    tp: OneOrMore[Count] = ()
    """Number of devices that share a layer (tensor parallelism)."""
    pp: OneOrMore[Count] = ()
    """Number of stages of layers (pipeline parallelism)."""
    cp: OneOrMore[Count] = ()
    """Number of devices that share a sequence (context parallelism)."""
    ep: OneOrMore[Count] = ()
    """Number of devices that share the experts (expert parallelism)."""
    axes: dict[str, OneOrMore[Scalar]] = {}
    """The case has one of these values of each axis."""

    def holds(self, case: Case) -> bool:
        """Whether the condition holds for a case."""
        topology = case.topology
        return self is ALWAYS or (
            (not self.precision or case.precision in many(self.precision))
            and case.precision not in many(self.without_precision)
            and set(many(self.option)) <= set(case.options)
            and set(many(self.without_option)).isdisjoint(case.options)
            and _is_among(topology.nodes, self.nodes)
            and _is_among(topology.devices_per_node, self.devices_per_node)
            and _is_among(topology.world_size, self.world_size)
            and _is_among(case.sequence_length or 0, self.sequence_length)
            and all(case.free_axes.get(name) in many(values) for name, values in self.axes.items())
            and all(_is_among(n, getattr(self, way)) for way, n in asdict(case.layout).items())
        )

    @property
    def options(self) -> tuple[str, ...]:
        """The options that it speaks of."""
        return (*many(self.option), *many(self.without_option))


@cache
def _numbers(text: str) -> range:
    """Read ``4``, or ``2+`` for at least so many."""
    number = int(text.removesuffix("+"))
    return range(number, sys.maxsize if text.endswith("+") else number + 1)


def _is_among(count: int, accepted: OneOrMore[Count]) -> bool:
    return not accepted or any(count in _numbers(text) for text in many(accepted))


ALWAYS: Final = Condition()


class Choice(Part, frozen=True, kw_only=True):
    """One of several values; the first whose condition holds is taken."""

    value: Scalar
    """The value, in which {placeholders} may stand."""
    when: Condition = ALWAYS
    """The cases that it is for: all given keys must hold."""


class SlurmKeys(Part, frozen=True, kw_only=True):
    """Options of Slurm's commands."""

    srun: Arguments | None = None
    """Options of the srun that starts a node's step."""
    job: Arguments | None = None
    """Options of the sbatch that holds nodes for a case."""


class Runtime(StrEnum):
    """What starts containers on a node."""

    APPTAINER = "apptainer"
    SINGULARITY = "singularity"
    DOCKER = "docker"
    PODMAN = "podman"
    ENROOT = "enroot"
    NONE = "none"
    """No container, whatever a weaker setting says."""


_Mount = Annotated[
    str,
    text(
        r"^/[^:,]*(:/[^:,]*)?(:ro|:rw)?$",
        "SOURCE[:TARGET][:ro], absolute paths that hold neither ':' nor ','",
    ),
]


class Container(Part, frozen=True, kw_only=True):
    """The container that a trainer runs in."""

    runtime: Runtime | None = None
    """What starts the container on a node; none: no container."""
    image: Scalar = ""
    """The image: a name, or a file on the nodes."""
    mounts: Scalar | tuple[_Mount, ...] | None = None
    """Files and folders of the node, SOURCE[:TARGET][:ro]; default: those of the plan."""
    devices: Arguments | None = None
    """Devices: a maker of accelerators, a path below /dev, or the name of a device."""
    options: Arguments = ()
    """Further options of the runtime."""


class Vars(Struct, frozen=True, kw_only=True):
    """What can be set for any system, beside its own variables.

    Which systems and variables there are is not known here: see ``check_settings``.
    """

    extra_args: Arguments = ()
    """Arguments behind those of the system: a list, or text that is split as by a shell."""
    env: dict[VariableName, Scalar] = {}
    """Environment variables of the trainer."""
    python: Text | None = None
    """The trainer's Python."""
    working_directory: FolderPath | None = None
    """The folder that a trainer starts in whose system names none."""
    pause_s: Annotated[float, Meta(ge=0, le=10**6)] | None = None
    """Seconds between two runs."""
    slurm: SlurmKeys = SlurmKeys()
    """Options of Slurm's commands."""
    container: Container = Container()
    """The container that the trainer runs in."""


EVERY_SYSTEM_TAKES: Final = Vars.__struct_fields__


class Devices(StrEnum):
    """Devices that a trainer computes on."""

    GPU = "gpu"
    """Accelerators, whichever kind a host has."""
    CPU = "cpu"
    """Any host has enough of them, unless it was declared with a number."""
    NVIDIA = "nvidia"
    AMD = "amd"
    ASCEND = "ascend"
    TPU = "tpu"
    INTEL = "intel"
    GAUDI = "gaudi"
    NEURON = "neuron"

    @property
    def kind(self) -> str | None:
        """The kind of accelerator, where only one will do."""
        return None if self in (Devices.GPU, Devices.CPU) else self.value


class StartOn(StrEnum):
    """Nodes that a run's command is started on."""

    EVERY_NODE = "every_node"
    HEAD = "head"
    """On node 0 alone: the command itself starts what runs on the others."""


class Steps(StrEnum):
    """Trainers whose steps a callback of ours prints."""

    HUGGINGFACE = "huggingface"
    LIGHTNING = "lightning"
    ACCELERATE = "accelerate"
    DEEPSPEED = "deepspeed"


class VariableKind(StrEnum):
    """Kind of thing that a variable's value names."""

    FOLDER = "folder"
    FILE = "file"
    TEXT = "text"

    @property
    def is_path(self) -> bool:
        """Whether the value is a path that has to exist on every node."""
        return self is not VariableKind.TEXT


class Variable(Part, frozen=True, kw_only=True):
    """Setting that the user has to give before the trainer can start, unless it has a default."""

    meaning: Text
    """What it is. The reason of a skip quotes it."""
    kind: VariableKind = VariableKind.TEXT
    """What its value names. A folder or file is an absolute path; each node checks it before the
    first run."""
    default: Scalar | None = None
    """Its value unless the user sets one, taken literally. A path may be relative to the system
    file."""
    public: bool = False
    """Whether results, baselines and reports show the value that an option sets; default: no, but
    for paths, numbers and switches."""

    def problem(self, value: str) -> str | None:
        """Return what is wrong with a value, if anything is.

        The path of a folder or file is absolute, for nodes have no common folder to begin in.
        """
        if value and self.kind.is_path and not value.startswith("/"):
            return f"it is not the absolute path of a {self.kind.value}"
        return None


class ConditionalArguments(Part, frozen=True, kw_only=True):
    """Arguments of a command that only some cases have."""

    when: Condition
    """The cases that it is for: all given keys must hold."""
    arguments: SomeOf[Scalar]
    """Arguments for these cases only."""


_Words = SomeOf[Scalar | ConditionalArguments]


class Server(Part, frozen=True, kw_only=True):
    """A server that runs beside the command on its node, and how to know that it is ready."""

    command: SomeOf[Scalar]
    """The server and its arguments."""
    ready_line: Expression | None = None
    """What a line of its output has when it is ready."""
    ready_address: Text | None = None
    """http://HOST:PORT/PATH or HOST:PORT, the address that answers when it is ready."""
    ready_limit_s: Seconds = 600.0
    """Seconds until it has to be ready."""

    def __post_init__(self) -> None:
        """Refuse a server of which nobody could tell when it is ready."""
        if (self.ready_line is None) is (self.ready_address is None):
            raise ValueError("needs one of 'ready_line' and 'ready_address', and not both")
        try:
            re.compile(self.ready_line or "")
        except re.error as error:
            raise ValueError(f"ready_line is not a regular expression: {error}") from error


STARTS: Final[Mapping[str, tuple[str | ConditionalArguments, ...]]] = {
    "command": (),
    "torchrun": (
        *("{python}", "-m", "torch.distributed.run", "--nnodes={nodes}"),
        *("--node-rank={node_rank}", "--nproc-per-node={devices_per_node}"),
        *("--master-addr={master_address}", "--master-port={master_port}"),
    ),
    "accelerate": (
        *("{python}", "-m", "accelerate.commands.launch", "--num_machines={nodes}"),
        *("--num_processes={world_size}", "--dynamo_backend=no"),
        # For one process it refuses these.
        ConditionalArguments(
            when=Condition(world_size=("2+",)),
            arguments=(
                "--machine_rank={node_rank}",
                "--main_process_ip={master_address}",
                "--main_process_port={master_port}",
            ),
        ),
    ),
    "deepspeed": (
        *("{python}", "-m", "deepspeed.launcher.runner", "--no_ssh", "--num_nodes={nodes}"),
        *("--node_rank={node_rank}", "--num_gpus={devices_per_node}"),
        *("--master_addr={master_address}", "--master_port={master_port}"),
    ),
}
"""By the key that says what to start, the program in front of it on each node."""


class LaunchKeys(Part, frozen=True, kw_only=True):
    """How to start a trainer, with placeholders for all that differs between runs."""

    command: _Words = ()
    """The program and its arguments. No shell reads them."""
    torchrun: _Words = ()
    """In place of 'command': the script and its arguments, started by torchrun."""
    accelerate: _Words = ()
    """In place of 'command': the same, started by accelerate launch."""
    deepspeed: _Words = ()
    """In place of 'command': the same, started by DeepSpeed's launcher on each node."""
    more_arguments: _Words = field(default=(), name="arguments")
    """More arguments, for a system that extends another one. They stand where the command says
    {arguments}, else at its end."""
    devices: Devices = Devices.GPU
    """What the trainer computes on. gpu: the host's accelerators, whatever their kind. Any host has
    enough CPUs for cpu, unless declared with a number."""
    start_on: StartOn = StartOn.EVERY_NODE
    """Whether each node starts the command, or node 0 alone."""
    steps: Steps | None = None
    """Make this trainer print its steps, without a change to its script."""
    server: Server | None = None
    """A server that runs on the node while the command does, which starts when it is ready."""
    variables: dict[Name, Variable] = {}
    """What the user sets before the trainer can start, such as paths, by name."""
    values: dict[Name, SomeOf[Choice]] = {}
    """Values that differ between cases, by name. The first choice that holds is taken."""
    environment: dict[VariableName, Scalar | SomeOf[Choice]] = {}
    """Environment variables: values, or lists of choices. If no choice holds, the variable is not
    set."""
    working_directory: Text | None = None
    """Where the command runs, relative to the folder that pytest starts in; default: that folder.
    {scratch_directory} suits a trainer that leaves files where it runs."""
    log_file: Text | None = None
    """A file that the trainer writes its steps into. Its lines are added to the log."""
    requires_modules: tuple[Scalar, ...] = ()
    """Modules that pytest's own interpreter must find; otherwise the case is skipped."""
    install_hint: Text | None = None
    """How to get them. The reason of the skip quotes it."""
    time_limit_s: Seconds = 1800.0
    """End a run that takes longer. It is hung, unless its window is complete."""
    first_step_limit_s: Seconds = 900.0
    """A run without a first step by then is hung."""
    step_limit_s: Seconds = 300.0
    """A run without a new step for so long is hung."""
    run_to_end: bool = False
    """Let the trainer end by itself; else a run is ended as soon as every rank has printed what is
    measured."""
    retries: Annotated[int, Meta(ge=0, le=100)] = 0
    """How often to repeat a failed or hung run, never a slow one."""
    pause_s: Annotated[float, Meta(ge=0, le=10**6)] = 0.0
    """Pause between two runs of a case."""
    slurm: SlurmKeys = SlurmKeys()
    """Options of Slurm's commands, beside those of the launcher."""
    container: Container = Container()
    """The container that the trainer runs in."""
    engines: dict[Name, dict[Name, Arguments]] = {}
    """Options of launchers and queues that plugins add, by their names."""
