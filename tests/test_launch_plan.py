"""What each node of a run executes, and what is said about a launch entry that is wrong."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_dlperf.cases import Case
from pytest_dlperf.launch.plan import FIELDS, LaunchSpec, NodeCommand, plan_run
from pytest_dlperf.measurement import Window

CASE: Final = Case.parse("pytorch-resnet18-fp32-b8-2n4g")
WINDOW: Final = Window(warmup_steps=5, measured_steps=15)
LOG: Final = Path("/runs/pytorch-resnet18/2n4g/r18_b8_fp32_3.log")
ADDRESSES: Final = ("10.0.0.1", "10.0.0.2")


def spec(*arguments: str) -> LaunchSpec:
    return LaunchSpec(command=("trainer", *arguments))


def planned(
    entry: LaunchSpec,
    *,
    case: Case = CASE,
    addresses: tuple[str, ...] = ADDRESSES,
    log: Path = LOG,
) -> tuple[NodeCommand, ...]:
    return plan_run(
        entry,
        case=case,
        window=WINDOW,
        settling_steps=6,
        system_directory=Path("/suite/systems"),
        run=3,
        addresses=addresses,
        master_port=29400,
        log=log,
    )


def test_every_node_runs_the_same_command_with_its_own_rank_and_address() -> None:
    first, second = planned(spec("--rank={node_rank}", "--ip", "{node_address}"))
    assert first.arguments == ("trainer", "--rank=0", "--ip", "10.0.0.1")
    assert second.arguments == ("trainer", "--rank=1", "--ip", "10.0.0.2")
    assert (first.node_rank, first.address) == (0, "10.0.0.1")
    assert (second.node_rank, second.address) == (1, "10.0.0.2")


def test_only_the_main_log_lies_where_the_logs_of_runs_are_looked_for() -> None:
    first, second = planned(spec())
    assert first.log == LOG
    assert second.log == LOG.parent / "r18_b8_fp32_3" / "node1.log"


@pytest.mark.parametrize(
    ("field", "value"),
    {
        "python": sys.executable,
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
        "batch_per_device": "8",
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
def test_a_field_becomes_its_value_wherever_it_may_stand(field: str, value: str) -> None:
    entry = LaunchSpec(
        command=("trainer", f"--x={{{field}}}"),
        environment={"X": f"<{{{field}}}>"},
        working_directory=f"/folder/{{{field}}}",
    )
    assert entry.problems() == ()
    node = planned(entry)[1]
    assert node.arguments == ("trainer", f"--x={value}")
    assert node.environment == {"X": f"<{value}>"}
    assert node.working_directory == f"/folder/{value}"


def test_a_run_directory_is_absolute_so_that_it_holds_in_any_working_directory() -> None:
    node = planned(spec("{run_directory}"), log=Path("runs/r18_b8_fp32_3.log"))[0]
    assert node.arguments[1] == str(Path.cwd() / "runs" / "r18_b8_fp32_3")
    assert node.log.is_absolute()


def test_doubled_braces_are_literal_ones() -> None:
    node = planned(spec('{{"lr": 0.1}}', "{{model}}", "{{{model}}}"))[0]
    assert node.arguments[1:] == ('{"lr": 0.1}', "{model}", "{resnet18}")


@settings(deadline=None)
@given(name=st.text(st.characters(exclude_characters="/\0", codec="utf-8")))
def test_a_value_stays_in_its_argument_whatever_is_in_it(name: str) -> None:
    node = planned(spec("--out={run_directory}", "last"), log=Path(f"/runs/r50{name}.log"))[0]
    assert node.arguments == ("trainer", f"--out=/runs/r50{name}", "last")


@pytest.mark.parametrize(
    ("entry", "path"),
    [
        (LaunchSpec(command=("trainer", "--b={batch_per_devise}")), "command[1]"),
        (
            LaunchSpec(command=("trainer",), environment={"B": "{batch_per_devise}"}),
            "environment.B",
        ),
        (
            LaunchSpec(command=("trainer",), working_directory="/{batch_per_devise}"),
            "working_directory",
        ),
    ],
)
def test_an_unknown_placeholder_is_named_with_its_place_and_what_may_be_meant(
    entry: LaunchSpec, path: str
) -> None:
    (problem,) = entry.problems()
    assert problem.startswith(f"{path} ")
    assert "unknown placeholder {batch_per_devise}; did you mean {batch_per_device}?" in problem
    assert all(field in problem for field in FIELDS)


@pytest.mark.parametrize("placeholder", ["{}", "{0}", "{model!r}", "{model:>9}", "{case.model}"])
def test_only_plain_field_names_are_placeholders(placeholder: str) -> None:
    (problem,) = spec(placeholder).problems()
    assert f"unknown placeholder {placeholder}" in problem


@pytest.mark.parametrize(
    ("argument", "brace", "position"),
    [("--x={model", "{", 5), ("ab}", "}", 3), ("{{model}", "}", 8), ("{ {model}", "{", 1)],
)
def test_a_single_brace_is_pointed_at(argument: str, brace: str, position: int) -> None:
    (problem,) = spec(argument).problems()
    assert f"command[1] {argument!r} has a single {brace!r} at character {position}" in problem
    assert repr(brace * 2) in problem


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (LaunchSpec(command=()), "names no program"),
        (LaunchSpec(command=("", "x")), "names no program"),
        (LaunchSpec(command=("trainer", "a\0b")), "NUL"),
        (LaunchSpec(command=("trainer",), environment={"A=B": "1"}), "'A=B'"),
        (LaunchSpec(command=("trainer",), time_limit_s=0), "time_limit_s"),
        (LaunchSpec(command=("trainer",), time_limit_s=float("nan")), "time_limit_s"),
        (LaunchSpec(command=("trainer",), pause_s=-1), "pause_s"),
    ],
)
def test_what_no_process_could_be_started_with_is_a_problem(
    entry: LaunchSpec, message: str
) -> None:
    (problem,) = entry.problems()
    assert message in problem


def test_all_problems_are_told_at_once() -> None:
    entry = replace(spec("{modell}", "{", "{model}"), pause_s=-1.0)
    assert len(entry.problems()) == 3


def test_a_malformed_entry_is_not_planned() -> None:
    with pytest.raises(ValueError, match=r"launch entry of pytorch-resnet18: command\[1\]"):
        planned(spec("{modell}"))


def test_each_node_needs_an_address() -> None:
    with pytest.raises(ValueError, match="needs 2 addresses, one for each node, not 1"):
        planned(spec(), addresses=("10.0.0.1",))


def test_a_log_needs_the_ending_that_tells_it_from_its_folder() -> None:
    with pytest.raises(ValueError, match=r"\*\.log"):
        planned(spec(), log=Path("/runs/r18_b8_fp32_3.txt"))


def test_missing_modules_are_told_without_importing_them() -> None:
    entry = LaunchSpec(
        command=("trainer",), requires_modules=("json", "no_such_module", "no_such.module", "this")
    )
    assert entry.missing_modules() == ("no_such_module", "no_such.module")
    assert "this" not in sys.modules
