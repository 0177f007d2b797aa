"""What the user asks of pytest: settings, and the files and folders that are named.

Trainings take hours, so they are collected only where their folder or a system file is named.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from pytest_dlperf.config.options import OPTIONS, Settings, read_settings
from pytest_dlperf.model.errors import UsageError

_SETTINGS: Final = pytest.StashKey[Settings]()
_NAMED: Final = pytest.StashKey[frozenset[Path]]()
WITHOUT_CASES: Final = pytest.StashKey[set[Path]]()
"""Files with tests that ask for cases; those of them that are given none are left out."""


def settings_of(config: pytest.Config) -> Settings:
    """Return what the user asked for, read at the first call."""
    if _SETTINGS not in config.stash:
        config.stash[_SETTINGS] = read_settings(config)
    return config.stash[_SETTINGS]


def may_have_suite(config: pytest.Config) -> bool:
    """Whether folders or plugins may give system files."""
    folders = settings_of(config).systems_directories
    adds_files = config.hook.pytest_dlperf_system_files.get_hookimpls()
    return any(folder.is_dir() for folder in folders) or bool(adds_files)


def systems_directories(config: pytest.Config) -> tuple[Path, ...]:
    """Return the folders of system files, even if other settings are wrong."""
    declared = OPTIONS["systems_directories"]
    found: tuple[Path, ...] = declared.value(declared.texts(config))
    return found


def suite_folders(config: pytest.Config) -> list[str]:
    """List the folders that stand for the system files when they are named."""
    try:
        directories = systems_directories(config)
    except UsageError:
        return []  # reported when a test asks for a case
    # A whole project is named for many reasons.
    above = (one.parent for one in directories if one.parent != config.rootpath)
    return [os.path.realpath(folder) for folder in (*above, *directories)]


def stands_for_suite(folder: Path, config: pytest.Config) -> bool:
    """Whether a folder named to pytest means the system files of the project."""
    is_given = config.getoption(OPTIONS["systems_directories"].key) is not None
    return is_given or os.path.realpath(folder) in suite_folders(config)


def named_paths(config: pytest.Config) -> frozenset[Path]:
    """Return the files and folders that were named; pytest's own set lacks those within others."""
    if _NAMED not in config.stash:
        here = config.invocation_params.dir
        paths = (here / str(argument).partition("::")[0] for argument in config.args)
        config.stash[_NAMED] = frozenset(Path(os.path.normpath(path)) for path in paths)
    return config.stash[_NAMED]


def is_named(path: Path, session: pytest.Session) -> bool:
    """Whether a file or folder was named itself, or as a package."""
    return session.isinitpath(path) or path in named_paths(session.config)


def is_in_named_folder(file: Path, session: pytest.Session) -> bool:
    """Whether a file of tests of cases was named, or a folder that it lies in.

    A folder above the suite's, such as that of the project, names its other tests.
    """
    config = session.config
    below = (config.rootpath, *map(Path, suite_folders(config)))
    return any(
        is_named(path, session)
        and (stands_for_suite(path, config) or not any(one.is_relative_to(path) for one in below))
        for path in (file, *file.parents)
    )


def selects_tests(config: pytest.Config) -> bool:
    """Whether the user named single tests, or those that failed: no other is missing then."""
    by_id = any("::" in str(argument) for argument in config.args)
    return by_id or bool(config.getoption("lf", default=False))
