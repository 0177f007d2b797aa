"""Cases that are launched: measured once, judged by what the trainer did."""

import json
from collections import Counter
from pathlib import Path

import pytest
from trainers import CASES, SYSTEM, TinySystem

pytestmark = pytest.mark.end_to_end


def test_each_case_is_launched_once_per_session(suite, workers):
    """Throughput, speedup and the reference of two speedups ask for the same measurements."""
    tiny = TinySystem(suite)

    result, results = suite.judge("-k", "tiny", *workers, cluster="local")

    assert result.ret == 1
    assert Counter(tiny.starts()) == Counter(
        f"{topology} {node} {run}"
        for topology, nodes in (("1n1g", 1), ("1n2g", 1), ("2n1g", 2))
        for node in range(nodes)
        for run in (1, 2, 3)
    )
    judged = {case["id"]: case for case in results["cases"]}
    assert set(judged) == set(CASES)
    assert judged["tiny-mlp-fp32-b4-1n1g"]["metrics"]["throughput"]["median"] == pytest.approx(
        400, rel=1e-4
    )
    assert judged["tiny-mlp-fp32-b4-1n2g"]["metrics"]["speedup"]["median"] == pytest.approx(
        2 * 2**0.5, rel=1e-4
    )
    assert {case["metrics"]["throughput"]["verdict"] for case in judged.values()} == {"no_baseline"}


def test_logs_lie_in_the_benchmark_s_tree_and_can_be_judged_again(suite):
    TinySystem(suite)
    runs = suite.path / "night"

    _, launched = suite.judge("-k", "tiny", "--dlperf-run-dir", runs, cluster="local")

    logs = sorted(path.relative_to(runs) for path in runs.glob("*/*/*.log"))
    assert [str(log) for log in logs] == [
        f"{SYSTEM}/{topology}/mlp_b4_fp32_{run}.log"
        for topology in ("1n1g", "1n2g", "2n1g")
        for run in (1, 2, 3)
    ]
    assert (runs / SYSTEM / "2n1g" / "mlp_b4_fp32_1" / "node1.log").is_file()
    file = runs / SYSTEM / "2n1g" / "mlp_b4_fp32_3" / "command.json"
    nodes = json.loads(file.read_text(encoding="utf-8"))["nodes"]
    assert [node["arguments"][2:] for node in nodes] == [
        ["2", "1", "0", "10", "3"],
        ["2", "1", "1", "10", "3"],
    ]
    _, read = suite.judge("-k", "tiny", "--dlperf-logs", f"{SYSTEM}={runs}", cluster="local")
    by_id = {case["id"]: case for case in read["cases"]}
    for case in launched["cases"]:
        found, expected = by_id[case["id"]]["metrics"], case["metrics"]
        # Logs do not tell it, nor does a launch that was over before somebody looked.
        del found["first_step_time"], expected["first_step_time"]
        assert found == expected
    assert read["ignored_logs"] == []


def test_what_is_not_installed_skips_and_says_how_to_get_it(suite):
    tiny = TinySystem(suite)
    file = suite.path / "bench_tests" / "systems" / "own.yaml"
    needs = "  requires_modules: [no_such_module]\n  install_hint: buy it\n  time_limit_s:"
    file.write_text(file.read_text(encoding="utf-8").replace("  time_limit_s:", needs))

    result, _ = suite.judge("-k", "throughput and tiny and 1n1g", "-rs", cluster="local")

    assert tiny.starts() == []
    how = "buy it. Where another Python has it: --dlperf-set tiny-mlp.python=/path/to/python"
    result.stdout.fnmatch_lines([f"*tiny-mlp needs the Python module no_such_module: {how}*"])


def test_runs_work_where_the_cluster_says_and_leave_nothing(suite):
    TinySystem(suite, launch=['working_directory: "{scratch_directory}"'])
    disk = suite.path / "disk"
    cluster = suite.path / "baselines" / "local"
    cluster.mkdir()
    (cluster / "cluster.yaml").write_text(f"scratch: {disk}\n", encoding="utf-8")
    select = ["-k", "throughput and tiny and 2n1g", "--dlperf-repeats", "1"]
    runs = suite.path / "night"

    without = suite.run(*select)
    disk.mkdir()
    result = suite.run(*select, "--dlperf-create-baselines", "--dlperf-run-dir", runs)

    assert without.ret == 1
    without.stdout.fnmatch_lines([f"*scratch in cluster.yaml: there is no folder '{disk}'*"])
    assert result.ret == 0
    [record] = runs.glob("*/*/*/command.json")
    nodes = json.loads(record.read_text(encoding="utf-8"))["nodes"]
    assert {Path(node["working_directory"]).parents[1] for node in nodes} == {disk}
    assert list(disk.iterdir()) == []


@pytest.mark.slow
def test_a_killed_worker_does_not_mix_two_runs(suite):
    """The next worker measures again, and what the dead one left is kept apart."""
    tiny = TinySystem(suite)
    trainer = tiny.folder / "train.py"
    kill_once = (
        "if not (here / 'killed.txt').exists():\n"
        "    (here / 'killed.txt').write_text('')\n"
        "    print('dlperf step rank=0 step=1 time=0.5 loss=1.0', flush=True)\n"
        "    supervisor = pathlib.Path(f'/proc/{os.getppid()}/stat').read_text()\n"
        "    os.kill(int(supervisor.rpartition(')')[2].split()[1]), 9)  # the worker\n"
        "    time.sleep(600)\n"
        "for step in range"
    )
    trainer.write_text(
        trainer.read_text(encoding="utf-8").replace("for step in range", kill_once, 1)
    )
    runs = suite.path / "night"

    result, results = suite.judge(
        "-k", "tiny and 1n1g or tiny and 1n2g", "-n", "2", "--dlperf-run-dir", runs,
        cluster="local",
    )  # fmt: skip

    result.stdout.fnmatch_lines(["*worker*crashed*"])
    assert result.ret == 1
    assert list(runs.glob("*/*/*.log.interrupted1"))
    finished = [case for case in results["cases"] if case["measurement"]]
    assert finished
    for case in finished:
        assert [run["status"] for run in case["measurement"]["runs"]] == ["ok"] * 3
