"""The life of a first baseline: missing fails, recorded passes, and from then on it gates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml
from trainers import SYSTEM, TinySystem

if TYPE_CHECKING:
    from pathlib import Path

    from suites import Suite


def baseline_file(suite: Suite) -> Path:
    return suite.path / "baselines" / "local" / f"{SYSTEM}.yaml"


def test_the_life_of_a_first_baseline(suite: Suite, workers: list[str]) -> None:
    tiny = TinySystem(suite)
    select = ["-k", "tiny", "--dlperf-repeats", "1"]

    missing = suite.run(*select)
    assert missing.ret == 1
    missing.assert_outcomes(failed=5)
    missing.stdout.fnmatch_lines(
        ["no_baseline: throughput", "*cluster local has none*--dlperf-create-baselines*"]
    )
    assert not baseline_file(suite).exists()

    recorded = suite.run(*select, "--dlperf-create-baselines", *workers)
    assert recorded.ret == 0
    recorded.stdout.fnmatch_lines(["recorded the baselines of 3 cases in *gated against them"])
    text = baseline_file(suite).read_text(encoding="utf-8")
    entries = yaml.safe_load(text)["entries"]["fp32-b4"]
    assert list(entries) == ["1n1g", "1n2g", "2n1g"]
    assert entries["1n2g"]["throughput"]["accepted"] == pytest.approx(1131.37, rel=1e-4)
    assert entries["1n2g"]["speedup"]["accepted"] == pytest.approx(2.82843, rel=1e-4)

    same = suite.run(*select)
    assert same.ret == 0

    tiny.behave("0.02")
    slower = suite.run(*select, "--dlperf-create-baselines", *workers)
    assert slower.ret == 1
    slower.stdout.fnmatch_lines(
        ["regressed -50.0 %*: throughput", "*worse by 50.0 %, tolerance 5 %"]
    )

    assert baseline_file(suite).read_text(encoding="utf-8") == text


def test_a_broken_measurement_is_never_recorded(suite: Suite) -> None:
    tiny = TinySystem(suite)
    tiny.behave("0.01 die-at-6")

    result = suite.run("-k", "tiny and 1n1g", "--dlperf-create-baselines")

    assert result.ret == 1
    assert not baseline_file(suite).exists()


def test_a_part_of_the_matrix_records_that_part(suite: Suite) -> None:
    TinySystem(suite)
    suite.run("-k", "throughput and tiny and 1n1g", "--dlperf-create-baselines")
    before = baseline_file(suite).read_text(encoding="utf-8")

    result = suite.run("-k", "tiny and 2n1g", "--dlperf-create-baselines")

    assert result.ret == 0
    after = baseline_file(suite).read_text(encoding="utf-8")
    assert set(yaml.safe_load(after)["entries"]["fp32-b4"]) == {"1n1g", "2n1g"}
    # What has come beside the entry is the kind of its second metric.
    assert after.replace("  speedup: {unit: x, better: higher}\n", "", 1).startswith(before)


def test_a_speedup_measured_later_joins_its_baseline(suite: Suite) -> None:
    TinySystem(suite)
    suite.run("-k", "throughput and tiny and 2n1g", "--dlperf-create-baselines")

    assert suite.run("-k", "tiny and 2n1g").ret == 1
    assert suite.run("-k", "tiny and 2n1g", "--dlperf-create-baselines").ret == 0
    assert suite.run("-k", "tiny and 2n1g").ret == 0


def test_numbers_that_cannot_be_written_fail_the_session(suite: Suite) -> None:
    TinySystem(suite)
    (suite.path / "baselines" / "local").write_text("in the way", encoding="utf-8")

    result = suite.run("-k", "throughput and tiny and 1n1g", "--dlperf-create-baselines")

    assert result.ret == 1
    result.stdout.fnmatch_lines(["no baseline was recorded in *"])


def test_nothing_of_a_case_is_recorded_when_a_part_of_it_regressed(suite: Suite) -> None:
    tiny = TinySystem(suite)
    select = ["-k", "tiny and 1n2g", "--dlperf-repeats", "1"]
    suite.run("-k", "throughput and tiny and 1n2g", "--dlperf-create-baselines")
    before = baseline_file(suite).read_text(encoding="utf-8")
    tiny.behave("0.05")

    result = suite.run(*select, "--dlperf-create-baselines")

    assert result.ret == 1
    assert baseline_file(suite).read_text(encoding="utf-8") == before


def test_runs_far_apart_are_pointed_out_where_the_case_tolerates_them(suite: Suite) -> None:
    tiny = TinySystem(suite)
    system = suite.path / "bench_tests" / "systems" / "own.yaml"
    declared = system.read_text(encoding="utf-8")
    system.write_text(declared.replace("repeats: 3", "repeats: 3\ntolerance_percent: 60"))
    trainer = tiny.folder / "train.py"
    text = trainer.read_text(encoding="utf-8")
    trainer.write_text(text.replace("world_size = nodes", "step_s *= run\nworld_size = nodes"))

    result = suite.run("-k", "throughput and tiny and 1n1g", "--dlperf-create-baselines")

    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["the throughput of tiny-mlp-fp32-b4-1n1g differs *(*%): with them the gate finds *"]
    )
    assert "pytest-dlperf baselines delete tiny-mlp-fp32-b4-1n1g" in result.stdout.str()


def test_judged_logs_do_not_claim_to_be_of_this_machine(suite: Suite) -> None:
    TinySystem(suite)
    suite.run("-k", "throughput and tiny and 1n1g", "--dlperf-run-dir", "night")
    suite.run(
        "-k", "throughput and tiny and 1n1g", "--dlperf-logs", f"{SYSTEM}=night",
        "--dlperf-create-baselines",
    )  # fmt: skip
    assert "host" not in baseline_file(suite).read_text(encoding="utf-8")
