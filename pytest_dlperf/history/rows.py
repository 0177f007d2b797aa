"""Results as rows of the database: what is kept of a session, and nothing of SQL."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from pytest_dlperf.model.case import Case
from pytest_dlperf.model.judgement import Quantity, Verdict
from pytest_dlperf.model.plain import to_plain
from pytest_dlperf.model.records import CaseResult
from pytest_dlperf.model.results import parse_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pytest_dlperf.model.judgement import Judgement
    from pytest_dlperf.model.measurement import Measurement
    from pytest_dlperf.model.results import BaselineChange, Results

Row = dict[str, Any]
"""A row by the names of its columns; those of other tables are not in it."""

LOST: Final = "lost"
"""What stands for a verdict where a test of the case was lost with its worker."""


class Source(str, Enum):
    """Where a session's measurements come from."""

    LAUNCHED = "launched"
    LOGS = "logs"
    IMPORTED = "imported"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementRows:
    """One measurement: its case, itself, its runs, and the facts of what it was taken on."""

    case: Row
    measurement: Row
    runs: tuple[Row, ...]
    facts: tuple[str, str] | None
    """Digest and JSON of the fingerprint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRows:
    """One session: itself, its measurements, and what it accepted, with the case's row."""

    session: Row
    measurements: tuple[MeasurementRows, ...]
    changes: tuple[tuple[Row, Row], ...] = field(default=())


def seconds_of(started: str) -> float:
    """Give the seconds of the Unix epoch of a time in ISO 8601.

    Raises:
        ValueError: It is no time.
    """
    return parse_time(started).timestamp()


def session_rows(results: Results, source: Source) -> SessionRows:
    """Make all rows of a session.

    Raises:
        ValueError: It does not say when it began, or has a case that is none.
    """
    measurements = tuple(
        rows for result in _with_references(results.cases) for rows in measurement_rows(result)
    )
    changes = tuple(_change_rows(change) for change in results.baseline_changes)
    session = {
        **session_row(
            uid=results.session,
            cluster=results.cluster,
            estimator=results.estimator.value,
            started=results.started,
            source=source,
        ),
        # A file need not say when its session ended; that it is whole must stand here.
        "ended": text(results.ended or results.started),
        "interrupted": int(results.interrupted),
        "host": _host(results.environment),
        "environment": json.dumps(results.environment, sort_keys=True, default=str),
    }
    content = json.dumps(
        [
            {name: value for name, value in session.items() if name not in {"source", "digest"}},
            [[rows.measurement, rows.runs, rows.facts] for rows in measurements],
            changes,
        ],
        sort_keys=True,
    )
    session["digest"] = hashlib.sha256(content.encode()).hexdigest()
    return SessionRows(session=session, measurements=measurements, changes=changes)


def session_row(*, uid: str, cluster: str, estimator: str, started: str, source: Source) -> Row:
    """Make the row of a session of which nothing more is known yet.

    Raises:
        ValueError: ``started`` is no time.
    """
    try:
        began = seconds_of(started)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"it began at {started!r}, which is no time") from error
    return {
        "uid": text(uid),
        "cluster": text(cluster),
        "estimator": estimator,
        "started": text(started),
        "began": began,
        "source": source.value,
    }


def measurement_rows(result: CaseResult) -> Iterator[MeasurementRows]:
    """Make the rows of a case, if it was measured.

    Raises:
        ValueError: Its numbers are too large.
    """
    measured = result.measurement
    if measured is None:
        return
    facts = None
    if measured.fingerprint is not None:
        plain = json.dumps(to_plain(measured.fingerprint), sort_keys=True)
        facts = (hashlib.sha256(plain.encode()).hexdigest(), plain)
    arms = {"measured": measured}
    if result.interleaved is not None:
        arms |= {"candidate": result.interleaved.candidate, "control": result.interleaved.control}
    accepted = result.accepted
    numbers = (measured.median, measured.mean, measured.spread)
    if not all(number is None or math.isfinite(number) for number in numbers):
        raise ValueError(f"the throughputs of {result.case.id} are too large to take their mean")
    row = {
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
        "fingerprint": facts[0] if facts else None,
    }
    yield MeasurementRows(
        case=case_row(result.case),
        measurement=row,
        runs=tuple(run for arm, runs in arms.items() for run in _run_rows(arm, runs)),
        facts=facts,
    )


def case_row(case: Case) -> Row:
    """Make the row of a case."""
    return {
        "name": case.id,
        "framework": case.framework,
        "model": case.model,
        "precision": case.precision,
        "batch_per_device": case.batch_per_device,
        "options": "+".join(case.options),
        "nodes": case.topology.nodes,
        "devices_per_node": case.topology.devices_per_node,
    }


def text(value: str | None) -> str | None:
    """Make a text storable: half of a character, as broken logs have it, is spelt out."""
    return value if value is None else value.encode("utf-8", "backslashreplace").decode("utf-8")


def _with_references(cases: Iterable[CaseResult]) -> Iterator[CaseResult]:
    """Yield the cases, then single devices measured only because a speedup needed them."""
    results = list(cases)
    known = {result.case.id for result in results}
    yield from results
    for result in results:
        single = result.single_device
        if single is not None and single.case_id not in known:
            known.add(single.case_id)
            yield CaseResult(case=Case.parse(single.case_id), measurement=single)


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


def _run_rows(arm: str, measurement: Measurement) -> Iterator[Row]:
    for run in {run.run: run for run in measurement.runs}.values():
        yield {
            "arm": arm,
            "number": run.run,
            "throughput": run.throughput,
            "status": run.status.value,
            "reason": text(run.reason),
        }


def _change_rows(change: BaselineChange) -> tuple[Row, Row]:
    row = {
        "quantity": text(change.quantity),
        "unit": text(change.unit),
        "old": change.old,
        "new": change.new,
        "why": text(change.why),
    }
    return case_row(Case.parse(change.case_id)), row


def _host(environment: Mapping[str, Any]) -> str | None:
    host = environment.get("host")
    return text(host) if isinstance(host, str) else None
