"""Declares and reads a system's accepted numbers, ``<cluster>/<system>.yaml``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pytest_dlperf.config.cluster import ESTIMATOR, FACTS, MACHINE, MACHINE_HELP, Cluster
from pytest_dlperf.files.shapes import Key, ListOf, MapOf, Number, Record, Scalar, Text
from pytest_dlperf.files.yamlfile import load
from pytest_dlperf.model.baseline import Acceptance, AcceptedSession, Baseline
from pytest_dlperf.model.case import NAME_PATTERN, PRECISION_PATTERN, TOPOLOGY_PATTERN
from pytest_dlperf.model.results import parse_time

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_dlperf.files.yamlfile import YamlValue

Baselines = dict[tuple[str, str], Baseline]
"""Accepted numbers by variant (``fp32-b128``) and topology (``4n8g``)."""


def load_baselines(cluster: Cluster, system: str) -> Baselines:
    """Read a system's baselines.

    Raises:
        YamlError: The file has mistakes.
    """
    file = cluster.directory / f"{system}.yaml"
    return read_baselines(file, system, cluster.machine) if file.exists() else {}


def read_baselines(
    file: Path, system: str, machine: Mapping[str, str], *, text: str | None = None
) -> Baselines:
    """Read a system's file, or the text that it is to have.

    ``machine`` is the cluster's: what entries were measured on that do not say it themselves.
    """
    return load(file, partial(_read, system=system, machine=machine), text=text)


def _read(root: YamlValue, system: str, machine: Mapping[str, str]) -> Baselines | None:
    head = BASELINES.read(root)
    if head is None:
        return None
    if head["system"] != system:
        root.at("system").fault(f"found {head['system']!r}; the file's name says {system!r}")
    common = {"unit": head["unit"], "estimator": head["estimator"], "machine": machine}
    return {
        (variant, topology): Baseline(**{**common, **entry})
        for variant, group in head["entries"].items()
        for topology, entry in group.items()
    }


# ------------------------------------------------------------------------ what stands there


def _time(text: str) -> str:
    parse_time(text)
    return text


def _by_number(runs: Mapping[str, float]) -> dict[int, float]:
    return {int(run): throughput for run, throughput in runs.items()}


_THROUGHPUT = Number()
_TIME = Text(
    "a time with its zone, such as 2026-11-21T03:00:00+00:00",
    pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}"
    r"(\.[0-9]{3}|\.[0-9]{6})?(Z|[+-][0-9]{2}:[0-9]{2})$",
).parsed(_time)
_RUNS = MapOf(
    _THROUGHPUT,
    "a mapping of run numbers to throughputs",
    names="[1-9][0-9]*",
    refused="is not a run number",
).parsed(_by_number)

_SESSION: Final = Record(
    AcceptedSession,
    Key("at", _TIME, "When the session began.", required=True),
    Key(
        "runs",
        ListOf(_THROUGHPUT, "a list of throughputs"),
        "Throughputs in the order of the runs, in the unit per second.",
        required=True,
    ),
)

_ACCEPTANCE: Final = Record(
    Acceptance,
    Key("at", _TIME, "When the session began that measured it.", required=True),
    Key("commit", Scalar(), "Commit of the folder that the suite lay in."),
    Key("reason", Scalar(), "Why it was accepted (--dlperf-reason)."),
    Key("hosts", ListOf(Scalar(), "a list of hosts"), "Where it was measured, node 0 first."),
    Key("software", FACTS, "Versions by name."),
    Key(
        "logs",
        Text("'sha256:' and 64 hexadecimal digits", pattern="^sha256:[0-9a-f]{64}$"),
        "Digest over the logs of its runs.",
    ),
    Key("single_device", _THROUGHPUT, "Throughput of one device that the speedup was taken over."),
)

_ENTRY: Final = Record(
    dict[str, Any],
    Key(
        "throughput",
        _THROUGHPUT,
        "The accepted number: the median of the runs (and strays), in the unit per second over "
        "all devices.",
        required=True,
    ),
    Key("speedup", _THROUGHPUT, "How many times the throughput of one device it is."),
    Key("mean", _THROUGHPUT, "Mean of the runs (and strays), for the reader."),
    Key("runs", _RUNS, "The runs that the number rests on, by run number, in the unit per second."),
    Key("strays", _RUNS, "What went into the published median but is no run of this case."),
    Key(
        "sessions",
        ListOf(_SESSION, "a list of sessions", may_be_empty=True),
        "Later sessions that passed and were added by --dlperf-extend-baselines: six at most, the "
        "oldest first, one on each line.",
    ),
    Key(
        "tolerance_percent",
        Number(below=100, unit="percent"),
        "How far below the number the case may lie, where it is not the system's own tolerance.",
    ),
    Key("note", Text(), "What a reader of the number should know."),
    Key("accepted", _ACCEPTANCE, "Where the number comes from."),
    Key("machine", MACHINE, MACHINE_HELP),
    Key(
        "recorded",
        Scalar(),
        "When the case got its first number. Recording writes it as the last line and never "
        "changes it, so that branches which change neighbouring cases merge.",
    ),
).placed(
    lambda entry, place: {
        **{name: value for name, value in entry.items() if name != "recorded"},
        "place": f"{place.file}:{place.key_line}",
    }
)

BASELINES: Final = Record(
    dict[str, Any],
    Key("system", Text("a system's name"), "The system's id, the file's name too.", required=True),
    Key("unit", Text("a unit"), "What is counted, per second; that of the system.", required=True),
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
            names=rf"{PRECISION_PATTERN}-b[1-9][0-9]*(-{NAME_PATTERN}(\+{NAME_PATTERN})*)?",
            refused="names no case; the form is <precision>-b<batch>[-<option>[+<option>]]",
            # What is left when entries have been deleted by hand is no mistake.
            may_be_empty=True,
        ),
        "The accepted numbers, by variant (as in fp32-b128) and topology (as in 4n8g).",
        required=True,
    ),
)
"""What stands in a system's file of baselines."""
