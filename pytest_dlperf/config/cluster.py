"""A cluster: one set of machines whose numbers are comparable, and its ``cluster.yaml``.

The peaks of its devices come from that file, or from a table of those that vendors publish.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from datetime import date
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta, Struct

from pytest_dlperf.config.options import LOCAL_CLUSTER
from pytest_dlperf.config.settings import Setting, Vars, settings_of
from pytest_dlperf.files.mistakes import nearest
from pytest_dlperf.files.yamlfile import YamlFile, load
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.judgement import Judgement, Verdict
from pytest_dlperf.model.keys import Part, Precision, Scalar, SomeOf, Text, doc
from pytest_dlperf.model.measurement import MACHINE_FACTS, Estimator

CLUSTER_FILE: Final = "cluster.yaml"
_PEAKS: Final = Path(__file__).with_name("peaks.yaml")

Facts = dict[str, Scalar]
"""Facts by name: any scalars, as they are written."""
Peak = Annotated[float, Meta(gt=0, le=10**9)]


class UnknownClusterError(UsageError):
    """No such cluster; the message lists those that there are."""


class Machine(Part, frozen=True, kw_only=True):
    """What numbers were measured on, with the keys of ``Fingerprint.machine``."""

    device: Annotated[Scalar | None, doc(f"{MACHINE_FACTS['device'].capitalize()}.")] = None
    devices_per_node: Annotated[
        Scalar | None, doc(f"{MACHINE_FACTS['devices_per_node'].capitalize()}.")
    ] = None
    interconnect: Annotated[
        Scalar | None, doc(f"{MACHINE_FACTS['interconnect'].capitalize()}.")
    ] = None
    network: Annotated[Scalar | None, doc(f"{MACHINE_FACTS['network'].capitalize()}.")] = None


MACHINE_HELP: Final = (
    "What the numbers were measured on, the device as its tool prints it. It must match, as far "
    "as both sides know it, or nothing is compared."
)
ESTIMATOR_HELP: Final = (
    "How throughput is computed from a log. Numbers of different estimators are never compared."
)


class Kubernetes(Part, frozen=True, kw_only=True):
    """Where pods run, and what they get."""

    context: Annotated[
        Text | None, doc("The context of the kubeconfig; default: the current one.")
    ] = None
    namespace: Annotated[Text | None, doc("Where pods run; default: that of the context.")] = None
    template: Annotated[
        Text | None,
        doc("A manifest of a Job, beside cluster.yaml, with all else that its pods need."),
    ] = None
    image: Annotated[
        Text | None,
        doc("The image of the trainers; container.image of a system goes before it."),
    ] = None
    device: Annotated[Text, doc("The resource that a device is.")] = "nvidia.com/gpu"


class Expected(Part, frozen=True, kw_only=True):
    """A failure that is known, until a day."""

    cases: Annotated[Text, doc("Ids of cases, in which * stands for anything.")]
    metric: Annotated[Text | None, doc("The metric that fails; default: any.")] = None
    verdict: Annotated[Verdict | None, doc("As what it fails; default: any verdict.")] = None
    until: Annotated[date, doc("From this day on it fails its test again.")]
    reason: Annotated[Text, doc("Why it fails, such as the issue. Reports say it.")]

    def why(self, case_id: str, judgement: Judgement, day: date) -> str | None:
        """Say why a judgement was expected to fail on a day; ``None`` where it was not."""
        is_meant = (
            day < self.until
            and fnmatchcase(case_id, self.cases)
            and self.metric in (None, judgement.metric.name, judgement.metric.family)
            and self.verdict in (None, judgement.verdict)
        )
        return f"{self.reason}, until {self.until}" if is_meant else None


class _Machines(Part, frozen=True, kw_only=True):
    """What a cluster's file says of its machines."""

    estimator: Annotated[Estimator, doc(ESTIMATOR_HELP)] = Estimator.STEADY
    description: Annotated[Text | None, doc("What it is, for the reader.")] = None
    systems: Annotated[SomeOf[Text] | None, doc("The systems that it runs; default: all.")] = None
    devices_per_node: Annotated[
        _DeviceCount | None, doc("Devices of hosts that are given without a number.")
    ] = None
    share_hosts: Annotated[
        bool,
        doc(
            "Whether several runs share a host, each with its own devices, and slow each other "
            "down."
        ),
    ] = False
    python: Annotated[
        _Interpreter | None,
        doc("The Python on the nodes, 3.6 or newer, that supervises a run; default: python3."),
    ] = None
    scratch: Annotated[
        _Folder | None,
        doc(
            "The folder on every node in which runs make their own; default: /tmp. Choose a large "
            "local disk if trainers leave checkpoints, or /tmp lies in memory."
        ),
    ] = None
    kubernetes: Annotated[
        Kubernetes, doc("Where --dlperf-launcher kubernetes submits runs, and how.")
    ] = Kubernetes()
    expect: Annotated[
        tuple[Expected, ...],
        doc("Failures that are known: until a day they are reported, and fail no test."),
    ] = ()
    peak_tflops: Annotated[
        dict[Precision, Peak],
        doc("Peak of one device in TFLOP/s, by precision, for mfu; default: published ones."),
    ] = {}
    hardware: Annotated[Facts, doc("Free facts for the reader, by name.")] = {}
    software: Annotated[Facts, doc("Versions for the reader, by name.")] = {}


_DeviceCount = Annotated[int, Meta(ge=1, le=10_000)]
_Interpreter = Annotated[str, Meta(pattern=r"[^0-9.\s]", title="a Python interpreter")]
_Folder = Annotated[str, Meta(pattern="^/", title="the absolute path of a folder")]


class ControlKeys(Part, frozen=True, kw_only=True):
    """What a cluster's file says of the accepted software."""

    vars: Annotated[
        dict[str, Vars],
        doc(
            "What makes a launch one of the accepted software; it goes before all that is set "
            "otherwise."
        ),
    ]
    description: Annotated[Text | None, doc("What the accepted software is.")] = None


class ClusterFile(_Machines, frozen=True, kw_only=True):
    """One set of machines whose numbers are comparable."""

    vars: Annotated[
        dict[str, Vars],
        doc("What is set for launches: by system id, or '*' for every system."),
    ] = {}
    control: Annotated[
        ControlKeys | None,
        doc("The accepted software, to be run beside what is tested after a case has regressed."),
    ] = None
    machine: Annotated[Machine, doc(MACHINE_HELP)] = Machine()


class Cluster(_Machines, frozen=True, kw_only=True):
    """One set of machines whose numbers are comparable.

    ``systems`` is ``None`` for all. ``control`` makes a launch one of the accepted software, and
    goes before all that is set otherwise. ``machine`` has the keys of ``Fingerprint.machine``, and
    holds for baselines that do not say it themselves.
    """

    name: str
    directory: Path
    settings: tuple[Setting, ...] = ()
    control: tuple[Setting, ...] = ()
    machine: Mapping[str, str] = {}


def find_cluster(baselines_directory: Path, name: str) -> Cluster:
    """Find a cluster by name; ``local`` is there without a file.

    Raises:
        UnknownClusterError: There is no such folder with a ``cluster.yaml``.
        YamlError: Its ``cluster.yaml`` has mistakes.
    """
    files = baselines_directory.glob(f"*/{CLUSTER_FILE}")
    names = sorted({LOCAL_CLUSTER, *(file.parent.name for file in files)})
    if name not in names:
        raise UnknownClusterError(
            f"there is no cluster {name!r} below {baselines_directory}; "
            f"there are: {', '.join(names)}. A new one begins with a file "
            f"{baselines_directory / name / CLUSTER_FILE} that says 'estimator: steady'"
        )
    file = baselines_directory / name / CLUSTER_FILE
    if not file.exists():
        return Cluster(name=name, directory=file.parent)
    read = YamlFile(file, private=("vars", "control"))
    keys = read.read(ClusterFile)
    settings = settings_of(read, ("vars",)) if keys.vars else ()
    control = settings_of(read, ("control", "vars")) if keys.control else ()
    read.check()
    return Cluster(
        name=name,
        directory=file.parent,
        settings=settings,
        control=control,
        machine=keys.machine.set_keys(),
        **{key: getattr(keys, key) for key in _Machines.__struct_fields__},
    )


def undeclared_systems(cluster: Cluster, declared: Collection[str]) -> Iterator[str]:
    """Yield a message for each system that ``cluster.yaml`` names and no system file declares."""
    for name in cluster.systems or ():
        if name not in declared:
            near = nearest(name, declared)
            yield f"names the system {name!r}, which no system file declares{near}"


# ------------------------------------------------------------------- what devices can do


class _Peak(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The dense peaks of a device in TFLOP/s, by precision.

    ``device`` is an expression for all of its name, as the vendor's tool prints it; ``source`` is
    the vendor's page.
    """

    device: str
    source: str
    peaks: Mapping[str, float]


def published_peak(device: str | None, precision: str) -> float | None:
    """Look up what one device can do without sparsity, in TFLOP/s; ``None`` if not listed."""
    rows = (row.peaks for row in _peaks() if re.fullmatch(row.device, device or ""))
    return next(rows, {}).get(precision)


@cache
def _peaks() -> tuple[_Peak, ...]:
    return load(_PEAKS, tuple[_Peak, ...])
