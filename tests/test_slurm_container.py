"""Options of Slurm's commands, and containers: how they are said, what wins, what is refused."""

import re

import pytest

from pytest_dlperf.config.assignments import parse_assignment
from pytest_dlperf.config.cluster import find_cluster
from pytest_dlperf.config.launch_spec import LaunchSpec
from pytest_dlperf.config.launch_variables import resolve
from pytest_dlperf.config.slurm_container import Container, Mount, Runtime
from pytest_dlperf.files.yamlfile import YamlError
from pytest_dlperf.model.errors import UsageError


def said(*texts):
    return [parse_assignment(text) for text in texts]


SPEC = LaunchSpec(
    command=("python",),
    assignments=tuple(
        said(
            "*.slurm.srun=--mpi=pmix",
            "*.container.runtime=podman",
            "*.container.image=tested",
            "*.container.mounts=/data",
        )
    ),
)


def resolved(*sources, spec=SPEC):
    return resolve(spec, "mine", sources)


def test_a_part_replaces_itself_and_a_list_the_whole_list():
    found = resolved(
        said("*.container.image=accepted"),
        said("*.container.mounts=/a:/b:ro '/c d'", "mine.slurm.srun=--a=1 '--b=2 3'"),
        said("mine.container.image=weaker", "*.slurm.srun=--weaker", "*.slurm.job=--qos=low"),
    )
    assert found.engine == {"slurm.srun": ("--a=1", "--b=2 3"), "slurm.job": ("--qos=low",)}
    assert found.container == Container(
        runtime=Runtime.PODMAN,
        image="accepted",
        mounts=(
            Mount(source="/a", target="/b", read_only=True),
            Mount(source="/c d", target="/c d"),
        ),
    )


def test_what_the_system_says_holds_until_it_is_taken_away():
    assert resolved().engine == {"slurm.srun": ("--mpi=pmix",)}
    assert resolved().container == Container(
        runtime=Runtime.PODMAN, image="tested", mounts=(Mount(source="/data", target="/data"),)
    )
    taken = resolved(said("*.slurm.srun=", "*.container.mounts="))
    assert taken.engine == {"slurm.srun": ()}
    assert taken.container.mounts == ()
    assert resolved(said("*.container.runtime=none")).container is None


def test_an_image_needs_no_runtime_where_the_launcher_starts_containers_itself():
    found = resolved(said("*.container.image=a"), spec=LaunchSpec(command=("x",)))
    assert found.container == Container(image="a")
    with pytest.raises(UsageError, match=r"mine\.container\.runtime: .*no container\.image"):
        resolved(said("mine.container.runtime=docker"), spec=LaunchSpec(command=("x",)))


def test_the_files_say_the_same_as_the_command_line(tmp_path):
    (tmp_path / "office").mkdir()
    (tmp_path / "office" / "cluster.yaml").write_text(
        "estimator: steady\n"
        "vars:\n  '*':\n    slurm: {srun: [--a=1, --b=2 3]}\n"
        "    container: {image: x, mounts: [/a:/b:ro], devices: nvidia /dev/infiniband}\n"
        "control: {vars: {mine: {container: {image: y, options: []}}}}\n"
    )
    cluster = find_cluster(tmp_path, "office")
    found = resolved(list(cluster.control.assignments), list(cluster.assignments))
    assert found == resolved(
        said("*.container.image=y", "*.container.devices=nvidia /dev/infiniband"),
        said("*.slurm.srun=--a=1 '--b=2 3'", "*.container.mounts=/a:/b:ro"),
    )


def test_a_mistake_in_a_file_is_told_with_its_place(tmp_path):
    (tmp_path / "office").mkdir()
    (tmp_path / "office" / "cluster.yaml").write_text(
        "estimator: steady\nvars:\n  '*':\n    container: {runtime: podmann, image: x}\n"
        "control: {vars: {'*': {slurm: {srn: [-l]}}}}\n"
    )
    with pytest.raises(YamlError) as caught:
        find_cluster(tmp_path, "office")
    first, second = str(caught.value).splitlines()
    assert "cluster.yaml:4" in first
    assert "did you mean 'podman'" in first
    assert "cluster.yaml:5" in second
    assert "did you mean 'srun'" in second


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("slurm.salloc=-x", "slurm has no 'salloc'; write one of slurm.srun=…, slurm.job=…"),
        ("container.runtime=dokcer", "did you mean 'docker'?"),
        ("container=x", "write one of container.runtime=…"),
        ("container.mounts=a:b", "container.mounts: a mount is SOURCE[:TARGET][:ro]"),
        ("container.mounts=/a,b", "container.mounts: a mount is"),
        ("pause_s=hunter2", "mine.pause_s: pause_s must be a number of seconds"),
        ("working_directory=hunter2", "mine.working_directory: working_directory must be an abs"),
    ],
)
def test_what_cannot_be_is_refused(text, message):
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        parse_assignment(f"mine.{text}")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("option", ["--container-image=a", "--mpi=pmix"])
def test_all_options_of_srun_are_the_users(option):
    assert resolved(said(f"*.slurm.srun={option}")).engine["slurm.srun"] == (option,)
