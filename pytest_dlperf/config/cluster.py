"""A cluster: one set of machines whose numbers are comparable, and its ``cluster.yaml``."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from pytest_dlperf.config.launch_reading import read_assignments
from pytest_dlperf.config.schema import CLUSTER_SCHEMA, schema
from pytest_dlperf.files.yamlfile import YamlValue, load, nearest
from pytest_dlperf.files.yamlschema import check
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.measurement import Estimator

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from pytest_dlperf.config.variables import Assignment

CLUSTER_FILE: Final = "cluster.yaml"


class UnknownClusterError(UsageError):
    """No such cluster; the message lists those that there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """The accepted software of a cluster, to be run beside what is tested.

    ``assignments`` are what makes its launches another software: they go before all that is set
    otherwise. ``description`` is for the reader.
    """

    assignments: tuple[Assignment, ...]
    description: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """One set of machines whose numbers are comparable.

    ``systems`` are the systems that it runs, ``None`` for all. ``assignments`` are what it sets
    for launches, ``devices_per_node`` the devices of hosts that are given without a number, and
    ``python`` the interpreter that supervises a run on a node, ``None`` where it says nothing.
    ``control`` is the accepted software. ``machine`` is what baselines were measured on that do
    not say it themselves, with the keys of ``Fingerprint.machine``. ``hardware`` and ``software``
    are for the reader.
    """

    name: str
    directory: Path
    estimator: Estimator
    systems: tuple[str, ...] | None = None
    description: str | None = None
    assignments: tuple[Assignment, ...] = ()
    devices_per_node: int | None = None
    python: str | None = None
    control: Control | None = None
    machine: Mapping[str, str] = field(default_factory=dict)
    hardware: Mapping[str, str] = field(default_factory=dict)
    software: Mapping[str, str] = field(default_factory=dict)


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
        return Cluster(name=name, directory=file.parent, estimator=Estimator.STEADY)
    return load(file, _read_cluster)


def undeclared_systems(cluster: Cluster, declared: Collection[str]) -> Iterator[str]:
    """A message for each system that ``cluster.yaml`` names and no system file declares."""
    for name in cluster.systems or ():
        if name not in declared:
            near = nearest(name, declared)
            yield f"names the system {name!r}, which no system file declares{near}"


def _read_cluster(root: YamlValue) -> Cluster:
    nothing = Cluster(
        name=root.file.parent.name, directory=root.file.parent, estimator=Estimator.STEADY
    )
    if not check(root, schema(CLUSTER_SCHEMA)):
        return nothing
    fields = root.checked_fields()
    return replace(
        nothing,
        estimator=fields.get("estimator", read_estimator, Estimator.STEADY),
        systems=fields.get("systems", _read_names, None),
        description=fields.get("description", lambda v: v.text(), None),
        assignments=fields.get("vars", read_assignments, ()),
        devices_per_node=fields.get("devices_per_node", lambda v: v.whole_number(1), None),
        python=fields.get("python", lambda v: v.text(), None),
        control=fields.get("control", _read_control, None),
        machine=fields.get("machine", read_facts, {}),
        hardware=fields.get("hardware", read_facts, {}),
        software=fields.get("software", read_facts, {}),
    )


def _read_control(value: YamlValue) -> Control:
    fields = value.checked_fields()
    return Control(
        assignments=fields.get("vars", read_assignments, ()),
        description=fields.get("description", lambda v: v.text(), None),
    )


def read_estimator(value: YamlValue) -> Estimator | None:
    """Read the name of an estimator."""
    chosen = value.choice([estimator.value for estimator in Estimator])
    return Estimator(chosen) if chosen else None


def _read_names(value: YamlValue) -> tuple[str, ...]:
    read = (item.text() for item in value.items("a list"))
    return tuple(name for name in read if name is not None)


def read_facts(value: YamlValue) -> dict[str, str]:
    """Facts by name: any scalars, as they are written."""
    read = {key: item.scalar() for key, item in value.entries()}
    return {key: text for key, text in read.items() if text is not None}
