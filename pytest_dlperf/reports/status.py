"""One clear word for what became of a test of a case, and the number it is about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pytest_dlperf.model.judgement import Quantity, Verdict
from pytest_dlperf.reports import numbers
from pytest_dlperf.reports.case_status import CaseStatus, of_judgement
from pytest_dlperf.reports.figures import difference_percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_dlperf.model.judgement import Judgement
    from pytest_dlperf.model.records import TestRecord
    from pytest_dlperf.reports.console import Console

    Status = tuple[str, str, str | tuple[str, dict[str, bool]]]

LETTERS: Final = {
    CaseStatus.PASS: ".",
    CaseStatus.RECORDED: ".",
    CaseStatus.ACCEPTED: ".",
    CaseStatus.IMPROVED: "+",
    CaseStatus.ENVIRONMENT_SHIFT: "~",
    CaseStatus.REGRESSED: "R",
    CaseStatus.INCONCLUSIVE: "?",
    CaseStatus.NO_BASELINE: "N",
    CaseStatus.FAILED: "F",
    CaseStatus.HUNG: "H",
    CaseStatus.INVALID: "I",
}
"""What ``-q`` shows of a test that ran, by how it stands."""

_ITSELF: Final = "the test itself failed: "
_REASON: Final = 48
"""Columns that a reason may have behind a word."""
_MIN_REASON, _WANTED_REASON = 10, 24
_WORD, _VALUE, _UNIT, _DIFFERENCE = 10, 9, 11, 8
_OURS: Final = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")
_SKIP_MARGIN: Final = len(" [100%]") + 1 + len(" (..)")
"""With this room behind a word pytest puts no reason there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    word: str
    colour: str
    value: str = ""
    unit: str = ""
    difference: str = ""
    reason: str = ""

    @property
    def measured(self) -> str:
        return " ".join(filter(None, (self.value, self.unit, self.difference)))


def status_of(
    record: TestRecord, report: Any, given: Status, *, console: Console, strict: bool
) -> Status:
    """Letter and word of a report. Pytest's category stays what it is, and with it all counts.

    ``given`` is what pytest and other plugins say of the report.
    """
    category, letter, _ = given
    if category not in _OURS or not letter:
        return given  # the setup of a test that goes on, a repetition, what others invent
    told = _told(record, report, category, strict=strict)
    markup = {told.colour: True}
    if console.verbosity < 0 or not (console.verbosity or console.prints_lines):
        judgement = decisive(record)
        if category in ("passed", "failed") and judgement is not None:
            # A strict skip is a failure; so is what failed after its number was recorded.
            standing = of_judgement(judgement)
            is_refuted = category == "failed" and judgement.passes(strict=strict)
            letter = letter if is_refuted else LETTERS.get(standing, letter)
        return category, letter, (told.word, markup)
    if console.verbosity == 0:
        return category, console.line(_line(told, record.case.id, console.room)), ("", markup)
    reason = "" if told.measured or _pytest_tells(category, console) else told.reason
    words = " ".join(filter(None, (told.word, told.measured, reason)))
    if category == "skipped" and not hasattr(report, "node"):
        # Pytest puts the reason behind the word, where it finds room: a beginning of it, mostly.
        words = words.ljust(console.width - console.column - _SKIP_MARGIN)
    return category, letter, (words, markup)


def _pytest_tells(category: str, console: Console) -> bool:
    """Whether pytest puts the whole reason behind the word."""
    return category in ("xfailed", "xpassed") or (category == "skipped" and console.verbosity > 1)


def _told(record: TestRecord, report: Any, category: str, *, strict: bool) -> _Told:
    judgement = decisive(record)
    reason = _short(judgement.reason if judgement else None, record.case.id)
    if category == "skipped":
        return _Told(word="SKIPPED", colour="yellow", reason=reason)
    if category == "error":
        return _Told(word="ERROR", colour="red", reason=_crash(report, record.case.id) or reason)
    value, unit, difference = _numbers(record, judgement)
    word, colour = _word(judgement, category, strict=strict)
    if category in ("xfailed", "xpassed"):
        announced = category.removesuffix("ed").upper()
        is_good = judgement is None or judgement.passes(strict=strict)
        word = announced if is_good else f"{announced} {word.lower()}"
        colour = "red" if strict and not (is_good or record.excused) else "yellow"
    elif category == "failed" and judgement is not None and judgement.verdict is Verdict.SKIPPED:
        reason = f"skipped: {reason}"
    return _Told(
        word=word, colour=colour, value=value, unit=unit, difference=difference, reason=reason
    )


def _word(judgement: Judgement | None, category: str, *, strict: bool) -> tuple[str, str]:
    """Word and colour of a test that ran. What a test let pass is shown as what it is."""
    if judgement is None or judgement.verdict is Verdict.SKIPPED:
        return ("PASSED", "green") if category == "passed" else ("FAILED", "red")
    if judgement.passes(strict=strict) and category == "failed":
        return "FAILED", "red"
    standing = of_judgement(judgement)
    word = "PASSED" if standing is CaseStatus.PASS else standing.value.upper()
    if not judgement.passes(strict=strict):
        return word, "red"
    # A number that was given up for another is good, and still worth a look.
    return word, "green" if standing.is_good and standing is not CaseStatus.ACCEPTED else "yellow"


def decisive(record: TestRecord) -> Judgement | None:
    """The worst judgement; of equals that of what the test is about."""
    return min(
        record.judgements.values(),
        key=lambda judgement: (judgement.verdict.gravity, judgement.quantity != record.quantity),
        default=None,
    )


def _numbers(record: TestRecord, judgement: Judgement | None) -> tuple[str, str, str]:
    """What was measured, its unit, and how far it lies from what it was held against."""
    measurement = record.measurements.get(record.case.id)
    if judgement is None:
        median = measurement.median if measurement else None
        unit = measurement.unit if measurement else ""
        return ("", "", "") if median is None else (numbers.throughput(median), unit, "")
    if judgement.measured is None:
        return "", "", ""
    difference = numbers.signed_percent(difference_percent(judgement))
    difference = "" if difference == numbers.ABSENT else difference
    if judgement.quantity is Quantity.SPEEDUP:
        return f"{numbers.speedup(judgement.measured)}x", "", difference
    unit = measurement.unit if measurement else ""
    return numbers.throughput(judgement.measured), unit, difference


def _short(reason: str | None, case_id: str) -> str:
    """A reason without what the line says anyway: the case, and what would help."""
    if not reason:
        return ""
    text = numbers.printable(reason.partition("\n")[0])
    for known in (_ITSELF, "AssertionError: ", f"{case_id}, ", f"{case_id}: ", f"{case_id} "):
        text = text.removeprefix(known)
    text = text.partition(" (")[0].replace(f" of {case_id}", "").replace(f" {case_id}", "")
    run, _, found = text.partition("; ")[0].rpartition("run ")[2].partition(": ")
    if run.isdecimal() and " " in (first := found.partition(": ")[0]):
        text = f"run {run}: {first}"
    return numbers.cut(text.partition("; ")[0], _REASON)


def _crash(report: Any, case_id: str) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return _short(getattr(crash, "message", None), case_id)


def _line(told: _Told, case_id: str, room: int) -> str:
    """A line for a test: in columns where there is room, else close together."""
    wanted = 0 if told.measured or not told.reason else 2 + _WANTED_REASON
    for head in _heads(told):
        text = f"{head}{case_id}"
        if numbers.columns(text) + wanted <= room:
            break
        wanted = 0
    left = room - numbers.columns(text) - 2
    if told.reason and left >= _MIN_REASON:
        text += f"  {numbers.cut(told.reason, left)}"
    return text


def _heads(told: _Told) -> Iterator[str]:
    """What stands before the case, from wide to narrow."""
    yield (
        f"{told.word:<{_WORD}}{told.value:>{_VALUE}} {told.unit:<{_UNIT}}"
        f"{told.difference:>{_DIFFERENCE}}  "
    )
    close = " ".join(filter(None, (told.word, told.measured)))
    yield f"{close}  " if told.measured else f"{told.word:<{_WORD}}"
    yield " ".join(filter(None, (told.word, told.value, told.difference))) + "  "
    yield f"{told.word}  "
