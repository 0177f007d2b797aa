"""Hosts that a queue gives for a case: how long they are held, and how they are given back."""

import json
import math
import re
import subprocess
import sys
import threading

import pytest
from clusters.processes import wait_until
from trainers import SYSTEM, TinySystem, accept

from pytest_dlperf.launch.slurm_jobs import _seconds

ONE_HOST = """
from pytest_dlperf.launch.allocations import Allocation, Allocator
from pytest_dlperf.launch.hosts import Host
from pytest_dlperf.launch.launchers import LocalLauncher

class OneHost(Allocator):
    name = "one"
    has_own_files = True
    launcher = LocalLauncher()
    def describe(self, request): return "one host"
    def acquire(self, request, say):
        with open("asked.txt", "a") as file:
            print("acquire", *filter(None, [request.image, *request.hosts]), file=file)
        host = Host(name="here", address="127.0.0.1", devices=1)
        return Allocation(hosts=(host,), launcher=self.launcher, limit_s={limit_s})
    def release(self, allocation):
        with open("asked.txt", "a") as file:
            print("release", file=file)

def pytest_dlperf_allocators(cluster):
    return [OneHost()]
"""


@pytest.mark.parametrize(
    ("limit_s", "asked"),
    [
        (10_000, ["acquire", "release"]),
        # Too short for a run: as if the one before had taken the time.
        (0, ["acquire", "release", *["acquire here", "release"] * 3]),
    ],
)
def test_a_case_has_its_hosts_for_all_runs_and_asks_for_the_same_again(suite, limit_s, asked):
    TinySystem(suite)
    text = ONE_HOST.replace("{limit_s}", str(limit_s))
    (suite.path / "conftest.py").write_text(text, encoding="utf-8")

    result = suite.run(
        "-k", "throughput and tiny and 1n1g", "--dlperf-launcher", "one",
        "--dlperf-repeats", "3", "--dlperf-create-baselines", "--dlperf-cluster", "local",
    )  # fmt: skip

    result.assert_outcomes(passed=1)
    assert (suite.path / "asked.txt").read_text().splitlines() == asked


def test_the_control_arm_has_the_same_hosts_with_its_own_image(suite):
    TinySystem(suite, topologies=["1n1g"])
    accept(suite, {"1n1g": 400})
    with (suite.path / "baselines" / "local" / "cluster.yaml").open("a") as cluster:
        arm = "{container: {image: october}, env: {TINY_SLOWER: 1}}"
        cluster.write(f"control: {{description: October, vars: {{{SYSTEM}: {arm}}}}}\n")
    (suite.path / "conftest.py").write_text(ONE_HOST.replace("{limit_s}", "10_000"), "utf-8")

    suite.run(
        "-k", "tiny and 1n1g", "--dlperf-launcher", "one", "--dlperf-cluster", "local",
        "--dlperf-set", "*.container.image=night", "--dlperf-set", f"{SYSTEM}.env.TINY_SLOWER=1.2",
    )  # fmt: skip

    asked = [
        line for line in (suite.path / "asked.txt").read_text().splitlines() if line != "release"
    ]
    first, *others = asked
    assert first == "acquire night"
    # Runs of both in turn, after those that raised the alarm.
    assert {*others} == {"acquire night here", "acquire october here"}
    assert others.count("acquire october here") >= 2


def test_a_run_whose_job_was_cancelled_is_repeated_on_the_same_nodes(suite, slurm, monkeypatch):
    monkeypatch.setenv("SLURM_CONF", slurm.environment["SLURM_CONF"])
    tiny = TinySystem(suite, launch=["retries: 1"])
    tiny.behave("0.01 hang-at-3")

    def cancel():
        wait_until(lambda: len(tiny.starts()) == 2, what="both nodes")
        tiny.behave("0.01")
        slurm.run("scancel", *slurm.jobs())

    thread = threading.Thread(target=cancel)
    thread.start()
    result, results = suite.judge(
        "-k", "throughput and tiny and 2n1g", "--dlperf-launcher", "sbatch",
        "--dlperf-repeats", "1", "--dlperf-create-baselines", cluster="local",
    )  # fmt: skip
    thread.join()

    result.assert_outcomes(passed=1)
    [run] = results["cases"][0]["measurement"]["runs"]
    [failed] = run["failed_attempts"]
    assert re.match(r"Slurm job \d+ was ended from outside(: CANCELLED)?; ", failed["reason"])
    hosts = [line.split()[3] for line in tiny.hosts()]
    assert sorted(hosts[:2]) == sorted(hosts[2:]) == slurm.addresses[:2]


def test_hosts_are_given_back_until_that_has_worked(tmp_path):
    """By a process that outlives whoever holds them."""
    tries = tmp_path / "tries"
    cancel = ["sh", "-c", f"echo >> '{tries}'; test $(wc -l < '{tries}') -gt 1"]
    holder = (
        "from pytest_dlperf.launch.allocations import Holder; import json, os, sys\n"
        "holder = Holder(json.loads(sys.argv[1])); os._exit(1)\n"
    )

    subprocess.run([sys.executable, "-c", holder, json.dumps(cancel)], check=False)

    wait_until(lambda: tries.exists() and len(tries.read_text()) >= 2, what="both tries")


@pytest.mark.parametrize(
    ("left", "seconds"),
    [("1-02:03:04", 93784), ("59:59", 3599), ("0:07", 7), ("UNLIMITED", math.inf)],
)
def test_the_time_that_slurm_leaves_a_job_is_read(left, seconds):
    assert _seconds(left) == seconds
