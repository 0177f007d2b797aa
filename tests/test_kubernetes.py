"""Cases that are submitted to a stand-in for Kubernetes, by the official client."""

from __future__ import annotations

import json
import re
import threading

import pytest
from clusters.kubernetes import Kubernetes
from clusters.processes import wait_until
from suites import Suite
from trainers import TinySystem

CLUSTER = "kubernetes: {{kind: {kind}, image: 'registry.example/trainer:1'}}\n"


@pytest.fixture
def submitting(suite: Suite, kubernetes: Kubernetes, monkeypatch: pytest.MonkeyPatch) -> Kubernetes:
    """A cluster that the sessions of a test submit to."""
    for name, value in kubernetes.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DLPERF_LAUNCHER", "kubernetes")
    configure(suite)
    return kubernetes


def configure(suite: Suite, kind: str = "job") -> None:
    folder = suite.path / "baselines" / "local"
    folder.mkdir(exist_ok=True)
    (folder / "cluster.yaml").write_text(CLUSTER.format(kind=kind), encoding="utf-8")


def test_an_eviction_is_told_with_its_pod(suite: Suite, submitting: Kubernetes) -> None:
    """Logs come whole before that, though the connections are cut."""
    tiny = TinySystem(suite)
    tiny.behave("0.01 hang-at-3")
    configure(suite, "trainjob")

    def evict() -> None:
        wait_until(lambda: len(tiny.starts()) == 2, what="both pods")
        submitting.cut_logs()
        submitting.evict(1)

    thread = threading.Thread(target=evict)
    thread.start()
    _, results = suite.judge(
        "-k", "throughput and tiny and 2n1g", "--dlperf-repeats", "1", cluster="local"
    )
    thread.join()

    [run] = results["cases"][0]["measurement"]["runs"]
    assert run["status"] == "failed"
    assert "Evicted: The node was low" in run["reason"], run["reason"]
    assert submitting.objects == {}


def test_what_a_job_waits_for_is_told(suite: Suite, submitting: Kubernetes) -> None:
    TinySystem(suite, time_limit_s=1)
    submitting.waits = {"reason": "Unschedulable", "message": "0/2 nodes: insufficient gpu"}

    _, results = suite.judge(
        "-k", "throughput and tiny and 2n1g", "--dlperf-repeats", "1",
        "--dlperf-wait-limit", "1", cluster="local",
    )  # fmt: skip

    [run] = results["cases"][0]["measurement"]["runs"]
    assert run["status"] == "failed"
    told = r"not begun after 1 s \(pod \S+: Unschedulable: 0/2 nodes: .*\); --dlperf-wait-limit"
    assert re.search(told, run["reason"])
    assert submitting.objects == {}
    assert submitting.pods == {}


def test_logs_that_nobody_may_read_end_the_run(suite: Suite, submitting: Kubernetes) -> None:
    TinySystem(suite)
    submitting.forbidden.add("pods/log")

    _, results = suite.judge(
        "-k", "throughput and tiny and 2n1g", "--dlperf-repeats", "1", cluster="local"
    )

    [run] = results["cases"][0]["measurement"]["runs"]
    assert run["status"] == "failed"
    assert "the log of node 0: the API server answers 403: pods/log is forbidden" in run["reason"]
    assert submitting.objects == {}


def test_a_dry_run_shows_the_manifest(suite: Suite, submitting: Kubernetes) -> None:
    TinySystem(suite, devices="gpu")

    result = suite.run(
        "-k", "throughput and tiny and 1n2g", "--dlperf-dry-run", "--dlperf-cluster", "local"
    )

    assert result.ret == 0
    shown = "\n".join(line[4:] for line in result.outlines if line.startswith("  | "))
    manifest = json.loads(shown)
    assert manifest["kind"] == "Job"
    [container] = manifest["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example/trainer:1"
    assert container["resources"] == {"limits": {"nvidia.com/gpu": "2"}}
    assert submitting.calls == []
