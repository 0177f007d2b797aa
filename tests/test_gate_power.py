"""The simulation of the gate: its targets hold, and a gate that is wrong misses them."""

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from gate_values import Turned

from pytest_dlperf.gate.rules import rule_for

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
sys.path.append(str(BENCHMARKS))

from gate_power import TARGETS, Target, check_targets  # noqa: E402
from noise_models import LEVEL  # noqa: E402
from simulated_gate import (  # noqa: E402
    CONFIRMED,
    CONTROLLED,
    ITSELF,
    SPEEDUP,
    TOLERANCES,
    Cell,
    nights,
)

if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.slow

TRIALS = 200


@pytest.mark.ci
def test_every_target_holds():
    cells = {target.cell for target in TARGETS}
    outcomes = {cell: nights(cell, TRIALS // 2, "test") for cell in cells}
    lines, holds = check_targets(outcomes)
    assert holds, "\n".join(lines)


@pytest.mark.ci
def test_a_comparison_turned_round_misses_the_targets():
    def make_turned(metric, baseline, terms):
        return Turned(rule_for(metric, baseline, terms), LEVEL)

    targets = [target for target in TARGETS if target.at_least is not None]
    assert {target.cell.gate.better.value for target in targets} == {"higher", "lower"}
    outcomes = {target.cell: nights(target.cell, 100, "test", make_turned) for target in targets}
    assert all(target.missed(outcomes[target.cell]) for target in targets)


def test_the_control_arm_takes_the_alarms_of_uneven_nights_away():
    cell = Cell(CONTROLLED, "cv 1, nights 2", 0.0)
    quiet = nights(cell, TRIALS, "test")
    assert quiet.first_alarms() > 0.08
    assert quiet.alarms() < 0.01
    lossy = nights(Cell(cell.gate, "cv 1", 0.03), TRIALS, "test")
    assert lossy.alarms() > 0.95


def test_with_a_control_arm_a_loss_of_two_percent_is_found():
    def alarms(gate, loss):
        return nights(Cell(gate, "cv 1", loss), 600, "t").alarms()

    assert 0.38 < alarms(CONTROLLED, 0.02) < 0.55
    assert alarms(CONFIRMED, 0.02) > 0.91
    assert alarms(CONFIRMED, 0.0) < 0.01


def test_a_tolerance_misses_what_the_sequential_rule_sees():
    bare = nights(Cell(TOLERANCES[0], "cv 1", 0.03), TRIALS, "t")
    assert bare.alarms() < 0.02


def test_strays_give_no_alarms_and_hide_few_losses():
    quiet = nights(Cell(ITSELF, "strays", 0.0), TRIALS, "test")
    lossy = nights(Cell(ITSELF, "strays", 0.03), 2000, "test")
    assert quiet.alarms() < 0.005
    assert quiet.undecided() < 0.005
    # Where too many runs are strays, the rest is not called worse.
    assert 0.002 < lossy.undecided() < 0.02
    assert lossy.alarms() > 0.95


def test_a_speedup_is_seen_through_the_noise_of_both_ends():
    def alarms(noise, loss):
        cell = Cell(SPEEDUP, noise, loss)
        return nights(cell, TRIALS, "test").alarms()

    assert alarms("cv 1", 0.0) < 0.01
    assert 0.7 < alarms("cv 1", 0.03) < 0.95
    # Both ends have the same night.
    assert alarms("cv 1, nights 2", 0.0) < 0.01


def test_only_the_pinned_number_sees_what_crept_away():
    def alarms(crept):
        cell = Cell(ITSELF, "cv .3", 0.0, crept)
        return nights(cell, TRIALS, "test").alarms()

    assert alarms(0.04) < 0.01
    assert alarms(0.06) > 0.95


@pytest.mark.ci
def test_the_script_prints_its_tables_and_tells_by_its_exit_code():
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "gate_power.py", "--trials", "4", "--processes", "1"],
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


def test_a_missed_target_is_told():
    cell = Cell(TOLERANCES[-1], "cv 2.5", 0.0)
    strict = Target("no alarm", cell, at_most=0.005)
    lines, holds = check_targets({cell: nights(cell, TRIALS, "test")}, [strict])
    assert not holds
    assert lines[0].startswith("missed  no alarm: ")
