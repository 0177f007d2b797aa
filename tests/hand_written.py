"""Files as people write them, with most of their keys, and how each kind is read."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from baseline_texts import TEXT

from pytest_dlperf.baselines.reading import read_contents
from pytest_dlperf.config.cluster import find_cluster
from pytest_dlperf.config.systems import load_systems
from pytest_dlperf.files.yamlfile import Diagnostic, YamlError
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS

SYSTEM_TEXT = """\
framework: pytorch
model: resnet50
unit: images/s
marks: [nightly]
log: {name: r50, format: {record: "step (?P<step>[0-9]+) (?P<seconds>[0-9.]+)", first_step: 0}}
window: {warmup_steps: 20, measured_steps: 100}
repeats: 5
tolerance_percent: 2.5
launch:
  devices: gpu
  variables: {data: {meaning: the images, kind: folder}}
  values:
    threads: [{when: {option: [dali, xla], nodes: 2+, world_size: [2, 4]}, value: 8}, {value: 4}]
  command: [python, "--data={data}", {when: {nodes: 2}, arguments: [--many, "{threads}"]}]
  environment: {A: 1, B: [{when: {precision: fp16}, value: x}]}
  slurm: {srun: [--mpi=pmix], job: --qos=low}
  container: {runtime: podman, image: trainer, mounts: [/data:/data:ro], devices: [], options: []}
  time_limit_s: 60
  run_to_end: false
cases:
  - {precision: fp16, batch_per_device: 128, options: [dali, xla], topologies: [1n1g, 2n1g]}
"""

CLUSTER_TEXT = """\
description: the office
estimator: steady
systems: [a-b, c-d]
devices_per_node: 8
python: /usr/bin/python3.6
scratch: /local/scratch
kubernetes:
  template: job.yaml
  namespace: bench
  image: registry.example.org:5000/trainers/megatron:2026-11
  device: amd.com/gpu
vars:
  "*": {extra_args: "--a 'b c'", pause_s: 20, slurm: {srun: --mpi=pmix}}
  paddle-resnet50:
    checkout: /models
    extra_args: [--a, b c, 1]
    env: {NCCL_DEBUG: INFO, LIMIT: 0.80}
    container: {runtime: docker, image: trainer, devices: [nvidia, /dev/infiniband]}
control:
  description: the release of October
  vars:
    "*": {container: {image: october}, python: /conda/october/bin/python}
machine: {device: Tesla V100-SXM2-16GB, devices_per_node: 8, interconnect: nvlink}
hardware: {nodes: 4, disks: yes}
software: {cuda: 10.20}
"""

DOCUMENTS: Final = {"baselines": TEXT, "cluster": CLUSTER_TEXT, "system": SYSTEM_TEXT}
NAMES: Final = {
    "baselines": "paddle-resnet50.yaml",
    "cluster": "cluster.yaml",
    "system": "own.yaml",
}


def read(kind: str, file: Path) -> None:
    """Read a file of one kind."""
    if kind == "baselines":
        read_contents(file, {})
    elif kind == "cluster":
        find_cluster(file.parent.parent, file.parent.name)
    else:
        load_systems([file], BUILTIN_FORMATS)


def mistakes(kind: str, text: str, folder: Path) -> list[Diagnostic]:
    """What is said of a text."""
    file = folder / NAMES[kind]
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    try:
        read(kind, file)
    except YamlError as error:
        return list(error.diagnostics)
    return []
