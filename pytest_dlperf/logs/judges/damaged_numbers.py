"""Suspects a printed number that has lost some of its characters, by the form of the others.

What a program prints has one form: so many decimals, or as many as the number needs. A number of
another form counts as damaged if it also differs from the others: there it would do harm.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_dlperf.formats.contract import BrokenContractError, shown
from pytest_dlperf.logs.judges import Judge
from pytest_dlperf.model import statistics
from pytest_dlperf.model.work import TimeKind

if TYPE_CHECKING:
    from pytest_dlperf.logs.judges import Evidence
    from pytest_dlperf.logs.steps import Series

_MIN_DAMAGE_RATIO: Final = 5.0
"""How many times a number differs where a decimal point may have been lost: ten at least."""
_MAX_SOUND_RATIO: Final = 1.1
"""By how much it may differ where it cannot have been printed so."""
_ODD: Final = re.compile(rb"\s|\.|0[0-9]")
_PREFIXES: Final = b"kKMG"
_WORTHS: Final = (1e3, 1e6, 1e9)


class DamagedNumbers(Judge):
    """Refuses a number of another form that is far from the others."""

    def decide(self, evidence: Evidence) -> None:
        """Compare the forms of all numbers, where no single one of them can be checked."""
        log_format = self.log_format
        if log_format.time_form is not None or log_format.timing.kind is TimeKind.MOMENT:
            return
        for series in evidence.series.values():
            _check(series)


class _Form(Struct):
    """The numbers of one form."""

    places: list[int] = []
    is_fixed: bool = False
    """Whether it has as many decimals whatever the number."""


def _check(series: Series) -> None:
    _, texts, offsets, seconds = series.columns
    median = statistics.median(seconds)
    if max(seconds) <= _MAX_SOUND_RATIO * median and median <= _MAX_SOUND_RATIO * min(seconds):
        return
    forms: dict[tuple[int, bool, bytes], _Form] = {}
    for at, text in enumerate(texts):
        number = text.rstrip(_PREFIXES)
        decimals = len(number.partition(b".")[2])
        form = forms.setdefault(
            (decimals, _ODD.match(text) is not None, text[len(number) :]), _Form()
        )
        form.places.append(at)
        # What is rounded to as few decimals as it needs never ends with a zero.
        form.is_fixed = form.is_fixed or (decimals > 1 and number.endswith(b"0"))
    usual = max(forms, key=lambda each: len(forms[each].places))
    if 2 * len(forms[usual].places) <= len(seconds):
        return
    for key, form in forms.items():
        decimals, is_odd, prefix = key
        alike = prefix == usual[2]
        cannot_be = is_odd or (alike and forms[usual].is_fixed)
        if key == usual or (not cannot_be and (prefix if not alike else decimals)):
            continue
        for at in form.places:
            times = max(seconds[at] / median, median / seconds[at])
            if not (alike or is_odd) and not any(0.5 * each < times < 2 * each for each in _WORTHS):
                continue  # a number below 1k may have no prefix
            if times > (_MAX_SOUND_RATIO if cannot_be else _MIN_DAMAGE_RATIO):
                raise BrokenContractError(
                    f"the time is printed as {shown(texts[at])}, unlike the others, and "
                    f"differs {times:.3g} times from their median; a digit or the decimal point "
                    "may be lost",
                    offset=offsets[at],
                )
