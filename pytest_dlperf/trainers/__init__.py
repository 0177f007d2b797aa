"""Trainers and probes that ship with the package, and what prints the steps of other people's.

``steps`` holds the last of these. Its names are here as well; those of callbacks are made when they
are asked for.
"""

from pytest_dlperf.trainers.steps import AccelerateSteps, DeepSpeedSteps, StepLog, __getattr__  # noqa: F401 - makes the others

__all__ = ["AccelerateSteps", "DeepSpeedSteps", "HuggingFaceSteps", "LightningSteps", "StepLog"]
