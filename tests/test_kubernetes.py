"""Cases on pods that the session holds, with a stand-in for Kubernetes and kubectl."""

import json
import re
import threading

import pytest
from clusters.processes import wait_until
from msgspec.structs import replace
from trainers import TinySystem

from pytest_dlperf.config.cluster import Kubernetes
from pytest_dlperf.files.yamlfile import YamlError
from pytest_dlperf.launch.allocations import HostRequest
from pytest_dlperf.launch.kubernetes import KubernetesAllocator
from pytest_dlperf.model.errors import CannotMeasureError

ONCE = ("-k", "throughput and tiny and 2n1g", "--dlperf-repeats", "1")


@pytest.fixture
def holding(suite, kubernetes, monkeypatch):
    """A cluster whose pods the sessions of a test hold."""
    for name, value in kubernetes.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DLPERF_LAUNCHER", "kubernetes")
    folder = suite.path / "baselines" / "local"
    folder.mkdir()
    cluster = "kubernetes: {image: 'registry.example/trainer:1'}\n"
    (folder / "cluster.yaml").write_text(cluster, encoding="utf-8")
    return kubernetes


@pytest.mark.parametrize(
    ("lose", "told"),
    [
        (lambda cluster: cluster.evict(1), "pod .*-1-.*: Evicted: The node was low on resource"),
        (lambda cluster: cluster.run_out_of_memory(1), "pod .*-1-.*: OOMKilled"),
        (lambda cluster: cluster.cut(), "connection is lost: error: stream error"),
    ],
    ids=["evicted", "out of memory", "cut"],
)
def test_what_ends_a_run_is_told(suite, holding, lose, told):
    tiny = TinySystem(suite)
    tiny.behave("0.01 hang-at-3")

    def end():
        wait_until(lambda: len(tiny.starts()) == 2, what="both pods")
        lose(holding)

    thread = threading.Thread(target=end)
    thread.start()
    _, results = suite.judge(*ONCE, cluster="local")
    thread.join()

    [run] = results["cases"][0]["measurement"]["runs"]
    assert run["status"] == "failed"
    assert re.search(told, run["reason"]), run["reason"]
    assert holding.jobs == {}


@pytest.mark.parametrize(
    ("waits", "told"),
    [
        (
            {"reason": "Unschedulable", "message": "0/2 nodes: insufficient gpu"},
            r".*no hosts after 1 s: pod \S+: Unschedulable: 0/2 nodes: .*; --dlperf-wait-limit",
        ),
        (
            {"reason": "ImagePullBackOff", "message": "Back-off pulling trainer:1"},
            r".*pod \S+: ImagePullBackOff: Back-off pulling trainer:1",
        ),
    ],
    ids=["no node", "no image"],
)
def test_what_a_case_waits_for_is_told(suite, holding, waits, told):
    TinySystem(suite)
    holding.waits = waits

    result = suite.run(*ONCE, "--dlperf-wait-limit", "1", "--dlperf-cluster", "local")

    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines([told])
    wait_until(lambda: not holding.pods, what="the end of all pods")


def test_pods_in_which_nobody_may_start_anything_are_told(suite, holding):
    TinySystem(suite)
    holding.forbidden.add("exec")

    result = suite.run(*ONCE, "--dlperf-cluster", "local")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(['*worker-0, worker-1: *(Forbidden): "exec" is forbidden*'])
    assert holding.jobs == {}


def test_a_dry_run_shows_the_manifest(suite, holding):
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
    assert holding.calls == []


# ---------------------------------------------------------------------------- manifests

REQUEST = HostRequest(
    purpose="tiny-mlp-fp32-b4-2n8g",
    nodes=2,
    devices_per_node=8,
    needs_devices=True,
    limit_s=900,
    wait_limit_s=3600,
)


def manifest_of(tmp_path, template, request, **settings):
    (tmp_path / "own.yaml").write_text(template)
    allocator = KubernetesAllocator(
        Kubernetes(template="own.yaml", **settings), tmp_path, "python3"
    )
    return json.loads(allocator.describe(request))


def test_a_manifest_has_what_the_case_needs_and_all_else_that_its_template_says(tmp_path):
    text = (
        "kind: Job\nmetadata: {labels: {kueue.x-k8s.io/queue-name: nightly}}\n"
        "spec: {completions: 9, template: {metadata: {labels: null}, spec: {\n"
        "  tolerations: [{operator: Exists}], affinity: null,\n"
        "  containers: [{name: side, image: s}, {name: trainer, image: t, command: [train],\n"
        "    args: [x], resources: {limits: {cpu: 8}},\n"
        "    env: [{name: A, value: b}, {name: A_TOKEN, value: c}]}]}}}\n"
    )
    again = replace(REQUEST, image="other:2", hosts=("gpu1", "gpu2"))

    manifest = manifest_of(tmp_path, text, again, device="amd.com/gpu")

    managed = {"app.kubernetes.io/managed-by": "pytest-dlperf"}
    queue = {"kueue.x-k8s.io/queue-name": "nightly"}
    assert manifest["metadata"]["labels"] == {**queue, **managed}
    spec = manifest["spec"]
    assert (spec["completions"], spec["parallelism"], spec["backoffLimit"]) == (2, 2, 0)
    assert spec["activeDeadlineSeconds"] == 4500
    assert spec["template"]["metadata"]["labels"] == managed
    pod = spec["template"]["spec"]
    assert pod["activeDeadlineSeconds"] == 900
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert '["gpu1", "gpu2"]' in json.dumps(pod["affinity"])
    side, trainer = pod["containers"]
    assert side == {"name": "side", "image": "s"}
    assert trainer["image"] == "other:2"
    assert trainer["env"] == [{"name": "A", "value": "b"}, {"name": "A_TOKEN", "value": "***"}]
    assert (trainer["command"][0], trainer["args"]) == ("python3", [])
    assert trainer["resources"]["limits"] == {"cpu": 8, "amd.com/gpu": "8"}


def test_a_case_without_an_image_is_not_submitted(tmp_path):
    text = "kind: Job\nspec: {template: {spec: {containers: [{name: trainer}]}}}\n"
    assert "other:2" in str(manifest_of(tmp_path, text, replace(REQUEST, image="other:2")))
    with pytest.raises(CannotMeasureError, match=r"kubernetes\.image in cluster\.yaml"):
        manifest_of(tmp_path, text, REQUEST)


@pytest.mark.parametrize(
    "text",
    [
        "kind: Deployment\n",
        "kind: Job\nspec: {template: {spec: {containers: [{image: x}]}}}\n",
        "kind: Job\nspec: {template: {spec: {containers: null}}}\n",
    ],
)
def test_a_template_that_is_something_else_is_told(tmp_path, text):
    with pytest.raises(YamlError, match=r"own\.yaml:1: .*is not a Job whose pod has containers"):
        manifest_of(tmp_path, text, REQUEST)
