"""The published figures of the seed systems: complete, copied right and borne out by their runs."""

from pathlib import Path

import pytest
import yaml

from pytest_dlperf.model import statistics
from pytest_dlperf.model.case import Case, Topology
from pytest_dlperf.model.measurement import Estimator, Measurement, Run, RunStatus
from pytest_dlperf.model.metric import SPEEDUP, SPEEDUP_METRIC, THROUGHPUT, throughput
from pytest_dlperf.model.work import Work

ROOT = Path(__file__).resolve().parent.parent
SYSTEM_FILES = ROOT / "bench_tests" / "systems"
CLUSTER = ROOT / "baselines" / "dlperf-v100"
TABLES = Path(__file__).parent / "data" / "published_tables.yaml"

PUBLISHED_CASES = {
    "paddle-resnet50": 21,
    "ngc_pytorch-resnet50": 3,
    "pytorch-resnet50": 20,
    "paddle-arcface_r50": 5,
    "tensorflow-bert_base": 66,
}
ONCE_MISCOUNTED = "ngc_pytorch-resnet50-fp32-b128-1n8g"
ONCE_MISPRINTED = "paddle-resnet50-fp16-b224-4n8g"


def read(path):
    return yaml.load(path.read_bytes(), yaml.CSafeLoader)


def cases_of(system):
    plain = read(SYSTEM_FILES / f"{system}.yaml")
    return [
        Case(
            framework=plain["framework"],
            model=plain["model"],
            precision=group["precision"],
            work=Work(batch=group["batch_per_device"]),
            options=tuple(group.get("options", ())),
            topology=Topology.parse(topology),
        )
        for group in plain["cases"]
        for topology in group["topologies"]
    ]


def entries_of(system):
    """What is accepted of each metric of a system's cases; a bare number is the accepted one."""
    groups = read(CLUSTER / f"{system}.yaml")["entries"]
    return {
        f"{system}-{variant}-{topology}": {
            metric: said if isinstance(said, dict) else {"accepted": said}
            for metric, said in entry.items()
        }
        for variant, topologies in groups.items()
        for topology, entry in topologies.items()
    }


def rows_of_tables():
    return {
        f"{system}-{variant}-{topology}": row
        for system, variants in read(TABLES).items()
        for variant, topologies in variants.items()
        for topology, row in topologies.items()
    }


CASES = {case.id: case for system in PUBLISHED_CASES for case in cases_of(system)}
ENTRIES = {
    case_id: entry for system in PUBLISHED_CASES for case_id, entry in entries_of(system).items()
}
ROWS = rows_of_tables()
WITH_RUNS = sorted(case_id for case_id, entry in ENTRIES.items() if "runs" in entry["throughput"])


def accepted(case_id, metric=THROUGHPUT):
    return ENTRIES[case_id][metric]["accepted"]


def reference_of(case_id):
    reference = CASES[case_id].reference
    return reference.id


def measurement_from_printed_runs(case_id):
    entry = ENTRIES[case_id][THROUGHPUT]
    metrics = read(CLUSTER / f"{CASES[case_id].system}.yaml")["metrics"]
    return Measurement(
        case_id=case_id,
        metrics=(throughput(metrics[THROUGHPUT]["unit"]),),
        estimator=Estimator.PUBLISHED,
        runs=tuple(
            Run(run=run, metrics={THROUGHPUT: number}, status=RunStatus.OK)
            for run, number in {**entry["runs"], **entry.get("strays", {})}.items()
        ),
    )


def speedup_from_printed_throughputs(case_id):
    return statistics.rounded(accepted(case_id) / accepted(reference_of(case_id)), 2)


# The cases


def test_the_seed_systems_have_115_cases_and_94_of_them_train_on_several_devices():
    assert len(CASES) == 115
    assert sum(case.topology.world_size > 1 for case in CASES.values()) == 94


@pytest.mark.parametrize("system", PUBLISHED_CASES)
def test_a_system_has_the_published_cases_each_named_once(system):
    ids = [case.id for case in cases_of(system)]

    assert len(ids) == PUBLISHED_CASES[system]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("system", PUBLISHED_CASES)
def test_a_system_stands_in_the_file_of_its_name(system):
    assert {case.system for case in cases_of(system)} == {system}


def test_every_case_id_can_be_read_back():
    assert [Case.from_id(case_id) for case_id in CASES] == list(CASES.values())


def test_each_published_case_has_a_baseline_and_each_baseline_a_case():
    assert set(ENTRIES) == set(CASES)


# The baselines against the tables


def test_the_tables_and_the_baselines_have_the_same_cases():
    assert set(ROWS) == set(ENTRIES)


def test_the_baselines_are_what_the_tables_say():
    said = {}
    for case_id, entry in ENTRIES.items():
        row = [accepted(case_id), accepted(case_id, SPEEDUP)]
        said[case_id] = [*row, entry[THROUGHPUT]["mean"]] if "mean" in entry[THROUGHPUT] else row
    assert said == ROWS


def test_a_baseline_has_a_mean_exactly_where_it_has_runs():
    with_means = {case_id for case_id, entry in ENTRIES.items() if "mean" in entry[THROUGHPUT]}

    assert with_means == set(WITH_RUNS)


# The printed figures against the printed runs


def test_one_variant_of_each_system_has_its_runs_in_every_topology():
    variants = {(CASES[case_id].system, CASES[case_id].variant) for case_id in WITH_RUNS}

    assert sorted(system for system, _ in variants) == sorted(PUBLISHED_CASES)
    assert set(WITH_RUNS) == {
        case_id for case_id, case in CASES.items() if (case.system, case.variant) in variants
    }


def test_printed_runs_give_the_printed_median_mean_and_speedup():
    measured = {case_id: measurement_from_printed_runs(case_id) for case_id in WITH_RUNS}

    found = {
        case_id: (
            measurement.samples(THROUGHPUT).median,
            measurement.samples(THROUGHPUT).mean,
            measurement.ratio(SPEEDUP_METRIC, measured[reference_of(case_id)]),
        )
        for case_id, measurement in measured.items()
    }
    assert found == {
        case_id: (
            accepted(case_id),
            ENTRIES[case_id][THROUGHPUT]["mean"],
            accepted(case_id, SPEEDUP),
        )
        for case_id in WITH_RUNS
    }


def test_runs_stand_in_the_order_of_their_numbers():
    for case_id in WITH_RUNS:
        runs = list(ENTRIES[case_id][THROUGHPUT]["runs"])
        assert runs == sorted(runs), case_id


def test_printed_throughputs_give_the_printed_speedup():
    printed_right = set(ENTRIES) - {ONCE_MISPRINTED}
    assert {case_id: speedup_from_printed_throughputs(case_id) for case_id in printed_right} == {
        case_id: accepted(case_id, SPEEDUP) for case_id in printed_right
    }


def test_the_one_speedup_that_was_printed_wrong_is_kept_and_noted():
    assert accepted(ONCE_MISPRINTED, SPEEDUP) == 10.2
    assert speedup_from_printed_throughputs(ONCE_MISPRINTED) == 10.28
    assert "10.28" in ENTRIES[ONCE_MISPRINTED][SPEEDUP]["note"]


# Where the published figures are odd


def test_strays_are_named_only_where_foreign_logs_were_counted():
    with_strays = [case_id for case_id, entry in ENTRIES.items() if "strays" in entry[THROUGHPUT]]

    assert with_strays == [ONCE_MISCOUNTED]


def test_the_five_real_runs_beside_the_strays_have_a_higher_median():
    entry = ENTRIES[ONCE_MISCOUNTED][THROUGHPUT]

    assert list(entry["runs"]) == [1, 2, 3, 4, 5]
    assert entry["strays"] == {7: 688.8, 10: 701.07, 13: 674.42}
    assert statistics.median(list(entry["runs"].values())) == 2806.66
    assert entry["accepted"] == 2802.14


def test_all_ten_runs_of_32_devices_in_pytorch_count():
    entry = ENTRIES["pytorch-resnet50-fp32-b128-dali+workers8-4n8g"][THROUGHPUT]

    assert list(entry["runs"]) == [1, 2, 3, 4, 5, 12, 22, 32, 42, 52]
    assert entry["accepted"] == 8816.7


@pytest.mark.parametrize(
    ("more_devices", "fewer_devices"),
    [
        ("paddle-resnet50-fp16-b196-dali-2n8g", "paddle-resnet50-fp16-b196-dali-1n8g"),
        ("pytorch-resnet50-fp32-b128-workers8-1n8g", "pytorch-resnet50-fp32-b128-workers8-1n4g"),
    ],
)
def test_two_cases_were_slower_on_twice_the_devices_and_say_so(more_devices, fewer_devices):
    assert accepted(more_devices) < accepted(fewer_devices)
    assert "slower" in ENTRIES[more_devices][THROUGHPUT]["note"]


def test_arcface_is_more_than_twice_as_fast_on_two_nodes():
    two_nodes = "paddle-arcface_r50-fp32-b128-2n8g"

    assert accepted(two_nodes) > 2 * accepted("paddle-arcface_r50-fp32-b128-1n8g")
    assert ENTRIES[two_nodes][THROUGHPUT]["note"]


# The files


def test_the_cluster_runs_the_systems_that_it_has_baselines_for():
    listed = read(CLUSTER / "cluster.yaml")["systems"]

    assert sorted(listed) == sorted(PUBLISHED_CASES)
    assert {path.stem for path in CLUSTER.glob("*.yaml")} == {*listed, "cluster"}


def test_the_cluster_is_large_enough_for_every_case():
    hardware = read(CLUSTER / "cluster.yaml")["hardware"]

    assert max(case.topology.nodes for case in CASES.values()) == hardware["nodes"]
    assert (
        max(case.topology.devices_per_node for case in CASES.values())
        == hardware["devices_per_node"]
    )


@pytest.mark.parametrize("system", PUBLISHED_CASES)
def test_a_baseline_file_names_its_system_unit_estimator_and_source(system):
    baselines = read(CLUSTER / f"{system}.yaml")

    assert baselines["system"] == system
    unit = read(SYSTEM_FILES / f"{system}.yaml")["unit"]
    assert baselines["metrics"] == {
        THROUGHPUT: {"unit": unit, "better": "higher"},
        SPEEDUP: {"unit": "x", "better": "higher"},
    }
    assert baselines["estimator"] == read(CLUSTER / "cluster.yaml")["estimator"] == "published"
    assert baselines["provenance"]["source"]
    assert baselines["provenance"]["framework_version"]
