"""Where a result comes from: machine, software, and the person or CI that measured it."""

from __future__ import annotations

import getpass
import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from pytest_dlperf.files.checkouts import git_or_nothing
from pytest_dlperf.files.ci import find_engine, is_scheduled

MAX_NAME_LENGTH: Final = 200
"""Characters of a person's name that are kept."""

_PACKAGES: Final = ("pytest-dlperf", "pytest", "torch", "tensorflow", "paddlepaddle")


def describe_environment() -> dict[str, Any]:
    """Describe host, processors and, without importing the packages, their versions."""
    versions = {}
    for package in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return {
        "host": platform.node(),
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "python": platform.python_version(),
        "packages": versions,
    }


def describe_actor(folder: Path, environment: Mapping[str, str] = os.environ) -> str | None:
    """Name the person behind this session, as the reason why a folder's baselines change.

    In a CI that is the person who started the job, or the CI itself if its schedule did. Elsewhere
    it is the author of a commit made there (``Ana Diaz <ana@example.org>``), else the login
    (``ana@host``). None of these is a proof: Git believes any name too.
    """
    engine = find_engine(environment)
    if engine is not None:
        if is_scheduled(engine, environment):
            return f"{engine.name}, scheduled"
        named = filter(None, (_name(environment.get(name, "")) for name in engine.actors))
        if actor := next(named, None):
            return f"{actor} ({engine.name})"
    # Else Git would make an address up from the names of account and host.
    identity = git_or_nothing(folder, "-c", "user.useConfigOnly=true", "var", "GIT_AUTHOR_IDENT")
    name, _, rest = identity.rpartition(" <")
    if name:
        return f"{_name(name)} <{_name(rest.partition('>')[0])}>"
    if engine is not None:
        return engine.name
    with suppress(OSError, KeyError, ImportError):  # a number without a name, as in containers
        return _name(f"{getpass.getuser()}@{platform.node()}")
    return None


def _name(text: str) -> str:
    """Make a name one line of a reasonable length."""
    return " ".join(text.split())[:MAX_NAME_LENGTH].rstrip()
