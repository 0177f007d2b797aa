"""Reads a system's accepted numbers, ``<cluster>/<system>.yaml``."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from pytest_dlperf.config.cluster import Cluster, read_estimator, read_facts
from pytest_dlperf.config.schema import BASELINES_SCHEMA, schema
from pytest_dlperf.files.yamlfile import YamlValue, load
from pytest_dlperf.files.yamlschema import check
from pytest_dlperf.model.baseline import Acceptance, AcceptedSession, Baseline
from pytest_dlperf.model.measurement import Estimator

if TYPE_CHECKING:
    from collections.abc import Mapping


def load_baselines(cluster: Cluster, system: str) -> dict[tuple[str, str], Baseline]:
    """Read a system's baselines, by variant (``fp32-b128``) and topology.

    Raises:
        YamlError: The file has mistakes.
    """
    file = cluster.directory / f"{system}.yaml"
    if not file.exists():
        return {}
    return load(file, lambda root: read_system_baselines(root, system, cluster.machine))


def read_system_baselines(
    root: YamlValue, system: str, machine: Mapping[str, str]
) -> dict[tuple[str, str], Baseline]:
    """Read a system's file from its root, by variant and topology.

    ``machine`` is the cluster's: what entries were measured on that do not say it themselves.
    """
    if not check(root, schema(BASELINES_SCHEMA)):
        return {}
    fields = root.checked_fields()
    declared = fields.get("system", lambda v: v.text(), system)
    named = fields.place("system")
    if named is not None and declared != system:
        named.fault(f"found {declared!r}; the file's name says {system!r}")
    unit = fields.get("unit", lambda v: v.text(), "")
    estimator = fields.get("estimator", read_estimator, Estimator.STEADY)
    # What is left when entries have been deleted by hand is no mistake.
    entries = fields.place("entries")
    baselines = {}
    for variant, group in entries.entries(or_nothing=True) if entries else ():
        lines = group.key_lines
        for topology, value in group.entries(or_nothing=True):
            place = f"{root.file}:{lines[topology]}"
            baselines[variant, topology] = _read_baseline(value, place, unit, estimator, machine)
    return baselines


def _read_baseline(
    value: YamlValue, place: str, unit: str, estimator: Estimator, machine: Mapping[str, str]
) -> Baseline:
    fields = value.checked_fields()
    return Baseline(
        throughput=fields.get("throughput", _number, 0.0),
        speedup=fields.get("speedup", _number, None),
        unit=unit,
        estimator=estimator,
        tolerance_percent=fields.get("tolerance_percent", _number, None),
        mean=fields.get("mean", _number, None),
        runs=fields.get("runs", _read_runs, {}),
        strays=fields.get("strays", _read_runs, {}),
        note=fields.get("note", lambda v: v.text(), None),
        place=place,
        sessions=fields.get("sessions", _read_sessions, ()),
        accepted=fields.get("accepted", _read_acceptance, None),
        machine=fields.get("machine", read_facts, machine),
    )


def _number(value: YamlValue) -> float | None:
    return value.positive_number()


def _read_runs(value: YamlValue) -> dict[int, float]:
    read = {int(key): _number(item) for key, item in value.entries()}
    return {run: throughput for run, throughput in read.items() if throughput is not None}


def _read_sessions(value: YamlValue) -> tuple[AcceptedSession, ...]:
    return tuple(map(_read_session, () if value.is_empty else _items(value)))


def _read_session(value: YamlValue) -> AcceptedSession:
    fields = value.checked_fields()
    none: tuple[float, ...] = ()
    return AcceptedSession(
        at=fields.get("at", _read_time, ""), runs=fields.get("runs", _read_throughputs, none)
    )


def _read_throughputs(value: YamlValue) -> tuple[float, ...]:
    return tuple(number for item in _items(value) if (number := _number(item)) is not None)


def _read_acceptance(value: YamlValue) -> Acceptance:
    fields = value.checked_fields()
    return Acceptance(
        at=fields.get("at", _read_time, ""),
        commit=fields.get("commit", lambda v: v.scalar(), None),
        reason=fields.get("reason", lambda v: v.scalar(), None),
        hosts=fields.get("hosts", _read_hosts, ()),
        software=fields.get("software", read_facts, {}),
        logs=fields.get("logs", lambda v: v.text(), None),
        single_device=fields.get("single_device", _number, None),
    )


def _read_hosts(value: YamlValue) -> tuple[str, ...]:
    return tuple(host for item in _items(value) if (host := item.scalar()) is not None)


def _items(value: YamlValue) -> list[YamlValue]:
    return value.items("a list") if not value.is_empty_list else []


def _read_time(value: YamlValue) -> str | None:
    text = value.text()
    if text is None:
        return None
    try:
        read_time(text)
    except ValueError as error:
        value.fault(str(error))
        return None
    return text


def read_time(text: str) -> datetime:
    """Read a time with its zone, ISO 8601.

    Raises:
        ValueError: The text is anything else.
    """
    try:
        # Python 3.10 does not know the Z.
        time = datetime.fromisoformat(f"{text[:-1]}+00:00" if text.endswith("Z") else text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        msg = f"{text!r} is no time with its zone; write it as in '2026-11-21T03:00:00+00:00'"
        raise ValueError(msg)
    return time
