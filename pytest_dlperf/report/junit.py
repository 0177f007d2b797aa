"""Properties of a test in JUnit's XML: flat, each only where it is known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pytest_dlperf.model.results import CaseResult
from pytest_dlperf.report import printing
from pytest_dlperf.report.status import decisive
from pytest_dlperf.results.file import metric_entry


def junit_properties(result: CaseResult, metric: str, *, cluster: str) -> Iterator[tuple[str, str]]:
    """Yield name and value of each property: ``dlperf.<name>``, ``dlperf.<metric>.<name>``.

    Values are one printable line: names and reasons come from logs. Numbers are written with a
    dot, those of a metric in its unit, what ends in ``percent`` in percent. A test has the metrics
    that it judges, the worst first; that of the first metric also those that no test judges.
    """
    judgement, measured = decisive(result, metric), result.measurement
    about = judgement.metric.name if judgement else metric
    values: dict[str, Any] = {"case": result.case.id, **result.case.axes()}
    values |= {"metric": about, "cluster": cluster}
    values["verdict"] = judgement.verdict.value if judgement is not None else None
    runs = measured.runs if measured is not None else ()
    if measured is not None:
        broken = (f"{run.run} {run.status.value}" for run in measured.broken_runs)
        values |= {
            "estimator": measured.estimator.value,
            "runs": len(runs),
            "broken_runs": ", ".join(broken),
            "hosts": measured.fingerprint.hosts if measured.fingerprint else None,
            "logs": ", ".join(run.log for run in runs if run.log),
        }
    is_first = measured is not None and measured.metrics[0].name == metric
    for name, known in result.metrics().items():
        # A metric without a test of its own stands with the first one.
        is_beside = is_first and not known.metric.is_judged and known.median is not None
        if name == about or name in result.judgements or is_beside:
            entry, since = metric_entry(known), known.explanation and known.explanation.since
            entry["reason"] = printing.in_short(entry["reason"] or "")
            entry["values"] = tuple(run.metrics[name] for run in runs if name in run.metrics)
            entry["since"] = since.at if since else None
            values |= {f"{name}.{key}": value for key, value in entry.items()}
    for name, value in values.items():
        if text := _text(value):
            yield f"dlperf.{name}", text


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, tuple):
        return " ".join(map(_text, value))
    return f"{value:.10g}" if isinstance(value, float) else printing.printable(str(value))
