"""Guess how a log shows its steps that no format describes: an expression, and what its time is.

A guess goes by what numbers are called, by their units and by how they change from line to line. It
is made for people to look at, so it says what it rests on, and what is in doubt where a system file
declares it.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from pytest_dlperf.formats.facts import CASE_FACTS
from pytest_dlperf.model.work import RateScope, TimeKind, Timing
from pytest_dlperf.survey.found_expressions import record_of
from pytest_dlperf.survey.line_clusters import SAMPLES, Column, name_of, unit_of
from pytest_dlperf.survey.step_times import StepTime, times_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_dlperf.model.case import Case
    from pytest_dlperf.survey.found_expressions import StatedFact
    from pytest_dlperf.survey.line_clusters import LineCluster

_STEP_NAMES: Final[Mapping[str, int]] = {
    "global_step": 10,
    "step": 9,
    "iteration": 8,
    "iter": 7,
    "batch": 6,
    "update": 6,
    "it": 5,
}
_NO_STEPS: Final = re.compile(
    r"sample|token|second|time|eta|lr|loss|rank|port|pid|seed|line|worker|size|progress",
    re.IGNORECASE,
)
_NO_STEP_UNIT: Final = re.compile(r" *%|m?s(?:ecs?)?\b")
_EPOCH_NAMES: Final = ("epoch", "pass")
_MIN_RECORDS: Final = 3
_MIN_SCORE: Final = 6
_MIN_COLUMNS: Final = 2
_COLUMN: Final = re.compile(r"[A-Za-z_][\w ./()-]{0,60}")
_NOT_TRAINING: Final = re.compile(
    r"\b(?:test|val|valid|validation|eval|evaluation)\b", re.IGNORECASE
)

_BAR: Final = re.compile(r"%\|.*\| *[0-9]+/[0-9]+ \[|━")
"""A progress bar: it is drawn again and again, and its speed is smoothed."""
_SAME_WORK: Final = 0.03
"""By so much the work of a step by a speed and a time may differ from what the log says of it."""


class Guess(Struct, frozen=True, kw_only=True):
    """How a log seems to show its steps."""

    record: str
    """The expression."""
    keys: Mapping[str, str] | None
    """The same by keys, where the lines hold objects of JSON or dictionaries of Python."""
    counts: bool
    """Whether lines have to be counted, since they print no step."""
    time: StepTime
    others: tuple[str, ...] = ()
    """What else could be the time, as the log calls it."""
    count: int = 0
    interval: int = 1
    all_ranks: bool = False
    doubt: str = ""
    """Why a person has to look at the time before it counts; empty if the log confirms it."""


def guess(kinds: Iterable[LineCluster]) -> Guess | None:
    """Make the likeliest guess of lines that look alike; ``None`` where none fits."""
    best: tuple[float, Guess] | None = None
    for kind in kinds:
        if kind.count < _MIN_RECORDS:
            continue
        found = _guess_of(kind)
        if found is not None and (best is None or found[0] > best[0]):
            best = found
    return None if best is None or best[0] < _MIN_SCORE else best[1]


def guess_of_table(text: bytes) -> Guess | None:
    """Make a guess of a text that is a table of CSV; ``None`` where it is none, or has no steps."""
    lines = text.split(b"\n")
    names = [cell.strip(' "') for cell in lines[0].decode(errors="replace").split(",")]
    if len(names) < _MIN_COLUMNS or not all(map(_COLUMN.fullmatch, names)):
        return None
    rows = [[cell.strip() for cell in line.split(b",")] for line in lines[1:SAMPLES]]
    rows = [row for row in rows if len(row) == len(names)]
    # Where numbers of several kinds share a table, a row has some of them.
    filled = Counter(tuple(map(bool, row)) for row in rows)
    usual = max(filled, key=lambda cells: filled[cells], default=())
    rows = [row for row in rows if tuple(map(bool, row)) == usual]
    if len(rows) < _MIN_RECORDS:
        return None
    columns = [
        Column([row[at] or b"-" for row in rows], f"{name}: ", "", is_padded=False)
        for at, name in enumerate(names)
    ]
    step = _step_of(columns)
    times = times_of(columns, step[0] if step else None, b"", shared=False)
    if step is None or not times:
        return None
    time = times[0]
    return Guess(
        record="",
        keys={"step": names[step[0]], time.timing.value: names[time.column]},
        counts=False,
        time=time,
        others=tuple(names[other.column] for other in times[1:]),
        count=len(rows),
        interval=_interval(columns, step[0])[0],
        doubt=time.doubt(columns),
    )


def _guess_of(kind: LineCluster) -> tuple[float, Guess] | None:
    columns = kind.columns()
    if not columns:
        return None
    step = _step_of(columns)
    at_step = step[0] if step else None
    interval, all_ranks = _interval(columns, at_step)
    all_ranks |= _rank_of(columns) is not None
    times = times_of(columns, at_step, kind.lines[0], shared=all_ranks)
    if step is None and not times:
        return None
    time = times[0] if times else StepTime(-1, Timing.ARRIVAL, 0)
    is_whole = kind.lines[0].decode(errors="replace")
    score = (step[1] if step else 0) + time.score + min(kind.count, 60) / 10
    if _NOT_TRAINING.search(is_whole):
        score -= 12
    if _BAR.search(is_whole):
        score -= 10
    if step is None and (time.timing is Timing.TIMESTAMP or _rank_of(columns) is not None):
        return None  # any line of a log has a stamp; lines of several ranks cannot be counted
    groups = {at_step: "step", time.column: time.timing.value}
    groups |= {_epoch_of(columns, at_step): "epoch", _rank_of(columns): "rank"}
    wanted = {at: group for at, group in groups.items() if at is not None and at >= 0}
    record = record_of(kind, columns, wanted)
    if record is None:
        return None
    others = [
        name_of(columns[other.column]) or unit_of(columns[other.column]) or "the stamp"
        for other in times[1:]
    ]
    return score, Guess(
        record=record,
        keys=_keys(is_whole, {group: name_of(columns[at]) for at, group in wanted.items()}),
        counts=at_step is None,
        time=time,
        others=tuple(dict.fromkeys(others)),
        count=kind.count,
        interval=interval,
        all_ranks=all_ranks,
        doubt=time.doubt(columns),
    )


def _keys(line: str, names: Mapping[str, str]) -> Mapping[str, str] | None:
    """Return the keys of what is wanted, by group, if the line holds an object with these keys."""
    are_keys = all(
        re.search(rf"[{{,] ?['\"]{re.escape(name)}['\"]: ?", line) for name in names.values()
    )
    return names if are_keys else None


def _step_of(columns: Sequence[Column]) -> tuple[int, float] | None:
    """Find the column that numbers steps, and how sure that is."""
    found: list[tuple[float, int]] = []
    for at, column in enumerate(columns):
        values, name = column.integers, name_of(column).lower()
        if values is None or len(set(values)) < _MIN_RECORDS:
            continue
        if _NO_STEP_UNIT.match(column.behind) or _is_inside_number(column):
            continue
        ups = [second - first for first, second in pairwise(values) if second > first]
        downs = sum(second < first for first, second in pairwise(values))
        if not ups or downs > len(values) / 5:
            continue
        [(gap, often)] = Counter(ups).most_common(1)
        words = re.findall("[a-z_]+", name)
        score = float(_STEP_NAMES.get(words[-1], 0) if words else 0)
        score += 4 * often / len(ups) - 4 * downs / len(values)
        score += 3 * (at + 1 < len(columns) and columns[at + 1].before.strip() in ("/", "of"))
        score -= 8 * bool(_NO_STEPS.search(name)) + (gap > 1000)  # noqa: PLR2004 - samples, not steps
        if score > 2:  # noqa: PLR2004 - regular at least
            found.append((score, -at))
    if not found:
        return None
    score, at = max(found)
    return -at, score


def _is_inside_number(column: Column) -> bool:
    return column.before.endswith((".", ":", "-")) and column.before[:-1] == ""


def _epoch_of(columns: Sequence[Column], step: int | None) -> int | None:
    """Find the column of the epoch, where steps are numbered anew in each."""
    numbers = columns[step].integers if step is not None else None
    if step is None or numbers is None:
        return None
    for at, column in enumerate(columns):
        words = re.findall("[a-z_]+", name_of(column).lower())
        epochs = column.integers
        if at == step or epochs is None or not words or words[-1] not in _EPOCH_NAMES:
            continue
        turns = [row for row, (first, second) in enumerate(pairwise(epochs)) if second > first]
        if turns:
            return at if any(numbers[row + 1] < numbers[row] for row in turns) else None
        # The first epoch does not show it; a step of so many is one of an epoch.
        has_total = step + 1 < len(columns) and columns[step + 1].before.strip() == "/"
        is_local = "batch" in name_of(columns[step]).lower() or at == step - 1
        return at if (has_total or is_local) and "global" not in columns[step].before else None
    return None


def _rank_of(columns: Sequence[Column]) -> int | None:
    """Find the column that names the rank, where several print."""
    for at, column in enumerate(columns):
        is_named = re.search(r"(?:^|[ _])(?:rank|rk)$", name_of(column).lower()) is not None
        if is_named and column.integers is not None and len(set(column.texts)) > 1:
            return at
    return None


def _interval(columns: Sequence[Column], step: int | None) -> tuple[int, bool]:
    """Say how many steps lie between two records, and whether several ranks print."""
    if step is None:
        return 1, False
    values = columns[step].integers or []
    ups = Counter(second - first for first, second in pairwise(values) if second > first)
    interval = ups.most_common(1)[0][0] if ups else 1
    repeated = Counter(values)
    return interval, sum(many > 1 for many in repeated.values()) > len(repeated) / 2


# ------------------------------------------------------------------- in a system file


def formats_of_guess(guessed: Guess) -> Iterator[dict[str, Any]]:
    """Yield what ``log.format`` of a system may say to read a log as it was guessed."""
    if guessed.keys is not None:
        kind = "json" if guessed.record else "csv"
        yield _format_of_guess(guessed, {kind: dict(guessed.keys)})
    if guessed.record:
        yield _format_of_guess(guessed, {"record": guessed.record})


def _format_of_guess(guessed: Guess, found: dict[str, Any]) -> dict[str, Any]:
    if guessed.counts:
        found["step"] = "count"
    if guessed.all_ranks:
        found["ranks"] = "local"
    if guessed.time.scope is not RateScope.GLOBAL:
        found["rate_scope"] = guessed.time.scope.value
    if guessed.time.covers is not None:
        found["covers"] = guessed.time.covers.value
    return found


def declared_format(  # noqa: PLR0913, PLR0917 - all that says something of it
    found: Mapping[str, Any],
    guessed: Guess | None,
    case: Case,
    said: Mapping[str, StatedFact],
    known: Mapping[str, str],
    doubts: dict[str, str],
) -> dict[str, Any]:
    """Say how a file declares a format: with what the log says of the case, and its doubts."""
    confirmed = {
        name: one.record
        for name, one in said.items()
        if name not in ("batch_per_replica", "precision")
        and str(CASE_FACTS[name](case)) == one.value
    }
    facts = {**confirmed, **found.get("facts", {})}
    declared = {**found, **({"facts": facts} if facts else {})}
    if declared.get("step") == "count":
        doubts["log.format.step"] = "is each record one step? of several, write {every: N}"
    if guessed is not None:
        declared, doubt = _with_scope(guessed, declared, case, known)
        if doubt:
            record = next(key for key in ("record", "json", "csv") if key in declared)
            doubts[f"log.format.{record}"] = doubt
    return declared


def _with_scope(
    guessed: Guess, declared: dict[str, Any], case: Case, known: Mapping[str, str]
) -> tuple[dict[str, Any], str]:
    """Find out what a guessed speed is of, by the batch that the log says; and what is in doubt."""
    if not guessed.doubt or "global_batch" not in known:
        return declared, guessed.doubt
    length = case.sequence_length or 1
    is_rate = guessed.time.timing.kind is TimeKind.RATE
    for scope in RateScope:
        parts = case.rates_per_run(scope)
        of_step = (case.global_batch / parts, case.global_batch * length / parts)
        if any(abs(w / o - 1) <= _SAME_WORK for w in guessed.time.works_of_step for o in of_step):
            others = {key: value for key, value in declared.items() if key != "rate_scope"}
            is_part = is_rate and parts > 1
            return {**others, "rate_scope": scope.value} if is_part else others, ""
    return declared, guessed.doubt
