"""A repository of one's own: a script for a trainer of today, and a file that extends a system."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

SCRIPTS: Final = Path(__file__).parent / "own_repository"

# The script sleeps for each sample, long beside what it computes: a busy machine changes little.
SYSTEM_FILE: Final = """\
extends: {system}
model: tiny
window: {{warmup_steps: 2, measured_steps: 8}}
repeats: 1
tolerance_percent: 50
metrics: {{peak_memory: {{tolerance_percent: 15}}}}
launch:
  devices: cpu
  arguments: [train.py, {arguments}]
  environment: {{OMP_NUM_THREADS: 1, SECONDS_PER_SAMPLE: 0.02, {environment}}}
  time_limit_s: 180
cases:
  - precision: fp32
    batch_per_device: 4
    sequence_length: 32
    topologies: [1n1g, 1n2g, 2n1g]
"""
SAMPLES_PER_STEP: Final = 4
LENGTH: Final = 32

OWN_ARGUMENTS: Final = ("--steps={steps}", "--batch={batch_per_device}")
TRAINER_ARGUMENTS: Final = (
    "--max_steps={steps}",
    "--per_device_train_batch_size={batch_per_device}",
    "--learning_rate=0.01",
    "--output_dir={scratch_directory}",
    "--save_strategy=no",
    "--report_to=none",
    "--use_cpu",
)


class OwnRepository:
    """A folder with a script and a system file, and nothing else."""

    def __init__(
        self,
        pytester: pytest.Pytester,
        system: str,
        arguments: Sequence[str],
        environment: str = "",
    ) -> None:
        self._pytester = pytester
        self.path = pytester.path
        folder = self.path / "bench_tests" / "systems"
        folder.mkdir(parents=True)
        text = SYSTEM_FILE.format(
            system=system, arguments=json.dumps(arguments)[1:-1], environment=environment
        )
        (folder / "tiny.yaml").write_text(text, encoding="utf-8")
        shutil.copyfile(SCRIPTS / f"train_{system}.py", self.path / "train.py")

    def judge(self, *arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
        """Run pytest; its exit code, and the metrics of each topology."""
        file = self.path / "results.json"
        result = self._pytester.runpytest_subprocess(
            "bench_tests", "--dlperf-json", file, *arguments
        )
        cases = json.loads(file.read_text(encoding="utf-8"))["cases"]
        return int(result.ret), {case["topology"]: case["metrics"] for case in cases}


def verdicts(metrics: dict[str, Any]) -> dict[str, str]:
    return {name: metrics[name]["verdict"] for name in ("throughput", "peak_memory", "loss")}


@pytest.mark.trainers
@pytest.mark.usefixtures("own_environment")
@pytest.mark.parametrize(
    ("system", "arguments", "environment", "work"),
    [
        pytest.param("huggingface", TRAINER_ARGUMENTS, "", LENGTH, id="huggingface"),
        pytest.param("deepspeed", OWN_ARGUMENTS, "", LENGTH, id="deepspeed"),
        pytest.param("accelerate", OWN_ARGUMENTS, 'ACCELERATE_USE_CPU: "true"', 1, id="accelerate"),
    ],
)
def test_a_trainer_of_today_is_measured_and_a_slower_loader_caught(
    pytester: pytest.Pytester, system: str, arguments: Sequence[str], environment: str, work: int
) -> None:
    repository = OwnRepository(pytester, system, arguments, environment)

    ret, recorded = repository.judge("--dlperf-create-baselines")
    assert ret == 0
    assert list(recorded) == ["1n1g", "1n2g", "2n1g"]
    for metrics in recorded.values():
        assert set(verdicts(metrics).values()) == {"pass"}
        # PyTorch alone takes more than 100 MB.
        assert 100 < metrics["peak_memory"]["median"] < 10_000
    one = recorded["1n1g"]["throughput"]["median"]
    # What the script sleeps bounds the speed of a device, and so that of two.
    fastest = work / 0.02
    assert fastest / 20 < one < fastest
    for topology in ("1n2g", "2n1g"):
        assert one < recorded[topology]["throughput"]["median"] < 2 * fastest
        assert recorded[topology]["speedup"]["verdict"] == "pass"

    slower = f"{system}-tiny.env.SECONDS_PER_SAMPLE=0.1"
    ret, metrics = repository.judge("-k", "1n1g", "--dlperf-set", slower)
    assert ret == 1
    assert verdicts(metrics["1n1g"]) == {
        "throughput": "regressed",
        "peak_memory": "pass",
        "loss": "pass",
    }
