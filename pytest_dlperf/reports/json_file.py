"""The results file: schema 1, for machines."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pytest_dlperf.gate.verdict import Quantity
from pytest_dlperf.locks import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pytest_dlperf.gate.verdict import Judgement
    from pytest_dlperf.logs.tree import IgnoredLog
    from pytest_dlperf.measurement import Estimator, Measurement
    from pytest_dlperf.reports.accepted import AcceptedChange
    from pytest_dlperf.session import CaseResult

SCHEMA: Final = 1
SPREAD_DECIMALS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFacts:
    """What holds for all cases of a session. ``started`` is ISO 8601 with its zone."""

    cluster: str
    estimator: Estimator
    started: str
    environment: Mapping[str, Any]
    units: Mapping[str, str]
    """Unit by system."""


def write_json(
    file: Path,
    facts: SessionFacts,
    results: Iterable[CaseResult],
    ignored_logs: Iterable[IgnoredLog],
    changes: Iterable[AcceptedChange] = (),
) -> None:
    """Write the results of a session.

    Raises:
        OSError: The file cannot be written.
    """
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "cluster": facts.cluster,
        "estimator": facts.estimator.value,
        "started": facts.started,
        "environment": dict(facts.environment),
        "cases": [_case(result, facts) for result in results],
        "ignored_logs": [{"log": item.log, "reason": item.reason} for item in ignored_logs],
    }
    accepted = [change.to_plain() for change in changes]
    if accepted:
        document["baseline_changes"] = accepted
    write_whole(file, json.dumps(document, indent=2, allow_nan=False) + "\n")


def _case(result: CaseResult, facts: SessionFacts) -> dict[str, Any]:
    case, measurement = result.case, result.measurement
    spread = measurement.spread if measurement else None
    return {
        "id": case.id,
        "system": case.system,
        "framework": case.framework,
        "model": case.model,
        "precision": case.precision,
        "batch_per_device": case.batch_per_device,
        "options": list(case.options),
        "topology": str(case.topology),
        "nodes": case.topology.nodes,
        "devices_per_node": case.topology.devices_per_node,
        "unit": measurement.unit if measurement else facts.units.get(case.system),
        "runs": [run.to_plain() for run in measurement.runs] if measurement else [],
        "throughput": {
            "median": measurement.median if measurement else None,
            "mean": measurement.mean if measurement else None,
            "spread": round(spread, SPREAD_DECIMALS) if spread is not None else None,
        },
        "speedup": result.speedup,
        "baseline": result.accepted.to_plain() if result.accepted else None,
        "verdict": {
            quantity.value: verdict.value if (verdict := result.verdict(quantity)) else None
            for quantity in Quantity
        },
        "gate": {
            quantity.value: _gate(judgement) if judgement else None
            for quantity in Quantity
            for judgement in [result.judgements.get(quantity)]
        },
        **_taken_on(measurement),
        **_available(measurement),
        **({"in_turn": result.in_turn.to_plain()} if result.in_turn else {}),
    }


def _gate(judgement: Judgement) -> dict[str, Any]:
    """How a verdict came about: the judgement without what stands elsewhere."""
    plain = judgement.to_plain()
    for key in ("quantity", "verdict", "measured", "baseline"):
        del plain[key]
    return plain


def _taken_on(measurement: Measurement | None) -> dict[str, Any]:
    """Machine, software and hosts, where somebody could look."""
    if measurement is None or measurement.fingerprint is None:
        return {}
    return {"fingerprint": measurement.fingerprint.to_plain()}


def _available(measurement: Measurement | None) -> dict[str, Any]:
    """How many runs there were to be had, where that was not as many as wanted."""
    if measurement is None or measurement.available is None:
        return {}
    return {"available_runs": measurement.available}
