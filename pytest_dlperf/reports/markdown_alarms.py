"""One case with an alarm as Markdown: its numbers, what the gate sees, reasons, and the logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_dlperf.model.judgement import Quantity, Verdict
from pytest_dlperf.model.measurement import RunStatus
from pytest_dlperf.reports import numbers
from pytest_dlperf.reports.case_status import of_judgement, standing_of, word_of
from pytest_dlperf.reports.figures import difference_percent, named_runs, rule_view, summed_up
from pytest_dlperf.reports.markdown_parts import Part, Weight
from pytest_dlperf.reports.markdown_text import code, details, fenced, inline, table, verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_dlperf.model.judgement import Judgement
    from pytest_dlperf.model.measurement import Measurement, Run
    from pytest_dlperf.model.records import CaseResult

_HEADINGS = (
    "",
    "measured",
    "baseline",
    "diff",
    "accepted",
    "95 % interval",
    "gate sees",
    "verdict",
)


def alarm(result: CaseResult, unit: str | None, *, section: str) -> Iterator[Part]:
    """Two parts: what is wrong, and the runs with the places of their logs."""
    judgements = [result.judgements[name] for name in Quantity if name in result.judgements]
    blocks = [f"### {inline(standing_of(result).value)}: {code(result.case.id)}"]
    rows = [_row(judgement, unit) for judgement in judgements if _has_numbers(judgement)]
    if rows:
        blocks.append(_without_empty_columns(rows))
    remarks = list(dict.fromkeys(_remarks(judgements, result.case.id)))
    if remarks:
        blocks.append("\n".join(remarks))
    yield Part(
        text="\n\n".join(blocks),
        weight=Weight.ALARM,
        section=section,
        name="regressions and failures",
    )
    runs = "\n\n".join(_runs(result, judgements))
    if runs:
        yield Part(
            text=details(f"Runs and logs of {result.case.id}", runs),
            weight=Weight.DETAILS,
            section=section,
            name="runs and logs of a case",
        )


def _has_numbers(judgement: Judgement) -> bool:
    return judgement.measured is not None or judgement.accepted is not None


def _row(judgement: Judgement, unit: str | None) -> Sequence[str]:
    of_throughput = judgement.quantity is Quantity.THROUGHPUT
    written = numbers.throughput if of_throughput else numbers.speedup
    counted_in = f" ({inline(unit)})" if of_throughput and unit else ""
    return (
        f"{judgement.quantity.value}{counted_in}",
        written(judgement.measured),
        written(judgement.reference),
        numbers.signed_percent(difference_percent(judgement)),
        written(None if judgement.reference == judgement.accepted else judgement.accepted),
        # Of another number than the median it stands below, with that.
        numbers.interval(None if rule_view(judgement) else judgement.interval_percent),
        numbers.detectable_loss(judgement.min_detectable_percent),
        verdict(word_of(judgement), of_judgement(judgement)),
    )


def _without_empty_columns(rows: Sequence[Sequence[str]]) -> str:
    """A table of the columns that say anything; those of a comparison stand in any event."""
    always = {"", "measured", "baseline", "diff", "verdict"}
    kept = [
        number
        for number, heading in enumerate(_HEADINGS)
        if heading in always or any(row[number] != numbers.ABSENT for row in rows)
    ]
    return table(
        [_HEADINGS[number] for number in kept],
        [[row[number] for number in kept] for row in rows],
        right=" " + "r" * (len(kept) - 2),
    )


def _remarks(judgements: Sequence[Judgement], case_id: str) -> Iterator[str]:
    for judgement in judgements:
        # A log's last lines stand with its run.
        if judgement.reason:
            yield f"- {inline(_head(judgement.reason).removeprefix(f'{case_id}, '))}"
        elif judgement.verdict is Verdict.NO_BASELINE:
            yield "- no number is accepted; `--dlperf-create-baselines` records what is measured"
    for judgement in judgements:
        told = [view] if (view := rule_view(judgement)) else []
        allowed = judgement.tolerance_percent
        if allowed is not None and judgement.verdict is Verdict.REGRESSED:
            told.append(f"a loss of up to {allowed:.3g} % passes")
        if told:
            yield f"- {judgement.quantity.value}: {'; '.join(told)}"
        if of_judgement(judgement).is_good:
            continue
        yield from (f"- throughput {inline(end)}" for end in judgement.ends)
        yield from (f"- note: {inline(note)}" for note in judgement.notes)


def _head(reason: str) -> str:
    """The first line of a reason, without what announces the lines below it."""
    head, has_tail, _ = reason.partition("\n")
    return head.rpartition("; the log of node")[0] or head if has_tail else head


def _runs(result: CaseResult, judgements: Sequence[Judgement]) -> Iterator[str]:
    """Runs and logs of all that the verdicts rest on, then what broken runs ended with."""
    if result.measurement is None:
        # Nothing was measured; a reason may be all that there is.
        for judgement in judgements:
            if judgement.reason and "\n" in judgement.reason:
                yield fenced(judgement.reason.split("\n")[1:])
        return
    arms: list[tuple[str, Measurement]] = [(result.case.id, result.measurement)]
    single = result.single_device
    if Quantity.SPEEDUP in result.judgements and single is not None:
        arms.append((single.case_id, single))
    if result.interleaved is not None:
        arms.append(("what is tested, in turn", result.interleaved.candidate))
        arms.append(("the accepted software, in turn", result.interleaved.control))
    for name, measurement in dict(arms).items():
        yield _table(name, measurement)
        for label, run in named_runs(measurement):
            _, has_tail, tail = (run.reason or "").partition("\n")
            if has_tail:
                yield f"What run {label} ended with:"
                yield fenced(tail.split("\n"))


def _table(name: str, measurement: Measurement) -> str:
    told = f"{code(name)}: {inline(summed_up(measurement))}"
    rows = [_run(label, run) for label, run in named_runs(measurement)]
    headings = ("run", inline(measurement.unit), "log", "remark")
    return f"{told}\n\n{table(headings, rows, right='rr')}"


def _run(name: str, run: Run) -> Sequence[str]:
    ok = run.status is RunStatus.OK
    found = numbers.throughput(run.throughput) if ok else f"**{run.status.value}**"
    return name, found, code(run.log or ""), inline(_head(run.reason or ""))
