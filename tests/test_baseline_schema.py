"""The schemas of YAML files: what editors say of a file is what the loader says of it."""

from __future__ import annotations

import copy
import datetime as dt
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import yaml
from baseline_texts import TEXT
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_dlperf.baselines.reading import read_system_baselines
from pytest_dlperf.config.cluster import find_cluster
from pytest_dlperf.config.schema import BASELINES_SCHEMA, CLUSTER_SCHEMA, schema
from pytest_dlperf.files.yamlfile import Problem, YamlError, YamlValue, load
from pytest_dlperf.files.yamlschema import check

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
SCHEMAS = (BASELINES_SCHEMA, CLUSTER_SCHEMA)
FILE = Path("paddle-resnet50.yaml")

CLUSTER_TEXT = """\
description: the office
estimator: steady
systems: [a-b, c-d]
devices_per_node: 8
python: /usr/bin/python3.6
vars:
  "*": {extra_args: "--a 'b c'", pause_s: 20}
  paddle-resnet50:
    checkout: /models
    extra_args: [--a, b c, 1]
    env: {NCCL_DEBUG: INFO, LIMIT: 0.80}
control:
  description: the release of October
  vars:
    "*": {python: /conda/october/bin/python}
machine: {device: Tesla V100-SXM2-16GB, devices_per_node: 8, interconnect: nvlink}
hardware: {nodes: 4, disks: yes}
software: {cuda: 10.20}
"""


def mistakes(text: str, name: str) -> list[Problem]:
    """What the project's own check finds."""
    try:
        load(FILE, lambda root: check(root, schema(name)), text=text)
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


def oracle(text: str, name: str) -> list[str]:
    """What the jsonschema package finds."""
    validator = jsonschema.Draft202012Validator(schema(name))
    return [str(error) for error in validator.iter_errors(as_json(yaml.safe_load(text)))]


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_one(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schema(name))


def rules(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
        for item in node.values():
            yield from rules(item)
    elif isinstance(node, list):
        for item in node:
            yield from rules(item)


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_key_is_described_for_editors(name: str) -> None:
    whole = schema(name)
    for rule in rules(whole):
        for key, said in rule.get("properties", {}).items():
            target = whole["$defs"].get(said.get("$ref", "").removeprefix("#/$defs/"), {})
            described = "description" in {**target, **said}
            assert described or key in {"entries", "description"}, key


@pytest.mark.parametrize(
    ("file", "name"),
    [
        *((file, BASELINES_SCHEMA) for file in sorted(ROOT.glob("baselines/*/*-*.yaml"))),
        *((file, CLUSTER_SCHEMA) for file in sorted(ROOT.glob("baselines/*/cluster.yaml"))),
    ],
    ids=lambda value: value.name if isinstance(value, Path) else "",
)
def test_the_published_files_are_good_to_both_and_name_their_schema(file: Path, name: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert mistakes(text, name) == []
    assert oracle(text, name) == []
    way = text.splitlines()[0].removeprefix("# yaml-language-server: $schema=")
    assert json.loads((file.parent / way).read_text(encoding="utf-8")) == schema(name)


# ---------------------------------------------------------------------------- the same answer

DOCUMENTS = {BASELINES_SCHEMA: TEXT, CLUSTER_SCHEMA: CLUSTER_TEXT}
SCALARS: list[Any] = [
    None, True, 0, -1, 1, 8, 99, 100, 101, 0.5, 1e-9, "", " ", "x", "steady", "published",
    "1n8g", "fp32-b128", "2026-11-21T03:00:00Z", "2026-11-21", "sha256:00", "sha256:" + "f" * 64,
]  # fmt: skip
KEYS = ["throughput", "speedup", "env", "A=B", "vars", "1", "0", "x", "at", "runs", "1n1g", "1n0g",
        "fp32-b1", "fp32", "device", "note", "machine"]  # fmt: skip
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


@pytest.mark.parametrize("name", SCHEMAS)
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=200
)
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

    assert bool(mistakes(text, name)) == bool(oracle(text, name)), text


@pytest.mark.parametrize(
    ("name", "old", "new", "expected"),
    [
        (BASELINES_SCHEMA, "throughput: 2626\n", "throughput: [1]\n", "found a list; allowed: a "),
        (BASELINES_SCHEMA, "tolerance_percent: 3", "tolerance_percent: 100",
         "found '100', a number; allowed: a finite number above 0 and below 100, in percent"),
        (BASELINES_SCHEMA, "tolerance_percent: 3", "tolerance: 3",
         "unknown key 'tolerance'; allowed: throughput, speedup, mean, runs, strays, sessions, to"),
        (BASELINES_SCHEMA, "runs: [2620.0, 2630.0]", "runs: []",
         "found an empty list; allowed: a list of throughputs"),
        (BASELINES_SCHEMA, "runs: [2620.0, 2630.0]", "run: [1]", "unknown key 'run'; allowed: at"),
        (BASELINES_SCHEMA, '"2026-11-01T03:00:00+00:00"', "yesterday",
         "found 'yesterday', text; allowed: a time with its zone, such as 2026-11-21T03:00:00+00"),
        (BASELINES_SCHEMA, '"2026-11-01T03:00:00+00:00"', "2026-11-01T03:00:00",
         "found '2026-11-01T03:00:00', a date; allowed: a time with its zone"),
        (BASELINES_SCHEMA, "machine: {device: old}", "machine: {devices: old}",
         "unknown key 'devices'; allowed: device, devices_per_node, interconnect, network; did"),
        (BASELINES_SCHEMA, "machine: {device: old}", "machine: old",
         "found 'old', text; allowed: a mapping with device, devices_per_node, interconnect, ne"),
        (BASELINES_SCHEMA, "reason: first", "logs: abc",
         "found 'abc', text; allowed: 'sha256:' and 64 hexadecimal digits"),
        (CLUSTER_SCHEMA, "systems: [a-b, c-d]", "systems: []",
         "found an empty list; allowed: a list of systems"),
        (CLUSTER_SCHEMA, "systems: [a-b, c-d]", "systems: [3]",
         "found '3', a number; allowed: a system's name (quote it to make it text)"),
        (CLUSTER_SCHEMA, "python: /conda/october/bin/python", "python: [a]",
         "found a list; allowed: text or a number (python is one value)"),
        (CLUSTER_SCHEMA, "control:\n", "control:\n  var: 1\n", "unknown key 'var'; allowed: vars,"),
        (CLUSTER_SCHEMA, "cuda: 10.20", "cuda: ~", "found '~', nothing; allowed: text or a number"),
        (CLUSTER_SCHEMA, "estimator: steady", "estimator: study",
         "found 'study', text; allowed: published, steady; did you mean 'steady'?"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_in_words(name: str, old: str, new: str, expected: str) -> None:
    text = DOCUMENTS[name]
    assert old in text
    found = mistakes(text.replace(old, new, 1), name)
    assert [one.message for one in found if one.message.startswith(expected)]


def test_what_is_left_when_entries_are_deleted_is_no_mistake() -> None:
    head = TEXT[: TEXT.index("entries:")]
    for rest in (
        "entries:\n",
        "entries:\n  fp32-b1:\n",
        "entries: {a-b1: {1n1g: {throughput: 1, sessions: }}}",
    ):
        assert mistakes(head + rest, BASELINES_SCHEMA) == []
        assert oracle(head + rest, BASELINES_SCHEMA) == []


def test_structure_and_meaning_are_both_checked(tmp_path: Path) -> None:
    """A good structure whose meaning is none is told by the loader, with its place."""
    text = TEXT.replace("2026-11-01T03", "2026-02-31T03")
    assert mistakes(text, BASELINES_SCHEMA) == []
    with pytest.raises(YamlError, match=r"sessions\[0\]\.at: '2026-02-31T03:00:00\+00:00' is no t"):
        load(FILE, lambda root: read_system_baselines(root, "paddle-resnet50", {}), text=text)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "cluster.yaml").write_text(
        CLUSTER_TEXT.replace("bin/python}", 'bin/python, extra_args: "\'"}'), encoding="utf-8"
    )
    with pytest.raises(YamlError, match=r"\$\.control\.vars\.\*\.extra_args: the arguments cannot"):
        find_cluster(tmp_path, "a", local="local")


def test_a_cluster_names_its_accepted_software_and_its_machine(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "cluster.yaml").write_text(CLUSTER_TEXT, encoding="utf-8")

    cluster = find_cluster(tmp_path, "a", local="local")

    assert cluster.control is not None
    assert cluster.control.description == "the release of October"
    [python] = cluster.control.assignments
    assert (python.system, python.name, python.value) == (
        "*", "python", "/conda/october/bin/python",
    )  # fmt: skip
    assert cluster.machine == {
        "device": "Tesla V100-SXM2-16GB",
        "devices_per_node": "8",
        "interconnect": "nvlink",
    }
    assert cluster.software == {"cuda": "10.20"}


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"type": "object", "oneOf": []}, "keywords that are not known here: ['oneOf']"),
        ({"$ref": "#/$defs/a"}, "'#/$defs/a' is not defined"),
        ({"$ref": "#/$defs/b", "minimum": 1}, "beside a $ref only words may stand"),
        ({"type": "number", "minimum": 5}, "no scalar is read like this here"),
    ],
)
def test_a_schema_that_says_more_is_refused(rule: dict[str, Any], message: str) -> None:
    whole = {"additionalProperties": rule, "type": "object", "$defs": {"b": {"type": "string"}}}
    with pytest.raises(ValueError, match=re.escape(message)):
        load(FILE, lambda root: check(root, whole), text="a: 1\n")


def test_patterns_of_names_and_yes_or_no_and_whole_numbers_are_known() -> None:
    rule = {
        "type": "object",
        "patternProperties": {"^is_": {"type": "boolean"}, "_s$": {"type": "number", "minimum": 0}},
        "properties": {"count": {"type": "integer", "minimum": 2}},
        "additionalProperties": False,
    }

    def told(text: str) -> list[str]:
        found: list[Problem] = []

        def look(root: YamlValue) -> None:
            check(root, rule)

        try:
            load(FILE, look, text=text)
        except YamlError as error:
            found = list(error.problems)
        yes = not list(jsonschema.Draft202012Validator(rule).iter_errors(yaml.safe_load(text)))
        assert yes == (not found)
        return [one.path for one in found]

    assert told("{is_a: yes, wait_s: 0, count: 2}") == []
    assert told("{is_a: 1, wait_s: -1, count: 1, other: 1}") == [
        "$.is_a", "$.wait_s", "$.count", "$.other",
    ]  # fmt: skip
    assert told("{is_wait_s: 1}") == ["$.is_wait_s"]
