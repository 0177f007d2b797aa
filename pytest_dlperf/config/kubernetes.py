"""What a cluster file says of Kubernetes: where jobs go, and what their pods get."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from pytest_dlperf.files.shapes import Key, ListOf, MapOf, Record, Scalar, Shape, Text, one_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_dlperf.files.yamlfile import YamlValue


class JobKind(Enum):
    """What a run is submitted as."""

    JOB = "job"
    JOB_SET = "jobset"
    TRAIN_JOB = "trainjob"


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """What pods find at a path: a claim, a folder of the node, or memory."""

    path: str
    claim: str | None = None
    host_path: str | None = None
    memory: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubernetes:
    """Where jobs go, and what their pods get; ``KUBERNETES`` says what each value is."""

    kind: JobKind = JobKind.JOB
    context: str | None = None
    namespace: str | None = None
    template: str | None = None
    image: str | None = None
    device: str = "nvidia.com/gpu"
    resources: Mapping[str, str] = field(default_factory=dict)
    volumes: tuple[Volume, ...] = ()
    node_selector: Mapping[str, str] = field(default_factory=dict)
    service_account: str | None = None
    image_pull_secrets: tuple[str, ...] = ()
    queue: str | None = None
    runtime: str = "torch-distributed"


def _volumes(given: Mapping[str, Mapping[str, str]], place: YamlValue) -> tuple[Volume, ...]:
    for path, source in given.items():
        if len(source) != 1:
            place.fault(f"{path} is one of a claim, a host_path or memory")
    return tuple(Volume(path=path, **source) for path, source in given.items() if len(source) == 1)


_VOLUMES: Final[Shape[tuple[Volume, ...]]] = MapOf(
    Record(
        dict[str, Any],
        Key("claim", Text("a PersistentVolumeClaim"), "The PersistentVolumeClaim of this name."),
        Key("host_path", Text("a path", pattern="^/"), "This folder of the node."),
        Key("memory", Scalar("a quantity such as 16Gi"), "Memory, up to so much."),
    ),
    "a mapping of paths to what is there",
    names="/.*",
    refused="is not an absolute path",
).placed(_volumes)

KUBERNETES: Final = Record(
    Kubernetes,
    Key("kind", one_of(JobKind), "What a run is submitted as."),
    Key("context", Text(), "The context of the kubeconfig; default: the current one."),
    Key("namespace", Text(), "Where jobs go; default: that of the context."),
    Key(
        "template",
        Text("a file"),
        "A manifest to begin with, beside cluster.yaml; default: the one that ships, by kind.",
    ),
    Key("image", Text(), "The image of the trainers; container.image of a system goes before it."),
    Key("device", Text(), "The resource that a device is; default: nvidia.com/gpu."),
    Key("resources", MapOf(Scalar()), "What a node's pod asks for beside devices, as limits."),
    Key("volumes", _VOLUMES, "What pods find where, by path."),
    Key("node_selector", MapOf(Scalar()), "Labels of the nodes that pods may run on."),
    Key("service_account", Text(), "The service account of pods."),
    Key("image_pull_secrets", ListOf(Text()), "Secrets by which images are pulled."),
    Key("queue", Text(), "The local queue of Kueue that jobs go through."),
    Key("runtime", Text(), "The ClusterTrainingRuntime of a TrainJob; default: torch-distributed."),
)
"""The keys below ``kubernetes`` in ``cluster.yaml``."""
