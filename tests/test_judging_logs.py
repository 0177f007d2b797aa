"""Judging logs that exist: the published results come out again, to the last digit."""

import shutil

import log_makers
import pytest

from pytest_dlperf.baselines.reading import load_baselines
from pytest_dlperf.config.cluster import find_cluster
from pytest_dlperf.model.case import Case

pytestmark = [pytest.mark.end_to_end, pytest.mark.in_process]


def published(suite, system, variant):
    """What the cluster of the benchmark has of a training, by topology and metric."""
    cluster = find_cluster(suite.path / "baselines", "dlperf-v100")
    baselines = load_baselines(cluster, system)
    return {str(topology): by for (name, topology), by in baselines.items() if name == variant}


def verdicts(case):
    """Those of the metrics that were judged."""
    given = {name: metric["verdict"] for name, metric in case["metrics"].items()}
    return {name: verdict for name, verdict in given.items() if verdict is not None}


def bert_log(case, throughput):
    """A log whose steps 20 to 120 take as long as the throughput says."""
    step_s = case.global_batch / throughput
    return log_makers.tf_models_bert([step_s] * 121)


def dll_log(case, throughput):
    header = log_makers.dllogger_header(
        batch=case.batch_per_replica, world_size=case.topology.world_size
    )
    return header + log_makers.dllogger(
        [case.global_batch / throughput] * 126, global_batch=case.global_batch
    )


def write_runs(folder, case, log_name, runs):
    make = bert_log if log_name == "bert" else dll_log
    (folder / str(case.topology)).mkdir(parents=True, exist_ok=True)
    for run, throughput in runs.items():
        name = f"{log_name}_{case.training_work.batch_text}_{case.precision}_{run}.log"
        (folder / str(case.topology) / name).write_text(make(case, throughput), encoding="utf-8")


def write_bert(suite, folder):
    """The logs of all runs that the benchmark printed for BERT, FP32, batch 64."""
    entries = published(suite, "tensorflow-bert_base", "fp32-b64")
    for topology, entry in entries.items():
        case = Case.from_id(f"tensorflow-bert_base-fp32-b64-{topology}")
        write_runs(folder, case, "bert", entry["throughput"].runs)
    return entries


def test_all_printed_figures_come_out_of_logs(suite, workers):
    folder = suite.path / "logs" / "bz64"
    entries = write_bert(suite, folder)

    result, results = suite.judge(
        "--dlperf-logs", f"tensorflow-bert_base={folder}", "-k", "bert and fp32-b64-1n or "
        "fp32-b64-2n or fp32-b64-4n", *workers,
    )  # fmt: skip

    result.assert_outcomes(passed=11)
    assert result.ret == 0
    by_topology = {case["topology"]: case for case in results["cases"]}
    assert set(by_topology) == set(entries) == {"1n1g", "1n2g", "1n4g", "1n8g", "2n8g", "4n8g"}
    for topology, case in by_topology.items():
        entry = entries[topology]
        runs = {run["run"]: run["metrics"]["throughput"] for run in case["measurement"]["runs"]}
        throughput = case["metrics"]["throughput"]
        assert runs == entry["throughput"].runs
        assert throughput["median"] == entry["throughput"].accepted
        assert throughput["mean"] == entry["throughput"].mean
        if topology != "1n1g":
            assert case["metrics"]["speedup"]["median"] == entry["speedup"].accepted
        assert throughput["verdict"] == "pass"
    assert by_topology["4n8g"]["metrics"]["speedup"]["verdict"] == "pass"
    assert "speedup" not in by_topology["1n1g"]["metrics"]


def test_stray_logs_are_named_and_not_mixed_in(suite):
    """The benchmark itself mixed them in: its printed median is 2802.14."""
    folder = suite.path / "logs"
    case = Case.from_id("ngc_pytorch-resnet50-fp32-b128-1n8g")
    entry = published(suite, "ngc_pytorch-resnet50", "fp32-b128")["1n8g"]
    strays = {"7_9": 688.8, "4_6": 682.28, "1_3": 672.63, "10_12": 701.07, "13_15": 674.42}
    write_runs(folder, case, "r50", entry["throughput"].runs)
    write_runs(folder, case, "r50", strays)

    result, results = suite.judge(
        "--dlperf-logs", f"ngc_pytorch-resnet50={folder}", "-k", f"throughput and {case.id}"
    )

    assert result.ret == 0
    [judged] = results["cases"]
    assert judged["metrics"]["throughput"]["median"] == 2806.66
    assert [run["run"] for run in judged["measurement"]["runs"]] == [1, 2, 3, 4, 5]
    assert {log["log"].rpartition("_fp32_")[2] for log in results["ignored_logs"]} == {
        f"{name}.log" for name in strays
    }
    result.stdout.fnmatch_lines(
        [
            "logs that were left out: 5",
            "*_7_9.log: the name is not of the*",
        ]
    )


def test_a_slow_down_fails_with_verdict_numbers_and_logs(suite):
    folder = suite.path / "logs"
    case = Case.from_id("tensorflow-bert_base-fp32-b64-1n1g")
    write_runs(folder, case, "bert", {1: 104.0, 2: 105.0, 3: 106.0})

    result, results = suite.judge("--dlperf-logs", f"tensorflow-bert_base={folder}", "-k", case.id)

    assert result.ret == 1
    [judged] = results["cases"]
    assert judged["metrics"]["throughput"]["verdict"] == "regressed"
    result.stdout.fnmatch_lines(
        [
            "regressed -7.1 %: throughput",
            "*measured   105.00 sentences/s; higher is better",
            "*reference  112.99 sentences/s: *7.1 %; a loss of up to * passes",
            f"    logs in {folder}/1n1g/",
            "    run 1: 104.00  bert_b64_fp32_1.log",
        ]
    )


def test_a_case_without_logs_is_skipped_and_says_what_would_help(suite):
    folder = suite.path / "logs"
    write_bert(suite, folder)
    shutil.rmtree(folder / "4n8g")

    result, results = suite.judge(
        "--dlperf-logs", f"tensorflow-bert_base={folder}", "-k", "fp32-b64-4n8g or fp32-b64-2n8g",
        "-rs",
    )  # fmt: skip

    result.assert_outcomes(passed=2, skipped=2)
    skipped = next(case for case in results["cases"] if case["topology"] == "4n8g")
    assert verdicts(skipped) == {"throughput": "skipped", "speedup": "skipped"}
    assert skipped["measurement"] is None
    result.stdout.fnmatch_lines(["*no logs of tensorflow-bert_base-fp32-b64-4n8g; give their fol*"])


def test_a_speedup_without_its_reference_is_not_made_up(suite):
    folder = suite.path / "logs"
    write_bert(suite, folder)
    shutil.rmtree(folder / "1n1g")

    result, results = suite.judge(
        "--dlperf-logs", f"tensorflow-bert_base={folder}", "-k", "fp32-b64-4n8g", "-rs"
    )

    result.assert_outcomes(passed=1, failed=1)
    assert results["cases"][0]["metrics"]["speedup"]["median"] is None
    assert verdicts(results["cases"][0]) == {"throughput": "pass", "speedup": "invalid"}
    result.stdout.fnmatch_lines(
        [
            "invalid*: speedup; *its reference is not*: no logs of *-b64-1n1g*",
        ]
    )


def test_two_logs_for_one_run_are_invalid(suite):
    folder = suite.path / "logs"
    case = Case.from_id("tensorflow-bert_base-fp32-b64-1n1g")
    for night in ("monday", "tuesday"):
        write_runs(folder / night, case, "bert", {1: 113.0})

    result, results = suite.judge("--dlperf-logs", f"tensorflow-bert_base={folder}", "-k", case.id)

    assert result.ret == 1
    [run] = results["cases"][0]["measurement"]["runs"]
    assert run["status"] == "invalid"
    assert "2 logs claim to be run 1" in run["reason"]
    assert "monday" in run["reason"]
    assert "tuesday" in run["reason"]


def test_folders_may_name_the_options(suite):
    folder = suite.path / "logs"
    for options in ("", "xla"):
        variant = f"fp32-b64{'-xla' if options else ''}"
        case = Case.from_id(f"tensorflow-bert_base-{variant}-1n1g")
        throughput = published(suite, "tensorflow-bert_base", variant)["1n1g"][
            "throughput"
        ].accepted
        write_runs(folder / options, case, "bert", {1: throughput})

    result, _ = suite.judge(
        "--dlperf-logs", f"tensorflow-bert_base={folder}", "-k", "throughput and fp32-b64 and 1n1g"
    )
    result.assert_outcomes(passed=2)

    result, results = suite.judge(
        "--dlperf-logs", f"tensorflow-bert_base/xla={folder / 'xla'}", "-k", "fp32-b64-xla-1n1g"
    )
    result.assert_outcomes(passed=1)
    assert results["ignored_logs"] == []


def test_a_folder_is_found_beside_a_log_of_its_name(suite):
    """``tee logs/1n1g.log`` must not hide ``logs/1n1g/``."""
    case = Case.from_id("tensorflow-bert_base-fp32-b64-1n1g")
    write_runs(suite.path / "logs", case, "bert", {1: 113.0})
    (suite.path / "logs" / "1n1g.log").write_text("what the script said", encoding="utf-8")

    result, results = suite.judge("--dlperf-logs", "tensorflow-bert_base=logs", "-k", case.id)

    assert result.ret == 0
    assert len(results["ignored_logs"]) == 1
