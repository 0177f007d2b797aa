"""What the user sets for launches: how it is said, what wins, and what is told when it is wrong."""

import re
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_dlperf.config.assignments import parse_assignment
from pytest_dlperf.config.conditions import Condition
from pytest_dlperf.config.launch_keys import ConditionalArguments, Variable, VariableKind
from pytest_dlperf.config.launch_spec import LaunchSpec
from pytest_dlperf.config.launch_variables import (
    LaunchVariables,
    check_assignments,
    resolve,
    unknown_engine_options,
)
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.errors import CannotMeasureError, UsageError

SYSTEM = "paddle-resnet50"
SPEC = LaunchSpec(
    command=(
        "{python}",
        "{checkout}/train.py",
        "--shards={shards}",
        ConditionalArguments(arguments=("{dali}",), when=Condition(option=("dali",))),
    ),
    variables={
        "checkout": Variable(meaning="the trainer's folder", kind=VariableKind.FOLDER),
        "shards": Variable(meaning="parts of the data", default="8"),
        "dali": Variable(meaning="the DALI file", kind=VariableKind.FILE),
    },
)
CASE = Case.from_id("paddle-resnet50-fp32-b128-1n1g")
WITH_DALI = replace(CASE, options=("dali",))


def said(*texts):
    return [parse_assignment(text) for text in texts]


def resolved(*sources, case=CASE):
    return resolve(SPEC, SYSTEM, sources, case=case)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a-b.data=/x", ("a-b", "data", "", "/x")),
        ("*.data=", ("*", "data", "", "")),
        ("a-b.data=x=y.z=w", ("a-b", "data", "", "x=y.z=w")),
        ("a-b.data= two  words ", ("a-b", "data", "", " two  words ")),
        ("a-b.data=one\ntwo", ("a-b", "data", "", "one\ntwo")),
        ("a-b.env.NAME=v", ("a-b", "env", "NAME", "v")),
        ("a-b.env.A.B=v=w", ("a-b", "env", "A.B", "v=w")),
        ("a-b.extra_args=-x 'a b' $HOME", ("a-b", "extra_args", "", ("-x", "a b", "$HOME"))),
        ("a-b.extra_args=", ("a-b", "extra_args", "", ())),
        ("a-b.python=python3.8", ("a-b", "python", "", "python3.8")),
        ("a-b.pause_s=0.5", ("a-b", "pause_s", "", "0.5")),
    ],
)
def test_an_assignment_is_a_system_a_name_and_a_value(text, expected):
    found = parse_assignment(text)
    assert (found.system, found.name, found.key, found.value) == expected
    assert found.place == f"--dlperf-set {text.partition('=')[0]}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "sets nothing; write SYSTEM.name=value"),
        ("data=/x", "sets nothing"),
        ("a-b.data", "sets nothing"),
        (".data=/x", "sets nothing"),
        ("a-b.=/x", "sets nothing"),
        ("a-b.env=1", "not the name of an environment variable; write env.NAME=value"),
        ("a-b.env.=1", "not the name of an environment variable"),
        ("a-b.extra_args='x", "the arguments cannot be told apart: No closing quotation"),
        ("a-b.pause_s=long", "pause_s must be a number of seconds ≥ 0"),
        ("a-b.pause_s=-1", "pause_s must be a number"),
        ("a-b.pause_s=nan", "pause_s must be a number"),
        ("a-b.python=", "python is empty"),
        ("a-b.working_directory=here", "working_directory must be an absolute path"),
    ],
)
def test_what_cannot_be_set_is_told(text, message):
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        parse_assignment(text)
    assert text.partition("=")[0] in str(caught.value)


@given(value=st.text(st.characters(exclude_characters="\0", codec="utf-8")))
def test_a_value_is_taken_as_it_is(value):
    variables = resolved(
        said(
            f"{SYSTEM}.checkout=/{value}",
            f"{SYSTEM}.env.A={value}",
            f"{SYSTEM}.extra_args={shlex.join([value, 'x'])}",
        )
    )
    assert variables.values["checkout"] == f"/{value}"
    assert variables.environment == {"A": value}
    assert variables.extra_arguments == (value, "x")


def test_nothing_said_leaves_the_defaults():
    variables = resolved(said(f"{SYSTEM}.checkout=/x"))
    assert variables == LaunchVariables(values={"checkout": "/x", "shards": "8"})


@pytest.mark.parametrize(
    ("command_line", "cluster", "expected"),
    [
        ([], [f"{SYSTEM}.shards=1", "*.shards=2"], "1"),
        ([], ["*.shards=2"], "2"),
        (["*.shards=3"], [f"{SYSTEM}.shards=1"], "3"),
        ([f"{SYSTEM}.shards=4", "*.shards=3"], [f"{SYSTEM}.shards=1"], "4"),
        ([f"{SYSTEM}.shards=4", f"{SYSTEM}.shards=5"], [], "5"),
        (["other-system.shards=9"], [], "8"),
    ],
)
def test_the_command_line_wins_over_the_cluster_and_a_system_over_all_of_them(
    command_line, cluster, expected
):
    variables = resolved(said(*command_line, f"{SYSTEM}.checkout=/x"), said(*cluster))
    assert variables.values["shards"] == expected


def test_the_environment_is_put_together_name_by_name_and_arguments_as_a_whole():
    variables = resolved(
        said(f"{SYSTEM}.checkout=/x", f"{SYSTEM}.env.A=1", "*.extra_args=--a"),
        said(f"{SYSTEM}.env.A=2", "*.env.B=3", f"{SYSTEM}.extra_args=--b", "*.pause_s=20"),
        said("*.python=/old", "*.pause_s=1"),
    )
    assert variables.environment == {"A": "1", "B": "3"}
    assert variables.extra_arguments == ("--a",)
    assert (variables.pause_s, variables.python) == (20.0, "/old")


def test_a_folder_to_start_in_is_for_systems_that_name_none():
    for_all = said("*.working_directory=/base", f"{SYSTEM}.checkout=/x")
    assert resolved(for_all).working_directory == "/base"
    own = replace(SPEC, working_directory="{checkout}")
    assert resolve(own, SYSTEM, [for_all], case=CASE).working_directory is None
    with pytest.raises(UsageError, match=r"says itself where it starts: \{"):
        resolve(own, SYSTEM, [said(f"{SYSTEM}.working_directory=/base", f"{SYSTEM}.checkout=/x")])


def test_a_missing_variable_is_told_with_its_meaning_and_its_setting():
    with pytest.raises(CannotMeasureError) as caught:
        resolved(case=WITH_DALI)
    assert str(caught.value) == (
        "paddle-resnet50-fp32-b128-dali-1n1g needs checkout (the trainer's folder): --dlperf-set "
        "paddle-resnet50.checkout=FOLDER; dali (the DALI file): --dlperf-set "
        "paddle-resnet50.dali=FILE; or under vars, paddle-resnet50 in the cluster's cluster.yaml"
    )


def test_a_case_needs_the_variables_that_it_uses_and_a_system_all():
    assert "dali" not in resolved(said("*.checkout=/x")).values
    for case in (WITH_DALI, None):
        with pytest.raises(CannotMeasureError, match=r"needs dali \("):
            resolved(said("*.checkout=/x"), case=case)


def test_a_relative_path_is_refused_with_its_place():
    given = said(f"{SYSTEM}.checkout=models")
    with pytest.raises(UsageError) as caught:
        resolved(given)
    [told_before] = check_assignments({SYSTEM: SPEC}, [given])
    assert (
        str(told_before)
        == str(caught.value)
        == (
            "--dlperf-set paddle-resnet50.checkout: it is not the absolute path of a folder; "
            "paddle-resnet50.checkout is: the trainer's folder"
        )
    )


def test_an_unknown_name_is_told_with_the_nearest_but_not_if_it_is_for_all_systems():
    with pytest.raises(UsageError) as caught:
        resolved(said(f"{SYSTEM}.chekout=/x", "*.surprise=1"))
    assert str(caught.value) == (
        "--dlperf-set paddle-resnet50.chekout: paddle-resnet50 has no variable 'chekout'; did "
        "you mean 'checkout'?; what can be set: checkout, shards, dali, extra_args, env, python, "
        "working_directory, pause_s, slurm, container"
    )


def test_a_message_never_holds_what_may_be_a_password():
    [token] = said("paddle-resnet5.env.TOKEN=hunter2")
    for wrong in (["paddle-resnet50.env.=hunter2"], ["TOKEN=hunter2"]):
        with pytest.raises(ValueError, match=r".") as told:
            said(*wrong)
        assert "hunter2" not in str(told.value)
    [problem] = check_assignments({SYSTEM: SPEC}, [[token]])
    assert "hunter2" not in str(problem)


@pytest.mark.parametrize(
    "name",
    [
        "pause_s", "working_directory", "checkout", "unknown", "container.runtime", "slurm.srn",
        "container.mounts", "env.A B", "extra_args", "pbs.queue",
    ],
)  # fmt: skip
def test_no_message_has_a_value_that_was_set(name):
    try:
        given = said(f"{SYSTEM}.{name}=hunter2 '")
        message = "\n".join(map(str, check_assignments({SYSTEM: SPEC}, [given])))
        message += "\n".join(map(str, unknown_engine_options([given], ["slurm.srun"])))
    except ValueError as error:
        message = str(error)
    assert name.partition(".")[0] in message
    assert "hunter2" not in message


def test_what_is_set_for_nothing_that_there_is_is_told_all_at_once():
    specs = {SYSTEM: SPEC, "plain-line": LaunchSpec(command=("x",)), "only-logs": None}
    right = [said(f"{SYSTEM}.shards=1", "*.dali=/x"), said("plain-line.env.A=1")]
    assert not list(check_assignments(specs, right))
    wrong = [
        said("paddle-resnet5.shards=1", "*.shard=1", "plain-line.shards=1"),
        said("only-logs.env.A=1"),
    ]
    lines = list(map(str, check_assignments(specs, wrong)))
    assert len(lines) == 4
    assert "unknown system 'paddle-resnet5'; did you mean 'paddle-resnet50'?" in lines[0]
    assert "* has no variable 'shard'; did you mean 'shards'?" in lines[1]
    assert "plain-line has no variable 'shards'; what can be set: extra_args, env," in lines[2]
    assert "only-logs has no launch to set anything for" in lines[3]


def test_the_variables_that_a_case_needs_are_known():
    assert "dali" not in SPEC.variables_of(CASE)
    assert {"checkout", "dali"} <= set(SPEC.variables_of(WITH_DALI))
