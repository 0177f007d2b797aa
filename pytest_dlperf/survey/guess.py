"""Guess how a log shows its steps that no format describes: which number is the step, the time.

A guess goes by what numbers are called, by their units and by how they change from line to line. It
is made for people to look at: a system file marks each part of it until somebody has.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from msgspec import Struct

from pytest_dlperf.formats.meanings import Number, trainers_in, vocabulary
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
_COUNTED: Final = re.compile(r" ?(?:it(?:er(?:ation)?)?s?|steps?|batch(?:es)?)\b(?!/)")
"""What stands behind a count of steps, as in ``Time(100 iters)``."""
_CLOCK_UNITS: Final = frozenset(("d", "h", "m"))
"""Between the numbers of ``1h 2m 3s``, which no step takes."""
_PREFIX: Final = re.compile("[KMGT](?![A-Za-z])")
"""Behind a number such as ``11.5K``, which an expression would read as 11.5."""
_OWN_WORDS: Final = re.compile(r" ?[a-z/]* ?[a-z]+(?= *[^\s:=a-z])", re.IGNORECASE)
"""What stands behind a number, and is no name of the next one: ``s avg`` of ``0.5s avg)``."""
_REACH: Final = 60
"""Characters next to a number in which its unit is looked for."""
_DATES: Final = (Timing.TIMESTAMP, Timing.EPOCH_MILLISECONDS)
_SECONDS_SINCE_1970: Final = 1e9
_MILLISECONDS_SINCE_1970: Final = 1e12


class Guess(Struct, frozen=True, kw_only=True):
    """How a log seems to show its steps."""

    formats: tuple[Mapping[str, Any], ...]
    """What ``log.format`` may say, the best first."""
    doubts: Mapping[str, str]
    """Questions, by the group or the key of the format that they are about."""
    count: int
    others: tuple[str, ...] = ()
    """What else could be the time, as the log calls it."""

    def doubts_of(self, declared: Mapping[str, Any]) -> dict[str, str]:
        """Return the questions by the keys of a system file that declares the format."""
        record = next(key for key in ("record", "json", "csv") if key in declared)
        found = {f"log.format.{key}": self.doubts[key] for key in declared if key in self.doubts}
        said = [self.doubts[key] for key in ("step_number", "time") if key in self.doubts]
        return {**found, **({f"log.format.{record}": " ".join(said)} if said else {})}


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
    found = [scored for kind in kinds if kind.count >= _MIN_RECORDS for scored in _guess_of(kind)]
    found.sort(key=lambda scored: -scored[0])
    return [each for score, each in found if score >= _MIN_SCORE]


def guess_of_table(text: bytes) -> Guess | None:
    """Guess by a table of CSV; ``None`` where a text is none, or has no steps."""
    lines = text.split(b"\n")
    names = [cell.strip(' "') for cell in lines[0].decode(errors="replace").split(",")]
    if len(names) < _MIN_COLUMNS or not all(map(_COLUMN.fullmatch, names)):
        return None
    rows = [[cell.strip() for cell in line.split(b",")] for line in lines[1:SAMPLES]]
    # Where numbers of several kinds share a table, a row has some of them.
    filled = Counter(tuple(map(bool, row)) for row in rows if len(row) == len(names))
    usual = max(filled, key=lambda cells: filled[cells], default=())
    rows = [row for row in rows if tuple(map(bool, row)) == usual]
    if len(rows) < _MIN_RECORDS:
        return None
    columns = [
        Column([row[at] or b"-" for row in rows], f"{name}: ", "", is_padded=False)
        for at, name in enumerate(names)
    ]
    step = _step_of(columns)
    times = [] if step is None else _times_of(columns, step[0], b"")
    if step is None or not times:
        return None
    keys = {"step": names[step[0]], times[0].timing.value: names[times[0].column]}
    return _guess(columns, step[0], times, len(rows), [{"csv": keys}])


def _guess_of(kind: LineCluster) -> list[tuple[float, Guess]]:
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
    found = []
    for number, time in enumerate(times):
        groups = {at_step: "step", time.column: time.timing.value}
        groups |= {_epoch_of(columns, at_step): "epoch", rank: "rank"}
        wanted = {at: group for at, group in groups.items() if at is not None and at >= 0}
        record = record_of(kind, columns, wanted)
        if record is None:
            continue
        names = {group: name_of(columns[at]) for at, group in wanted.items()}
        forms: list[dict[str, Any]] = [{"json": names}] if _are_keys(line, names) else []
        others = [time, *times[:number], *times[number + 1 :]]
        guess = _guess(columns, at_step, others, kind.count, [*forms, {"record": record}])
        score = (step[1] if step else 0) + time.score + min(kind.count, 60) / 10
        found.append((score - 12 * bool(_NOT_TRAINING.search(line)), guess))
    return found


def _guess(
    columns: Sequence[Column],
    at_step: int | None,
    times: Sequence[_Time],
    count: int,
    forms: Sequence[dict[str, Any]],
) -> Guess:
    """Say how a system file declares such lines, and what is to be asked of it."""
    time, doubts, more = times[0], dict[str, str](), dict[str, Any]()
    steps = [] if at_step is None else columns[at_step].integers or []
    if at_step is None:
        more["step"] = "count"
    else:
        doubts["step_number"] = (
            f"is {name_of(columns[at_step]) or steps[0]!r} the number of a step?"
        )
    repeated = sum(often > 1 for often in Counter(steps).values())
    if repeated > len({*steps}) / 2 or _rank_of(columns) is not None:
        more["ranks"] = "local"
        often = Counter(steps).most_common(1)[0][1] if steps else 1
        doubts["ranks"] = (
            f"a step stands there {often} times: by so many processes of a node, or once for each "
            "metric, epoch or node?"
        )
    if time.scope is not RateScope.GLOBAL:
        more["rate_scope"] = time.scope.value
    if time.covers is not None:
        more["covers"] = time.covers.value
    if question := _question(time, columns, _interval(steps)):
        doubts["time"] = question
    names = (name_of(columns[t.column]) or unit_of(columns[t.column]) for t in times[1:])
    others = tuple(dict.fromkeys(name or "the stamp" for name in names))
    formats = tuple({**form, **more} for form in forms)
    return Guess(formats=formats, doubts=doubts, count=count, others=others)


def _question(time: _Time, columns: Sequence[Column], interval: int) -> str:
    """Ask what is in doubt about the number that is taken for the time."""
    kind = time.timing.kind
    if time.column < 0 or time.is_sure:
        return ""
    name = name_of(columns[time.column]) or unit_of(columns[time.column])
    if time.covers is Covers.SINCE_START:
        return f"is {name!r} a mean since the start?"
    if kind is TimeKind.DURATION:
        several = f", or of the {interval} since the line before (covers: total_since_last)"
        return f"is {name!r} the time of one whole step{several if interval > 1 else ''}?"
    if kind is TimeKind.RATE and time.timing is not Timing.STEPS_PER_SECOND:
        return f"is {name!r} of all devices, of a node, of a rank or of a device (rate_scope)?"
    return f"is {name!r} {time.timing.value.replace('_', ' ')}?"


def _are_keys(line: str, names: Mapping[str, str]) -> bool:
    """Say whether a line holds an object that has these keys."""
    return all(
        re.search(rf"[{{,] ?['\"]{re.escape(name)}['\"]: ?", line) for name in names.values()
    )


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
    for at, column in enumerate(columns):
        if _RANK_NAME.search(name_of(column)) and column.integers and len({*column.texts}) > 1:
            return at
    return None


def _interval(steps: Sequence[int]) -> int:
    ups = Counter(after - before for before, after in pairwise(steps) if after > before)
    return ups.most_common(1)[0][0] if ups else 1


# ------------------------------------------------------------------------------------- times


def _times_of(columns: Sequence[Column], at_step: int | None, line: bytes) -> list[_Time]:
    """Find the columns of lines like this one that may be the time of a step, likeliest first."""
    trainers = [*trainers_in(line)]
    steps = len({*columns[at_step or 0].texts})
    found = []
    for at, column in enumerate(columns):
        if at == at_step:
            continue
        known = (each.number_at(line, *column.span) for each in trainers)
        number = next(filter(None, known), None)
        if number is not None:
            time = _known_time(at, number)
        elif column.is_stamp or column.is_clock:
            time = _stamp(at, column)
        else:
            time = _number_as_time(at, column, steps, is_last=at + 1 == len(columns))
        if time is not None:
            found.append(time)
            if at_step is not None and _moves_as_mean(time, column, columns[at_step].integers):
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


def _known_time(at: int, number: Number) -> _Time | None:
    """Take the number of a known trainer for what it is; ``None`` if for no time of steps."""
    if not number.groups:
        return None
    scope = number.rate_scopes[0] if number.rate_scopes else RateScope.GLOBAL
    return _Time(at, number.groups[0], 8, number.covers, scope, is_sure=True)


def _stamp(at: int, column: Column) -> _Time | None:
    if at > 1 or len({*column.texts}) < _MIN_RECORDS or vocabulary().is_part(name_of(column)):
        return None
    is_fine = re.search(rb"[0-9]:[0-9]{2}[.,]", column.texts[0]) is not None
    return _Time(at, Timing.TIMESTAMP, (9 if is_fine else 4) - column.is_clock, is_sure=True)


def _number_as_time(at: int, column: Column, steps: int, *, is_last: bool) -> _Time | None:
    words, values, name = vocabulary(), column.numbers, name_of(column)
    if values is None or not all(value >= 0 for value in values):
        return None
    rises = all(after >= before for before, after in pairwise(values)) and values[-1] > values[0]
    if rises and min(values) > _SECONDS_SINCE_1970:
        is_milli = min(values) > _MILLISECONDS_SINCE_1970
        timing = Timing.EPOCH_MILLISECONDS if is_milli else Timing.TIMESTAMP
        return _Time(at, timing, 9, is_sure=True)
    if words.is_part(name) or _COUNTED.match(column.behind) or _PREFIX.match(column.behind):
        return None
    if not _CLOCK_UNITS.isdisjoint((column.before.strip(), column.behind.strip())):
        return None
    # Of a few, any may rise by chance; ranks that print the same do not count twice.
    rises = rises and len({*values}) > max(5, steps / 2)
    # The next number, if there is one, shows whose a unit between the two is.
    behind = column.behind[:_REACH] + "0" * (not is_last)
    time = _time_by_words(at, name, column.before[-_REACH:], behind, rises=rises)
    own_words = _OWN_WORDS.match(column.behind)
    if time is not None and words.is_mean(f"{name} {own_words[0] if own_words else ''}"):
        time.score, time.covers = time.score - 5, Covers.SINCE_START
    return time


def _time_by_words(at: int, name: str, before: str, behind: str, *, rises: bool) -> _Time | None:
    """Take a number for what its unit says it is, or its name."""
    words = vocabulary()
    around = before.encode(), behind.encode()
    unit = words.unit(*around)
    called = words.name(name if unit is None else f"{name} {unit.text}")
    groups = unit.unit.groups if unit is not None else called.groups if called is not None else ()
    if unit is None and behind.startswith("/s"):
        return _Time(at, Timing.SAMPLES_PER_SECOND, 3)
    if not groups or (unit is not None and unit.is_rate and len(groups) > 1):
        return None  # a speed of what is no sample, token or step
    timing = groups[0]
    if timing.kind is TimeKind.RATE:
        part = words.part(*around)
        scope = part[1] if part is not None else called.rate_scope if called is not None else None
        is_of_all = re.search(r"\b(?:total|global)", name, re.IGNORECASE) is not None
        return _Time(at, timing, 5 + is_of_all, scope=scope or RateScope.GLOBAL)
    if rises and timing is not Timing.SECONDS_PER_STEP:
        is_milli = timing is Timing.MILLISECONDS
        return _Time(at, Timing.ELAPSED_MILLISECONDS if is_milli else Timing.ELAPSED_SECONDS, 6)
    is_of_step = bool(re.search("iter|step|batch", name, re.IGNORECASE))
    is_named = words.name(name) is not None or not name
    return _Time(at, timing, 4 + 2 * is_named + (unit is not None) + is_of_step)
