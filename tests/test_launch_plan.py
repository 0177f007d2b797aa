"""What each node of a run executes, and what is said about a launch entry that is wrong."""

import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_dlperf.config.launch import Launch
from pytest_dlperf.config.launch_keys import (
    Choice,
    Condition,
    ConditionalArguments,
    StartOn,
    Variable,
    VariableKind,
)
from pytest_dlperf.config.settings import LaunchVariables
from pytest_dlperf.config.template import FIELDS, case_fields
from pytest_dlperf.files.yamlfile import dotted
from pytest_dlperf.launch.hosts import Host, Node
from pytest_dlperf.launch.plan import endpoint, plan_run
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import Window

CASE = Case.from_id("pytorch-resnet18-fp32-b8-s128-2n4g")
WINDOW = Window(warmup_steps=5, measured_steps=15)
LOG = Path("/runs/pytorch-resnet18/2n4g/r18_b8_fp32_3.log")
NOBODY_SET_ANYTHING = LaunchVariables()
ADDRESSES = ("10.0.0.1", "10.0.0.2")
CONFINED = {"CUDA_VISIBLE_DEVICES": "4,5,6,7"}


def made_nodes(*addresses, devices=4):
    return tuple(
        Node(
            host=Host(name=f"me@host{rank}", address=address),
            port=29400 + rank,
            first_port=20400,
            device_ids=tuple(range(4, 4 + devices)),
            folder=f"/own/{rank}",
        )
        for rank, address in enumerate(addresses)
    )


def spec(*arguments):
    return Launch(command=("trainer", *arguments))


def planned(
    entry,
    *,
    case=CASE,
    nodes=None,
    variables=NOBODY_SET_ANYTHING,
    log=LOG,
):
    return plan_run(
        entry,
        case=case,
        window=WINDOW,
        settling_steps=6,
        system_directory=Path("/suite/systems"),
        run=3,
        nodes=made_nodes(*ADDRESSES) if nodes is None else nodes,
        variables=variables,
        python="/usr/bin/python3",
        log=log,
    )


def messages(entry):
    return [f"{dotted(path[1:])[2:]} {message}" for path, message in entry.problems()]


def test_every_node_runs_the_same_command_with_its_own_rank_and_address():
    first, second = planned(spec("--rank={node_rank}", "--ip", "{node_address}"))
    assert first.arguments == ("trainer", "--rank=0", "--ip", "10.0.0.1")
    assert second.arguments == ("trainer", "--rank=1", "--ip", "10.0.0.2")
    assert (first.node_rank, first.host, first.address) == (0, "me@host0", "10.0.0.1")
    assert (second.node_rank, second.host, second.address) == (1, "me@host1", "10.0.0.2")


def test_a_command_for_the_head_is_started_once_and_knows_all_nodes():
    entry = replace(
        Launch(command=("mpirun", "-np", "{world_size}", "-H", "{host_slots}", "train")),
        start_on=StartOn.HEAD,
    )
    (command,) = planned(entry)
    assert command.arguments == ("mpirun", "-np", "8", "-H", "10.0.0.1:4,10.0.0.2:4", "train")
    assert (command.host, command.log) == ("me@host0", LOG)


def test_only_the_main_log_lies_where_the_logs_of_runs_are_looked_for():
    first, second = planned(spec())
    assert first.log == LOG
    assert second.log == LOG.parent / "r18_b8_fp32_3" / "node1.log"


@pytest.mark.parametrize(
    ("field", "value"),
    {
        "python": "/usr/bin/python3",
        "framework": "pytorch",
        "model": "resnet18",
        "precision": "fp32",
        "nodes": "2",
        "devices_per_node": "4",
        "world_size": "8",
        "node_rank": "1",
        "node_address": "10.0.0.2",
        "master_address": "10.0.0.1",
        "master_port": "29400",
        "master_endpoint": "10.0.0.1:29400",
        "first_port": "20400",
        "node_port": "29401",
        "node_addresses": "10.0.0.1,10.0.0.2",
        "node_endpoints": "10.0.0.1:29400,10.0.0.2:29401",
        "host_slots": "10.0.0.1:4,10.0.0.2:4",
        "device_ids": "4,5,6,7",
        "scratch_directory": "/own/1/scratch",
        "replicas": "8",
        "batch_per_device": "8",
        "batch_per_replica": "8",
        "sequence_length": "128",
        "tp": "1",
        "pp": "1",
        "cp": "1",
        "ep": "1",
        "batch_per_node": "32",
        "global_batch": "64",
        "warmup_steps": "5",
        "measured_steps": "15",
        "steps": "26",
        "options": "",
        "system_directory": "/suite/systems",
        "run": "3",
        "run_directory": "/runs/pytorch-resnet18/2n4g/r18_b8_fp32_3",
    }.items(),
)
def test_a_field_becomes_its_value_wherever_it_may_stand(field, value):
    entry = Launch(
        command=("trainer", f"--x={{{field}}}"),
        environment={"X": f"<{{{field}}}>"},
        working_directory=f"/folder/{{{field}}}",
    )
    assert not messages(entry)
    node = planned(entry)[1]
    assert node.arguments == ("trainer", f"--x={value}")
    assert node.environment == {**CONFINED, "X": f"<{value}>"}
    assert node.working_directory == f"/folder/{value}"


@pytest.mark.parametrize(
    ("case_id", "has"),
    [
        ("pytorch-llama-bf16-gb64-2n4g", {"batch_per_device": 8, "batch_per_node": 32}),
        ("pytorch-llama-bf16-b8-tp2_pp2-2n4g", {"batch_per_device": None, "batch_per_node": 8}),
        ("pytorch-llama-bf16-b8-pp8-2n4g", {"batch_per_device": None, "batch_per_node": None}),
        ("pytorch-llama-bf16-b8-ep4-2n4g", {"batch_per_device": 8, "batch_per_node": 32}),
    ],
)
def test_a_device_and_a_node_have_a_batch_where_replicas_are_whole(case_id, has):
    fields = case_fields(Case.from_id(case_id))
    assert {name: fields[name] for name in has} == has


def test_no_field_is_left_out_of_plans():
    node = planned(spec(*(f"{{{field}}}" for field in FIELDS)))[0]
    assert len(node.arguments) == 1 + len(FIELDS)


@pytest.mark.parametrize(
    ("template", "becomes"),
    {
        "{batch_per_node/1000}": "0.032",
        "{batch_per_device/3}": "2.6666666666666665",
        "{world_size / 4}": "2",
        "{batch_per_node*0.1}": "3.2",
        "{global_batch/world_size}": "8",
        "{batch_per_replica/sequence_length}": "0.0625",
        "lr={global_batch/1000},{run}": "lr=0.064,3",
    }.items(),
)
def test_numbers_can_be_reckoned_with(template, becomes):
    assert planned(spec(template))[1].arguments[1] == becomes


@pytest.mark.parametrize(
    "template", ["{model*2}", "{node_addresses+1}", "{device_ids-1}", "{steps/model}"]
)
def test_what_is_no_number_cannot_be_reckoned_with(template):
    (problem,) = messages(spec(template))
    assert f"in {template}, which is no number" in problem


@pytest.mark.parametrize("divisor", ["0.0", "node_rank", "warmup_steps"])
def test_nothing_is_divided_by_zero(divisor):
    template = f"{{steps/{divisor}}}"
    (problem,) = messages(spec(template))
    assert problem == f"command[1] {template!r} divides by zero in {template}"


@given(
    field=st.sampled_from([field for field, kind in FIELDS.items() if kind is int]),
    operator=st.sampled_from("+-*/"),
    number=st.one_of(
        st.decimals(0, 10**14, places=3).map(str),
        st.sampled_from([field for field, kind in FIELDS.items() if kind is int]),
    ),
)
def test_every_reckoning_that_is_no_problem_has_a_result(field, operator, number):
    entry = spec(f"{{{field}{operator}{number}}}")
    if not messages(entry):
        float(planned(entry)[1].arguments[1])


def test_ipv6_addresses_are_in_brackets_where_a_number_follows():
    entry = spec("{node_endpoints}", "{host_slots}", "tcp://{master_endpoint}", "{master_address}")
    node = planned(entry, nodes=made_nodes("fd00::1", "fd00::2"))[1]
    assert node.arguments[1:] == (
        "[fd00::1]:29400,[fd00::2]:29401",
        "[fd00::1]:4,[fd00::2]:4",
        "tcp://[fd00::1]:29400",
        "fd00::1",
    )
    assert endpoint("host", 1) == "host:1"


@pytest.mark.parametrize(
    ("when", "holds"),
    [
        (Condition(precision=("fp16", "fp32")), True),
        (Condition(without_precision=("fp32",)), False),
        (Condition(option=("dali", "xla")), True),
        (Condition(option=("dali", "static")), False),
        (Condition(without_option=("static", "xla")), False),
        (Condition(nodes=("2+",)), True),
        (Condition(nodes=("3+",)), False),
        (Condition(devices_per_node=("2", "8")), False),
        (Condition(world_size=("8",), option=("xla",)), True),
        (Condition(world_size=("8",), option=("static",)), False),
    ],
)
def test_a_condition_holds_when_all_that_it_says_is_so(when, *, holds):
    case = Case.from_id("pytorch-resnet18-fp32-b8-dali+xla-2n4g")
    entry = Launch(command=("t", ConditionalArguments(arguments=("--a", "{nodes}"), when=when)))
    expected = ("t", "--a", "2") if holds else ("t",)
    assert planned(entry, case=case)[0].arguments == expected


@pytest.mark.parametrize("text", ["0", "2-", "two", "02", "2++"])
def test_what_is_no_count_is_refused(text):
    with pytest.raises(msgspec.ValidationError, match="nodes"):
        msgspec.convert({"nodes": text}, Condition, strict=False)


def test_the_first_choice_that_fits_is_taken_and_none_leaves_the_environment_alone():
    many, one = ("2+",), ("1",)
    entry = Launch(
        command=("t", "{threads}{threads}"),
        values={
            "threads": (
                Choice(value="{nodes}x", when=Condition(nodes=many)),
                Choice(value="never", when=Condition(devices_per_node=("4",))),
                Choice(value="one"),
            )
        },
        environment={
            "ALONE": (Choice(value="1", when=Condition(nodes=one)),),
            "TOGETHER": (Choice(value="{threads}", when=Condition(nodes=many)),),
        },
    )
    node = planned(entry)[0]
    assert node.arguments == ("t", "2x2x")
    assert node.environment == {**CONFINED, "TOGETHER": "2x"}


def test_a_value_without_a_choice_for_the_case_is_not_planned():
    entry = Launch(
        command=("t", "{threads}"),
        values={"threads": (Choice(value="1", when=Condition(nodes=("1",))),)},
    )
    assert not messages(entry)
    [(path, message)] = entry.case_problems(CASE)
    assert path == ("launch", "values", "threads")
    assert "has no choice for pytorch-resnet18-" in message


def test_what_the_user_sets_is_in_the_plan():
    entry = Launch(
        command=("{python}", "{data}/train"),
        environment={"A": "{data}", "B": "1"},
        working_directory="{data}",
        variables={"data": Variable(meaning="the data", kind=VariableKind.FOLDER)},
    )
    variables = LaunchVariables(
        values={"data": "/data"},
        extra_args=("--x", "{nodes}"),
        env={"B": "2", "C": "{model}"},
        python="/opt/python",
    )
    node = planned(entry, variables=variables)[0]
    assert node.arguments == ("/opt/python", "/data/train", "--x", "{nodes}")
    assert node.environment == {**CONFINED, "A": "/data", "B": "2", "C": "{model}"}
    assert node.working_directory == "/data"


def test_extra_arguments_go_where_the_command_says():
    variables = LaunchVariables(extra_args=("-a", "b c"))
    entry = spec("--x", "{extra_arguments}", "DATA")
    assert planned(entry, variables=variables)[0].arguments == (
        "trainer", "--x", "-a", "b c", "DATA",
    )  # fmt: skip
    assert planned(entry)[0].arguments == ("trainer", "--x", "DATA")


def test_extra_arguments_are_no_part_of_another_argument_and_go_to_one_place():
    part, twice = spec("--x={extra_arguments}"), spec("{extra_arguments}", "{extra_arguments}")
    assert "can only be a whole argument" in messages(part)[0]
    assert messages(twice) == [
        "command has {extra_arguments} twice; what it stands for goes to one place"
    ]


def test_only_the_variables_that_a_case_uses_are_needed():
    xla = Condition(option=("xla",))
    entry = Launch(
        command=("t", ConditionalArguments(arguments=("{tool}",), when=xla), "{how}"),
        variables={name: Variable(meaning=name) for name in ("unused", "deep", "tool", "folder")},
        values={"how": (Choice(value="{deep}", when=xla), Choice(value="none"))},
        working_directory="{folder}",
    )
    assert entry.variables_of(CASE) == ("folder",)
    assert entry.variables_of(replace(CASE, options=("xla",))) == ("deep", "tool", "folder")


def test_a_run_directory_is_absolute_so_that_it_holds_in_any_working_directory():
    node = planned(spec("{run_directory}"), log=Path("runs/r18_b8_fp32_3.log"))[0]
    assert node.arguments[1] == str(Path.cwd() / "runs" / "r18_b8_fp32_3")
    assert node.log.is_absolute()


def test_doubled_braces_are_literal_ones():
    node = planned(spec('{{"lr": 0.1}}', "{{model}}", "{{{model}}}"))[0]
    assert node.arguments[1:] == ('{"lr": 0.1}', "{model}", "{resnet18}")


any_text = st.text(st.characters(exclude_characters="\0", codec="utf-8"))


@given(value=any_text, host=any_text, extra=st.lists(any_text))
def test_values_and_hosts_stay_in_their_arguments_whatever_is_in_them(value, host, extra):
    entry = Launch(
        command=("trainer", "{v}", "--v={v}{v}", "--n={n}", "{node_address}", "last"),
        environment={"V": "{v}"},
        variables={"v": Variable(meaning="anything")},
        values={"n": (Choice(value="<{v}>"),)},
        working_directory="/{v}",
    )
    variables = LaunchVariables(values={"v": value}, extra_args=tuple(extra))
    nodes = made_nodes(host, "10.0.0.2")
    node = planned(entry, variables=variables, nodes=nodes)[0]
    own = (value, f"--v={value}{value}", f"--n=<{value}>", host, "last")
    assert node.arguments == ("trainer", *own, *extra)
    assert node.environment == {**CONFINED, "V": value}
    assert node.working_directory == f"/{value}"


@pytest.mark.parametrize(
    ("entry", "path"),
    [
        (Launch(command=("trainer", "--b={batch_per_devise}")), "command[1]"),
        (
            Launch(command=("trainer",), environment={"B": "{batch_per_devise}"}),
            "environment.B",
        ),
        (
            Launch(command=("trainer",), working_directory="/{batch_per_devise}"),
            "working_directory",
        ),
    ],
)
def test_an_unknown_placeholder_is_named_with_its_place_and_what_may_be_meant(entry, path):
    (problem,) = messages(entry)
    assert problem.startswith(f"{path} ")
    assert "unknown placeholder {batch_per_devise}; did you mean 'batch_per_device'?" in problem
    assert all(field in problem for field in FIELDS)


@pytest.mark.parametrize(
    "placeholder",
    [
        *("{}", "{model!r}", "{case.model}", "{ steps}", "{1+steps}", "{steps+1+1}", "{steps*1e9}"),
    ],
)
def test_only_names_and_one_step_of_arithmetic_are_placeholders(placeholder):
    (problem,) = messages(spec(placeholder))
    assert f"unknown placeholder {placeholder}" in problem


@pytest.mark.parametrize(
    ("argument", "brace", "position"),
    [("--x={model", "{", 5), ("ab}", "}", 3), ("{{model}", "}", 8), ("{ {model}", "{", 1)],
)
def test_a_single_brace_is_pointed_at(argument, brace, position):
    (problem,) = messages(spec(argument))
    assert f"command[1] {argument!r} has a single {brace!r} at character {position}" in problem
    assert repr(brace * 2) in problem


def test_what_no_process_could_be_started_with_is_a_problem():
    for command in ((), ("", "x"), ("{extra_arguments}",)):
        (problem,) = messages(Launch(command=command))
        assert "names no program" in problem


@pytest.mark.parametrize("name", ["nodes", "env"])
def test_a_variable_needs_a_name_that_has_no_meaning_yet(name):
    entry = replace(spec(), variables={name: Variable(meaning="x")})
    (problem,) = messages(entry)
    assert problem.startswith(f"variables.{name} has the name {name!r}")


def test_values_are_not_made_of_other_values():
    entry = replace(spec(), values={"a": (Choice(value="1"),), "b": (Choice(value="{a}"),)})
    (problem,) = messages(entry)
    assert problem.startswith("values.b[0].value '{a}' has the unknown placeholder {a}")


def test_missing_modules_are_told_without_importing_them():
    entry = Launch(
        command=("trainer",), requires_modules=("json", "no_such_module", "no_such.module", "this")
    )
    assert entry.missing_modules() == ("no_such_module", "no_such.module")
    assert "this" not in sys.modules
