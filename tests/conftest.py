"""What the tests that run pytest itself share: a copy of the shipped suite to play with."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class Suite:
    """A copy of the shipped suite in a folder of its own."""

    pytester: pytest.Pytester

    @property
    def path(self) -> Path:
        return self.pytester.path

    def run(self, *arguments: str | Path) -> pytest.RunResult:
        """Run pytest on the suite, in a process of its own."""
        return self.pytester.runpytest_subprocess("bench_tests", *map(str, arguments))

    def judge(
        self, *arguments: str | Path, cluster: str = "dlperf-v100"
    ) -> tuple[pytest.RunResult, dict[str, Any]]:
        """Run pytest on the suite and read the results file."""
        file = self.path / "results.json"
        result = self.run("--dlperf-cluster", cluster, "--dlperf-json", file, *arguments)
        return result, json.loads(file.read_text(encoding="utf-8"))

    def system_file(self, text: str, name: str = "own.yaml") -> Path:
        """Write one more system file."""
        file = self.path / "bench_tests" / "systems" / name
        file.write_text(text, encoding="utf-8")
        return file


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Suite:
    """A copy of ``bench_tests`` and of the published baselines."""
    for name in ("DLPERF_CLUSTER", "DLPERF_STRICT", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    shutil.copytree(
        ROOT / "bench_tests",
        pytester.path / "bench_tests",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    shutil.copytree(ROOT / "baselines" / "dlperf-v100", pytester.path / "baselines/dlperf-v100")
    # Strict as the project itself is: a warning of ours would fail here.
    pytester.makeini("[pytest]\naddopts = --strict-markers\nfilterwarnings = error\n")
    return Suite(pytester)


@pytest.fixture(params=["alone", "two workers"])
def workers(request: pytest.FixtureRequest) -> list[str]:
    """The arguments for running in one process and with xdist: all must come out the same."""
    return [] if request.param == "alone" else ["-n", "2"]
