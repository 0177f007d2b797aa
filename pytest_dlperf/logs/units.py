"""Notice where a number is of another unit than its group's name says: by what stands around it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pytest_dlperf.formats.contract import BrokenContractError
from pytest_dlperf.formats.keyed import Keyed
from pytest_dlperf.formats.meanings import is_known, vocabulary
from pytest_dlperf.model.work import TimeKind, Timing

if TYPE_CHECKING:
    from pytest_dlperf.formats.keyed import AnyMatch
    from pytest_dlperf.formats.log_format import LogFormat

_REACH: Final = 60

_HALF_OF_DAY: Final = re.compile(rb" ?[AaPp]\.?[Mm]\b\.?")
_GOES_BEFORE: Final = re.compile(rb"[0-9]+\.?$")
_GOES_ON: Final = re.compile(
    rb"[0-9]+|[.:][0-9]+|[eE][-+]?[0-9]+|,[0-9]{3}(?![0-9])|[kKMG](?![A-Za-z/])"
)


class UnitCheck:
    """Checks what stands around the times of records; the unit only of the first.

    Raises:
        BrokenContractError: It says another unit, or the number goes on behind the group.
    """

    def __init__(self, log_format: LogFormat) -> None:
        """Begin before the first record."""
        record = log_format.record
        self._format = log_format
        self._timing = timing = log_format.timing
        self._group = record.groupindex.get(timing.value, 0)
        self._key = record.keys.get(timing.value) if isinstance(record, Keyed) else None
        self._is_plain = self._key is not None or timing is Timing.TIMESTAMP
        self._begins = True

    def __call__(self, match: AnyMatch) -> None:
        """Check the next record."""
        if self._begins:
            self._begins = False
            if not self._is_plain:
                _check_begin(self._timing, match)
            begin, end = match.span(self._group)
            text = bytes(match.string)
            before, behind = text[max(begin - _REACH, 0) : begin], text[end : end + _REACH]
            if self._timing is Timing.TIMESTAMP and (half := _HALF_OF_DAY.match(behind)):
                raise BrokenContractError(
                    f"the group timestamp leaves out {half[0].decode()!r} behind it; let it take "
                    "that as well"
                )
            if self._key is not None:
                before, behind = self._key.encode(), b""
            try:
                _check_unit(self._timing, before, behind)
                if self._timing.kind is TimeKind.RATE:
                    _check_scope(self._format, before, behind)
            except BrokenContractError:
                # Few print another unit than they mean; those are known.
                if not is_known(text, begin, self._format):
                    raise
        if not self._is_plain and _GOES_ON.match(match.string, match.end(self._group)):
            _check_whole(self._timing, match)


def _check_unit(timing: Timing, before: bytes, behind: bytes) -> None:
    """Check that the text around a number gives it no other unit than its group."""
    wait = None if timing.kind is TimeKind.MOMENT else vocabulary().wait(before)
    if wait is not None:
        raise BrokenContractError(
            f"the group {timing.value} takes {wait!r}, which is no time of a whole step; take that"
        )
    found = vocabulary().unit(before, behind)
    if found is None:
        _check_name(timing, before)
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
    raise BrokenContractError(
        f"the group {timing.value} has {found.text!r} {found.where} it; {remedy}"
    )


def _check_name(timing: Timing, before: bytes) -> None:
    """Check that no speed is taken for a time, nor a time for a speed, where no unit tells."""
    name = vocabulary().last_name(before)
    kinds = {timing.kind, name.groups[0].kind} if name is not None else set()
    if name is not None and kinds == {TimeKind.RATE, TimeKind.DURATION}:
        called = before.decode(errors="replace").strip(" \t:=\"'").rpartition(" ")[2]
        raise BrokenContractError(
            f"the group {timing.value} takes {called!r}; name it {name.groups[0].value}"
        )


def _check_scope(log_format: LogFormat, before: bytes, behind: bytes) -> None:
    """Check that a speed of a part of the devices is not taken for that of all."""
    case, found = log_format.case, vocabulary().part(before, behind)
    if found is None or case is None:
        return
    part, printed = found
    if case.rates_per_run(log_format.rate_scope) != case.rates_per_run(printed):
        raise BrokenContractError(
            f"the speed is printed per {part}, and the format takes it for that of scope "
            f"{log_format.rate_scope.value}; write 'rate_scope: {printed.value}'"
        )


def _check_begin(timing: Timing, match: AnyMatch) -> None:
    """Check that no digit of the number stands in front of the group."""
    begin, end = match.span(timing.value)
    front = _GOES_BEFORE.search(match.string, max(begin - _REACH, 0), begin)
    if front is not None and match[timing.value][:1].isdigit():
        _refuse_part(timing, bytes(match.string[front.start() : end]))


def _check_whole(timing: Timing, match: AnyMatch) -> None:
    end = match.end(timing.value)
    rest = _GOES_ON.match(match.string, end)
    if rest is None or (rest[0][:1] in b",kKMG" and match.end() > end):
        # The author of the expression knows what it takes behind the group.
        return
    _refuse_part(timing, match[timing.value] + rest[0])


def _refuse_part(timing: Timing, number: bytes) -> None:
    text = number.decode(errors="replace")
    raise BrokenContractError(
        f"the group {timing.value} takes a part of {text[:40]!r} only; let it take all of it, as "
        "in [0-9.,:kM]+"
    )
