"""Baseline files: how they are read, how their mistakes are told, and how new numbers get in."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_dlperf.baselines.reading import load_baselines
from pytest_dlperf.baselines.recording import Change, ChangeKind
from pytest_dlperf.baselines.recording import record as record_changes
from pytest_dlperf.config.cluster import Cluster, UnknownClusterError, find_cluster
from pytest_dlperf.files.locks import LockError
from pytest_dlperf.files.yamlfile import YamlError
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import Estimator

BASELINES = Path(__file__).parent.parent / "baselines"

GOOD = """\
# Numbers of the old cluster.
system: paddle-resnet50
unit: images/s
estimator: steady
entries:
  fp32-b128:   # the batch of the paper
    1n1g:
      throughput: 352.72
      speedup: 1.0
      runs: {1: 352.0, 2: 353.44}
    # 2n8g was never run
    4n8g:
      throughput: 9348.17
      speedup: 26.5
  fp16-b224:
    1n1g: {throughput: 1034.64}
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(name="mine", directory=tmp_path / "mine", estimator=Estimator.STEADY)


def write(cluster: Cluster, text: str) -> Path:
    file = cluster.directory / "paddle-resnet50.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def new(case_id: str, throughput: float = 1000.0, speedup: float | None = 3.5) -> Change:
    return Change(
        kind=ChangeKind.CREATE,
        case=Case.parse(case_id),
        throughput=throughput,
        speedup=speedup,
        runs={1: throughput},
        at="2026-11-21T03:00:00+00:00",
    )


def record(cluster: Cluster, *changes: Change) -> tuple[Change, ...]:
    provenance = {"host": 'a "host": b'}
    return record_changes(
        cluster, "paddle-resnet50", "images/s", changes, provenance=provenance
    ).done


def test_baselines_are_read_by_variant_and_topology(cluster: Cluster) -> None:
    write(cluster, GOOD)
    baselines = load_baselines(cluster, "paddle-resnet50")

    assert set(baselines) == {("fp32-b128", "1n1g"), ("fp32-b128", "4n8g"), ("fp16-b224", "1n1g")}
    one = baselines["fp32-b128", "1n1g"]
    assert (one.throughput, one.speedup, dict(one.runs)) == (352.72, 1.0, {1: 352.0, 2: 353.44})
    assert baselines["fp16-b224", "1n1g"].speedup is None
    assert one.place.endswith("paddle-resnet50.yaml:7")


def test_the_shipped_cluster_has_every_published_case() -> None:
    cluster = find_cluster(BASELINES, "dlperf-v100", local="local")
    counts = {name: len(load_baselines(cluster, name)) for name in cluster.systems or ()}
    assert cluster.estimator is Estimator.PUBLISHED
    assert sum(counts.values()) == 115


@pytest.mark.parametrize(
    ("old", "new_text", "expected"),
    [
        ("throughput: 352.72", "throughput: -1", "8: $.entries.fp32-b128.1n1g.throughput: found"),
        ("throughput: 352.72", "throughput: 0", "8: $.entries.fp32-b128.1n1g.throughput: found"),
        ("throughput: 352.72", "throughput: .nan", "8: $.entries.fp32-b128.1n1g.throughput: f"),
        ("throughput: 352.72", "throughput: fast", "8: $.entries.fp32-b128.1n1g.throughput: fo"),
        ("speedup: 26.5", "speedup: .inf", "14: $.entries.fp32-b128.4n8g.speedup: found"),
        ("speedup: 26.5", "speedupp: 26.5", "14: $.entries.fp32-b128.4n8g.speedupp: unknown key"),
        ("{1: 352.0, 2: 353.44}", "{1: 352.0, 1: 353.44}", "10: $.entries.fp32-b128.1n1g.runs.1:"),
        ("{1: 352.0, 2: 353.44}", "{1: 352.0, x: 353.44}", "10: $.entries.fp32-b128.1n1g.runs.x:"),
        ("4n8g:", "1n1g:", "12: $.entries.fp32-b128.1n1g: the key stands twice; the first is on"),
        ("4n8g:", "4n8:", "13: $.entries.fp32-b128.4n8: '4n8' is not a topology"),
        ("fp16-b224:", "fp16-224:", "16: $.entries.fp16-224: 'fp16-224' names no case"),
        ("paddle-resnet50\n", "paddle-resnet\n", "2: $.system: found 'paddle-resnet'; the file"),
        ("estimator: steady", "estimator: steedy", "4: $.estimator: found 'steedy', text; allow"),
        ("unit: images/s\n", "", "2: $: the key 'unit' is missing"),
    ],
)
def test_a_mistake_is_told_by_line_and_key_path(
    cluster: Cluster, old: str, new_text: str, expected: str
) -> None:
    assert GOOD.count(old) == 1
    file = write(cluster, GOOD.replace(old, new_text))
    with pytest.raises(YamlError) as caught:
        load_baselines(cluster, "paddle-resnet50")
    [problem] = caught.value.problems
    assert str(problem).removeprefix(f"{file}:").startswith(expected)


def test_an_unknown_cluster_is_told_with_those_that_there_are(tmp_path: Path) -> None:
    (tmp_path / "a100").mkdir()
    (tmp_path / "a100" / "cluster.yaml").write_text("estimator: steady\n", encoding="utf-8")
    with pytest.raises(UnknownClusterError, match=r"no cluster 'v100'.*there are: a100, local"):
        find_cluster(tmp_path, "v100", local="local")


def test_the_local_cluster_needs_no_file(tmp_path: Path) -> None:
    assert find_cluster(tmp_path, "local", local="local").estimator is Estimator.STEADY


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


def cluster_file(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "office" / "cluster.yaml"
    file.parent.mkdir()
    file.write_text(text, encoding="utf-8")
    return file


def test_a_cluster_says_what_launches_on_it_need(tmp_path: Path) -> None:
    file = cluster_file(tmp_path, CLUSTER)

    cluster = find_cluster(tmp_path, "office", local="local")

    assert (cluster.devices_per_node, cluster.python) == (8, "/usr/bin/python3.6")
    assert [(one.system, one.name, one.key, one.value) for one in cluster.assignments] == [
        ("*", "extra_args", "", ("--a", "b c")),
        ("*", "pause_s", "", "20"),
        ("paddle-resnet50", "checkout", "", "/models"),
        ("paddle-resnet50", "shards", "", "10"),
        ("paddle-resnet50", "extra_args", "", ("--a", "b c", "1")),
        ("paddle-resnet50", "env", "NCCL_DEBUG", "INFO"),
        ("paddle-resnet50", "env", "LIMIT", "0.80"),
        ("paddle-resnet50", "python", "", "/conda/bin/python"),
    ]
    checkout = cluster.assignments[2]
    assert (checkout.place, checkout.key_path) == (f"{file}:7", "$.vars.paddle-resnet50.checkout")


@pytest.mark.parametrize(
    ("old", "new_text", "expected"),
    [
        ("node: 8", "node: 0", "2: $.devices_per_node: found '0', a number; allowed: an integer"),
        ("/usr/bin/python3.6", "3.6", "3: $.python: found '3.6', a number; allowed: a Python int"),
        ("b c'\"", 'b c"', "5: $.vars.*.extra_args: the arguments cannot be told apart"),
        ("pause_s: 20", "pause_s: -2", "5: $.vars.*.pause_s: pause_s must be a number of seconds"),
        ("checkout: /models", "checkout: [a]", "7: $.vars.paddle-resnet50.checkout: found a list"),
        ("[--a, b c, 1]", "[--a, {b: c}]", "9: $.vars.paddle-resnet50.extra_args[1]: found a ma"),
        (
            "NCCL_DEBUG: I",
            "A=B: I",
            "11: $.vars.paddle-resnet50.env.A=B: 'A=B' is not the name of",
        ),
        ("LIMIT: 0.80", "LIMIT:", "12: $.vars.paddle-resnet50.env.LIMIT: found nothing; allowed"),
    ],
)
def test_a_mistake_of_a_cluster_is_told_by_line_and_key_path(
    tmp_path: Path, old: str, new_text: str, expected: str
) -> None:
    assert CLUSTER.count(old) == 1
    file = cluster_file(tmp_path, CLUSTER.replace(old, new_text))
    with pytest.raises(YamlError) as caught:
        find_cluster(tmp_path, "office", local="local")
    [problem] = caught.value.problems
    assert str(problem).removeprefix(f"{file}:").startswith(expected)


def test_the_first_baselines_make_the_files(cluster: Cluster) -> None:
    added = record(
        cluster,
        new("paddle-resnet50-fp32-b128-1n1g", 352.7251, 1.0),
        new("paddle-resnet50-fp32-b128-4n8g", 9348.17),
        new("paddle-resnet50-fp16-b196-dali-1n1g", 0.00123456789, None),
    )

    assert len(added) == 3
    baselines = load_baselines(cluster, "paddle-resnet50")
    assert baselines["fp32-b128", "1n1g"].throughput == 352.725
    assert baselines["fp32-b128", "4n8g"].speedup == 3.5
    assert baselines["fp16-b196-dali", "1n1g"].throughput == 0.00123457
    found = find_cluster(cluster.directory.parent, "mine", local="local")
    assert found.estimator is Estimator.STEADY


def test_recording_leaves_every_line_that_stands(cluster: Cluster) -> None:
    file = write(cluster, GOOD)

    record(
        cluster,
        new("paddle-resnet50-fp32-b128-1n8g", 2600.0),
        new("paddle-resnet50-fp16-b196-dali-1n1g", 887.0),
    )

    now = file.read_text(encoding="utf-8").splitlines()
    kept = iter(now)
    assert all(line in kept for line in GOOD.splitlines())
    assert set(load_baselines(cluster, "paddle-resnet50")) == {
        ("fp32-b128", "1n1g"),
        ("fp32-b128", "1n8g"),
        ("fp32-b128", "4n8g"),
        ("fp16-b224", "1n1g"),
        ("fp16-b196-dali", "1n1g"),
    }


def test_recording_never_changes_a_number_that_stands(cluster: Cluster) -> None:
    file = write(cluster, GOOD)
    assert record(cluster, new("paddle-resnet50-fp32-b128-1n1g", 1.0)) == ()
    assert file.read_text(encoding="utf-8") == GOOD


def test_a_missing_speedup_is_added_to_its_entry(cluster: Cluster) -> None:
    without = GOOD.replace("      speedup: 26.5\n", "")
    file = write(cluster, without)

    known = load_baselines(cluster, "paddle-resnet50")["fp32-b128", "4n8g"]
    case = Case.parse("paddle-resnet50-fp32-b128-4n8g")
    at = "2026-11-21T03:00:00+00:00"
    record(cluster, Change(kind=ChangeKind.SPEEDUP, case=case, known=known, speedup=26.4, at=at))

    baseline = load_baselines(cluster, "paddle-resnet50")["fp32-b128", "4n8g"]
    assert (baseline.throughput, baseline.speedup) == (9348.17, 26.4)
    kept = iter(file.read_text(encoding="utf-8").splitlines())
    assert all(line in kept for line in without.splitlines())


def test_a_file_with_mistakes_stays_as_it_is(cluster: Cluster) -> None:
    text = GOOD.replace("estimator: steady", "estimator: steedy")
    file = write(cluster, text)
    with pytest.raises(YamlError):
        record(cluster, new("paddle-resnet50-fp32-b128-1n8g"))
    assert file.read_text(encoding="utf-8") == text


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("", encoding="utf-8")
    cluster = Cluster(name="mine", directory=blocked / "mine", estimator=Estimator.STEADY)
    with pytest.raises(LockError, match=r"mine/\.lock cannot be made"):
        record(cluster, new("paddle-resnet50-fp32-b128-1n8g"))


@pytest.mark.parametrize(
    "emptied", ["entries:\n", "entries:\n  fp32-b128:\n", "entries:\n  fp16-b224:\n"]
)
def test_what_deleting_leaves_can_be_read_and_extended(cluster: Cluster, emptied: str) -> None:
    file = write(cluster, GOOD[: GOOD.index("entries:")] + emptied)
    assert load_baselines(cluster, "paddle-resnet50") == {}

    record(cluster, new("paddle-resnet50-fp32-b128-1n8g", 2600.0))

    assert set(load_baselines(cluster, "paddle-resnet50")) == {("fp32-b128", "1n8g")}
    kept = iter(file.read_text(encoding="utf-8").splitlines())
    assert all(line in kept for line in emptied.splitlines())


def test_line_ends_stay_what_they_are(cluster: Cluster) -> None:
    file = write(cluster, "")
    old = GOOD.replace("\n", "\r\n")
    file.write_bytes(old.encode())

    record(cluster, new("paddle-resnet50-fp32-b128-1n8g", 2600.0))

    text = file.read_bytes().decode()
    assert text.count("\r\n") == text.count("\n") > old.count("\n")
    kept = iter(text.split("\r\n"))
    assert all(line in kept for line in old.split("\r\n"))
