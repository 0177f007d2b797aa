"""Nights of a training on four hosts in network namespaces, of which one may lose a resource."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from clusters.network import Network

CGROUPS: Final = Path("/sys/fs/cgroup")
RESOURCES: Final = ("compute", "network", "disk")
"""What a host can lose: processors by a quota, its link by tbf, its disk by blkio."""

TRAINER: Final = """\
import os, sys, time
import torch
import torch.distributed as dist
from pytest_dlperf.trainers.steps import StepLog

steps, folder = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
dist.init_process_group("gloo")
log = StepLog(batch_per_device=8)
left, gradients = torch.rand(768, 768), torch.rand(500_000)
samples = os.urandom(2_000_000)
with open(os.path.join(folder, "state"), "wb", buffering=0) as state:
    for _ in range(steps):
        for _ in range(4):
            loss = (left @ left).mean()
        dist.all_reduce(gradients)
        gradients /= dist.get_world_size()
        state.seek(0)
        state.write(samples)
        os.fsync(state.fileno())
        log.step(loss=float(loss))
dist.barrier()
"""
SYSTEM: Final = """\
framework: mlp
model: sync
unit: samples/s
log: {{name: train, format: dlperf}}
window: {{warmup_steps: 3, measured_steps: 10}}
repeats: 1
tolerance_percent: 50
{companions}
launch:
  devices: cpu
  command: ["{{python}}", {trainer}, "{{steps}}", "{{scratch_directory}}"]
  environment:
    MASTER_ADDR: "{{master_address}}"
    MASTER_PORT: "{{master_port}}"
    WORLD_SIZE: "{{world_size}}"
    RANK: "{{node_rank}}"
    GLOO_SOCKET_IFNAME: eth0
    OMP_NUM_THREADS: "1"
  time_limit_s: 300
cases:
  - {{precision: fp32, batch_per_device: 8, topologies: [4n1g], reference: none}}
"""
PROBE: Final = """\
{base}
model: {model}
repeats: 1
tolerance_percent: 60
launch:
{launch}
  environment: {{GLOO_SOCKET_IFNAME: eth0, OMP_NUM_THREADS: "1"}}
cases: [{{topologies: [4n1g]}}]
"""
OWN_PROBE: Final = """\
framework: host
resource: {resource}
log: {{node: each}}
metrics: {{speed: {{record: 'speed (?P<value>[^ ]+)', unit: 1/s, better: higher}}}}"""
MULTIPLY: Final = """\
import time, numpy as np
left = np.ones((1500, 1500), np.float32)
seconds = []
for _ in range(10):
    started = time.perf_counter()
    left @ left
    seconds.append(time.perf_counter() - started)
print("speed", 1 / min(seconds))
"""
WRITE: Final = """\
import os, sys, time
started = time.perf_counter()
with open(os.path.join(sys.argv[1], "probe"), "wb", buffering=0) as file:
    file.write(os.urandom(40_000_000))
    os.fsync(file.fileno())
print("speed", 1 / (time.perf_counter() - started))
"""
PROBES: Final = {
    "host-multiply": (
        OWN_PROBE.format(resource="compute"),
        f'  devices: cpu\n  command: ["{{python}}", -c, {json.dumps(MULTIPLY)}]',
    ),
    "host-memory": ("extends: host_memory", "  arguments: [--megabytes=40, --threads=1]"),
    "host-write": (
        OWN_PROBE.format(resource="disk"),
        (
            "  devices: cpu\n"
            f'  command: ["{{python}}", -c, {json.dumps(WRITE)}, "{{scratch_directory}}"]'
        ),
    ),
    "torch-gloo": ("extends: torch_all_reduce", "  arguments: [--kilobytes, '4000']"),
}


@dataclass(frozen=True, slots=True)
class Nights:
    """A suite of a training with companions, in a folder, and hosts that can be hurt."""

    folder: Path
    network: Network

    def set_up(self) -> None:
        """Write the suite."""
        systems = self.folder / "bench_tests" / "systems"
        systems.mkdir(parents=True)
        (self.folder / "pytest.ini").write_text("[pytest]\n")
        trainer = self.folder / "train.py"
        trainer.write_text(TRAINER)
        companions = f"companions: [{', '.join(PROBES)}]"
        (systems / "mlp.yaml").write_text(SYSTEM.format(trainer=trainer, companions=companions))
        for name, (base, launch) in PROBES.items():
            text = PROBE.format(base=base, model=name.partition("-")[2], launch=launch)
            (systems / f"{name}.yaml").write_text(text)

    def accept(self) -> subprocess.CompletedProcess[str]:
        """Record the numbers of the training and its probes."""
        return self._session("--dlperf-create-baselines", "--dlperf-repeats=3")

    def night(self) -> tuple[str, dict[str, Any], str]:
        """Run the training: its verdict, its explanation, and what the session has printed."""
        file = self.folder / "results.json"
        file.unlink(missing_ok=True)
        done = self._session("-k", "mlp-sync", f"--dlperf-json={file}")
        assert file.exists(), done.stdout + done.stderr
        [case] = json.loads(file.read_text())["cases"]
        verdict = case["metrics"]["throughput"]["verdict"]
        return verdict, case["explanations"].get("throughput", {}), done.stdout

    def _session(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        network = self.network
        words = [sys.executable, "-m", "pytest", "bench_tests", "-p", "no:cacheprovider"]
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("DLPERF_", "PYTEST_"))}
        temporary = self.folder / "tmp"
        temporary.mkdir(exist_ok=True)
        environment = {
            **kept,
            "DLPERF_SSH": network.ssh_command,
            "DLPERF_HOSTS": ",".join(network.names),
            "DLPERF_CLUSTER": "local",
            "DLPERF_LOCK": self.folder.name,
            "TMPDIR": str(temporary),
        }
        return subprocess.run(
            [*network.controller_prefix, *words, *arguments],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    @contextmanager
    def without(self, resource: str | None) -> Iterator[None]:
        """Take most of a resource from the third host."""
        name = self.network.names[2]
        if resource == "network":
            self.network.limit(name, megabits=20)
            try:
                yield
            finally:
                self.network.limit(name, megabits=None)
        elif resource is None:
            yield
        else:
            with _limited(resource, self.network.hosts.server_pid(name), self.folder):
                yield


def blamed(explanation: dict[str, Any]) -> list[str]:
    """The resource that the probes blame, if any."""
    found = explanation.get("companions", ())
    return [one["resource"] for one in found if one["is_blamed"]]


@contextmanager
def _limited(resource: str, pid: int, folder: Path) -> Iterator[None]:
    """Limit what a process starts from now on: processors to a tenth of one, or the disk."""
    controller = {"compute": "cpu", "disk": "blkio"}[resource]
    group = CGROUPS / controller / f"dlperf-{os.getpid()}"
    group.mkdir()
    try:
        if resource == "compute":
            (group / "cpu.cfs_quota_us").write_text("10000")
        else:
            device = folder.stat().st_dev
            number = f"{os.major(device)}:{os.minor(device)}"
            (group / "blkio.throttle.write_bps_device").write_text(f"{number} 1000000")
        (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        for one in (group / "cgroup.procs").read_text().split():
            with suppress(ProcessLookupError):
                (group.parent / "cgroup.procs").write_text(one)
        group.rmdir()


def cannot(resource: str) -> str | None:
    """Why a resource cannot be limited here; None if it can."""
    if resource == "network":
        return None if shutil.which("tc", path=f"{os.environ['PATH']}:/usr/sbin") else "needs tc"
    file = {"compute": "cpu/cpu.cfs_quota_us", "disk": "blkio/blkio.throttle.write_bps_device"}
    there = os.access(CGROUPS / file[resource], os.W_OK)
    return None if there else f"needs /sys/fs/cgroup/{file[resource]} (cgroup v1)"
