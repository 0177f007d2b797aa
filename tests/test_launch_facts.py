"""How a case is launched is kept with its numbers, and is the same until somebody changes it."""

import dataclasses
import re
import shlex
import sys

import pytest
from msgspec.structs import replace
from trainers import CASES, SYSTEM, TinySystem, checkout, measurer

from pytest_dlperf.config.cluster import Kubernetes
from pytest_dlperf.config.settings import Setting, resolve
from pytest_dlperf.config.systems import load_systems
from pytest_dlperf.files.masking import MASK, Digests
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS
from pytest_dlperf.launch.hosts import Host
from pytest_dlperf.launch.kubernetes import KubernetesAllocator
from pytest_dlperf.launch.launchers import SshLauncher
from pytest_dlperf.launch.plan import SCRATCH
from pytest_dlperf.launch.slurm_jobs import SbatchAllocator
from pytest_dlperf.measure.case_launch import CaseLaunch
from pytest_dlperf.measure.launch_facts import launch_facts
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.differences import differences_of
from pytest_dlperf.model.measurement import Fingerprint

SYSTEM_FILE = """\
framework: tiny
model: mlp
unit: samples/s
log: {name: mlp, format: dlperf}
window: {warmup_steps: 2, measured_steps: 8}
launch:
  devices: cpu
  command: ["{python}", "{code}/train.py", "--steps={steps}", --out, "{run_directory}/out",
    --rendezvous, "{master_endpoint}", --config, "{system_directory}/tiny.yaml",
    --scratch, "{scratch_directory}", --run, "{run}"]
  working_directory: "{code}"
  variables: {code: {meaning: the checkout, kind: folder}}
  time_limit_s: 60
cases:
  - {precision: fp32, batch_per_device: 4, topologies: [2n1g]}
"""
CASE = Case.from_id(CASES[2])
SBATCH = SbatchAllocator("python3")


def given(name, *value, key=""):
    one = value[0] if len(value) == 1 and name != "extra_args" else value
    return Setting(system=SYSTEM, name=name, key=key, value=one, place="a test")


def facts(
    folder,
    *settings,
    text=SYSTEM_FILE,
    session="night",
    engine=SBATCH,
):
    """The facts of the system in a checkout in this folder."""
    systems = folder / "suite" / "systems"
    systems.mkdir(parents=True, exist_ok=True)
    (folder / "suite" / ".git").mkdir(exist_ok=True)
    (systems / "own.yaml").write_text(text, encoding="utf-8")
    system = load_systems([systems / "own.yaml"], BUILTIN_FORMATS)[SYSTEM]
    assert system.launch is not None
    code = given("code", str(folder / "suite" / "code"))
    sources = [(*settings, code)]
    variables = resolve(system.launch, SYSTEM, sources, case=CASE)
    launch = CaseLaunch(
        system=system,
        spec=system.launch,
        case=CASE,
        variables=variables,
        container=variables.container,
        python=variables.python or sys.executable,
        folder=folder / session,
        scratch=SCRATCH,
        settings=sources,
    )
    return launch_facts(launch, engine, Digests(folder))


def names(before, after):
    sides = [Fingerprint(launch=one) for one in (before, after)]
    found = differences_of(sides[1], last_good=sides[0])
    return [one.name for one in found]


def test_a_checkout_elsewhere_and_another_session_are_the_same_launch(tmp_path):
    first = facts(tmp_path / "one")

    assert first == facts(tmp_path / "build-4711", session="other")
    assert first.arguments == (
        *("{python}", "{checkout}/code/train.py", "--steps=10"),
        *("--out", "{run_directory}/out", "--rendezvous", "{address0}:29500"),
        *("--config", "{system_directory}/tiny.yaml"),
        *("--scratch", f"{SCRATCH}/pytest-dlperf-RUN-0-{{host0}}/scratch", "--run", "1"),
    )
    assert first.working_directory == "{checkout}/code"
    assert str(tmp_path) not in str(first)


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        (given("extra_args", "--step-delay-ms", "1000"), "--step-delay-ms"),
        (given("env", "INFO", key="NCCL_DEBUG"), "NCCL_DEBUG"),
        (given("python", "/opt/other/python"), "program"),
        (given("slurm", "--mpi=pmix", "--cpu-bind=none", key="srun"), "slurm.srun"),
        (given("slurm", "--qos=low", "--exclusive", key="job"), "slurm.job"),
        (given("container", "nvcr.io/nvidia/pytorch:26.01-py3", key="image"), "container.image"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_somebody_sets_differs_by_its_name(tmp_path, changed, name):
    assert names(facts(tmp_path), facts(tmp_path, changed)) == [name]


def test_parts_of_a_container_differ_one_by_one_and_its_command_stays(tmp_path):
    image, runtime = (
        given("container", "a:1", key="image"),
        given("container", "docker", key="runtime"),
    )
    options = given("container", "--shm-size=1g", "--cap-add=IPC_LOCK", key="options")

    inside = facts(tmp_path, image, runtime)

    assert names(inside, facts(tmp_path, image, runtime, options)) == ["container.options"]
    assert inside.arguments == facts(tmp_path).arguments


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("--steps={steps}", "--steps={steps}, --compile", "--compile"),
        ("measured_steps: 8", "measured_steps: 9", "--steps"),
        ('working_directory: "{code}"', "working_directory: /opt", "working directory"),
        ("devices: cpu", "devices: cpu\n  environment: {OMP_NUM_THREADS: 4}", "OMP_NUM_THREADS"),
    ],
)
def test_a_changed_system_file_differs(tmp_path, old, new, name):
    new = new.replace("--steps={steps}, --compile", '--steps={steps}", "--compile')
    assert names(facts(tmp_path), facts(tmp_path, text=SYSTEM_FILE.replace(old, new)))[0] == name


def test_a_changed_value_differs_without_being_shown(tmp_path):
    def with_secret(secret):
        return facts(
            tmp_path,
            given("env", secret, key="DATA_ROOT"),
            given("env", secret, key="HF_TOKEN"),
            given("extra_args", "--api-key", secret, f"--url=https://me:{secret}@site.example/"),
            given("container", "a:1", key="image"),
            given("container", f"--env=WANDB_API_KEY={secret}", "--init", key="options"),
        )

    first = with_secret("hunter2hunter2")

    assert "hunter2" not in str(first)
    assert first == with_secret("hunter2hunter2")
    # What is named as a secret is hidden: a new token is no difference.
    assert first.environment["HF_TOKEN"] == MASK
    assert names(first, with_secret("correct-horse-battery")) == [
        *("--url", "DATA_ROOT", "container.options")
    ]


def test_what_stands_in_a_file_is_public_and_what_an_option_sets_only_if_it_is_declared(
    tmp_path,
):
    text = SYSTEM_FILE.replace(
        "kind: folder}}",
        "kind: folder}, name: {meaning: a name, public: true}, other: {meaning: a name}}",
    ).replace('"{run}"]', '"{run}", "{name}", "{other}"]\n  environment: {SITE: north}')
    shown = facts(
        tmp_path,
        given("name", "alpha"),
        given("other", "beta"),
        given("env", "1,2", key="NCCL_IB_HCA"),
        given("env", "ring", key="ANY"),
        given("extra_args", "--lr", "0.1", "--optimizer=adamw"),
        text=text,
    )

    assert shown.environment["SITE"] == "north"
    assert shown.environment["NCCL_IB_HCA"] == "1,2"
    assert re.fullmatch(r"\*{3}[0-9a-f]{4}", shown.environment["ANY"])
    name, other, *extra = shown.arguments[-5:]
    assert name == "alpha"
    assert re.fullmatch(r"\*{3}[0-9a-f]{4}", other)
    assert extra[:2] == ["--lr", "0.1"]
    assert re.fullmatch(r"--optimizer=\*{3}[0-9a-f]{4}", extra[2])


def test_a_given_path_below_a_night_s_own_folder_is_the_same_each_night(tmp_path):
    def out(session):
        folder = str(tmp_path / session / "out")
        return facts(tmp_path, given("extra_args", "--out", folder), session=session)

    assert out("night") == out("other")


def test_a_changed_manifest_differs_without_being_shown(tmp_path):
    def submitted(image, secret):
        container = f"{{name: trainer, image: x, env: [{{name: DB, value: {secret}}}]}}"
        (tmp_path / "own.yaml").write_text(
            f"kind: Job\nspec: {{template: {{spec: {{containers: [{container}]}}}}}}\n"
        )
        settings = Kubernetes(template="own.yaml", image=image)
        return facts(tmp_path, engine=KubernetesAllocator(settings, tmp_path, "python3"))

    before, after = submitted("a:1", "hunter2"), submitted("a:2", "hunter3")

    assert names(before, after) == ["kubernetes.image", "kubernetes.template"]
    assert before == submitted("a:1", "hunter2")
    assert "hunter" not in str(before)


def test_two_nights_on_other_hosts_have_equal_facts(suite, ssh_hosts):
    """Over ssh, in another session's folder; on this machine but for the launcher's name."""
    TinySystem(suite)
    code = suite.path / "code"
    commit = checkout(code)
    ssh = SshLauncher(shlex.split(ssh_hosts.ssh_command), sys.executable)
    found = []
    for number, name in enumerate(["", *ssh_hosts.names[:2]]):
        night = measurer(
            suite,
            settings=[given("working_directory", str(code))],
            launcher=ssh if name else None,
            hosts=[Host(name=name, address=name)] if name else (),
        )
        night = dataclasses.replace(night, session_dir=suite.path / f"night{number}")
        measured = night.measure(Case.from_id(CASES[0]))
        assert measured.fingerprint is not None
        found.append(measured.fingerprint)

    here, first, second = found
    assert first.hosts != second.hosts
    assert first.launch == second.launch
    assert first.launch is not None
    assert here.launch == replace(first.launch, launcher="local")
    assert [one.commits for one in found] == [{"working_directory": commit}] * 3
