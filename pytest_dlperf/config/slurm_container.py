"""What runs around a trainer on its node: options of Slurm's commands, and a container.

A system's file, the cluster's and the command line say it part by part. A stronger one replaces
a weaker one's part, a list as a whole.
"""

from __future__ import annotations

import re
import shlex
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from pytest_dlperf.files.shapes import ByKind, Choice, Key, ListOf, Record, Scalar, Shape
from pytest_dlperf.files.yamlfile import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_dlperf.files.yamlfile import YamlValue

    Part = str | tuple[str, ...]

SLURM: Final = "slurm"
CONTAINER: Final = "container"
EVERY_SYSTEM_TAKES: Final = (
    "extra_args",
    "env",
    "python",
    "working_directory",
    "pause_s",
    SLURM,
    CONTAINER,
)
"""What the user can set for any system, beside the system's own variables."""


class Runtime(Enum):
    """What starts containers on a node."""

    APPTAINER = "apptainer"
    SINGULARITY = "singularity"
    DOCKER = "docker"
    PODMAN = "podman"
    ENROOT = "enroot"
    NONE = "none"
    """No container, whatever a weaker one says."""


class Vendor(Enum):
    """Makers of devices that a runtime can give to a container by itself."""

    NVIDIA = "nvidia"
    AMD = "amd"


class SlurmOptions(Struct, frozen=True, kw_only=True):
    """Options of Slurm's commands, beside those of the launcher."""

    srun: tuple[str, ...] = ()
    sbatch: tuple[str, ...] = ()

    @property
    def image(self) -> str | None:
        """The image that the steps run in, where Slurm has pyxis."""
        named = None
        for option, following in zip(self.srun, (*self.srun[1:], ""), strict=False):
            name, equals, value = option.partition("=")
            if name == "--container-image":
                named = value if equals else following
        return named


class Mount(Struct, frozen=True, kw_only=True):
    """A file or folder of a node, and where a container has it."""

    source: str
    target: str
    read_only: bool = False

    @classmethod
    def parse(cls, text: str) -> Mount:
        """Read ``SOURCE[:TARGET][:ro|rw]``."""
        *paths, mode = text.split(":") if text.endswith((":ro", ":rw")) else [*text.split(":"), ""]
        if not 1 <= len(paths) <= 2 or not all(map(_is_path, paths)):  # noqa: PLR2004 - from, to
            raise ValueError(
                f"{text!r} is not a valid mount; write SOURCE[:TARGET][:ro], absolute paths that "
                "hold neither ':' nor ','"
            )
        return cls(source=paths[0], target=paths[-1], read_only=mode == "ro")


class Container(Struct, frozen=True, kw_only=True):
    """The container that a trainer runs in.

    ``runtime`` is ``None`` where none was named: some launchers start containers themselves.
    ``mounts`` and ``devices`` are ``None`` where the plan decides.
    """

    runtime: Runtime | None = None
    image: str
    mounts: tuple[Mount, ...] | None = None
    devices: tuple[str, ...] | None = None
    options: tuple[str, ...] = ()


def split_arguments(text: str) -> tuple[str, ...]:
    """Split arguments as a shell does, and do nothing else that a shell does."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        # The text may hold a secret.
        raise ValueError(f"the arguments cannot be told apart: {error}") from error


def slurm_options(parts: Mapping[str, Part]) -> SlurmOptions:
    """Make a value of the parts of ``slurm`` that hold."""
    return SlurmOptions(srun=_list(parts.get("srun", ())), sbatch=_list(parts.get("sbatch", ())))


def container(parts: Mapping[str, Part]) -> Container | None:
    """Make a value of the parts of ``container`` that hold; ``None`` where there is to be none.

    Raises:
        ValueError: It has no image, or an option that contradicts how it is started.
    """
    runtime = None if "runtime" not in parts else Runtime(parts["runtime"])
    if not parts or runtime is Runtime.NONE:
        return None  # whatever else is set
    if "image" not in parts:
        raise ValueError(
            f"container.{next(iter(parts))} is set, and no container.image: name the image"
        )
    mounts, devices = parts.get("mounts"), parts.get("devices")
    options = _list(parts.get("options", ()))
    if runtime is not None:
        _check_no_contradiction(runtime, options)
    return Container(
        runtime=runtime,
        image=str(parts["image"]),
        mounts=None if mounts is None else tuple(map(Mount.parse, _list(mounts))),
        devices=None if devices is None else _list(devices),
        options=options,
    )


def is_list(name: str, key: str) -> bool:
    """Whether a part is a list."""
    return key in _CHECKS.get(name, ()) and key not in _WORDS


def checked_part(name: str, key: str, value: Part) -> Part:
    """Return a part; raise a ``ValueError`` if it is malformed."""
    parts = _CHECKS[name]
    if key not in parts:
        written = ", ".join(f"{name}.{part}=…" for part in parts)
        said = f"has no {key!r}{nearest(key, parts)}" if key else "has parts"
        raise ValueError(f"{name} {said}; write one of {written}")
    parts[key](value)
    return value


def _list(part: Part) -> tuple[str, ...]:
    return (part,) if isinstance(part, str) else part


# ---------------------------------------------------------------------- malformed parts


def _is_path(text: str) -> bool:
    return text.startswith("/") and "," not in text


def _check_runtime(text: str) -> None:
    known = [runtime.value for runtime in Runtime]
    if text not in known:
        raise ValueError(
            f"{text!r} is not a container runtime{nearest(text, known)}; "
            f"there are {', '.join(known)}"
        )


def _check_image(text: str) -> None:
    if not text.strip() or text.startswith("-"):
        raise ValueError(
            f"{text!r} is not a valid image; write its name, or its file's absolute path"
        )


def _check_mounts(mounts: Sequence[str]) -> None:
    for text in mounts:
        Mount.parse(text)


def _check_devices(devices: Sequence[str]) -> None:
    vendors = [vendor.value for vendor in Vendor]
    for text in devices:
        if text not in vendors and not re.fullmatch(r"/dev/\S+|[\w.-]+/[\w.-]+=\S+", text):
            raise ValueError(
                f"{text!r} is not a device{nearest(text, vendors)}; write {', '.join(vendors)}, a "
                "path as in /dev/infiniband, or a name as in nvidia.com/gpu=all"
            )


_ONE_TASK: Final = "each node's supervisor is one task of a step of its own"
_STREAMS: Final = "the supervisor's orders, reports and logs go through them as they are"
_HOSTS: Final = "the nodes of a run are chosen by the lease of the case; see --dlperf-hosts"
_ALL_AT_ONCE: Final = "nothing of a run would be started"
_JOB: Final = "the launcher works in the allocation around it"
_REFUSED: Final = {
    "srun": {
        _ONE_TASK: "--nodes -N --ntasks -n --ntasks-per-node --ntasks-per-core --ntasks-per-socket "
        "--ntasks-per-gpu --ntasks-per-tres --multi-prog",
        _HOSTS: "--nodelist -w --exclude -x --nodefile -F --relative -r",
        _STREAMS: "--input -i --output -o --error -e --label -l --pty",
        _JOB: "--jobid --no-allocate -Z",
        _ALL_AT_ONCE: "--test-only --help -h --usage --version -V",
    },
    "sbatch": {
        "the topology of the case says how many there are": "--nodes -N --ntasks -n "
        "--ntasks-per-node --array -a",
        "the log of the job is followed where it is written": "--output -o --error -e --input -i",
        "what is submitted is made by the launcher": "--wrap --parsable --wait -W --test-only "
        "--quiet -Q --help -h --usage --version -V",
        "by a name of its own each job is found and ended": "--job-name -J",
        "a run that is broken off is over; launch.retries is how often it is repeated": "--requeue",
        "commands without it have to find the job; set SLURM_CLUSTERS instead": "--clusters "
        "--cluster -M",
    },
}
"""What would contradict the launcher, by why."""
_WITHOUT_VALUE: Final = {"srun": "EHIKOQXZlqsuv", "sbatch": "HQkshv"}
"""Short options that another may stand behind, in the same word."""
_RUNTIME_REFUSED: Final = {
    "runs have names of their own, by which they are found and ended": "--name --cidfile --replace",
    "the run has to see the trainer's end": "--detach -d",
    "the supervisor hands on the trainer's output as it is": "--tty -t --interactive -i",
}


def _check_slurm(command: str) -> Callable[[Sequence[str]], None]:
    def check(options: Sequence[str]) -> None:
        _check_options(command, options)
        for option in options:
            for given in _options_in(option, _WITHOUT_VALUE[command]):
                _refuse(command, given, _REFUSED[command])

    return check


def _check_no_contradiction(runtime: Runtime, options: Sequence[str]) -> None:
    if runtime in (Runtime.DOCKER, Runtime.PODMAN):
        for option in options:
            for given in _options_in(option, "diPqt"):
                _refuse(f"{runtime.value} run", given, _RUNTIME_REFUSED)


def _check_options(command: str, options: Sequence[str]) -> None:
    if options and not options[0].startswith("-"):
        raise ValueError(f"{options[0]!r} is not an option of {command}; options begin with '-'")
    if "--" in options:
        raise ValueError(f"'--' would end the options of {command}; leave it out")


def _options_in(word: str, without_value: str) -> list[str]:
    """List the options that a word may be: a long one, or short ones up to one with a value."""
    if word.startswith("--"):
        return [word.partition("=")[0]]
    if not word.startswith("-"):
        return []
    short = []
    for letter in word[1:]:
        short.append(f"-{letter}")
        if letter not in without_value:
            break
    return short


def _refuse(command: str, given: str, refused: Mapping[str, str]) -> None:
    for why, names in refused.items():
        for name in names.split():
            # A long option may be cut short.
            if given == name or (len(given) > 2 and name.startswith(given)):  # noqa: PLR2004 - --
                raise ValueError(f"{given} cannot be set for {command}: {why}")


_CHECKS: Final[Mapping[str, Mapping[str, Callable[[Any], None]]]] = {
    SLURM: {"srun": _check_slurm("srun"), "sbatch": _check_slurm("sbatch")},
    CONTAINER: {
        "runtime": _check_runtime,
        "image": _check_image,
        "mounts": _check_mounts,
        "devices": _check_devices,
        "options": partial(_check_options, "the runtime"),
    },
}
"""The parts and their checks."""
_WORDS: Final = ("runtime", "image")
"""The parts that are single values."""


# ------------------------------------------------------------------------------ in a file

ARGUMENTS_SHAPE: Final[Shape[tuple[str, ...]]] = ByKind(
    scalar=Scalar("a list of arguments, or text that is split as by a shell").parsed(
        split_arguments
    ),
    sequence=ListOf(Scalar(), "a list of arguments", may_be_empty=True),
)
"""Arguments: a list, which may be empty, or a text that is split."""

_RUNTIME_SHAPE: Final = Choice([runtime.value for runtime in Runtime])
_SAID: Final[Mapping[str, Mapping[str, tuple[Shape[Any], str]]]] = {
    SLURM: {
        "srun": (ARGUMENTS_SHAPE, "Options of the srun that starts a node's step."),
        "sbatch": (ARGUMENTS_SHAPE, "Options of the sbatch that submits a run."),
    },
    CONTAINER: {
        "runtime": (_RUNTIME_SHAPE, "What starts the container on a node; none: no container."),
        "image": (Scalar("the image's name or file"), "The image: a name, or a file on the nodes."),
        "mounts": (
            ARGUMENTS_SHAPE,
            "Files and folders of the node, SOURCE[:TARGET][:ro]; default: those of the plan.",
        ),
        "devices": (
            ARGUMENTS_SHAPE,
            "Devices: a maker of accelerators, a path below /dev, or the name of a device.",
        ),
        "options": (ARGUMENTS_SHAPE, "Further options of the runtime."),
    },
}


def slurm_container_keys(read: Callable[[str, str, Part, YamlValue], object]) -> tuple[Key, ...]:
    """Return the keys of both; ``read`` takes name, key, value and place of a part."""
    return tuple(
        Key(
            name,
            Record(
                dict[str, Any],
                *(
                    Key(key, shape.placed(partial(read, name, key)), description)
                    for key, (shape, description) in parts.items()
                ),
            ),
            _DESCRIPTIONS[name],
        )
        for name, parts in _SAID.items()
    )


_DESCRIPTIONS: Final = {
    SLURM: "Options of Slurm's commands, beside those of the launcher.",
    CONTAINER: "The container that the trainer runs in.",
}
