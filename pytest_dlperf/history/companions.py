"""Which of the probes that ran on a red case's hosts explain its loss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from pytest_dlperf.model.judgement import Companion, Judgement, Verdict

_SHARE: Final = 0.5
"""Of how much slower the case is, and the worst probe, what a probe has to be to be blamed; on a
logarithmic scale: four times as slow is half of sixteen times."""
_ALL_PERCENT: Final = 100
_BROKEN: Final = (Verdict.FAILED, Verdict.HUNG)


def weighed(judgement: Judgement, companions: Sequence[Companion]) -> tuple[Companion, ...]:
    """Blame the probe whose loss explains that of a judgement; maybe none.

    No case loses more than the slowest thing that it waits for, so a probe that has lost far less
    explains nothing. Of those that remain the first is blamed: they are declared in the order in
    which one depends on the other, as a network's does on processors.
    """
    slower = {
        one.case_id: math.inf
        if one.verdict in _BROKEN
        else _log_ratio(one.loss_percent, one.difference_percent)
        for one in companions
        if one.verdict in (Verdict.REGRESSED, *_BROKEN)
    }
    decision = judgement.decision
    own = _log_ratio(judgement.loss_percent, decision.difference_percent if decision else None)
    least = _SHARE * max([own, *slower.values()])
    blamed = next((name for name, ratio in slower.items() if ratio >= least), None)
    return tuple(replace(one, is_blamed=one.case_id == blamed) for one in companions)


def _log_ratio(loss_percent: float | None, difference_percent: float | None) -> float:
    """Return the logarithm of how many times slower it is, whether the number is a rate or a time.

    A rate has fallen where it is worse, a time has risen.
    """
    if loss_percent is None or difference_percent is None or loss_percent <= 0:
        return 0.0
    if difference_percent > 0:
        return math.log1p(loss_percent / 100)
    return -math.log1p(-loss_percent / 100) if loss_percent < _ALL_PERCENT else math.inf
