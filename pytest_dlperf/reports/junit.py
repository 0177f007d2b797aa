"""Properties of a test in JUnit's XML: flat, each only where it is known."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from pytest_dlperf.model.results import CaseResult, merge
from pytest_dlperf.night import texts
from pytest_dlperf.night.figures import decisive, difference_percent, notes_of
from pytest_dlperf.reports.report import Report
from pytest_dlperf.results.file import metric_entry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_dlperf.model.judgement import Explanation, Judgement, Note
    from pytest_dlperf.model.measurement import Measurement
    from pytest_dlperf.model.results import MetricResult, TestRecord


class JUnitReport(Report):
    """Properties of each test, which ``--junitxml`` and other reporters of tests write."""

    name = "JUnit properties"

    def __init__(self, cluster: str) -> None:
        """Take the cluster's name, which stands with each test."""
        self._cluster = cluster

    def properties(self, record: TestRecord) -> Iterator[tuple[str, str]]:
        """Yield name and value of each property: ``dlperf.<name>``, ``dlperf.<metric>.<name>``.

        Values are one printable line: names and reasons come from logs. Numbers are written with a
        dot, those of a metric in its unit, what ends in ``percent`` in percent. A test has the
        metrics that it judges; that of the first metric also those that no test judges. Where
        it judges several, it is about the one with the worst verdict.
        """
        judgement = decisive(record)
        about = judgement.metric.name if judgement else record.metric
        values: dict[str, Any] = {"case": record.case.id, **record.case.axes()}
        values["reference_topology"] = record.case.reference_topology
        if record.case.work is not None:
            values["scaling"] = record.case.scaling.value
        values["metric"] = about
        values["cluster"] = self._cluster
        if judgement is not None:
            values["verdict"] = judgement.verdict.value
        result = merge(CaseResult(case=record.case), record)
        measurement, over = result.measurement, result.reference
        if measurement is not None:
            values |= _of_measurement(measurement)
        if over is not None and over is not measurement:
            values["reference_logs"] = _logs(over)
        for name, known in result.metrics().items():
            if name == about or name in record.judgements or _is_beside(known, record):
                of_metric = _of_metric(known, result)
                values |= {f"{name}.{key}": value for key, value in of_metric.items()}
        for name, value in values.items():
            text = _text(value)
            if text:
                yield f"dlperf.{name}", text


def _is_beside(known: MetricResult, record: TestRecord) -> bool:
    """Tell whether a metric without a test of its own stands with this one."""
    measurement = record.measurements.get(record.case.id)
    is_first = measurement is not None and measurement.metrics[0].name == record.metric
    return is_first and not known.metric.is_judged and known.median is not None


def _of_metric(known: MetricResult, result: CaseResult) -> dict[str, Any]:
    metric, measured, over = known.metric, result.measurement, result.reference
    if metric.ratio_of is not None:
        base = over.samples(metric.ratio_of).median if over is not None else None
        runs: dict[str, Any] = {"reference_median": base}
    else:
        runs = {"values": _values(measured, metric.name)}
    more = _of_judgement(known.judgement) if known.judgement else {}
    source = known.accepted.acceptance if known.accepted else None
    accepted = {
        f"accepted_{name}": getattr(source, name, None) for name in ("by", "at", "reason", "commit")
    }
    why = _of_explanation(known.explanation) if known.explanation else {}
    return {**metric_entry(known), **accepted, "spread": known.spread, **runs, **more, **why}


def _of_judgement(judgement: Judgement) -> dict[str, Any]:
    """Give what programs are told of a judgement beside ``metric_entry``."""
    return {
        "median_difference_percent": difference_percent(judgement),
        "loss_percent": judgement.loss_percent,
        "interval_percent": judgement.interval_percent,
        "tolerance_percent": judgement.tolerance_percent,
        "min_detectable_percent": judgement.min_detectable_percent,
        "false_alarm": judgement.false_alarm,
        "rule": judgement.rule.value if judgement.rule else None,
        "recorded": "yes" if judgement.recorded else None,
        "reason": texts.in_short(judgement.reason) if judgement.reason else None,
        "notes": "; ".join(map(texts.in_short, notes_of(judgement))),
    }


def _of_explanation(explanation: Explanation) -> dict[str, Any]:
    """Give since when and what differs, nothing of which is known for sure."""
    nights = [(name, getattr(explanation, name)) for name in ("since", "red_since", "last_good")]
    # One value may hold anything: as JSON it stays one, whatever it is parted by.
    differences = [to_builtins(one) for one in explanation.differences]
    return {
        **{name: night.at for name, night in nights if night},
        **{f"{name}_commit": night.commit for name, night in nights if night},
        "nights": explanation.nights,
        "differences": _json(differences) if differences else None,
        **({} if explanation.note is None else _of_note(explanation.note)),
    }


def _of_note(note: Note) -> dict[str, Any]:
    return {"note": note.text, "note_by": note.by, "note_at": note.at, "note_until": note.until}


def _json(value: object) -> str:
    """Write JSON in which a CI finds no command; what keeps it from one is JSON's own."""
    return json.dumps(value).replace("##", r"#\u0023")


def _of_measurement(measurement: Measurement) -> dict[str, Any]:
    fingerprint = measurement.fingerprint
    return {
        "estimator": measurement.estimator.value,
        "runs": len(measurement.runs),
        "broken_runs": ", ".join(
            f"{run.run} {run.status.value}" for run in measurement.broken_runs
        ),
        "hosts": " ".join(fingerprint.hosts) if fingerprint else None,
        "logs": _logs(measurement),
    }


def _values(measurement: Measurement | None, metric: str) -> tuple[float, ...]:
    runs = measurement.runs if measurement is not None else ()
    return tuple(run.metrics[metric] for run in runs if metric in run.metrics)


def _logs(measurement: Measurement) -> str:
    return ", ".join(run.log for run in measurement.runs if run.log)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, tuple):
        return " ".join(map(_text, value))
    if isinstance(value, float):
        return f"{value:.10g}"
    return texts.printable(str(value))
