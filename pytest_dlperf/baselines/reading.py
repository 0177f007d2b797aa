"""Declares and reads a system's baseline file, ``<cluster>/<system>.yaml``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta, Struct

from pytest_dlperf.config.cluster import Cluster, Facts
from pytest_dlperf.files.mistakes import nearest, unknown_key
from pytest_dlperf.files.yamlfile import YamlFile
from pytest_dlperf.model import statistics
from pytest_dlperf.model.baseline import Baseline, BaselineKeys, Number, SharedKeys, Spread
from pytest_dlperf.model.case import AXIS_VALUE_PATTERN, NAME_PATTERN, PRECISION_PATTERN
from pytest_dlperf.model.keys import Part, Scalar, Text, TopologyText
from pytest_dlperf.model.measurement import MACHINE_FACTS, Estimator
from pytest_dlperf.model.metric import MEMBER, SHARED, Better, Metric
from pytest_dlperf.model.results import parse_time
from pytest_dlperf.model.work import WORK_PATTERN

SIGNIFICANT_DIGITS: Final = 6
"""Digits that a number keeps in a file."""

CaseKey = tuple[str, str]
"""Variant (``fp32-b128``) and topology (``4n8g``)."""
Baselines = dict[CaseKey, dict[str, Baseline]]
"""Baselines of each case, by the metric's name."""

_MetricName = Annotated[
    str,
    Meta(pattern=rf"^(?!(?:{'|'.join(SHARED)})$){NAME_PATTERN}$", title="a metric's name"),
]
_Variant = Annotated[
    str,
    Meta(
        pattern=rf"^({PRECISION_PATTERN}-{WORK_PATTERN}(-{NAME_PATTERN}(\+{NAME_PATTERN})*)?"
        rf"|{AXIS_VALUE_PATTERN}(-{AXIS_VALUE_PATTERN})*)$",
        title="the name of a case; the form is <precision>-(b|gb)<batch>[-s<sequence length>]"
        "[-<layout>][-<option>[+<option>]], of a probe <value of an axis>[-…], or all",
    ),
]
MetricValue = Number | BaselineKeys


class Definition(Part, frozen=True, kw_only=True):
    """Unit and direction of a metric, for all entries of a file."""

    unit: Text = ""
    """That of the metric's numbers, where it has one."""
    better: Better
    """The direction in which it improves."""

    @classmethod
    def of(cls, metric: Metric | Baseline) -> Definition | None:
        """Take it from a metric or a baseline; ``None`` without a direction."""
        return None if metric.better is None else cls(unit=metric.unit, better=metric.better)

    def __str__(self) -> str:
        """Word it for messages."""
        return f"{self.unit!r}, {self.better.value} is better"


class EntryKeys(SharedKeys, frozen=True, kw_only=True):
    """A case: its metrics, and what they share."""


class BaselinesFile(Part, frozen=True, kw_only=True):
    """Accepted numbers by variant (as in fp32-b128), topology (<N>n<D>g) and metric."""

    system: Text
    """The system's id, the file's name too."""
    metrics: dict[_MetricName, Definition] | None
    """Unit and direction of every metric that an entry has; those of the system."""
    estimator: Estimator
    """How throughput is computed from a log. Numbers of different estimators are never compared."""
    provenance: dict[str, Scalar | Facts] = {}
    """Where the numbers come from: free text by name, and versions in 'software'."""
    # Deleting entries by hand leaves empty mappings.
    entries: dict[_Variant, dict[TopologyText, EntryKeys | None] | None] | None
    """The accepted numbers, by variant (as in fp32-b128) and topology (as in 4n8g)."""


class Contents(Struct, frozen=True, kw_only=True):
    """The content of a system's file."""

    estimator: Estimator
    metrics: Mapping[str, Definition]
    places: Mapping[str, str]
    """File and line of each metric's definition."""
    baselines: Baselines


def load_baselines(cluster: Cluster, system: str) -> Baselines:
    """Read a system's baselines.

    Raises:
        YamlError: The file has mistakes.
    """
    file = cluster.directory / f"{system}.yaml"
    return read_contents(file, cluster.machine).baselines if file.exists() else {}


def read_contents(file: Path, machine: Mapping[str, str], text: str | None = None) -> Contents:
    """Read a system's file, or its new text; ``machine`` is for entries that name none.

    Raises:
        YamlError: The file has mistakes.
    """
    read = YamlFile(file, text)
    said = read.read(BaselinesFile)
    if said.system != file.stem:
        read.error(("system",), f"found {said.system!r}; the file's name says {file.stem!r}")
    metrics = said.metrics or {}
    numbers = {
        variant: {
            topology: {name: one for name, one in (entry or {}).items() if name not in SHARED}
            for topology, entry in (group or {}).items()
        }
        for variant, group in (read.value["entries"] or {}).items()
    }
    kind = dict[str, dict[str, dict[str, MetricValue]]]
    values = read.read(kind, ("entries",), numbers)
    baselines: Baselines = {}
    for variant, group in values.items():
        for topology, found in group.items():
            shared = ((said.entries or {})[variant] or {})[topology] or EntryKeys()
            place = ("entries", variant, topology)
            if not found:
                read.error(place, "the entry has no metric: name one, or delete the entry")
            _check_shared(read, place, shared)
            entry = baselines[variant, topology] = {}
            for name, one in found.items():
                keys = one if isinstance(one, BaselineKeys) else BaselineKeys(accepted=one)
                _check(read, (*place, name), keys, said)
                if (definition := metrics.get(defined_as(name))) is not None:
                    entry[name] = Baseline(
                        **{key: getattr(keys, key) for key in keys.__struct_fields__}
                        | {
                            "acceptance": keys.acceptance or shared.acceptance,
                            "machine": keys.machine or shared.machine or machine,
                            "sessions": keys.sessions or (),
                            "spread": keys.spread or Spread(),
                        },
                        metric=name,
                        unit=definition.unit,
                        better=definition.better,
                        estimator=said.estimator,
                        place=f"{file}:{read.place((*place, name)).key_line}",
                    )
    read.check()
    places = {name: f"{file}:{read.place(('metrics', name)).key_line}" for name in metrics}
    return Contents(estimator=said.estimator, metrics=metrics, places=places, baselines=baselines)


def _check(
    file: YamlFile, place: tuple[str | int, ...], keys: BaselineKeys, said: BaselinesFile
) -> None:
    """Report a metric that is not declared, times that do not exist, and a number cut off."""
    name, metrics = str(place[-1]), said.metrics or {}
    if defined_as(name) not in metrics:
        file.error(
            place,
            f"{name!r} is not a metric of 'metrics' ({', '.join(metrics) or 'which is empty'}),"
            f" nor one of {', '.join(SHARED)}{nearest(name, [*metrics, *SHARED])}",
        )
    _check_shared(file, place, keys)
    for at, session in enumerate(keys.sessions or ()):
        _check_time(file, (*place, "sessions", at), session.at)
    if keys.runs:
        median = statistics.median([*keys.runs.values(), *keys.strays.values()])
        # Files keep six digits, and published numbers two decimals.
        if not math.isclose(keys.accepted, median, rel_tol=1e-4, abs_tol=0.01):
            message = f"the number {keys.accepted!r} does not follow from its runs"
            file.error((*place, "accepted"), f"{message}, whose median is {median:g}")


def _check_shared(file: YamlFile, place: tuple[str | int, ...], keys: SharedKeys) -> None:
    for name in keys.machine:
        if name not in MACHINE_FACTS:
            file.error((*place, "machine", name), unknown_key(name, MACHINE_FACTS))
    if keys.acceptance is not None:
        _check_time(file, (*place, "acceptance"), keys.acceptance.at)


def _check_time(file: YamlFile, place: tuple[str | int, ...], at: str) -> None:
    """Report a day or an hour that does not exist."""
    try:
        parse_time(at)
    except ValueError as error:
        file.error(place, str(error))


def defined_as(metric: str) -> str:
    """Return the name under which a metric is defined: a member's is that of its family."""
    return metric.partition(MEMBER)[0]


def significant(value: float) -> float:
    """Round a number as a baseline file keeps it."""
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}")
