"""The schemas of YAML files: what editors say of a file."""

import datetime as dt
import json
from pathlib import Path

import jsonschema
import pytest
import yaml
from hand_written import DOCUMENTS

from pytest_dlperf.baselines.schemas import schema_text, schemas
from pytest_dlperf.config.extends import SHIPPED

ROOT = Path(__file__).parent.parent


def as_json(value):
    """What an editor sees in place of what YAML 1.1 has beside: text keys, dates as text."""
    if isinstance(value, dict):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_json(item) for item in value]
    return str(value) if isinstance(value, dt.date) else value


VALIDATORS = {
    name: jsonschema.Draft202012Validator(json.loads(schema_text(name))) for name in schemas()
}


def oracle(text, name):
    """What the jsonschema package finds."""
    document = as_json(yaml.load(text, yaml.CSafeLoader))
    return [f"{it.json_path}: {it.message}" for it in VALIDATORS[name].iter_errors(document)]


@pytest.mark.parametrize("name", schemas())
def test_a_schema_is_one(name):
    jsonschema.Draft202012Validator.check_schema(json.loads(schema_text(name)))


def rules(node):
    if isinstance(node, dict):
        yield node
        for item in node.values():
            yield from rules(item)
    elif isinstance(node, list):
        for item in node:
            yield from rules(item)


@pytest.mark.parametrize("name", schemas())
def test_every_key_is_described_for_editors(name):
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
def test_the_files_of_the_project_are_good_to_editors_and_name_their_schema(file, name):
    text = file.read_text(encoding="utf-8")
    assert oracle(text, name) == []
    way = text.splitlines()[0].removeprefix("# yaml-language-server: $schema=")
    # Where recording a baseline writes it.
    assert (file.parent / way).resolve() == ROOT / "baselines" / ".schema" / f"{name}.json"


@pytest.mark.parametrize("file", sorted(SHIPPED.glob("*.yaml")), ids=lambda file: file.name)
def test_the_systems_that_ship_are_good_to_editors(file):
    """They lack what a file says that extends one."""
    assert oracle(f"extends: x\n{file.read_text(encoding='utf-8')}", "system") == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_file_with_most_keys_is_good_to_editors(name):
    assert oracle(DOCUMENTS[name], name) == []


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("baselines", "tolerance_percent: 3", "tolerance_percent: 100"),
        ("baselines", "runs: [2620.0, 2630.0]", "run: [1]"),
        ("baselines", '"2026-11-01T03:00:00+00:00"', "yesterday"),
        ("baselines", "machine: {device: old}", "machine: old"),
        ("baselines", "speedup: 1.0", "speedup: fast"),
        ("cluster", "scratch: /local/scratch", "scratch: local/scratch"),
        ("cluster", "cuda: 10.20", "cuda: ~"),
        ("cluster", "runtime: docker", "runtime: dokcer"),
        ("system", "devices: gpu", "devices: gpus"),
        ("system", "launch:", "launch:\n  environments: {A: 1}"),
        ("system", "model: resnet50\n", ""),
        ("system", "framework: pytorch\n", "extends: x\nunknown: 1\n"),
    ],
)
def test_a_mistake_is_one_to_editors(name, old, new):
    assert DOCUMENTS[name].count(old) >= 1
    assert oracle(DOCUMENTS[name].replace(old, new, 1), name)


def test_what_is_left_when_entries_are_deleted_is_no_mistake():
    head = DOCUMENTS["baselines"].partition("entries:")[0]
    for rest in (
        "entries:\n",
        "entries:\n  fp32-b1:\n",
        "entries: {a-b1: {1n1g: {throughput: {accepted: 1, sessions: }}}}",
    ):
        assert oracle(head + rest, "baselines") == []
