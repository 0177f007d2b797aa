"""What steps take, as all stand-ins declare it, and the throughput that follows."""

from __future__ import annotations

SPEED = 400.0
"""Samples per second of one device, however many train together."""
FIRST_STEP = 5.0
"""How many times as long the first step takes as others do."""

_LATE = 170
_WIGGLE = (-0.01, -0.005, 0.0, 0.005, 0.01)


def step_s(step: int, batch_per_device: int) -> float:
    """Seconds that a step takes, counted from 0.

    The batch is the one that the trainer made out of its flags: a wrong one gives a wrong speed.
    Steps that no window reaches take long, so that one that is too late gives a wrong speed too.
    """
    usual = batch_per_device / SPEED
    if step == 0:
        return FIRST_STEP * usual
    return (3 if step > _LATE else 1) * usual * (1 + _WIGGLE[step % len(_WIGGLE)])
