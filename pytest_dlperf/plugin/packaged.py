"""The tests that come with the package, which own tests of a suite's folder add to.

A system file stands in for the module of these tests, with its own cases. So an id says where its
case is declared, and names the test again: ``bench_tests/systems/own.yaml::test_throughput[...]``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

from pytest_dlperf.config.options import OPTIONS
from pytest_dlperf.config.systems import system_files
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.plugin.cases import OWN_TESTS, has_no_metric_to_judge
from pytest_dlperf.plugin.named import (
    is_in_named_suite,
    named_paths,
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
    folder: Path | None
    """The folder that was named, whose tests may import ours; ``None`` if the file was named."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Collect the tests, without those that no metric of the system needs."""
        return [each for each in super().collect() if not has_no_metric_to_judge(each)]

    def istestfunction(self, obj: object, name: str) -> bool:
        """Collect our tests whatever ``python_functions`` says, but not what the folder imports."""
        return callable(obj) and name.startswith("test_") and not self._is_imported(obj)

    def _is_imported(self, test: object) -> bool:
        folder = self.folder
        return folder is not None and any(
            function is test and path.is_relative_to(folder)
            for path, function in self.config.stash.get(OWN_TESTS, ())
        )

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
    directories = systems_directories(config)
    more = config.hook.pytest_dlperf_system_files(config=config)
    files = [
        *_like_system_files(system_files(directories)),
        *(file for files in more for file in files),
    ]
    return [_node(file, file, folder, folder.path) for file in files]


def named_file(path: Path, parent: pytest.Collector) -> SystemFile | None:
    """Return a system file that the user named; ``None`` for any other file."""
    if is_in_named_suite(path, parent.session):
        return None  # the folder has it
    try:
        files = system_files(systems_directories(parent.config))
    except UsageError:
        return None
    real = os.path.realpath(path)
    for file in files:
        if os.path.realpath(file) == real:
            return _node(path, file, parent, None)
    return None


def _node(
    path: Path, system_file: Path, parent: pytest.Collector, folder: Path | None
) -> SystemFile:
    # Words of -k are looked for in names: that of the file is none of them.
    node: SystemFile = SystemFile.from_parent(parent, path=path, name="systems")
    node.system_file = system_file
    node.folder = folder
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


# ------------------------------------------------------------------- sessions without tests


def runs_packaged_tests(config: pytest.Config) -> bool:
    """Whether a session with these arguments runs the tests that come with the package."""
    wanted = {
        folder
        for directory in systems_directories(config)
        for folder in suite_folders(directory, config)
    }
    named = config.getoption(OPTIONS["systems_directories"].key) is not None
    return named or any(os.path.realpath(path) in wanted for path in named_paths(config))


def why_nothing_ran(config: pytest.Config) -> str | None:
    """Say how the tests that ship are run, or that there is no system file for them."""
    try:
        directories = systems_directories(config)
        has_files = bool(_like_system_files(system_files(directories)))
        if has_files is runs_packaged_tests(config):
            return None
    except UsageError as error:
        return f"dlperf: {error}"
    if has_files:
        if config.args_source is pytest.Config.ArgsSource.ARGS:
            return None  # another test was named
        *_, folder = suite_folders(directories[0], config)
        named = _shown(Path(folder), config)
        return f"dlperf: 'pytest {named}' runs the tests that come with the package"
    shown = ", ".join(_shown(directory, config) for directory in directories)
    return f"dlperf: there is no system file (*.yaml) in {shown}; 'pytest-dlperf init' starts one"


def _shown(path: Path, config: pytest.Config) -> str:
    return os.path.relpath(path, config.invocation_params.dir)
