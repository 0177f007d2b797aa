"""The smallest loss that counts: 1.2 % where a control arm can confirm it, else 2 %."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from nights import Nights
from trainers import SYSTEM

if TYPE_CHECKING:
    from suites import Suite

pytestmark = pytest.mark.slow

CASE = ["-k", "tiny and 1n1g"]
# A loss of 1.5 %: each step takes so many times as long.
SLOWER = ["--dlperf-set", f"{SYSTEM}.env.TINY_SLOWER=1.01523"]
CONTROL = f"""\
control:
  description: the software of last month
  vars: {{{SYSTEM}: {{env: {{TINY_SLOWER: "%s"}}}}}}
"""


def with_six_sessions(suite: Suite, control: str) -> None:
    """The tiny system with thirty accepted runs that differ by 0.3 %."""
    nights = Nights(suite, ["1n1g"])
    runs = [398.4, 399.2, 400.0, 400.8, 401.6]
    nights.accept(*[{"1n1g": runs}] * 6)
    cluster = nights.file.parent / "cluster.yaml"
    cluster.write_text(cluster.read_text(encoding="utf-8") + control, encoding="utf-8")


@pytest.mark.parametrize(
    ("accepted_software", "arguments", "verdict", "tolerance_percent"),
    [
        ("1", [], "regressed", 1.2),
        ("1", ["--dlperf-control", "never"], "pass", 2.0),
        (None, [], "pass", 2.0),
        # The accepted software is as slow tonight.
        ("1.0152", [], "environment_shift", 1.2),
        # It cannot be told from what is tested, so nothing is confirmed.
        ("1.01523", [], "pass", 2.0),
    ],
    ids=["confirmed", "never", "none named", "not confirmed", "cannot run"],
)
def test_a_loss_of_one_and_a_half_percent(
    suite: Suite,
    accepted_software: str | None,
    arguments: list[str],
    verdict: str,
    tolerance_percent: float,
) -> None:
    with_six_sessions(suite, CONTROL % accepted_software if accepted_software else "")

    _, results = suite.judge(*CASE, *SLOWER, *arguments, cluster="local")

    found = results["cases"][0]["metrics"]["throughput"]
    assert found["difference_percent"] == pytest.approx(-1.5, abs=0.05)
    assert found["verdict"] == verdict
    assert found["gate"]["decision"]["tolerance_percent"] == tolerance_percent
