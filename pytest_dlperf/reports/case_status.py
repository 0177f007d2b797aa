"""The status of a case at the end of a session, in one word, and all cases in one line."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from pytest_dlperf.model.judgement import Quantity, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_dlperf.model.case import Case, Topology
    from pytest_dlperf.model.judgement import Judgement
    from pytest_dlperf.model.records import CaseResult

INTERRUPTED: Final = "The session was interrupted: it says nothing of what is missing."


class CaseStatus(str, Enum):
    """The status of a case over all that was judged of it, the worst first.

    The value is the word that every report has for it.
    """

    FAILED = "failed"
    HUNG = "hung"
    INVALID = "invalid"
    REGRESSED = "regressed"
    INCONCLUSIVE = "inconclusive"
    NO_BASELINE = "no_baseline"
    LOST = "lost"
    """A test of the case was lost with its worker."""
    ENVIRONMENT_SHIFT = "environment_shift"
    NOT_JUDGED = "not judged"
    NOT_MEASURED = "not measured"
    SKIPPED = "skipped"
    EXPECTED = "expected"
    """It failed, and its test had announced that."""
    ACCEPTED = "accepted"
    """Its new number takes the place of the old one."""
    RECORDED = "recorded"
    """Its number is its first baseline."""
    IMPROVED = "improved"
    PASS = "pass"  # noqa: S105 - a verdict, no password

    @property
    def rank(self) -> int:
        """Its place among all, 0 being the worst."""
        return _RANKS[self]

    @property
    def is_alarm(self) -> bool:
        """Tell whether a test of the case failed, and somebody has to look."""
        return self.rank <= CaseStatus.LOST.rank

    @property
    def is_good(self) -> bool:
        """Tell whether the case was measured and all that was judged of it is in order."""
        return self.rank >= CaseStatus.ACCEPTED.rank

    def fails(self, *, strict: bool) -> bool:
        """Tell whether a test of the case failed; in a ``strict`` session more do."""
        not_if_strict = (CaseStatus.ENVIRONMENT_SHIFT, CaseStatus.SKIPPED)
        return self.is_alarm or (strict and self in not_if_strict)


_RANKS: Final = {status: rank for rank, status in enumerate(CaseStatus)}

# What is said of one case, and of several.
_SAID: Final = {
    CaseStatus.FAILED: ("failed", "failed"),
    CaseStatus.HUNG: ("hung", "hung"),
    CaseStatus.INVALID: ("is invalid", "are invalid"),
    CaseStatus.REGRESSED: ("regressed", "regressed"),
    CaseStatus.INCONCLUSIVE: ("is inconclusive", "are inconclusive"),
    CaseStatus.NO_BASELINE: ("has no baseline", "have no baseline"),
    CaseStatus.LOST: ("was lost with its worker", "were lost with their workers"),
    CaseStatus.ENVIRONMENT_SHIFT: (
        "is as slow as the accepted software",
        "are as slow as the accepted software",
    ),
    CaseStatus.NOT_JUDGED: ("was not judged", "were not judged"),
    CaseStatus.NOT_MEASURED: ("was not measured", "were not measured"),
    CaseStatus.SKIPPED: ("was skipped", "were skipped"),
    CaseStatus.EXPECTED: ("failed as expected", "failed as expected"),
    CaseStatus.ACCEPTED: ("has a newly accepted number", "have newly accepted numbers"),
    CaseStatus.RECORDED: ("got its first baseline", "got their first baselines"),
    CaseStatus.IMPROVED: ("improved", "improved"),
    CaseStatus.PASS: ("holds its baseline", "hold their baseline"),
}


def of_judgement(judgement: Judgement) -> CaseStatus:
    """Return the status by one judgement; what is accepted is nothing to worry about any more."""
    if judgement.recorded:
        is_first = judgement.verdict is Verdict.PASS
        return CaseStatus.RECORDED if is_first else CaseStatus.ACCEPTED
    return CaseStatus.EXPECTED if judgement.excused else CaseStatus(judgement.verdict.value)


def status_of(result: CaseResult) -> CaseStatus:
    """Return the status of a case. What was not measured is never good, whatever a verdict says."""
    statuses = map(of_judgement, result.judgements.values())
    worst = min(statuses, key=_RANKS.__getitem__, default=CaseStatus.NOT_JUDGED)
    if worst.is_good and not is_measured(result):
        worst = CaseStatus.NOT_MEASURED
    if worst.is_alarm:
        return worst
    if not result.is_whole:
        return CaseStatus.LOST
    return CaseStatus.NOT_JUDGED if result.unfinished and worst.is_good else worst


def is_measured(result: CaseResult) -> bool:
    """Tell whether there is a throughput of the case."""
    return result.measurement is not None and bool(result.measurement.throughputs)


def worst_first(results: Iterable[CaseResult]) -> list[CaseResult]:
    """Sort the cases as they are shown; among equals the topologies of a training in a row."""
    return sorted(results, key=lambda result: (status_of(result).rank, _place(result.case)))


def _place(case: Case) -> tuple[str, str, int, tuple[str, ...], Topology]:
    return case.system, case.precision, case.batch_per_device, case.options, case.topology


# ------------------------------------------------------------------------- in words


def word_of(judgement: Judgement) -> str:
    """Say one verdict, and what was done about it."""
    status, verdict = of_judgement(judgement), judgement.verdict.value
    return verdict if status.value == verdict else f"{verdict}, {status.value}"


def words_of(result: CaseResult) -> list[tuple[str, CaseStatus]]:
    """Say all verdicts of a case, each with its status, the worst first.

    The quantity is named where there is another one with another verdict or without one, and
    where no test was about the throughput.
    """
    status = status_of(result)
    lost = [] if result.is_whole else [(CaseStatus.LOST.value, CaseStatus.LOST)]
    if status in (CaseStatus.LOST, CaseStatus.NOT_MEASURED) or not result.judgements:
        return lost or [(status.value, status)]
    never = CaseStatus.NOT_JUDGED
    never_ran = [(f"{quantity.value} {never.value}", never) for quantity in result.unfinished]
    found = [result.judgements[quantity] for quantity in Quantity if quantity in result.judgements]
    if len({word_of(judgement) for judgement in found}) == 1 and not never_ran:
        quantity = found[0].quantity
        named = "" if quantity is Quantity.THROUGHPUT else f"{quantity.value} "
        return [*lost, (f"{named}{word_of(found[0])}", of_judgement(found[0]))]
    told = [(f"{j.quantity.value} {word_of(j)}", of_judgement(j)) for j in found]
    return [*lost, *sorted([*told, *never_ran], key=lambda pair: pair[1].rank)]


def counts(results: Iterable[CaseResult]) -> dict[CaseStatus, int]:
    """Count the cases per status, the worst first, without zeros."""
    found = dict.fromkeys(CaseStatus, 0)
    for result in results:
        found[status_of(result)] += 1
    return {status: count for status, count in found.items() if count}


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """All cases in one line: the alarms, and behind them all else.

    Without an alarm ``text`` is what is not good; without that it is everything.
    ``nothing_measured`` says that there is no throughput of any case, ``interrupted`` that the
    session did not come to its end.
    """

    text: str
    rest: str = ""
    nothing_measured: bool = False
    interrupted: bool = False

    @property
    def line(self) -> str:
        """Both: ``2 of 115 cases regressed, 1 failed, 112 hold their baseline``."""
        return ", ".join(filter(None, (self.text, self.rest)))

    @property
    def first(self) -> str:
        """The text as the beginning of a page."""
        told = ["interrupted"] if self.interrupted else []
        told += ["nothing was measured"] if self.nothing_measured else []
        said = f"{', '.join(told)}: {self.text}" if told else self.text
        return f"{said[0].upper()}{said[1:]}"

    @property
    def whole(self) -> str:
        """Both, as the beginning of a page."""
        return f"{self.first}, {self.rest}" if self.rest else self.first


def headline(
    results: Sequence[CaseResult], *, strict: bool = False, interrupted: bool = False
) -> Headline:
    """Say all cases in one line; regressions come first, for a release depends on them.

    An ``interrupted`` session says of no case more than that it stands so until then.
    """
    found = counts(results)
    nothing = not any(map(is_measured, results))
    if not found:
        text = "no case was selected"
        return Headline(text=text, nothing_measured=nothing, interrupted=interrupted)
    order = sorted(
        found,
        key=lambda status: (
            status is not CaseStatus.REGRESSED,
            not status.fails(strict=strict),
        ),
    )
    said = _counted(order, found, strict=strict, so_far=interrupted)
    alarms = sum(status.fails(strict=strict) for status in order)
    told = alarms or sum(not status.is_good for status in order) or len(order)
    return Headline(
        text=", ".join(said[:told]),
        rest=", ".join(said[told:]),
        nothing_measured=nothing,
        interrupted=interrupted,
    )


def _counted(
    order: Sequence[CaseStatus], found: Mapping[CaseStatus, int], *, strict: bool, so_far: bool
) -> list[str]:
    total = sum(found.values())
    said = {status: _SAID[status][count > 1] for status, count in found.items()}
    for status in found:
        if status.fails(strict=strict) and not status.is_alarm:
            said[status] += " (failed: strict)"
    first, *others = order
    if not (others or so_far):
        return [f"the one case {said[first]}" if total == 1 else f"all {total} cases {said[first]}"]
    told = [
        f"{found[first]} of {total} case{'s' * (total > 1)} {said[first]}",
        *(f"{found[status]} {said[status]}" for status in others),
    ]
    return [*told[:-1], f"{told[-1]} so far"] if so_far else told
