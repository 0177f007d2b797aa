"""Containers around trainers: how each runtime starts one, ends it, and finds its image.

A container is started below a node's supervisor, which stays outside of it. What only the node
knows stands in a command as a placeholder (``node.containers``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, ClassVar, Final, final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.config.slurm_container import Container, Mount, Runtime, Vendor
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.node import processes
from pytest_dlperf.node.containers import OWNER, UNIQUE, USER_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_dlperf.launch.plan import Node, NodeCommand

PYTHON: Final = "python3"
"""The trainer's Python in an image, by default."""
_HANDED_ON: Final = (processes.MARKER, "PYTHONUNBUFFERED")
"""What the supervisor adds to a trainer's environment."""
_IN_FOLDER: Final = 'cd -- "$1" && shift && exec "$@"'
_WITH_PATH: Final = 'export PYTHONPATH="$1${PYTHONPATH:+:$PYTHONPATH}"; shift; exec "$@"'
"""What a shell in the image does before the trainer's command, with a first argument of its own."""


class ContainerRun(Struct, frozen=True, kw_only=True):
    """One container on one node.

    ``devices`` are as in ``Container``, and of a maker's the host calls those that the container
    may have ``device_names``. ``environment`` are the names of variables that it takes over from
    the process that starts it.
    """

    container: Container
    name: str
    mounts: tuple[Mount, ...] = ()
    devices: tuple[str, ...] = ()
    device_names: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    working_directory: str | None = None

    def with_defaults(self, *defaults: str) -> list[str]:
        """Give the user's options, behind those of ours that they do not say otherwise."""
        said = {option.partition("=")[0] for option in self.container.options}
        kept = (option for option in defaults if option.partition("=")[0] not in said)
        return [*kept, *self.container.options]


class ImageCommands(Struct, frozen=True, kw_only=True):
    """How a runtime knows whether an image is on a host, gets it there, and says what it is."""

    there: tuple[str, ...] = ()
    fetch: tuple[str, ...] = ()
    digest: tuple[str, ...] = ()


class ImageProbe(Struct, frozen=True, kw_only=True):
    """What a look at a host needs to know to look into an image.

    ``run`` stands in front of a command that is to run there, and ``end`` ends that. ``there``,
    ``fetch`` and ``digest`` are those of ``ImageCommands``. Paths ``outside`` have to be on the
    host.
    """

    image: str
    run: tuple[str, ...]
    end: tuple[str, ...]
    there: tuple[str, ...]
    fetch: tuple[str, ...]
    digest: tuple[str, ...]
    outside: tuple[str, ...]


class ContainerEngine(ABC):
    """A runtime of containers."""

    program: ClassVar[str]
    hides_devices: ClassVar[bool] = True
    """Whether a container sees the leased devices of NVIDIA only, which so count from 0."""

    @abstractmethod
    def run(self, box: ContainerRun, command: Sequence[str]) -> list[str]:
        """Give the command that runs another one in a new container, until that has ended."""

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """Give the variables that the runtime needs for a trainer to have those given."""
        return dict(given)

    def end(self, name: str) -> tuple[str, ...]:
        """Give the command that ends a container, if it is there; none if nothing outlives it."""
        del name
        return ()

    def image(self, image: str) -> ImageCommands:
        """Give the commands for an image; none where it is a file, or the runtime looks itself."""
        del image
        return ImageCommands()


class _Service(ContainerEngine):
    """Docker, Podman: processes that do not descend from the command, images that it keeps."""

    ignores: ClassVar[tuple[str, ...]] = ()
    """What makes the end of a container that is gone no mistake."""

    def run(self, box: ContainerRun, command: Sequence[str]) -> list[str]:
        folder = box.working_directory
        return [
            self.program,
            "run",
            "--rm",
            *box.with_defaults(
                "--init",
                "--pull=never",
                "--network=host",
                "--ipc=host",
                *self._own(),
                *([f"--workdir={folder}"] if folder else []),
            ),
            f"--name={box.name}",  # behind the user's options: by it the container is ended
            *(f"--env={name}" for name in box.environment),
            *(f"--volume={_bind(mount)}" for mount in box.mounts),
            *self._devices(box),
            box.container.image,
            *command,
        ]

    def end(self, name: str) -> tuple[str, ...]:
        return (self.program, "rm", "--force", *self.ignores, name)

    def image(self, image: str) -> ImageCommands:
        inspect = (self.program, "image", "inspect")
        return ImageCommands(
            there=(*inspect, image),
            fetch=(self.program, "pull", "--quiet", image),
            digest=(*inspect, "--format={{.Id}}", image),
        )

    def _own(self) -> Iterable[str]:
        raise NotImplementedError

    def _nvidia(self, names: tuple[str, ...]) -> Iterable[str]:
        raise NotImplementedError

    def _devices(self, box: ContainerRun) -> Iterable[str]:
        for device in box.devices:
            if device == Vendor.NVIDIA.value:
                yield from self._nvidia(box.device_names)
            elif device == Vendor.AMD.value:
                yield from ("--device=/dev/kfd", "--device=/dev/dri")
            else:
                yield f"--device={device}"


@final
class Docker(_Service):
    """Docker, whose daemon starts the container, as root unless it is told otherwise."""

    program = "docker"

    def _own(self) -> Iterable[str]:
        yield f"--user={OWNER}"
        # The limit is the daemon's, not the user's; InfiniBand needs locked memory.
        yield "--ulimit=memlock=-1"
        # A user whom the image does not know has no home, and no name.
        yield "--env=HOME=/tmp"

    def _nvidia(self, names: tuple[str, ...]) -> Iterable[str]:
        # The client takes it for a line of values with commas between them.
        yield f'--gpus="device={",".join(names)}"'


@final
class Podman(_Service):
    """Podman, which has no daemon: what it starts descends from the run, and has its limits."""

    program = "podman"
    ignores = ("--ignore",)

    def _own(self) -> Iterable[str]:
        yield f"--userns={USER_NAMESPACE}"

    def _nvidia(self, names: tuple[str, ...]) -> Iterable[str]:
        return (f"--device=nvidia.com/gpu={name}" for name in names)


class Apptainer(ContainerEngine):
    """Apptainer: a file as image, the host's devices, and its environment but for the image's."""

    program = "apptainer"
    hides_devices = False

    def run(self, box: ContainerRun, command: Sequence[str]) -> list[str]:
        """Give ``apptainer exec``."""
        known = {Vendor.NVIDIA.value: "--nv", Vendor.AMD.value: "--rocm"}
        folder = box.working_directory
        return [
            self.program,
            "exec",
            *box.with_defaults(
                # Packages in the home would be taken for those of the image.
                "--no-home",
                *([f"--pwd={folder}"] if folder else []),
                *(known[one] for one in box.devices if one in known),
            ),
            *(f"--bind={_bind(mount)}" for mount in box.mounts),
            box.container.image,
            *command,
        ]

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """Say each variable again by the name under which it wins over the image's own."""
        prefix = f"{self.program.upper()}ENV_"
        return {**given, **{f"{prefix}{name}": value for name, value in given.items()}}


@final
class Singularity(Apptainer):
    """SingularityCE, which is started in the same way."""

    program = "singularity"


@final
class Enroot(ContainerEngine):
    """Enroot: a file or an unpacked container as image, and an environment that is named."""

    program = "enroot"

    def run(self, box: ContainerRun, command: Sequence[str]) -> list[str]:
        """Give ``enroot start``."""
        if box.working_directory is not None:
            command = ["sh", "-c", _IN_FOLDER, "sh", box.working_directory, *command]
        nvidia = Vendor.NVIDIA.value in box.devices
        return [
            self.program,
            "start",
            *box.with_defaults(),
            *([f"--env=NVIDIA_VISIBLE_DEVICES={','.join(box.device_names)}"] if nvidia else []),
            *(["--env=NVIDIA_DRIVER_CAPABILITIES=compute,utility"] if nvidia else []),
            *(f"--env={name}" for name in box.environment),
            *(
                f"--mount={mount.source}:{mount.target}:none:x-create=auto,rbind"
                f"{',ro' * mount.read_only}"
                for mount in box.mounts
            ),
            box.container.image,
            *command,
        ]


ENGINES: Final[Mapping[Runtime, ContainerEngine]] = {
    Runtime.APPTAINER: Apptainer(),
    Runtime.SINGULARITY: Singularity(),
    Runtime.DOCKER: Docker(),
    Runtime.PODMAN: Podman(),
    Runtime.ENROOT: Enroot(),
}


def engine_of(container: Container) -> ContainerEngine:
    """Give the runtime of a container.

    Raises:
        UsageError: None was named.
    """
    if container.runtime is None:
        known = ", ".join(runtime.value for runtime in ENGINES)
        raise UsageError(
            f"container.image is {container.image!r}, and no container.runtime says what starts it "
            f"on the nodes; there are {known}"
        )
    return ENGINES[container.runtime]


def node_inside(container: Container, node: Node, kind: str | None) -> Node:
    """Give a node as it looks from inside: devices that alone are seen count from 0."""
    hidden = engine_of(container).hides_devices
    if not hidden or Vendor.NVIDIA.value not in _devices(container, node.accelerators.kind or kind):
        return node
    places = range(len(node.device_ids))
    seen = replace(node.accelerators, ids=tuple(map(str, places)))
    return replace(node, device_ids=tuple(places), accelerators=seen)


def _devices(container: Container, kind: str | None) -> tuple[str, ...]:
    """Give the devices of a container: without the user's word those of the host's kind."""
    if container.devices is not None:
        return container.devices
    return tuple(vendor.value for vendor in Vendor if vendor.value == kind)


class VisiblePaths(Struct, frozen=True, kw_only=True):
    """What of a node's files a container sees, each under its own path.

    ``always`` are files and folders of the plan, ``unless_said`` those that ``mounts`` of the user
    replaces: they may be in the image.
    """

    always: tuple[str, ...] = ()
    unless_said: tuple[str, ...] = ()

    def mounts(self, container: Container, *more: str) -> tuple[Mount, ...]:
        """Give the mounts of a container that sees ``more`` besides.

        Raises:
            UsageError: A path cannot be mounted.
        """
        said = container.mounts
        found = list(said or ())
        # Folders before what is in them.
        for path in sorted((*more, *self.always, *(self.unless_said if said is None else ()))):
            if ":" in path or "," in path:
                raise UsageError(
                    f"{path!r} cannot be seen in a container: to runtimes ':' and ',' are the ends "
                    "of paths. Rename it, or link to it"
                )
            if not any(_is_below(path, mount) for mount in found):
                found.append(Mount(source=path, target=path))
        return tuple(found)


def _bind(mount: Mount) -> str:
    return f"{mount.source}:{mount.target}{':ro' * mount.read_only}"


def _is_below(path: str, mount: Mount) -> bool:
    return mount.source == mount.target and PurePosixPath(path).is_relative_to(mount.source)


def inside(
    container: Container, sight: VisiblePaths, *, kind: str | None, scratch: str
) -> ImageProbe:
    """Say how to look into an image on a host, with the eyes of a trainer on this kind of device.

    Raises:
        UsageError: A path cannot be mounted, or what starts the container is unknown.
    """
    engine = engine_of(container)
    mounts = sight.mounts(container)
    box = ContainerRun(
        container=container,
        name=UNIQUE,
        mounts=mounts,
        devices=_devices(container, kind),
        # One is enough to see that the runtime can give any.
        device_names=("0",),
    )
    commands = engine.image(container.image)
    return ImageProbe(
        image=container.image,
        run=tuple(engine.run(box, ())),
        end=engine.end(UNIQUE),
        there=commands.there,
        fetch=commands.fetch,
        digest=commands.digest,
        outside=(scratch, *(mount.source for mount in mounts)),
    )


def contained(
    container: Container, command: NodeCommand, node: Node, sight: VisiblePaths, *, kind: str | None
) -> NodeCommand:
    """Put the command of a node into a container, which sees the run's own folder besides.

    Raises:
        UsageError: A path cannot be mounted, or a log cannot be found from outside.
    """
    engine = engine_of(container)
    folder = command.working_directory
    if folder is not None:
        folder = str(Path.cwd() / folder)
        sight = replace(sight, unless_said=(*sight.unless_said, folder))
    arguments: Sequence[str] = command.arguments
    if command.python_path:
        arguments = ["sh", "-c", _WITH_PATH, "sh", ":".join(command.python_path), *arguments]
    box = ContainerRun(
        container=container,
        name=PurePosixPath(node.folder).name,
        mounts=sight.mounts(container, node.folder),
        devices=_devices(container, node.accelerators.kind or kind),
        device_names=node.accelerators.names(node.device_ids),
        environment=(*_HANDED_ON, *command.environment),
        working_directory=folder,
    )
    end = engine.end(box.name)
    return replace(
        command,
        arguments=tuple(engine.run(box, arguments)),
        environment=engine.environment(command.environment),
        python_path=(),
        # The runtime is started anywhere.
        working_directory=None,
        log_file=_from_outside(command.log_file, folder),
        container=box.name,
        at_end=(end,) if end else (),
    )


def _from_outside(log_file: str | None, folder: str | None) -> str | None:
    if log_file is None or log_file.startswith("/"):
        return log_file
    if folder is None:
        raise UsageError(
            f"log.file is {log_file!r} in a folder that only the image knows; write "
            "{scratch_directory} in front of it, or say working_directory"
        )
    return f"{folder}/{log_file}"
