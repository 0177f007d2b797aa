"""Say where a number is of another unit than its group's name says: by what stands around it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from pytest_dlperf.formats.keyed import Keyed
from pytest_dlperf.formats.log_format import LogFormat
from pytest_dlperf.formats.meanings import is_known, vocabulary
from pytest_dlperf.model.work import TimeKind, Timing

_REACH: Final = 60
_GOES_BEFORE: Final = re.compile(rb"[0-9]+\.?$")
_GOES_ON: Final = re.compile(
    rb"[0-9]+|[.:][0-9]+|[eE][-+]?[0-9]+|,[0-9]{3}(?![0-9])| ?[kKMG](?![A-Za-z/])"
)


class _Taken(NamedTuple):
    """A number as a group takes it of a line."""

    text: bytes
    begin: int = 0
    before: bytes = b""
    behind: bytes = b""
    is_last: bool = True
    """Whether the record ends with it."""


def problems_of_group(log_format: LogFormat, line: bytes) -> Iterator[str]:
    """Say what is wrong with the time that the first record of a line has.

    That is its unit, or that the group takes a part of the number only.
    """
    timing = log_format.timing
    taken = _taken(log_format, line)
    if taken is None:
        return
    front, rest = _GOES_BEFORE.search(taken.before), _GOES_ON.match(taken.behind)
    if rest is not None and rest[0][:1] == b"," and not taken.is_last:
        rest = None  # the next column of a list
    if taken.text[:1].isdigit() and (front or rest) and timing is not Timing.TIMESTAMP:
        whole = (front[0] if front else b"") + taken.text + (rest[0] if rest else b"")
        yield (
            f"the group {timing.value} takes a part of {whole.decode(errors='replace')[:40]!r} "
            "only; let it take all of it, as in [0-9.,:kM]+"
        )
    elif not is_known(line, taken.begin, log_format):  # few print another unit than they mean
        yield from _problems_of_unit(timing, taken.before, taken.behind)
        if timing.kind is TimeKind.RATE:
            yield from _problems_of_scope(log_format, taken.before, taken.behind)


def _taken(log_format: LogFormat, line: bytes) -> _Taken | None:
    record, group = log_format.record, log_format.timing.value
    if group not in record.groupindex:
        return None
    if isinstance(record, Keyed):
        return _Taken(b"", before=record.keys[group].encode())
    match = next(iter(record.finditer(line)), None)
    if match is None:
        return None
    begin, end = match.span(group)
    around = line[max(begin - _REACH, 0) : begin], line[end : end + _REACH]
    return _Taken(line[begin:end], begin, *around, match.end() == end)


def _problems_of_unit(timing: Timing, before: bytes, behind: bytes) -> Iterator[str]:
    """Say where the text around a number gives it another unit, or another meaning."""
    wait = None if timing.kind is TimeKind.MOMENT else vocabulary().wait(before)
    if wait is not None:
        yield f"the group {timing.value} takes {wait!r}, which is not the time of a whole step"
        return
    found = vocabulary().unit(before, behind)
    if found is None:
        name = vocabulary().last_name(before)
        kinds = {timing.kind, name.groups[0].kind} if name is not None else set()
        if name is not None and kinds == {TimeKind.RATE, TimeKind.DURATION}:
            called = before.decode(errors="replace").strip(" \t:=\"'").rpartition(" ")[2]
            yield (f"the group {timing.value} takes {called!r}; name it {name.groups[0].value}")
        return
    if timing in found.unit.groups:
        return
    groups = found.unit.groups
    alike = [each for each in groups if each.kind is timing.kind] or groups
    since_start = timing is Timing.ELAPSED_SECONDS and alike and alike[0].kind is timing.kind
    remedy = found.unit.instead
    if found.is_rate and len(alike) > 1:
        *some, last = (each.value for each in alike)
        remedy = f"what does it count? name the group {', '.join(some)} or {last}"
    elif alike:
        remedy = f"name the group {alike[-1 if since_start else 0].value}"
    yield f"the group {timing.value} has {found.text!r} {found.where} it; {remedy}"


def _problems_of_scope(log_format: LogFormat, before: bytes, behind: bytes) -> Iterator[str]:
    """Say where a speed of a part of the devices is taken for that of all."""
    case, found = log_format.case, vocabulary().part(before, behind)
    if found is None or case is None:
        return
    part, printed = found
    if case.rates_per_run(log_format.rate_scope) != case.rates_per_run(printed):
        yield (
            f"the speed is printed per {part}, and the format takes it for that of scope "
            f"{log_format.rate_scope.value}; write 'rate_scope: {printed.value}'"
        )
