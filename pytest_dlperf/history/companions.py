"""Which of the probes that ran on a red case's hosts explain its loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from pytest_dlperf.model.judgement import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_dlperf.model.judgement import Companion, Judgement

_SHARE: Final = 0.5
"""Of the case's loss, and of the worst probe's, what a probe has to have lost to be blamed."""
_BROKEN: Final = (Verdict.FAILED, Verdict.HUNG)


def weighed(judgement: Judgement, companions: Sequence[Companion]) -> tuple[Companion, ...]:
    """Blame the probe whose loss explains that of a judgement; maybe none.

    No case loses more than the slowest thing that it waits for, so a probe that has lost far less
    explains nothing. Of those that remain the first is blamed: they are declared in the order in
    which one depends on the other, as a network's does on processors.
    """
    lost = {one.case_id: _lost(one) for one in companions if _is_worse(one)}
    own = _fraction(judgement.loss_percent, judgement.difference_percent)
    least = _SHARE * max([own, *lost.values()])
    blamed = next((name for name, loss in lost.items() if loss >= least), None)
    return tuple(replace(one, is_blamed=one.case_id == blamed) for one in companions)


def _is_worse(companion: Companion) -> bool:
    return companion.verdict is Verdict.REGRESSED or companion.verdict in _BROKEN


def _lost(companion: Companion) -> float:
    if companion.verdict in _BROKEN:
        return 1.0
    return _fraction(companion.loss_percent, companion.difference_percent)


def _fraction(loss_percent: float | None, difference_percent: float | None) -> float:
    """Return the part of the speed that is lost, also where the number is a time."""
    if loss_percent is None or difference_percent is None or loss_percent <= 0:
        return 0.0
    return loss_percent / (100 if difference_percent < 0 else 100 + loss_percent)
