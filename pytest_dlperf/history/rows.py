"""Results as rows of the database's tables, without SQL."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from msgspec import to_builtins

from pytest_dlperf.model.case import Case
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.measurement import Fingerprint
from pytest_dlperf.model.results import CaseResult, MetricResult, Results, parse_time

Row = dict[str, Any]
"""A row by the names of its columns, without the keys of other tables."""


def seconds_of(started: str) -> float:
    """Seconds of the Unix epoch of a time in ISO 8601."""
    try:
        return parse_time(started).timestamp()
    except (ValueError, OverflowError) as error:
        raise ValueError(f"it began at {started!r}, which is not a valid time") from error


def session_row(results: Results) -> Row:
    """Make the row of a session."""
    return {
        "uid": results.session,
        "cluster": results.cluster,
        "estimator": results.estimator.value,
        "started": results.started,
        "began": seconds_of(results.started),
        "ended": results.ended or results.started,
        "interrupted": int(results.interrupted),
        "environment": json.dumps(results.environment, sort_keys=True, default=str),
    }


def parts_of(fingerprint: Fingerprint) -> dict[str, str | None]:
    """Parts of a fingerprint as JSON, by their columns."""
    return {
        part: json.dumps(facts, sort_keys=True) if facts else None
        for part, facts in to_builtins(fingerprint).items()
    }


def reference_results(results: Results) -> Iterator[CaseResult]:
    """Yield a result of each case that was measured only as the reference of a speedup."""
    for measured in results.reference_measurements:
        yield CaseResult(case=Case.from_id(measured.case_id), measurement=measured)


def measurement_rows(result: CaseResult) -> Iterator[Row]:
    """Make a row for each metric of a case that has a number, a baseline or a judgement."""
    measured = result.measurement
    for name, found in result.metrics().items():
        if found.median is None and found.accepted is None and found.judgement is None:
            continue
        if not all(math.isfinite(number or 0.0) for number in (found.median, found.spread)):
            raise ValueError(f"the numbers of {name} of {result.case.id} are too large for a mean")
        accepted, judgement, metric = found.accepted, found.judgement, found.metric
        acceptance = accepted.acceptance if accepted else None
        decision = judgement.decision if judgement else None
        # A ratio has no runs of its own: these are those of the metric it is taken of.
        key, is_ratio = metric.ratio_of or name, metric.ratio_of is not None
        runs = measured.runs if measured is not None else ()
        values = [run.metrics[key] for run in runs if key in run.metrics]
        ends = [found.median] if is_ratio and found.median is not None else values
        yield {
            "metric": name,
            "unit": metric.unit,
            "better": metric.better,
            "reference_topology": str(result.case.reference_topology) if is_ratio else None,
            "median": found.median,
            "spread": found.spread,
            "lowest": min(ends, default=None),
            "highest": max(ends, default=None),
            "run_values": json.dumps([] if is_ratio else values),
            "counted": len(values),
            "broken": len(measured.broken_runs) if measured else 0,
            "logs_digest": measured.logs_digest if measured else None,
            "accepted": accepted.accepted if accepted else None,
            "accepted_at": acceptance.at if acceptance else None,
            "accepted_reason": acceptance.reason if acceptance else None,
            "accepted_by": acceptance.by if acceptance else None,
            "accepted_commit": acceptance.commit if acceptance else None,
            "verdict": _verdict(result, found),
            "reference": decision.reference if decision else None,
            "difference_percent": decision.difference_percent if decision else None,
        }


def _verdict(result: CaseResult, found: MetricResult) -> Verdict | None:
    """Verdict, or ``lost`` where that is worse."""
    verdict = found.judgement.verdict if found.judgement else None
    if result.is_whole:
        return verdict
    if verdict is None:
        return Verdict.LOST if found.metric.is_judged else None
    return Verdict.LOST if verdict.passes or verdict is Verdict.SKIPPED else verdict
