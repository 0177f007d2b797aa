"""Containers around trainers: how each runtime starts one, ends it, and finds its image.

A container is started below a node's supervisor, which stays outside of it. What only the node
knows stands in a command as a placeholder (``node.containers``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.config.launch_keys import Container, Runtime
from pytest_dlperf.launch.hosts import Node
from pytest_dlperf.launch.plan import NodeCommand
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.keys import words
from pytest_dlperf.node import processes
from pytest_dlperf.node.containers import OWNER, UNIQUE, USER_NAMESPACE

PYTHON: Final = "python3"
"""The trainer's Python in an image, by default."""
_HANDED_ON: Final = (processes.MARKER, "PYTHONUNBUFFERED")
"""What the supervisor adds to a trainer's environment."""
ENTER: Final = (
    'cd -- "$1" || exit; [ -z "$2" ] || export PYTHONPATH="$2${PYTHONPATH:+:$PYTHONPATH}"; '
    'shift 2; exec "$@"'
)
"""What a shell in the image does before the trainer's command: folder and paths come first."""
_DIGEST: Final = ("image", "inspect", "--format={{.Id}}")
_Mount = tuple[str, str, bool]
"""A file or folder of a node, where the container has it, and whether only to read."""


class _Engine(Struct, frozen=True, kw_only=True):
    """How a runtime starts a container, with options that have ``{}`` for what they name."""

    run: tuple[str, ...]
    defaults: tuple[str, ...] = ()
    """Options that those of the user replace."""
    name: str | None = None
    """Where the runtime has a service that keeps images, and its containers outlive the command."""
    variable: str | None = None
    """A variable that is handed on; without the option, the container has all of them."""
    prefix: str | None = None
    """Names with it go before the image's own variables."""
    mount: str
    read_only: str = ":ro"
    devices: Mapping[str, tuple[str, ...]]
    """The options for a maker's devices: ``{all}`` of them, or ``{each}``."""
    device: str | None = None
    """Any other device."""
    hides_devices: bool = True
    """Whether a container sees the leased devices of NVIDIA only, which so count from 0."""
    end: tuple[str, ...] = ()
    """What ends a container, in front of its name."""


_DOCKER: Final = _Engine(
    run=("docker", "run", "--rm"),
    defaults=(
        *("--init", "--network=host", "--ipc=host", f"--user={OWNER}"),
        # The limit is the daemon's, not the user's; InfiniBand needs locked memory.
        "--ulimit=memlock=-1",
        # A user whom the image does not know has no home, and no name.
        "--env=HOME=/tmp",
    ),
    name="--name={}",
    variable="--env={}",
    mount="--volume={}:{}{}",
    devices={
        # The client takes it for a line of values with commas between them.
        "nvidia": ('--gpus="device={all}"',),
        "amd": ("--device=/dev/kfd", "--device=/dev/dri"),
    },
    device="--device={}",
    end=("docker", "rm", "--force"),
)
_APPTAINER: Final = _Engine(
    run=("apptainer", "exec"),
    # Packages in the home would be taken for those of the image.
    defaults=("--no-home",),
    prefix="APPTAINERENV_",
    mount="--bind={}:{}{}",
    devices={"nvidia": ("--nv",), "amd": ("--rocm",)},
    hides_devices=False,
)
ENGINES: Final[Mapping[Runtime, _Engine]] = {
    Runtime.APPTAINER: _APPTAINER,
    Runtime.SINGULARITY: replace(_APPTAINER, run=("singularity", "exec"), prefix="SINGULARITYENV_"),
    Runtime.DOCKER: _DOCKER,
    # It has no daemon: what it starts descends from the run, and has its limits.
    Runtime.PODMAN: replace(
        _DOCKER,
        run=("podman", "run", "--rm"),
        defaults=("--init", "--network=host", "--ipc=host", f"--userns={USER_NAMESPACE}"),
        devices={**_DOCKER.devices, "nvidia": ("--device=nvidia.com/gpu={each}",)},
        end=("podman", "rm", "--force", "--ignore"),
    ),
    Runtime.ENROOT: _Engine(
        run=("enroot", "start"),
        variable="--env={}",
        mount="--mount={}:{}:none:x-create=auto,rbind{}",
        read_only=",ro",
        devices={
            "nvidia": (
                "--env=NVIDIA_VISIBLE_DEVICES={all}",
                "--env=NVIDIA_DRIVER_CAPABILITIES=compute,utility",
            )
        },
    ),
}


class ImageProbe(Struct, frozen=True, kw_only=True):
    """What a look at a host needs to know to look into an image.

    ``run`` stands in front of a command that is to run there, and ``end`` ends that. ``digest``
    prints what the image is, where the runtime keeps it. Paths ``outside`` have to be on the host.
    """

    image: str
    run: tuple[str, ...]
    end: tuple[str, ...]
    digest: tuple[str, ...]
    outside: tuple[str, ...]


def engine_of(container: Container) -> _Engine:
    """Give the runtime of a container."""
    if container.runtime is None:
        known = ", ".join(runtime.value for runtime in ENGINES)
        raise UsageError(
            "container.image is set, and no container.runtime says what starts it on the nodes; "
            f"there are {known}"
        )
    return ENGINES[container.runtime]


def node_in_container(container: Container, node: Node, kind: str | None) -> Node:
    """Give a node as it looks from inside: devices that alone are seen count from 0."""
    hidden = engine_of(container).hides_devices
    if not hidden or "nvidia" not in _devices(container, node.accelerators.kind or kind):
        return node
    places = range(len(node.device_ids))
    seen = replace(node.accelerators, ids=tuple(map(str, places)))
    return replace(node, device_ids=tuple(places), accelerators=seen)


def image_probe(
    container: Container,
    *,
    always: Sequence[str],
    unless_said: Sequence[str],
    kind: str | None,
    scratch: str,
) -> ImageProbe:
    """Say how to look into an image on a host, as a trainer on this kind of device would."""
    engine, image = engine_of(container), container.image
    mounts = _mounts(container, always, unless_said)
    return ImageProbe(
        image=image,
        # One device is enough to see that the runtime can give any.
        run=(*_start(container, UNIQUE, mounts, kind=kind, device_names=("0",)), image),
        end=(*engine.end, UNIQUE) if engine.end else (),
        digest=(engine.run[0], *_DIGEST, image) if engine.end else (),
        outside=(scratch, *(source for source, _, _ in mounts)),
    )


def contained(  # noqa: PLR0913 - what of a node's files the container sees, by name
    container: Container,
    command: NodeCommand,
    node: Node,
    *,
    always: Sequence[str],
    unless_said: Sequence[str],
    kind: str | None,
) -> NodeCommand:
    """Put the command of a node into a container.

    It sees the run's own folder, and under their own paths files and folders of the plan
    ``always``, and others ``unless_said`` otherwise by the user's mounts: they may be in the image.
    """
    engine = engine_of(container)
    arguments: Sequence[str] = command.arguments
    folder, log_file = command.working_directory, command.log_file
    if folder is not None:
        folder = str(Path.cwd() / folder)
        unless_said = (*unless_said, folder)
    if folder or command.python_path:
        entered = (folder or ".", ":".join(command.python_path))
        arguments = ["sh", "-c", ENTER, "sh", *entered, *arguments]
    if log_file is not None and not log_file.startswith("/"):
        if folder is None:
            raise UsageError(
                f"launch.log_file is {log_file!r} in a folder that only the image knows; write "
                "{scratch_directory} in front of it, or say working_directory"
            )
        log_file = f"{folder}/{log_file}"
    name = PurePosixPath(node.folder).name
    started = _start(
        container,
        name,
        _mounts(container, (*always, node.folder), unless_said),
        kind=node.accelerators.kind or kind,
        device_names=node.accelerators.names(node.device_ids),
        environment=(*_HANDED_ON, *command.environment),
    )
    environment = command.environment
    if engine.prefix is not None:
        inside = {f"{engine.prefix}{name}": value for name, value in environment.items()}
        environment = {**environment, **inside}
    return replace(
        command,
        arguments=(*started, container.image, *arguments),
        environment=environment,
        python_path=(),
        # The runtime is started anywhere.
        working_directory=None,
        log_file=log_file,
        container=name,
        at_end=(*engine.end, name) if engine.end else (),
    )


def _start(  # noqa: PLR0913 - what a container has, by name
    container: Container,
    name: str,
    mounts: Iterable[_Mount],
    *,
    kind: str | None,
    device_names: Sequence[str],
    environment: Sequence[str] = (),
) -> list[str]:
    """Give what starts a container, in front of the image and the command in it."""
    engine, own = engine_of(container), words(container.options)
    said = {option.partition("=")[0] for option in own}
    options = [*(it for it in engine.defaults if it.partition("=")[0] not in said), *own]
    if engine.name:
        options.append(engine.name.format(name))  # behind the user's: by it the container is ended
    for device in _devices(container, kind):
        if device in engine.devices:
            for option in engine.devices[device]:
                each = device_names if "{each}" in option else [""]
                options += (option.format(each=one, all=",".join(device_names)) for one in each)
        elif engine.device:
            options.append(engine.device.format(device))
    if engine.variable:
        options += map(engine.variable.format, environment)
    for source, target, is_read_only in mounts:
        options.append(engine.mount.format(source, target, engine.read_only * is_read_only))
    return [*engine.run, *options]


def _devices(container: Container, kind: str | None) -> tuple[str, ...]:
    """Give the devices of a container: without the user's word those of the host's kind."""
    if container.devices is not None:
        return words(container.devices)
    return (kind,) if kind and kind in engine_of(container).devices else ()


def _mounts(
    container: Container, always: Iterable[str], unless_said: Iterable[str]
) -> list[_Mount]:
    mounts: list[_Mount] = []
    for text in words(container.mounts):
        paths = text.removesuffix(":ro").removesuffix(":rw").split(":")
        mounts.append((paths[0], paths[-1], text.endswith(":ro")))
    # Folders before what is in them.
    for path in sorted((*always, *(unless_said if container.mounts is None else ()))):
        if ":" in path or "," in path:
            raise UsageError(
                f"{path!r} cannot be seen in a container: to runtimes ':' and ',' are the ends of "
                "paths. Rename it, or link to it"
            )
        if not any(
            source == target and PurePosixPath(path).is_relative_to(source)
            for source, target, _ in mounts
        ):
            mounts.append((path, path, False))
    return mounts
