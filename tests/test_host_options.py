"""Which hosts a session uses and how it reaches them: what the user says, and where it runs."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING

import pytest
from trainers import SYSTEM, TinySystem

if TYPE_CHECKING:
    from pathlib import Path

    from suites import Suite

TWO_NODES = ("-k", "throughput and tiny and 2n1g")
LOCAL = ("--dlperf-launcher", "local")
SEEDS = (
    "paddle-resnet50",
    "ngc_pytorch-resnet50",
    "pytorch-resnet50",
    "paddle-arcface_r50",
    "tensorflow-bert_base",
)


def planned_hosts(suite: Suite, *arguments: str) -> list[str]:
    """The hosts that the nodes of a case would go to."""
    result = suite.run(*TWO_NODES, *LOCAL, "--dlperf-dry-run", *arguments)
    assert result.ret == 0
    found = [re.match(r"  node \d+ on (\S+): ", line) for line in result.outlines]
    return [match[1] for match in found if match]


def test_hosts_come_from_the_strongest_source(
    suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    TinySystem(suite)
    assert planned_hosts(suite) == ["localhost", "localhost"]
    ini = suite.path / "pytest.ini"
    ini.write_text("[pytest]\ndlperf_hosts = 127.1.0.[1-2]\n", encoding="utf-8")
    assert planned_hosts(suite) == ["127.1.0.1", "127.1.0.2"]
    monkeypatch.setenv("DLPERF_HOSTS", "127.2.0.1:4,127.2.0.2:4")
    assert planned_hosts(suite) == ["127.2.0.1", "127.2.0.2"]
    (suite.path / "hosts").write_text("127.3.0.1 slots=4\n127.3.0.2\n", encoding="utf-8")
    for given in (["--dlperf-hosts", "@hosts"], ["--dlperf-hosts=@hosts"]):
        assert planned_hosts(suite, *given) == ["127.3.0.1", "127.3.0.2"]


@pytest.mark.parametrize(
    ("ini", "environment", "arguments", "message"),
    [
        ("", "a:0", [], "DLPERF_HOSTS: 'a:0' has '0' devices"),
        ("", "", ["--dlperf-hosts", "a:2,A", "-n", "2"], "--dlperf-hosts: 'A' gives the host A"),
        ("dlperf_hosts = a,,b", "", [], "ini key dlperf_hosts: 'a,,b' has an empty entry"),
        ("", "@nowhere", ["-n", "auto"], "DLPERF_HOSTS: there is no host file *"),
    ],
    ids=["no devices", "doubled", "empty", "no file"],
)
def test_a_wrong_list_of_hosts_is_a_usage_error(  # noqa: PLR0913, PLR0917 - three sources
    suite: Suite,
    monkeypatch: pytest.MonkeyPatch,
    ini: str,
    environment: str,
    arguments: list[str],
    message: str,
) -> None:
    tiny = TinySystem(suite)
    (suite.path / "pytest.ini").write_text(f"[pytest]\n{ini}\n", encoding="utf-8")
    monkeypatch.setenv("DLPERF_HOSTS", environment)
    result = suite.run("-k", "tiny", *LOCAL, *arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {message.replace('[', '[[]')}*"])
    assert tiny.starts() == []


def test_a_host_file_lies_where_the_user_is(suite: Suite) -> None:
    """Also for workers, and where the root folder is another one."""
    tiny = TinySystem(suite)
    (suite.path / "lists").mkdir()
    (suite.path / "lists" / "hosts").write_text("127.1.0.[1-2] slots=1\n", encoding="utf-8")
    result = suite.pytester.run(
        *("sh", "-c", 'cd lists && exec "$@"', "sh", sys.executable, "-m", "pytest"),
        *(f"{suite.path}/bench_tests", *TWO_NODES, *LOCAL, "--dlperf-hosts", "@hosts", "-n", "2"),
        *("--dlperf-repeats", "1", "--dlperf-create-baselines"),
    )
    assert result.ret == 0
    assert [line.split()[3] for line in sorted(tiny.hosts())] == ["127.1.0.1", "127.1.0.2"]


def test_this_machine_as_the_only_host_needs_no_ssh(
    suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = TinySystem(suite)
    monkeypatch.setenv("DLPERF_SSH", "no-such-ssh")
    select = ["-k", "throughput and tiny and (1n2g or 2n1g)"]
    _, results = suite.judge(
        *select, "--dlperf-hosts", "localhost:2", "--dlperf-repeats", "1", cluster="local"
    )
    assert tiny.hosts() == ["1n2g 0 1 127.0.0.1"]
    assert [case["id"] for case in results["cases"] if case["runs"]] == ["tiny-mlp-fp32-b4-1n2g"]


def test_the_launcher_comes_from_the_strongest_source(
    suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    TinySystem(suite)
    ini = suite.path / "pytest.ini"
    ini.write_text("[pytest]\ndlperf_launcher = from-ini\n", encoding="utf-8")
    suite.run("-k", "tiny").stderr.fnmatch_lines(["*there is no launcher 'from-ini'*"])
    monkeypatch.setenv("DLPERF_LAUNCHER", "from-env")
    suite.run("-k", "tiny").stderr.fnmatch_lines(["*there is no launcher 'from-env'*"])
    assert planned_hosts(suite) == ["localhost", "localhost"]


def test_a_plugin_adds_a_launcher_and_is_given_the_python_of_the_cluster(suite: Suite) -> None:
    TinySystem(suite)
    python = suite.path / "own-python"
    python.symlink_to(sys.executable)
    cluster = suite.path / "baselines" / "local" / "cluster.yaml"
    cluster.parent.mkdir()
    cluster.write_text(f"python: {python}\n", encoding="utf-8")
    (suite.path / "conftest.py").write_text(
        "from pytest_dlperf.launch.launchers import Launcher\n"
        "class Capsule(Launcher):\n"
        "    name, remote = 'capsule', False\n"
        "    def command(self, host, program, *, alongside=False):\n"
        "        return ['env', f'CAPSULE={host.name}', f'PYTHON={self.python}', *program]\n"
        "def pytest_dlperf_launchers(python): return [Capsule(python)]\n",
        encoding="utf-8",
    )
    trainer = suite.path / "trainer" / "train.py"
    trainer.write_text(
        trainer.read_text(encoding="utf-8")
        + 'note("capsules.txt", os.environ["CAPSULE"], os.environ["PYTHON"])\n',
        encoding="utf-8",
    )
    runs = suite.path / "night"

    _, results = suite.judge(
        *TWO_NODES, "--dlperf-hosts", "127.1.0.[1-2]", "--dlperf-launcher", "capsule",
        "--dlperf-repeats", "1", "--dlperf-run-dir", runs, "-n", "1", cluster="local",
    )  # fmt: skip

    assert results["cases"][0]["runs"][0]["status"] == "ok"
    capsules = (suite.path / "trainer" / "capsules.txt").read_text(encoding="utf-8").splitlines()
    assert sorted(capsules) == [f"127.1.0.1 {python}", f"127.1.0.2 {python}"]
    record = runs / SYSTEM / "2n1g" / "mlp_b4_fp32_1" / "command.json"
    assert json.loads(record.read_text(encoding="utf-8"))["launcher"] == "capsule"


def test_a_case_that_needs_more_than_there_is_is_skipped_and_fails_when_strict(
    suite: Suite,
) -> None:
    tiny = TinySystem(suite)
    select = ["-k", "throughput and (tiny and (1n2g or 2n1g))", *LOCAL]
    hosts = ["--dlperf-hosts", "127.1.0.1:1"]
    setting = "Name * with --dlperf-hosts or DLPERF_HOSTS"
    missing = [
        f"*-2n1g needs 2 nodes of 1 device; there is 127.1.0.1:1. {setting}*",
        f"*-1n2g needs 1 node of 2 devices; there is 127.1.0.1:1. {setting}*",
    ]

    usual = suite.run(*select, *hosts, "-rs")
    strict = suite.run(*select, *hosts, "--dlperf-strict", "-n", "2")

    assert usual.parseoutcomes()["skipped"] == 2
    usual.stdout.fnmatch_lines_random(missing)
    assert strict.parseoutcomes()["failed"] == 2
    strict.stdout.fnmatch_lines_random(missing)
    assert tiny.starts() == []


def accelerators(folder: Path, count: int, *, used_by: str = "") -> None:
    """A stand-in for NVIDIA's tool, with so many devices."""
    listed = "".join(
        f"echo 'GPU {number}: Tesla (UUID: GPU-{number})'; " for number in range(count)
    )
    tool = folder / "nvidia-smi"
    tool.write_text(
        f"#!/bin/sh\ncase $1 in -L) {listed}: ;; *) printf '{used_by}' ;; esac\n", encoding="utf-8"
    )
    tool.chmod(0o755)


def test_devices_of_this_machine_are_counted(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = TinySystem(suite, devices="gpu")
    monkeypatch.setenv("PATH", f"{suite.path}:/usr/bin:/bin")
    accelerators(suite.path, 1)

    result = suite.run("-k", "throughput and tiny", "--dlperf-repeats", "1", "-rs")

    assert result.parseoutcomes()["skipped"] == 2
    result.stdout.fnmatch_lines_random(
        [
            "*-1n2g needs 1 node of 2 devices; there is this machine, which shows 1*",
            "*tiny-mlp-fp32-b4-2n1g needs 2 nodes of 1 device; there is this machine alone*",
        ]
    )
    assert tiny.starts() == ["1n1g 0 1"]


@pytest.mark.parametrize("strict", [False, True], ids=["usual", "strict"])
def test_a_trainer_whose_checkout_is_not_set_is_skipped_and_fails_when_strict(
    suite: Suite, *, strict: bool
) -> None:
    arguments = ["--dlperf-strict", "-n", "2"] if strict else ["-rs"]
    result, results = suite.judge("-k", "throughput and 1n1g and not smoke", *arguments)

    outcomes = result.parseoutcomes()
    judged = {case["system"]: case["verdict"]["throughput"] for case in results["cases"]}
    judged.pop("pytorch-resnet18", None)
    assert judged == dict.fromkeys(SEEDS, "skipped")
    assert outcomes.keys() & {"passed", "error"} == set()
    assert ("failed" in outcomes) is strict
    for system in SEEDS:
        said = f"--dlperf-set {system}.checkout=FOLDER"
        # What is long is wrapped where the terminal ends.
        told = " ".join(result.stdout.str().split())
        assert re.search(rf"{system}-\S+ needs checkout \(folder [^;]*\): {said}", told)
        assert f"under vars, {system} in the cluster's cluster.yaml" in told
