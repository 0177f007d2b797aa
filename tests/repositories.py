"""A team's own repository: a training script, and a system file that extends one that ships."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

SCRIPTS: Final = Path(__file__).parent / "own_repository"

SYSTEM_FILE: Final = """\
extends: {system}
model: tiny
unit: {unit}
window: {{warmup_steps: 2, measured_steps: 8}}
repeats: 1
tolerance_percent: 50
metrics: {{peak_memory: {{tolerance_percent: 15}}}}
launch:
  devices: cpu
  arguments: {arguments}
  environment: {environment}
  time_limit_s: 180
cases:
  - precision: fp32
    batch_per_device: 4
    sequence_length: 32
    topologies: [1n1g, 1n2g, 2n1g]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A script of ``tests/own_repository``, and what its system file says of it.

    It sleeps ``SECONDS_PER_SAMPLE`` for each of the four samples that a device takes in a step,
    which is long beside what it computes: a busy machine changes little. ``work`` is that of a
    sample, in the unit.
    """

    system: str
    arguments: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    unit: str = "samples/s"
    work: int = 1


class OwnRepository:
    """The folder of a training, with its script, its system file, and nothing else."""

    def __init__(self, pytester: pytest.Pytester, training: Training) -> None:
        self._pytester = pytester
        folder = pytester.path / "bench_tests" / "systems"
        folder.mkdir(parents=True)
        environment = {
            "OMP_NUM_THREADS": "1",
            "SECONDS_PER_SAMPLE": "0.02",
            **dict(training.environment),
        }
        # JSON is YAML.
        text = SYSTEM_FILE.format(
            system=training.system,
            unit=training.unit,
            arguments=json.dumps(["train.py", *training.arguments]),
            environment=json.dumps(environment),
        )
        (folder / "tiny.yaml").write_text(text, encoding="utf-8")
        shutil.copyfile(SCRIPTS / f"train_{training.system}.py", pytester.path / "train.py")

    def judge(self, *arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
        """Run pytest; its exit code, and the metrics of each topology."""
        file = self._pytester.path / "results.json"
        result = self._pytester.runpytest_subprocess(
            "bench_tests", "--dlperf-json", file, *arguments
        )
        cases = json.loads(file.read_text(encoding="utf-8"))["cases"]
        return int(result.ret), {case["topology"]: case["metrics"] for case in cases}
