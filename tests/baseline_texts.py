"""Baseline files to change, and changes to make to them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from msgspec.structs import replace

from pytest_dlperf.baselines.reading import Baselines, load_baselines, significant
from pytest_dlperf.baselines.recording import Change, ChangeKind, RecordOutcome, record
from pytest_dlperf.config.cluster import Cluster
from pytest_dlperf.model.baseline import (
    ROLLING_SESSIONS,
    Acceptance,
    AcceptedSession,
    Baseline,
)
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import Estimator, LaunchFacts
from pytest_dlperf.model.metric import SPEEDUP_METRIC, Better, Metric, Source, throughput

SYSTEM = "paddle-resnet50"
NIGHT = "2026-11-21T03:00:00+00:00"
RUNS = {1: 360.0, 2: 361.5, 3: 359.25, 4: 360.5}
METRICS = {
    metric.name: metric
    for metric in (
        throughput("images/s"),
        SPEEDUP_METRIC,
        Metric(name="peak_memory", unit="MB", better=Better.LOWER, source=Source.LOG),
    )
}
MACHINE = {"device": "Tesla V100-SXM2-16GB", "devices_per_node": "8", "interconnect": "nvlink"}
ACCEPTANCE = Acceptance(
    at=NIGHT,
    by="Ana Díaz <ana@example.org>",
    commit="0123456789abcdef0123456789abcdef01234567",
    reason='the loader reads "ahead": 2 %',
    hosts=("node-1", "node 2"),
    software={"driver": "440.33.01", "nccl": "2.7.3", "paddlepaddle-gpu": "1.8.3"},
    commits={"/opt/it's here": "89abcdef0123"},
    launch=LaunchFacts(
        launcher="ssh",
        arguments=("python", "train.py", "--name", "it's one", "", "{run}"),
        environment={"NCCL_DEBUG": "", "OMP_NUM_THREADS": "1", "PS1": " # "},
        working_directory="/opt/a trainer",
        options={"image": "registry.example.org/paddle:1.8"},
    ),
)

# As people write it: comments everywhere, layout of their own, a key order of their own.
TEXT = """\
# yaml-language-server: $schema=../.schema/baselines.json
# Numbers of the old cluster.
system: paddle-resnet50
metrics:   # what is judged
  throughput: {unit:   images/s, better: higher}
  speedup: {unit: x, better: higher}
  peak_memory: {better: lower, unit: MB}  # allocated
estimator: steady

entries:
  # The paper's.
  fp32-b128:   # the batch of the paper
    # one
    1n1g:
      throughput:
        accepted: 352.72   # measured on a Sunday

        runs: {1: 352.0, 2: 353.44}  # two of them
        note: >-
          Slower
          # than it looks
      speedup: 1.0   # by definition

    # two nodes were never run
    1n8g:  # a node
      peak_memory: {accepted: 13000, runs: {1: 12990, 2: 13010}}
      throughput:
        runs:
          1: 2625.0   # first
          2: 2626.0
          3: 2700.0
        accepted: 2625.5
        mean:   2650.33
        strays: {9: 26.0}
        sessions:
          - {at: "2026-11-01T03:00:00+00:00", runs: [2620.0, 2630.0]}
          # the night of the storm
          - at: "2026-11-02T03:00:00+00:00"
            runs: [2621.0,
                   2631.0]
        tolerance_percent: 3
    # after it
    4n8g:
        throughput: 9348.17
        speedup: {accepted: 26.5, over: 352.72}
        acceptance:
            at: "2026-10-01T03:00:00+00:00"
            reason: first
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


def read(cluster: Cluster) -> Baselines:
    return load_baselines(cluster, SYSTEM)


def case(name: str) -> Case:
    return Case.from_id(f"{SYSTEM}-{name}")


def known(cluster: Cluster, name: str, metric: str = "throughput") -> Baseline | None:
    one = case(name)
    return read(cluster).get((one.variant, str(one.topology)), {}).get(metric)


def create(name: str, number: float = 1000.0, metric: str = "throughput", **more: Any) -> Change:
    one = METRICS[metric]
    assert one.better is not None
    now = Baseline(
        metric=metric, unit=one.unit, better=one.better, estimator=Estimator.STEADY,
        accepted=number,
        **{"runs": {} if one.ratio_of else {1: number}, "acceptance": ACCEPTANCE, **more},
    )  # fmt: skip
    return Change(kind=ChangeKind.CREATE, case=case(name), metric=one, now=now)


def accept(
    cluster: Cluster, name: str, number: float, metric: str = "throughput", **more: Any
) -> Change:
    scaled = {run: value * number / median(RUNS.values()) for run, value in RUNS.items()}
    runs = {run: significant(value) for run, value in scaled.items()}
    standing = known(cluster, name, metric)
    assert standing is not None
    kept: dict[str, Any] = {"note": standing.note, "tolerance_percent": standing.tolerance_percent}
    if METRICS[metric].ratio_of is None:
        kept["runs"] = runs
    made = create(name, number, metric, **{**kept, **more})
    return replace(made, kind=ChangeKind.ACCEPT, known=standing)


def extend(cluster: Cluster, name: str, at: str = NIGHT) -> Change:
    standing = known(cluster, name, "throughput")
    assert standing is not None
    session = AcceptedSession(at=at, runs=tuple(RUNS.values()))
    return Change(
        kind=ChangeKind.EXTEND,
        case=case(name),
        metric=METRICS["throughput"],
        known=standing,
        now=replace(standing, sessions=(*standing.sessions, session)[-ROLLING_SESSIONS:]),
    )


def do(cluster: Cluster, changes: Sequence[Change]) -> RecordOutcome:
    return record(cluster, changes, provenance={"source": "a test"})
