"""In the place of a training script for PaddlePaddle/PLSC, whose batch is 128 for each device."""

from __future__ import annotations

import itertools
import sys
from datetime import datetime, timedelta

from seed_trainers.flags import Flags, expect
from seed_trainers.pace import step_s
from seed_trainers.paddle_place import PaddlePlace

_BATCH = 128
_LOG_PERIOD = 10
_START = datetime(2020, 11, 20, 8, 30, 55, 440000)  # noqa: DTZ001 - the log tells no zone


def main() -> None:
    """Train for ever."""
    flags = Flags()
    flags.add_argument("--loss_type", choices=["arcface", "dist_arcface", "softmax"])
    given = flags.parse(sys.argv[1:])
    is_alone = given.loss_type == "arcface"
    place = PaddlePlace.alone() if is_alone else PaddlePlace.told()
    expect("whether it trains alone", place.world_size == 1, is_alone)
    _log(157, f"\ttrain_batch_size: {_BATCH}")
    _log(159, f"trainer_id: {place.rank}, num_trainers: {place.world_size}")
    _log(349, f"Set loss_type to {given.loss_type}.")
    meeting = place.met(f"fp32-b{_BATCH}-{place.topology}")
    seconds = samples = 0.0
    now = _START
    for batch in itertools.count():
        meeting.step()
        seconds += step_s(batch, _BATCH)
        now += timedelta(seconds=step_s(batch, _BATCH))
        samples += _BATCH * place.world_size
        if batch % _LOG_PERIOD == 0:
            speed = samples / seconds
            said = f"Pass:0 batch:{batch} lr:0.10000000 loss:44.003868 qps:{speed:.2f}"
            _log(1027, said, now)
            seconds = samples = 0.0


def _log(line: int, text: str, now: datetime = _START) -> None:
    stamp = f"{now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03}"
    sys.stderr.write(f"INFO {stamp} entry.py:{line}] {text}\n")
