"""A copy of the shipped suite in a folder of its own, for tests that run pytest on it."""

from __future__ import annotations

import gc
import json
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

import pytest_dlperf
from pytest_dlperf.command.main import main
from pytest_dlperf.plugin.session import start

_THIRD_PARTY: Final = (
    "execnet", "filelock", "jinja2", "numpy", "pdb",
    "ruamel.yaml.mergevalue", "yaml",
)  # fmt: skip
"""What the package and sessions of pytest import when they need it."""

Command: TypeAlias = Callable[..., pytest.RunResult]


@dataclass(frozen=True, slots=True)
class Suite:
    """A copy of the shipped suite in a folder of its own."""

    pytester: pytest.Pytester
    in_process: bool = False
    """Whether sessions run within the test's own process, in two thirds of a fork's time."""

    @property
    def path(self) -> Path:
        return self.pytester.path

    def run(self, *arguments: str | Path) -> pytest.RunResult:
        """Run pytest on the suite; in a process of its own, unless the test is marked otherwise."""
        given = ("bench_tests", *map(str, arguments))
        if not self.in_process or any(one.startswith("-n") for one in given):
            return self.pytester.runpytest_subprocess(*given)
        with _nothing_frozen():
            return self.pytester.runpytest_inprocess(*given)

    def judge(
        self, *arguments: str | Path, cluster: str = "dlperf-v100"
    ) -> tuple[pytest.RunResult, dict[str, Any]]:
        """Run pytest on the suite and read the results file."""
        file = self.path / "results.json"
        result = self.run("--dlperf-cluster", cluster, "--dlperf-json", file, *arguments)
        return result, json.loads(file.read_text(encoding="utf-8"))

    def refused(self, *arguments: str | Path) -> str:
        """Return the usage error that a session with these arguments ends with at its start."""
        config = self.pytester.parseconfigure("bench_tests", *map(str, arguments))
        with pytest.raises(pytest.UsageError) as caught, _nothing_frozen():
            start(config).end_collection()
        return str(caught.value)

    def system_file(self, text: str, name: str = "own.yaml") -> Path:
        """Write one more system file."""
        file = self.path / "bench_tests" / "systems" / name
        file.write_text(text, encoding="utf-8")
        return file


@contextmanager
def _nothing_frozen() -> Iterator[None]:
    """Have the garbage of a session be collected: here, its process does not end with it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "freeze", lambda: None)
        yield


def import_package() -> None:
    """Import all that sessions import: pytester unloads after each what was not there before."""
    for name in _THIRD_PARTY:
        import_module(name)
    for module in pkgutil.walk_packages(pytest_dlperf.__path__, "pytest_dlperf."):
        if not module.name.startswith(("pytest_dlperf.suite.", "pytest_dlperf.trainers.")):
            import_module(module.name)


def ran_command(
    capture: pytest.CaptureFixture[str], arguments: Sequence[str | Path]
) -> pytest.RunResult:
    """Run ``pytest-dlperf`` in this process and folder; give its exit code and what it printed."""
    capture.readouterr()
    try:
        code = main([*map(str, arguments)])
    except SystemExit as ended:  # the parser's
        code = int(ended.code or 0)
    out, err = capture.readouterr()
    return pytest.RunResult(code, out.splitlines(), err.splitlines(), duration=0.0)
