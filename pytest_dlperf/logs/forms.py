"""Recognise a printed number that has lost some of its characters, by the form of the others.

What a program prints has one form: so many decimals, or as many as the number needs. A number of
another form counts as damaged if it also differs from the others: there it would do harm.
"""

from __future__ import annotations

import re
from array import array
from contextlib import suppress
from typing import Final

from msgspec import Struct

from pytest_dlperf.formats.contract import BrokenContractError, shown
from pytest_dlperf.logs.clock import parse
from pytest_dlperf.model import statistics

FAR: Final = 5.0
"""How many times a number differs where a decimal point may have been lost: ten at least."""
_NEAR: Final = 1.1
"""By how much it may differ where it cannot have been printed so."""
_ODD: Final = re.compile(rb"\s|\.|0[0-9]")
_PREFIXES: Final = b"kKMG"
_WORTHS: Final = (1e3, 1e6, 1e9)
_POINTS: Final = range(1, 7)
_DIGIT: Final = re.compile(rb"[0-9]")


class _FormSummary(Struct):
    """The numbers of one form: how many, the least and the greatest with text and place."""

    count: int
    least: tuple[float, bytes, int]
    greatest: tuple[float, bytes, int]
    is_fixed: bool


class NumberForms:
    """The forms of all numbers that were printed of one thing."""

    def __init__(self) -> None:
        """Begin without a number."""
        self._values = array("d")
        self._forms: dict[tuple[int, bool, bytes], _FormSummary] = {}

    def take(self, text: bytes, value: float, offset: int) -> None:
        """Take a number as it is printed, and where."""
        self._values.append(value)
        number = text.rstrip(_PREFIXES)
        decimals = len(number.partition(b".")[2])
        form = decimals, _ODD.match(text) is not None, text[len(number) :]
        # What is rounded to as few decimals as it needs never ends with a zero.
        is_fixed = decimals > 1 and number.endswith(b"0")
        found = value, text, offset
        of_form = self._forms.get(form)
        if of_form is None:
            self._forms[form] = _FormSummary(1, found, found, is_fixed)
            return
        of_form.count += 1
        of_form.is_fixed = of_form.is_fixed or is_fixed
        if value < of_form.least[0]:
            of_form.least = found
        elif value > of_form.greatest[0]:
            of_form.greatest = found

    def check(self) -> None:
        """Refuse a number of another form that is far from the others.

        Raises:
            BrokenContractError: It is damaged.
        """
        if len(self._forms) <= 1:
            return
        usual = max(self._forms, key=lambda form: self._forms[form].count)
        if 2 * self._forms[usual].count <= len(self._values):
            return
        median = statistics.median(self._values)
        for form, of_form in self._forms.items():
            if form == usual:
                continue
            decimals, is_odd, prefix = form
            alike = prefix == usual[2]
            cannot_be = is_odd or (alike and self._forms[usual].is_fixed)
            least = _NEAR if cannot_be else FAR
            if not cannot_be and (prefix if not alike else decimals):
                continue
            for value, text, offset in (of_form.least, of_form.greatest):
                times = max(value / median, median / value)
                if not (alike or is_odd) and not any(
                    0.5 * each < times < 2 * each for each in _WORTHS
                ):
                    continue  # a number below 1k may have no prefix
                if times > least:
                    raise BrokenContractError(
                        f"the time is printed as {shown(text)}, unlike "
                        f"the others, and differs {times:.3g} times from their median; a digit or "
                        "the decimal point may be lost",
                        offset=offset,
                    )


def lost_character(before: bytes, after: bytes, end: int, most: float) -> bool:
    """Say whether two stamps are near if one of them, the ``end``, has lost a character.

    With it, it looks like the other, and less than ``most`` nanoseconds lie between them.
    """
    if end and b":" not in after and _lost_point(before, after, most):
        return True
    text, other = (before, after)[end], (after, before)[end]
    form = _DIGIT.sub(b"0", other)
    if len(form) != len(text) + 1:
        return False
    for place in range(len(form)):
        for character in b"0123456789" if form[place : place + 1] == b"0" else other[place:][:1]:
            longer = b"%b%c%b" % (text[:place], character, text[place:])
            if _DIGIT.sub(b"0", longer) != form:
                continue
            begin, stop = (before, longer) if end else (longer, after)
            with suppress(BrokenContractError):
                if 0 <= parse(stop).nanoseconds - parse(begin).nanoseconds <= most:
                    return True
    return False


def _lost_point(before: bytes, after: bytes, most: float) -> bool:
    """Say whether a number is near the one before if it has lost its decimal point."""
    if len(before.partition(b".")[2]) == len(after.partition(b".")[2]):
        return False
    with suppress(BrokenContractError):
        begin, end = parse(before).nanoseconds, parse(after).nanoseconds
        return any(0 <= end // 10**places - begin <= most for places in _POINTS)
    return False
