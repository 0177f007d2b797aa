"""The rows of a case in tables of metrics, and what stands below them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.results import CaseResult, MetricResult
from pytest_dlperf.report import words
from pytest_dlperf.report.columns import lost, metric_cells
from pytest_dlperf.report.facts import Fact, Weight, case_facts, is_not_good
from pytest_dlperf.report.families import in_short
from pytest_dlperf.report.runs import RUNS_LISTED, runs_text
from pytest_dlperf.report.status import metric_words
from pytest_dlperf.report.text import Text, case, code, number, phrase, word

_NOTES: Final = ("compared", "note")
"""Facts that only a row with runs has room for."""
_SIMPLY: Final = (Verdict.PASS, Verdict.RECORDED)


class Row(Struct, frozen=True, kw_only=True):
    """A row of the summary: a metric of a case, or several at once, and the status of it."""

    metric: str
    """Its name; empty where the case has none."""
    status: Verdict
    cells: dict[str, str]


def case_title(result: CaseResult, now: str) -> Text:
    """For instance ``regressed -9.9 % since Tuesday: <case>``."""
    said, metric = words.case_subject(result, now)
    about = phrase("{} of {}" if metric else "{}{}", metric, case(result.case.id))
    return phrase("{}: {}", word(str(said)), about)  # a heading is strong as a whole


def gaps(result: CaseResult) -> Iterator[Text]:
    """Yield what has not been judged of a case."""
    if not result.is_whole:
        yield phrase("a test of the case was lost with its worker")
    if not result.judgements:
        yield phrase("no test of the case has come to a verdict")
    else:
        for metric in result.unfinished:
            yield phrase("the test of the metric {} has not come to its end", metric)


def judged_rows(result: CaseResult) -> list[Row]:
    """Make a row for each judged metric that has a number, measured or accepted."""
    words = metric_words(result)
    return [
        _row(result, known.metric.name, *words[known.metric.name])
        for known in in_short(result.metrics().values())
        if (one := known.judgement) and (one.measured, one.accepted) != (None, None)
    ]


def case_rows(result: CaseResult, *, every: bool = False) -> list[Row]:
    """Choose the metrics that are worth a row, the worst first; or ``every`` judged one.

    Worth a row is what does not simply pass. Of a case of which nothing is, or that broke as a
    whole, the first metric stands for all. The verdict of the last row counts the others.
    """
    known, verdicts, status = result.metrics(), metric_words(result), result.status
    names = sorted(verdicts, key=[*known, *verdicts].index)
    if not names or status in (Verdict.LOST, Verdict.NOT_MEASURED):
        return [_row(result, next(iter(known), ""), status.value, status)]
    judgements = result.judgements.values()
    if every:
        shown = names
    elif len(set(verdicts.values())) == 1 and all(one.measured is None for one in judgements):
        shown = []  # one cause, and no number of any of them to show
    else:
        shown = [name for name in names if verdicts[name][1] not in _SIMPLY]
    told = {one.metric.name for one in in_short(known[n] for n in shown if n in known)}
    shown = [name for name in shown if name in told or name not in known]
    shown = sorted(shown, key=lambda name: (verdicts[name][1].rank, *_in_family(known, name)))
    names = sorted(names, key=lambda name: verdicts[name][1].rank)
    others = Counter(verdicts[name][0] for name in names if name not in shown)
    is_one = len(names) == 1
    counted = "; ".join(said if is_one else f"{count} {said}" for said, count in others.items())
    if not shown:
        return [_row(result, names[0], counted, status)]
    rows = [_row(result, name, *verdicts[name]) for name in shown]
    rows[-1].cells["verdict"] += f"; {counted}" if counted else ""
    return rows


def row_facts(
    result: CaseResult, rows: Sequence[Row], now: str, *, every: bool = False
) -> list[Fact]:
    """Return what stands below ``rows``: what every form says, and what is to be noted."""
    known = result.metrics()
    metrics = [known[row.metric] for row in rows if row.metric in known]
    bad = case_facts(result, now, [it for it in metrics if is_not_good(it)])
    good = case_facts(result, now, [it for it in metrics if not is_not_good(it)])
    measurement = result.measurement
    # The reason stands with the run that broke.
    left_out = ("reason",) if measurement is not None and measurement.broken_runs else ()
    shown = ("note", "compared") if every else ("note",)
    return [
        *(
            it
            for it in bad
            if it.label in _NOTES or (it.weight is Weight.BRIEF and it.label not in left_out)
        ),
        *(it for it in good if it.label in shown),
    ]


def broken_lines(result: CaseResult) -> Iterator[Text]:
    """Yield what kept runs from a number, and what else there is to say of a run."""
    measurement = result.measurement
    if measurement is None or not any(run.reason for run in measurement.runs):
        return
    found = runs_text(result.case.id, measurement, (), most=RUNS_LISTED)
    for run in found.runs:
        if run.reason:
            yield phrase("run {}: {}", number(run.label), run.in_short)
    if found.left_out and all(run.reason for run in found.runs):
        more = code("--dlperf-json FILE")
        yield phrase("… and {} more runs; {} has all of them", found.left_out, more)


def _in_family(known: Mapping[str, MetricResult], name: str) -> tuple[bool, float]:
    """Order the names of a family behind the other metrics, the largest loss first."""
    if name not in known or not known[name].metric.family:
        return False, 0.0
    return True, -(lost(known[name].judgement) or 0.0)


def has_failure(result: CaseResult, row: Row, *, strict: bool) -> bool:
    """Tell whether a test of a row's metric has failed, and its message says what is wrong."""
    judgement = result.judgements.get(row.metric)
    return judgement is not None and judgement.status.fails(strict=strict)


def _row(result: CaseResult, name: str, verdict: str, status: Verdict) -> Row:
    cells = {**metric_cells(result, name), "verdict": verdict}
    return Row(metric=name, status=status, cells=cells)
