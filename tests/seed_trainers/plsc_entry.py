"""In the place of ``Entry`` of PaddlePaddle/PLSC 1.x, which a user's script makes and sets up."""

from __future__ import annotations

import itertools
import sys
from datetime import datetime, timedelta
from typing import Any

from seed_trainers.flags import expect
from seed_trainers.pace import step_s
from seed_trainers.paddle_place import PaddlePlace

_BATCH = 128
_CLASSES = 85742
_START = datetime(2020, 11, 20, 8, 30, 55, 440000)  # noqa: DTZ001 - the log tells no zone


class Entry:
    """A training that goes on for ever; it says what it is told, as the original does."""

    def __init__(self) -> None:
        """Begin with PLSC's own settings."""
        self._place = PaddlePlace.told_or_alone()
        self._log_period = 200
        self._loss_type = "dist_arcface"
        self._tests = True
        self._model_save_dir = "output"
        self.num_classes = _CLASSES
        self.train_reader: Any = None
        _log(157, f"\ttrain_batch_size: {_BATCH}")
        _log(157, f"\tloss_type: {self._loss_type}")
        place = self._place
        _log(159, f"trainer_id: {place.rank}, num_trainers: {place.world_size}")
        _log(161, f"default log period: {self._log_period}")

    def set_class_num(self, num: int) -> None:
        """Set into how many classes the loss sorts."""
        self.num_classes = num
        _log(304, f"Set num_classes to {num}.")

    def set_loss_type(self, loss_type: str) -> None:
        """Set the loss."""
        expect("the loss type", loss_type.removeprefix("dist_") in {"arcface", "softmax"}, True)
        self._loss_type = loss_type
        _log(349, f"Set loss_type to {loss_type}.")

    def set_log_period(self, period: int) -> None:
        """Set how many batches a line is for."""
        self._log_period = period
        _log(203, f"Set log period to {period}.")

    def set_with_test(self, with_test: bool) -> None:
        """Set whether an epoch ends with a test."""
        self._tests = with_test
        _log(359, f"Set with_test to {with_test}.")

    def set_model_save_dir(self, directory: str) -> None:
        """Set where an epoch ends with a saved model; nowhere if it is empty."""
        self._model_save_dir = directory
        _log(273, f"Set model_save_dir to {directory}.")

    def train(self) -> None:
        """Train for ever."""
        place = self._place
        several = self._loss_type.startswith("dist_")
        expect("whether several are needed and there", several, place.world_size > 1)
        expect("what reads the images", callable(self.train_reader), True)
        expect("whether data and room are needed", (self._tests, self._model_save_dir), (False, ""))
        meeting = place.met(f"fp32-b{_BATCH}-{place.topology}")
        seconds = samples = 0.0
        now = _START
        for batch in itertools.count():
            meeting.step()
            seconds += step_s(batch, _BATCH)
            now += timedelta(seconds=step_s(batch, _BATCH))
            samples += _BATCH * place.world_size
            if batch % self._log_period == 0:
                speed = samples / seconds
                said = f"Pass:0 batch:{batch} lr:0.10000000 loss:44.003868 qps:{speed:.2f}"
                _log(1027, said, now)
                seconds = samples = 0.0


def _log(line: int, text: str, now: datetime = _START) -> None:
    stamp = f"{now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03}"
    sys.stderr.write(f"INFO {stamp} entry.py:{line}] {text}\n")
