"""Properties of a test in JUnit's XML: flat, each only where it is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_dlperf.model.judgement import Quantity
from pytest_dlperf.reports import numbers
from pytest_dlperf.reports.figures import decisive, difference_percent
from pytest_dlperf.reports.report import Report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_dlperf.model.judgement import Judgement
    from pytest_dlperf.model.measurement import Measurement
    from pytest_dlperf.model.records import TestRecord


class JUnitReport(Report):
    """Properties of each test, which ``--junitxml`` and other reporters of tests write."""

    name = "JUnit properties"

    def __init__(self, cluster: str) -> None:
        """Take the cluster's name, which stands with each test."""
        self._cluster = cluster

    def properties(self, record: TestRecord) -> Iterator[tuple[str, str]]:
        """Yield name and value of each property, ``dlperf.`` before each name.

        Values are one printable line: names and reasons come from logs. Numbers are written with a
        dot, throughputs in the unit per second, what ends in ``percent`` in percent. Where a test
        was judged on both quantities, the worse verdict is told.
        """
        judgement = decisive(record)
        values: dict[str, Any] = {"case": record.case.id, **record.case.axes()}
        values["quantity"] = (judgement.quantity if judgement else record.quantity).value
        values["cluster"] = self._cluster
        if judgement is not None:
            values |= _of_judgement(judgement, record)
        measurement = record.measurements.get(record.case.id)
        if measurement is not None:
            values |= _of_measurement(measurement)
        single_device = record.measurements.get(record.case.single_device.id)
        if single_device is not None and single_device is not measurement:
            values["single_device_median"] = single_device.median
            values["single_device_logs"] = _logs(single_device)
        for name, value in values.items():
            text = _text(value)
            if text:
                yield f"dlperf.{name}", text


def _of_judgement(judgement: Judgement, record: TestRecord) -> dict[str, Any]:
    is_speedup = judgement.quantity is Quantity.SPEEDUP
    accepted = record.accepted
    number = judgement.accepted
    if number is None and accepted is not None:
        number = accepted.speedup if is_speedup else accepted.throughput
    return {
        "verdict": judgement.verdict.value,
        "recorded": "yes" if judgement.recorded else None,
        "speedup": judgement.measured if is_speedup else None,
        "accepted": number,
        "reference": judgement.reference,
        "median_difference_percent": difference_percent(judgement),
        "difference_percent": judgement.difference_percent,
        "interval_percent": judgement.interval_percent,
        "tolerance_percent": judgement.tolerance_percent,
        "min_detectable_percent": judgement.min_detectable_percent,
        "false_alarm": judgement.false_alarm,
        "rule": judgement.rule.value if judgement.rule else None,
        "reason": numbers.in_short(judgement.reason) if judgement.reason else None,
        "notes": "; ".join(map(numbers.in_short, judgement.notes)),
    }


def _of_measurement(measurement: Measurement) -> dict[str, Any]:
    spread, fingerprint = measurement.spread, measurement.fingerprint
    return {
        "unit": measurement.unit,
        "estimator": measurement.estimator.value,
        "median": measurement.median,
        "mean": measurement.mean,
        "spread": spread,
        "runs": len(measurement.runs),
        "throughputs": measurement.throughputs,
        "broken_runs": ", ".join(
            f"{run.run} {run.status.value}" for run in measurement.broken_runs
        ),
        "hosts": " ".join(fingerprint.hosts) if fingerprint else None,
        "logs": _logs(measurement),
    }


def _logs(measurement: Measurement) -> str:
    return ", ".join(run.log for run in measurement.runs if run.log)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, tuple):
        return " ".join(map(_text, value))
    if isinstance(value, float):
        return f"{value:.10g}"
    return numbers.printable(str(value))
