"""Notice where a number is of another unit than its group's name says: by what stands around it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pytest_dlperf.formats.contract import BrokenContractError
from pytest_dlperf.formats.expressions import Expression
from pytest_dlperf.model.work import RateScope, TimeKind, Timing

if TYPE_CHECKING:
    from pytest_dlperf.formats.expressions import AnyMatch
    from pytest_dlperf.formats.keyed import CsvRecord, JsonRecord
    from pytest_dlperf.formats.log_format import LogFormat

_STEP: Final = rb"(?:it(?:er(?:ation)?)?|step|batch)"
_SECOND: Final = rb"(?:s|secs?|seconds?)"
_PER: Final = rb"(?:/|_?per_?)"
_SAMPLE: Final = rb"(?:sample|seq|sequence|im(?:a?g|age)|example)"

_MILLISECONDS: Final = (
    Timing.MILLISECONDS,
    Timing.EPOCH_MILLISECONDS,
    Timing.ELAPSED_MILLISECONDS,
)
_SECONDS: Final = (
    Timing.SECONDS,
    Timing.SECONDS_PER_STEP,
    Timing.ELAPSED_SECONDS,
    Timing.TIMESTAMP,
)
# The more of them that fit, the earlier stands the one that says more.
_UNITS: Final[tuple[tuple[bytes, tuple[Timing, ...]], ...]] = (
    (rb"(?:tps|tok(?:en)?s?%b%b)" % (_PER, _SECOND), (Timing.TOKENS_PER_SECOND,)),
    (rb"%bs?%b%b" % (_SAMPLE, _PER, _SECOND), (Timing.SAMPLES_PER_SECOND,)),
    (rb"%b(?:s|es)?%b%b" % (_STEP, _PER, _SECOND), (Timing.STEPS_PER_SECOND,)),
    (rb"(?:ms|msecs?|milliseconds?)%b%b" % (_PER, _STEP), (Timing.MILLISECONDS,)),
    (rb"%b%b%b" % (_SECOND, _PER, _STEP), (Timing.SECONDS_PER_STEP, Timing.SECONDS)),
    (rb"(?:ms|msecs?|millis|milliseconds?)", _MILLISECONDS),
    (rb"(?:us|usecs?|ns|nsecs?|micro\w{1,9}|nano\w{1,9})", ()),
    (_SECOND, _SECONDS),
)
_PART: Final = rb"(?:/|[_ ]?per[_ ])(gpu|device|chip|node)s?"
_ENDS: Final = rb"\)?\]?[\"']?[ \t]{0,9}[:=]?[ \t]{0,9}[\"']?$"
_BEHIND: Final = tuple(
    (re.compile(rb" ?(%b)(?:%b)?(?![\w/:=])" % (unit, _PART), re.IGNORECASE), timings)
    for unit, timings in _UNITS
)
_BEFORE: Final = tuple(
    (
        re.compile(
            rb"(?<![A-Za-z/])(%b)(?:%b|[/_]\w{1,9})?%b" % (unit, _PART, _ENDS),
            re.IGNORECASE,
        ),
        timings,
    )
    for unit, timings in _UNITS
)
_SPEED: Final = b"|".join(unit for unit, _ in _UNITS[:3])
_PART_BEHIND: Final = re.compile(rb"(?: ?(?:%b))?%b(?!\w)" % (_SPEED, _PART), re.IGNORECASE)
_PART_BEFORE: Final = re.compile(
    rb"%b(?:[_ ]?(?:/|per)_?%b)?%b" % (_PART, _SECOND, _ENDS), re.IGNORECASE
)
_SCOPES: Final = {b"node": RateScope.NODE}
_REACH: Final = 60

_GOES_ON: Final = re.compile(
    rb"[0-9]+|[.:][0-9]+|[eE][-+]?[0-9]+|,[0-9]{3}(?![0-9])|[kKMG](?![A-Za-z/])"
)


class UnitCheck:
    """Checks what stands around the times of records; the unit only of the first.

    Raises:
        BrokenContractError: It says another unit, or the number goes on behind the group.
    """

    def __init__(self, log_format: LogFormat, record: Expression | JsonRecord | CsvRecord) -> None:
        """Begin before the first record."""
        self._format = log_format
        self._timing = timing = log_format.timing
        self._group = record.groupindex.get(timing.value, 0)
        self._key = None if isinstance(record, Expression) else record.keys.get(timing.value)
        self._is_plain = self._key is not None or timing is Timing.TIMESTAMP
        self._begins = True

    def __call__(self, match: AnyMatch) -> None:
        """Check the next record."""
        if self._begins:
            self._begins = False
            begin, end = match.span(self._group)
            text = bytes(match.string)
            before, behind = text[max(begin - _REACH, 0) : begin], text[end : end + _REACH]
            if self._key is not None:
                before, behind = self._key.encode(), b""
            _check_unit(self._timing, before, behind)
            if self._timing.kind is TimeKind.RATE:
                _check_scope(self._format, before, behind)
        if not self._is_plain and _GOES_ON.match(match.string, match.end(self._group)):
            _check_whole(self._timing, match)


def _check_unit(timing: Timing, before: bytes, behind: bytes) -> None:
    for unit, timings in _BEHIND:
        if found := unit.match(behind):
            _check(timing, timings, found[1], "behind")
            return
    for unit, timings in _BEFORE:
        if found := unit.search(before):
            _check(timing, timings, found[1], "before")
            return


def _check_scope(log_format: LogFormat, before: bytes, behind: bytes) -> None:
    """Check that a speed of a part of the devices is not taken for that of all."""
    found = _PART_BEHIND.match(behind) or _PART_BEFORE.search(before)
    if found is None or log_format.case is None:
        return
    part = found[1].lower()
    printed = _SCOPES.get(part, RateScope.DEVICE)
    case = log_format.case
    if case.rates_per_run(log_format.rate_scope) != case.rates_per_run(printed):
        raise BrokenContractError(
            f"the speed is printed per {part.decode()}, and the format takes it for that of scope "
            f"{log_format.rate_scope.value}; write 'rate_scope: {printed.value}'"
        )


def _check(timing: Timing, timings: tuple[Timing, ...], unit: bytes, where: str) -> None:
    if timing in timings:
        return
    alike = [each for each in timings if each.kind is timing.kind] or timings
    since_start = timing is Timing.ELAPSED_SECONDS
    write = f"name the group {alike[-1 if since_start else 0].value}" if alike else "print seconds"
    raise BrokenContractError(
        f"the group {timing.value} has {unit.decode(errors='replace')!r} {where} it; {write}"
    )


def _check_whole(timing: Timing, match: AnyMatch) -> None:
    end = match.end(timing.value)
    rest = _GOES_ON.match(match.string, end)
    if rest is None or (rest[0][:1] in b",kKMG" and match.end() > end):
        # The author of the expression knows what it takes behind the group.
        return
    number = (match[timing.value] + rest[0]).decode(errors="replace")
    raise BrokenContractError(
        f"the group {timing.value} takes a part of {number[:40]!r} only; let it take all of it, as "
        "in [0-9.,:kM]+"
    )
