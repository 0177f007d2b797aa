"""The shipped training, for real: recorded, held against itself, and caught when it slows down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from suites import Suite

CASE = "pytorch-resnet18-fp32-b8-1n2g"


def slow_down(suite: Suite, delay_ms: int) -> None:
    """Make every step sleep, long beside what it computes: a busy machine changes little."""
    file = suite.path / "bench_tests" / "systems" / "pytorch-resnet18.yaml"
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if "delay" not in line]
    at = next(index for index, line in enumerate(lines) if "--measured-steps" in line)
    indent = lines[at][: lines[at].index("-")]
    lines.insert(at, f"{indent}- --step-delay-ms={delay_ms}")
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.mark.training
def test_a_known_slow_down_of_a_real_training_is_caught(suite: Suite) -> None:
    def judge(*arguments: str) -> tuple[int, dict[str, Any]]:
        result, results = suite.judge(
            "-k", f"throughput and {CASE}", "--dlperf-repeats", "1", *arguments, cluster="local"
        )
        return int(result.ret), results["cases"][0]

    slow_down(suite, 200)
    ret, recorded = judge("--dlperf-create-baselines")
    assert (ret, recorded["verdict"]["throughput"]) == (0, "pass")
    # Two ranks of eight images take more than the 0.2 s that they sleep.
    assert 0 < recorded["throughput"]["median"] < 80
    assert recorded["runs"][0]["status"] == "ok"

    ret, again = judge()
    assert (ret, again["verdict"]["throughput"]) == (0, "pass")

    slow_down(suite, 1000)
    ret, slower = judge()
    assert (ret, slower["verdict"]["throughput"]) == (1, "regressed")


@pytest.mark.training
def test_two_nodes_train_together(suite: Suite) -> None:
    case = "pytorch-resnet18-fp32-b8-2n1g"
    runs = suite.path / "runs"
    result, results = suite.judge(
        "-k", f"throughput and {case}", "--dlperf-repeats", "1", "--dlperf-create-baselines",
        "--dlperf-run-dir", runs, cluster="local",
    )  # fmt: skip
    assert result.ret == 0
    assert results["cases"][0]["runs"][0]["status"] == "ok"
    folder = runs / "pytorch-resnet18" / "2n1g"
    assert "rank=0 " in (folder / "r18_b8_fp32_1.log").read_text(encoding="utf-8")
    assert "rank=1 " in (folder / "r18_b8_fp32_1" / "node1.log").read_text(encoding="utf-8")
