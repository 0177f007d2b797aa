"""What runs around a trainer on its node: options of the engine that starts it, and a container.

A system's file, the cluster's and the command line say it part by part. A stronger one replaces
a weaker one's part, a list as a whole.
"""

from __future__ import annotations

import shlex
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Struct
from msgspec.structs import asdict

from pytest_dlperf.config.parts import Arguments, Part, Scalar, doc
from pytest_dlperf.files.yamlfile import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Value = str | tuple[str, ...]

ENVIRONMENT: Final = "env"
SLURM: Final = "slurm"
CONTAINER: Final = "container"
EVERY_SYSTEM_TAKES: Final = (
    "extra_args",
    ENVIRONMENT,
    "python",
    "working_directory",
    "pause_s",
    SLURM,
    CONTAINER,
)
"""What the user can set for any system, beside the system's own variables."""


class Runtime(StrEnum):
    """What starts containers on a node."""

    APPTAINER = "apptainer"
    SINGULARITY = "singularity"
    DOCKER = "docker"
    PODMAN = "podman"
    ENROOT = "enroot"
    NONE = "none"
    """No container, whatever a weaker one says."""


class Vendor(StrEnum):
    """Makers of devices that a runtime can give to a container by itself."""

    NVIDIA = "nvidia"
    AMD = "amd"


class SlurmKeys(Part, frozen=True, kw_only=True):
    """Options of Slurm's commands: what a file says under ``slurm``."""

    srun: Annotated[Arguments | None, doc("Options of the srun that starts a node's step.")] = None
    job: Annotated[
        Arguments | None, doc("Options of the salloc or sbatch that holds nodes for a case.")
    ] = None


class ContainerKeys(Part, frozen=True, kw_only=True):
    """What a file says under ``container``."""

    runtime: Annotated[
        Runtime | None, doc("What starts the container on a node; none: no container.")
    ] = None
    image: Annotated[Scalar | None, doc("The image: a name, or a file on the nodes.")] = None
    mounts: Annotated[
        Arguments | None,
        doc("Files and folders of the node, SOURCE[:TARGET][:ro]; default: those of the plan."),
    ] = None
    devices: Annotated[
        Arguments | None,
        doc("Devices: a maker of accelerators, a path below /dev, or the name of a device."),
    ] = None
    options: Annotated[Arguments | None, doc("Further options of the runtime.")] = None


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
                "a mount is SOURCE[:TARGET][:ro], absolute paths that hold neither ':' nor ','"
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


def parts_of(said: SlurmKeys | ContainerKeys) -> dict[str, Value]:
    """Return the parts that a file says."""
    return {name: value for name, value in asdict(said).items() if value is not None}


def split_arguments(text: str) -> tuple[str, ...]:
    """Split arguments as a shell does, and do nothing else that a shell does."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        # The text may hold a secret.
        raise ValueError(f"the arguments cannot be told apart: {error}") from error


def pyxis_image(srun: Sequence[str]) -> str | None:
    """Find the image that steps with these options run in, where Slurm has pyxis."""
    named = None
    for option, following in zip(srun, (*srun[1:], ""), strict=False):
        name, equals, value = option.partition("=")
        if name == "--container-image":
            named = value if equals else following
    return named


def container(parts: Mapping[str, Value]) -> Container | None:
    """Make a value of the parts of ``container`` that hold; ``None`` where there is to be none.

    Raises:
        ValueError: It has no image.
    """
    runtime = None if "runtime" not in parts else Runtime(str(parts["runtime"]))
    if not parts or runtime is Runtime.NONE:
        return None  # whatever else is set
    if "image" not in parts:
        raise ValueError(
            f"container.{next(iter(parts))} is set, and no container.image: name the image"
        )
    mounts, devices = parts.get("mounts"), parts.get("devices")
    return Container(
        runtime=runtime,
        image=str(parts["image"]),
        mounts=None if mounts is None else tuple(map(Mount.parse, _list(mounts))),
        devices=None if devices is None else _list(devices),
        options=_list(parts.get("options", ())),
    )


def is_list(name: str, key: str) -> bool:
    """Whether a part is a list, as all options of engines are."""
    return bool(key) and name != ENVIRONMENT and not (name == CONTAINER and key in _WORDS)


def checked_part(name: str, key: str, value: Value) -> Value:
    """Return a part; raise a ``ValueError`` if there is no such part, or it cannot be read.

    Those of engines that plugins add are the engine's to check.
    """
    parts = _PARTS.get(name)
    if parts is None:
        return value
    if key not in parts:
        written = ", ".join(f"{name}.{part}=…" for part in parts)
        said = f"has no {key!r}{nearest(key, parts)}" if key else "has parts"
        raise ValueError(f"{name} {said}; write one of {written}")
    if key == "runtime":
        known = [runtime.value for runtime in Runtime]
        if value not in known:
            hint = nearest(str(value), known)
            raise ValueError(f"no such container runtime{hint}; there are {', '.join(known)}")
    elif key == "mounts":
        for text in _list(value):
            Mount.parse(text)
    return value


def _list(part: Value) -> tuple[str, ...]:
    return (part,) if isinstance(part, str) else part


def _is_path(text: str) -> bool:
    return text.startswith("/") and "," not in text


_PARTS: Final = {SLURM: SlurmKeys.__struct_fields__, CONTAINER: ContainerKeys.__struct_fields__}
_WORDS: Final = ("runtime", "image")
"""The parts that are single values."""
