"""The command of a node in a container, for each runtime: what it sees, has and is called."""

import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from pytest_dlperf.config.launch_keys import Container, Runtime
from pytest_dlperf.launch.containers import (
    ENGINES,
    ENTER,
    contained,
    engine_of,
    image_probe,
    node_in_container,
)
from pytest_dlperf.launch.hosts import Accelerators, Host, Node
from pytest_dlperf.launch.plan import NodeCommand
from pytest_dlperf.model.errors import UsageError

NODE = Node(
    host=Host(name="gpu01", address="10.0.0.1"),
    port=4000,
    first_port=4001,
    device_ids=(2, 3),
    folder="/scratch/pytest-dlperf-abc-0",
    accelerators=Accelerators(kind="nvidia", ids=("0", "1", "2", "3")),
)
COMMAND = NodeCommand(
    node_rank=0,
    host="gpu01",
    address="10.0.0.1",
    arguments=("python3", "train.py", "a b"),
    environment={"CUDA_VISIBLE_DEVICES": "0,1", "HF_HOME": "/hf"},
    working_directory="/data/checkout",
    log=Path("/logs/a.log"),
)
ALWAYS = ("/suite/systems",)
UNLESS_SAID = ("/data", "/data/checkout")
ENTERED = ("sh", "-c", ENTER, "sh", "/data/checkout", "", *COMMAND.arguments)
"""What a shell in the image is given."""
NAMES = ("DLPERF_RUN_ID", "PYTHONUNBUFFERED", "CUDA_VISIBLE_DEVICES", "HF_HOME")


def box(runtime, **parts):
    return replace(Container(runtime=runtime, image="img"), **parts)


def wrapped(container, command=COMMAND, node=NODE, kind=None):
    return contained(container, command, node, always=ALWAYS, unless_said=UNLESS_SAID, kind=kind)


def test_podman_runs_as_the_user_with_the_leased_devices_and_values_out_of_sight():
    command = wrapped(box(Runtime.PODMAN))
    assert command.arguments == (
        "podman", "run", "--rm",
        "--init", "--network=host", "--ipc=host", "--userns={userns}",
        "--name=pytest-dlperf-abc-0",
        "--device=nvidia.com/gpu=2", "--device=nvidia.com/gpu=3",
        *(f"--env={name}" for name in NAMES),
        *(f"--volume={path}:{path}" for path in ("/data", NODE.folder, "/suite/systems")),
        "img", *ENTERED,
    )  # fmt: skip
    assert command.environment == COMMAND.environment
    assert (command.working_directory, command.container) == (None, "pytest-dlperf-abc-0")
    assert command.at_end == ("podman", "rm", "--force", "--ignore", "pytest-dlperf-abc-0")


def test_docker_runs_as_the_user_whose_daemon_is_root():
    command = wrapped(box(Runtime.DOCKER))
    assert command.arguments[3:9] == (
        "--init", "--network=host", "--ipc=host", "--user={uid}:{gid}",
        "--ulimit=memlock=-1", "--env=HOME=/tmp",
    )  # fmt: skip
    assert '--gpus="device=2,3"' in command.arguments
    assert command.at_end == ("docker", "rm", "--force", "pytest-dlperf-abc-0")


def test_apptainer_has_the_environment_where_the_image_has_its_own_and_leaves_nothing():
    command = wrapped(box(Runtime.APPTAINER))
    assert command.arguments == (
        "apptainer", "exec", "--no-home", "--nv",
        *(f"--bind={path}:{path}" for path in ("/data", NODE.folder, "/suite/systems")),
        "img", *ENTERED,
    )  # fmt: skip
    assert command.environment["APPTAINERENV_HF_HOME"] == "/hf"
    assert command.at_end == ()
    singularity = wrapped(box(Runtime.SINGULARITY))
    assert singularity.arguments[:2] == ("singularity", "exec")
    assert singularity.environment["SINGULARITYENV_HF_HOME"] == "/hf"


def test_enroot_shows_the_leased_devices():
    found = wrapped(box(Runtime.ENROOT)).arguments
    assert found[:4] == (
        "enroot", "start", "--env=NVIDIA_VISIBLE_DEVICES=2,3",
        "--env=NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    )  # fmt: skip
    assert "--mount=/data:/data:none:x-create=auto,rbind" in found


def test_steps_are_put_in_front_of_the_image_s_own_python_path():
    found = wrapped(box(Runtime.PODMAN), replace(COMMAND, python_path=("/scratch/steps",)))
    at = found.arguments.index("img")
    assert found.arguments[at + 4 : at + 7] == ("sh", "/data/checkout", "/scratch/steps")
    assert found.python_path == ()


@pytest.mark.parametrize("outer", [{}, {"PYTHONPATH": "/image"}])
def test_a_shell_in_the_image_goes_to_the_folder_and_takes_the_path(tmp_path, outer):
    words = ["sh", "-c", ENTER, "sh", str(tmp_path), "/steps"]
    shown = ["sh", "-c", 'printf "%s " "$PWD" "$PYTHONPATH" "$@"', "sh", "a b"]
    done = subprocess.run([*words, *shown], env=outer, capture_output=True, text=True, check=True)
    path = ":".join(["/steps", *outer.values()])
    assert done.stdout == f"{tmp_path} {path} a b "


@pytest.mark.parametrize("runtime", [Runtime.PODMAN, Runtime.DOCKER, Runtime.APPTAINER])
def test_mounts_of_the_user_replace_those_of_the_plan_but_not_what_the_run_needs(
    runtime,
):
    mounts = ("/big:/data:ro",)
    found = wrapped(box(runtime, mounts=mounts)).arguments
    option = "--bind=" if runtime is Runtime.APPTAINER else "--volume="
    assert [one.removeprefix(option) for one in found if one.startswith(option)] == [
        "/big:/data:ro",
        f"{NODE.folder}:{NODE.folder}",
        "/suite/systems:/suite/systems",
    ]


def test_an_option_of_the_user_goes_before_ours_of_the_same_name():
    options = ("--network=none", "--shm-size=64g", "--name=mine")
    found = wrapped(box(Runtime.PODMAN, options=options)).arguments
    assert "--network=host" not in found
    assert found.index("--network=none") < found.index("img")
    assert "--shm-size=64g" in found
    # By its name it is ended: the last one holds.
    assert found.index("--name=mine") < found.index("--name=pytest-dlperf-abc-0")


def test_devices_that_alone_are_seen_count_from_0():
    for runtime, hidden in (
        (Runtime.DOCKER, True),
        (Runtime.ENROOT, True),
        (Runtime.APPTAINER, False),
    ):
        node = node_in_container(box(runtime), NODE, None)
        assert node.accelerators.names(node.device_ids) == (("0", "1") if hidden else ("2", "3"))


@pytest.mark.parametrize(
    ("kind", "said", "expected"),
    [
        ("amd", None, ["--device=/dev/kfd", "--device=/dev/dri"]),
        ("intel", None, []),
        (None, None, []),
        ("nvidia", (), []),
        ("nvidia", ("/dev/infiniband", "nvidia.com/gpu=all"),
         ["--device=/dev/infiniband", "--device=nvidia.com/gpu=all"]),
    ],
)  # fmt: skip
def test_the_devices_are_those_of_the_host_s_kind_unless_somebody_names_them(kind, said, expected):
    node = replace(NODE, accelerators=Accelerators(kind=kind, ids=()))
    found = wrapped(box(Runtime.PODMAN, devices=said), node=node).arguments
    assert [one for one in found if one.startswith("--device")] == expected


def test_a_log_of_the_trainer_is_looked_for_where_both_see_it():
    podman = box(Runtime.PODMAN)
    assert wrapped(podman, replace(COMMAND, log_file="a.log")).log_file == "/data/checkout/a.log"
    nowhere = replace(COMMAND, log_file="a.log", working_directory=None)
    with pytest.raises(UsageError, match=r"log_file is 'a\.log' .*\{scratch_directory\}"):
        wrapped(podman, nowhere)
    with pytest.raises(UsageError, match="'/a:b' cannot be seen in a container"):
        contained(podman, COMMAND, NODE, always=("/a:b",), unless_said=(), kind=None)


def test_an_image_is_looked_into_as_the_trainer_would():
    sees = {"always": ALWAYS, "unless_said": UNLESS_SAID, "scratch": "/scratch"}
    look = image_probe(box(Runtime.DOCKER), kind="nvidia", **sees)
    assert look.run[-1] == "img"
    assert "--name={unique}" in look.run
    assert look.end == ("docker", "rm", "--force", "{unique}")
    assert look.digest == ("docker", "image", "inspect", "--format={{.Id}}", "img")
    assert look.outside == ("/scratch", "/data", "/suite/systems")
    for runtime in set(ENGINES) - {Runtime.DOCKER, Runtime.PODMAN}:
        assert image_probe(box(runtime), kind=None, **sees).digest == ()


def test_a_container_that_nobody_starts_is_refused():
    with pytest.raises(
        UsageError, match="there are apptainer, singularity, docker, podman, enroot"
    ):
        engine_of(Container(image="img"))
