"""``pytest-dlperf keys``: every key of a file, with its values, its meaning and its default."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from pytest_dlperf.baselines.schemas import schemas
from pytest_dlperf.command.keys import schema_keys
from pytest_dlperf.command.main import main
from pytest_dlperf.config.conditions import CONDITION, Condition
from pytest_dlperf.config.launch_spec import LaunchSpec, Variable
from pytest_dlperf.formats.declared import declared_metric
from pytest_dlperf.formats.log_format import custom_format


def described(rule: Any) -> set[str]:
    """The descriptions of all keys, wherever they stand."""
    if isinstance(rule, list):
        return set().union(*map(described, rule))
    if not isinstance(rule, dict):
        return set()
    own = {said["description"] for said in rule.get("properties", {}).values()}
    return own.union(*map(described, rule.values()))


@pytest.mark.parametrize("file", schemas())
def test_every_key_is_shown_once(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    schema = schemas()[file]
    assert main(["keys", file]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    paths = [key.path for key in schema_keys(schema)]
    assert [line.partition("  ")[0] for line in lines if line.partition("  ")[0] in paths] == paths
    assert {key.meaning for key in schema_keys(schema)} == described(schema.get("else", schema))


def test_a_key_is_shown_with_those_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "system", "launch.values"]) == 0
    assert (
        capsys.readouterr().out
        == """\
launch.values  mapping
    Values that differ between cases, by name. The first choice that holds is
    taken.
launch.values.<name>.value  text, required
    The value, in which {placeholders} may stand.
launch.values.<name>.when  mapping like launch.command.when
    The cases that it is for: all given keys must hold.
"""
    )


def test_a_key_that_no_file_has_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "cluster", "kubernets"]) == 2
    assert capsys.readouterr().err == (
        "pytest-dlperf keys: baselines/<cluster>/cluster.yaml has no key 'kubernets'; "
        "did you mean 'kubernetes'?\n"
    )


def test_the_defaults_are_the_code_s() -> None:
    said = {key.path: key.meaning for key in schema_keys(schemas()["system"])}
    log_format = inspect.signature(custom_format).parameters
    defaults = {
        "launch.variables.<name>.kind": Variable(meaning="").kind,
        "log.format.ranks": log_format["ranks"].default,
        "log.format.rate_scope": log_format["rate_scope"].default,
        "log.format.steps_in": log_format["steps_in"].default,
        "metrics.<name>.over": inspect.signature(declared_metric).parameters["over"].default,
        "launch.devices": LaunchSpec(command=()).devices,
        "launch.retries": LaunchSpec(command=()).retries,
    }
    for path, default in defaults.items():
        assert f"default: {getattr(default, 'value', default)}" in said[path]


def test_every_condition_of_a_launch_can_be_written() -> None:
    written = CONDITION.json_schema()["properties"]
    assert len(written) == len(Condition.__struct_fields__)
