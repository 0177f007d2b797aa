"""How many alarms a whole night gives if nothing has changed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_dlperf.model.judgement import Judgement


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedAlarms:
    """Alarms to expect in a night in which nothing has changed.

    ``number`` is the sum of the probabilities of ``judged`` judgements; of ``unknown`` further
    ones nobody can say, for their baselines have too few runs.
    """

    number: float
    judged: int
    unknown: int


def expected_false_alarms(judgements: Iterable[Judgement]) -> ExpectedAlarms:
    """Add up the false alarms that judgements risk; those without comparison risk none."""
    compared = [judgement for judgement in judgements if judgement.rule is not None]
    known = [j.false_alarm for j in compared if j.false_alarm is not None]
    return ExpectedAlarms(
        number=math.fsum(known), judged=len(known), unknown=len(compared) - len(known)
    )
