"""A system whose trainer does not want to end, and sessions that run it and come to an end."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from clusters.processes import Process, descendants_of, end, processes, processes_with, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from suites import Suite

PROMISE_S: Final = 10
"""Within so many seconds nothing is left of a run that has ended, however it has."""
LONG_S: Final = 60
"""Far more than anything else here takes, even on a machine that is busy elsewhere."""
NODES: Final = 2
ROLES: Final = ("agent", "worker", "daemon", "hidden")

# Ignores what asks it to end, and so does what it starts: a worker in a session of its own, as
# torchrun starts them, a daemon that has left its parents, and another one without a marker.
# All of them hold on to the log. Once all are up it trains, and waits to be told how to go on.
TRAINER = """\
import os, pathlib, signal, sys, time
here = pathlib.Path(__file__).parent
node_rank, nodes, steps, scratch = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
behaviour = (here / "behaviour.txt").read_text().split()

def note(role, text):
    part = here / "up" / f"{role}{node_rank}.part"
    part.write_text(str(text))
    part.rename(here / "up" / f"{role}{node_rank}")

def train(first, last):
    for step in range(first, last + 1):
        record = f"rank={node_rank} step={step} time={step / 100:.6f} loss=1.0"
        print("dlperf step", record, flush=True)

print(f"dlperf run rank={node_rank} world_size={nodes} nodes={nodes} devices_per_node=1 "
      "batch_per_device=4 precision=fp32", flush=True)
if "tame" in behaviour:
    train(1, steps)
    sys.exit()
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
if not os.fork():
    os.setsid()
    for role in ("daemon", "hidden"):
        if not os.fork():
            os.setsid()
            if os.fork():
                os._exit(0)
            note(role, os.getpid())
            if role == "hidden" and "marked" not in behaviour:
                sleep = "import time; time.sleep(120)"
                os.execve(sys.executable, [sys.executable, "-S", "-c", sleep, str(here)], {})
            time.sleep(120)
            os._exit(0)
        os.wait()
    note("worker", os.getpid())
    time.sleep(120)
    os._exit(0)
pathlib.Path(scratch, "file").touch()
note("scratch", scratch)
train(1, 3)
note("agent", os.getpid())
while not (here / "go").exists():
    time.sleep(0.02)
if "fails" in behaviour and node_rank == 1:
    os._exit(3)
if "succeeds" in behaviour or "exits" in behaviour:
    train(4, steps)
    if "exits" in behaviour:
        os._exit(0)
time.sleep(120)
"""

IMPATIENT = """\
from pytest_dlperf.launch import channel, gang, run, supervisor_client
supervisor_client.TERMINATION_GRACE_S = run.PEER_GRACE_S = 0.5
channel.HEARTBEAT_TIMEOUT_S = 2.5
gang.QUEUE_LIMIT_S = 5.0
"""

HANGING_PYTHON = """\
#!{python} -S
import os, pathlib, signal, time
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
pathlib.Path(__file__).parent.joinpath("up", f"looking{{os.getpid()}}").touch()
time.sleep(120)
"""

DECLARATION = """\
framework: stubborn
model: tree
unit: samples/s
log: {{name: tree, format: dlperf}}
window: {{warmup_steps: 2, measured_steps: 8}}
repeats: 1
launch:
  devices: cpu
  command: ["{{python}}", "{trainer}", "{{node_rank}}", "{{nodes}}", "{{steps}}",
    "{{scratch_directory}}"]
  time_limit_s: {time_limit_s}
  step_limit_s: {step_limit_s}
cases:
  - {{precision: fp32, batch_per_device: 4, topologies: [2n1g]}}
"""


@dataclass(slots=True, kw_only=True)
class Session:
    """A pytest that runs the stubborn system on two nodes, as a user would start it.

    ``prefix`` is what a command at the controller begins with, ``environment`` what is added to
    ours there, ``elsewhere`` finds what runs on the nodes and does not show that it is ours. Only a
    ``patient`` one takes as long as for users until it ends what does not want to end, or gives up
    a node that is silent. What ``may_leave_scratch`` leaves folders to the next run.
    """

    suite: Suite
    prefix: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    elsewhere: Callable[[], Sequence[Process]] = list
    patient: bool = False
    may_leave_scratch: bool = False
    _process: subprocess.Popen[bytes] | None = None
    _token: str = field(default_factory=lambda: secrets.token_hex(8))

    def __post_init__(self) -> None:
        """Write the system and its trainer."""
        (self.folder / "up").mkdir(parents=True)
        (self.folder / "train.py").write_text(TRAINER, encoding="utf-8")
        self.limit()
        if not self.patient:
            (self.suite.path / "conftest.py").write_text(IMPATIENT, encoding="utf-8")

    @property
    def folder(self) -> Path:
        return self.suite.path / "trainer"

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the session has not been started"
        return self._process

    @property
    def output(self) -> str:
        return (self.suite.path / "output.txt").read_text(encoding="utf-8", errors="replace")

    def limit(self, *, time_limit_s: float = 90, step_limit_s: float = 90) -> None:
        """How long a run may take, and how long a step."""
        self.suite.system_file(
            DECLARATION.format(
                trainer=self.folder / "train.py",
                time_limit_s=time_limit_s,
                step_limit_s=step_limit_s,
            )
        )

    def start(self, *arguments: str, behaviour: str = "sleeps") -> None:
        """Start pytest in the background, and wait until the stubborn trainer is up everywhere.

        ``behaviour`` is what the trainer does once it is told to go on.
        """
        self.begin(behaviour, *arguments)
        wait_until(
            lambda: self._is_up() or self.process.poll() is not None,
            what="the stubborn processes",
            limit_s=LONG_S,
        )
        assert self._is_up(), self.output

    def start_looking(self) -> None:
        """Start pytest in the background, and wait until a look at the hosts hangs on all of them.

        What runs the trainer there says nothing and does not want to end.
        """
        python = self.folder / "python"
        python.write_text(HANGING_PYTHON.format(python=sys.executable), encoding="utf-8")
        python.chmod(0o755)
        self.begin("sleeps", f"--dlperf-set=stubborn-tree.python={python}")
        wait_until(
            lambda: len(list((self.folder / "up").glob("looking*"))) == NODES,
            what="the look at the hosts",
            limit_s=LONG_S,
        )

    def go_on(self) -> None:
        """Let the trainer do what it does in the end."""
        (self.folder / "go").touch()

    def supervisor(self, node_rank: int) -> int:
        """The process that watches over a node's trainer: its parent."""
        agent = int((self.folder / "up" / f"agent{node_rank}").read_text(encoding="utf-8"))
        [parent] = [one.parent for one in processes() if one.pid == agent]
        return parent

    def worker(self) -> int:
        """The xdist worker that holds the run; there has to be one alone."""
        [worker] = [one for one in self._ours() if one.parent == self.process.pid]
        return worker.pid

    def clients(self) -> list[Process]:
        """What this session has started here that leads to its nodes, by ssh or srun."""
        ours = descendants_of(self.process.pid)
        return [one for one in ours if one.command.split()[0].rpartition("/")[2] in CLIENTS]

    def left(self) -> list[str]:
        """What there is of the run: its processes, here and on the nodes, and scratch folders."""
        found = {
            one.pid: f"{one.pid} {one.command}"
            for one in self._all()
            if one.pid != self.process.pid and not one.command.endswith(XDIST_WORKER)
        }
        if self.may_leave_scratch:
            return list(found.values())
        noted = [self.folder / "up" / f"scratch{rank}" for rank in range(NODES)]
        scratch = [file.read_text(encoding="utf-8") for file in noted if file.exists()]
        return [*found.values(), *(folder for folder in scratch if Path(folder).exists())]

    def assert_nothing_is_left(self, within_s: float = PROMISE_S) -> None:
        deadline = time.monotonic() + within_s
        while left := self.left():
            assert time.monotonic() < deadline, "\n".join([*left, self.output])
            time.sleep(0.1)

    def ended(self) -> int:
        """Wait until pytest has ended; its exit code."""
        return self.process.wait(LONG_S)

    def assert_told(self, status: str, reason: str) -> None:
        """Check what the session says of the run, once it has ended."""
        self.ended()
        results = json.loads((self.suite.path / "results.json").read_text(encoding="utf-8"))
        [run] = results["cases"][0]["runs"]
        assert (run["status"], reason in str(run["reason"])) == (status, True), run

    def assert_hosts_are_free(self) -> None:
        """Run a tame trainer on the same hosts: it waits for nothing, and the case passes."""
        self.ended()
        self.begin("tame", "--dlperf-create-baselines")
        code = self.ended()
        assert code == 0, self.output
        assert "1 passed" in self.output
        assert "waiting" not in self.output
        assert not self.left()

    def stop(self) -> None:
        """End whatever a test that failed has left, by its number."""
        if self._process is not None:
            end(self._all())
            self._process.wait()

    def begin(self, behaviour: str, *arguments: str) -> None:
        """Start pytest in the background."""
        (self.folder / "behaviour.txt").write_text(behaviour, encoding="utf-8")
        selected = ["-k", "throughput and stubborn", "--dlperf-cluster", "local"]
        selected += ["--dlperf-json", "results.json"]
        with (self.suite.path / "output.txt").open("wb") as output:
            self._process = subprocess.Popen(
                [
                    *self.prefix,
                    sys.executable,
                    "-m",
                    "pytest",
                    "bench_tests",
                    *selected,
                    *arguments,
                ],
                cwd=self.suite.path,
                env={**os.environ, **self.environment, "STUBBORN": self._token},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # As a terminal has it: signals can be sent to all that belong to the command.
                start_new_session=True,
            )

    def _is_up(self) -> bool:
        up = self.folder / "up"
        return all((up / f"{role}{rank}").exists() for role in ROLES for rank in range(NODES))

    def _ours(self) -> list[Process]:
        """The processes that have inherited this session's environment, pytest's own too."""
        return processes_with(f"STUBBORN={self._token}")

    def _all(self) -> list[Process]:
        return [*self._ours(), *processes_with(str(self.folder)), *self.elsewhere()]


CLIENTS: Final = ("ssh", "srun")
XDIST_WORKER: Final = "exec(eval(sys.stdin.readline()))"
