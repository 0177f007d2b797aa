"""A pytest that runs the stubborn trainer on two nodes, as a user would start it."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from clusters.processes import (
    LONG_S,
    Process,
    ancestors_of,
    descendants_of,
    end,
    processes_with,
)
from clusters.processes import processes as all_processes

from fault_matrix import trainer
from fault_matrix.places import Place
from pytest_dlperf.node import processes

NODES: Final = 2
CLIENTS: Final = ("ssh", "srun", "mpirun", "sbatch", "kubectl")
_SENT: Final = " -I -S -c "
"""What the programs that are sent to nodes are started with."""
XDIST_WORKER: Final = "exec(eval(sys.stdin.readline()))"
_DAEMONS: Final = ("sshd", "slurmd", "slurmstepd", "containerd-shim")
_LOOK_S: Final = 0.2
_QUIET_S: Final = 0.5
"""Nothing is left that has not been seen for so long."""

_DECLARATION: Final = """\
framework: stubborn
model: tree
unit: samples/s
log: {{name: tree, format: dlperf}}
window: {{warmup_steps: 2, measured_steps: 8}}
repeats: 1
launch:
  devices: cpu
{launch}
  time_limit_s: {time_limit_s}
  step_limit_s: {step_limit_s}
cases:
  - {{precision: fp32, batch_per_device: 4, topologies: [2n1g]}}
"""

_SIGNATURE: Final = f"_SIGNATURE = 0x{processes._SIGNATURE:X}"  # noqa: SLF001 - as below
_APART: Final = """\
from pytest_dlperf.node import processes
processes.__file__ = {file!r}
processes._SIGNATURE = {signature}
"""

_IMPATIENT: Final = """\
from pytest_dlperf.launch import remote_node, run
remote_node.TERMINATION_GRACE_S = run.PEER_GRACE_S = 0.5
remote_node.HEARTBEAT_TIMEOUT_S = 2.5
"""

_OPTIONS: Final = tuple(
    f"-pno:{name}" for name in ("hypothesispytest", "anyio", "typeguard", "benchmark")
)
_KEPT: Final = ("tmp/pytest-of-", "tmp/pytest-dlperf-hosts-")
"""pytest's own folder, and that of leases."""
_FORGET: Final = ("DLPERF_", "PYTEST_", "SLURM", "GITHUB_", "PYTHONDONTWRITEBYTECODE")


class NotUpError(Exception):
    """The trainer did not come up: what the session has printed."""


@dataclass(slots=True, kw_only=True)
class Session:
    """A folder with the stubborn trainer, and one pytest after another that runs it.

    Only a ``patient`` one takes as long as for users until it ends what does not want to end, or
    gives up a node that is silent.
    """

    folder: Path
    place: Place
    patient: bool = True
    token: str = field(default_factory=lambda: f"token-{secrets.token_hex(8)}")
    time_limit_s: float = 90
    step_limit_s: float = 90
    _process: subprocess.Popen[bytes] | None = None
    _noted: list[Process] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Write the suite: a system file, what this machine is, the trainer."""
        for name in ("trainer/up", "bench_tests/systems", "baselines/local", "scratch", "tmp"):
            (self.folder / name).mkdir(parents=True)
        shutil.copy(str(trainer.__file__), self.folder / "trainer" / "train.py")
        (self.folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
        (self.folder / "baselines/local/cluster.yaml").write_text(
            f"scratch: {self.folder / 'scratch'}\n"
        )
        # Other sessions of this machine would end what is left here, and hide it.
        marks = self.folder / "processes.py"
        source = Path(processes.__file__).read_text(encoding="utf-8")
        assert source.count(_SIGNATURE) == 1
        signature = f"0x{secrets.randbelow(0xC00) + 0x100:X}"
        marks.write_text(source.replace(_SIGNATURE, f"_SIGNATURE = {signature}"), encoding="utf-8")
        conftest = _APART.format(file=str(marks), signature=signature)
        conftest += "" if self.patient else _IMPATIENT
        (self.folder / "conftest.py").write_text(conftest)

    # ------------------------------------------------------------------ what runs

    @property
    def _home(self) -> Path:
        return self.folder / "trainer"

    @property
    def _roles(self) -> tuple[str, ...]:
        return trainer.ROLES

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the session has not been started"
        return self._process

    @property
    def output(self) -> str:
        return (self.folder / "output.txt").read_text(encoding="utf-8", errors="replace")

    def start(self, *arguments: str, behaviour: str = "sleeps", prefix: Sequence[str] = ()) -> None:
        """Start pytest in the background, and wait until the stubborn trainer is up everywhere.

        ``behaviour`` is what the trainer does once it is told to go on.
        """
        shutil.rmtree(self._home / "up")
        (self._home / "up").mkdir()
        for name in ("go", "over"):
            (self._home / name).unlink(missing_ok=True)
        self.begin(behaviour, *arguments, prefix=prefix)
        deadline = time.monotonic() + LONG_S
        while not self._is_up():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise NotUpError(self.output[-4000:])
            time.sleep(0.02)
        self._noted = self._around()

    def begin(self, behaviour: str, *arguments: str, prefix: Sequence[str] = ()) -> None:
        """Start pytest in the background."""
        (self._home / "behaviour.txt").write_text(behaviour)
        (self._home / "roles.txt").write_text(" ".join(self._roles))
        results = self.folder / "results.json"
        results.unlink(missing_ok=True)
        (self.folder / "bench_tests/systems/stubborn.yaml").write_text(
            _DECLARATION.format(
                launch=self.place.launch([str(self._home / "train.py"), self.token]),
                time_limit_s=self.time_limit_s,
                step_limit_s=self.step_limit_s,
            )
        )
        selected = ["-k", "throughput", "--dlperf-cluster", "local", "--dlperf-json", results.name]
        python = [sys.executable, "-m", "pytest", *_OPTIONS]
        with (self.folder / "output.txt").open("wb") as output:
            self._process = subprocess.Popen(
                [*self.place.prefix, *prefix, *python, "bench_tests", *selected, *arguments],
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # As a terminal has it: signals can be sent to all that belong to the command.
                start_new_session=True,
            )

    def _environment(self) -> dict[str, str]:
        ours = {name: value for name, value in os.environ.items() if not name.startswith(_FORGET)}
        return {
            **ours,
            # Locks on hosts, and those between sessions, are the machine's.
            "DLPERF_LOCK": self.token,
            "TMPDIR": str(self.folder / "tmp"),
            **self.place.environment,
            "STUBBORN": self.token,
        }

    def go_on(self) -> None:
        """Let the trainer do what it does in the end."""
        (self._home / "go").touch()

    def _is_up(self) -> bool:
        up = self._home / "up"
        roles = ("agent", "worker", *self._roles)
        return all((up / f"{role}{rank}").exists() for role in roles for rank in range(NODES))

    # ------------------------------------------------------------------ who is who

    def _note(self, role: str, rank: int) -> Path:
        return self._home / "up" / f"{role}{rank}"

    def pid(self, role: str, rank: int) -> int:
        """The number of a process of the trainer, as it has noted it."""
        return int(self._note(role, rank).read_text())

    def moment(self, role: str, rank: int) -> float:
        """When it has noted it, in seconds since the epoch."""
        return self._note(role, rank).stat().st_mtime

    def supervisor(self, rank: int) -> list[int]:
        """The supervisor of a node."""
        above = ancestors_of(self.pid("agent", rank))
        return [one.pid for one in above if _SENT in one.command][:1]

    @property
    def noted(self) -> list[int]:
        """Pytest, what it has started, and what is around the trainer."""
        return [self.process.pid, *(one.pid for one in self._noted)]

    def name_in_system(self, pid: int) -> str:
        """What the system calls a process; nothing where it is gone."""
        with suppress(OSError):
            return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
        return ""

    def clients(self, *names: str) -> list[Process]:
        """What leads from here to the nodes or holds them, and what leads on from there."""
        ours = self._noted or descendants_of(self.process.pid)
        return [one for one in ours if _program(one) in (names or CLIENTS)]

    def workers(self) -> list[Process]:
        """The xdist workers of this session."""
        children = [one for one in all_processes() if one.parent == self.process.pid]
        return [one for one in children if one.command.endswith(XDIST_WORKER)]

    def _around(self) -> list[Process]:
        """What is above and below the trainer, and below pytest, but for the machine's daemons."""
        ours = {self.process.pid: None}
        found = {one.pid: one for one in descendants_of(self.process.pid)}
        for rank in range(NODES):
            for one in ancestors_of(self.pid("agent", rank)):
                if _program(one) in _DAEMONS or one.pid in ours:
                    break
                found[one.pid] = one
        for one in self.place.elsewhere():
            if _program(one) not in _DAEMONS:
                found[one.pid] = one
        return list(found.values())

    # ------------------------------------------------------------------ what is left

    def left(self) -> list[str]:
        """Name what still runs, as short as can be: ``hidden of node 1``."""
        return [self._name_of(one) for one in self._processes_left()]

    def gone_at(self, due: float, limit_s: float) -> tuple[float, list[str]]:
        """Wait until nothing is left, or for so long; when something ran last, and what is left.

        Times are those of ``time.time``. The limit is one of looks, of which a busy machine has
        fewer: there each takes as much longer as what is looked at.
        """
        last = time.time()
        looks = 0
        while True:
            left = self.left()
            now = time.time()
            looks += now > due
            last = now if left else last
            if (left and looks * _LOOK_S > limit_s) or now - last > _QUIET_S:
                return last, left
            time.sleep(_LOOK_S)

    def left_after(self, seconds: float) -> list[str]:
        """Wait until nothing is left, for so long at most; what is left then."""
        return self.gone_at(time.time(), seconds)[1]

    def _processes_left(self) -> list[Process]:
        """What runs by its arguments, or because it has led to the trainer.

        Not counted is pytest, nor as long as it lives what belongs to it and to no run.
        """
        found = {one.pid: one for one in self._noted if one.lives()}
        # The trainer has it among its arguments. What was started here after the fault has it in
        # its environment: from this session, not from what is tested.
        for one in processes_with(self.token):
            found[one.pid] = one
        lives = self.process.poll() is None
        return [
            one
            for one in found.values()
            if one.pid != self.process.pid
            and not (lives and XDIST_WORKER in one.command)
            and _program(one) not in _DAEMONS
        ]

    def _name_of(self, one: Process) -> str:
        words = one.command.split()
        if self.token not in words or "mpirun" in words[0]:
            return " ".join(words[:6])[:80]
        _, _, node, _, *role = words[words.index(self.token) :]
        return f"{role[0]} of node {node}" if role else "agent or worker"

    def files_left(self) -> list[str]:
        """Scratch folders and temporary files."""
        kept = [*(self.folder / "scratch").iterdir(), *(self.folder / "tmp").iterdir()]
        parts = [file for file in self.folder.glob(".*") if file.name.startswith(".results")]
        names = [str(file.relative_to(self.folder)) for file in [*kept, *parts]]
        return sorted(name for name in names if not name.startswith(_KEPT))

    # ------------------------------------------------------------------ what is told

    def ended(self) -> int:
        """Wait until pytest has ended; its exit code."""
        return self.process.wait(LONG_S)

    def runs(self) -> list[dict[str, Any]]:
        """What the results file says of the runs; nothing where there is none."""
        file = self.folder / "results.json"
        if not file.exists():
            return []
        cases = json.loads(file.read_text(encoding="utf-8"))["cases"]
        return [run for case in cases if case["measurement"] for run in case["measurement"]["runs"]]

    # ------------------------------------------------------------------ afterwards

    def stop(self) -> None:
        """End whatever is left, by its number."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        while left := self._processes_left():
            end(left)


def last_line(output: str) -> str:
    """Give the last line of it that says something."""
    return next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "")


def _program(process: Process) -> str:
    return process.command.partition(" ")[0].rpartition("/")[2].rstrip(":")
