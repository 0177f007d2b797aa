"""Results as rows of the database: what is kept of a session, and nothing of SQL."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final

from pytest_dlperf.model.case import Case
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.measurement import Fingerprint, RunStatus
from pytest_dlperf.model.plain import from_plain, to_plain
from pytest_dlperf.model.records import CaseResult
from pytest_dlperf.model.results import parse_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_dlperf.model.measurement import Measurement, Run
    from pytest_dlperf.model.records import MetricResult
    from pytest_dlperf.model.results import BaselineChange, Results

Row = dict[str, Any]
"""A row by the names of its columns; those of other tables are not in it."""

LOST: Final = "lost"
"""What stands for a verdict where a test of the case was lost with its worker."""


def seconds_of(started: str) -> float:
    """Give the seconds of the Unix epoch of a time in ISO 8601."""
    try:
        return parse_time(started).timestamp()
    except (ValueError, OverflowError) as error:
        raise ValueError(f"it began at {started!r}, which is no time") from error


def session_row(*, uid: str, cluster: str, estimator: str, started: str) -> Row:
    """Make the row of a session of which nothing more is known yet."""
    return {
        "uid": text(uid),
        "cluster": text(cluster),
        "estimator": estimator,
        "started": text(started),
        "began": seconds_of(started),
    }


def whole_session_row(results: Results) -> Row:
    """Make the row of a session that has ended."""
    host = results.environment.get("host")
    return {
        **session_row(
            uid=results.session,
            cluster=results.cluster,
            estimator=results.estimator.value,
            started=results.started,
        ),
        # A file need not say when its session ended; that it is whole must stand here.
        "ended": text(results.ended or results.started),
        "interrupted": int(results.interrupted),
        "host": text(host) if isinstance(host, str) else None,
        "environment": json.dumps(results.environment, sort_keys=True, default=str),
    }


def case_row(case: Case) -> Row:
    """Make the row of a case."""
    row = {"name": case.id, **case.axes()}
    del row["system"], row["topology"]  # their parts have columns
    return row


def parts_of(fingerprint: Fingerprint) -> dict[str, str | None]:
    """Give the parts of what a measurement was taken on as JSON, by their columns."""
    return {
        part: json.dumps(facts, sort_keys=True) if facts else None
        for part, facts in to_plain(fingerprint).items()
    }


def fingerprint_of(parts: Mapping[str, str | None]) -> Fingerprint:
    """Put a fingerprint together again."""
    facts = {part: json.loads(text) for part, text in parts.items() if text is not None}
    return from_plain(Fingerprint, facts)


def measurement_rows(result: CaseResult, measured: Measurement | None) -> Iterator[tuple[str, Row]]:
    """Make a row of each metric of a case, by name, without its fingerprint.

    A metric of which nothing is known, such as the speedup over what was not measured, has none.
    """
    over = str(result.case.reference_topology)
    runs = measured.runs if measured is not None else ()
    for name, found in result.metrics().items():
        if found.median is None and found.accepted is None and found.judgement is None:
            continue
        numbers = (found.median, found.mean, found.spread)
        if not all(number is None or math.isfinite(number) for number in numbers):
            raise ValueError(f"the numbers of {name} of {result.case.id} are too large for a mean")
        accepted, judgement, metric = found.accepted, found.judgement, found.metric
        acceptance = accepted.acceptance if accepted else None
        # A ratio has no runs of its own: it rests on those that are divided.
        key = metric.ratio_of or name
        values = [run.metrics[key] for run in runs if key in run.metrics]
        ends = values if metric.ratio_of is None or found.median is None else [found.median]
        yield (
            name,
            {
                "metric": text(name),
                "unit": text(metric.unit),
                "better": metric.better.value if metric.better else None,
                "reference_topology": None if metric.ratio_of is None else over,
                "median": found.median,
                "mean": found.mean,
                "spread": found.spread,
                "lowest": min(ends, default=None),
                "highest": max(ends, default=None),
                "counted": len(values),
                "broken": sum(run.status is not RunStatus.OK for run in runs),
                "accepted": accepted.number if accepted else None,
                "accepted_at": text(acceptance.at) if acceptance else None,
                "accepted_reason": text(acceptance.reason) if acceptance else None,
                "accepted_by": text(acceptance.by) if acceptance else None,
                "accepted_commit": text(acceptance.commit) if acceptance else None,
                "verdict": _verdict(result, found),
                "reference": judgement.reference if judgement else None,
                "difference_percent": judgement.difference_percent if judgement else None,
                "tolerance_percent": judgement.tolerance_percent if judgement else None,
            },
        )


def run_rows(arms: Mapping[str, Measurement]) -> Iterator[Row]:
    """Make the rows of a case's runs, by arm."""
    for arm, run in _runs(arms):
        yield {
            "arm": arm,
            "number": run.run,
            "status": run.status.value,
            "reason": text(run.reason),
        }


def value_rows(arms: Mapping[str, Measurement], metric: str, key: int) -> Iterator[Row]:
    """Make the rows of the numbers that these runs have of a metric, a measurement's by its key."""
    for arm, run in _runs(arms):
        value = run.metrics.get(metric)
        if value is not None:
            yield {"measurement_id": key, "arm": arm, "number": run.run, "value": value}


def arms_of(result: CaseResult, measured: Measurement | None) -> dict[str, Measurement]:
    """Name a case's own measurement and those beside the accepted software."""
    arms = {} if measured is None else {"measured": measured}
    if result.interleaved is not None:
        arms |= {"candidate": result.interleaved.candidate, "control": result.interleaved.control}
    return arms


def _runs(arms: Mapping[str, Measurement]) -> Iterator[tuple[str, Run]]:
    for arm, measurement in arms.items():
        for run in {run.run: run for run in measurement.runs}.values():
            yield arm, run


def change_row(change: BaselineChange) -> Row:
    """Make the row of a number that the session accepted."""
    return {
        "metric": text(change.metric),
        "unit": text(change.unit),
        "old": change.old,
        "new": change.new,
        "why": text(change.why),
        "accepted_by": text(change.by),
        "accepted_commit": text(change.commit),
    }


def of_reference(measured: Measurement) -> CaseResult:
    """Make a case of what was measured only because a speedup is taken over it."""
    return CaseResult(case=Case.from_id(measured.case_id), measurement=measured)


def text(value: str | None) -> str | None:
    """Make a text storable: half of a character, as broken logs have it, is spelt out."""
    return value if value is None else value.encode("utf-8", "backslashreplace").decode("utf-8")


def _verdict(result: CaseResult, found: MetricResult) -> str | None:
    """Give the verdict on a metric, unless it is no worse than that a test of it was lost."""
    verdict = found.judgement.verdict if found.judgement else None
    if result.is_whole:
        is_lost = False
    elif verdict is None:
        is_lost = found.metric.is_judged
    else:
        is_lost = verdict.passes or verdict is Verdict.SKIPPED
    return LOST if is_lost else verdict and verdict.value
