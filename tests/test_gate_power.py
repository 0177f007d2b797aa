"""The simulation of the gate: its bars hold, and a worse gate misses them."""

import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
sys.path.append(str(BENCHMARKS))

from gate_lives import World  # noqa: E402
from gate_power import CELLS, outcome_of  # noqa: E402

pytestmark = pytest.mark.slow

LIVES = 30


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["CV 1 %", "nights 1 %", "memory, constant"])
def test_the_bars_hold(name):
    for cell in CELLS:
        if cell.name == name:
            assert outcome_of(LIVES, cell).missed == []


def test_a_gate_that_is_worse_misses_its_bars():
    [cell] = [cell for cell in CELLS if cell.name == "CV 1 %" and cell.sessions == 6]
    blunt = replace(cell, world=replace(cell.world, tolerance=10.0, own=10.0))
    assert any("found in" in said for said in outcome_of(LIVES, blunt).missed)
    uneven = replace(cell, world=World(night_modes=0.1), sessions=1)
    assert any("alarms" in said for said in outcome_of(LIVES, uneven).missed)


def test_the_table_is_printed():
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "gate_power.py", "--lives", "4", "--cell", "CV 0.3"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "| CV 0.3 %, 6 sessions | 3/5 |" in done.stdout
