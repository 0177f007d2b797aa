"""Why a case cannot be measured, however it would be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_dlperf.model.errors import BrokenError, CannotMeasureError
from pytest_dlperf.model.measurement import Estimator

if TYPE_CHECKING:
    from pytest_dlperf.config.systems import System


class HostUnusableError(BrokenError):
    """The case could be measured here if something were not broken; the message says what."""


def check_estimator(system: System, estimator: Estimator) -> None:
    """Refuse what cannot be estimated before anything is launched or read.

    Raises:
        CannotMeasureError: The system's logs have no published definition of throughput.
    """
    if estimator is Estimator.PUBLISHED and not system.log_format.has_published:
        raise CannotMeasureError(
            f"the log format {system.log_format.name} of {system.id} has no published "
            "definition of throughput; compare with a cluster whose cluster.yaml says "
            "'estimator: steady'"
        )
