"""Logs that the user names one by one: ``--dlperf-logs CASE=FILE``, whatever they are called."""

import log_makers
import pytest

from pytest_dlperf.config.cluster import Cluster
from pytest_dlperf.config.systems import load_systems
from pytest_dlperf.config.values import OptionText, log_source
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS
from pytest_dlperf.measure.from_logs import LogMeasurer, find_logs
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.measurement import RunStatus

pytestmark = pytest.mark.in_process

SYSTEM = """
framework: own
model: net
unit: samples/s
log: {name: net, format: {record: 'step (?P<step>[0-9]+) took (?P<seconds>[0-9.]+) s'}}
window: {warmup_steps: 1, measured_steps: 4}
cases:
  - {precision: fp32, batch_per_device: 8, topologies: [1n1g, 2n2g]}
  - {precision: amp, batch_per_device: 8, options: [xla], topologies: [1n1g]}
"""
ONE, TWO = "own-net-fp32-b8-1n1g", "own-net-fp32-b8-2n2g"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "own.yaml").write_text(SYSTEM, encoding="utf-8")
    return tmp_path


def write(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("step 1 took 0.1 s\n", encoding="utf-8")


def found(folder, *given):
    systems = load_systems([folder / "own.yaml"], BUILTIN_FORMATS)
    return find_logs(
        [log_source(OptionText(one, "--dlperf-logs", folder)) for one in given], systems
    )


def runs(folder, *given):
    """The logs of each case by run, as they lie in the folder."""
    place = f"{folder}/"
    return {
        case: {run: [log.removeprefix(place) for log in logs] for run, logs in by_run.items()}
        for case, by_run in found(folder, *given).logs.items()
    }


def refusal(folder, *given):
    with pytest.raises(UsageError) as caught:
        found(folder, *given)
    return str(caught.value).replace(f"{folder}/", "")


def test_files_of_a_case_are_its_runs_in_the_order_given(folder):
    write(folder, "slurm-4711.out", "out/slurm-9.out", "out/slurm-10.out", "b[1].out")

    assert runs(folder, f"{ONE}=slurm-4711.out", f"{TWO}=out/slurm-9.out") == {
        ONE: {1: ["slurm-4711.out"]},
        TWO: {1: ["out/slurm-9.out"]},
    }
    assert runs(folder, f"{ONE}=slurm-4711.out", f"{ONE}=out/slurm-*.out", f"{ONE}=b[1].out") == {
        ONE: {
            1: ["slurm-4711.out"],
            2: ["out/slurm-9.out"],
            3: ["out/slurm-10.out"],
            4: ["b[1].out"],
        }
    }


def test_a_path_begins_at_home_or_where_it_was_written(folder, monkeypatch):
    write(folder, "home/a.out")
    monkeypatch.setenv("HOME", str(folder / "home"))
    assert runs(folder, f"{ONE}=~/a.out") == {ONE: {1: ["home/a.out"]}}
    assert "~nobody_here/a.out" in refusal(folder, f"{ONE}=~nobody_here/a.out")


def test_a_run_has_the_log_of_each_node(folder):
    write(folder, "n0.out", "n1.out", "n2.out")
    index = found(folder, f"{TWO}=n0.out, n1.out")
    assert index.logs == {TWO: {1: [f"{folder}/n0.out"]}}
    assert index.nodes == {f"{folder}/n0.out": [f"{folder}/n1.out"]}
    assert "3 files of one run with 2 node(s)" in refusal(folder, f"{TWO}=n0.out,n1.out,n2.out")


def test_files_follow_the_runs_of_a_tree(folder):
    write(folder, "1n1g/net_b8_fp32_1.log", "1n1g/net_b8_fp32_3.log", "again.out")
    index = found(folder, f"{ONE}=again.out", "own-net=.", f"{ONE}=1n1g/net_b8_fp32_3.log")
    assert list(index.logs[ONE]) == [1, 3, 4]
    assert index.logs[ONE][4] == [f"{folder}/again.out"]


def test_a_file_that_is_named_twice_is_one_run(folder):
    write(folder, "a.out")
    (folder / "link.out").symlink_to("a.out")
    assert runs(folder, f"{ONE}=*.out", f"{ONE}=./a.out") == {ONE: {1: ["a.out"]}}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([f"{ONE}8=a.out"], f"there is no such case; did you mean {ONE!r}?"),
        (["own-net-fp32=a.out"], "there is no such case"),
        ([f"{ONE}=nowhere.out"], "there is no file nowhere.out"),
        ([f"{ONE}=no*.out"], "there is no file no*.out"),
        ([f"{TWO}=a.out,nowhere.out"], "there is no file nowhere.out"),
        ([f"{ONE}={'x' * 300}"], f"there is no file {'x' * 300}"),
        ([f"{TWO}=a.out,{'x/' * 3000}"], "there is no file x/x/"),
        ([f"own-net={'x' * 300}"], "x: "),
        ([f"{ONE}=/dev/null"], "there is no file /dev/null"),
        ([f"{ONE}=f*"], "folder is a folder"),
        ([f"{ONE}=folder"], f"--dlperf-logs '{ONE}=folder/*.out'"),
    ],
)
def test_what_is_no_log_of_a_case_is_refused(folder, given, said):
    write(folder, "a.out", "folder/a.out")
    assert said in refusal(folder, *given)


def test_a_folder_that_is_named_as_a_log_is_listed(folder):
    write(folder, "1n1g/net_b8_fp32_1.log/part.txt")
    [ignored] = found(folder, "own-net=.").ignored
    assert ignored.log.endswith("net_b8_fp32_1.log")
    assert "folder" in ignored.reason


@pytest.mark.end_to_end
def test_a_log_under_any_name_is_judged(suite):
    case = Case.from_id("tensorflow-bert_base-fp32-b64-1n1g")
    for job, rate in ((9, 112.0), (10, 113.0)):
        log = suite.path / f"slurm-{job}.out"
        log.write_text(
            log_makers.tf_models_bert([case.global_batch / rate] * 121), encoding="utf-8"
        )

    result, results = suite.judge("--dlperf-logs", f"{case.id}=slurm-*.out", "-k", case.id)

    assert result.ret == 0
    [judged] = results["cases"]
    assert judged["metrics"]["throughput"]["median"] == 112.5
    assert [
        (run["run"], run["log"].rpartition("/")[2]) for run in judged["measurement"]["runs"]
    ] == [
        (1, "slurm-9.out"),
        (2, "slurm-10.out"),
    ]


def run_of(folder, system, given):
    """The only run of a case, by the files that are named for it."""
    (folder / "own.yaml").write_text(system, encoding="utf-8")
    systems = load_systems([folder / "own.yaml"], BUILTIN_FORMATS)
    cluster = Cluster(name="mine", directory=folder)
    index = found(folder, given)
    measurer = LogMeasurer(index, systems, cluster)
    [run] = measurer.measure(Case.from_id(given.partition("=")[0])).runs
    return run


STEPS = "".join(f"step {step} took 0.5 s\n" for step in range(1, 6))
LOSSES = STEPS.replace(" s\n", " s, loss 0.25\n")
LAST = SYSTEM.replace("{name: net,", "{name: net, node: last,")


@pytest.mark.parametrize(
    ("system", "of_first"),
    [
        (
            f"{SYSTEM}metrics: {{loss: {{record: 'loss (?P<value>[0-9.a-z]+)', node: last}}}}\n",
            STEPS,
        ),
        (f"{LAST}metrics: {{loss: {{record: 'loss (?P<value>[0-9.a-z]+)'}}}}\n", "waiting\n"),
    ],
    ids=["of the last node", "where the steps are"],
)
def test_a_metric_is_read_from_the_file_of_its_node(folder, system, of_first):
    (folder / "slurm-1-0.out").write_text(of_first, encoding="utf-8")
    (folder / "slurm-1-1.out").write_text(LOSSES, encoding="utf-8")
    run = run_of(folder, system, f"{TWO}=slurm-1-0.out,slurm-1-1.out")
    assert run.metrics["loss"] == 0.25


def test_steps_that_the_last_node_prints_are_read_from_its_file(folder):
    (folder / "slurm-1-0.out").write_text("waiting for others\n", encoding="utf-8")
    (folder / "slurm-1-1.out").write_text(STEPS, encoding="utf-8")
    for files in ("slurm-1-0.out,slurm-1-1.out", "slurm-1-1.out"):
        assert run_of(folder, LAST, f"{TWO}={files}").metrics["throughput"] == 64.0
    run = run_of(folder, LAST, f"{TWO}=slurm-1-0.out")
    assert run.status is RunStatus.INVALID
    assert "--dlperf-logs CASE=FILE,FILE" in (run.reason or "")


@pytest.mark.parametrize(
    ("log", "shown"),
    [("step 1 took 5 ms\nbye\n" * 9, True), ("step 1 took 0.1 s, global batch 9\n" * 9, False)],
    ids=["no record", "a record that contradicts"],
)
def test_the_end_of_a_log_is_shown_unless_the_reason_names_a_line(folder, log, shown):
    facts = "s', facts: {global_batch: 'global batch ([0-9]+)'}"
    (folder / "own.out").write_text(log, encoding="utf-8")
    run = run_of(folder, SYSTEM.replace("s'", facts), f"{ONE}=own.out")
    assert run.status is RunStatus.INVALID
    assert ("the log ends with 'bye'" in (run.reason or "")) == shown
    assert ("(line 1)" in (run.reason or "")) != shown
