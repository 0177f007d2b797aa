"""What a look through a cluster's files finds, without measuring anything."""

from pathlib import Path

import pytest
from baseline_texts import METRICS, SYSTEM, case, cluster_in, write
from msgspec.structs import replace

from pytest_dlperf.baselines.checking import check_cluster
from pytest_dlperf.config.cluster import find_cluster
from pytest_dlperf.config.systems import System, load_systems
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS
from pytest_dlperf.model.case import Topology
from pytest_dlperf.model.measurement import Window
from pytest_dlperf.model.metric import SPEEDUP_METRIC

MEMORY = METRICS["peak_memory"]
ROOT = Path(__file__).parent.parent


def declared(cases, *metrics):
    return System(
        framework="paddle",
        model="resnet50",
        unit="images/s",
        log_name="r50",
        log_format=BUILTIN_FORMATS["paddle_resnet"],
        window=Window(warmup_steps=20, measured_steps=100),
        cases=cases,
        metrics=(METRICS["throughput"], SPEEDUP_METRIC, *metrics),
        file=Path("paddle-resnet50.yaml"),
    )


CASES = (case("fp32-b128-1n1g"), case("fp32-b128-1n8g"))
SYSTEMS = {SYSTEM: declared(CASES)}

TEXT = """\
system: paddle-resnet50
metrics:
  throughput: {unit: images/s, better: higher}
  speedup: {unit: x, better: higher}
estimator: steady
entries:
  fp32-b128:
    1n1g:
      throughput:
        accepted: 352.72
        runs: {1: 352.0, 2: 353.44}
    1n8g:
      throughput:
        accepted: 2626.0
        mean: 2650.33
        runs: {1: 2625.0, 2: 2626.0, 3: 2700.0}
        sessions:
          - {at: "2026-11-01T03:00:00+00:00", runs: [2620.0, 2630.0]}
          - {at: "2026-11-02T03:00:00+01:00", runs: [2620.0, 2630.0]}
      speedup: {accepted: 7.44499, over: 352.72}
      acceptance:
        at: "2026-10-01T03:00:00Z"
"""


@pytest.fixture
def cluster(tmp_path):
    return cluster_in(tmp_path)


def found(cluster, text):
    file = write(cluster, text)
    return [
        (str(one).removeprefix(f"{file}:"), one.is_error) for one in check_cluster(cluster, SYSTEMS)
    ]


def test_a_good_file_has_no_findings(cluster):
    assert found(cluster, TEXT) == []


def test_the_published_files_have_no_findings():
    files = sorted((ROOT / "bench_tests" / "systems").glob("*.yaml"))
    cluster = find_cluster(ROOT / "baselines", "dlperf-v100")

    assert list(check_cluster(cluster, load_systems(files, BUILTIN_FORMATS))) == []


EIGHT = "paddle-resnet50-fp32-b128-1n8g: "
DELETE = "delete it here and in the entries"
FAULTS = {
    ("    1n8g:", "    1n4g:\n      throughput: 9.0\n    1n8g:"): (
        "13: stale: paddle-resnet50 has no case fp32-b128-1n4g; delete the entry"
    ),
    ("unit: images/s", "unit: image/s"): (
        "3: throughput is in 'image/s', higher is better, that of the system in 'images/s', "
        f"higher is better: they are never compared; {DELETE}, to be recorded anew"
    ),
    ("estimator: steady", "estimator: published"): (
        "1: the estimator is published, that of the cluster steady; they are never compared"
    ),
    ("accepted: 2626.0", "accepted: -2626.0"): (
        "14: $.entries.fp32-b128.1n8g.throughput.accepted: found '-2626.0'; allowed: a finite "
        "number above 0"
    ),
    ("2026-10-01T03:00:00Z", "2026-13-01T03:00:00Z"): (
        "22: $.entries.fp32-b128.1n8g.acceptance: '2026-13-01T03:00:00Z' is not a time with its "
        "zone, as in '2026-11-21T03:00:00+00:00'"
    ),
    ("      speedup: {accepted: 7.44499, over: 352.72}\n", ""): (
        "1: 1 case has no speedup: paddle-resnet50-fp32-b128-1n8g "
        "(--dlperf-create-baselines records them)"
    ),
}


@pytest.mark.parametrize(("change", "told"), FAULTS.items())
def test_a_fault_is_told_with_its_place(cluster, change, told):
    assert TEXT.count(change[0]) == 1
    assert found(cluster, TEXT.replace(*change))[0] == (told, True)


def test_cases_without_baseline_are_listed(cluster):
    more = tuple(case(f"fp32-b{batch}-1n1g") for batch in range(1, 8))
    systems = {SYSTEM: declared((*CASES, *more))}
    file = write(cluster, TEXT)

    [finding] = check_cluster(cluster, systems)

    assert str(finding) == (
        f"{file}:1: 7 cases have no baseline: paddle-resnet50-fp32-b1-1n1g, "
        "paddle-resnet50-fp32-b2-1n1g, paddle-resnet50-fp32-b3-1n1g, paddle-resnet50-fp32-b4-1n1g, "
        "paddle-resnet50-fp32-b5-1n1g and 2 more (--dlperf-create-baselines records them)"
    )
    assert finding.is_error


WITH_MEMORY = TEXT.replace(
    "estimator:", "  peak_memory: {unit: MB, better: lower}\nestimator:"
).replace("      speedup: {", "      peak_memory: 13000\n      speedup: {")


@pytest.mark.parametrize(
    ("metrics", "told"),
    [
        ([replace(MEMORY, name="peak_memori")], "'peak_memory' is declared; did you mean"),
        ([replace(MEMORY, is_judged=False)], "does not judge the metric 'peak_memory' any more"),
        ([replace(MEMORY, better=None)], "does not judge the metric 'peak_memory' any more"),
    ],
)
def test_a_metric_that_the_system_judges_no_more_is_told_once(cluster, metrics, told):
    file = write(cluster, WITH_MEMORY)
    findings = check_cluster(cluster, {SYSTEM: declared(CASES, *metrics)})
    [finding] = [one for one in findings if "stale" in one.message]
    assert finding.place == f"{file}:5"
    assert told in finding.message


def test_a_judged_metric_without_numbers_is_listed(cluster):
    file = write(cluster, WITH_MEMORY)

    [finding] = check_cluster(cluster, {SYSTEM: declared(CASES, MEMORY)})

    assert str(finding) == (
        f"{file}:1: 1 case has no peak_memory: paddle-resnet50-fp32-b128-1n1g "
        "(--dlperf-create-baselines records them)"
    )


@pytest.mark.parametrize("reference", ["2n8g", "1n8g", None])
def test_a_speedup_over_another_topology_is_stale(cluster, reference):
    """Be it the case's own topology, over which it has no speedup any more, or none."""
    file = write(cluster, TEXT)
    over = reference and Topology.parse(reference)
    cases = tuple(replace(one, reference_topology=over) for one in CASES)
    findings = list(check_cluster(cluster, {SYSTEM: declared(cases)}))
    [finding] = [one for one in findings if "stale" in one.message]
    assert finding.place == f"{file}:20"
    assert f"the speedup of {cases[1].id} is over 1n1g, that of the system over " in str(finding)


def test_a_system_without_a_file_is_a_fault_only_where_the_cluster_runs_it(
    cluster,
):
    [note] = check_cluster(cluster, SYSTEMS)
    assert str(note) == (
        f"{cluster.directory}: paddle-resnet50: none of its 2 cases has a baseline"
    )
    assert not note.is_error
    [fault] = check_cluster(replace(cluster, systems=(SYSTEM,)), SYSTEMS)
    assert fault == replace(note, is_error=True)
    assert list(check_cluster(replace(cluster, systems=()), SYSTEMS)) == []


def test_files_and_names_that_fit_no_system_are_faults(cluster):
    file = write(cluster, TEXT)
    (cluster.directory / "cluster.yaml").write_text("systems: [paddle-resnet5]\n", encoding="utf-8")
    listed = replace(cluster, systems=("paddle-resnet5",))
    assert [str(one) for one in check_cluster(listed, SYSTEMS)] == [
        (
            f"{file.parent}/cluster.yaml:1: names the system 'paddle-resnet5', which no system "
            "file declares; did you mean 'paddle-resnet50'?"
        ),
        f"{file}:1: cluster.yaml does not list the system 'paddle-resnet50', so nothing reads this",
    ]
    [unknown] = check_cluster(cluster, {})
    assert unknown.message.startswith("no system file declares 'paddle-resnet50'")
    assert unknown.is_error
