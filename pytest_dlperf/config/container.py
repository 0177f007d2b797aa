"""The container that a trainer runs in, as files and the command line say it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from pytest_dlperf.model.keys import Arguments, Part, Scalar

_MOUNT = r"^/[^:,]*(:/[^:,]*)?(:ro|:rw)?$"
_MountText = Annotated[
    str,
    Meta(
        pattern=_MOUNT, title="SOURCE[:TARGET][:ro], absolute paths that hold neither ':' nor ','"
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


class Container(Part, frozen=True, kw_only=True):
    """The container that a trainer runs in: what files say under ``container``."""

    runtime: Runtime | None = None
    """What starts the container on a node; none: no container."""
    image: Scalar = ""
    """The image: a name, or a file on the nodes."""
    mounts: Scalar | tuple[_MountText, ...] | None = None
    """Files and folders of the node, SOURCE[:TARGET][:ro]; default: those of the plan."""
    devices: Arguments | None = None
    """Devices: a maker of accelerators, a path below /dev, or the name of a device."""
    options: Arguments = ()
    """Further options of the runtime."""


def pyxis_image(srun: Sequence[str]) -> str | None:
    """Find the image that steps with these options run in, where Slurm has pyxis."""
    image = None
    for option, following in zip(srun, (*srun[1:], ""), strict=False):
        name, equals, value = option.partition("=")
        if name == "--container-image":
            image = value if equals else following
    return image
