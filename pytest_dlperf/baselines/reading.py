"""Declares and reads a system's baseline file, ``<cluster>/<system>.yaml``."""

from __future__ import annotations

import shlex
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct

from pytest_dlperf.config.cluster import ESTIMATOR, FACTS, MACHINE, MACHINE_HELP, Cluster
from pytest_dlperf.files.shapes import (
    ByKind,
    Key,
    ListOf,
    MapOf,
    Number,
    Record,
    Scalar,
    Text,
    one_of,
)
from pytest_dlperf.files.yamlfile import load, nearest
from pytest_dlperf.model.baseline import Acceptance, AcceptedSession, Baseline
from pytest_dlperf.model.case import (
    AXIS_VALUE_PATTERN,
    NAME_PATTERN,
    PRECISION_PATTERN,
    TOPOLOGY_PATTERN,
    Topology,
)
from pytest_dlperf.model.measurement import LaunchFacts
from pytest_dlperf.model.metric import MEMBER, SHARED, Better
from pytest_dlperf.model.results import parse_time
from pytest_dlperf.model.work import WORK_PATTERN

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_dlperf.files.yamlfile import YamlValue
    from pytest_dlperf.model.measurement import Estimator
    from pytest_dlperf.model.metric import Metric

CaseKey = tuple[str, str]
"""Variant (``fp32-b128``) and topology (``4n8g``)."""
Baselines = dict[CaseKey, dict[str, Baseline]]
"""Baselines of each case, by the metric's name."""


def defined_as(metric: str) -> str:
    """Return the name under which a metric is defined: a member's is that of its family."""
    return metric.partition(MEMBER)[0]


class Entry(NamedTuple):
    """A case in a file: the values of each metric, and those that its metrics share."""

    metrics: dict[str, dict[str, Any]]
    shared: dict[str, Any]


class Definition(Struct, frozen=True, kw_only=True):
    """Unit and direction of a metric, for all entries of a file."""

    unit: str = ""
    better: Better
    place: str = ""
    """Where it stands; two are compared without it."""

    @classmethod
    def of(cls, metric: Metric | Baseline) -> Definition | None:
        """Take it from a metric or a baseline; ``None`` without a direction."""
        return None if metric.better is None else cls(unit=metric.unit, better=metric.better)

    def is_same(self, other: Definition | None) -> bool:
        """Whether both mean the same, wherever they stand."""
        return other is not None and (self.unit, self.better) == (other.unit, other.better)

    def __str__(self) -> str:
        """Word it for messages."""
        return f"{self.unit!r}, {self.better.value} is better"


class Contents(Struct, frozen=True, kw_only=True):
    """The content of a system's file, by its keys."""

    estimator: Estimator
    metrics: Mapping[str, Definition]
    entries: Mapping[CaseKey, Entry]

    def baselines(self, machine: Mapping[str, str]) -> Baselines:
        """Return the baselines of each case; ``machine`` is for entries that name none."""
        return {
            key: {
                name: Baseline(
                    metric=name,
                    unit=self.metrics[defined_as(name)].unit,
                    better=self.metrics[defined_as(name)].better,
                    estimator=self.estimator,
                    **{"machine": machine, **entry.shared, **values},
                )
                for name, values in entry.metrics.items()
            }
            for key, entry in self.entries.items()
        }


def load_baselines(cluster: Cluster, system: str) -> Baselines:
    """Read a system's baselines.

    Raises:
        YamlError: The file has mistakes.
    """
    file = cluster.directory / f"{system}.yaml"
    return read_contents(file, system).baselines(cluster.machine) if file.exists() else {}


def read_contents(file: Path, system: str, *, text: str | None = None) -> Contents:
    """Read a system's file, or its new text.

    Raises:
        YamlError: The file has mistakes.
    """
    return load(file, partial(_read, system=system), text=text)


def _read(root: YamlValue, system: str) -> Contents | None:
    head = BASELINES.read(root)
    if head is None:
        return None
    if head["system"] != system:
        root.at("system").fault(f"found {head['system']!r}; the file's name says {system!r}")
    entries = {
        (variant, topology): entry
        for variant, group in head["entries"].items()
        for topology, entry in group.items()
    }
    known = head["metrics"]
    for (variant, topology), entry in entries.items():
        for name in (one for one in entry.metrics if defined_as(one) not in known):
            root.at(f"entries.{variant}.{topology}.{name}").fault(
                f"{name!r} is not a metric of 'metrics' ({', '.join(known) or 'which is empty'}), "
                f"nor one of {', '.join(SHARED)}{nearest(name, [*known, *SHARED])}"
            )
    return Contents(estimator=head["estimator"], metrics=known, entries=entries)


# ---------------------------------------------------------------------------- shapes


def _time(text: str) -> str:
    parse_time(text)
    return text


def _by_number(runs: Mapping[str, float]) -> dict[int, float]:
    return {int(run): number for run, number in runs.items()}


def _arguments(command: str) -> tuple[str, ...]:
    return tuple(shlex.split(command))


def _with_place(values: Mapping[str, Any], place: YamlValue) -> dict[str, Any]:
    return {**values, "place": f"{place.file}:{place.key_line}"}


def _entry(values: dict[str, Any], place: YamlValue) -> Entry | None:
    metrics = {name: value for name, value in values.items() if name not in SHARED}
    if not metrics:
        place.fault("the entry has no metric: name one, or delete the entry")
        return None
    return Entry(metrics, {name: value for name, value in values.items() if name in SHARED})


_NUMBER = Number()
_TIME = Text(
    "a time with its zone, such as 2026-11-21T03:00:00+00:00",
    pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}"
    r"(\.[0-9]{3}|\.[0-9]{6})?(Z|[+-][0-9]{2}:[0-9]{2})$",
).parsed(_time)
_RUNS = MapOf(
    _NUMBER,
    "a mapping of run numbers to numbers",
    names="[1-9][0-9]*",
    refused="is not a run number",
).parsed(_by_number)

_SESSION: Final = Record(
    AcceptedSession,
    Key("at", _TIME, "When the session began.", required=True),
    Key(
        "runs",
        ListOf(_NUMBER, "a list of numbers"),
        "The runs' numbers in their order, in the metric's unit.",
        required=True,
    ),
)

_LAUNCH: Final = Record(
    LaunchFacts,
    Key("launcher", Scalar(), "Name of the launcher or queue.", required=True),
    Key(
        "command",
        Scalar("a command line").parsed(_arguments),
        "The command line of node 0, quoted as in a shell; {names} stand for what each run has of "
        "its own.",
        argument="arguments",
        required=True,
    ),
    Key("environment", FACTS, "Variables that the launch set."),
    Key("working_directory", Scalar(), "Where the command started; default: the launcher's own."),
    Key("options", FACTS, "Options of the launcher, the queue or the container, by name."),
)

_ACCEPTANCE: Final = Record(
    Acceptance,
    Key("at", _TIME, "When the session began that measured it.", required=True),
    Key("by", Scalar(), "Who accepted it."),
    Key("commit", Scalar(), "Commit of the folder that the suite lay in."),
    Key("reason", Scalar(), "Why it was accepted (--dlperf-reason)."),
    Key("hosts", ListOf(Scalar(), "a list of hosts"), "Where it was measured, node 0 first."),
    Key("software", FACTS, "Versions by name."),
    Key("commits", FACTS, "Commits of the checkouts that the trainer ran from, by folder."),
    Key("launch", _LAUNCH, "How it was launched, secrets masked."),
)

_SHARED_KEYS: Final = (
    Key("acceptance", _ACCEPTANCE, "Where the number comes from."),
    Key("machine", MACHINE, MACHINE_HELP),
)

_METRIC: Final = ByKind(
    scalar=_NUMBER.parsed(lambda number: dict[str, Any](accepted=number)),
    mapping=Record(
        dict[str, Any],
        Key(
            "accepted",
            _NUMBER,
            "The accepted number: the median of the runs (and strays), in the metric's unit.",
            required=True,
        ),
        Key("mean", _NUMBER, "Mean of the runs (and strays), for the reader."),
        Key("over", _NUMBER, "What a ratio was taken over: the reference topology's number."),
        Key(
            "reference",
            Text("a topology such as 1n8g").parsed(
                lambda text: str(Topology.parse(text)), pattern=f"^{TOPOLOGY_PATTERN}$"
            ),
            "The topology that a ratio was taken over; default: 1n1g.",
        ),
        Key("runs", _RUNS, "The runs that the number rests on, by run number."),
        Key("strays", _RUNS, "Numbers in the published median that are not runs of this case."),
        Key(
            "sessions",
            ListOf(_SESSION, "a list of sessions", may_be_empty=True),
            "Later sessions that passed and were added by --dlperf-extend-baselines: six at most, "
            "the oldest first, one on each line.",
        ),
        Key(
            "tolerance_percent",
            Number(below=100, unit="percent"),
            "By how much the case may be worse than the number, where that is not the metric's "
            "own tolerance.",
        ),
        Key("note", Text(), "What a reader of the number should know."),
        *_SHARED_KEYS,
    ),
).placed(_with_place)

_ENTRY: Final = Record(
    dict[str, Any],
    *_SHARED_KEYS,
    allowed="a mapping of metrics to numbers",
    others=_METRIC,
).placed(_entry)

_DEFINITION: Final = Record(
    dict[str, Any],
    Key("unit", Text("a unit"), "That of the metric's numbers, where it has one."),
    Key("better", one_of(Better), "The direction in which it improves.", required=True),
).placed(lambda values, place: Definition(**_with_place(values, place)))

BASELINES: Final = Record(
    dict[str, Any],
    Key("system", Text("a system's name"), "The system's id, the file's name too.", required=True),
    Key(
        "metrics",
        MapOf(
            _DEFINITION,
            "a mapping of metrics",
            names=rf"(?!(?:{'|'.join(SHARED)})$){NAME_PATTERN}",
            refused="is not a metric's name",
            may_be_empty=True,
        ),
        "Unit and direction of every metric that an entry has; those of the system.",
        required=True,
    ),
    Key("estimator", ESTIMATOR.shape, ESTIMATOR.description, required=True),
    Key(
        "provenance",
        Record(dict[str, Any], Key("software", FACTS, "Versions by name."), others=Scalar()),
        "Where the numbers come from: free text by name, and versions in 'software'.",
    ),
    Key(
        "entries",
        MapOf(
            MapOf(
                _ENTRY,
                "a mapping of topologies such as 4n8g",
                names=TOPOLOGY_PATTERN,
                refused="is not a topology; write nodes and devices per node as in '4n8g'",
                may_be_empty=True,
            ),
            "a mapping of cases",
            names=rf"{PRECISION_PATTERN}-{WORK_PATTERN}(-{NAME_PATTERN}(\+{NAME_PATTERN})*)?"
            rf"|{AXIS_VALUE_PATTERN}(-{AXIS_VALUE_PATTERN})*",
            refused="names no case; the form is <precision>-(b|gb)<batch>[-s<sequence length>]"
            "[-<layout>][-<option>[+<option>]], of a probe <value of an axis>[-…], or all",
            # Deleting entries by hand leaves empty mappings.
            may_be_empty=True,
        ),
        "The accepted numbers, by variant (as in fp32-b128) and topology (as in 4n8g).",
        required=True,
    ),
)
"""The shape of a baseline file."""
