"""The results as Markdown: the regressions first, then the matrix.

For GitHub's summary of a step, for a comment or a mail: the tables read in plain text too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pytest_dlperf.model.times import elapsed, parse_time
from pytest_dlperf.reports.accepted import HEADINGS, change_row
from pytest_dlperf.reports.case_status import (
    INTERRUPTED,
    CaseStatus,
    counts,
    headline,
    standing_of,
    worst_first,
)
from pytest_dlperf.reports.figures import detectable_losses
from pytest_dlperf.reports.markdown_alarms import alarm
from pytest_dlperf.reports.markdown_matrix import matrix
from pytest_dlperf.reports.markdown_parts import Part, Weight, assembled
from pytest_dlperf.reports.markdown_text import code, inline, table
from pytest_dlperf.reports.reasons import alike
from pytest_dlperf.reports.remarks import remark_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_dlperf.model.records import CaseResult
    from pytest_dlperf.model.results import Results

IGNORED_SHOWN: Final = 20
"""Left-out logs that the page lists."""
REASONS_SHOWN: Final = 20
"""Reasons for which cases were not measured that it lists."""
CASES_SHOWN: Final = 10
"""Cases that it names for one such reason."""

_ABSENT: Final = (
    CaseStatus.LOST,
    CaseStatus.SKIPPED,
    CaseStatus.NOT_MEASURED,
    CaseStatus.NOT_JUDGED,
)


def markdown_page(results: Results, *, max_bytes: int | None = None) -> str:
    """The page, in UTF-8 at most so many bytes long.

    Where that is too little, what matters least is left out as a whole, and the page says so. It
    is empty where not even its head has room.
    """
    return assembled(_head(results), _parts(results), max_bytes=max_bytes)


def _head(results: Results) -> str:
    said = headline(results.cases, strict=results.strict, interrupted=results.interrupted)
    lines = [
        f"# dlperf: cluster {inline(results.cluster)}",
        f"**{said.whole}.**{_seen(results)}",
    ]
    if results.interrupted:
        lines.append(f"**{INTERRUPTED}**")
    lines.append(_when(results))
    return "\n\n".join(lines)


def _seen(results: Results) -> str:
    losses = detectable_losses(results.cases)
    return "" if losses is None else f" Smallest loss that the gate sees: {losses}."


def _when(results: Results) -> str:
    told = f"Estimator {results.estimator.value}, started"
    try:
        started = parse_time(results.started)
    except ValueError:
        return f"{told} {inline(results.started)}."
    told = f"{told} {started:%Y-%m-%d %H:%M:%S}, UTC{started:%z}"
    took = elapsed(results.started, results.ended)
    if took is None:
        return f"{told}."
    minutes, seconds = divmod(round(took.total_seconds()), 60)
    return f"{told}; it took {minutes // 60} h {minutes % 60} min {seconds} s."


def _parts(results: Results) -> Iterator[Part]:
    cases = worst_first(results.cases)
    for result in cases:
        standing = standing_of(result)
        # What was lost or skipped stands below, by its reason: there may be many with one.
        if standing.fails(strict=results.strict) and standing not in _ABSENT:
            yield from alarm(result, results.unit_of(result), section="Regressions and failures")
    for result in cases:
        if standing_of(result) is CaseStatus.ENVIRONMENT_SHIFT and not results.strict:
            section = "No slower than the accepted software tonight"
            yield from alarm(result, results.unit_of(result), section=section)
    yield from _verdicts(results.cases)
    yield from _absent(results.cases)
    yield from matrix(results)
    yield from _remarks(results.cases)
    yield from _accepted(results)
    yield from _hosts(results.unfit_hosts)
    yield from _ignored(results)
    yield from _environment(results)


def _verdicts(cases: Sequence[CaseResult]) -> Iterator[Part]:
    rows = [(inline(standing.value), str(count)) for standing, count in counts(cases).items()]
    if rows:
        yield Part(
            text=table(("verdict", "cases"), rows, right=" r"),
            weight=Weight.COUNTS,
            section="Verdicts",
            name="verdicts",
        )


def _absent(cases: Sequence[CaseResult]) -> Iterator[Part]:
    """What was not measured or not judged, by reason: one reason often holds for many cases."""
    by_reason: dict[tuple[str, str], dict[str, str]] = {}
    for result in cases:
        standing = standing_of(result)
        if standing in _ABSENT:
            reasons = [j.reason for j in result.judgements.values() if j.reason]
            reason = "; ".join(dict.fromkeys(reasons))
            members = by_reason.setdefault((standing.value, alike(reason, result.case)), {})
            members[result.case.id] = reason
    lines = []
    for (standing_name, _), told in by_reason.items():
        first, *others = dict.fromkeys(told.values())
        more = f"; and {len(others)} more like it" if others else ""
        why = f" ({inline(first)}{more})" if first else ""
        lines.append(f"- **{standing_name}**{why}: {_some(list(map(code, told)), CASES_SHOWN)}")
    if lines:
        yield Part(
            text=_list(lines, REASONS_SHOWN),
            weight=Weight.ABSENT,
            section="Not measured or not judged",
            name="what was not measured",
        )


def _remarks(cases: Sequence[CaseResult]) -> Iterator[Part]:
    lines = [f"- {inline(line)}" for line in remark_lines(cases)]
    if lines:
        yield Part(
            text="\n".join(lines), weight=Weight.REMARKS, section="Worth knowing", name="remarks"
        )


def _accepted(results: Results) -> Iterator[Part]:
    rows = [
        (code(case), inline(unit), old, new, difference, inline(why))
        for case, unit, old, new, difference, why in map(change_row, results.baseline_changes)
    ]
    if rows:
        yield Part(
            text=table(HEADINGS, rows, right="  rrr"),
            weight=Weight.ACCEPTED,
            section="Accepted",
            name="what was accepted",
        )


def _hosts(unfit: Mapping[str, Sequence[str]]) -> Iterator[Part]:
    lines = [
        f"- {code(host)}: {inline('; '.join(faults))}" for host, faults in sorted(unfit.items())
    ]
    if lines:
        yield Part(
            text="\n".join(lines),
            weight=Weight.HOSTS,
            section="Hosts that cannot be used",
            name="hosts that cannot be used",
        )


def _ignored(results: Results) -> Iterator[Part]:
    lines = [f"- {code(item.log)}: {inline(item.reason)}" for item in results.ignored_logs]
    if lines:
        yield Part(
            text=f"{len(lines)} in all.\n\n{_list(lines, IGNORED_SHOWN)}",
            weight=Weight.IGNORED,
            section="Logs that were left out",
            name="logs that were left out",
        )


def _environment(results: Results) -> Iterator[Part]:
    rows = [
        (inline(str(name)), inline(_plain(value)))
        for name, value in results.environment.items()
        if value is not None
    ]
    for kind in ("machine", "software"):
        # Values by name, each once: usually all cases agree.
        found: dict[str, dict[str, None]] = {}
        for result in results.cases:
            taken_on = result.measurement.fingerprint if result.measurement else None
            for name, value in (getattr(taken_on, kind) if taken_on else {}).items():
                found.setdefault(name, {})[value] = None
        rows += [
            (f"{kind}: {inline(name)}", inline(", ".join(values))) for name, values in found.items()
        ]
    if rows:
        yield Part(
            text=table(("fact", "value"), rows),
            weight=Weight.ENVIRONMENT,
            section="Environment",
            name="the environment",
        )


def _list(lines: Sequence[str], shown: int) -> str:
    """A list of some lines, and how many more there are."""
    more = len(lines) - shown
    rest = [f"- … and {more} more; the results file (`--dlperf-json`) has all"] if more > 0 else []
    return "\n".join([*lines[:shown], *rest])


def _some(names: Sequence[str], shown: int) -> str:
    more = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {more} more" if more > 0 else "")


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {version}" for name, version in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)
