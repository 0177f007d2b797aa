"""The facts of this machine and its software that a result should carry."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_PACKAGES: Final = ("pytest-dlperf", "pytest", "torch", "tensorflow", "paddlepaddle")


def describe_environment() -> dict[str, Any]:
    """Describe host, processors, load and, without importing the packages, their versions."""
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
    """Give the machine's load over 1, 5 and 15 minutes, where the machine says."""
    try:
        return [round(load, 2) for load in os.getloadavg()]
    except (AttributeError, OSError):
        return None


def describe_commit(folder: Path) -> str | None:
    """Name the commit of a folder's files, with ``+changes`` where some differ."""
    head = git(folder, "rev-parse", "--short=12", "HEAD")
    if not head:
        return None
    # Files that nobody has added may be logs and baselines of this very session.
    changed = git(folder, "status", "--porcelain", "--untracked-files=no")
    return f"{head}+changes" if changed else head


def describe_ci_run(environment: Mapping[str, str] = os.environ) -> str | None:
    """Give the address of the CI's run that this process is part of, where a CI tells it."""
    if environment.get("GITHUB_ACTIONS") == "true":
        parts = ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID")
        server, repository, run = (environment.get(name) for name in parts)
        return (
            f"{server}/{repository}/actions/runs/{run}" if server and repository and run else None
        )
    # GitLab's, Jenkins' and Buildkite's.
    for name in ("CI_JOB_URL", "BUILD_URL", "BUILDKITE_BUILD_URL"):
        if environment.get(name):
            return environment[name]
    return None


def git(folder: Path, *arguments: str) -> str:
    """Ask Git something about a folder; nothing where it has no answer."""
    try:
        done = subprocess.run(  # noqa: S603 - git itself, with our own words
            ["git", "-C", str(folder), *arguments],  # noqa: S607 - the user's git
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
