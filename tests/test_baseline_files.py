"""Files of baselines and clusters: how they are read, and how their mistakes are told."""

from pathlib import Path

import pytest

from pytest_dlperf.baselines.reading import load_baselines
from pytest_dlperf.config.cluster import Cluster, UnknownClusterError, find_cluster
from pytest_dlperf.files.yamlfile import YamlError
from pytest_dlperf.model.measurement import Estimator
from pytest_dlperf.model.metric import Better

BASELINES = Path(__file__).parent.parent / "baselines"

GOOD = """\
# Numbers of the old cluster.
system: paddle-resnet50
metrics:
  throughput: {unit: images/s, better: higher}
  speedup: {unit: x, better: higher}
estimator: steady
entries:
  fp32-b128:   # the batch of the paper
    1n1g:
      throughput:
        accepted: 352.72
        runs: {1: 352.0, 2: 353.44}
      speedup: 1.0
    # 2n8g was never run
    4n8g:
      throughput: 9348.17
      speedup: 26.5
  fp16-b224:
    1n1g: {throughput: 1034.64}
"""


@pytest.fixture
def cluster(tmp_path):
    return Cluster(name="mine", directory=tmp_path / "mine", estimator=Estimator.STEADY)


def write(cluster, text):
    file = cluster.directory / "paddle-resnet50.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def test_baselines_are_read_by_variant_and_topology(cluster):
    write(cluster, GOOD)
    baselines = load_baselines(cluster, "paddle-resnet50")

    assert set(baselines) == {("fp32-b128", "1n1g"), ("fp32-b128", "4n8g"), ("fp16-b224", "1n1g")}
    one = baselines["fp32-b128", "1n1g"]
    speed, speedup = one["throughput"], one["speedup"]
    assert (speed.accepted, dict(speed.runs)) == (352.72, {1: 352.0, 2: 353.44})
    assert (speed.unit, speed.better, speed.estimator) == (
        "images/s",
        Better.HIGHER,
        Estimator.STEADY,
    )
    assert (speedup.accepted, speedup.unit, dict(speedup.runs)) == (1.0, "x", {})
    assert set(baselines["fp16-b224", "1n1g"]) == {"throughput"}
    assert speed.place.endswith("paddle-resnet50.yaml:10")
    assert speedup.place.endswith("paddle-resnet50.yaml:13")


def test_what_an_entry_says_holds_for_metrics_that_say_nothing_else(cluster):
    shared = "      acceptance: {at: '2026-11-21T03:00:00+00:00', reason: first}\n"
    own = "      throughput:\n        accepted: 352.72\n        machine: {device: new}\n"
    text = GOOD.replace("      speedup: 1.0\n", f"      speedup: 1.0\n{shared}", 1)
    text = text.replace("    # 2n8g", "      machine: {device: old}\n    # 2n8g", 1)
    write(cluster, text.replace("      throughput:\n        accepted: 352.72\n", own))

    one = load_baselines(cluster, "paddle-resnet50")["fp32-b128", "1n1g"]

    assert {name: number.machine["device"] for name, number in one.items()} == {
        "throughput": "new",
        "speedup": "old",
    }
    assert all(number.acceptance and number.acceptance.reason for number in one.values())


def test_the_shipped_cluster_has_every_published_case():
    cluster = find_cluster(BASELINES, "dlperf-v100")
    counts = {name: len(load_baselines(cluster, name)) for name in cluster.systems or ()}
    assert cluster.estimator is Estimator.PUBLISHED
    assert sum(counts.values()) == 115


@pytest.mark.parametrize(
    ("old", "new_text", "expected"),
    [
        ("accepted: 352.72", "accepted: -1", "11: $.entries.fp32-b128.1n1g.throughput.accepted: f"),
        ("accepted: 352.72", "accepted: .nan", "11: $.entries.fp32-b128.1n1g.throughput.accepted:"),
        ("throughput: 9348.17", "throughput: fast", "16: $.entries.fp32-b128.4n8g.throughput: fou"),
        ("speedup: 26.5", "speedupp: 26.5", "17: $.entries.fp32-b128.4n8g.speedupp: 'speedupp' is"),
        (
            "{throughput: 1034.64}",
            "{machine: {device: old}}",
            "19: $.entries.fp16-b224.1n1g: the entry has no metric",
        ),
        ("{1: 352.0, 2: 353.44}", "{1: 352.0, 1: 353.44}", "12: $.entries.fp32-b128.1n1g.throughp"),
        ("{1: 352.0, 2: 353.44}", "{1: 352.0, x: 353.44}", "12: $.entries.fp32-b128.1n1g.throughp"),
        ("4n8g:", "1n1g:", "15: $.entries.fp32-b128.1n1g: duplicate key; the first is on"),
        ("4n8g:", "4n8:", "16: $.entries.fp32-b128.4n8: '4n8' is not a topology"),
        ("fp16-b224:", "fp16+224:", "19: $.entries.fp16+224: 'fp16+224' is not the name of a case"),
        ("paddle-resnet50\n", "paddle-resnet\n", "2: $.system: found 'paddle-resnet'; the file"),
        ("  speedup: {", "  machine: {", "5: $.metrics.machine: 'machine' is not a metric's name"),
    ],
)
def test_a_mistake_is_told_by_line_and_key_path(cluster, old, new_text, expected):
    assert GOOD.count(old) == 1
    file = write(cluster, GOOD.replace(old, new_text))
    with pytest.raises(YamlError) as caught:
        load_baselines(cluster, "paddle-resnet50")
    [problem] = caught.value.diagnostics
    assert str(problem).removeprefix(f"{file}:").startswith(expected)


def test_an_unknown_cluster_is_told_with_those_that_there_are(tmp_path):
    (tmp_path / "a100").mkdir()
    (tmp_path / "a100" / "cluster.yaml").write_text("estimator: steady\n", encoding="utf-8")
    with pytest.raises(UnknownClusterError, match=r"no cluster 'v100'.*there are: a100, local"):
        find_cluster(tmp_path, "v100")


def test_the_local_cluster_needs_no_file(tmp_path):
    assert find_cluster(tmp_path, "local").estimator is Estimator.STEADY


CLUSTER = """\
estimator: steady
devices_per_node: 8
python: /usr/bin/python3.6
vars:
  "*": {extra_args: "--a 'b c'", pause_s: 20}
  paddle-resnet50:
    checkout: /models
    shards: 10
    extra_args: [--a, b c, 1]
    env:
      NCCL_DEBUG: INFO
      LIMIT: 0.80
    python: /conda/bin/python
"""


def cluster_file(tmp_path, text):
    file = tmp_path / "office" / "cluster.yaml"
    file.parent.mkdir()
    file.write_text(text, encoding="utf-8")
    return file


def test_a_cluster_says_what_launches_on_it_need(tmp_path):
    file = cluster_file(tmp_path, CLUSTER)

    cluster = find_cluster(tmp_path, "office")

    assert (cluster.devices_per_node, cluster.python) == (8, "/usr/bin/python3.6")
    assert [(one.system, one.name, one.key, one.value) for one in cluster.settings] == [
        ("*", "extra_args", "", ("--a", "b c")),
        ("*", "pause_s", "", "20"),
        ("paddle-resnet50", "checkout", "", "/models"),
        ("paddle-resnet50", "shards", "", "10"),
        ("paddle-resnet50", "extra_args", "", ("--a", "b c", "1")),
        ("paddle-resnet50", "env", "NCCL_DEBUG", "INFO"),
        ("paddle-resnet50", "env", "LIMIT", "0.80"),
        ("paddle-resnet50", "python", "", "/conda/bin/python"),
    ]
    checkout = cluster.settings[2]
    assert (checkout.place, checkout.path) == (f"{file}:7", "$.vars.paddle-resnet50.checkout")


@pytest.mark.parametrize(
    ("old", "new_text", "expected"),
    [
        ("/usr/bin/python3.6", "3.6", "3: $.python: found '3.6'; allowed: a Python interpreter"),
        ("b c'\"", 'b c"', "5: $.vars.*.extra_args: the arguments cannot be told apart"),
        ("pause_s: 20", "pause_s: -2", "5: $.vars.*.pause_s: found text; allowed: number ≥ 0"),
        ("[--a, b c, 1]", "[--a, {b: c}]", "9: $.vars.paddle-resnet50.extra_args[1]: found a ma"),
        (
            "NCCL_DEBUG: I",
            "A=B: I",
            "11: $.vars.paddle-resnet50.env.A=B: 'A=B' is not the name of",
        ),
    ],
)
def test_a_mistake_of_a_cluster_is_told_by_line_and_key_path(tmp_path, old, new_text, expected):
    assert CLUSTER.count(old) == 1
    file = cluster_file(tmp_path, CLUSTER.replace(old, new_text))
    with pytest.raises(YamlError) as caught:
        find_cluster(tmp_path, "office")
    [problem] = caught.value.diagnostics
    assert str(problem).removeprefix(f"{file}:").startswith(expected)
