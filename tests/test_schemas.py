"""The schemas of YAML files: what editors say of a file is what the reader says of it."""

from __future__ import annotations

import copy
import datetime as dt
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from baseline_texts import TEXT
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_dlperf.baselines.reading import read_contents
from pytest_dlperf.baselines.schemas import SHAPES, schema_text, schemas
from pytest_dlperf.config.cluster import Cluster, cluster_keys, find_cluster
from pytest_dlperf.config.extends import SHIPPED
from pytest_dlperf.files.shapes import Record
from pytest_dlperf.files.yamlfile import Problem, YamlError, load

ROOT = Path(__file__).parent.parent
FILE = Path("paddle-resnet50.yaml")
CLUSTER = Record(partial(Cluster, name="mine", directory=Path("mine")), *cluster_keys())
READERS: dict[str, Record[Any]] = {**SHAPES, "cluster": CLUSTER}


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
  resources: {cpu: 96, memory: 1000Gi, ephemeral-storage: 1.5e3, hugepages-2Mi: 4Gi, rdma/hca: 8}
  volumes: {/data: {claim: datasets}, /models: {host_path: /srv/models}, /dev/shm: {memory: 64Gi}}
  node_selector: {pool: h100, example.org/fast: "", gpu: true}
  service_account: dlperf.v1
  image_pull_secrets: [registry]
  queue: nightly
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


def mistakes(text: str, name: str) -> list[Problem]:
    """What the reader finds."""
    try:
        load(FILE, READERS[name].read, text=text)
    except YamlError as error:
        return list(error.problems)
    return []


def as_json(value: Any) -> Any:
    """What an editor sees in place of what YAML 1.1 has beside: text keys, dates as text."""
    if isinstance(value, dict):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_json(item) for item in value]
    return str(value) if isinstance(value, dt.date) else value


VALIDATORS = {name: jsonschema.Draft202012Validator(one) for name, one in schemas().items()}


def oracle(text: str, name: str) -> list[str]:
    """What the jsonschema package finds."""
    document = as_json(yaml.load(text, yaml.CSafeLoader))
    return [f"{it.json_path}: {it.message}" for it in VALIDATORS[name].iter_errors(document)]


@pytest.mark.parametrize("name", schemas())
def test_a_schema_is_one(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(schema_text(name)))


def rules(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
        for item in node.values():
            yield from rules(item)
    elif isinstance(node, list):
        for item in node:
            yield from rules(item)


@pytest.mark.parametrize("name", schemas())
def test_every_key_is_described_for_editors(name: str) -> None:
    for rule in rules(schemas()[name]):
        for key, said in rule.get("properties", {}).items():
            assert said["description"].endswith("."), key


@pytest.mark.parametrize(
    ("file", "name"),
    [
        *((file, "baselines") for file in sorted(ROOT.glob("baselines/*/*-*.yaml"))),
        *((file, "cluster") for file in sorted(ROOT.glob("baselines/*/cluster.yaml"))),
        *((file, "system") for file in sorted(ROOT.glob("bench_tests/systems/*.yaml"))),
    ],
    ids=lambda value: value.name if isinstance(value, Path) else "",
)
def test_the_files_of_the_project_are_good_to_editors_and_name_their_schema(
    file: Path, name: str
) -> None:
    text = file.read_text(encoding="utf-8")
    assert oracle(text, name) == []
    way = text.splitlines()[0].removeprefix("# yaml-language-server: $schema=")
    # Where recording a baseline writes it.
    assert (file.parent / way).resolve() == ROOT / "baselines" / ".schema" / f"{name}.json"


@pytest.mark.parametrize("file", sorted(SHIPPED.glob("*.yaml")), ids=lambda file: file.name)
def test_the_systems_that_ship_are_good_to_editors(file: Path) -> None:
    """They lack what a file says that extends one."""
    assert oracle(f"extends: x\n{file.read_text(encoding='utf-8')}", "system") == []


# ---------------------------------------------------------------------------- the same answer

DOCUMENTS = {"baselines": TEXT, "cluster": CLUSTER_TEXT, "system": SYSTEM_TEXT}
SCALARS: list[Any] = [
    None, True, 0, -1, 1, 8, 99, 100, 101, 0.5, 1e-9, "", " ", "x", "steady", "published",
    "1n8g", "fp32-b128", "2026-11-21T03:00:00Z", "2026-11-21", "sha256:00", "sha256:" + "f" * 64,
]  # fmt: skip
KEYS = ["throughput", "speedup", "accepted", "acceptance", "env", "A=B", "vars", "1", "0", "x",
        "at", "runs", "1n1g", "1n0g", "fp32-b1", "fp32", "device", "note", "machine", "when",
        "option", "launch"]  # fmt: skip
STRUCTURE = ("found ", "unknown key ", "the key ")
values = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner),
    max_leaves=5,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items: Any = ()
    if isinstance(value, (dict, list)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
    inner = [place for key, item in items for place in places(item, (*path, key))]
    return [path, *inner] if path else inner


@pytest.mark.slow
@pytest.mark.parametrize("name", DOCUMENTS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(data=st.data())
def test_both_say_the_same_of_any_document(name: str, data: st.DataObject) -> None:
    document = copy.deepcopy(as_json(yaml.safe_load(DOCUMENTS[name])))
    for _ in range(data.draw(st.integers(0, 3))):
        where = data.draw(st.sampled_from(places(document) or [("x",)]))
        parent = document
        for key in where[:-1]:
            parent = parent[key]
        what = data.draw(st.sampled_from(["delete", "replace", "add"]))
        if what == "delete" and (isinstance(parent, dict) and where[-1] in parent):
            del parent[where[-1]]
        elif what == "add" and isinstance(parent, dict):
            parent[data.draw(st.sampled_from(KEYS))] = data.draw(values)
        elif not isinstance(parent, dict) or where[-1] in parent:
            parent[where[-1]] = data.draw(values)
    text = yaml.safe_dump(document, sort_keys=False)

    found = mistakes(text, name)
    seen = oracle(text, name)
    assert found or not seen, seen
    # What a text means is nothing that a schema knows.
    structural = [one for one in found if one.message.startswith(STRUCTURE)]
    assert seen or not structural, structural


@pytest.mark.parametrize(
    ("name", "old", "new", "expected"),
    [
        ("baselines", "tolerance_percent: 3", "tolerance_percent: 100",
         "found '100', a number; allowed: a finite number > 0 and < 100, in percent"),
        ("baselines", "runs: [2620.0, 2630.0]", "run: [1]", "unknown key 'run'; allowed: at"),
        ("baselines", '"2026-11-01T03:00:00+00:00"', "yesterday",
         "found 'yesterday', text; allowed: a time with its zone, such as 2026-11-21T03:00:00+00"),
        ("baselines", '"2026-11-01T03:00:00+00:00"', "2026-11-01T03:00:00",
         "found '2026-11-01T03:00:00', a date; allowed: a time with its zone"),
        ("baselines", "machine: {device: old}", "machine: old",
         "found 'old', text; allowed: a mapping with device, devices_per_node, interconnect, ne"),
        ("cluster", "systems: [a-b, c-d]", "systems: [3]",
         "found '3', a number; allowed: a system's name (quote it to make it text)"),
        ("cluster", "scratch: /local/scratch", "scratch: local/scratch",
         "found 'local/scratch', text; allowed: the absolute path of a folder"),
        ("cluster", "python: /conda/october/bin/python", "python: [a]",
         "found a list; allowed: text or a number (python is one value)"),
        ("cluster", "cuda: 10.20", "cuda: ~", "found '~', nothing; allowed: text or a number"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_in_words_and_refused_by_editors(
    name: str, old: str, new: str, expected: str
) -> None:
    assert old in DOCUMENTS[name]
    text = DOCUMENTS[name].replace(old, new, 1)
    assert oracle(text, name)
    found = mistakes(text, name)
    assert [one for one in found if one.message.partition(": ")[2].startswith(expected)]


def test_what_is_left_when_entries_are_deleted_is_no_mistake() -> None:
    head = TEXT[: TEXT.index("entries:")]
    for rest in (
        "entries:\n",
        "entries:\n  fp32-b1:\n",
        "entries: {a-b1: {1n1g: {throughput: {accepted: 1, sessions: }}}}",
    ):
        assert mistakes(head + rest, "baselines") == []
        assert oracle(head + rest, "baselines") == []


def test_structure_and_meaning_are_both_checked(tmp_path: Path) -> None:
    """A good structure whose meaning is none is told by the reader, with its place."""
    text = TEXT.replace("2026-11-01T03", "2026-02-31T03")
    assert oracle(text, "baselines") == []
    with pytest.raises(
        YamlError, match=r"sessions\[0\]\.at: '2026-02-31T03:00:00\+00:00' is not a t"
    ):
        read_contents(FILE, "paddle-resnet50", text=text)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "cluster.yaml").write_text(
        CLUSTER_TEXT.replace("bin/python}", 'bin/python, extra_args: "\'"}'), encoding="utf-8"
    )
    with pytest.raises(YamlError, match=r"\$\.control\.vars\.\*\.extra_args: the arguments cannot"):
        find_cluster(tmp_path, "a")


def test_a_cluster_names_its_accepted_software_and_its_machine(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "cluster.yaml").write_text(CLUSTER_TEXT, encoding="utf-8")

    cluster = find_cluster(tmp_path, "a")

    assert cluster.control is not None
    assert cluster.control.description == "the release of October"
    image, python = cluster.control.assignments
    assert (image.name, image.key, image.value) == ("container", "image", "october")
    assert (python.system, python.name, python.value) == (
        "*", "python", "/conda/october/bin/python",
    )  # fmt: skip
    assert cluster.machine == {
        "device": "Tesla V100-SXM2-16GB",
        "devices_per_node": "8",
        "interconnect": "nvlink",
    }
    assert cluster.software == {"cuda": "10.20"}
