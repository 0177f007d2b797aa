"""Numbers of a program without steps, as it prints or writes them: in tables, in JSON, at the end.

Each way makes metrics of a system file; what it guesses is marked.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct

from pytest_dlperf.model.metric import ENTRY_KEYS, builtin_metrics

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MAX_METRICS: Final = 8
_MIN_ROWS: Final = 3
_TAKEN: Final = {
    *("case", "devices_per_node", "framework", "loss", "metric", "model", "nodes", "options"),
    *("system", "topology", *ENTRY_KEYS, *builtin_metrics("")),
}
_IN_A_FILE: Final = (
    'A program that writes this into a file: log: {file: "{scratch_directory}/result.json"}, and '
    "the same in its command."
)

NUMBER: Final = r"[-+]?[0-9][0-9,]*(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"
_SIZED: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?[kKmMgGtT]?i?[bB]?")
_NUMERIC: Final = re.compile(rf"(?:{NUMBER}|nan|inf)[kKMG]?", re.IGNORECASE)
VALUE: Final = "(?P<value>[-+.,0-9A-Za-z]+)"
_NAMES: Final = re.compile(
    r"#?(?:msg|message|block|batch|array|file)?[ _]?(?:sizes?|bytes|length)|#?(?:block|batch|bs|"
    r"concurrency|clients|users|threads|procs|ranks|nodes|gpus|workers|percentile|quantile|depth|"
    r"iodepth|rate|qps|tokens|elements|count|n|m)(?:[ _]?\([A-Za-z]+\))?",
    re.IGNORECASE,
)
"""What the first column of a table is called whose rows are no steps."""
_IN_NAME: Final = re.compile(
    r"[\[(](?P<unit>[A-Za-z%µ][\w/%µ]*)[\])]|(?:^|(?<= ))(?P<last>\w+/s|[mun]?s)$"
)
_PER_SECOND: Final = re.compile(
    r"(?P<what>tok(?:en)?s?|im(?:a?g|age)s?|samples?|it(?:er)?s?|steps?|req(?:uest)?s?|ops|items?)"
    r"_(?:per_)?s(?:ec(?:ond)?)?$"
)
_ENDINGS: Final = {
    "_ms": "ms", "_us": "us", "_ns": "ns", "_s": "s", "_sec": "s", "_seconds": "s",
    "_gbps": "GB/s", "_mbps": "MB/s", "_bytes": "B", "_mb": "MB", "_gb": "GB",
}  # fmt: skip
_LOWER: Final = re.compile(
    r"lat(?:ency)?(?:\b|_)|time|elapsed|took|duration|seconds|(?:^|_)(?:ttft|tpot|itl|p[0-9]+)(?:_|$)"
    r"|clat|memory|(?:^|_)(?:ms|us|ns)$"
)
_HIGHER: Final = re.compile(
    r"bus_?bw|bandwidth|(?:^|_)bw(?:_|$)|algbw|throughput|per_?s(?:ec(?:ond)?)?(?:_|$)|rate|iops|qps"
    r"|ips$|flops|speed|score|tokens_?s$"
)
RATE_UNIT: Final = re.compile(r".*(?:/s(?:ec)?|[Fflops]{4,6}|FLOPS|IOPS|it/s)$")
TIME_UNIT: Final = re.compile(r"s|ms|us|µs|ns|sec|secs|seconds|min", re.IGNORECASE)


class Proposal(Struct, frozen=True, kw_only=True):
    """What an output may be, and the metrics that read it."""

    kind: str
    metrics: Mapping[str, Mapping[str, Any]]
    unsure: Mapping[str, str]
    comments: tuple[str, ...] = ()


def id_word(text: str) -> str:
    """Make a word of an id or a metric's name of any text."""
    word = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:40].strip("_")
    return word if word[:1].isalpha() else f"n{word}".strip("_")


# --------------------------------------------------------------------------------- judge names


def score_of(name: str, unit: str) -> int:
    """Say how much a number looks like what a program was started to measure."""
    word = id_word(name)
    if re.search(r"bus_?bw|throughput|bandwidth", word):
        score = 8
    elif _HIGHER.search(word):
        score = 6
    elif _LOWER.search(word):
        score = 4
    else:
        score = 0
    score += 3 * bool(RATE_UNIT.fullmatch(unit)) + 2 * bool(TIME_UNIT.fullmatch(unit))
    score += bool(re.search(r"mean|avg|average|median|p50|total", word))
    return score if not re.search(r"std|min(?:_|$)|config|timeout|limit|port|seed", word) else 0


def judged_by(name: str, unit: str) -> tuple[dict[str, str], str]:
    """Say unit and direction of a number, and what is in doubt of it."""
    word = id_word(name)
    is_time = TIME_UNIT.fullmatch(unit) or (_LOWER.search(word) and not _HIGHER.search(word))
    is_lower = bool(is_time) and not RATE_UNIT.fullmatch(unit)
    better = "lower" if is_lower else "higher"
    doubt = f"is {better} better?" if unit else f"is {better} better, and in which unit is it?"
    return ({"unit": unit} if unit else {}) | {"better": better}, doubt


def unit_of(name: str, behind: str = "") -> str:
    """Find the unit that stands behind a number, or in its name."""
    if behind:
        return behind
    if (found := _IN_NAME.search(name)) is not None:
        return found["unit"] or found["last"]
    word = f"_{id_word(name)}"
    if (rate := _PER_SECOND.search(word)) is not None:
        return f"{rate['what']}/s"
    return next((unit for end, unit in _ENDINGS.items() if word.endswith(end)), "")


def distinct_name(name: str, taken: Mapping[str, Any]) -> str:
    """Make the name of a metric, beside those that are taken."""
    bare = _IN_NAME.sub("", name).strip()
    word = id_word(bare) if bare else "result"
    word = f"measured_{word}" if word in _TAKEN else word
    return next(w for w in (word, *(f"{word}_{n}" for n in range(2, 99))) if w not in taken)


# -------------------------------------------------------------------------------------- tables


class _Table(Struct, frozen=True, kw_only=True):
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    mark: str
    """What stands in front of each row: ``#`` or ``|``."""


def tables(text: str) -> Iterator[Proposal]:
    """Propose a family of a table with a row for each size, the longest table first."""
    found = _found_tables(text.split("\n"))
    for table in sorted(found, key=lambda table: -len(table.rows)):
        ranked = _value_columns(table)
        if not ranked:
            continue
        name = table.columns[ranked[0]]
        group = id_word(_IN_NAME.sub("", table.columns[0])) or "size"
        group = group if group not in ("value", "unit", "rank", "step") else "name"
        alike = [at for at in ranked if table.columns[at] == name]
        groups = {alike[0]: "value"}
        if len(alike) == 2:  # noqa: PLR2004 - as nccl-tests: out of place, and in place
            groups = {alike[0]: "value_out", alike[1]: "value_in"}
        judged, doubt = judged_by(name, unit_of(name))
        label = distinct_name(name, {})
        record = _row_expression(table, group, groups)
        yield Proposal(
            kind=f"a table with {len(table.rows)} rows, one for each {group}",
            metrics={label: {"record": record, **judged}},
            unsure={f"metrics.{label}.record": doubt},
        )


def _found_tables(lines: Sequence[str]) -> Iterator[_Table]:
    at = 0
    while at < len(lines):
        mark, first = _cells(lines[at])
        if len(first) < 2 or not _SIZED.fullmatch(first[0]):  # noqa: PLR2004 - a size and a number
            at += 1
            continue
        rows, end = [first], at + 1
        while end < len(lines):
            same, cells = _cells(lines[end])
            if same != mark or len(cells) != len(first) or not _SIZED.fullmatch(cells[0]):
                break
            rows.append(cells)
            end += 1
        names = _header(lines[max(at - 4, 0) : at], len(first))
        is_table = len(rows) >= _MIN_ROWS and len({row[0] for row in rows}) == len(rows)
        if is_table and names is not None and _NAMES.fullmatch(_IN_NAME.sub("", names[0]).strip()):
            yield _Table(columns=names, rows=tuple(rows), mark=mark)
        at = end


def _cells(line: str) -> tuple[str, tuple[str, ...]]:
    bare = line.strip()
    mark = "|" if bare.startswith("|") else ""
    text = bare.strip("|").replace("|", " ") if mark else bare
    return mark, tuple(text.split())


def _header(lines: Sequence[str], count: int) -> tuple[str, ...] | None:
    """Find the line above that names so many columns, the nearest first."""
    for line in reversed(lines):
        bare = line.strip().lstrip("#").strip().strip("|").strip()
        if not re.search("[A-Za-z]{2}", bare):
            continue
        for names in (re.split(r" {2,}|\t+|\s*\|\s*", bare), bare.split()):
            if len(names) == count:
                return tuple(names)
    return None


def _value_columns(table: _Table) -> list[int]:
    """Choose the columns that hold what was measured, the best first."""
    found = []
    for at, name in enumerate(table.columns):
        cells = [row[at] for row in table.rows]
        score = score_of(name, unit_of(name))
        if at and score and all(_NUMERIC.fullmatch(cell) for cell in cells):
            found.append((-score, "avg" not in name.lower(), at))
    return [at for *_, at in sorted(found)]


def _row_expression(table: _Table, group: str, groups: Mapping[int, str]) -> str:
    begin, end = (r"[ |]*", r"[ |]*") if table.mark else (" *", r"\s*")
    gap = "[ |]+" if table.mark else r"\s+"
    cells = [f"(?P<{group}>[0-9.]+[A-Za-z]*)"]
    skipped = 0
    for at in range(1, len(table.columns)):
        if at not in groups:
            skipped += 1
            continue
        cells += [_others(gap, skipped)] * bool(skipped)
        cells.append(f"{gap}(?P<{groups[at]}>[-+.,0-9A-Za-z]+)")
        skipped = 0
    cells += [_others(gap, skipped)] * bool(skipped)
    return f"^{begin}{''.join(cells)}{end}$"


def _others(gap: str, count: int) -> str:
    cell = r"[^\s|]+"
    return f"{gap}{cell}" if count == 1 else f"(?:{gap}{cell}){{{count}}}"


# ------------------------------------------------------------------------------------ documents


def documents(text: str) -> Iterator[Proposal]:
    """Propose metrics of JSON, by key."""
    parsed = list(_parsed(text))
    if not parsed:
        return
    document, count = parsed[0], len(parsed)
    metrics: dict[str, dict[str, Any]] = {}
    unsure = {}
    found = sorted(_places(document), key=lambda place: -place[0])
    best = [place for place in found if place[0] > 0] or (found if len(found) == 1 else [])
    for _, keys, name in best[:MAX_METRICS]:
        judged, doubt = judged_by(name, unit_of(name))
        label = distinct_name(name, metrics)
        naming = _naming_key(document) if count > 1 and len(keys) == 1 else ""
        named = {id_word(naming): naming} if naming else {}
        only = keys["value"] if len(keys) == 1 and not named else {**keys, **named}
        metrics[label] = {"json": only, **judged}
        unsure[f"metrics.{label}.json"] = doubt
    if metrics:
        yield Proposal(
            kind="JSON" if count == 1 else f"{count} lines of JSON",
            metrics=metrics,
            unsure=unsure,
            comments=(_IN_A_FILE,),
        )


def _parsed(text: str) -> Iterator[Any]:
    try:
        yield json.loads(text)
    except ValueError:
        pass
    else:
        return
    if (begin := re.search(r"^[{\[]\s*$", text, re.MULTILINE)) is not None:
        try:
            yield json.JSONDecoder().raw_decode(text, begin.start())[0]
        except ValueError:
            return
        return
    for line in text.split("\n"):
        if line.startswith("{"):
            try:
                yield json.loads(line)
            except ValueError:
                continue


_Place: TypeAlias = "tuple[int, dict[str, str], str]"


def _places(value: Any, path: tuple[str, ...] = ()) -> Iterator[_Place]:
    """Yield each number, or each family of them: its score, its keys, its name."""
    if isinstance(value, bool) or len(path) > 8:  # noqa: PLR2004 - deeper is no result
        return
    name = next((key for key in reversed(path) if not key.isdecimal()), "result")
    if isinstance(value, int | float) and value > 0:
        around = "_".join(key for key in path[-3:] if not key.isdecimal())
        score = max(score_of(name, unit_of(name)), score_of(around, "") // 2)
        yield score, {"value": ".".join(path)}, name
    elif isinstance(value, dict) and _is_named(value):
        keys = {"value": ".".join((*path, "*"))}
        yield score_of("_".join(path[-3:]), unit_of(name)), keys, name
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _places(inner, (*path, str(key)))
    elif isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
        yield from _items(value, path)


def _is_named(value: Mapping[str, Any]) -> bool:
    """Whether the keys of an object are percentiles or sizes of one number."""
    are_names = len(value) > 1 and all(re.fullmatch(r"p?[0-9.]+", str(key)) for key in value)
    return are_names and all(isinstance(one, int | float) and one > 0 for one in value.values())


def _items(value: Sequence[Any], path: tuple[str, ...]) -> Iterator[_Place]:
    naming = _naming_key(value[0])
    if len(value) > 1 and naming:
        above = ".".join((*path, "*"))
        for score, keys, inner in _places(value[0]):
            if keys["value"] != naming:
                names = {id_word(naming): f"{above}.{naming}"}
                yield score, {"value": f"{above}.{keys['value']}", **names}, inner
    elif len(value) <= 8:  # noqa: PLR2004 - such as the jobs of fio
        for at, inner in enumerate(value):
            yield from _places(inner, (*path, str(at)))


def _naming_key(document: Any) -> str:
    """Return the key of an object that names it among others: ``size``."""
    if not isinstance(document, dict):
        return ""
    found = (key for key in document if _NAMES.fullmatch(key) and not _HIGHER.search(key))
    return next(iter(found), "")
