"""Declares and reads a system's baseline file, ``<cluster>/<system>.yaml``."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from pytest_dlperf.config.cluster import ESTIMATOR_HELP, MACHINE_HELP, Cluster, Facts, Machine
from pytest_dlperf.config.parts import (
    Part,
    Percent,
    Scalar,
    SomeOf,
    Text,
    TopologyText,
    doc,
)
from pytest_dlperf.files.mistakes import nearest
from pytest_dlperf.files.yamlfile import YamlFile
from pytest_dlperf.model import statistics
from pytest_dlperf.model.baseline import (
    Acceptance,
    AcceptedSession,
    Baseline,
    Loss,
    PooledNoise,
    Spread,
)
from pytest_dlperf.model.case import (
    AXIS_VALUE_PATTERN,
    NAME_PATTERN,
    PRECISION_PATTERN,
    SINGLE_DEVICE,
)
from pytest_dlperf.model.measurement import Estimator, LaunchFacts
from pytest_dlperf.model.metric import MEMBER, SHARED, Better, Metric
from pytest_dlperf.model.results import parse_time
from pytest_dlperf.model.work import WORK_PATTERN

SIGNIFICANT_DIGITS: Final = 6
"""Digits that a number keeps in a file."""
# Slack for a number exactly between two digits.
_ROUNDING_SLACK: Final = 1.0001

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


# ------------------------------------------------------------------------------ the keys

_Number = Annotated[float, Meta(gt=0, le=1e300, title="a finite number above 0")]
_RunNumber = Annotated[int, Meta(ge=1, title="a run number")]
_Runs = dict[_RunNumber, _Number]
_Time = Annotated[
    str,
    Meta(
        pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}"
        r"(\.[0-9]{3}|\.[0-9]{6})?(Z|[+-][0-9]{2}:[0-9]{2})$",
        title="a time with its zone, such as 2026-11-21T03:00:00+00:00",
    ),
]
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


class Dated(Part, frozen=True, kw_only=True):
    """What belongs to a session."""

    at: Annotated[_Time, doc("When the session began.")]

    def __post_init__(self) -> None:
        parse_time(self.at)


class Session(Dated, frozen=True, kw_only=True):
    """A later session that passed."""

    runs: Annotated[SomeOf[_Number], doc("The runs' numbers in their order, in the metric's unit.")]


_LossPair = Annotated[tuple[float, float], Meta(title="a loss and its standard error")]


class NoiseKeys(Part, frozen=True, kw_only=True):
    """Noise between the runs of a session."""

    deviation: Annotated[_Number, doc("The relative standard deviation.")]
    dof: Annotated[_RunNumber, doc("Its degrees of freedom.")]


class SpreadKeys(Part, frozen=True, kw_only=True):
    """How sessions differ from each other."""

    losses: Annotated[
        tuple[_LossPair, ...],
        doc(
            "By how much each session was worse than those before it, in percent, and the standard "
            "error of that by its runs: the last thirty, the oldest first."
        ),
    ] = ()
    changed: Annotated[
        _LossPair | None,
        doc("The same of the first session that was worse, or better, since the last that passed."),
    ] = None
    noise: Annotated[
        NoiseKeys | None, doc("The noise between runs before the number was accepted.")
    ] = None

    @property
    def spread(self) -> Spread:
        """The same for the gate."""
        return Spread(
            losses=tuple(Loss(*one) for one in self.losses),
            changed=None if self.changed is None else Loss(*self.changed),
            noise=None if self.noise is None else PooledNoise(**asdict(self.noise)),
        )


class LaunchKeys(Part, frozen=True, kw_only=True):
    """How the accepted number was launched."""

    launcher: Annotated[Scalar, doc("Name of the launcher or queue.")]
    command: Annotated[
        Scalar,
        doc(
            "The command line of node 0, quoted as in a shell; {names} stand for what each run has "
            "of its own."
        ),
    ]
    environment: Annotated[Facts, doc("Variables that the launch set.")] = {}
    working_directory: Annotated[
        Scalar | None, doc("Where the command started; default: the launcher's own.")
    ] = None
    options: Annotated[
        Facts, doc("Options of the launcher, the queue or the container, by name.")
    ] = {}

    def __post_init__(self) -> None:
        shlex.split(self.command)

    @property
    def facts(self) -> LaunchFacts:
        """The same, with the words of the command."""
        said = asdict(self)
        return LaunchFacts(arguments=tuple(shlex.split(said.pop("command"))), **said)


class AcceptanceKeys(Dated, frozen=True, kw_only=True):
    """Where a number comes from."""

    by: Annotated[Scalar | None, doc("Who accepted it.")] = None
    commit: Annotated[Scalar | None, doc("Commit of the folder that the suite lay in.")] = None
    reason: Annotated[Scalar | None, doc("Why it was accepted (--dlperf-reason).")] = None
    hosts: Annotated[SomeOf[Scalar], doc("Where it was measured, node 0 first.")] = ()
    software: Annotated[Facts, doc("Versions by name.")] = {}
    commits: Annotated[
        Facts, doc("Commits of the checkouts that the trainer ran from, by folder.")
    ] = {}
    launch: Annotated[LaunchKeys | None, doc("How it was launched, secrets masked.")] = None


class SharedKeys(Struct, frozen=True, kw_only=True):
    """What an entry says for its metrics, or a metric for itself."""

    acceptance: Annotated[AcceptanceKeys | None, doc("Where the number comes from.")] = None
    machine: Annotated[Machine | None, doc(MACHINE_HELP)] = None


class EntryKeys(SharedKeys, frozen=True, kw_only=True):
    """A case: its metrics, and what they share."""


class MetricKeys(SharedKeys, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The baseline of a metric."""

    accepted: Annotated[
        _Number,
        doc("The accepted number: the median of the runs (and strays), in the metric's unit."),
    ]
    mean: Annotated[_Number | None, doc("Mean of the runs (and strays), for the reader.")] = None
    over: Annotated[
        _Number | None,
        doc("What a ratio was taken over: the reference topology's number."),
    ] = None
    reference: Annotated[TopologyText, doc("The topology that a ratio was taken over.")] = "1n1g"
    runs: Annotated[_Runs, doc("The runs that the number rests on, by run number.")] = {}
    strays: Annotated[
        _Runs, doc("Numbers in the published median that are not runs of this case.")
    ] = {}
    sessions: Annotated[
        tuple[Session, ...] | None,
        doc(
            "Later sessions that passed and were added by --dlperf-extend-baselines: twelve at "
            "most, the oldest first, one on each line."
        ),
    ] = ()
    spread: Annotated[
        SpreadKeys | None, doc("How sessions differ: written as they join, read by the gate.")
    ] = None
    tolerance_percent: Annotated[
        Percent | None,
        doc(
            "By how much the case may be worse than the number, where that is not the metric's "
            "own tolerance."
        ),
    ] = None
    note: Annotated[Text | None, doc("What a reader of the number should know.")] = None


MetricValue = _Number | MetricKeys


class DefinitionKeys(Part, frozen=True, kw_only=True):
    """Unit and direction of a metric."""

    unit: Annotated[Text, doc("That of the metric's numbers, where it has one.")] = ""
    better: Annotated[Better, doc("The direction in which it improves.")]


class BaselinesFile(Part, frozen=True, kw_only=True):
    """Accepted numbers by variant (as in fp32-b128), topology (<N>n<D>g) and metric."""

    system: Annotated[Text, doc("The system's id, the file's name too.")]
    metrics: Annotated[
        dict[_MetricName, DefinitionKeys] | None,
        doc("Unit and direction of every metric that an entry has; those of the system."),
    ]
    estimator: Annotated[Estimator, doc(ESTIMATOR_HELP)]
    provenance: Annotated[
        dict[str, Scalar | Facts],
        doc("Where the numbers come from: free text by name, and versions in 'software'."),
    ] = {}
    # Deleting entries by hand leaves empty mappings.
    entries: Annotated[
        dict[_Variant, dict[TopologyText, EntryKeys | None] | None] | None,
        doc("The accepted numbers, by variant (as in fp32-b128) and topology (as in 4n8g)."),
    ]


# --------------------------------------------------------------------------------- reading


def read_contents(file: Path, system: str, *, text: str | None = None) -> Contents:
    """Read a system's file, or its new text.

    Raises:
        YamlError: The file has mistakes.
    """
    read = YamlFile(file, text)
    said = read.read(BaselinesFile, may_be_empty=True)
    if said.system != system:
        read.error(("system",), f"found {said.system!r}; the file's name says {system!r}")
    metrics = {
        name: Definition(
            unit=one.unit,
            better=one.better,
            place=f"{file}:{read.place(('metrics', name)).key_line}",
        )
        for name, one in (said.metrics or {}).items()
    }
    numbers: dict[str, dict[str, dict[str, Any]]] = {
        variant: {
            topology: {name: one for name, one in (entry or {}).items() if name not in SHARED}
            for topology, entry in (group or {}).items()
        }
        for variant, group in (read.value["entries"] or {}).items()
    }
    kind = dict[str, dict[str, dict[str, MetricValue]]]
    values = read.read(kind, ("entries",), numbers, may_be_empty=True)
    contents = Contents(estimator=said.estimator, metrics=metrics, entries={})
    entries = {
        (variant, topology): _entry(read, contents, (variant, topology), found, entry)
        for variant, group in (said.entries or {}).items()
        for topology, entry in (group or {}).items()
        for found in [values[variant][topology]]
    }
    read.check()
    return replace(contents, entries=entries)


def _entry(
    file: YamlFile,
    contents: Contents,
    key: CaseKey,
    found: Mapping[str, float | MetricKeys],
    shared: EntryKeys | None,
) -> Entry:
    place, metrics = ("entries", *key), contents.metrics
    if not found:
        file.error(place, "the entry has no metric: name one, or delete the entry")
    values = {}
    for name, one in found.items():
        if defined_as(name) not in metrics:
            file.error(
                (*place, name),
                f"{name!r} is not a metric of 'metrics' ({', '.join(metrics) or 'which is empty'}),"
                f" nor one of {', '.join(SHARED)}{nearest(name, [*metrics, *SHARED])}",
            )
        said = one if isinstance(one, MetricKeys) else MetricKeys(accepted=one)
        values[name] = {
            **_shared(said),
            **_own(said),
            "place": f"{file.file}:{file.place((*place, name)).key_line}",
        }
        if message := _cut(name, said, contents.estimator):
            file.error((*place, name, "accepted"), message)
    return Entry(values, _shared(shared or EntryKeys()))


def _own(said: MetricKeys) -> dict[str, Any]:
    """Return what a metric says for itself alone, as far as it says it."""
    own = {
        name: getattr(said, name)
        for name in MetricKeys.__struct_fields__
        if name not in SHARED and getattr(said, name) not in (None, {}, (), str(SINGLE_DEVICE))
    }
    if said.sessions:
        own["sessions"] = tuple(AcceptedSession(**asdict(one)) for one in said.sessions)
    if said.spread:
        own["spread"] = said.spread.spread
    return own


def _shared(said: SharedKeys) -> dict[str, Any]:
    """Return what metrics may share, as far as it is said."""
    shared: dict[str, Any] = {}
    if (accepted := said.acceptance) is not None:
        launch = None if accepted.launch is None else accepted.launch.facts
        shared["acceptance"] = Acceptance(**{**asdict(accepted), "launch": launch})
    if said.machine is not None:
        shared["machine"] = said.machine.set_keys()
    return shared


def _cut(metric: str, said: MetricKeys, estimator: Estimator) -> str | None:
    """Say that a number is not the median of its runs: it was edited, or cut off."""
    values = [*said.runs.values(), *said.strays.values()]
    if not said.runs:
        return None
    exact = statistics.median(values)
    decimals = estimator.decimals_of(metric)
    if follows(said.accepted, exact, said.accepted + max(values), decimals=decimals):
        return None
    shown = f"{significant(exact)}" if decimals is None else f"{exact:.{decimals}f}"
    of = "runs and strays" if said.strays else "runs"
    return (
        f"the number {said.accepted!r} does not follow from its runs: the median of {len(values)} "
        f"{of} is {shown}"
    )


def significant(value: float) -> float:
    """Round a number as a baseline file keeps it."""
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}")


def follows(number: float, exact: float, sizes: float, *, decimals: int | None) -> bool:
    """Whether a number in a file may be the rounded one of an exact result.

    ``sizes`` is the sum of all rounded numbers that add to the error, this one included, in its
    unit: each is off by half of its last digit at most.
    """
    rounding = 0.5 * 10.0 ** (1 - SIGNIFICANT_DIGITS) * sizes
    if decimals is not None:
        rounding += 0.5 * 10.0**-decimals
    return abs(number - exact) <= rounding * _ROUNDING_SLACK
