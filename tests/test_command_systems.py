"""``pytest-dlperf systems``: what ships, and every key of a file with its meaning."""

import pytest

from pytest_dlperf.baselines.schemas import schemas
from pytest_dlperf.command.main import main
from pytest_dlperf.command.systems import schema_keys
from pytest_dlperf.config.extends import shipped_systems
from pytest_dlperf.config.launch_keys import Condition


def test_the_systems_that_ship_are_listed_with_what_they_are_for(capsys):
    assert main(["systems"]) == 0
    rows = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert [name for name, _ in rows] == list(shipped_systems())
    assert all(len(text) > 20 for _, text in rows)


def test_the_file_of_one_is_shown_as_it_is(capsys):
    assert main(["systems", "timm"]) == 0
    assert capsys.readouterr().out == shipped_systems()["timm"].read_text(encoding="utf-8")


def test_a_system_that_does_not_ship_is_refused_with_those_that_do(capsys):
    with pytest.raises(SystemExit):
        main(["systems", "timmy"])
    assert "timm" in capsys.readouterr().err


def described(rule):
    """The descriptions of all keys, wherever they stand."""
    if isinstance(rule, list):
        return set().union(*map(described, rule))
    if not isinstance(rule, dict):
        return set()
    own = {said["description"] for said in rule.get("properties", {}).values()}
    return own.union(*map(described, rule.values()))


@pytest.mark.parametrize("file", schemas())
def test_every_key_is_shown_once(file, capsys):
    schema = schemas()[file]
    assert main(["systems", "--keys", file]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    paths = [key.path for key in schema_keys(schema)]
    assert [line.partition("  ")[0] for line in lines if line.partition("  ")[0] in paths] == paths
    assert {key.meaning for key in schema_keys(schema)} == described(schema["$defs"])


def test_a_key_is_shown_with_those_below_it(capsys):
    assert main(["systems", "--keys", "system.launch.values"]) == 0
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


def test_a_key_that_no_file_has_is_refused(capsys):
    assert main(["systems", "--keys", "cluster.kubernets"]) == 2
    assert capsys.readouterr().err == (
        "pytest-dlperf systems: baselines/<cluster>/cluster.yaml has no key 'kubernets'; "
        "did you mean 'kubernetes'?\n"
    )


def test_the_default_of_a_key_is_shown(capsys):
    assert main(["systems", "--keys", "system.launch.retries"]) == 0
    assert capsys.readouterr().out.startswith("launch.retries  integer ≥ 0 and ≤ 100, default: 0\n")


def test_every_condition_of_a_launch_can_be_written():
    paths = {key.path for key in schema_keys(schemas()["system"])}
    for name in Condition.__struct_fields__:
        assert f"launch.command.when.{name}" in paths
