"""A session's numbers for monitoring services: as values, and as OpenMetrics.

Both leave out the number of what did not run whole: a chart would show it as any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.results import Results, parse_time
from pytest_dlperf.report.printing import printable
from pytest_dlperf.results.file import CaseEntry, results_file


class SessionNumber(Struct, frozen=True, kw_only=True):
    """A metric of a case, for charts."""

    case_id: str
    metric: str
    unit: str
    value: float | None
    """Median of the runs; ``None`` where a run broke, or the number is invalid."""
    reference: float | None
    """What the value is held against."""
    loss_ratio: float | None
    """By what part of the reference the value is worse; negative where it is better."""
    verdict: str | None
    """Also ``lost`` and ``not_measured``; ``None`` where no test judges the metric."""


def session_numbers(results: Results) -> Iterator[SessionNumber]:
    """Yield each metric of each case; what was not measured whole has no value."""
    file = results_file(results)
    for case in file.cases:
        judged = {one.name for one in file.metrics.get(case.system, ()) if one.is_judged}
        for name, metric in case.numbers.items():
            value, better = _whole_number(case, name), metric.better
            difference, loss = metric.difference_percent, None
            if value is not None and better is not None and difference is not None:
                loss = 0.0 - better.sign * difference / 100
            yield SessionNumber(
                case_id=case.id,
                metric=name,
                unit=metric.unit,
                value=value,
                reference=metric.reference,
                loss_ratio=loss,
                verdict=_verdict(case, name, is_judged=name in judged),
            )


def _verdict(case: CaseEntry, name: str, *, is_judged: bool) -> str | None:
    """Return a metric's verdict; never a good one of what was not measured."""
    verdict = case.numbers[name].verdict
    is_tame = verdict is None or verdict.passes or verdict is Verdict.SKIPPED
    if not case.is_whole and is_tame and (is_judged or verdict is not None):
        return Verdict.LOST.value
    if verdict is None:
        return "not_measured" if name in case.unfinished else None
    is_void = verdict.passes and _whole_number(case, name) is None
    return "not_measured" if is_void else verdict.value


def _whole_number(case: CaseEntry, name: str) -> float | None:
    """Return the median of a metric; ``None`` where a run broke or no number counted."""
    metric = case.numbers[name]
    is_whole = case.is_whole and not (case.measurement and case.measurement.broken_runs)
    is_void = metric.verdict is not None and metric.verdict.has_no_number
    return metric.median if is_whole and not is_void else None


_GAUGES: Final = {
    "dlperf_session_start_timestamp_seconds": "When the session began, in seconds of the Unix "
    "epoch; absent where it was interrupted or measured nothing.",
    "dlperf_value": "Median of the runs, in the unit of the label; absent where a run broke.",
    "dlperf_reference": "What the value is held against, in the same unit.",
    "dlperf_loss_ratio": "How much worse the value is than the reference, as a part of it; "
    "negative where it is better.",
    "dlperf_verdict": "1 for the verdict of the label, which is the metric's.",
}


def openmetrics(results: Results) -> str:
    """Write a gauge per number, also valid as Prometheus' own text format.

    Raises:
        ValueError: The session began at what is not a valid time.
    """
    samples: dict[str, list[str]] = {name: [] for name in _GAUGES}
    session = {"cluster": results.cluster, "estimator": results.estimator.value}

    def add(gauge: str, value: float | None, **labels: str) -> None:
        if value is not None:
            every = {**session, **labels}.items()
            pairs = ",".join(f'{name}="{_escaped(text)}"' for name, text in every)
            samples[gauge].append(f"{gauge}{{{pairs}}} {value!r}")

    for one in session_numbers(results):
        of = {"case": one.case_id, "metric": one.metric}
        add("dlperf_value", one.value, **of, unit=one.unit)
        add("dlperf_reference", one.reference, **of, unit=one.unit)
        add("dlperf_loss_ratio", one.loss_ratio, **of)
        if one.verdict is not None:
            add("dlperf_verdict", 1, **of, verdict=one.verdict)
    if samples["dlperf_value"] and not results.interrupted:
        began = parse_time(results.started).timestamp()
        add("dlperf_session_start_timestamp_seconds", began)
    lines = []
    for gauge, text in _GAUGES.items():
        if samples[gauge]:
            lines += [f"# HELP {gauge} {text}", f"# TYPE {gauge} gauge", *samples[gauge]]
    return "\n".join([*lines, "# EOF", ""])


def _escaped(text: str) -> str:
    return printable(text).replace("\\", r"\\").replace('"', r"\"")
