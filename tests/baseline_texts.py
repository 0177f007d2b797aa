"""Baseline files to change, and changes to make to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_dlperf.baselines.reading import load_baselines
from pytest_dlperf.baselines.recording import Change, ChangeKind, Recorded, record
from pytest_dlperf.config.cluster import Cluster
from pytest_dlperf.model.baseline import Acceptance, Baseline
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import Estimator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

SYSTEM = "paddle-resnet50"
NIGHT = "2026-11-21T03:00:00+00:00"
RUNS = {1: 360.0, 2: 361.5, 3: 359.25, 4: 360.5}
MACHINE = {"device": "Tesla V100-SXM2-16GB", "devices_per_node": "8", "interconnect": "nvlink"}
ACCEPTANCE = Acceptance(
    at=NIGHT,
    commit="0123456789abcdef0123456789abcdef01234567",
    reason='the loader reads "ahead": 2 %',
    hosts=("node-1", "node 2"),
    software={"driver": "440.33.01", "nccl": "2.7.3", "paddlepaddle-gpu": "1.8.3"},
    logs="sha256:" + "0" * 64,
)

# As people write it: comments everywhere, layout of their own, a key order of their own.
TEXT = """\
# yaml-language-server: $schema=../.schema/baselines.json
# Numbers of the old cluster.
system: paddle-resnet50
unit:   images/s
estimator: steady

entries:
  # The paper's.
  fp32-b128:   # the batch of the paper
    # one
    1n1g:
      throughput: 352.72   # measured on a Sunday
      speedup: 1.0

      runs: {1: 352.0, 2: 353.44}  # two of them
      note: >-
        Slower
        # than it looks

    # two nodes were never run
    1n8g:  # a node
      runs:
        1: 2625.0   # first
        2: 2626.0
        3: 2700.0
      throughput: 2626
      mean:   2650.33
      strays: {9: 26.0}
      sessions:
        - {at: "2026-11-01T03:00:00+00:00", runs: [2620.0, 2630.0]}
        # the night of the storm
        - at: "2026-11-02T03:00:00+00:00"
          runs: [2621.0,
                 2631.0]
      tolerance_percent: 3
      recorded: 2026-10-01
    # after it
    4n8g:
        throughput: 9348.17
        speedup: 26.5
        accepted:
            at: "2026-10-01T03:00:00+00:00"
            reason: first
            single_device: 352.72
        machine: {device: old}
  # the other one
  fp16-b224:
    1n1g: {throughput: 1034.64}
# the end
"""


def cluster_in(folder: Path, **facts: Any) -> Cluster:
    return Cluster(name="mine", directory=folder / "mine", estimator=Estimator.STEADY, **facts)


def write(cluster: Cluster, text: str = TEXT) -> Path:
    file = cluster.directory / f"{SYSTEM}.yaml"
    file.parent.mkdir(exist_ok=True, parents=True)
    file.write_bytes(text.encode())
    return file


def read(cluster: Cluster) -> dict[tuple[str, str], Baseline]:
    return load_baselines(cluster, SYSTEM)


def case(name: str) -> Case:
    return Case.parse(f"{SYSTEM}-{name}")


def known(cluster: Cluster, name: str) -> Baseline | None:
    one = case(name)
    return read(cluster).get((one.variant, str(one.topology)))


def create(name: str, throughput: float = 1000.0, **more: Any) -> Change:
    more = {"runs": {1: throughput}, "at": NIGHT, **more}
    return Change(kind=ChangeKind.CREATE, case=case(name), throughput=throughput, **more)


def accept(cluster: Cluster, name: str, **more: Any) -> Change:
    if "throughput" in more:
        more = {"runs": RUNS, **more}
    return Change(
        kind=ChangeKind.ACCEPT, case=case(name), known=known(cluster, name), at=NIGHT, **more
    )


def extend(
    cluster: Cluster, name: str, runs: Mapping[int, float] = RUNS, at: str = NIGHT
) -> Change:
    return Change(
        kind=ChangeKind.EXTEND, case=case(name), known=known(cluster, name), runs=runs, at=at
    )


def do(cluster: Cluster, changes: Sequence[Change]) -> Recorded:
    return record(cluster, SYSTEM, "images/s", changes, provenance={"source": "a test"})
