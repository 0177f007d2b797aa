"""Trainers and probes that ship with the package, and what prints the steps of other people's.

``steps`` holds the last of these. Its names are here as well, made when they are asked for: the
package is imported for other things too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_dlperf.trainers.steps import AccelerateSteps, DeepSpeedSteps, StepLog

    HuggingFaceSteps: Any
    LightningSteps: Any

__all__ = ["AccelerateSteps", "DeepSpeedSteps", "HuggingFaceSteps", "LightningSteps", "StepLog"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pytest_dlperf.trainers import steps

    return getattr(steps, name)
