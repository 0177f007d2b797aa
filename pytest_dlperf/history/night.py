"""What one session measured of a case, as the database tells it."""

from __future__ import annotations

from typing import Final, NamedTuple

from pytest_dlperf.history.rows import LOST
from pytest_dlperf.model.judgement import Verdict

_VERDICTS: Final = {verdict.value: verdict for verdict in Verdict}


class Night(NamedTuple):
    """What one session measured of a case: a tuple, as there are many of them.

    ``began`` is ``started`` in seconds of the Unix epoch. ``median``, ``slowest`` and ``fastest``
    run are in the unit per second, ``counted`` is how many runs count, ``broken`` how many others
    there were. ``baseline`` is the accepted throughput that it was held against, ``baseline_at``
    and ``baseline_reason`` what is known of that. ``verdict`` is a word. ``fingerprint`` is the
    digest of what it was taken on; ``is_from_logs`` says that nobody can have looked.
    """

    measurement_id: int
    started: str
    began: float
    median: float
    slowest: float
    fastest: float
    counted: int
    broken: int
    speedup: float | None
    baseline: float | None
    baseline_at: str | None
    baseline_reason: str | None
    verdict_word: str | None
    fingerprint: str | None
    is_from_logs: int

    @property
    def verdict(self) -> Verdict | None:
        """What the gate said; ``None`` where it was not asked, or a test was lost."""
        return _VERDICTS.get(self.verdict_word or "")

    @property
    def is_lost(self) -> bool:
        """Whether a test of the case was lost with its worker."""
        return self.verdict_word == LOST
