"""``pytest-dlperf read`` and ``init`` on the output of programs that have no steps."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from suites import Command, Suite

from pytest_dlperf.config.extends import shipped_systems
from pytest_dlperf.survey.probe_output import ProbeOutput, known_probe, loose_probe, table_probe

DATA: Final = Path(__file__).parent / "data"
OSU: Final = """\
# OSU MPI Bandwidth Test v7.3
# Size      Bandwidth (MB/s)
1                       3.21
2                       6.55
1048576             23400.10
"""
TWO: Final = """\
# size  count  type    time  busbw    time  busbw
#  (B)                 (us)  (GB/s)   (us)  (GB/s)
  1024    256  float   10.5   1.25    10.1   1.30
  2048    512  float   11.5   2.25    11.1   2.30
  4096   1024  float   12.5   4.25    12.1   4.30
done in 3 s
"""
BARS: Final = """\
| Block | Read MB/s | Write MB/s |
|-------|-----------|------------|
|    4k |     100.5 |       50.2 |
|   64k |     200.5 |      150.2 |
|    1m |     300.5 |      250.2 |
"""
TREE: Final[dict[str, Any]] = {
    "config": {"batch_size": 3, "timeout_s": 60},
    "results": [{"size": 8, "bw_gbps": 1.5}, {"size": 16, "bw_gbps": 2.5}],
    "latency_ms": {"50": 1.2, "99.9": 3.0},
}


IPERF: Final = (
    "[  5]   0.00-10.00  sec  11.0 GBytes  9.42 Gbits/sec  12             sender\n"
    "[  5]   0.00-10.00  sec  11.0 GBytes  9.41 Gbits/sec                  receiver\n"
)
FIO: Final = (
    "   READ: bw=1231MiB/s (1291MB/s), 1231MiB/s-1231MiB/s (1291MB/s-1291MB/s)\n"
    "  WRITE: bw=900MiB/s (944MB/s), 900MiB/s-900MiB/s (944MB/s-944MB/s)\n"
)
GOOGLE: Final = (
    "Benchmark           Time             CPU   Iterations\n"
    "BM_copy/8        3.20 us         3.19 us       214748\n"
    "BM_copy/64       12.4 us         12.3 us        56789\n"
)
VLLM: Final = (
    "Benchmark duration (s):                  51.43\n"
    "Request throughput (req/s):              19.44\n"
    "Output token throughput (tok/s):         2211.5\n"
    "Total Token throughput (tok/s):          6582.9\n"
    "Mean TTFT (ms):                          21.5\n"
    "P99 TTFT (ms):                           33.1\n"
    "Mean TPOT (ms):                          9.5\n"
    "P99 TPOT (ms):                           12.1\n"
)


def found(file: Path) -> ProbeOutput | None:
    """What is found in an output, in the order in which ``read`` looks."""
    return known_probe(file, {}) or table_probe(file, file.stem) or loose_probe(file, file.stem)


@pytest.mark.parametrize(
    ("text", "metrics"),
    [
        (OSU, {"bandwidth/1": 3.21, "bandwidth/2": 6.55, "bandwidth/1048576": 23400.1}),
        (
            TWO,
            {
                f"busbw/{1024 * times}/{end}": times + more
                for times in (1, 2, 4)
                for end, more in (("out", 0.25), ("in", 0.3))
            },
        ),
        (BARS, {"read/4k": 100.5, "read/64k": 200.5, "read/1m": 300.5}),
        (
            f"starts\n{json.dumps(TREE, indent=1)}\n",
            {"bw_gbps/8": 1.5, "bw_gbps/16": 2.5, "latency_ms/50": 1.2, "latency_ms/99.9": 3.0},
        ),
        ('{"size": 8, "qps": 5}\n{"size": 16, "qps": 9}\n', {"qps/8": 5, "qps/16": 9}),
        (
            "threads = 4\nelapsed time: 3.5 s\nThroughput: 1,234.5 images/s\nbye\n",
            {"elapsed_time": 3.5, "measured_throughput": 1234.5},
        ),
        ("warming up\n12.34\n", {"result": 12.34}),
        ("it took 12.34 s", {"it_took": 12.34}),
        ("Bandwidth: 12.5 GB/s (peak 99)\n", {"bandwidth": 12.5}),
        ("Throughput 12.5 GB/s avg\n", {"measured_throughput": 12.5}),
        ("p50=1.2ms p99=4.5ms\n", {"p50": 1.2, "p99": 4.5}),
        ("Compile time 34.2 s; first step 1.5 s\n", {"compile_time": 34.2, "first_step": 1.5}),
        ("[2026-11-27 10:00:00] INFO x: qps=1234.5 (of 8 clients)\n", {"qps": 1234.5}),
        ("INFO:root:Average latency: 3.4 ms\n", {"average_latency": 3.4}),
        ("tok/s: 123.4\n", {"result": 123.4}),
        ("4294967296 bytes (4.3 GB, 4.0 GiB) copied, 3.3 s, 1.3 GB/s\n", {"bandwidth": 1.3}),
        ("real\t0m3.512s\nuser\t0m1.2s\nsys\t0m0.3s\n", {"real_time": 3.512}),
        (
            IPERF,
            {"bitrate": 9.41},
        ),
        (
            FIO,
            {"bandwidth/READ": 1231, "bandwidth/WRITE": 900},
        ),
        (
            GOOGLE,
            {"time/BM_copy_8": 3.2, "time/BM_copy_64": 12.4},
        ),
    ],
)
def test_a_system_file_reads_what_it_was_made_of(
    text: str, metrics: dict[str, float], tmp_path: Path
) -> None:
    file = tmp_path / "own.txt"
    file.write_text(text)
    probe = found(file)
    assert probe is not None
    assert probe.run.metrics == pytest.approx(metrics)
    assert re.search(r"(record|json): .*  # \?", probe.text)


@pytest.mark.parametrize(
    ("system", "more"), [("vllm_bench", ""), ("sglang_bench", "Backend:  sglang\n")]
)
def test_the_table_of_a_serving_benchmark_has_the_names_of_the_system_that_ships(
    system: str, more: str, tmp_path: Path
) -> None:
    file = tmp_path / "own.txt"
    title = "============ Serving Benchmark Result ============\n"
    file.write_text(f"{title}{more}Successful requests:                     500       \n{VLLM}")
    probe = found(file)
    assert probe is not None
    assert probe.kind == f"what {system} prints"
    assert f"pytest-dlperf systems {system}" in probe.text
    assert probe.run.metrics == {"output_throughput": 2211.5, "ttft_p99": 33.1, "completed": 500}
    ships = yaml.safe_load(shipped_systems()[system].read_text())["metrics"]
    for metric in probe.metrics:
        assert metric.better is not None
        shipped = ships[metric.name]
        assert (metric.unit, metric.better.value) == (shipped["unit"], shipped["better"])


@pytest.mark.parametrize(
    "text", ["", "hello\n", "step 3 of 5\nok\n", '{"config": {"port": 80, "seed": 3}}\n']
)
def test_nothing_is_made_of_what_measures_nothing(text: str, tmp_path: Path) -> None:
    file = tmp_path / "own.txt"
    file.write_text(text)
    assert found(file) is None


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("tok/s: 123.4\n", ["tok/s"]),
        ('{"tok_s": 12.5}\n', ["tok/s"]),
        ('{"load_s": 12.5}\n', ["s"]),
        (
            VLLM,
            ["ms", "ms", "ms", "ms", "req/s", "s", "tok/s", "tok/s"],
        ),
    ],
)
def test_units_are_those_that_the_names_say(text: str, units: list[str], tmp_path: Path) -> None:
    file = tmp_path / "own.txt"
    file.write_text(text)
    probe = found(file)
    assert probe is not None
    assert sorted(metric.unit for metric in probe.metrics) == units


@pytest.mark.parametrize("log", sorted(DATA.glob("probes/*")), ids=lambda log: log.name)
def test_the_output_of_a_probe_that_ships_is_known(log: Path) -> None:
    probe = known_probe(log, {})
    assert probe is not None
    name = re.sub(r"_(?:2021|8b|mpirun)$", "", log.stem)
    name = name.replace("rccl", "nccl")  # the same tables
    assert f"extends: {name}\n" in probe.text


@pytest.mark.parametrize("log", sorted(DATA.glob("logs/*.log")), ids=lambda log: log.stem)
def test_the_log_of_a_training_is_not_taken_for_a_probe(log: Path) -> None:
    assert known_probe(log, {}) is None
    assert table_probe(log, log.stem) is None


@pytest.mark.in_process
def test_what_read_writes_is_judged_when_its_marks_are_gone(suite: Suite, command: Command) -> None:
    (suite.path / "osu.txt").write_text(OSU)
    file = suite.path / "bench_tests/systems/osu.yaml"
    shown = command("read", "osu.txt", "--write", file)
    shown.stdout.fnmatch_lines(
        ["*a table with 3 rows, one for each size", "*metric*bandwidth 1 3.21*"]
    )
    judge = "-k", "osu", "--dlperf-logs=osu-probe-1n1g=osu.txt", "--dlperf-create-baselines"
    suite.run(*judge).assert_outcomes(failed=1)
    file.write_text(re.sub(r"  # \?.*", "", file.read_text()))
    suite.run(*judge).assert_outcomes(passed=1)
    known = command("read", "osu.txt")
    known.stdout.fnmatch_lines(["osu.txt: as osu-probe reads it", "*next*pytest bench_tests -k*"])
    written = command("read", "osu.txt", "--write", "other.yaml")
    written.stderr.fnmatch_lines(["*osu-probe reads such logs already*"])


def example(name: str) -> str:
    """A block of the page about any number."""
    page = (Path(__file__).parent.parent / "docs/any-number.md").read_text(encoding="utf-8")
    [found] = re.findall(
        rf"<!-- example: {name} -->\n```yaml\n(.*?)^```$", page, re.DOTALL | re.MULTILINE
    )
    return str(found)


@pytest.mark.in_process
def test_five_lines_judge_310_numbers(suite: Suite, tmp_path: Path) -> None:
    text = example("310 numbers")
    assert text.count("\n") == 5
    suite.system_file(text)
    text = (DATA / "probes/rccl_tests_8b.log").read_text()
    collectives = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast")
    for one in collectives:
        (tmp_path / one).write_text(text)
    logs = [f"--dlperf-logs=nccl-node-{one}-float-1n8g={tmp_path / one}" for one in collectives]
    _, results = suite.judge("-k", "nccl", *logs, "--dlperf-create-baselines", cluster="local")
    gated = [one for case in results["cases"] for one in case["metrics"].items()]
    recorded = [name for name, one in gated if one["gate"] and one["gate"]["recorded"]]
    assert sum("/" in name for name in recorded) == 310
    assert recorded.count("bus_bandwidth") == 5


def test_the_page_shows_what_init_writes(suite: Suite, command: Command) -> None:
    (suite.path / "disk.py").write_text("print('wrote at', 1290.5, 'MB/s')\n")
    command("init", "--command", "python disk.py")
    text = (suite.path / "bench_tests/systems/disk-probe.yaml").read_text()
    shown = [line for line in text.splitlines() if not line.startswith("#")]
    shown = [line.partition("  # ? what ids")[0] for line in shown]
    assert shown == example("any number").splitlines()


def test_init_makes_a_probe_of_a_program_that_prints_a_number(
    suite: Suite, command: Command
) -> None:
    (suite.path / "disk.py").write_text("import sys; print('write', sys.argv[1], 'MB/s')\n")
    shown = command("init", "--command", "python disk.py 250.5", "--model", "write")
    shown.stdout.fnmatch_lines(["*it printed a number at its end*"])
    file = suite.path / "bench_tests/systems/disk-write.yaml"
    file.write_text(re.sub(r"  # \?.*", "", file.read_text()))
    assert "StepLog" not in "\n".join(shown.outlines)
    result, results = suite.judge("-k", "disk", "--dlperf-create-baselines", cluster="local")
    result.assert_outcomes(passed=1)
    [case] = results["cases"]
    assert case["metrics"]["write"]["median"] == 250.5
    assert (case["metrics"]["write"]["unit"], case["metrics"]["write"]["better"]) == (
        "MB/s",
        "higher",
    )


@pytest.mark.parametrize("words", ["true", "echo hello", "python disk.py", "bash run.sh"])
def test_init_takes_no_program_for_a_training_that_nothing_suggests(
    suite: Suite, command: Command, words: str
) -> None:
    (suite.path / "disk.py").write_text("print('done')\n")
    (suite.path / "run.sh").write_text("echo done\n")
    folder = suite.path / "bench_tests/systems"
    before = {*folder.glob("*.yaml")}
    shown = command("init", "--command", words)
    [file] = {*folder.glob("*.yaml")} - before
    text = file.read_text()
    assert "extends" not in text
    assert "precision" not in text
    assert "  # ? have it print such a line" in text
    said = shown.stdout.str()
    assert "StepLog" not in said
    assert "trains on CPUs" not in said
    (suite.path / "run.sh").write_text("python train.py\n")
    shown = command("init", "--command", "bash run.sh", "--dry-run")
    assert "StepLog" in shown.stdout.str()


def test_init_has_a_program_write_its_file_into_the_scratch_folder(
    suite: Suite, command: Command
) -> None:
    text = """echo '{"iops": 1200.5}' >$1; echo done"""
    (suite.path / "w.sh").write_text(text)
    shown = command("init", "--command", "bash w.sh result.json")
    shown.stdout.fnmatch_lines(["*it wrote result.json, JSON*"])
    file = suite.path / "bench_tests/systems/w-probe.yaml"
    assert "file: '{scratch_directory}/result.json'" in file.read_text()
    file.write_text(re.sub(r"  # \?.*", "", file.read_text()))
    result, results = suite.judge("-k", "w-probe", "--dlperf-create-baselines", cluster="local")
    result.assert_outcomes(passed=1)
    assert results["cases"][0]["metrics"]["iops"]["median"] == 1200.5
