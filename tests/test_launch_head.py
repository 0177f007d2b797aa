"""A trainer that is started once, on the first host, and reaches the others itself: by mpirun."""

import json
import re
import shlex

import pytest
from clusters.processes import processes_with, wait_until
from trainers import DEEPSPEED_ENGINE

pytestmark = [pytest.mark.ssh, pytest.mark.mpi]

# Each rank notes where it runs. Rank 0 prints the steps of all.
TRAINER = """\
import os, pathlib, sys, time
folder, steps = pathlib.Path(sys.argv[1]), int(sys.argv[2])
rank, size = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
here = os.environ.get("DLPERF_TEST_HOST", "").rpartition("/")[0].rpartition("/")[2]
(folder / f"rank{rank}").write_text(f"{os.getpid()} {here} {os.environ.get('DLPERF_RUN_ID')}")
if rank == 0:
    # As in a training: no step without the others. The run ends with the last step.
    ranks = [folder / f"rank{other}" for other in range(size)]
    while not all(file.exists() and file.read_text().count(" ") == 2 for file in ranks):
        time.sleep(0.01)
    for step in range(1, steps + 1):
        print(f"step {step} took 0.010 s", flush=True)
time.sleep(600)
"""

# Leaves processes in sessions of their own, one of them without a marker, and ignores its end.
NASTY = """\
import os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
signal.signal(signal.SIGTERM, signal.SIG_IGN)
sleep = [sys.executable, "-S", "-c", "import time; time.sleep(600)", str(folder)]
for environment in (os.environ, {}):
    if not os.fork():
        os.setsid()
        if not os.fork():
            os.execve(sys.executable, sleep, environment)
        os._exit(0)
    os.wait()
""" + TRAINER.partition("\n")[2]

# Prints nothing itself.
SILENT = """\
import os, sys, time
sys.path.append(os.path.dirname(__file__))
from deepspeed.runtime.engine import DeepSpeedEngine
engine = DeepSpeedEngine(int(os.environ["OMPI_COMM_WORLD_SIZE"]))
for _ in range(int(sys.argv[2])):
    time.sleep(0.02)
    engine.step()
"""

DECLARATION = """\
framework: mpi
model: mlp
unit: samples/s
log:
  name: mlp
  format: {{record: 'step (?P<step>[0-9]+) took (?P<seconds>[0-9.]+) s'}}
window: {{warmup_steps: 2, measured_steps: 8}}
repeats: 1
tolerance_percent: 75
launch:
  devices: cpu
  start_on: head
  command:
    - mpirun
    - --allow-run-as-root
    - --host
    - "{{host_slots}}"
    - --oversubscribe
    - -np
    - "{{world_size}}"
    - --mca
    - plm_rsh_agent
    - {ssh}
    # For the network of the ranks themselves, which no trainer here uses.
    - --mca
    - btl
    - self,vader,tcp
    - "{{python}}"
    - {trainer}
    - "{{run_directory}}"
    - "{{steps}}"
  time_limit_s: 60
  # The daemons of Open MPI do not find each other now and then where all hosts are one machine.
  retries: 3
cases:
  - {{precision: fp32, batch_per_device: 4, topologies: [2n2g, 4n1g]}}
"""


@pytest.fixture
def mpi(suite, ssh_hosts, monkeypatch):
    monkeypatch.setenv("DLPERF_SSH", ssh_hosts.ssh_command)
    monkeypatch.setenv("DLPERF_HOSTS", ",".join(f"{name}:2" for name in ssh_hosts.names))
    trainer = suite.path / "train.py"
    trainer.write_text(TRAINER, encoding="utf-8")
    # What mpirun calls as ssh; the account's own home has no configuration for these hosts.
    client = suite.path / "ssh-to-hosts"
    client.write_text(f'#!/bin/sh\nexec {ssh_hosts.ssh_command} "$@"\n', encoding="utf-8")
    client.chmod(0o755)
    declaration = DECLARATION.format(ssh=shlex.quote(str(client)), trainer=trainer)
    suite.system_file(declaration)
    return suite


def ranks(folder):
    found = {}
    for file in folder.glob("rank*"):
        pid, host, marker = file.read_text(encoding="utf-8").split(" ")
        found[int(file.name.removeprefix("rank"))] = int(pid), host, marker
    return found


def test_ranks_of_all_hosts_print_steps_that_their_script_does_not(mpi):
    (mpi.path / "deepspeed" / "runtime").mkdir(parents=True)
    for package in ("deepspeed", "deepspeed/runtime"):
        (mpi.path / package / "__init__.py").touch()
    (mpi.path / "deepspeed/runtime/engine.py").write_text(DEEPSPEED_ENGINE, encoding="utf-8")
    (mpi.path / "train.py").write_text(SILENT, encoding="utf-8")
    own = mpi.path / "bench_tests" / "systems" / "own.yaml"
    text = re.sub(r"format: \{.*\}", "format: dlperf", own.read_text(encoding="utf-8"))
    handed_on = "".join(f"    - -x\n    - {name}\n" for name in ("PYTHONPATH", "DLPERF_STEPS"))
    for before, after in (
        ("start_on: head\n", "start_on: head\n  steps: deepspeed\n"),
        ("    - --oversubscribe\n", f"    - --oversubscribe\n{handed_on}"),
    ):
        text = text.replace(before, after)
    own.write_text(text, encoding="utf-8")
    night = mpi.path / "night"
    result, results = mpi.judge(
        *("-k", "throughput and mpi and 2n2g", "--dlperf-create-baselines"),
        *("--dlperf-run-dir", night),
        cluster="local",
    )
    assert result.ret == 0
    assert results["cases"][0]["measurement"]["runs"][0]["steps"] == 8
    log = night / "mpi-mlp" / "2n2g" / "mlp_b4_fp32_1.log"
    places = "world_size=4 nodes=2 devices_per_node=2 global_batch=16"
    heads = {line for line in log.read_text(encoding="utf-8").splitlines() if places in line}
    assert {line.split()[2] for line in heads} == {f"rank={rank}" for rank in range(4)}


def test_the_command_of_the_head_starts_the_ranks_of_all_hosts(mpi, ssh_hosts):
    night = mpi.path / "night"
    result, results = mpi.judge(
        *("-k", "throughput and mpi and 4n1g", "--dlperf-create-baselines"),
        *("--dlperf-run-dir", night),
        cluster="local",
    )
    assert result.ret == 0
    case = results["cases"][0]
    assert case["metrics"]["throughput"]["median"] == pytest.approx(4 * 4 / 0.01)
    launch = case["measurement"]["fingerprint"]["launch"]
    assert "{address0}" in " ".join(launch["arguments"])
    assert not any(host in " ".join(launch["arguments"]) for host in ssh_hosts.names)
    folder = night / "mpi-mlp" / "4n1g" / "mlp_b4_fp32_1"
    started = ranks(folder)
    assert sorted(started) == [0, 1, 2, 3]
    assert {host for _, host, _ in started.values()} == {*ssh_hosts.names[:4]}
    # They would have slept on for minutes: the run was ended, on every host.
    wait_until(lambda: not ssh_hosts.processes(), what="all ranks are gone")
    kept = json.loads((folder / "command.json").read_text(encoding="utf-8"))
    assert len(kept["nodes"]) == 1
    assert kept["stop"] == "complete"


def test_nothing_is_left_on_any_host_of_a_run_that_was_started_on_one(mpi, ssh_hosts):
    (mpi.path / "train.py").write_text(NASTY, encoding="utf-8")
    night = mpi.path / "night"
    result, _ = mpi.judge(
        *("-k", "throughput and mpi and 2n2g", "--dlperf-create-baselines"),
        *("--dlperf-run-dir", night),
        cluster="local",
    )
    assert result.ret == 0
    assert processes_with(str(night)) == []
    assert ssh_hosts.processes() == []
