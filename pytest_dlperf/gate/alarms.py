"""How many false alarms a night's judgements let expect."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_dlperf.model.judgement import Judgement


class ExpectedAlarms(Struct, frozen=True, kw_only=True):
    """False alarms to expect in a night."""

    number: float
    """Sum of the judgements' probabilities."""
    judged: int
    unknown: int
    """Further judgements without a probability: their baselines have too few runs."""


def expected_false_alarms(judgements: Iterable[Judgement]) -> ExpectedAlarms:
    """Add up the probabilities of false alarms; without a comparison there is none."""
    compared = [judgement for judgement in judgements if judgement.decision is not None]
    known = [j.false_alarm for j in compared if j.false_alarm is not None]
    return ExpectedAlarms(
        number=math.fsum(known), judged=len(known), unknown=len(compared) - len(known)
    )
