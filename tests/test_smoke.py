"""The shipped training, for real: recorded, held against itself, and caught when it slows down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from suites import Suite

CASE = "pytorch-resnet18-fp32-b8-1n1g"


def slow_down(suite: Suite, delay_ms: int) -> None:
    """Make every step sleep, long beside what it computes: a busy machine changes little."""
    file = suite.path / "bench_tests" / "systems" / "pytorch-resnet18.yaml"
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if "delay" not in line]
    at = next(index for index, line in enumerate(lines) if "--measured-steps" in line)
    indent = lines[at][: lines[at].index("-")]
    lines.insert(at, f"{indent}- --step-delay-ms={delay_ms}")
    # A few steps are enough where each is so long.
    text = "\n".join(lines).replace("warmup_steps: 4", "warmup_steps: 1")
    file.write_text(text.replace("measured_steps: 20", "measured_steps: 5") + "\n", "utf-8")


@pytest.mark.training
def test_a_known_slow_down_of_a_real_training_is_caught(suite: Suite) -> None:
    def judge(*arguments: str) -> tuple[int, dict[str, Any]]:
        result, results = suite.judge(
            "-k", CASE, "--dlperf-repeats", "1", *arguments, cluster="local"
        )
        return int(result.ret), results["cases"][0]["metrics"]

    def verdicts(metrics: dict[str, Any]) -> dict[str, str]:
        return {name: metrics[name]["verdict"] for name in ("throughput", "peak_memory", "loss")}

    slow_down(suite, 200)
    ret, recorded = judge("--dlperf-create-baselines")
    assert (ret, set(verdicts(recorded).values())) == (0, {"pass"})
    # Eight images take more than the 0.2 s that the step sleeps.
    assert 0 < recorded["throughput"]["median"] < 40
    # PyTorch alone takes more than 100 MB.
    assert 100 < recorded["peak_memory"]["median"] < 10_000

    ret, again = judge()
    assert (ret, set(verdicts(again).values())) == (0, {"pass"})

    slow_down(suite, 1000)
    ret, slower = judge()
    assert ret == 1
    assert verdicts(slower) == {"throughput": "regressed", "peak_memory": "pass", "loss": "pass"}
