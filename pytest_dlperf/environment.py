"""The facts of this machine and its software that a result should carry."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from typing import Any, Final

_PACKAGES: Final = ("pytest-dlperf", "pytest", "torch", "tensorflow", "paddlepaddle")


def describe_environment() -> dict[str, Any]:
    """Host, processors, load (runnable processes over 1, 5 and 15 minutes) and versions.

    Nothing is imported for a version: the installed packages' own records tell it.
    """
    return {
        "host": platform.node(),
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "load_average": load_average(),
        "python": platform.python_version(),
        "packages": {
            name: version for name in _PACKAGES if (version := _version(name)) is not None
        },
    }


def load_average() -> list[float] | None:
    """The machine's load over 1, 5 and 15 minutes, where the machine says."""
    try:
        return [round(load, 2) for load in os.getloadavg()]
    except (AttributeError, OSError):
        return None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
