"""Put what the history shows of a metric into words, the same in terminal, page and command.

Texts may quote results files: the caller that prints them escapes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_dlperf.model import numbers
from pytest_dlperf.night import texts
from pytest_dlperf.night.explanation_words import short_commit

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_dlperf.history.series import (
        AcceptedChange,
        CaseHistory,
        ChangePoint,
        Drift,
        OtherMachine,
    )

_FIRST: Final = "first number"


def drift(known: Drift, percent: Callable[[float], str] = numbers.signed_percent) -> str:
    """Describe a slow change, behind a case's name; ``percent`` writes a difference."""
    return (
        f"drifts {percent(known.percent_per_week)} a week since {known.since[:10]} "
        f"({numbers.counted(known.nights, 'day')}), {percent(known.percent)} in all"
    )


def change(
    known: ChangePoint, unit: str, percent: Callable[[float], str] = numbers.signed_percent
) -> str:
    """Describe how far the level has changed; ``percent`` writes a difference."""
    before, after = numbers.number(known.before, unit), numbers.number(known.after, unit)
    return f"{percent(known.difference_percent)}, from {before} to {after}"


def commits(before: str | None, since: str | None) -> str | None:
    """Say which commits a level ended and began with, as far as sessions have told them."""
    if before == since:
        return None if since is None else f"on both sides commit {short_commit(since)}"
    told = [f"commit {short_commit(since)}"] if since else []
    told += [f"in the session before it {short_commit(before)}"] if before else []
    return ", ".join(told)


def accepted(known: AcceptedChange, unit: str) -> str:
    """Describe an accepted number, what it took the place of, who accepted it and why."""
    is_first = known.old is None
    old = _FIRST if is_first else f"instead of {numbers.number(known.old, unit)}"
    who = f", by {texts.person(known.by)}" if known.by else ""
    commit = f", commit {short_commit(known.commit)}" if known.commit else ""
    why = "" if is_first and known.why == _FIRST else f": {texts.reason(known.why)}"
    return f"{numbers.number(known.new, unit)}, {old}{who}{commit}{why}"


def noise(known: CaseHistory) -> str | None:
    """Describe how much runs of one night differ, and nights beyond that, where it is known."""
    both = {"runs": known.run_noise_percent, "nights": known.night_noise_percent}
    parts = [f"{name} {numbers.percent(of)}" for name, of in both.items() if of is not None]
    return f"noise: {', '.join(parts)}" if parts else None


def other_machine(known: OtherMachine) -> str:
    """Describe what is left out, and why."""
    facts = ", ".join(f"{name} {was}, now {now}" for name, (was, now) in known.facts.items())
    first, last = known.first[:10], known.last[:10]
    dates = f"on {first}" if first == last else f"from {first} to {last}"
    count = numbers.counted(known.sessions, "session")
    return f"{count} {dates} on another machine ({facts}): in no level, drift or noise"
