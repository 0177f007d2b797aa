"""Find the number on the lines of steps that is their time, by units, names and each other.

Each number is taken for what ``formats.meanings`` says of its unit, its name or its trainer. Times
of the same lines are compared: one that another confirms is certain, one that stamps contradict is
left out.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise, product
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_dlperf.formats.contract import BrokenContractError
from pytest_dlperf.formats.meanings import trainers_in, vocabulary
from pytest_dlperf.logs.clock import Clock
from pytest_dlperf.logs.mean_since_start import step_behind_mean
from pytest_dlperf.model.work import Covers, RateScope, TimeKind, Timing
from pytest_dlperf.survey.line_clusters import Column, name_of, unit_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_dlperf.formats.log_format import LogFormat
    from pytest_dlperf.formats.meanings import Number
    from pytest_dlperf.survey.line_clusters import LineCluster

_MIN_VALUES: Final = 3
_OWN_WORDS: Final = re.compile(r" ?[a-z/]* ?[a-z]+(?= *[^\s:=a-z])", re.IGNORECASE)
"""What stands behind a number, and is no name of the next one: ``s avg`` of ``0.5s avg)``."""
_COUNTED: Final = re.compile(r" ?(?:it(?:er(?:ation)?)?s?|steps?|batch(?:es)?)\b(?!/)")
"""What stands behind a count of steps, as in ``Time(100 iters)``."""
_CLOCK_UNITS: Final = frozenset(("d", "h", "m"))
"""Between the numbers of ``1h 2m 3s``, which no step takes."""
_FEW: Final = 5
_MAX_RISING_PART: Final = 0.5
"""The part of all steps at which a time since the start differs from that of the step before."""
_MOMENTS: Final = (Timing.TIMESTAMP, Timing.EPOCH_MILLISECONDS)
_EARLIEST: Final = 1e9
_EARLIEST_MS: Final = 1e12
_LATEST: Final = 1e11
_REACH: Final = 60
"""Characters next to a number in which its unit is looked for."""
_LIKELY: Final = 5
"""The likeliness of a speed that its unit tells."""
_AGREEMENT: Final = 0.1
"""By so much two times of the same steps may differ."""
_RESOLUTIONS: Final = 20
"""The time between stamps, in their resolutions, from which on they tell others right or wrong."""
_WARMUP_LINES: Final = 2


class StepTime(Struct):
    """A column that may be the time of a step, and how likely."""

    column: int
    timing: Timing
    score: float
    covers: Covers | None = None
    scope: RateScope = RateScope.GLOBAL
    notes: list[str] = []
    may_be_total: bool = False
    """Whether its name leaves open if it is of a step or of all since the last line."""
    is_certain: bool = False
    """Whether a catalogue, or another time of the same lines, confirms it."""
    open_question: str = "of all devices, of a node or of one"
    """What a speed leaves open, if it does."""
    works_of_step: tuple[float, ...] = ()
    """The samples or tokens of a step, by speeds and times of the same lines."""

    @property
    def is_amount(self) -> bool:
        """Whether it is a speed of samples or tokens, which needs the batch to be a time."""
        is_rate = self.timing.kind is TimeKind.RATE
        return is_rate and self.timing is not Timing.STEPS_PER_SECOND

    def doubt(self, columns: Sequence[Column]) -> str:
        """Say why a person has to look at it; nothing where it is certain."""
        if self.is_certain or self.timing in (Timing.TIMESTAMP, Timing.ARRIVAL):
            return ""
        name = name_of(columns[self.column]) or unit_of(columns[self.column])
        if self.is_amount:
            question = self.open_question
            return f"{question}? nothing tells what {name!r} is of" if question else ""
        return f"is {name!r} the time of a whole step? no other time on the line confirms it"


def times_of(
    columns: Sequence[Column], at_step: int | None, line: bytes, *, shared: bool
) -> list[StepTime]:
    """Find the columns of lines like this one that may be the time of a step, the likeliest first.

    ``at_step`` is the column of the step's number; ``shared`` lines are those of several ranks.
    """
    trainers = [*trainers_in(line)]
    found = []
    steps = len(set(columns[at_step or 0].texts))
    for at, column in enumerate(columns):
        if at == at_step:
            continue
        known = (each.number_at(line, *column.span) for each in trainers)
        if (number := next(filter(None, known), None)) is not None:
            time = _known_time(at, number)
        elif column.is_stamp or column.is_clock:
            time = _stamp(at, column)
        else:
            time = _number_as_time(at, column, steps, is_last=at + 1 == len(columns))
        if time is not None:
            found.append(time)
    if at_step is not None and not shared:
        for time in found:
            _note_mean(time, columns[time.column], columns[at_step].integers or ())
        found = _compared(found, columns, at_step)
    return sorted(found, key=lambda time: -time.score)


def _known_time(at: int, number: Number) -> StepTime | None:
    """Take the number of a known trainer for what it is; ``None`` if for no time of steps."""
    if not number.groups:
        return None
    scope = number.rate_scopes[0] if number.rate_scopes else RateScope.GLOBAL
    return StepTime(at, number.groups[0], 8, number.covers, scope, is_certain=True)


def _note_mean(time: StepTime, column: Column, steps: Sequence[int]) -> None:
    """Note that a number moves as a mean since the start does."""
    values = column.numbers
    if time.covers is not None or time.timing.kind is TimeKind.MOMENT or not values:
        return
    if len(steps) != len(values) or not all(values):
        return
    is_rate = time.timing.kind is TimeKind.RATE
    means = [1 / value if is_rate else value for value in values]
    first = min(*steps, 1)
    if step_behind_mean([step - first + 1 for step in steps], means, column.texts) is not None:
        time.covers = Covers.SINCE_START
        name = name_of(column) or unit_of(column)
        time.notes.append(f"{name!r} moves as a mean since the start does")


def _stamp(at: int, column: Column) -> StepTime | None:
    is_of_rest = vocabulary().is_part(name_of(column))
    if at > 1 or len(set(column.texts)) < _MIN_VALUES or is_of_rest:
        return None
    is_fine = re.search(rb"[0-9]:[0-9]{2}[.,]", column.texts[0]) is not None
    time = StepTime(at, Timing.TIMESTAMP, (9 if is_fine else 4) - column.is_clock)
    if not is_fine:
        time.notes.append("the stamps have whole seconds: the window has to be long")
    return time


def _number_as_time(at: int, column: Column, steps: int, *, is_last: bool) -> StepTime | None:
    values, name = column.numbers, name_of(column)
    if values is None or not all(value >= 0 for value in values):
        return None
    rises = all(second >= first for first, second in pairwise(values)) and values[-1] > values[0]
    if rises and min(values) > _EARLIEST_MS:
        return StepTime(at, Timing.EPOCH_MILLISECONDS, 9)
    if rises and _EARLIEST < min(values) < _LATEST:
        return StepTime(at, Timing.TIMESTAMP, 9)
    words = vocabulary()
    if words.is_part(name) or _COUNTED.match(column.behind):
        return None
    if not _CLOCK_UNITS.isdisjoint((column.before.strip(), column.behind.strip())):
        return None
    # Of a few, any may rise by chance; ranks that print the same do not count twice.
    rises = rises and len(set(values)) > max(_FEW, _MAX_RISING_PART * steps)
    # The next number, if there is one, shows whose a unit between the two is.
    before, behind = column.before[-_REACH:], column.behind[:_REACH] + "0" * (not is_last)
    time = _time_by_words(at, name, before, behind, rises=rises)
    own_words = _OWN_WORDS.match(column.behind)
    if time is not None and words.is_mean(f"{name} {own_words[0] if own_words else ''}"):
        time.score -= 5
        time.covers = Covers.SINCE_START
        time.notes.append(f"{name!r} seems to be a mean since the start")
    return time


def _time_by_words(  # noqa: PLR0911 - one for each way to say it
    at: int, name: str, before: str, behind: str, *, rises: bool
) -> StepTime | None:
    """Take a number for what its unit says it is, or its name."""
    words = vocabulary()
    around = before.encode(), behind.encode()
    found = words.unit(*around)
    if found is None:
        if behind.startswith("/s"):
            notes = ["'/s' is taken for samples per second"]
            return StepTime(at, Timing.SAMPLES_PER_SECOND, 3, notes=notes)
        called = words.name(name)
        if called is None:
            return None
        timing, scope = called.groups[0], called.rate_scope
        if timing.kind is TimeKind.RATE:
            time = StepTime(at, timing, _LIKELY, scope=scope or RateScope.GLOBAL)
            time.open_question = f"of samples or tokens, {time.open_question}"
            return time
        return _duration(at, name, timing, rises=rises, has_unit=False)
    groups = found.unit.groups
    if not groups or (found.is_rate and len(groups) > 1):
        return None  # a speed of what is no sample, token or step
    if not found.is_rate:
        return _duration(at, name, groups[0], rises=rises, has_unit=True)
    part = words.part(*around)
    scope = part[1] if part is not None else None
    if scope is None and (called := words.name(f"{name} {found.text}")) is not None:
        scope = called.rate_scope
    is_of_all = re.search(r"\b(?:total|global)", name, re.IGNORECASE) is not None
    time = StepTime(at, groups[0], _LIKELY + is_of_all, scope=scope or RateScope.GLOBAL)
    if part is not None:
        time.open_question = ""
    return time


def _duration(at: int, name: str, timing: Timing, *, rises: bool, has_unit: bool) -> StepTime:
    if rises and timing is not Timing.SECONDS_PER_STEP:
        is_milli = timing is Timing.MILLISECONDS
        time = StepTime(at, Timing.ELAPSED_MILLISECONDS if is_milli else Timing.ELAPSED_SECONDS, 6)
        time.notes.append(f"{name!r} never falls: it is taken for the time since the start")
        return time
    called = vocabulary().name(name)
    time = StepTime(at, timing, 7 if called is not None or not name else 5)
    time.may_be_total = called is not None and called.may_be_total
    time.score += bool(re.search("iter|step|batch", name, re.IGNORECASE))
    if not has_unit:
        time.score -= 1
        time.notes.append(f"{name!r} has no unit, and is taken for seconds")
    return time


# ------------------------------------------------------- times of the same lines, compared


def work_by_stamps(kind: LineCluster, log_format: LogFormat) -> float | None:
    """Compute the samples or tokens of a step that a printed speed tells, by the lines' stamps.

    ``None`` where the lines have none, or no such speed.
    """
    match, columns = log_format.record.search(kind.lines[0]), kind.columns()
    places = {}
    for group in ("step", log_format.timing.value):
        if match is not None and group in log_format.record.groupindex:
            begin = match.start(group)
            found = (at for at, each in enumerate(columns) if each.span[0] <= begin < each.span[1])
            places[group] = next(found, None)
    at_step, at_time = places.get("step"), places.get(log_format.timing.value)
    if at_step is None or at_time is None:
        return None
    time = StepTime(at_time, log_format.timing, 0)
    dated = [(at, each) for at, each in enumerate(columns) if each.is_stamp or each.is_clock]
    stamps = [stamp for pair in dated if (stamp := _stamp(*pair)) is not None]
    if time.is_amount and columns[at_step].integers is not None and stamps:
        _compared([time, *stamps], columns, at_step)
    return next(iter(time.works_of_step), None)


def _compared(times: list[StepTime], columns: Sequence[Column], step: int) -> list[StepTime]:
    """Hold times against each other by how long each says that the steps of the lines took.

    Stamps that are fine enough decide: what they contradict is left out.
    """
    numbers = columns[step].integers or []
    jumps = [second - first for first, second in pairwise(numbers)]
    [(interval, _)] = Counter(jump for jump in jumps if jump > 0).most_common(1) or [(0, 0)]
    # The last line may follow another one than the line before it here.
    rows = [row for row, jump in enumerate(jumps) if row >= _WARMUP_LINES and jump == interval]
    totals = {time.column: _total(time, columns[time.column], rows, interval) for time in times}
    stamps = [each for each in times if each.timing in _MOMENTS]
    clock = next((each for each in stamps if _is_fine(each, columns, totals)), None)
    for time in stamps:
        time.is_certain = True
    if clock is not None:
        others = [each for each in times if each not in stamps]
        seconds = totals[clock.column]
        kept = [each for each in others if _agrees_with(each, totals, seconds, interval)]
        for each in kept:
            # What stamps tell needs neither batch nor scope.
            each.score -= 4 * (not each.is_certain)
        return [*stamps, *kept]
    sure = [each for each in times if not each.is_amount and totals[each.column]]
    for time, other in product(times, sure):
        agrees = other is not time and _agrees_with(time, totals, totals[other.column], interval)
        if agrees and time.is_amount:
            other.works_of_step += time.works_of_step
    return [each for each in times if each.is_certain or interval <= 1 or not each.may_be_total]


def _is_fine(time: StepTime, columns: Sequence[Column], totals: Mapping[int, float]) -> bool:
    text = columns[time.column].texts[0]
    digits = max(len(re.split(rb"[.,]", text)[-1]), 1) if re.search(rb"[.,][0-9]+", text) else 0
    resolution = 0.001 if time.timing is Timing.EPOCH_MILLISECONDS else 10.0**-digits
    return totals[time.column] > _RESOLUTIONS * resolution


def _agrees_with(
    time: StepTime, totals: Mapping[int, float], seconds: float, interval: int
) -> bool:
    """Hold a time against the seconds that the same steps took; note what follows from it."""
    total = totals[time.column]
    if not total or not seconds:
        return True
    if time.is_amount:
        time.works_of_step = (seconds / total,)
        return True
    if abs(total / seconds - 1) <= _AGREEMENT:
        time.is_certain = True
        return True
    if interval > 1 and time.covers is None and abs(total / seconds / interval - 1) <= _AGREEMENT:
        time.covers, time.is_certain = Covers.TOTAL_SINCE_LAST, True
        return True
    return False


def _total(time: StepTime, column: Column, rows: Sequence[int], interval: int) -> float:
    """Add up the seconds of some steps by a time, by an amount those that one of each would take.

    0 where that cannot be said.
    """
    if time.timing is Timing.TIMESTAMP:
        return _passed(column.texts, rows)
    values = column.numbers
    if not values or time.covers is Covers.SINCE_START:
        return 0
    of_rows = [values[row + 1] for row in rows]
    if not all(of_rows):
        return 0
    if time.timing in (
        Timing.ELAPSED_SECONDS,
        Timing.ELAPSED_MILLISECONDS,
        Timing.EPOCH_MILLISECONDS,
    ):
        passed = sum(values[row + 1] - values[row] for row in rows)
        return passed if time.timing is Timing.ELAPSED_SECONDS else passed / 1000
    if time.timing.kind is TimeKind.RATE:
        return interval * sum(1 / rate for rate in of_rows)
    total = interval * sum(of_rows)
    return total / 1000 if time.timing is Timing.MILLISECONDS else total


def _passed(stamps: Sequence[bytes], rows: Sequence[int]) -> float:
    """Add up the seconds between the stamps of some rows and their next ones; 0 of odd stamps."""
    clock = Clock()
    moments = []
    try:
        for stamp in stamps:
            clock.read(stamp)
            moments.append(clock.seconds)
    except BrokenContractError:
        return 0
    return sum(moments[row + 1] - moments[row] for row in rows)
