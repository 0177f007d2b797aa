"""Where runs go in Kubernetes and what their pods get: the keys below ``kubernetes``.

Names, labels and quantities follow the rules of ``k8s.io/apimachinery`` (``pkg/util/validation``,
``pkg/api/resource``): the API server would refuse the run, and only once it has been planned.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from pytest_dlperf.files.shapes import Key, ListOf, MapOf, Record, Scalar, Shape, Text, one_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_dlperf.files.yamlfile import YamlValue


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


# ------------------------------------------------------------------------------ in a file

_DNS_LABEL: Final = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_DNS_NAME: Final = rf"{_DNS_LABEL}(?:\.{_DNS_LABEL})*"
_LABEL: Final = "[A-Za-z0-9](?:[-_.A-Za-z0-9]*[A-Za-z0-9])?"
_QUALIFIED: Final = f"(?:(?=[^/]{{1,253}}/){_DNS_NAME}/)?(?=[^/]{{1,63}}$){_LABEL}"
_PATH_PART: Final = "[a-z0-9]+(?:(?:[.]|_{1,2}|-+)[a-z0-9]+)*"
_AMOUNT: Final = r"(?:[0-9]{1,18}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})"
_QUANTITY: Final = rf"{_AMOUNT}(?:[KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]{{1,2}})?"
# No finer than a thousandth, of a core.
_CORES: Final = r"[0-9]{1,6}(?:\.[0-9]{0,3}0*)?|\.[0-9]{1,3}0*|[0-9]{1,9}m"
_DIGITS: Final = {"": 18, "(?:Ki|k)": 15, "Mi?": 12, "Gi?": 9, "Ti?": 6, "Pi?": 3, "Ei?": 1}
"""More overflow 63 bits."""
_BYTES: Final = "|".join(
    rf"(?:[0-9]{{1,{digits}}}(?:\.[0-9]{{0,9}})?|\.[0-9]{{1,9}}){suffix}"
    for suffix, digits in {**_DIGITS, r"[eE]\+?(?:[0-9]|1[0-5])": 3}.items()
)
_COUNT: Final = "[0-9]{1,18}k?"

_NAMESPACE: Final = Text(
    "a namespace: up to 63 lower-case letters, digits and hyphens",
    pattern=rf"^(?=.{{1,63}}$){_DNS_LABEL}$",
)
_OBJECT_NAME: Final = Text(
    "the name of an object: lower-case letters, digits, hyphens and dots",
    pattern=rf"^(?=.{{1,253}}$){_DNS_NAME}$",
)
_QUEUE: Final = Text(
    "the name of a local queue: up to 63 lower-case letters, digits, hyphens and dots",
    pattern=rf"^(?=.{{1,63}}$){_DNS_NAME}$",  # it becomes a label
)
_RESOURCE: Final = Text(
    "a resource such as nvidia.com/gpu", pattern=rf"^(?!kubernetes\.io/)(?=[^/]+/){_QUALIFIED}$"
)
_IMAGE: Final = Text(
    "an image such as registry.example.org:5000/trainer:1.2",
    pattern=(
        rf"^(?:[A-Za-z0-9.-]+(?::[0-9]+)?/)?{_PATH_PART}(?:/{_PATH_PART})*"
        r"(?::[A-Za-z0-9_][-.A-Za-z0-9_]{0,127})?(?:@[a-z0-9]+:[0-9a-f]{32,128})?$"
    ),
)


def _matching(allowed: str, pattern: str) -> Shape[str]:
    """Return the shape of scalars that match as a whole."""

    def parse(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"{text!r} is not {allowed}")
        return text

    return Scalar(allowed).parsed(parse, pattern=f"^(?:{pattern})$")


_MEMORY: Final = _matching("an amount of memory such as 16Gi or 500M", _BYTES)
_NODE_SELECTOR: Final = MapOf(
    _matching(
        "a label's value: up to 63 letters, digits, '-', '_' and '.', beginning and ending with a "
        "letter or digit",
        f"(?=.{{0,63}}$)(?:{_LABEL})?",
    ),
    "a mapping of labels to their values",
    names=_QUALIFIED,
    refused="is not the key of a label, such as pool or example.org/pool",
)


def _resources(given: Mapping[str, str], place: YamlValue) -> dict[str, str] | None:
    """Check each amount by the kind of its resource."""
    for name, amount in place.entries():
        if "/" in name:
            pattern, allowed = _COUNT, "a whole number, as it counts devices"
        elif name == "cpu":
            pattern, allowed = _CORES, "an amount of cores such as 96 or 500m"
        else:
            pattern, allowed = _BYTES, _MEMORY.allowed
        if not re.fullmatch(pattern, amount.scalar):
            amount.fault(f"{amount.scalar!r} is not {allowed}")
    return dict(given)


_RESOURCES: Final[Shape[Any]] = MapOf(
    _matching("a quantity such as 96, 500m or 16Gi", _QUANTITY),
    "a mapping of resources to quantities",
    names=rf"cpu|memory|ephemeral-storage|hugepages-[0-9]+[KMGT]i|(?=[^/]+/){_QUALIFIED}",
    refused="is not a resource: cpu, memory, ephemeral-storage, hugepages-2Mi, or one of a domain, "
    "such as rdma/hca",
).placed(_resources)

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
        Key("claim", _OBJECT_NAME, "The PersistentVolumeClaim of this name."),
        Key(
            "host_path",
            Text("an absolute path without '..'", pattern=r"^/(?!.*(?:^|/)\.\.(?:/|$))"),
            "This folder of the node.",
        ),
        Key("memory", _MEMORY, "Memory, up to so much."),
    ),
    "a mapping of paths to what is there",
    names="/[^:]*",
    refused="is not an absolute path without a colon",
).placed(_volumes)

KUBERNETES: Final = Record(
    Kubernetes,
    Key("kind", one_of(JobKind), "What a run is submitted as."),
    Key("context", Text(), "The context of the kubeconfig; default: the current one."),
    Key("namespace", _NAMESPACE, "Where jobs go; default: that of the context."),
    Key(
        "template",
        Text("a file"),
        "A manifest to begin with, beside cluster.yaml; default: the one that ships, by kind.",
    ),
    Key("image", _IMAGE, "The image of the trainers; container.image of a system goes before it."),
    Key("device", _RESOURCE, "The resource that a device is; default: nvidia.com/gpu."),
    Key("resources", _RESOURCES, "What a node's pod asks for beside devices, as limits."),
    Key("volumes", _VOLUMES, "What pods find where, by path."),
    Key("node_selector", _NODE_SELECTOR, "Labels of the nodes that pods may run on."),
    Key("service_account", _OBJECT_NAME, "The service account of pods."),
    Key("image_pull_secrets", ListOf(_OBJECT_NAME), "Secrets by which images are pulled."),
    Key("queue", _QUEUE, "The local queue of Kueue that jobs go through."),
    Key(
        "runtime",
        _OBJECT_NAME,
        "The ClusterTrainingRuntime of a TrainJob; default: torch-distributed.",
    ),
).placed(_effective)
"""The keys below ``kubernetes`` in ``cluster.yaml``."""
