"""Settings of launches: how they are written, which one holds, and what is refused."""

import re
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_dlperf.config.cluster import find_cluster
from pytest_dlperf.config.launch import Launch
from pytest_dlperf.config.launch_keys import (
    Condition,
    ConditionalArguments,
    Container,
    Runtime,
    SlurmKeys,
    Variable,
    VariableKind,
)
from pytest_dlperf.config.settings import (
    LaunchVariables,
    check_settings,
    parse_setting,
    resolve,
    unknown_engine_options,
)
from pytest_dlperf.files.yamlfile import YamlError
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.errors import CannotMeasureError, UsageError

SYSTEM = "paddle-resnet50"
SPEC = Launch(
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
    return [parse_setting(text) for text in texts]


IN_CONTAINER = Launch(
    command=("python",),
    slurm=SlurmKeys(srun="--mpi=pmix"),
    container=Container(runtime=Runtime.PODMAN, image="tested", mounts=("/data",)),
)


def resolved(*sources, case=CASE):
    return resolve(SPEC, SYSTEM, sources, case=case)


def contained(*sources, spec=IN_CONTAINER):
    return resolve(spec, "mine", sources)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("*.data=", ("*", "data", "", "")),
        ("a-b.data= x=y.z=w\n", ("a-b", "data", "", " x=y.z=w\n")),
        ("a-b.env.A.B=v=w", ("a-b", "env", "A.B", "v=w")),
        ("a-b.extra_args=-x 'a b' $HOME", ("a-b", "extra_args", "", ("-x", "a b", "$HOME"))),
        ("a-b.extra_args=", ("a-b", "extra_args", "", ())),
        ("a-b.slurm.srun=--mpi=pmix -l", ("a-b", "slurm", "srun", ("--mpi=pmix", "-l"))),
        ("a-b.container.image=a b", ("a-b", "container", "image", "a b")),
        ("a-b.pause_s=0.5", ("a-b", "pause_s", "", "0.5")),
    ],
)
def test_a_setting_is_a_system_a_name_and_a_value(text, expected):
    found = parse_setting(text)
    assert (found.system, found.name, found.key, found.value) == expected
    assert found.place == f"--dlperf-set {text.partition('=')[0]}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data=hunter2", "sets nothing; write SYSTEM.name=value"),
        ("a-b.data", "sets nothing"),
        (".data=hunter2", "sets nothing"),
        ("a-b.env=hunter2", "env has keys; write env.KEY=value"),
        ("a-b.env.A B=hunter2", "'A B' is not the name of an environment variable"),
        ("a-b.extra_args='hunter2", "the arguments cannot be told apart: No closing quotation"),
        ("a-b.pause_s=hunter2", "found text; allowed: number ≥ 0 and ≤ 1,000,000"),
        ("a-b.pause_s=nan", "allowed: number ≥ 0"),
        ("a-b.python=", "found nothing"),
        ("a-b.python=hunter2\0", "the value holds a NUL"),
        ("a-b.working_directory=hunter2", "allowed: the absolute path of a folder"),
        ("a-b.slurm.salloc=hunter2", "unknown key 'salloc'; allowed: srun, job"),
        ("a-b.container.runtime=dokcer", "; did you mean 'docker'?"),
        ("a-b.container.mounts=hunter2:b", "allowed: SOURCE[:TARGET][:ro]"),
        ("a-b.container.mounts=/hunter2,b", "allowed: SOURCE[:TARGET][:ro]"),
    ],
)
def test_what_no_launch_could_use_is_refused_without_its_value(text, message):
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        parse_setting(text)
    assert text.partition("=")[0] in str(caught.value)
    assert "hunter2" not in str(caught.value)


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
    assert variables.env == {"A": value}
    assert variables.extra_args == (value, "x")


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
    assert variables == LaunchVariables(values={"checkout": "/x", "shards": expected})


def test_the_environment_is_put_together_name_by_name_and_arguments_as_a_whole():
    variables = resolved(
        said(f"{SYSTEM}.checkout=/x", f"{SYSTEM}.env.A=1", "*.extra_args=--a"),
        said(f"{SYSTEM}.env.A=2", "*.env.B=3", f"{SYSTEM}.extra_args=--b", "*.pause_s=20"),
        said("*.python=/old", "*.pause_s=1"),
    )
    assert variables.env == {"A": "1", "B": "3"}
    assert variables.extra_args == ("--a",)
    assert (variables.pause_s, variables.python) == (20.0, "/old")


def test_a_folder_to_start_in_is_for_systems_that_name_none():
    for_all = said("*.working_directory=/base", f"{SYSTEM}.checkout=/x")
    assert resolved(for_all).working_directory == "/base"
    own = replace(SPEC, working_directory="{checkout}")
    assert resolve(own, SYSTEM, [for_all], case=CASE).working_directory is None


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


def test_what_is_set_for_nothing_that_there_is_is_told_all_at_once_without_its_value():
    starts_itself = replace(SPEC, working_directory="/own")
    specs = {SYSTEM: starts_itself, "plain-line": Launch(command=("x",)), "only-logs": None}
    right = [f"{SYSTEM}.shards=1", "*.dali=/x", "plain-line.env.A=1", "*.working_directory=/x"]
    assert not list(check_settings(specs, said(*right)))
    wrong = {
        "paddle-resnet5.env.A": "unknown system 'paddle-resnet5'; did you mean 'paddle-resnet50'?",
        "*.shard": "* has no variable 'shard'; did you mean 'shards'?",
        "plain-line.shards": "plain-line has no variable 'shards'; what can be set: extra_args,",
        "only-logs.env.A": "only-logs has no launch to set anything for",
        f"{SYSTEM}.checkout": "it is not the absolute path of a folder; paddle-resnet50.checkout",
    }
    settings = said(*(f"{target}=hunter2" for target in wrong))
    problems = list(check_settings(specs, [*settings, *said(f"{SYSTEM}.working_directory=/x")]))
    for (target, message), problem in zip(wrong.items(), problems[:-1], strict=True):
        assert problem.place == f"--dlperf-set {target}"
        assert problem.message.startswith(message)
        assert "hunter2" not in problem.message
    assert "says itself where it starts: /own" in problems[-1].message
    [unknown] = unknown_engine_options(said("*.pbs.queue=hunter2"), ["slurm.srun", "pbs.queu"])
    assert "no option 'pbs.queue' of a launcher; did you mean 'pbs.queu'?" in unknown.message
    assert "hunter2" not in unknown.message


def test_a_part_replaces_itself_and_a_list_the_whole_list():
    found = contained(
        said("*.container.image=accepted"),
        said("*.container.mounts=/a:/b:ro '/c d'", "mine.slurm.srun=--a=1 '--b=2 3'"),
        said("mine.container.image=weaker", "*.slurm.srun=--weaker", "*.slurm.job=--qos=low"),
    )
    assert found.engine == {"slurm.srun": ("--a=1", "--b=2 3"), "slurm.job": ("--qos=low",)}
    assert found.container == Container(
        runtime=Runtime.PODMAN,
        image="accepted",
        mounts=(
            "/a:/b:ro",
            "/c d",
        ),
    )


def test_what_the_system_says_holds_until_it_is_taken_away():
    assert contained().engine == {"slurm.srun": ("--mpi=pmix",)}
    assert contained().container == Container(
        runtime=Runtime.PODMAN, image="tested", mounts=("/data",)
    )
    taken = contained(said("*.slurm.srun=", "*.container.mounts="))
    assert taken.engine == {"slurm.srun": ()}
    assert taken.container.mounts == ()
    assert contained(said("*.container.runtime=none")).container is None


def test_an_image_needs_no_runtime_where_the_launcher_starts_containers_itself():
    plain = Launch(command=("x",))
    assert contained(said("*.container.image=a"), spec=plain).container == Container(image="a")
    with pytest.raises(UsageError, match=r"mine\.container\.runtime: .*no container\.image"):
        contained(said("mine.container.runtime=docker"), spec=plain)


def test_the_files_say_the_same_as_the_command_line(tmp_path):
    (tmp_path / "office").mkdir()
    file = tmp_path / "office" / "cluster.yaml"
    file.write_text(
        "estimator: steady\n"
        "vars:\n  '*':\n    slurm: {srun: [--a=1, --b=2 3]}\n"
        "    container: {image: x, mounts: [/a:/b:ro], devices: nvidia /dev/infiniband}\n"
        "control: {vars: {mine: {container: {image: y, options: []}}}}\n"
    )
    cluster = find_cluster(tmp_path, "office")
    found = contained(list(cluster.control_settings), list(cluster.settings))
    assert found == contained(
        said("*.container.image=y", "*.container.devices=nvidia /dev/infiniband"),
        said("*.slurm.srun=--a=1 '--b=2 3'", "*.container.mounts=/a:/b:ro"),
    )
    file.write_text("vars: {'*': {\n  container: {mounts: /a b},\n  data: [a]}}\n")
    with pytest.raises(YamlError) as caught:
        find_cluster(tmp_path, "office")
    assert [problem.place for problem in caught.value.diagnostics] == [f"{file}:2", f"{file}:3"]
