"""The probes that ship: what each reads from its program's own lines, and those that run here."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from judged_logs import judged

from pytest_dlperf.model.measurement import RunStatus

DATA = Path(__file__).parent / "data" / "probes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Real:
    """A log of a probe, the axes of its case, and some of what it says."""

    system: str
    axes: str = ""
    metrics: dict[str, float]


NCCL = "collective: [all_reduce], dtype: [float]"
REAL = {
    "nccl_tests.log": Real(  # published: two A100 of one node
        system="nccl_tests", axes=NCCL,
        metrics={
            "bus_bandwidth": 47.4509, "busbw/1073741824/out": 47.38,
            "busbw/1073741824/in": 47.39,
            "busbw/8589934592/in": 47.48, "wrong": 0,
        },
    ),
    "nccl_tests_2021.log": Real(  # of superbenchmark's tests: columns of 2021, nothing checked
        system="nccl_tests", axes=NCCL,
        metrics={"bus_bandwidth": 58.6481, "busbw/1048576/out": 10.5, "busbw/1048576/in": 10.32},
    ),
    "nccl_tests_mpirun.log": Real(  # labels of mpirun --tag-output before each line
        system="nccl_tests", axes=NCCL,
        metrics={"bus_bandwidth": 1.57614, "busbw/4194304/out": 0.96, "busbw/134217728/in": 2.31},
    ),
    "rccl_tests.log": Real(  # published: alltoall of eight MI355X
        system="nccl_tests", axes="collective: [alltoall], dtype: [float]",
        metrics={"bus_bandwidth": 236.187, "busbw/8589934592/in": 361.06, "wrong": 0},
    ),
    "rccl_tests_8b.log": Real(  # published: from 8 bytes on, eight MI300X
        system="nccl_tests", axes=NCCL,
        metrics={
            "bus_bandwidth": 110.464, "busbw/1048576/out": 64.64, "busbw/8589934592/in": 315.91,
            "latency/8/out": 19.28, "latency/524288/in": 24.75, "wrong": 0,
        },
    ),
    "hpl_mxp.log": Real(  # published: eight H100
        system="hpl_mxp", metrics={"gflops": 8.7877e5, "lu": 1.7273e6, "residual": 4.477002e-4},
    ),
    "mlperf_storage.log": Real(  # published: unet3d over NVMe of another host
        system="mlperf_storage", axes="workload: [unet3d]",
        metrics={"samples": 23.5243, "io": 3288.9139, "utilization": 14.1921},
    ),
    "ib_write_bw.log": Real(
        system="ib_write_bw",
        metrics={"bandwidth": 29.73, "by_size/2": 0.11, "by_size/128": 7.18, "by_size/512": 29.73},
    ),
    "fio.json": Real(  # fio 3.33, by the command of the plan, cut
        system="fio", axes="block: [1m]",
        metrics={
            "write_bandwidth": 1290555076 / 1e6, "read_bandwidth": 1198372571 / 1e6,
            "write_latency/50.000000": 168960 / 1e6, "read_latency/99.000000": 7569408 / 1e6,
        },
    ),
    "stream.log": Real(  # stream.c 5.10 on two CPUs
        system="stream",
        metrics={"triad": 58254.2, "others/Copy": 58712.9, "others/Add": 57489, "validated": 1e-13},
    ),
    "vllm_bench.json": Real(  # its documented form, with the numbers of vLLM's pull request 18566
        system="vllm_bench",
        metrics={
            "output_throughput": 6582.87, "ttft_p50": 9459.70, "ttft_p99": 12666.73,
            "tpot_p50": 48.84, "completed": 1000,
        },
    ),
    "sglang_bench.jsonl": Real(  # published, cut
        system="sglang_bench",
        metrics={
            "output_throughput": 957.162043188693, "ttft_p50": 76.41966750088613,
            "ttft_p99": 327.9139723521075, "tpot_p50": 11.829237894316, "completed": 1000,
        },
    ),
}  # fmt: skip


def own(system, axes, topology="1n1g"):
    """A file that extends a probe."""
    found = f"axes: {{{axes}}}, " if axes else ""
    return f"extends: {system}\nmodel: own\ncases: [{{{found}topologies: [{topology}]}}]\n"


@pytest.mark.parametrize("log", REAL)
def test_real_lines_are_read(log, tmp_path):
    real = REAL[log]
    file = tmp_path / "own.yaml"
    file.write_text(own(real.system, real.axes))
    run = judged(file, DATA / log)
    assert run.status is RunStatus.OK, run.reason
    # Nothing there is below 1 MiB.
    assert set(run.missing) <= {"latency"} - {name.partition("/")[0] for name in real.metrics}
    found = {name: run.metrics.get(name) for name in real.metrics}
    assert found == pytest.approx(real.metrics)


def test_each_size_of_nccl_tests_has_one_number_that_can_be_judged(tmp_path):
    file = tmp_path / "own.yaml"
    file.write_text(own("nccl_tests", NCCL))
    text = (DATA / "rccl_tests_8b.log").read_text()
    rounded_down = "  0  0 float sum -1 0.03 0.00 0.00 0 0.02 0.00 0.00 0\n"
    run = judged(file, text.replace("           8  ", f"{2 * rounded_down}           8  ", 1))
    names = [name.split("/") for name in run.metrics if "/" in name]
    assert sorted({int(size) for _, size, _ in names}) == [8 << at for at in range(31)]
    assert len(names) == 62
    assert min(run.metrics[name] for name in run.metrics if name != "wrong") > 1


@pytest.mark.parametrize(
    ("log", "there", "instead"),
    [
        ("nccl_tests.log", "values : 0 OK", "values : 3 FAILED"),
        ("stream.log", "Solution Validates", "Failed Validation"),
        ("hpl_mxp.log", "...... PASSED", "...... FAILED"),
    ],
)
def test_a_wrong_result_is_not_judged(log, there, instead, tmp_path):
    real = REAL[log]
    text = (DATA / log).read_text()
    assert there in text
    file = tmp_path / "own.yaml"
    file.write_text(own(real.system, real.axes))
    run = judged(file, text.replace(there, instead))
    assert run.status is not RunStatus.OK


HERE = [
    pytest.param("host_memory", "", "--megabytes=20", {"add", "others/copy", "others/scale"}),
    pytest.param(
        "fio", "block: [1m]", "--size=8m", {"write_bandwidth", "read_bandwidth"},
        marks=pytest.mark.ci,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("system", "axes", "argument", "metrics"), HERE)
def test_it_is_launched_and_judged(suite, system, axes, argument, metrics):
    launched(suite, own(system, axes) + f"launch: {{arguments: [{argument}]}}\n", metrics)


@pytest.mark.training
def test_gloo_reduces_between_processes_and_hosts(suite):
    suite.system_file(
        own("torch_all_reduce", "", "1n2g, 2n1g")
        + "launch: {arguments: [--kilobytes, '4', '256']}\n"
    )
    hosts = "--dlperf-launcher=local", "--dlperf-hosts=127.1.0.[1-2]:2"
    found = recorded(suite, "own", *hosts)
    assert [set(case) for case in found] == [{"bus_bandwidth", "busbw/4000", "busbw/256000"}] * 2


@pytest.mark.training
def test_gloo_needs_two_processes(suite):
    suite.system_file(own("torch_all_reduce", ""))
    _, results = suite.judge("-k", "own", "--dlperf-repeats=1", cluster="local")
    [run] = results["cases"][0]["measurement"]["runs"]
    assert run["status"] == "failed"
    [log] = suite.path.glob(".dlperf/runs/*/torch-own/1n1g/torch_1.log")
    assert "all_reduce needs at least two ranks" in log.read_text()


IB_WRITE_BW = """\
#!{python}
import socket, sys, time
[port] = [int(word[7:]) for word in sys.argv if word.startswith("--port=")]
assert "--report_gbits" in sys.argv and sys.argv[-1 - (sys.argv[-1] == "127.1.0.1")] == "-x3"
if sys.argv[-1] == "127.1.0.1":
    socket.create_connection(("127.1.0.1", port)).close()
else:
    time.sleep(0.5)
    socket.create_server(("127.1.0.1", port)).accept()
print(open({table!r}).read())
"""


def test_the_second_node_of_ib_write_bw_waits_for_the_first(suite):
    """By a stand-in that prints a real table on both."""
    program = suite.path / "ib_write_bw"
    program.write_text(
        IB_WRITE_BW.format(python=sys.executable, table=str(DATA / "ib_write_bw.log"))
    )
    program.chmod(0o755)
    found = launched(
        suite,
        own("ib_write_bw", "", "2n1g") + f"launch: {{devices: cpu, arguments: [-x3], "
        f"environment: {{PATH: '{suite.path}:/usr/bin:/bin'}}}}\n",
        {"bandwidth", "by_size/2", "by_size/64", "by_size/128", "by_size/512"},
        "--dlperf-launcher=local", "--dlperf-hosts=127.1.0.[1-2]:1",
    )  # fmt: skip
    assert found["bandwidth"] == 29.73


STAND_IN = """\
#!{python}
import sys
if "--port" in " ".join(sys.argv):
    from http.server import BaseHTTPRequestHandler, HTTPServer
    class Health(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path == "/health" else 404)
            self.end_headers()
    port = next(word for word in sys.argv if word.startswith("--port=")).partition("=")[2]
    HTTPServer(("127.0.0.1", int(port)), Health).serve_forever()
assert {options!r} <= set(sys.argv), sys.argv
text = open({table!r}).read()
for word in sys.argv:
    for option, name in (("--result-dir=", "/result.json"), ("--output-file=", "")):
        if word.startswith(option):
            open(word[len(option):] + name, "w").write(text)
            text = "done"
print(text)
"""


@pytest.mark.parametrize(
    ("log", "program", "topology", "options"),
    [
        ("nccl_tests.log", "mpirun", "2n8g", {"16", "127.1.0.1:8,127.1.0.2:8", "all_reduce_perf"}),
        ("mlperf_storage.log", "mlpstorage", "2n8g", {"--model=unet3d", "--num-accelerators=16"}),
        ("vllm_bench.json", "vllm", "1n1g", {"bench", "serve", "--model=own/x", "--n=3"}),
        ("sglang_bench.jsonl", "sglang/bench_serving.py", "1n1g", {"--model=own/x"}),
    ],
)
def test_what_the_planned_command_prints_or_writes_is_read(suite, log, program, topology, options):
    """By a stand-in for the program, on the first node."""
    real = REAL[log]
    place = suite.path / program
    place.parent.mkdir(exist_ok=True)
    place.write_text(STAND_IN.format(python=sys.executable, options=options, table=str(DATA / log)))
    place.chmod(0o755)
    shutil.copy(place, place.with_name("launch_server.py"))
    found = launched(
        suite,
        own(real.system, real.axes, topology)
        + f"launch: {{devices: cpu, arguments: [--n=3], environment: "
        f"{{PATH: '{suite.path}:/usr/bin:/bin', PYTHONPATH: '{suite.path}'}}}}\n",
        {name for name in real.metrics if name not in ("wrong", "validated", "residual")},
        "--dlperf-launcher=local", "--dlperf-hosts=127.1.0.[1-2]:8",
        *(["--dlperf-set", "*.weights=own/x"] if real.system.endswith("bench") else []),
    )  # fmt: skip
    assert found == pytest.approx({name: real.metrics[name] for name in found})


@pytest.mark.in_process
def test_requests_that_failed_are_red(suite, tmp_path):
    suite.system_file(own("vllm_bench", ""))
    text = (DATA / "vllm_bench.json").read_text()
    assert '"completed": 1000,' in text
    for completed, expected in ((1000, "pass"), (990, "regressed")):
        for run in range(5):
            log = tmp_path / f"{completed}_{run}.json"
            log.write_text(text.replace('"completed": 1000,', f'"completed": {completed},'))
        _, results = suite.judge(
            "-k", "vllm", "--dlperf-create-baselines",
            f"--dlperf-logs=vllm-own-1n1g={tmp_path}/{completed}_*.json", cluster="local",
        )  # fmt: skip
        [case] = results["cases"]
        assert case["metrics"]["completed"]["verdict"] == expected
        assert case["metrics"]["output_throughput"]["verdict"] == "pass"


def launched(suite, text, metrics, *arguments):
    """Run the probe once and record it; the judged metrics, which have to be these."""
    suite.system_file(text)
    [found] = recorded(suite, "own", *arguments)
    assert set(found) >= metrics
    return {name: found[name] for name in metrics}


def recorded(suite, names, *arguments):
    """Run probes once and record them; what was recorded of each."""
    result, results = suite.judge(
        "-k", names, "--dlperf-repeats=1", "--dlperf-create-baselines", *arguments, cluster="local"
    )
    found = []
    for case in results["cases"]:
        [run] = case["measurement"]["runs"]
        assert run["status"] == "ok", run["reason"]
        judged = {
            name: one
            for name, one in case["metrics"].items()
            if case["judgements"].get(name, {}).get("recorded")
        }
        assert all(one["verdict"] == "pass" for one in judged.values())
        found.append({name: float(one["median"]) for name, one in judged.items()})
        assert all(value > 0 for value in found[-1].values())
    assert result.ret == 0
    return found
