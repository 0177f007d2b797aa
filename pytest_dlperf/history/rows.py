"""Results as rows of the database's tables, without SQL."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, Final

from msgspec import to_builtins

from pytest_dlperf.model.case import Case
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.measurement import Fingerprint, Measurement, RunStatus
from pytest_dlperf.model.results import CaseResult, MetricResult, Results, parse_time

Row = dict[str, Any]
"""A row by the names of its columns, without the keys of other tables."""

_OF_TRAININGS: Final = (
    "precision",
    "batch_per_replica",
    "global_batch",
    "sequence_length",
    "parallel",
    "options",
)
"""Columns that are null for a probe."""


def seconds_of(started: str) -> float:
    """Seconds of the Unix epoch of a time in ISO 8601."""
    try:
        return parse_time(started).timestamp()
    except (ValueError, OverflowError) as error:
        raise ValueError(f"it began at {started!r}, which is not a valid time") from error


def session_row(results: Results) -> Row:
    """Make the row of a session."""
    host = results.environment.get("host")
    return {
        "uid": results.session,
        "cluster": results.cluster,
        "estimator": results.estimator.value,
        "started": results.started,
        "began": seconds_of(results.started),
        "ended": results.ended or results.started,
        "interrupted": int(results.interrupted),
        "host": host if isinstance(host, str) else None,
        "environment": json.dumps(results.environment, sort_keys=True, default=str),
    }


def case_row(case: Case) -> Row:
    """Make the row of a case."""
    axes = {name: value for name, value in case.axes().items() if name not in case.free_axes}
    own = {"axes": json.dumps(dict(case.free_axes)) if case.free_axes else None}
    # The parts of system and topology have columns.
    columns = {name: value for name, value in axes.items() if name not in {"system", "topology"}}
    return {**dict.fromkeys(_OF_TRAININGS), **columns, **own, "name": case.id}


def parts_of(fingerprint: Fingerprint) -> dict[str, str | None]:
    """Parts of a fingerprint as JSON, by their columns."""
    return {
        part: json.dumps(facts, sort_keys=True) if facts else None
        for part, facts in to_builtins(fingerprint).items()
    }


def measurement_rows(result: CaseResult, measured: Measurement | None) -> Iterator[Row]:
    """Make a row for each metric of a case, without its fingerprint.

    A metric without any number or judgement has none, such as a speedup whose reference was not
    measured.
    """
    over = str(result.case.reference_topology)
    runs = measured.runs if measured is not None else ()
    logs_digest = measured.logs_digest if measured is not None else None
    for name, found in result.metrics().items():
        if found.median is None and found.accepted is None and found.judgement is None:
            continue
        numbers = (found.median, found.mean, found.spread)
        if not all(number is None or math.isfinite(number) for number in numbers):
            raise ValueError(f"the numbers of {name} of {result.case.id} are too large for a mean")
        accepted, judgement, metric = found.accepted, found.judgement, found.metric
        acceptance = accepted.acceptance if accepted else None
        decision = judgement.decision if judgement else None
        # A ratio has no runs of its own: these are those of the metric it is taken of.
        key = metric.ratio_of or name
        values = [run.metrics[key] for run in runs if key in run.metrics]
        ends = values if metric.ratio_of is None or found.median is None else [found.median]
        yield {
            "metric": name,
            "unit": metric.unit,
            "better": metric.better.value if metric.better else None,
            "reference_topology": None if metric.ratio_of is None else over,
            "median": found.median,
            "mean": found.mean,
            "spread": found.spread,
            "lowest": min(ends, default=None),
            "highest": max(ends, default=None),
            "run_values": json.dumps(values if metric.ratio_of is None else []),
            "counted": len(values),
            "broken": sum(run.status is not RunStatus.OK for run in runs),
            "logs_digest": logs_digest,
            "accepted": accepted.accepted if accepted else None,
            "accepted_at": acceptance.at if acceptance else None,
            "accepted_reason": acceptance.reason if acceptance else None,
            "accepted_by": acceptance.by if acceptance else None,
            "accepted_commit": acceptance.commit if acceptance else None,
            "verdict": _verdict(result, found),
            "reference": decision.reference if decision else None,
            "difference_percent": decision.difference_percent if decision else None,
            "tolerance_percent": decision.tolerance_percent if decision else None,
        }


def of_reference(measured: Measurement) -> CaseResult:
    """Make the result of a case that was measured only as the reference of a speedup."""
    return CaseResult(case=Case.from_id(measured.case_id), measurement=measured)


def _verdict(result: CaseResult, found: MetricResult) -> str | None:
    """Verdict, or ``lost`` where that is worse."""
    verdict = found.judgement.verdict if found.judgement else None
    if result.is_whole:
        is_lost = False
    elif verdict is None:
        is_lost = found.metric.is_judged
    else:
        is_lost = verdict.passes or verdict is Verdict.SKIPPED
    return Verdict.LOST.value if is_lost else verdict and verdict.value
