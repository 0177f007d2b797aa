"""A system whose trainer is a few lines of Python, for tests of what happens around a training."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from suites import Suite

SYSTEM = "tiny-mlp"
CASES = ("tiny-mlp-fp32-b4-1n1g", "tiny-mlp-fp32-b4-1n2g", "tiny-mlp-fp32-b4-2n1g")

# Prints the records of a training in which each step takes as long as a file says. Each start
# leaves a line in starts.txt, by which a test counts the runs.
TRAINER = """\
import os, pathlib, sys, time
nodes, devices, node_rank, steps, run = map(int, sys.argv[1:])
here = pathlib.Path(__file__).parent
with (here / "starts.txt").open("a") as file:
    file.write(f"{nodes}n{devices}g {node_rank} {run}\\n")
behaviour = (here / "behaviour.txt").read_text().split()
step_s = float(behaviour[0]) / (nodes * devices) ** 0.5
world_size = nodes * devices
for local_rank in range(devices):
    rank = node_rank * devices + local_rank
    print(f"dlperf run rank={rank} world_size={world_size} nodes={nodes} "
          f"devices_per_node={devices} batch_per_device=4 precision=fp32", flush=True)
if "second-node-dies" in behaviour:
    if node_rank == 1:
        sys.exit(3)
    time.sleep(1)
for step in range(1, steps + 1):
    if f"die-at-{step}" in behaviour:
        print("the trainer ran out of luck", flush=True)
        sys.exit(7)
    if f"hang-at-{step}" in behaviour:
        time.sleep(600)
    for local_rank in range(devices):
        rank = node_rank * devices + local_rank
        print(f"dlperf step rank={rank} step={step} time={step * step_s:.6f} loss=1.0", flush=True)
if "die-at-end" in behaviour:
    sys.exit(9)
"""

DECLARATION = """\
framework: tiny
model: mlp
unit: samples/s
log: {{name: mlp, format: dlperf}}
window: {{warmup_steps: 2, measured_steps: 8}}
repeats: 3
launch:
  command: ["{{python}}", "{trainer}", "{{nodes}}", "{{devices_per_node}}", "{{node_rank}}",
    "{{steps}}", "{{run}}"]
  time_limit_s: {time_limit_s}
cases:
  - {{precision: fp32, batch_per_device: 4, topologies: [1n1g, 1n2g, 2n1g]}}
"""


class TinySystem:
    """The system in a suite, and its trainer's behaviour."""

    def __init__(self, suite: Suite, *, time_limit_s: float = 60) -> None:
        self.folder = suite.path / "trainer"
        self.folder.mkdir()
        trainer = self.folder / "train.py"
        trainer.write_text(TRAINER, encoding="utf-8")
        suite.system_file(DECLARATION.format(trainer=trainer, time_limit_s=time_limit_s))
        self.behave("0.01")

    def behave(self, behaviour: str) -> None:
        """Seconds per step of one device, then what goes wrong."""
        (self.folder / "behaviour.txt").write_text(behaviour, encoding="utf-8")

    def starts(self) -> list[str]:
        """One line per start of a node's trainer."""
        file: Path = self.folder / "starts.txt"
        return file.read_text(encoding="utf-8").splitlines() if file.exists() else []
