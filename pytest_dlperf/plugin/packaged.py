"""The tests that come with the package, beside a folder's own ones.

A system file stands in for the module of these tests, with its own cases. So an id says where its
case is declared, and names the test again: ``bench_tests/systems/own.yaml::test_throughput[...]``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from importlib import import_module
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

from pytest_dlperf.config.systems import system_files
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.plugin.named import (
    is_in_named_suite,
    named_paths,
    stands_for_suite,
    suite_folders,
    systems_directories,
)

_SYSTEM_FILE_KEY: Final = re.compile(rb"^(?:framework|extends|cases|launch) *:", re.MULTILINE)
_HEAD_BYTES: Final = 1 << 16
_SUITE_FOLDER: Final = pytest.StashKey[Path]()


class SystemFile(pytest.Module):
    """A system file, as the module of the tests that come with the package."""

    system_file: Path
    """The file, as a session reads it."""

    def istestfunction(self, obj: object, name: str) -> bool:
        """Collect our tests whatever ``python_functions`` says."""
        return callable(obj) and name.startswith("test_")

    def _getobj(self) -> ModuleType:
        # By its name: what pytest collects knows the plugin, and not the other way round.
        return import_module("pytest_dlperf.suite.test_suite")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path.name}>"


def files_of_folder(folder: pytest.Directory) -> list[SystemFile]:
    """Return the system files of the suite that a folder stands for."""
    config = folder.config
    if is_in_named_suite(folder.path, folder.session):
        return []
    if config.stash.setdefault(_SUITE_FOLDER, folder.path) != folder.path:
        return []  # of several folders that were named, the first one has them
    more = chain(*config.hook.pytest_dlperf_system_files(config=config))
    files = [*_like_system_files(system_files(systems_directories(config))), *more]
    return [_node(file, file, folder) for file in files]


def named_file(path: Path, parent: pytest.Collector) -> SystemFile | None:
    """Return a system file that the user named; ``None`` for any other file."""
    if is_in_named_suite(path, parent.session):
        return None  # the folder has it
    try:
        files = system_files(systems_directories(parent.config))
    except UsageError:
        return None
    real = os.path.realpath(path)
    same = (file for file in files if os.path.realpath(file) == real)
    return next((_node(path, file, parent) for file in same), None)


def _node(path: Path, system_file: Path, parent: pytest.Collector) -> SystemFile:
    # Words of -k are looked for in names: that of the file is none of them.
    node: SystemFile = SystemFile.from_parent(parent, path=path, name="systems")
    node.system_file = system_file
    return node


def _like_system_files(files: Iterable[Path]) -> list[Path]:
    """Keep files that look like system files: others may have a folder of this name."""
    return [file for file in files if _SYSTEM_FILE_KEY.search(_begin(file))]


def _begin(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.read(_HEAD_BYTES)
    except OSError:
        return b"cases:"  # the session says what is wrong with it


def why_nothing_ran(config: pytest.Config) -> str | None:
    """Say how the tests that ship are run, or that there is no system file for them."""
    try:
        directories = systems_directories(config)
    except UsageError as error:
        return f"dlperf: {error}"
    has_files = bool(_like_system_files(system_files(directories)))
    here = config.invocation_params.dir
    if any(stands_for_suite(path, config) for path in named_paths(config)):
        shown = ", ".join(os.path.relpath(directory, here) for directory in directories)
        missing = f"dlperf: there is no system file (*.yaml) in {shown}; 'pytest-dlperf init'"
        return None if has_files else f"{missing} starts one"
    if not has_files or config.args_source is pytest.Config.ArgsSource.ARGS:
        return None  # another test was named
    shown = os.path.relpath(suite_folders(config)[0], os.path.realpath(here))
    return f"dlperf: 'pytest {shown}' runs the tests that come with the package"
