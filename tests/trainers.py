"""A system whose trainer is a few lines of Python, for tests of what happens around a training."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import yaml  # noqa: F401 - pytester unloads what a test has imported, and its C part loads once only
from suites import Suite

from pytest_dlperf.config.cluster import Cluster
from pytest_dlperf.config.settings import Setting
from pytest_dlperf.config.systems import load_systems
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS
from pytest_dlperf.launch.fleet import Fleet
from pytest_dlperf.launch.hosts import Host
from pytest_dlperf.launch.launchers import Launcher, LocalLauncher
from pytest_dlperf.launch.leases import HostPool
from pytest_dlperf.measure.by_launching import LaunchMeasurer, RunProgress
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import FixedRepeats, Repeats

SYSTEM = "tiny-mlp"
LAST_RANK = (
    "{name: mlp, node: last, format: {record: "
    "'dlperf step rank=[0-9]+ step=(?P<step>[0-9]+) time=(?P<timestamp>[0-9.]+) '}}"
)
"""The log of a system of which one process prints, the last, as with ``last-rank-prints``."""
CASES = ("tiny-mlp-fp32-b4-1n1g", "tiny-mlp-fp32-b4-1n2g", "tiny-mlp-fp32-b4-2n1g")

# Prints the records of a training in which each step takes as long as a file says. Each start
# leaves a line in starts.txt, by which a test counts the runs, and one in hosts.txt. Whoever finds
# another training at work on the same host writes it to overlaps.txt. TINY_SLOWER=1.1 in the
# environment makes each step so many times as long; slower.txt has one line of it per start.
TRAINER = """\
import faulthandler, fcntl, os, pathlib, signal, sys, time
nodes, devices, node_rank, steps, run = map(int, sys.argv[1:6])
here = pathlib.Path(__file__).parent
def note(file, *words):
    with (here / file).open("a") as opened:
        opened.write(" ".join(map(str, words)) + "\\n")
behaviour = (here / "behaviour.txt").read_text().split()
topology, host = f"{nodes}n{devices}g", os.environ.get("TINY_HOST", "127.0.0.1")
note("hosts.txt", topology, node_rank, run, host)
if host != "127.0.0.1":  # all nodes of a run may be this machine
    alone = (here / f"on-{host}").open("w")
    try:
        fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        note("overlaps.txt", topology, node_rank, run, host)
slower = os.environ.get("TINY_SLOWER", "1")
note("slower.txt", topology, node_rank, run, slower)
note("starts.txt", topology, node_rank, run)
def started(rank):
    return (here / "starts.txt").read_text().splitlines().count(f"{topology} {rank} {run}")
# As in a training, who prints makes no step without the others; unless one was killed.
waits = node_rank == 0 or "last-rank-prints" in behaviour
deadline = time.monotonic() + 30 * waits
while time.monotonic() < deadline and min(map(started, range(nodes))) < started(node_rank):
    time.sleep(0.01)
step_s = float(slower) * float(behaviour[0]) / (nodes * devices) ** 0.5
world_size = nodes * devices
for word in behaviour:
    if word.startswith("work-"):
        time.sleep(float(word[5:]))
while "wait" in behaviour and not (here / "go").exists():
    time.sleep(0.02)
if "cry" in behaviour:
    faulthandler.register(signal.SIGTERM, chain=True)
is_quiet = (
    "last-rank-prints" in behaviour and node_rank < nodes - 1
    or "first-node-prints" in behaviour and node_rank > 0
)
for local_rank in range(devices) if not is_quiet else ():
    rank = node_rank * devices + local_rank
    print(f"dlperf run rank={rank} world_size={world_size} nodes={nodes} "
          f"devices_per_node={devices} batch_per_device=4 precision=fp32", flush=True)
if "second-node-dies" in behaviour:
    if node_rank == 1:
        sys.exit(3)
    time.sleep(1)
for step in range(1, steps + 1):
    if f"die-at-{step}" in behaviour or f"die-at-{step}-if-{slower}" in behaviour:
        print("the trainer ran out of luck", flush=True)
        sys.exit(7)
    if f"die-once-at-{step}" in behaviour and (here / "starts.txt").read_text().count("\\n") == 1:
        print("the trainer ran out of luck", flush=True)
        sys.exit(7)
    if f"second-node-dies-at-{step}" in behaviour:
        if node_rank == 1:
            print("Traceback (most recent call last):")
            print("MemoryError: node 1 has no more", flush=True)
            (here / "died").touch()
            sys.exit(3)
        while not (here / "died").exists():  # it may have started long after this one
            time.sleep(0.02)
        time.sleep(3)
        print("node 0 has lost a peer", flush=True)
        sys.exit(1)
    if f"stop-at-{step}" in behaviour:
        sys.exit(0)
    if f"flood-at-{step}" in behaviour:
        while True:
            print("x" * 65536, flush=True)
    for word in behaviour:
        if word.startswith("step-by-step-"):
            time.sleep(float(word[13:]))
    if f"hang-at-{step}" in behaviour:
        time.sleep(600)
    for local_rank in range(devices) if not is_quiet else ():
        rank = node_rank * devices + local_rank
        print(f"dlperf step rank={rank} step={step} time={step * step_s:.6f} loss=1.0", flush=True)
for word in behaviour:
    if word.startswith("peak-"):
        print(f"peak memory of rank {node_rank}: {word[5:]} MB", flush=True)
if "stay" in behaviour:
    time.sleep(600)
if "linger" in behaviour:
    time.sleep(1)
    note("ended.txt", topology, node_rank, run)
if "die-at-end" in behaviour:
    sys.exit(9)
"""

DECLARATION = """\
framework: tiny
model: mlp
unit: samples/s
log: {log}
window: {{warmup_steps: 2, measured_steps: 8}}
repeats: 3
launch:
  devices: {devices}
  command: ["{{python}}", "{trainer}", "{{nodes}}", "{{devices_per_node}}", "{{node_rank}}",
    "{{steps}}", "{{run}}"]
  environment: {{TINY_HOST: "{{node_address}}"}}
  time_limit_s: {time_limit_s}
{more}
cases:
  - {{precision: fp32, batch_per_device: 4, topologies: [{topologies}]}}
"""


def accept(suite: Suite, throughputs: Mapping[str, float]) -> None:
    """Write the baselines of the system's topologies on this machine, as if they were recorded."""
    folder = suite.path / "baselines" / "local"
    folder.mkdir(exist_ok=True)
    (folder / "cluster.yaml").write_text("estimator: steady\n", encoding="utf-8")
    entries = [
        f"    {topology}: {{throughput: {value}}}" for topology, value in throughputs.items()
    ]
    lines = [
        f"system: {SYSTEM}",
        "metrics:",
        "  throughput: {unit: samples/s, better: higher}",
        "  speedup: {unit: x, better: higher}",
        "estimator: steady",
        "provenance: {source: a test}",
        "entries:",
        "  fp32-b4:",
        *entries,
    ]
    (folder / f"{SYSTEM}.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def shorter_training(suite: Suite, topology: str) -> str:
    """Have a shorter form of the shipped training, without a baseline; its name."""
    shipped = suite.path / "bench_tests" / "systems" / "pytorch-resnet18.yaml"
    text = shipped.read_text(encoding="utf-8")
    short = text.replace("model: resnet18", "model: resnet18_short")
    short = short.replace("measured_steps: 20", "measured_steps: 4").replace("=64", "=33")
    short = short[: short.index("    topologies:")] + f"    topologies: [{topology}]\n"
    suite.system_file(short, "short.yaml")
    return "pytorch-resnet18_short"


def slower_by(factor: str) -> list[Setting]:
    """What makes a training of the tiny system so many times as slow."""
    return [Setting(system=SYSTEM, name="env", key="TINY_SLOWER", value=factor, place="a test")]


def measurer(  # noqa: PLR0913 - what differs between tests, by name
    suite: Suite,
    *,
    repeats: Callable[[Case], Repeats] = lambda _: FixedRepeats(1),
    settings: Sequence[Setting] = (),
    launcher: Launcher | None = None,
    hosts: Sequence[Host] = (),
    show: Callable[[RunProgress], None] = lambda _: None,
    peak_tflops: Mapping[str, float] = MappingProxyType({}),
) -> LaunchMeasurer:
    """Measures the tiny system of a suite in this process; logs go to ``night``."""
    systems = load_systems([suite.path / "bench_tests" / "systems" / "own.yaml"], BUILTIN_FORMATS)
    fleet = Fleet(
        launcher or LocalLauncher(),
        hosts,
        pool=HostPool(suite.path / "pool"),
        exclusive=True,
        lock=os.urandom(8).hex(),
        wait_limit_s=60.0,
        shared_folder=None,
        say=print,
    )
    return LaunchMeasurer(
        fleet,
        systems,
        Cluster(
            name="mine", directory=suite.path / "baselines" / "mine", peak_tflops=dict(peak_tflops)
        ),
        settings=(settings,),
        session_dir=suite.path / "night",
        repeats=repeats,
        say=print,
        show=show,
    )


def checkout(folder: Path) -> str:
    """Make a checkout in a folder; the commit that it is at."""
    folder.mkdir()
    (folder / "train.py").write_text("pass\n", encoding="utf-8")
    git = ["git", "-C", str(folder), "-c", "user.name=A", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "Train"]):
        subprocess.run([*git, *words], check=True)
    head = [*git, "rev-parse", "--short=12", "HEAD"]
    return subprocess.run(head, check=True, capture_output=True, text=True).stdout.strip()


class TinySystem:
    """The system in a suite, and its trainer's behaviour."""

    def __init__(  # noqa: PLR0913 - what differs between tests, by name
        self,
        suite: Suite,
        *,
        time_limit_s: float = 60,
        devices: str = "cpu",
        topologies: Sequence[str] = ("1n1g", "1n2g", "2n1g"),
        launch: Sequence[str] = (),
        keys: Sequence[str] = (),
        log: str = "{name: mlp, format: dlperf}",
        alone: bool = True,
    ) -> None:
        """Write system and trainer; ``launch`` and ``keys`` have further lines of its file.

        The shipped systems go, unless it is not ``alone``: each session would read all of them.
        """
        for shipped in suite.path.glob("bench_tests/systems/*.yaml") if alone else ():
            shipped.unlink()
        self.folder = suite.path / "trainer"
        self.folder.mkdir()
        trainer = self.folder / "train.py"
        trainer.write_text(TRAINER, encoding="utf-8")
        suite.system_file(
            DECLARATION.format(
                trainer=trainer,
                time_limit_s=time_limit_s,
                devices=devices,
                log=log,
                topologies=", ".join(topologies),
                more="\n".join([*(f"  {line}" for line in launch), *keys]),
            )
        )
        self.behave("0.01")

    def behave(self, behaviour: str) -> None:
        """Seconds per step of one device, then what goes wrong."""
        (self.folder / "behaviour.txt").write_text(behaviour, encoding="utf-8")

    def go(self) -> None:
        """Let trainings go on that wait, and no later one wait."""
        (self.folder / "go").touch()

    def starts(self) -> list[str]:
        """One line per start of a node's trainer: topology, rank, run."""
        return self.noted("starts.txt")

    def hosts(self) -> list[str]:
        """One line per start of a node's trainer: topology, rank, run, address of the host."""
        return self.noted("hosts.txt")

    def slower(self) -> list[str]:
        """One line per start of a node's trainer: topology, rank, run, its TINY_SLOWER."""
        return self.noted("slower.txt")

    def overlaps(self) -> list[str]:
        """Starts on a host on which another training was at work."""
        return self.noted("overlaps.txt")

    def noted(self, name: str) -> list[str]:
        """The lines of a file that the trainer writes."""
        file: Path = self.folder / name
        return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


DEEPSPEED_ENGINE = """\
class DeepSpeedEngine:
    global_steps = 0
    def __init__(self, ranks):
        self.ranks = ranks
    def train_batch_size(self):
        return 4 * self.ranks
    def bfloat16_enabled(self):
        return False
    def fp16_enabled(self):
        return False
    def backward(self, loss):
        pass
    def step(self):
        self.global_steps += 1
"""
