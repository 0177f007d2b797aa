"""A cluster: one set of machines whose numbers are comparable, and its ``cluster.yaml``."""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field

from pytest_dlperf.config.assignments import VARS
from pytest_dlperf.config.kubernetes_shapes import (
    IMAGE,
    MEMORY,
    NAMESPACE,
    NODE_SELECTOR,
    OBJECT_NAME,
    QUEUE,
    RESOURCE,
    RESOURCES,
)
from pytest_dlperf.config.launch_shapes import PUBLIC_ENVIRONMENT
from pytest_dlperf.files.shapes import (
    Integer,
    Key,
    ListOf,
    MapOf,
    Number,
    Record,
    Scalar,
    Shape,
    Text,
    one_of,
)
from pytest_dlperf.files.yamlfile import load, nearest
from pytest_dlperf.model.case import PRECISION_PATTERN
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.measurement import MACHINE_FACTS, Estimator

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from pytest_dlperf.config.assignments import Assignment
    from pytest_dlperf.files.yamlfile import YamlValue

CLUSTER_FILE: Final = "cluster.yaml"


class JobKind(Enum):
    """What a run is submitted as."""

    JOB = "job"
    JOB_SET = "jobset"
    TRAIN_JOB = "trainjob"


class Volume(Struct, frozen=True, kw_only=True):
    """A path of pods: a claim, a folder of the node, or memory."""

    path: str
    claim: str | None = None
    host_path: str | None = None
    memory: str | None = None


class Kubernetes(Struct, frozen=True, kw_only=True):
    """Where jobs go, and what their pods get; ``KUBERNETES`` says what each value is."""

    kind: JobKind = JobKind.JOB
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
    runtime: str = "torch-distributed"


class UnknownClusterError(UsageError):
    """No such cluster; the message lists those that there are."""


class Control(Struct, frozen=True, kw_only=True):
    """The accepted software of a cluster, to be run beside what is tested.

    ``assignments`` go before all that is set otherwise.
    """

    assignments: tuple[Assignment, ...]
    description: str | None = None


class Cluster(Struct, frozen=True, kw_only=True):
    """One set of machines whose numbers are comparable.

    ``CLUSTER_KEYS`` says what each value is. ``systems`` is ``None`` for all; ``machine`` has the
    keys of ``Fingerprint.machine``, and holds for baselines that do not say it themselves.
    """

    name: str
    directory: Path
    estimator: Estimator = Estimator.STEADY
    systems: tuple[str, ...] | None = None
    description: str | None = None
    assignments: tuple[Assignment, ...] = ()
    public_environment: tuple[str, ...] = ()
    devices_per_node: int | None = None
    python: str | None = None
    scratch: str | None = None
    control: Control | None = None
    kubernetes: Kubernetes = field(default_factory=Kubernetes)
    machine: Mapping[str, str] = {}
    peak_tflops: Mapping[str, float] = {}
    hardware: Mapping[str, str] = {}
    software: Mapping[str, str] = {}


# ------------------------------------------------------------------------------ in a file


_OF_PODS: Final = ("volumes", "node_selector", "service_account", "image_pull_secrets")


def _effective(settings: Kubernetes, place: YamlValue) -> Kubernetes:
    """Refuse keys without an effect on what a run is submitted as."""
    is_train_job = settings.kind is JobKind.TRAIN_JOB
    idle = _OF_PODS if is_train_job else ("runtime",)
    for name, value in place.entries():
        if name in idle:
            value.fault(
                "has no effect on a TrainJob, whose runtime says how pods look"
                if is_train_job
                else f"has no effect with 'kind: {settings.kind.value}', only with 'kind: trainjob'"
            )
    return settings


def _volumes(given: Mapping[str, Mapping[str, str]], place: YamlValue) -> tuple[Volume, ...]:
    for path, source in given.items():
        if len(source) != 1:
            place.fault(f"{path} is one of a claim, a host_path or memory")
    return tuple(Volume(path=path, **source) for path, source in given.items() if len(source) == 1)


_VOLUMES: Final[Shape[tuple[Volume, ...]]] = MapOf(
    Record(
        dict[str, Any],
        Key("claim", OBJECT_NAME, "The PersistentVolumeClaim of this name."),
        Key(
            "host_path",
            Text("an absolute path without '..'", pattern=r"^/(?!.*(?:^|/)\.\.(?:/|$))"),
            "This folder of the node.",
        ),
        Key("memory", MEMORY, "Memory, up to so much."),
    ),
    "a mapping of paths to what is there",
    names="/[^:]*",
    refused="is not an absolute path without a colon",
).placed(_volumes)

KUBERNETES: Final = Record(
    Kubernetes,
    Key("kind", one_of(JobKind), "What a run is submitted as."),
    Key("context", Text(), "The context of the kubeconfig; default: the current one."),
    Key("namespace", NAMESPACE, "Where jobs go; default: that of the context."),
    Key(
        "template",
        Text("a file"),
        "A manifest to begin with, beside cluster.yaml; default: the one that ships, by kind.",
    ),
    Key("image", IMAGE, "The image of the trainers; container.image of a system goes before it."),
    Key("device", RESOURCE, "The resource that a device is; default: nvidia.com/gpu."),
    Key("resources", RESOURCES, "What a node's pod asks for beside devices, as limits."),
    Key("volumes", _VOLUMES, "What pods find where, by path."),
    Key("node_selector", NODE_SELECTOR, "Labels of the nodes that pods may run on."),
    Key("service_account", OBJECT_NAME, "The service account of pods."),
    Key("image_pull_secrets", ListOf(OBJECT_NAME), "Secrets by which images are pulled."),
    Key("queue", QUEUE, "The local queue of Kueue that jobs go through."),
    Key(
        "runtime",
        OBJECT_NAME,
        "The ClusterTrainingRuntime of a TrainJob; default: torch-distributed.",
    ),
)
"""The keys below ``kubernetes`` in ``cluster.yaml``."""

FACTS: Final = MapOf(Scalar())
"""Facts by name: any scalars, as they are written."""

MACHINE: Final = Record(
    dict[str, str],
    *(
        Key(name, Scalar(), f"{meaning[0].upper()}{meaning[1:]}.")
        for name, meaning in MACHINE_FACTS.items()
    ),
)
"""What numbers were measured on, with the keys of ``Fingerprint.machine``."""

MACHINE_HELP: Final = (
    "What the numbers were measured on, the device as its tool prints it. It must match, as far "
    "as both sides know it, or nothing is compared."
)
ESTIMATOR: Final = Key(
    "estimator",
    one_of(Estimator),
    "How throughput is computed from a log; default for a cluster: steady. Numbers of different "
    "estimators are never compared.",
)

CLUSTER_KEYS: Final = (
    ESTIMATOR,
    Key("description", Text(), "What it is, for the reader."),
    Key(
        "systems",
        ListOf(Text("a system's name"), "a list of systems"),
        "The systems that it runs; default: all.",
    ),
    Key(
        "vars",
        VARS,
        "What is set for launches: by system id, or '*' for every system.",
        argument="assignments",
    ),
    PUBLIC_ENVIRONMENT,
    Key(
        "control",
        Record(
            Control,
            Key(
                "vars",
                VARS,
                "What makes a launch one of the accepted software; it goes before all that is set "
                "otherwise.",
                required=True,
                argument="assignments",
            ),
            Key("description", Text(), "What the accepted software is."),
        ),
        "The accepted software, to be run beside what is tested after a case has regressed.",
    ),
    Key("devices_per_node", Integer(1), "Devices of hosts that are given without a number."),
    Key(
        "python",
        Text("a Python interpreter"),
        "The Python on the nodes, 3.6 or newer, that supervises a run; default: python3.",
    ),
    Key(
        "scratch",
        Text("the absolute path of a folder", pattern="^/"),
        "The folder on every node in which runs make their own; default: /tmp. Choose a large "
        "local disk if trainers leave checkpoints, or /tmp lies in memory.",
    ),
    Key(
        "kubernetes",
        KUBERNETES.placed(_effective),
        "Where --dlperf-launcher kubernetes submits runs, and how.",
    ),
    Key("machine", MACHINE, MACHINE_HELP),
    Key(
        "peak_tflops",
        MapOf(
            Number(unit="TFLOP/s"),
            "a mapping of precisions to numbers",
            names=PRECISION_PATTERN,
            refused="is not a precision such as bf16",
        ),
        "Peak of one device in TFLOP/s, by precision, for mfu; default: published ones.",
    ),
    Key("hardware", FACTS, "Free facts for the reader, by name."),
    Key("software", FACTS, "Versions for the reader, by name."),
)
"""The keys of ``cluster.yaml``."""


def find_cluster(baselines_directory: Path, name: str, *, local: str) -> Cluster:
    """Find a cluster by name; the ``local`` one is there without a file.

    Raises:
        UnknownClusterError: There is no such folder with a ``cluster.yaml``.
        YamlError: Its ``cluster.yaml`` has mistakes.
    """
    known = sorted(
        {file.parent.name for file in baselines_directory.glob(f"*/{CLUSTER_FILE}")} | {local}
    )
    if name not in known:
        raise UnknownClusterError(
            f"there is no cluster {name!r} below {baselines_directory}; "
            f"there are: {', '.join(known)}. A new one begins with a file "
            f"{baselines_directory / name / CLUSTER_FILE} that says 'estimator: steady'"
        )
    file = baselines_directory / name / CLUSTER_FILE
    if not file.exists():
        return Cluster(name=name, directory=file.parent)
    build = partial(Cluster, name=name, directory=file.parent)
    return load(file, Record(build, *CLUSTER_KEYS).read)


def undeclared_systems(cluster: Cluster, declared: Collection[str]) -> Iterator[str]:
    """Yield a message for each system that ``cluster.yaml`` names and no system file declares."""
    for name in cluster.systems or ():
        if name not in declared:
            near = nearest(name, declared)
            yield f"names the system {name!r}, which no system file declares{near}"
