"""A cluster: one set of machines whose numbers are comparable, and its ``cluster.yaml``.

The peaks of its devices come from that file, or from a table of those that vendors publish.
"""

from __future__ import annotations

import re
from collections.abc import Mapping  # noqa: TC003 - read by msgspec
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct, convert, field

from pytest_dlperf.config.kubernetes import KUBERNETES, Kubernetes
from pytest_dlperf.config.options import LOCAL_CLUSTER
from pytest_dlperf.files.shapes import (
    Integer,
    Key,
    ListOf,
    MapOf,
    Number,
    Record,
    Scalar,
    Text,
    YesNo,
    one_of,
)
from pytest_dlperf.files.yamlfile import YamlValue, load, nearest
from pytest_dlperf.model.case import PRECISION_PATTERN
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.measurement import MACHINE_FACTS, Estimator

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from pytest_dlperf.config.assignments import Assignment

CLUSTER_FILE: Final = "cluster.yaml"
_PEAKS: Final = Path(__file__).with_name("peaks.yaml")


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

    ``cluster_keys`` says what each value is. ``systems`` is ``None`` for all; ``machine`` has the
    keys of ``Fingerprint.machine``, and holds for baselines that do not say it themselves.
    """

    name: str
    directory: Path
    estimator: Estimator = Estimator.STEADY
    systems: tuple[str, ...] | None = None
    description: str | None = None
    assignments: tuple[Assignment, ...] = ()
    devices_per_node: int | None = None
    share_hosts: bool = False
    python: str | None = None
    scratch: str | None = None
    control: Control | None = None
    kubernetes: Kubernetes = field(default_factory=Kubernetes)
    machine: Mapping[str, str] = {}
    peak_tflops: Mapping[str, float] = {}
    hardware: Mapping[str, str] = {}
    software: Mapping[str, str] = {}


# ------------------------------------------------------------------------------ in a file


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


@cache
def cluster_keys() -> tuple[Key, ...]:
    """Return the keys of ``cluster.yaml``; they are not needed where no such file is read."""
    from pytest_dlperf.config.assignments import VARS

    return (
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
        Key(
            "control",
            Record(
                Control,
                Key(
                    "vars",
                    VARS,
                    "What makes a launch one of the accepted software; it goes before all that "
                    "is set otherwise.",
                    required=True,
                    argument="assignments",
                ),
                Key("description", Text(), "What the accepted software is."),
            ),
            "The accepted software, to be run beside what is tested after a case has regressed.",
        ),
        Key("devices_per_node", Integer(1), "Devices of hosts that are given without a number."),
        Key(
            "share_hosts",
            YesNo(),
            "Whether several runs share a host, each with its own devices, and slow each other "
            "down; default: false.",
        ),
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
        Key("kubernetes", KUBERNETES, "Where --dlperf-launcher kubernetes submits runs, and how."),
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


def find_cluster(baselines_directory: Path, name: str) -> Cluster:
    """Find a cluster by name; ``local`` is there without a file.

    Raises:
        UnknownClusterError: There is no such folder with a ``cluster.yaml``.
        YamlError: Its ``cluster.yaml`` has mistakes.
    """
    files = baselines_directory.glob(f"*/{CLUSTER_FILE}")
    known = sorted({LOCAL_CLUSTER, *(file.parent.name for file in files)})
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
    return load(file, Record(build, *cluster_keys()).read)


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
    found = (row.peaks for row in _peaks() if re.fullmatch(row.device, device or ""))
    return next(found, {}).get(precision)


@cache
def _peaks() -> tuple[_Peak, ...]:
    return convert(load(_PEAKS, YamlValue.plain), tuple[_Peak, ...], strict=False)
