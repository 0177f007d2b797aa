"""Whether the tests of a project ask for what its system files declare."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from pytest_dlperf.files.yamlfile import Problem
from pytest_dlperf.plugin.cases import own_metrics
from pytest_dlperf.reports.numbers import counted, named

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from pytest_dlperf.command.project import Project
    from pytest_dlperf.config.systems import System

_CASES: Final = re.compile(rb"\bdlperf_(?:scaled_)?case\b|\bpytest_dlperf\.suite\b")
_METRICS: Final = re.compile(rb"\bdlperf_metric\b|\btest_metric\b")
_MOST_FILES: Final = 5000
_SHOWN: Final = 4


def unasked(project: Project, systems: Mapping[str, System]) -> Iterator[Problem]:
    """List what no test asks for, as far as the text of the tests tells."""
    if not systems:
        return
    texts = [text for text in _sources(project.tests.folders) if _CASES.search(text)]
    folders = ", ".join(map(str, project.settings.systems_directories))
    if not texts:
        if not project.tests.come_with_package:
            yield _note(
                folders,
                f"no test in {', '.join(map(_shown, project.tests.folders))} asks for the cases of "
                f"{counted(len(systems), 'system')}; 'pytest {project.tests.named_by}' runs the "
                "tests that come with the package",
            )
        return
    judged = {name: own_metrics(system) for name, system in systems.items()}
    lost = {metric.name: None for metrics in judged.values() for metric in metrics}
    if lost and not any(_METRICS.search(text) for text in texts):
        owners = [name for name, metrics in judged.items() if metrics]
        yield _note(
            folders,
            f"no test asks for dlperf_metric, so {named(list(lost), _SHOWN)} of "
            f"{named(owners, _SHOWN)} is judged by nobody; 'from pytest_dlperf.suite.test_suite "
            "import test_metric' in a test file is a test that does",
        )


def _note(place: str, message: str) -> Problem:
    return Problem(place=place, message=message, is_fault=False)


def _shown(path: Path) -> str:
    return os.path.relpath(path)


def _sources(folders: Iterable[Path]) -> Iterator[bytes]:
    """Read the Python files that a session may collect tests from."""
    left = _MOST_FILES
    for start in folders:
        if start.is_file():
            yield _read(start)
        for folder, inner, names in os.walk(start):
            # Where pytest does not look either.
            inner[:] = [
                name
                for name in inner
                if not name.startswith((".", "_")) and name not in ("node_modules", "venv")
            ]
            for name in names:
                if name.endswith(".py") and left:
                    left -= 1
                    yield _read(start.joinpath(folder, name))


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""
