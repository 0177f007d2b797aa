"""Results as rows of the database: what is kept of a session, and nothing of SQL."""

from __future__ import annotations

import hashlib
import json
import math
from typing import TYPE_CHECKING, Any, Final

from pytest_dlperf.model.case import Case
from pytest_dlperf.model.judgement import Quantity, Verdict
from pytest_dlperf.model.plain import to_plain
from pytest_dlperf.model.records import CaseResult
from pytest_dlperf.model.results import parse_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_dlperf.model.judgement import Judgement
    from pytest_dlperf.model.measurement import Fingerprint, Measurement
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


def fingerprint_row(fingerprint: Fingerprint) -> Row:
    """Make the row of what a measurement was taken on."""
    facts = json.dumps(to_plain(fingerprint), sort_keys=True)
    return {"digest": hashlib.sha256(facts.encode()).hexdigest(), "facts": facts}


def measurement_row(result: CaseResult, measured: Measurement) -> Row:
    """Make the row of a case's measurement, without its fingerprint."""
    accepted = result.accepted
    numbers = (measured.median, measured.mean, measured.spread)
    if not all(number is None or math.isfinite(number) for number in numbers):
        raise ValueError(f"the throughputs of {result.case.id} are too large to take their mean")
    return {
        "unit": text(measured.unit),
        "median": measured.median,
        "mean": measured.mean,
        "spread": measured.spread,
        "slowest": min(measured.throughputs, default=None),
        "fastest": max(measured.throughputs, default=None),
        "counted": len(measured.throughputs),
        "broken": len(measured.broken_runs),
        "speedup": result.speedup,
        "accepted": accepted.throughput if accepted else None,
        "accepted_speedup": accepted.speedup if accepted else None,
        "accepted_at": text(accepted.at) if accepted else None,
        "accepted_reason": text(accepted.reason) if accepted else None,
        **_judged(result, Quantity.THROUGHPUT, ""),
        **_judged(result, Quantity.SPEEDUP, "speedup_"),
    }


def run_rows(result: CaseResult, measured: Measurement) -> Iterator[Row]:
    """Make the rows of a case's runs, with those of the control arm."""
    arms = {"measured": measured}
    if result.interleaved is not None:
        arms |= {"candidate": result.interleaved.candidate, "control": result.interleaved.control}
    for arm, measurement in arms.items():
        for run in {run.run: run for run in measurement.runs}.values():
            yield {
                "arm": arm,
                "number": run.run,
                "throughput": run.throughput,
                "status": run.status.value,
                "reason": text(run.reason),
            }


def change_row(change: BaselineChange) -> Row:
    """Make the row of a number that the session accepted."""
    return {
        "quantity": text(change.quantity),
        "unit": text(change.unit),
        "old": change.old,
        "new": change.new,
        "why": text(change.why),
    }


def with_references(results: Results) -> Iterator[CaseResult]:
    """Yield the cases, then single devices measured only because a speedup needed them."""
    known = {result.case.id for result in results.cases}
    yield from results.cases
    for result in results.cases:
        single = result.single_device
        if single is not None and single.case_id not in known:
            known.add(single.case_id)
            yield CaseResult(case=Case.parse(single.case_id), measurement=single)


def text(value: str | None) -> str | None:
    """Make a text storable: half of a character, as broken logs have it, is spelt out."""
    return value if value is None else value.encode("utf-8", "backslashreplace").decode("utf-8")


def _judged(result: CaseResult, quantity: Quantity, prefix: str) -> Row:
    judgement = result.judgements.get(quantity)
    verdict = judgement.verdict.value if judgement else None
    if not result.is_whole and _would_pass(judgement, quantity):
        verdict = LOST
    return {
        f"{prefix}verdict": verdict,
        f"{prefix}reference": judgement.reference if judgement else None,
        f"{prefix}difference_percent": judgement.difference_percent if judgement else None,
        f"{prefix}tolerance_percent": judgement.tolerance_percent if judgement else None,
    }


def _would_pass(judgement: Judgement | None, quantity: Quantity) -> bool:
    """Say whether a verdict is no worse than that a test of the case was lost."""
    if judgement is None:
        return quantity is Quantity.THROUGHPUT
    return judgement.verdict.passes or judgement.verdict is Verdict.SKIPPED
