"""The simulation of hunts: its goals hold, and a search that is wrong misses them."""

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pytest_dlperf.culprit.hypotheses import SHARES
from pytest_dlperf.culprit.search import Search

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
sys.path.append(str(BENCHMARKS))

from culprit import Cell, Field, play_all  # noqa: E402

if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.slow


def field(condition):
    cell = Cell(condition, 16, loss=2.0)
    return Field(cell, play_all(cell, 60))


@pytest.mark.ci
def test_the_script_prints_its_tables_and_tells_by_its_exit_code():
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "culprit.py", "--quick", "--hunts", "20", "--processes", "1"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for told in ("Levels and noise known", "both are named in "):
        assert told in done.stdout
    assert "missed" not in done.stdout


def test_a_likelihood_that_believes_every_run_is_misled_by_strays(
    monkeypatch,
):
    def normal(self, one):
        at = np.array(SHARES)[:, None, None, None] * self.hunt.loss
        away = ((one.worse or 0.0) - at) / self.hunt.noise
        return np.maximum(-(away**2) / 2, -1e6)

    assert not list(field("strays").missed(0.0))
    monkeypatch.setattr(Search, "_log_likelihood", normal)
    misled = field("strays")
    assert misled.right < 0.8
    assert any("Every tenth run" in line for line in misled.missed(3.0))


def test_sittings_without_a_level_of_their_own_mislead(monkeypatch):
    assert field("sittings").right >= 0.95
    monkeypatch.setattr(Search, "_levels", lambda self, _: self._measured_level)
    assert field("sittings").wrong > 0.05


@pytest.mark.parametrize("size", [64, 256])
def test_ends_that_were_measured_a_little_wrong_cost_few_runs(size):
    played = play_all(Cell("measured", size, 2.0), 6)
    assert sum(one.is_right is True for one in played) >= 5
    assert sum(one.runs for one in played) < 6 * 40
