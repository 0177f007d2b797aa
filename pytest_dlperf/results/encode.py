"""The results file, schema 1: results as builtins and as JSON, for machines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from pytest_dlperf.files.locks import write_whole
from pytest_dlperf.model.judgement import Quantity

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pytest_dlperf.model.judgement import Judgement
    from pytest_dlperf.model.measurement import Measurement
    from pytest_dlperf.model.records import CaseResult
    from pytest_dlperf.model.results import Results

SCHEMA: Final = 1
SPREAD_DECIMALS: Final = 3


def write_json(file: Path, results: Results) -> None:
    """Write the results of a session.

    Raises:
        OSError: The file cannot be written.
    """
    write_whole(file, json.dumps(to_plain(results), indent=2, allow_nan=False) + "\n")


def to_plain(results: Results) -> dict[str, Any]:
    """The results as builtins, in the form of schema 1."""
    changes = [change.to_plain() for change in results.baseline_changes]
    references = [measurement.to_plain() for measurement in _references(results.cases)]
    return {
        "schema": SCHEMA,
        "session": results.session,
        "cluster": results.cluster,
        "estimator": results.estimator.value,
        "started": results.started,
        "ended": results.ended,
        "interrupted": results.interrupted,
        "strict": results.strict,
        "environment": dict(results.environment),
        "cases": [_case(result, results) for result in results.cases],
        "ignored_logs": [{"log": item.log, "reason": item.reason} for item in results.ignored_logs],
        "unfit_hosts": {host: list(faults) for host, faults in results.unfit_hosts.items()},
        **({"baseline_changes": changes} if changes else {}),
        **({"references": references} if references else {}),
    }


def _references(results: Iterable[CaseResult]) -> Iterable[Measurement]:
    """Single devices that speedups were taken over without a test of their own, each once."""
    results = list(results)
    selected = {result.case.id for result in results}
    found = {
        result.case.single_device.id: result.single_device
        for result in results
        if result.single_device is not None
    }
    return [measurement for case_id, measurement in found.items() if case_id not in selected]


def _case(result: CaseResult, results: Results) -> dict[str, Any]:
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
        "unit": results.unit_of(result),
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
        # What is usual is not said.
        **({} if result.is_whole else {"whole": False}),
        **({"unfinished": [q.value for q in result.unfinished]} if result.unfinished else {}),
        **({"interleaved": result.interleaved.to_plain()} if result.interleaved else {}),
    }


def _gate(judgement: Judgement) -> dict[str, Any]:
    """How a verdict came about: the judgement without what stands elsewhere."""
    plain = judgement.to_plain()
    for key in ("quantity", "verdict", "measured", "accepted"):
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
