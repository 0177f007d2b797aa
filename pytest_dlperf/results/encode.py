"""Write the results file: a session as JSON for machines."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_dlperf.files.writing import write_whole
from pytest_dlperf.model.plain import to_plain
from pytest_dlperf.model.records import MetricResult
from pytest_dlperf.results.decode import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_dlperf.model.case import Case
    from pytest_dlperf.model.judgement import Judgement
    from pytest_dlperf.model.measurement import Measurement
    from pytest_dlperf.model.metric import Metric
    from pytest_dlperf.model.records import CaseResult
    from pytest_dlperf.model.results import Results


def write_json(file: Path, results: Results) -> None:
    """Write the results file of a session."""
    write_whole(file, json.dumps(encode(results), indent=2, allow_nan=False) + "\n")


def encode(results: Results) -> dict[str, Any]:
    """Turn results into builtins, in the form of ``schema.json``."""
    plain: dict[str, Any] = to_plain(replace(results, cases=()))
    del plain["log_names"]
    return {
        "schema": SCHEMA,
        **plain,
        "cases": [_entry(result, results.metrics) for result in results.cases],
        "reference_measurements": list(map(_measurement, results.reference_measurements)),
        "baseline_changes": [
            {**to_plain(change), "difference_percent": change.difference_percent}
            for change in results.baseline_changes
        ],
    }


def _measurement(measured: Measurement) -> dict[str, Any]:
    return {**to_plain(measured), "metrics": [metric.name for metric in measured.metrics]}


def _entry(result: CaseResult, systems: Mapping[str, tuple[Metric, ...]]) -> dict[str, Any]:
    measured = to_plain(result.measurement) if result.measurement else {}
    turns = result.interleaved
    return {
        **_axes(result.case),
        "runs": measured.get("runs", []),
        "metrics": {name: _metric(one) for name, one in _metrics(result, systems).items()},
        "fingerprint": measured.get("fingerprint"),
        "available_runs": measured.get("available_runs"),
        "whole": result.is_whole,
        "unfinished": list(result.unfinished),
        "interleaved": turns
        and {"candidate": _measurement(turns.candidate), "control": _measurement(turns.control)},
    }


def _axes(case: Case) -> dict[str, Any]:
    axes = case.axes()
    batch = {"per_replica": axes.pop("batch_per_replica"), "global": axes.pop("global_batch")}
    reference = case.reference_topology
    return {
        "id": case.id,
        **axes,
        "batch": batch,
        "parallel": case.layout.ways,
        "options": list(case.options),
        "reference_topology": None if reference is None else str(reference),
    }


def _metrics(
    result: CaseResult, systems: Mapping[str, tuple[Metric, ...]]
) -> Mapping[str, MetricResult]:
    """Add to what is known of each metric what else the system measures, where nothing ran."""
    known = result.metrics()
    if result.measurement is not None:
        return known
    others = {
        metric.name: MetricResult(metric=metric, accepted=result.accepted.get(metric.name))
        for metric in systems.get(result.case.system, ())
        if metric.ratio_of is None or result.case.is_scaled
    }
    return {**others, **known}


def _metric(found: MetricResult) -> dict[str, Any]:
    judgement = found.judgement
    return {
        **metric_entry(found),
        "baseline": to_plain(found.accepted),
        "gate": _gate(judgement) if judgement else None,
        "explanation": to_plain(found.explanation),
    }


def metric_entry(found: MetricResult) -> dict[str, Any]:
    """Give what was measured and judged of a metric, by the names that every report has for it."""
    judgement, better = found.judgement, found.metric.better
    spread = None if found.spread is None else round(found.spread, 3)
    return {
        "unit": found.metric.unit,
        "better": better.value if better else None,
        **{
            name: value if value is not None and math.isfinite(value) else None
            for name, value in (("median", found.median), ("mean", found.mean), ("spread", spread))
        },
        "accepted": found.accepted.number if found.accepted else None,
        "reference": found.reference,
        "difference_percent": judgement.difference_percent if judgement else None,
        "verdict": judgement.verdict.value if judgement else None,
        "reason": judgement.reason if judgement else None,
        "efficiency_percent": found.efficiency_percent,
    }


def _gate(judgement: Judgement) -> dict[str, Any]:
    plain: dict[str, Any] = to_plain(judgement)
    del plain["metric"]
    return plain
