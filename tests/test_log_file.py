"""Trainers that write their steps into a file beside their output: ``launch.log_file``."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from pytest_dlperf.config.systems import load_systems
from pytest_dlperf.files.yamlfile import YamlError
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS

pytestmark = pytest.mark.in_process

SYSTEM = """\
framework: tiny
model: mlp
unit: samples/s
log:
  name: mlp
{format}
window: {{warmup_steps: 3, measured_steps: 12}}
repeats: 2
launch:
  devices: cpu
  log_file: '{file}'
  command: ["{{python}}", "{{system_directory}}/trainer.py", "{{node_rank}}", {argument}]
  time_limit_s: 300
cases:
  - {{precision: fp32, batch_per_device: 4, topologies: [{topology}], reference: none}}
"""

# Its output has neither a step nor, while it trains, an end of a line.
JSON_TRAINER = """\
import json, pathlib, sys, time
folder = pathlib.Path(sys.argv[2])
file = (folder / "metrics.jsonl").open("w", buffering=1)
begin = time.perf_counter()
for step in range(1, 21):
    time.sleep(0.04)
    print(f"\\r{step * 5:3}%|", end="", flush=True)
    print(json.dumps({"loss": 1 / step, "seen": {"step": step},
                      "time": time.perf_counter() - begin}), file=file)
"""
JSON_FORMAT = "  format: {json: {step: seen.step, elapsed_seconds: time}}"

# Node 1 alone writes steps, into a file that the run before has left with other times.
WORKER_TRAINER = """\
import pathlib, sys, time
rank, folder = int(sys.argv[1]), pathlib.Path(sys.argv[2])
folder.mkdir(exist_ok=True)
with (folder / f"workerlog.{rank}").open("w", buffering=1) as file:
    print("world size 2", file=file)
    for step in range(20):
        begin = time.perf_counter()
        time.sleep(0.1)
        if rank == 1:
            print(f"iter {step}: loss 4.0, time {(time.perf_counter() - begin) * 1000:.2f}ms",
                  file=file)
"""
WORKER_FORMAT = """\
  node: last
  format: {record: 'iter (?P<step>[0-9]+): .* time (?P<milliseconds>[0-9.]+)ms'}"""


def json_system(suite, file):
    """A system of one device whose trainer writes lines of JSON."""
    text = SYSTEM.format(
        file=file, format=JSON_FORMAT, argument='"{scratch_directory}"', topology="1n1g"
    )
    _system(suite, JSON_TRAINER, text)


def worker_system(suite, folder):
    """A system of two nodes of which the last writes a file of its rank."""
    file, argument = f"{folder}/workerlog.{{node_rank}}", f'"{folder}"'
    text = SYSTEM.format(file=file, format=WORKER_FORMAT, argument=argument, topology="2n1g")
    _system(suite, WORKER_TRAINER, text)


def _system(suite, trainer, text):
    (suite.path / "bench_tests" / "systems" / "trainer.py").write_text(trainer, encoding="utf-8")
    suite.system_file(text)


def assert_is_measured(case, samples, times):
    """Hold the throughput of each run between those of its slowest and its fastest step."""
    for run in case["measurement"]["runs"]:
        assert run["status"] == "ok", run["reason"]
        seconds = times(Path(run["log"]).read_text(encoding="utf-8"))
        assert min(seconds) > 0.039  # the trainer sleeps for 0.04
        assert samples / max(seconds) < 1.01 * run["metrics"]["throughput"]
        assert run["metrics"]["throughput"] < 1.01 * samples / min(seconds)
    assert len(case["measurement"]["runs"]) == 2


def times_of_json(log):
    moments = [float(text) for text in re.findall(r'"time": ([0-9.]+)', log)]
    return [after - before for before, after in pairwise(moments)]


def times_of_worker(log):
    return [float(text) / 1000 for text in re.findall(r"time ([0-9.]+)ms", log)]


@pytest.mark.end_to_end
def test_a_trainer_that_writes_json_lines_is_measured(suite):
    json_system(suite, "{scratch_directory}/*l")
    _, results = suite.judge("-k", "tiny", cluster="local")
    [case] = results["cases"]
    assert_is_measured(case, 4, times_of_json)


@pytest.mark.slow
@pytest.mark.end_to_end
def test_the_file_of_a_rank_is_measured_again_in_the_next_run(suite):
    worker_system(suite, "log")
    dry = suite.run("-k", "tiny", "--dlperf-dry-run")
    dry.stdout.fnmatch_lines(["*node 1 on *log/workerlog.1"])
    (suite.path / "log").mkdir()
    stale = "".join(f"iter {step}: loss 4.0, time 9.00ms\n" for step in range(20))
    (suite.path / "log" / "workerlog.1").write_text(stale, encoding="utf-8")
    _, results = suite.judge("-k", "tiny", cluster="local")
    [case] = results["cases"]
    assert_is_measured(case, 8, times_of_worker)


@pytest.mark.end_to_end
@pytest.mark.usefixtures("over_ssh")
def test_files_on_distant_nodes_come_into_their_logs(suite):
    worker_system(suite, "{scratch_directory}")
    _, results = suite.judge("-k", "tiny", cluster="local")
    [case] = results["cases"]
    assert_is_measured(case, 8, times_of_worker)
    for run in case["measurement"]["runs"]:
        log = Path(run["log"])
        assert log.name == "node1.log"
        # Not all at the end.
        arrivals = (log.parent / f"{log.name}.arrivals").read_text(encoding="utf-8")
        assert arrivals.count("\n") > 2


@pytest.mark.end_to_end
def test_a_file_that_never_comes_is_named(suite):
    json_system(suite, "metrics.json")
    _, results = suite.judge("-k", "tiny", "--dlperf-repeats", "1", cluster="local")
    [case] = results["cases"]
    [run] = case["measurement"]["runs"]
    assert run["status"] == "invalid"
    assert "launch.log_file 'metrics.json'" in run["reason"]


def test_a_mistake_in_the_file_s_name_is_told_with_its_line(tmp_path):
    text = SYSTEM.format(
        file="{scratch_folder}/log", format=JSON_FORMAT, argument="x", topology="1n1g"
    )
    file = tmp_path / "tiny.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(YamlError) as caught:
        load_systems([file], BUILTIN_FORMATS)
    [problem] = caught.value.diagnostics
    assert str(problem).startswith(f"{file}:11: $.launch.log_file: ")
    assert "scratch_directory" in str(problem)
