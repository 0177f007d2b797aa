"""A repository whose trainer gets slower in one of its commits; its work is a sleep per step."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from suites import ran_command

from pytest_dlperf.culprit import trial

CASE: Final = "own-net-fp32-b4-1n1g"
STEP_S: Final = 0.03
SLOW_S: Final = 0.06
"""What a slow commit, argument or variable adds: no busy machine hides it."""

TRAINER: Final = """\
import os, random, sys, time
from pytest_dlperf.trainers.steps import StepLog
STEP_S = {seconds}
NOISE = float(os.environ.get("NOISE", "0.01"))
STEP_S += float(os.environ.get("SLOW_S", "0")) + {slow} * ("--slow" in sys.argv)
run_s = STEP_S * random.SystemRandom().gauss(1, NOISE)
log = StepLog(batch_per_device=4, precision="fp32", world_size=1, nodes=1, devices_per_node=1)
for _ in range(int(sys.argv[1])):
    time.sleep(run_s)
    log.step(loss=1.0)
"""

SYSTEM: Final = """\
framework: own
model: net
unit: samples/s
log: {{name: train, format: dlperf}}
window: {{warmup_steps: 1, measured_steps: 6}}
repeats: 1
tolerance_percent: 30
launch:
  devices: cpu
  {place}
  command: ["{{python}}", train.py, "{{steps}}"{more}]
  time_limit_s: 60
cases:
  - {{precision: fp32, batch_per_device: {batch}, topologies: [1n1g]}}
"""

PEOPLE: Final = ("Ana Diaz", "Ben Okafor", "Chen Wei")


@dataclass(slots=True)
class BisectedRepository:
    """A Git repository with suite and trainer; ``commits`` in the order in which they were made."""

    folder: Path
    commits: list[str] = field(default_factory=list)
    popen: Callable[..., Any] = subprocess.Popen
    """Starts its sessions."""

    def set_up(self) -> None:
        """Make the repository, without a commit."""
        systems = self.folder / "bench_tests" / "systems"
        systems.mkdir(parents=True)
        self.write_system()
        (self.folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        (self.folder / ".gitignore").write_text(".dlperf/\n__pycache__/\n", encoding="utf-8")
        self.trainer(STEP_S)
        self.git("init", "-q", "-b", "main")

    def write_system(self, *, batch: int = 4, more: str = "", starts_here: bool = False) -> None:
        """Write the system file; ``more`` goes behind the trainer's arguments.

        A trainer that ``starts_here`` is told no folder, as those that ``init`` sets up.
        """
        file = self.folder / "bench_tests" / "systems" / "net.yaml"
        place = "" if starts_here else f"working_directory: {self.folder}"
        text = SYSTEM.format(place=place, batch=batch, more=more)
        file.write_text(text, encoding="utf-8")

    def trainer(self, seconds: float) -> None:
        """Have the trainer take so long for a step."""
        text = TRAINER.format(seconds=seconds, slow=SLOW_S)
        (self.folder / "train.py").write_text(text, encoding="utf-8")

    def commit(self, title: str) -> str:
        """Commit everything."""
        with (self.folder / "NOTES.md").open("a", encoding="utf-8") as file:
            file.write(f"{title}\n")
        who = PEOPLE[len(self.commits) % len(PEOPLE)]
        self.git("add", "-A")
        self.git("-c", f"user.name={who}", "-c", "user.email=a@example.org",
                 "commit", "-q", "-m", title)  # fmt: skip
        self.commits.append(self.git("rev-parse", "HEAD"))
        return self.commits[-1]

    def fill(self, count: int, *, slow: int, broken: int = 0) -> None:
        """Make commits 0 to ``count``: from ``slow`` on a step takes longer.

        One in ``broken`` does not build: it has a file ``broken``.
        """
        for number in range(count + 1):
            if number == slow:
                self.trainer(STEP_S + SLOW_S)
            flag = self.folder / "broken"
            flag.unlink(missing_ok=True)
            if broken and 0 < number < count and number % broken == 1:
                flag.touch()
            self.commit(f"Change number {number}")

    def git(self, *words: str) -> str:
        """Run Git here."""
        done = subprocess.run(
            ["git", "-C", str(self.folder), *words],  # noqa: S607 - the user's git
            env={**os.environ, "GIT_CONFIG_GLOBAL": os.devnull},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """Start ``pytest-dlperf`` in a process of its own."""
        code = "import sys; from pytest_dlperf.command.main import main; sys.exit(main())"
        return subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            cwd=self.folder,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str, **environment: str) -> tuple[int, str]:
        """Run ``pytest-dlperf``: its exit code, and what it printed."""
        program = self.start(*arguments, **environment)
        output = program.communicate()[0]
        return program.returncode, output

    def session(self, *arguments: str) -> int:
        """Run a session; its exit code."""
        words = [sys.executable, "-m", "pytest", "bench_tests", "-q", "-p", "no:cacheprovider"]
        words += ["-p", "pytest_dlperf.plugin"] * ("PYTEST_DISABLE_PLUGIN_AUTOLOAD" in os.environ)
        words += ["--dlperf-repeats=3", *arguments]
        with self.folder.with_name("session.txt").open("wb") as file:
            code: int = self.popen(
                words,
                cwd=self.folder,
                env=os.environ,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            ).wait()
        return code

    def good_night(self) -> None:
        """Have a night that is accepted."""
        if self.session("--dlperf-create-baselines"):
            raise AssertionError("a night is red")

    def bisect(self, *arguments: str, good: int = 0, bad: int = -1) -> tuple[int, str]:
        """Hunt between two commits."""
        ends = f"{self.commits[good]}..{self.commits[bad]}"
        return self.run("bisect", ends, "--case", CASE, "--yes", *arguments)


@dataclass(slots=True)
class QuickRepository(BisectedRepository):
    """One whose commands run in the process of a test; their sessions are forks."""

    capture: pytest.CaptureFixture[str] | None = None

    def run(self, *arguments: str, **environment: str) -> tuple[int, str]:
        """Run ``pytest-dlperf``: its exit code, and what it printed."""
        assert self.capture is not None
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.folder)
            for name, value in environment.items():
                patch.setenv(name, value)
            forking = SimpleNamespace(**{**vars(subprocess), "Popen": self.popen})
            patch.setattr(trial, "subprocess", forking)
            done = ran_command(self.capture, arguments)
        return int(done.ret), "\n".join([*done.outlines, *done.errlines, ""])
