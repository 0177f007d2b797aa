"""A copy of the shipped suite in a folder of its own, for tests that run pytest on it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


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
