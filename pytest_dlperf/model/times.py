"""Times as results files have them: ISO 8601, read alike by every Python."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Final

_FORM: Final = re.compile(
    r"(\d{4}-\d{2}-\d{2})[T ](\d{2}:\d{2}:\d{2})(?:\.(\d+))?(Z|[+-]\d{2}:\d{2})?", re.ASCII
)


def parse_time(text: str) -> datetime:
    """A time to the second or finer, with its zone where it has one.

    Raises:
        ValueError: It has another form, or is no day or hour that there is.
    """
    found = _FORM.fullmatch(text)
    if found is None:
        msg = f"{text!r} is no time such as 2026-11-20T22:00:00+01:00"
        raise ValueError(msg)
    day, hour, fraction, zone = found.groups()
    # Python 3.10 knows neither the Z nor other fractions than those of 3 and 6 digits.
    exact = f"{day}T{hour}.{(fraction or '')[:6]:0<6}"
    return datetime.fromisoformat(exact + {None: "", "Z": "+00:00"}.get(zone, zone or ""))


def elapsed(started: str, ended: str | None) -> timedelta | None:
    """How long it took; ``None`` where that is not known, or clocks make it less than nothing."""
    if ended is None:
        return None
    try:
        taken = parse_time(ended) - parse_time(started)
    except (ValueError, TypeError):
        return None
    return taken if taken >= timedelta(0) else None
