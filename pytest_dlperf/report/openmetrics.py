"""A session's numbers for monitoring services: as values, and as OpenMetrics.

Both leave out the number of what did not run whole: a chart would show it as any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct

from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.results import Results, parse_time
from pytest_dlperf.report.printing import printable
from pytest_dlperf.results.file import CaseEntry, ResultsFile, results_file


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
    return _numbers(results_file(results))


def _numbers(file: ResultsFile) -> Iterator[SessionNumber]:
    for case in file.cases:
        judged = {one.name for one in file.metrics.get(case.system, ()) if one.is_judged}
        for name, metric in case.numbers.items():
            value, better = _whole_number(case, name), metric.better
            difference = metric.difference_percent
            loss = None
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
    if verdict is None:
        is_lost = is_judged and not case.is_whole
        return (
            Verdict.LOST.value if is_lost else "not_measured" if name in case.unfinished else None
        )
    if verdict.passes or verdict is Verdict.SKIPPED:
        if not case.is_whole:
            return Verdict.LOST.value
        if verdict.passes and _whole_number(case, name) is None:
            return "not_measured"
    return verdict.value


def _whole_number(case: CaseEntry, name: str) -> float | None:
    """Return the median of a metric; ``None`` where a run broke or no number counted."""
    metric = case.numbers[name]
    is_whole = case.is_whole and not (case.measurement and case.measurement.broken_runs)
    is_void = metric.verdict is not None and metric.verdict.has_no_number
    return metric.median if is_whole and not is_void else None


# ------------------------------------------------------------------------- OpenMetrics

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
    file = results_file(results)
    samples: dict[str, list[str]] = {name: [] for name in _GAUGES}
    session = {"cluster": file.cluster, "estimator": file.estimator.value}

    def add(gauge: str, value: float | None, labels: Mapping[str, str]) -> None:
        if value is not None:
            pairs = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
            samples[gauge].append(f"{gauge}{{{pairs}}} {value!r}")

    for one in _numbers(file):
        labels = {**session, "case": one.case_id, "metric": one.metric}
        add("dlperf_value", one.value, {**labels, "unit": one.unit})
        add("dlperf_reference", one.reference, {**labels, "unit": one.unit})
        add("dlperf_loss_ratio", one.loss_ratio, labels)
        if one.verdict is not None:
            add("dlperf_verdict", 1, {**labels, "verdict": one.verdict})
    if samples["dlperf_value"] and not file.interrupted:
        began = parse_time(file.started).timestamp()
        add("dlperf_session_start_timestamp_seconds", began, session)
    lines = []
    for gauge, text in _GAUGES.items():
        if samples[gauge]:
            lines += [f"# HELP {gauge} {text}", f"# TYPE {gauge} gauge", *samples[gauge]]
    return "\n".join([*lines, "# EOF", ""])


def _escaped(text: str) -> str:
    return printable(text).replace("\\", r"\\").replace('"', r"\"")
