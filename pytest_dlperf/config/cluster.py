"""A cluster: one set of machines whose numbers are comparable, and its ``cluster.yaml``.

The peaks of its devices come from that file, or from a table of those that vendors publish.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from datetime import date
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final

from msgspec import Meta

from pytest_dlperf.config.launch_keys import Vars
from pytest_dlperf.config.options import LOCAL_CLUSTER
from pytest_dlperf.config.settings import Setting, settings_of
from pytest_dlperf.files.mistakes import nearest
from pytest_dlperf.files.yamlfile import YamlFile, load_plain
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.judgement import Judgement, Verdict
from pytest_dlperf.model.keys import FolderPath, Part, Precision, Scalar, SomeOf, Text, text
from pytest_dlperf.model.measurement import MACHINE_FACTS, Estimator

CLUSTER_FILE: Final = "cluster.yaml"

Facts = dict[str, Scalar]
"""Facts by name: any scalars, as they are written."""
Peak = Annotated[float, Meta(gt=0, le=10**9)]


class UnknownClusterError(UsageError):
    """No such cluster; the message lists those that there are."""


class Kubernetes(Part, frozen=True, kw_only=True):
    """Where pods run, and what they get."""

    context: Text | None = None
    """The context of the kubeconfig; default: the current one."""
    namespace: Text | None = None
    """Where pods run; default: that of the context."""
    template: Text | None = None
    """A manifest of a Job, beside cluster.yaml, with all else that its pods need."""
    image: Text | None = None
    """The image of the trainers; container.image of a system goes before it."""
    device: Text = "nvidia.com/gpu"
    """The resource that a device is."""


class Expected(Part, frozen=True, kw_only=True):
    """A failure that is known, until a day."""

    cases: Text
    """Ids of cases, in which * stands for anything."""
    metric: Text | None = None
    """The metric that fails; default: any."""
    verdict: Verdict | None = None
    """As what it fails; default: any verdict."""
    until: date
    """From this day on it fails its test again."""
    reason: Text
    """Why it fails, such as the issue. Reports say it."""

    def why(self, case_id: str, judgement: Judgement, day: date) -> str | None:
        """Say why a judgement was expected to fail on a day; ``None`` where it was not."""
        is_meant = (
            day < self.until
            and fnmatchcase(case_id, self.cases)
            and self.metric in (None, judgement.metric.name, judgement.metric.family)
            and self.verdict in (None, judgement.verdict)
        )
        return f"{self.reason}, until {self.until}" if is_meant else None


_DeviceCount = Annotated[int, Meta(ge=1, le=10_000)]
_Interpreter = Annotated[str, Meta(pattern=r"[^0-9.\s]", title="a Python interpreter")]
_Fact = Annotated[str, text(f"^({'|'.join(MACHINE_FACTS)})$", ", ".join(MACHINE_FACTS))]


class ControlKeys(Part, frozen=True, kw_only=True):
    """What a cluster's file says of the accepted software."""

    vars: dict[str, Vars]
    """What makes a launch one of the accepted software; it goes before all that is set otherwise.
    """
    description: Text | None = None
    """What the accepted software is."""


class ClusterFile(Part, frozen=True, kw_only=True):
    """One set of machines whose numbers are comparable."""

    estimator: Estimator = Estimator.STEADY
    """How throughput is computed from a log. Numbers of different estimators are never compared."""
    description: Text | None = None
    """What it is, for the reader."""
    systems: SomeOf[Text] | None = None
    """The systems that it runs; default: all."""
    devices_per_node: _DeviceCount | None = None
    """Devices of hosts that are given without a number."""
    share_hosts: bool = False
    """Whether several runs share a host, each with its own devices, and slow each other down."""
    python: _Interpreter | None = None
    """The Python on the nodes, 3.6 or newer, that supervises a run; default: python3."""
    scratch: FolderPath | None = None
    """The folder on every node in which runs make their own; default: /tmp. Choose a large local
    disk if trainers leave checkpoints, or /tmp lies in memory."""
    kubernetes: Kubernetes = Kubernetes()
    """Where --dlperf-launcher kubernetes submits runs, and how."""
    expect: tuple[Expected, ...] = ()
    """Failures that are known: until a day they are reported, and fail no test."""
    peak_tflops: dict[Precision, Peak] = {}
    """Peak of one device in TFLOP/s, by precision, for mfu; default: published ones."""
    hardware: Facts = {}
    """Free facts for the reader, by name."""
    software: Facts = {}
    """Versions for the reader, by name."""
    vars: dict[str, Vars] = {}
    """What is set for launches: by system id, or '*' for every system."""
    control: ControlKeys | None = None
    """The accepted software, to be run beside what is tested after a case has regressed."""
    machine: dict[_Fact, Scalar] = {}
    """What the numbers were measured on: the device as its tool prints it, devices_per_node, the
    interconnect of a node's devices, the network of the nodes. It must match, as far as both sides
    know it, or nothing is compared."""


class Cluster(ClusterFile, frozen=True, kw_only=True):
    """A cluster, and what its file sets for launches."""

    name: str
    directory: Path
    settings: tuple[Setting, ...] = ()
    control_settings: tuple[Setting, ...] = ()
    """What makes a launch one of the accepted software; it goes before all that is set otherwise.
    """


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
        control_settings=control,
        **{key: getattr(keys, key) for key in ClusterFile.__struct_fields__},
    )


def undeclared_systems(cluster: Cluster, declared: Collection[str]) -> Iterator[str]:
    """Yield a message for each system that ``cluster.yaml`` names and no system file declares."""
    for name in cluster.systems or ():
        if name not in declared:
            near = nearest(name, declared)
            yield f"names the system {name!r}, which no system file declares{near}"


def published_peak(device: str | None, precision: str) -> float | None:
    """Look up what one device can do without sparsity, in TFLOP/s; ``None`` if not listed."""
    for row in _peaks():
        if re.fullmatch(row["device"], device or ""):
            peak: float | None = row["peaks"].get(precision)
            return peak
    return None


@cache
def _peaks() -> list[Any]:
    """Read the rows of the table: an expression for a device's name, and its peaks by precision."""
    rows: list[Any] = load_plain(Path(__file__).with_name("peaks.yaml"))
    return rows
