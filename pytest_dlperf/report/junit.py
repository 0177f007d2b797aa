"""Properties of a test in JUnit's XML: flat, each only where it is known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pytest_dlperf.model.measurement import Measurement
from pytest_dlperf.model.results import CaseResult, MetricResult
from pytest_dlperf.report import printing
from pytest_dlperf.report.columns import decisive
from pytest_dlperf.results.file import metric_entry


def junit_properties(result: CaseResult, metric: str, *, cluster: str) -> Iterator[tuple[str, str]]:
    """Yield name and value of each property: ``dlperf.<name>``, ``dlperf.<metric>.<name>``.

    Values are one printable line: names and reasons come from logs. Numbers are written with a
    dot, those of a metric in its unit, what ends in ``percent`` in percent. A test has the metrics
    that it judges, the worst first; that of the first metric also those that no test judges.
    """
    judgement = decisive(result, metric)
    about = judgement.metric.name if judgement else metric
    values: dict[str, Any] = {"case": result.case.id, **result.case.axes()}
    values |= {"metric": about, "cluster": cluster}
    if judgement is not None:
        values["verdict"] = judgement.verdict.value
    if result.measurement is not None:
        values |= _of_measurement(result.measurement)
    for name, known in result.metrics().items():
        if name == about or name in result.judgements or _is_beside(known, result, metric):
            values |= {f"{name}.{key}": value for key, value in _of_metric(known, result).items()}
    for name, value in values.items():
        if text := _text(value):
            yield f"dlperf.{name}", text


def _is_beside(known: MetricResult, result: CaseResult, metric: str) -> bool:
    """Tell whether a metric without a test of its own stands with this one."""
    measurement = result.measurement
    is_first = measurement is not None and measurement.metrics[0].name == metric
    return is_first and not known.metric.is_judged and known.median is not None


def _of_metric(known: MetricResult, result: CaseResult) -> dict[str, Any]:
    entry = metric_entry(known)
    if entry["reason"]:
        entry["reason"] = printing.in_short(entry["reason"])
    runs = result.measurement.runs if result.measurement is not None else ()
    name, since = known.metric.name, known.explanation and known.explanation.since
    values = tuple(run.metrics[name] for run in runs if name in run.metrics)
    return {**entry, "values": values, "since": since.at if since else None}


def _of_measurement(measurement: Measurement) -> dict[str, Any]:
    broken = (f"{run.run} {run.status.value}" for run in measurement.broken_runs)
    return {
        "estimator": measurement.estimator.value,
        "runs": len(measurement.runs),
        "broken_runs": ", ".join(broken),
        "hosts": measurement.fingerprint.hosts if measurement.fingerprint else None,
        "logs": ", ".join(run.log for run in measurement.runs if run.log),
    }


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, tuple):
        return " ".join(map(_text, value))
    return f"{value:.10g}" if isinstance(value, float) else printing.printable(str(value))
