"""The simulation of the gate: its targets hold, and a gate that is wrong misses them."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_dlperf.gate.rules import rule_for

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from pytest_dlperf.gate.rules import Rule, Terms
    from pytest_dlperf.model.baseline import Baseline
    from pytest_dlperf.model.judgement import Decision
    from pytest_dlperf.model.metric import Better, Metric, RuleName

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "gate_power.py"
TRIALS = 400


@pytest.fixture(scope="module")
def gate_power() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gate_power", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look their module up.
    sys.modules["gate_power"] = module
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True)
class Turned:
    """A rule that holds the baseline against tonight instead of tonight against the baseline."""

    rule: Rule
    level: float

    @property
    def name(self) -> RuleName:
        return self.rule.name

    @property
    def better(self) -> Better:
        return self.rule.better

    @property
    def at_most(self) -> int:
        return self.rule.at_most

    def decide(self, values: Sequence[float], *, is_last: bool) -> Decision | None:
        turned = [self.level * self.level / run for run in values]
        return self.rule.decide(turned, is_last=is_last)


@pytest.mark.slow
def test_every_target_holds(gate_power: ModuleType) -> None:
    cells = {target.cell for target in gate_power.TARGETS}
    outcomes = {cell: gate_power.nights(cell, TRIALS, "test") for cell in cells}
    lines, holds = gate_power.check_targets(outcomes)
    assert holds, "\n".join(lines)


def test_a_comparison_turned_round_misses_the_targets(gate_power: ModuleType) -> None:
    def make_turned(metric: Metric, baseline: Baseline, terms: Terms) -> Rule:
        return Turned(rule_for(metric, baseline, terms), gate_power.LEVEL)

    targets = [target for target in gate_power.TARGETS if target.at_least is not None]
    assert {target.cell.gate.better.value for target in targets} == {"higher", "lower"}
    outcomes = {
        target.cell: gate_power.nights(target.cell, 100, "test", make_turned) for target in targets
    }
    assert all(target.missed(outcomes[target.cell]) for target in targets)


def test_the_control_arm_takes_the_alarms_of_uneven_nights_away(gate_power: ModuleType) -> None:
    cell = gate_power.Cell(gate_power.CONTROLLED, "cv 1, nights 2", 0.0)
    quiet = gate_power.nights(cell, TRIALS, "test")
    assert quiet.first_alarms() > 0.08
    assert quiet.alarms() < 0.01
    lossy = gate_power.nights(gate_power.Cell(cell.gate, "cv 1", 0.03), TRIALS, "test")
    assert lossy.alarms() > 0.95


def test_with_a_control_arm_a_loss_of_two_percent_is_found(gate_power: ModuleType) -> None:
    def alarms(gate: object, loss: float) -> float:
        return float(gate_power.nights(gate_power.Cell(gate, "cv 1", loss), 600, "t").alarms())

    assert 0.38 < alarms(gate_power.CONTROLLED, 0.02) < 0.55
    assert alarms(gate_power.CONFIRMED, 0.02) > 0.91
    assert alarms(gate_power.CONFIRMED, 0.0) < 0.01


def test_a_tolerance_misses_what_the_sequential_rule_sees(gate_power: ModuleType) -> None:
    bare = gate_power.nights(gate_power.Cell(gate_power.TOLERANCES[0], "cv 1", 0.03), TRIALS, "t")
    assert bare.alarms() < 0.02


def test_strays_give_no_alarms_and_hide_few_losses(gate_power: ModuleType) -> None:
    quiet = gate_power.nights(gate_power.Cell(gate_power.ITSELF, "strays", 0.0), TRIALS, "test")
    lossy = gate_power.nights(gate_power.Cell(gate_power.ITSELF, "strays", 0.03), 2000, "test")
    assert quiet.alarms() < 0.005
    assert quiet.undecided() < 0.005
    # Where too many runs are strays, the rest is not called worse.
    assert 0.002 < lossy.undecided() < 0.02
    assert lossy.alarms() > 0.95


def test_a_speedup_is_seen_through_the_noise_of_both_ends(gate_power: ModuleType) -> None:
    def alarms(noise: str, loss: float) -> float:
        cell = gate_power.Cell(gate_power.SPEEDUP, noise, loss)
        return float(gate_power.nights(cell, TRIALS, "test").alarms())

    assert alarms("cv 1", 0.0) < 0.01
    assert 0.7 < alarms("cv 1", 0.03) < 0.95
    # Both ends have the same night.
    assert alarms("cv 1, nights 2", 0.0) < 0.01


def test_only_the_pinned_number_sees_what_crept_away(gate_power: ModuleType) -> None:
    def alarms(crept: float) -> float:
        cell = gate_power.Cell(gate_power.ITSELF, "cv .3", 0.0, crept)
        return float(gate_power.nights(cell, TRIALS, "test").alarms())

    assert alarms(0.04) < 0.01
    assert alarms(0.06) > 0.95


@pytest.mark.slow
def test_the_script_prints_its_tables_and_tells_by_its_exit_code() -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, "--trials", "20", "--processes", "1"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for told in (
        "median of 5, -5 %, of 5 ",
        "sequential, 3 to 9 runs",
        "  inconclusive ",
        "  its speedup ",
        "cv 1, nights 2",
        "  lower is better",
        "Losses from 1.2 % on, with a control arm",
        "holds   3 % seen at cv 1 in 95 %",
        "holds   3 % seen at cv 1 in 95 %, lower is better",
    ):
        assert told in done.stdout


def test_a_missed_target_is_told(gate_power: ModuleType) -> None:
    cell = gate_power.Cell(gate_power.TOLERANCES[-1], "cv 2.5", 0.0)
    strict = gate_power.Target("no alarm", cell, at_most=0.005)
    lines, holds = gate_power.check_targets(
        {cell: gate_power.nights(cell, TRIALS, "test")}, [strict]
    )
    assert not holds
    assert lines[0].startswith("missed  no alarm: ")
