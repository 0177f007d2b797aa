"""Where pods run in Kubernetes and what they get: the keys below ``kubernetes``.

Which names, labels and quantities there may be, the API server says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from pytest_dlperf.files.shapes import Key, ListOf, MapOf, Record, Scalar, Shape, Text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_dlperf.files.yamlfile import YamlValue


class Volume(Struct, frozen=True, kw_only=True):
    """A path of pods: a claim, a folder of the node, or memory."""

    path: str
    claim: str | None = None
    host_path: str | None = None
    memory: str | None = None


class Kubernetes(Struct, frozen=True, kw_only=True):
    """Where pods run, and what they get; ``KUBERNETES`` says what each value is."""

    context: str | None = None
    namespace: str | None = None
    template: str | None = None
    image: str | None = None
    device: str = "nvidia.com/gpu"
    resources: Mapping[str, str] = {}
    volumes: tuple[Volume, ...] = ()
    node_selector: Mapping[str, str] = {}
    service_account: str | None = None
    image_pull_secrets: tuple[str, ...] = ()
    queue: str | None = None


# ------------------------------------------------------------------------------ in a file

_NAMED: Final[Shape[Any]] = MapOf(Scalar(), "a mapping of names to values")


def _volumes(given: Mapping[str, Mapping[str, str]], place: YamlValue) -> tuple[Volume, ...]:
    for path, source in given.items():
        if len(source) != 1:
            place.fault(f"{path} is one of a claim, a host_path or memory")
    return tuple(Volume(path=path, **source) for path, source in given.items() if len(source) == 1)


_VOLUMES: Final[Shape[tuple[Volume, ...]]] = MapOf(
    Record(
        dict[str, Any],
        Key("claim", Text("a name"), "The PersistentVolumeClaim of this name."),
        Key("host_path", Text("a path"), "This folder of the node."),
        Key("memory", Scalar("an amount of memory"), "Memory, up to so much: 16Gi."),
    ),
    "a mapping of paths to what is there",
).placed(_volumes)

KUBERNETES: Final = Record(
    Kubernetes,
    Key("context", Text(), "The context of the kubeconfig; default: the current one."),
    Key("namespace", Text(), "Where pods run; default: that of the context."),
    Key(
        "template",
        Text("a file"),
        "A manifest of a Job to begin with, beside cluster.yaml.",
    ),
    Key("image", Text(), "The image of the trainers; container.image of a system goes before it."),
    Key("device", Text(), "The resource that a device is; default: nvidia.com/gpu."),
    Key("resources", _NAMED, "What a node's pod asks for beside devices, as limits."),
    Key("volumes", _VOLUMES, "What pods find where, by path."),
    Key("node_selector", _NAMED, "Labels of the nodes that pods may run on."),
    Key("service_account", Text(), "The service account of pods."),
    Key("image_pull_secrets", ListOf(Text()), "Secrets by which images are pulled."),
    Key("queue", Text(), "The local queue of Kueue that pods wait in."),
)
"""The keys below ``kubernetes`` in ``cluster.yaml``."""
