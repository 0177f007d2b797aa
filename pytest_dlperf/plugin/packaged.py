"""The tests that come with the package, beside a folder's own ones.

A system file stands in for the module of these tests, with its own cases. So an id says where its
case is declared, and names the test again: ``bench_tests/systems/own.yaml::test_throughput[...]``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import import_module
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

from pytest_dlperf.config.systems import system_files
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.plugin.named import (
    named_paths,
    stands_for_suite,
    suite_folders,
    systems_directories,
)

_COLLECTED: Final = pytest.StashKey[set[str]]()
"""The system files that are collected: folders that were named may share some."""


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
    more = chain(*config.hook.pytest_dlperf_system_files(config=config))
    files = [*system_files(systems_directories(config)), *more]
    return [node for file in files if (node := _node(file, file, folder))]


def named_file(path: Path, parent: pytest.Collector) -> SystemFile | None:
    """Return a system file that the user named; ``None`` for any other file."""
    try:
        files = system_files(systems_directories(parent.config))
    except UsageError:
        return None
    real = os.path.realpath(path)
    same = (file for file in files if os.path.realpath(file) == real)
    return next((_node(path, file, parent) for file in same), None)


def _node(path: Path, system_file: Path, parent: pytest.Collector) -> SystemFile | None:
    collected, real = parent.config.stash.setdefault(_COLLECTED, set()), os.path.realpath(path)
    if real in collected:
        return None
    collected.add(real)
    # Words of -k are looked for in names: that of the file is none of them.
    node: SystemFile = SystemFile.from_parent(parent, path=path, name="systems")
    node.system_file = system_file
    return node


def why_nothing_ran(config: pytest.Config) -> Iterator[str]:
    """Say how the tests that ship are run, or that there is no system file for them."""
    try:
        directories = systems_directories(config)
    except UsageError as error:
        yield f"dlperf: {error}"
        return
    files, here = system_files(directories), config.invocation_params.dir
    if any(stands_for_suite(path, config) for path in named_paths(config)):
        if not files:
            shown = ", ".join(os.path.relpath(directory, here) for directory in directories)
            missing = f"dlperf: there is no system file (*.yaml) in {shown}"
            yield f"{missing}; 'pytest-dlperf init' starts one"
    # Else another test was named.
    elif files and config.args_source is not pytest.Config.ArgsSource.ARGS:
        shown = os.path.relpath(suite_folders(config)[0], os.path.realpath(here))
        yield f"dlperf: 'pytest {shown}' runs the tests that come with the package"
