"""Write the expressions that find steps, metrics and facts in a log of an unknown format."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from pytest_dlperf.formats.facts import PRECISION_NAMES
from pytest_dlperf.formats.log_format import LogFormat
from pytest_dlperf.formats.meanings import vocabulary
from pytest_dlperf.model.statistics import CLEAR_FALL, fall
from pytest_dlperf.survey.line_clusters import Column, LineCluster, named_numbers, unit_of

_META: Final = re.compile(r"([.^$*+?{}\[\]()|\\])")
_ESCAPED: Final = r"\\\1"
_MIN_FALLING: Final = 4
"""Values of which a fall tells what the next ones will do."""
_WARMUP: Final = 20
_MEASURED: Final = 100
"""Lines that the usual window leaves out, and those it has."""
_PRECISIONS: Final = (*PRECISION_NAMES, *PRECISION_NAMES.values(), "amp")


def record_of(
    kind: LineCluster, columns: Sequence[Column], wanted: Mapping[int, str]
) -> str | None:
    """Write the expression that takes some columns of lines as the groups of these names.

    ``None`` where none does so in each line.
    """
    order = sorted(wanted)
    for is_exact in (False, True):
        text, last = _front(columns, order[0]), order[0]
        for at in order:
            if at > last:
                text += _between(columns, last, at, is_exact=is_exact)
            text += f"(?P<{wanted[at]}>{_class(columns[at], wanted[at])})"
            last = at
        text += _end(columns[last].behind)
        pattern = re.compile(text.encode())
        matches = [pattern.search(line) for line in kind.lines[:50]]
        if all(
            match is not None
            and all(match[name] == columns[at].texts[row] for at, name in wanted.items())
            for row, match in enumerate(matches)
        ):
            return text
    return None


def _front(columns: Sequence[Column], at: int) -> str:
    """Write what stands in front of a column, back to a word or to the begin of the line."""
    column = columns[at]
    if at == 0 and len(column.before) <= 60:  # noqa: PLR2004 - of longer ones the words next to it
        # The longest of numbers that are padded has no blank in front of it.
        return "^ *" if column.before.isspace() else "^" + _literal_of(column)
    words = last_words(column.before)
    if at == 0 or re.search("[A-Za-z]{2}", words):
        return literal(words, column)
    return _front(columns, at - 1) + _class(columns[at - 1]) + _literal_of(column)


def _between(columns: Sequence[Column], before: int, at: int, *, is_exact: bool) -> str:
    """Write what stands between two columns: all of it, or only the words next to each."""
    if is_exact or at == before + 1:
        others = (_literal_of(each) + _class(each) for each in columns[before + 1 : at])
        return "".join(others) + _literal_of(columns[at])
    [first] = re.findall(r"^[ \t]*[^\s\w]*[ ]?[A-Za-z_]*", columns[before].behind)
    return literal(first.rstrip()) + ".*" + words_before(columns[at])


def _literal_of(column: Column) -> str:
    return literal(column.before, column)


def _end(behind: str) -> str:
    if not behind.strip():
        return r"\s*$" if behind else "$"
    [found] = re.findall(r"^[ \t]*[^\s\w]{0,3}[ ]?[A-Za-z%/()]*", behind)
    return literal(found if found.strip() else behind[:1])


def last_words(text: str) -> str:
    """Cut what stands in front of a number to the words next to it."""
    name = re.search(r"(?:[\w@./()-]+ ){0,5}[\w@./()-]+[^\w]*$", text)
    short = name[0] if name else text
    # From the last separator on, where enough is left.
    for separator in ("|", ",", ";", "  ", " - ", "]"):
        _, found, tail = short.rstrip(" ").rpartition(separator)
        if found and re.search("[A-Za-z]", tail):
            short = tail + short[len(short.rstrip(" ")) :]
    return short


def literal(text: str, before: Column | None = None) -> str:
    """Write a text in front of a number for an expression; blanks may be any number of blanks."""
    text = re.sub(r"[^\x20-\x7e\t]+", "\x02", text)
    is_padded = before is not None and before.is_padded
    written = _META.sub(_ESCAPED, text.rstrip(" ") if is_padded else text)
    written = re.sub(r"[ \t]*\x02[ \t\x02]*", ".*", written).replace("\t", r"\t")
    return re.sub(" {2,}", " +", written) + (" *" if is_padded else "")


def words_before(column: Column) -> str:
    """Write the words in front of a number for an expression."""
    return literal(last_words(column.before), column)


def _class(column: Column, group: str = "") -> str:
    if column.is_stamp:
        text = _META.sub(_ESCAPED, column.texts[0].decode())
        text = re.sub(" +", " +", re.sub("[0-9]+", "[0-9]+", text))
        return re.sub("[AaPp]([Mm])$", r"[AaPp]\1", text)
    if column.is_clock:
        return "[0-9:.,]+"
    if group in ("step", "epoch", "rank") or (column.integers is not None and group == ""):
        return "[0-9]+"
    texts = b"".join(column.texts)
    if re.search(b"nan|inf", texts, re.IGNORECASE):
        return "[-+0-9.,a-zA-Z]+"
    has_commas = b"," in texts or group.endswith("_per_second")
    return f"[{'-+' * (b'-' in texts)}0-9.{',' * has_commas}{'eE' * (b'e' in texts.lower())}]+"


def lines_of(kinds: Iterable[LineCluster], log_format: LogFormat) -> LineCluster | None:
    """Find the lines that a format takes for steps; of several kinds the most frequent."""
    record = log_format.record
    fitting = (kind for kind in kinds if any(True for _ in record.finditer(kind.lines[0])))
    return max(fitting, key=lambda kind: kind.count, default=None)


def with_stamp(kinds: Iterable[LineCluster], record: str) -> str | None:
    """Let an expression without a time take the fine time stamp that its lines begin with."""
    pattern = re.compile(record.encode())
    kind = next((each for each in kinds if pattern.search(each.lines[0])), None)
    front = None if kind is None else next(iter(kind.columns()), None)
    if front is None or not front.is_stamp or re.search(rb":[0-9]+[.,]", front.texts[0]) is None:
        return None
    return f"^{literal(front.before)}(?P<timestamp>{_class(front)}).*{record}"


def metric_records(
    kinds: Iterable[LineCluster], log_format: LogFormat
) -> dict[str, dict[str, str]]:
    """Suggest metrics of what the lines of steps print: a loss that falls, and memory."""
    kind = lines_of(kinds, log_format)
    found: dict[str, dict[str, str]] = {}
    for name, column in named_numbers([] if kind is None else kind.columns()).items():
        words, unit = words_before(column), unit_of(column)
        values = column.numbers or []
        if not re.search("[A-Za-z]{2}", words):
            continue
        if re.search(r"(?i)^(?!.*scal).*loss$", name) and "loss" not in found:
            # It may fall over the log, and not in the steps that are measured.
            values = values[min(_WARMUP, len(values) // 5) :][:_MEASURED]
            falls = len(values) >= _MIN_FALLING and fall(values) > CLEAR_FALL
            record = f"{words}(?P<value>[-+.0-9A-Za-z]+)"
            found["loss"] = {"record": record, "sanity": "falls" if falls else "finite"}
        elif "mem" in name.lower() and re.fullmatch("[MG]i?B|B", unit) and min(values) > 0:
            record = f"{words}(?P<value>[0-9.]+) *{unit}"
            more = {"unit": unit, "better": "lower", "statistic": "max"}
            found["peak_memory"] = {"record": record, **more}
    return found


class StatedFact(Struct, frozen=True, kw_only=True):
    """What an unknown trainer seems to say of its run, and the expression that finds it."""

    value: str
    record: str
    text: str


def stated_facts(text: bytes) -> dict[str, StatedFact]:
    """Look for facts of a case that trainers usually print; what they contradict is left out."""
    found = {}
    for name, words in vocabulary().facts_in_logs().items():
        value, group = "[0-9]{1,6}", "([0-9]+)"
        if name == "precision":
            value, group = "|".join(_PRECISIONS), "([a-z0-9]+)"
        # A size of something else has a longer name: group_world_size, min_world_size.
        pattern = re.compile(
            rf"\b(?P<name>{words})(?P<between>['\"]?(?: {{0,9}}[:=] {{0,12}}| (?={value}))"
            rf"[\[('\"]{{0,2}}(?:torch\.)?)(?P<value>{value})(?![0-9.]*[0-9])\b",
            re.IGNORECASE,
        )
        matches = list(pattern.finditer(text.decode(errors="replace")))
        if len({match["value"].lower() for match in matches}) == 1:
            match, printed = matches[0], matches[0]["value"].lower()
            front = re.sub(" +", " +", _META.sub(_ESCAPED, match["between"]))
            found[name] = StatedFact(
                value=PRECISION_NAMES.get(printed, printed),
                record=rf"\b{match['name']}{front}{group}",
                text=match[0],
            )
    return found
