"""Guess how a log shows its steps that no format describes: which number is the step, the time.

A guess goes by what numbers are called, by their units and by how they change from line to line. It
is made for people to look at: a system file marks each part of it until somebody has.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from msgspec import Struct

from pytest_dlperf.formats.meanings import trainers_in, vocabulary
from pytest_dlperf.logs.mean_since_start import step_behind_mean
from pytest_dlperf.model.work import Covers, RateScope, TimeKind, Timing
from pytest_dlperf.survey.expressions import record_of
from pytest_dlperf.survey.line_clusters import SAMPLES, Column, LineCluster, name_of, unit_of

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
    r"epoch|pass\b|layer|block|stage|file|device|gpu|cuda|rank|node|host|worker|shard|column|index"
    r"|checkpoint|ckpt|\.(?:pt|pth|bin|json|npy|tar)|expert|head|seed|port|pid|line|size|version"
    r"|sample|token|second|minute|hour|time|eta|lr|loss|progress|percent",
    re.IGNORECASE,
)
"""Numbers that rise as steps do, and are none."""
_NO_STEP_UNIT: Final = re.compile(r" *%|m?s(?:ecs?)?\b|\.[a-z]")
_EPOCH_NAMES: Final = ("epoch", "pass")
_RANK_NAME: Final = re.compile(r"(?:^|[ _])(?:rank|rk)$", re.IGNORECASE)
_MIN_RECORDS: Final = 3
_MIN_SCORE: Final = 6
_MIN_COLUMNS: Final = 2
_COLUMN: Final = re.compile(r"[A-Za-z_][\w ./()-]{0,60}")
_NOT_TRAINING: Final = re.compile(
    r"\b(?:test|val|valid|validation|eval|evaluation)\b|%\|.*\| *[0-9]+/[0-9]+ \[|━", re.IGNORECASE
)
"""Evaluation, and bars, which are drawn again and again."""
_NO_TIME: Final = re.compile(
    r" ?(?:it(?:er(?:ation)?)?s?|steps?|batch(?:es)?)\b(?!/)|[KMGT](?![A-Za-z])"
)
"""Behind a count of steps, ``Time(100 iters)``, and ``11.5K``, which would be read as 11.5."""
_CLOCK_UNITS: Final = frozenset(("d", "h", "m"))
"""Between the numbers of ``1h 2m 3s``, which no step takes."""
_OWN_WORDS: Final = re.compile(r" ?[a-z/]* ?[a-z]+(?= *[^\s:=a-z])", re.IGNORECASE)
"""What stands behind a number, and is no name of the next one: ``s avg`` of ``0.5s avg)``."""
_REACH: Final = 60
"""Characters next to a number in which its unit is looked for."""
_DATES: Final = (Timing.TIMESTAMP, Timing.EPOCH_MILLISECONDS)
_ELAPSED: Final = {
    Timing.MILLISECONDS: Timing.ELAPSED_MILLISECONDS,
    Timing.SECONDS: Timing.ELAPSED_SECONDS,
}
"""What a duration is that rises from line to line."""
_SECONDS_SINCE_1970: Final = 1e9
_MILLISECONDS_SINCE_1970: Final = 1e12


class Guess(Struct, frozen=True, kw_only=True):
    """How a log seems to show its steps."""

    format: Mapping[str, Any]
    """What ``log.format`` may say."""
    doubts: Mapping[str, str]
    """Questions, by the keys of a system file."""
    count: int
    others: tuple[str, ...]
    """What else could be the time, as the log calls it."""


class _Time(Struct):
    """A column that may be the time of a step, and how likely."""

    column: int
    timing: Timing
    score: float
    covers: Covers | None = None
    scope: RateScope = RateScope.GLOBAL
    is_sure: bool = False
    """Whether a catalogue, or its form, says what it is."""


def guesses(kinds: Iterable[LineCluster]) -> list[Guess]:
    """Guess by each kind of lines that look alike, the likeliest first."""
    found = [scored for kind in kinds if kind.count >= _MIN_RECORDS for scored in _guesses_of(kind)]
    found.sort(key=lambda scored: -scored[0])
    return [each for score, each in found if score >= _MIN_SCORE]


def guess_of_table(text: bytes) -> Guess | None:
    """Guess by a table of CSV; ``None`` where a text is none, or has no steps."""
    lines = text.decode(errors="replace").split("\n")[:SAMPLES]
    names, *rows = ([cell.strip(' "') for cell in line.split(",")] for line in lines)
    if len(names) < _MIN_COLUMNS or not all(map(_COLUMN.fullmatch, names)):
        return None
    # Where numbers of several kinds share a table, a row has some of them.
    filled = Counter(tuple(map(bool, row)) for row in rows if len(row) == len(names))
    usual = max(filled, key=lambda cells: filled[cells], default=())
    rows = [row for row in rows if tuple(map(bool, row)) == usual]
    columns = [
        Column([(row[at] or "-").encode() for row in rows], f"{name}: ", "", is_padded=False)
        for at, name in enumerate(names)
    ]
    step = _step_of(columns) if len(rows) >= _MIN_RECORDS else None
    times = [] if step is None else _times_of(columns, step[0], b"")
    if step is None or not times:
        return None
    keys = {"step": names[step[0]], times[0].timing.value: names[times[0].column]}
    return _guess(columns, step[0], times, len(rows), {"csv": keys})


def _guesses_of(kind: LineCluster) -> Iterator[tuple[float, Guess]]:
    """Guess by each number of such lines that may be the time; each with its score."""
    columns, line = kind.columns(), kind.lines[0].decode(errors="replace")
    step, rank = _step_of(columns), _rank_of(columns)
    at_step = None if step is None else step[0]
    times = _times_of(columns, at_step, kind.lines[0]) if columns else []
    if step is None:
        # Any line has a stamp; lines of several ranks, or of steps that go on slowly, say nothing.
        is_counted = rank is None and not any(map(_rises_slowly, columns))
        is_counted &= re.search(r"\b([0-9]+)/\1\b", line) is None  # the end of an epoch
        times = [time for time in times if is_counted and time.timing not in _DATES]
    elif not times:
        times = [_Time(-1, Timing.ARRIVAL, 0)]
    for time in times:
        groups = {at_step: "step", time.column: time.timing.value}
        groups |= {_epoch_of(columns, at_step): "epoch", rank: "rank"}
        wanted = {at: group for at, group in groups.items() if at is not None and at >= 0}
        record = record_of(kind, columns, wanted)
        if record is None:
            continue
        score = (step[1] if step else 0) + time.score + min(kind.count, 60) / 10
        score -= 12 * bool(_NOT_TRAINING.search(line))
        ordered = sorted(times, key=lambda each: each is not time)
        keys = {group: name_of(columns[at]) for at, group in wanted.items()}
        if all(re.search(rf"[{{,] ?['\"]{re.escape(key)}['\"]: ?", line) for key in keys.values()):
            yield score, _guess(columns, at_step, ordered, kind.count, {"json": keys})
        yield score, _guess(columns, at_step, ordered, kind.count, {"record": record})


def _guess(
    columns: Sequence[Column],
    at_step: int | None,
    times: Sequence[_Time],
    count: int,
    form: dict[str, Any],
) -> Guess:
    """Say how a system file declares such lines, and what is to be asked of it."""
    time, steps, asked, doubts = times[0], list[int](), list[str](), dict[str, str]()
    form, record = dict(form), f"log.format.{next(iter(form))}"
    if at_step is None:
        form["step"] = "count"
    else:
        steps = columns[at_step].integers or []
        asked.append(f"is {name_of(columns[at_step]) or steps[0]!r} the number of a step?")
    often = Counter(steps)
    if sum(n > 1 for n in often.values()) > len(often) / 2 or _rank_of(columns) is not None:
        form["ranks"] = "local"
        doubts["log.format.ranks"] = (
            f"a step stands there {max(often.values(), default=1)} times: by so many processes of "
            "a node, or once for each metric, epoch or node?"
        )
    if time.scope is not RateScope.GLOBAL:
        form["rate_scope"] = time.scope.value
    if time.covers is not None:
        form["covers"] = time.covers.value
    names = [name_of(columns[t.column]) or unit_of(columns[t.column]) for t in times]
    if time.column >= 0 and not time.is_sure:
        asked.append(f"is {names[0]!r} {_meaning(time, _interval(steps))}?")
    if asked:
        doubts[record] = " ".join(asked)
    others = tuple(dict.fromkeys(name or "the stamp" for name in names[1:]))
    return Guess(format=form, doubts=doubts, count=count, others=others)


def _meaning(time: _Time, interval: int) -> str:
    """Say what a number has to be that is taken for the time, and what else it may be."""
    if time.covers is Covers.SINCE_START:
        return "a mean since the start"
    if time.timing.kind is TimeKind.DURATION:
        several = f", or of the {interval} since the line before (covers: total_since_last)"
        return f"the time of one whole step{several if interval > 1 else ''}"
    if time.timing.kind is TimeKind.RATE and time.timing is not Timing.STEPS_PER_SECOND:
        return "of all devices, of a node, of a rank or of a device (rate_scope)"
    return time.timing.value.replace("_", " ")


# ---------------------------------------------------------------------- steps, epochs and ranks


def _step_of(columns: Sequence[Column]) -> tuple[int, float] | None:
    """Find the column that numbers steps, and how sure that is."""
    found = [(_step_score(columns, at), -at) for at in range(len(columns))]
    score, at = max(found, default=(0, 0))
    return (-at, score) if score > 2 else None  # noqa: PLR2004 - regular at least


def _step_score(columns: Sequence[Column], at: int) -> float:
    column = columns[at]
    values, name = column.integers, name_of(column).lower()
    if values is None or _NO_STEPS.search(name) or _NO_STEP_UNIT.match(column.behind):
        return 0
    if column.before in (".", ":", "-"):  # inside a number
        return 0
    repeats = Counter(values)
    ups = [after - before for before, after in pairwise(values) if after > before]
    downs = sum(after < before for before, after in pairwise(values))
    is_short = len(repeats) < _MIN_RECORDS and min(repeats.values()) < _MIN_RECORDS
    if not ups or is_short or downs > len(values) / 5:
        return 0
    words = re.findall("[a-z_]+", name)
    has_total = at + 1 < len(columns) and columns[at + 1].before.strip() in ("/", "of")
    gap, often = Counter(ups).most_common(1)[0]
    score = float(_STEP_NAMES.get(words[-1], 0) if words else 0) + 3 * has_total
    # Numbers far apart count samples rather.
    return score + 4 * often / len(ups) - 4 * downs / len(values) - (gap > 1000)  # noqa: PLR2004


def _rises_slowly(column: Column) -> bool:
    """Say whether a number goes on only every some lines: several lines are of one step then."""
    values = column.integers or []
    is_sorted = all(before <= after for before, after in pairwise(values))
    return is_sorted and 1 < len({*values}) <= len(values) / 2


def _epoch_of(columns: Sequence[Column], step: int | None) -> int | None:
    """Find the column of the epoch, where steps are numbered anew in each."""
    numbers = None if step is None else columns[step].integers
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
    found = (at for at, each in enumerate(columns) if _RANK_NAME.search(name_of(each)))
    return next(
        (at for at in found if columns[at].integers and len({*columns[at].texts}) > 1), None
    )


def _interval(steps: Sequence[int]) -> int:
    ups = Counter(after - before for before, after in pairwise(steps) if after > before)
    return ups.most_common(1)[0][0] if ups else 1


# ------------------------------------------------------------------------------------- times


def _times_of(columns: Sequence[Column], at_step: int | None, line: bytes) -> list[_Time]:
    """Find the columns of lines like this one that may be the time of a step, likeliest first."""
    trainers, steps = [*trainers_in(line)], columns[at_step or 0]
    found, time = list[_Time](), None
    for at, column in enumerate(columns):
        known = (each.number_at(line, *column.span) for each in trainers)
        number = next(filter(None, known), None)
        if at == at_step or (number is not None and not number.groups):
            continue  # a known trainer's, and no time of steps
        if number is not None:
            scope = number.rate_scopes[0] if number.rate_scopes else RateScope.GLOBAL
            time = _Time(at, number.groups[0], 8, number.covers, scope, is_sure=True)
        elif column.is_stamp or column.is_clock:
            time = _stamp(at, column)
        else:
            is_last = at + 1 == len(columns)
            time = _number_as_time(at, column, len({*steps.texts}), is_last=is_last)
        if time is not None:
            found.append(time)
            if at_step is not None and _moves_as_mean(time, column, steps.integers):
                time.covers = Covers.SINCE_START
    return sorted(found, key=lambda time: -time.score)


def _moves_as_mean(time: _Time, column: Column, steps: Sequence[int] | None) -> bool:
    """Say whether a number of a step moves as a mean since the start does."""
    values = column.numbers
    if time.is_sure or time.timing.kind is TimeKind.MOMENT or not values or not all(values):
        return False
    if not steps or any(after <= before for before, after in pairwise(steps)):
        return False
    is_rate = time.timing.kind is TimeKind.RATE
    means = [1 / value if is_rate else value for value in values]
    first = min(*steps, 1)
    return step_behind_mean([step - first + 1 for step in steps], means, column.texts) is not None


def _stamp(at: int, column: Column) -> _Time | None:
    if at > 1 or len({*column.texts}) < _MIN_RECORDS or vocabulary().is_part(name_of(column)):
        return None
    is_fine = re.search(rb"[0-9]:[0-9]{2}[.,]", column.texts[0]) is not None
    return _Time(at, Timing.TIMESTAMP, (9 if is_fine else 4) - column.is_clock, is_sure=True)


def _number_as_time(at: int, column: Column, steps: int, *, is_last: bool) -> _Time | None:
    """Take a number for a moment by its size, or else for what its unit or its name says it is."""
    words, values, name = vocabulary(), column.numbers, name_of(column)
    if values is None or not all(value >= 0 for value in values):
        return None
    rises = all(after >= before for before, after in pairwise(values)) and values[-1] > values[0]
    if rises and min(values) > _SECONDS_SINCE_1970:
        is_milli = min(values) > _MILLISECONDS_SINCE_1970
        timing = Timing.EPOCH_MILLISECONDS if is_milli else Timing.TIMESTAMP
        return _Time(at, timing, 9, is_sure=True)
    is_clock = not _CLOCK_UNITS.isdisjoint((column.before.strip(), column.behind.strip()))
    if is_clock or words.is_part(name) or _NO_TIME.match(column.behind):
        return None
    # The next number, if there is one, shows whose a unit between the two is.
    behind = column.behind[:_REACH] + "0" * (not is_last)
    time = _time_by_words(at, name, column.before[-_REACH:], behind)
    # Of a few, any may rise by chance; ranks that print the same do not count twice.
    elapsed = _ELAPSED.get(time.timing) if time is not None else None
    if time is not None and elapsed and rises and len({*values}) > max(5, steps / 2):
        time.timing, time.score = elapsed, 6
    own_words = _OWN_WORDS.match(column.behind)
    if time is not None and words.is_mean(f"{name} {own_words[0] if own_words else ''}"):
        time.score, time.covers = time.score - 5, Covers.SINCE_START
    return time


def _time_by_words(at: int, name: str, before: str, behind: str) -> _Time | None:
    words, around = vocabulary(), (before.encode(), behind.encode())
    unit = words.unit(*around)
    called = words.name(name if unit is None else f"{name} {unit.text}")
    if unit is None and behind.startswith("/s"):
        return _Time(at, Timing.SAMPLES_PER_SECOND, 3)
    groups = unit.unit.groups if unit is not None else called.groups if called is not None else ()
    is_rate = bool(groups) and groups[0].kind is TimeKind.RATE
    if not groups or (unit is not None and is_rate and len(groups) > 1):
        return None  # a speed of what is no sample, token or step
    if is_rate:
        part = words.part(*around)
        scope = part[1] if part is not None else called.rate_scope if called is not None else None
        is_of_all = re.search(r"\b(?:total|global)", name, re.IGNORECASE) is not None
        return _Time(at, groups[0], 5 + is_of_all, scope=scope or RateScope.GLOBAL)
    is_of_step = bool(re.search("iter|step|batch", name, re.IGNORECASE))
    is_named = words.name(name) is not None or not name
    return _Time(at, groups[0], 4 + 2 * is_named + (unit is not None) + is_of_step)
