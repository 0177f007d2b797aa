"""``pytest-dlperf read`` and ``init`` on the output of programs that have no steps."""

import json
import re
from pathlib import Path

import pytest

from pytest_dlperf.command.main import main
from pytest_dlperf.config.systems import load_systems
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS
from pytest_dlperf.survey.probe_output import known_probe

DATA = Path(__file__).parent / "data"
SERVED = (
    "============ Serving Benchmark Result ============\n"
    "Successful requests:                     500       \n"
    "Output token throughput (tok/s):         2211.5\n"
    "Mean TTFT (ms):                          21.5\n"
)


@pytest.mark.parametrize("text", ["", "hello\n", "step 3 of 5\nok\n", "result 12.34\n"])
def test_nothing_is_made_of_what_is_not_known(text, tmp_path):
    file = tmp_path / "own.txt"
    file.write_text(text)
    assert known_probe(file, {}) is None


ENDS_WITH_NUMBERS = (
    "loading 3 shards\nDLL 2024-05-02 05:41:22.497851 - () best_train_throughput : 9009982842.1 "
    "samples/s mean_train_throughput : 4535865224.2 samples/s\nfinished\n"
)
ONE_JOB = {
    "timestamp": 1626763278,
    "jobs": [
        {way: {"bw_bytes": 348743777, "bw_min": 3, "runtime": 30002} for way in ("read", "write")}
        | {"trim": {"bw_bytes": 0, "runtime": 0}}
    ],
}


@pytest.mark.parametrize(
    ("text", "metrics"),
    [
        (
            ENDS_WITH_NUMBERS,
            {"best_train_throughput": 9009982842.1, "mean_train_throughput": 4535865224.2},
        ),
        (SERVED, {"output_token_throughput_tok_s": 2211.5}),
        # Runtimes of a document are no times of steps.
        (
            json.dumps(ONE_JOB, indent=2),
            {"jobs_read_bw_bytes": 348743777, "jobs_write_bw_bytes": 348743777},
        ),
    ],
)
def test_a_program_without_steps_is_offered_its_numbers_as_metrics(tmp_path, text, metrics):
    (tmp_path / "own.txt").write_text(text)
    file = tmp_path / "own.yaml"
    assert main(["read", str(tmp_path / "own.txt"), "--write", str(file)]) == 0
    [system] = load_systems([file], BUILTIN_FORMATS).values()
    assert [one.name for one in system.metrics] == [*metrics]
    # Somebody has to look at them before one is recorded.
    assert len(system.doubts) == len(metrics)
    probe = known_probe(tmp_path / "own.txt", {system.id: system})
    assert probe.run.metrics == metrics


@pytest.mark.parametrize("log", sorted(DATA.glob("probes/*")), ids=lambda log: log.name)
def test_the_output_of_a_probe_that_ships_is_known(log):
    probe = known_probe(log, {})
    name = re.sub(r"_(?:2021|8b|mpirun)$", "", log.stem)
    name = name.replace("rccl", "nccl")  # the same tables
    assert f"extends: {name}\n" in probe.draft


@pytest.mark.in_process
def test_what_read_writes_is_judged(suite, command):
    (suite.path / "served.txt").write_text(SERVED)
    file = suite.path / "bench_tests/systems/served.yaml"
    shown = command("read", "served.txt", "--write", file)
    shown.stdout.fnmatch_lines(["*without steps*", "*metric*output_token_throughput_tok_s 2211.5*"])
    file.write_text(re.sub(" # [?].*", "", file.read_text()))
    case = "own-program-1n1g"
    judge = "-k", case, f"--dlperf-logs={case}=served.txt", "--dlperf-create-baselines"
    suite.run(*judge).assert_outcomes(passed=1)
    known = command("read", "served.txt")
    known.stdout.fnmatch_lines(
        ["served.txt: as own-program reads it", "*next*pytest bench_tests -k*"]
    )
    written = command("read", "served.txt", "--write", "other.yaml")
    written.stderr.fnmatch_lines(["*own-program reads such logs already*"])


def example(name):
    """A block of the page about any number."""
    page = (Path(__file__).parent.parent / "docs/any-number.md").read_text(encoding="utf-8")
    [found] = re.findall(
        rf"<!-- example: {name} -->\n```yaml\n(.*?)^```$", page, re.DOTALL | re.MULTILINE
    )
    return str(found)


@pytest.mark.in_process
def test_five_lines_judge_310_numbers(suite, tmp_path):
    text = example("310 numbers")
    assert text.count("\n") == 5
    suite.system_file(text)
    text = (DATA / "probes/rccl_tests_8b.log").read_text()
    collectives = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast")
    for one in collectives:
        (tmp_path / one).write_text(text)
    logs = [f"--dlperf-logs=nccl-node-{one}-float-1n8g={tmp_path / one}" for one in collectives]
    _, results = suite.judge("-k", "nccl", *logs, "--dlperf-create-baselines", cluster="local")
    gated = [one for case in results["cases"] for one in case["judgements"].items()]
    recorded = [name for name, one in gated if one["recorded"]]
    assert sum("/" in name for name in recorded) == 310
    assert recorded.count("bus_bandwidth") == 5


def test_the_page_gates_the_number_that_its_program_prints(suite):
    (suite.path / "disk.py").write_text("print('wrote at', 1290.5, 'MB/s')\n")
    suite.system_file(example("any number"))
    result, results = suite.judge("-k", "disk", "--dlperf-create-baselines", cluster="local")
    result.assert_outcomes(passed=1)
    [case] = results["cases"]
    assert case["metrics"]["written"]["median"] == 1290.5


@pytest.mark.in_process
def test_init_writes_the_probe_whose_output_it_knows(suite, command):
    shown = command("init", "--log", DATA / "probes/nccl_tests.log")
    shown.stdout.fnmatch_lines(["*is the output of nccl_tests, which ships*"])
    [file] = (suite.path / "bench_tests/systems").glob("nccl-*.yaml")
    assert "extends: nccl_tests\n" in file.read_text()


def test_init_says_how_a_program_without_steps_is_declared(suite, command):
    (suite.path / "disk.py").write_text("print('done')\n")
    shown = command("init", "--command", "python disk.py")
    shown.stdout.fnmatch_lines(["*of a program without steps, declare the 'metrics'*"])
