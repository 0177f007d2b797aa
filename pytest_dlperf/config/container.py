"""The container that a trainer runs in, as files and the command line say it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct, convert

from pytest_dlperf.config.parts import Arguments, Part, Scalar, doc

_MOUNT = r"^/[^:,]*(:/[^:,]*)?(:ro|:rw)?$"
_MountText = Annotated[
    str,
    Meta(
        pattern=_MOUNT,
        title="SOURCE[:TARGET][:ro], absolute paths that hold neither ':' nor ','",
    ),
]


class Runtime(StrEnum):
    """What starts containers on a node."""

    APPTAINER = "apptainer"
    SINGULARITY = "singularity"
    DOCKER = "docker"
    PODMAN = "podman"
    ENROOT = "enroot"
    NONE = "none"
    """No container, whatever a weaker setting says."""


class Vendor(StrEnum):
    """Makers of devices that a runtime can give to a container by itself."""

    NVIDIA = "nvidia"
    AMD = "amd"


class ContainerKeys(Part, frozen=True, kw_only=True):
    """What a file says under ``container``."""

    runtime: Annotated[
        Runtime | None, doc("What starts the container on a node; none: no container.")
    ] = None
    image: Annotated[Scalar | None, doc("The image: a name, or a file on the nodes.")] = None
    mounts: Annotated[
        Scalar | tuple[_MountText, ...] | None,
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
        paths = text.removesuffix(":ro").removesuffix(":rw").split(":")
        return cls(source=paths[0], target=paths[-1], read_only=text.endswith(":ro"))


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


def container(parts: Mapping[str, str | tuple[str, ...]]) -> Container | None:
    """Make a container of the settings that hold; ``None`` where there is to be none.

    Raises:
        ValueError: It has no image.
    """
    if not parts or parts.get("runtime") == Runtime.NONE:
        return None
    if "image" not in parts:
        raise ValueError(
            f"container.{next(iter(parts))} is set, and no container.image: name the image"
        )
    values: dict[str, object] = dict(parts)
    if "mounts" in parts:
        values["mounts"] = tuple(map(Mount.parse, parts["mounts"]))
    return convert(values, Container)


def pyxis_image(srun: Sequence[str]) -> str | None:
    """Find the image that steps with these options run in, where Slurm has pyxis."""
    image = None
    for option, following in zip(srun, (*srun[1:], ""), strict=False):
        name, equals, value = option.partition("=")
        if name == "--container-image":
            image = value if equals else following
    return image
