"""A small lab for `mornings.py`: two checkouts with a past, hosts over ssh, mail and a GitHub."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from site import getsitepackages
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from clusters.ssh import SshHosts
    from notice_servers import Forge, MailServer, Web

ROOT: Final = Path(__file__).resolve().parent.parent
PEOPLE: Final = {
    "ana": "Ana Diaz",
    "ben": "Ben Okafor",
    "chen": "Chen Wei",
    "dana": "Dana Novak",
}
TOLERANCE: Final = 15.0
COMMAND: Final = "import sys; from pytest_dlperf.command.main import main; sys.exit(main())"

TRAINER: Final = '''\
"""Train a small network on synthetic data; the work of a device is a sleep, which repeats well."""
import argparse
import os
import time
from pathlib import Path

import tokenizers
import torch
import torch.distributed as dist
from pytest_dlperf.trainers.steps import StepLog

STEP_S = 0.16  # on the device
parser = argparse.ArgumentParser()
parser.add_argument("--model")
parser.add_argument("--batch", type=int)
parser.add_argument("--steps", type=int)
parser.add_argument("--checkpoint-activations", default="off")
given = parser.parse_args()
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
samples, labels = torch.randn(given.batch, 64), torch.randint(8, (given.batch,))


def load():
    """Have the next batch: what was not prefetched is waited for."""
    if int(os.environ.get("LOADER_PREFETCH", "4")) < 2:
        time.sleep(0.09)
    time.sleep(0.001 * len(list(Path("data").glob("shard-*"))))
    if given.model == "encoder":
        tokenizers.encode(samples)


log = StepLog(batch_per_device=given.batch)
for _ in range(given.steps):
    load()
    loss = torch.nn.functional.cross_entropy(model(samples), labels)
    time.sleep(STEP_S * (1.45 if given.checkpoint_activations == "full" else 1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    log.step(loss=loss.item())
dist.barrier()
'''

SYSTEM: Final = """\
framework: pytorch
model: {model}
unit: samples/s
log: {{name: train, format: dlperf}}
window: {{warmup_steps: 2, measured_steps: 8}}
repeats: {repeats}
tolerance_percent: {tolerance:g}
launch:
  devices: cpu
  working_directory: {checkout}
  command: ["{{python}}", train.py, --model={model}, "--batch={{batch_per_device}}",
    "--steps={{steps}}"{more}]
  environment:
    MASTER_ADDR: "{{master_address}}"
    MASTER_PORT: "{{master_port}}"
    WORLD_SIZE: "{{world_size}}"
    RANK: "{{node_rank}}"
    OMP_NUM_THREADS: "1"
  time_limit_s: 180
cases:
  - {{precision: fp32, batch_per_device: {batch}, topologies: [{topologies}]}}
"""


@dataclass(slots=True)
class Lab:
    """The suite's repository, the trainer's checkout, and what is installed; as new by `reset`."""

    folder: Path
    hosts: SshHosts
    mail: MailServer
    web: Web
    forge: Forge
    now: datetime
    repeats: int
    commits: dict[str, list[tuple[float, str]]] = field(default_factory=dict)

    @property
    def bench(self) -> Path:
        """The repository of the suite."""
        return self.folder / "bench"

    @property
    def models(self) -> Path:
        """The checkout of the trainer."""
        return self.folder / "models"

    # ---------------------------------------------------------------- repositories

    def set_up(self) -> None:
        """Write both repositories as they were three weeks ago, and what is installed."""
        for folder in (self.bench / "bench_tests" / "systems", self.models):
            folder.mkdir(parents=True)
        venv.create(self.folder / "venv", symlinks=True)
        text = "".join(f"import site; site.addsitedir({path!r})\n" for path in getsitepackages())
        (self._packages / "torch.pth").write_text(text, encoding="utf-8")
        for file in (ROOT / "bench_tests").glob("*.py"):
            shutil.copy(file, self.bench / "bench_tests")
        (self.bench / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        (self.bench / ".gitignore").write_text(".dlperf/\n*.html\n*.json\n", encoding="utf-8")
        self.write_system("encoder")
        self.write_system("detector")
        (self.models / "train.py").write_text(TRAINER, encoding="utf-8")
        (self.models / ".gitignore").write_text("data/\n__pycache__/\n", encoding="utf-8")
        self.shards(8)
        self.install("0.20.3", 0.0)
        for repository in (self.bench, self.models):
            self._git(repository, "init", "-q", "-b", "main")
        self.commit(self.models, "dana", 60, "Train encoder and detector")
        self.commit(self.bench, "ana", 58, "Measure encoder and detector every night")

    def keep(self) -> None:
        """Keep everything as it is, for `reset`."""
        shutil.copytree(self.folder, self._kept, symlinks=True)
        (self._kept / "commits.json").write_text(json.dumps(self.commits), encoding="utf-8")

    def reset(self) -> None:
        """Have everything as it was kept, at the same paths."""
        shutil.rmtree(self.folder)
        shutil.copytree(self._kept, self.folder, symlinks=True)
        known = json.loads((self._kept / "commits.json").read_text("utf-8"))
        self.commits = {name: [tuple(one) for one in these] for name, these in known.items()}

    def write_system(self, model: str, more: str = "") -> None:
        """Write the system file of a model; ``more`` goes behind its arguments."""
        text = SYSTEM.format(
            model=model,
            tolerance=TOLERANCE,
            repeats=self.repeats,
            topologies="1n1g, 2n1g" if model == "encoder" else "1n1g",
            checkout=self.models,
            more=more,
            batch=16 if model == "encoder" else 4,
        )
        file = self.bench / "bench_tests" / "systems" / f"{model}.yaml"
        file.write_text(text, encoding="utf-8")

    def shards(self, count: int) -> None:
        """Have so many shards of data, each of which costs the loader a little."""
        (self.models / "data").mkdir(exist_ok=True)
        for number in range(count):
            (self.models / "data" / f"shard-{number:03}").touch()

    def install(self, version: str, seconds: float) -> None:
        """Install this version of a package that takes so long for a batch."""
        for old in self._packages.glob("tokenizers*"):
            shutil.rmtree(old) if old.is_dir() else old.unlink()
        information = self._packages / f"tokenizers-{version}.dist-info"
        information.mkdir()
        text = f"Metadata-Version: 2.1\nName: tokenizers\nVersion: {version}\n"
        (information / "METADATA").write_text(text, encoding="utf-8")
        code = f"import time\ndef encode(batch):\n    time.sleep({seconds})\n    return batch\n"
        (self._packages / "tokenizers.py").write_text(code, encoding="utf-8")
        self._index.mkdir(exist_ok=True)
        wheel = self._index / f"tokenizers-{version}-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("tokenizers.py", code)
            archive.writestr(f"{information.name}/METADATA", text)
            tag = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            archive.writestr(f"{information.name}/WHEEL", tag)
            archive.writestr(f"{information.name}/RECORD", "")

    def change_trainer(self, old: str, new: str) -> None:
        """Change a line of the trainer."""
        file = self.models / "train.py"
        text = file.read_text(encoding="utf-8")
        if old not in text:
            raise ValueError(f"the trainer has no {old!r}")
        file.write_text(text.replace(old, new), encoding="utf-8")

    def note(self, who: str, days_ago: float, message: str) -> None:
        """Commit something to the suite that changes no number."""
        with (self.bench / "NOTES.md").open("a", encoding="utf-8") as file:
            file.write(f"{message}\n")
        self.commit(self.bench, who, days_ago, message)

    def commit(self, repository: Path, who: str, days_ago: float, message: str) -> str:
        """Commit everything, as this person did then; the commit."""
        at = (self.now - timedelta(days=days_ago)).isoformat()
        dates = {"GIT_AUTHOR_DATE": at, "GIT_COMMITTER_DATE": at}
        self._git(repository, "add", "-A")
        self._git(repository, "commit", "-q", "-m", message, **identity(who), **dates)
        name = self._git(repository, "rev-parse", "--short=12", "HEAD")
        self.commits.setdefault(repository.name, []).append((days_ago, name))
        return name

    def commit_of(self, repository: Path, days_ago: float) -> str:
        """The commit that was the newest so many days ago."""
        known = self.commits[repository.name]
        return [name for at, name in known if at >= days_ago][-1]

    # ---------------------------------------------------------------- sessions

    def session(self, *arguments: str, **environment: str) -> tuple[int, dict[str, Any]]:
        """Run a session of the whole suite over ssh; exit code and results."""
        file = self.folder / "results.json"
        words = [sys.executable, "-m", "pytest", "bench_tests", "-q", "-p", "no:cacheprovider"]
        words += ["--dlperf-set", f"*.python={self.folder / 'venv' / 'bin' / 'python'}"]
        words += ["-p", "xdist.plugin", "-p", "pytest_dlperf.plugin", "--dlperf-json", str(file)]
        done = self._run([*words, *arguments], environment)
        (self.folder / "output.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
        if not file.exists():
            raise RuntimeError(f"no results: {done.stdout}\n{done.stderr}")
        return done.returncode, json.loads(file.read_text(encoding="utf-8"))

    def why(self, case: str) -> str:
        """Ask why a case's number is another one, and return what is said."""
        python = self.folder / "venv" / "bin" / "python"
        of_pytest = ("bench_tests", "-p", "pytest_dlperf.plugin", f"--dlperf-set=*.python={python}")
        return self.command("why", case, "--yes", "--", *of_pytest).stdout

    def command(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run ``pytest-dlperf`` in the suite's folder."""
        return self._run([sys.executable, "-c", COMMAND, *arguments], environment)

    def _run(
        self, words: list[str], environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            cwd=self.bench,
            env={**self._environment(), **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def in_ci(self) -> dict[str, str]:
        """The environment of the nightly job, which tells mail and pull request."""
        return {
            "GITHUB_ACTIONS": "true",
            "GITHUB_EVENT_NAME": "schedule",
            "GITHUB_SERVER_URL": "https://git.example.org",
            "GITHUB_REPOSITORY": "lab/bench",
            "GITHUB_RUN_ID": "4711",
            "GITHUB_REF": "refs/pull/87/merge",
            "GITHUB_API_URL": self.web.url,
            "GITHUB_GRAPHQL_URL": f"{self.web.url}/graphql",
            "GITHUB_TOKEN": "of-this-job",
            "DLPERF_NOTIFY": "mail=release@example.org github",
            "DLPERF_NOTIFY_ON": "always",
        }

    def night(
        self,
        measured: Mapping[str, Any],
        days_ago: int,
        factor: float = 1.0,
        jitter: float = 0.008,
        change: Callable[[dict[str, Any]], None] = lambda _: None,
    ) -> None:
        """Put a real session into the history, as one of so many days ago.

        Its numbers are multiplied by ``factor`` and a little noise; its commits are those of then.
        """
        draw = random.Random(days_ago)  # noqa: S311 - noise
        results: dict[str, Any] = json.loads(json.dumps(measured))
        back = timedelta(days=days_ago, minutes=draw.uniform(-9, 9))
        results["session"] = f"night-{days_ago}"
        results["started"] = _earlier(results["started"], back)
        results["ended"] = _earlier(results["ended"], back - timedelta(hours=1))
        results["environment"] |= {
            "commit": self.commit_of(self.bench, days_ago),
            "ci_run": f"https://git.example.org/lab/bench/actions/runs/{4711 - days_ago}",
        }
        results["environment"].pop("commit_url", None)
        results["baseline_changes"] = []
        for case in results["cases"]:
            _scale(case, factor * draw.gauss(1, jitter))
            for name in case["fingerprint"].get("commits", {}):
                case["fingerprint"]["commits"][name] = self.commit_of(self.models, days_ago)
            change(case)
        _follow_speedups(results["cases"])
        folder = self.folder / "nights"
        folder.mkdir(exist_ok=True)
        text = json.dumps(results)
        (folder / f"{1000 - days_ago}.json").write_text(text, encoding="utf-8")

    def import_nights(self) -> None:
        """Import what `night` has made, and forget what the sessions here have kept themselves."""
        shutil.rmtree(self.bench / ".dlperf", ignore_errors=True)
        done = self.command("history", "import", str(self.folder / "nights"))
        if done.returncode:
            raise RuntimeError(done.stdout + done.stderr)

    def set_back_acceptance(self, days: float) -> None:
        """Have the accepted numbers accepted so many days ago."""
        for file in (self.bench / "baselines" / "local").glob("*.yaml"):
            text = file.read_text(encoding="utf-8")
            moved = re.sub(
                r"\d{4}-\d\d-\d\dT[0-9:.]+(?:Z|[+-]\d\d:\d\d)",
                lambda found: _earlier(found[0], timedelta(days=days)),
                text,
            )
            file.write_text(moved, encoding="utf-8")

    @property
    def _packages(self) -> Path:
        """Where the trainer's Python has its packages."""
        [folder] = (self.folder / "venv" / "lib").glob("python*/site-packages")
        return folder

    @property
    def _index(self) -> Path:
        """The package index, as pip knows it."""
        return self.folder / "index"

    @property
    def _kept(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}-kept")

    def _environment(self) -> dict[str, str]:
        ours = ("DLPERF_", "GITHUB_", "GITLAB_", "CI", "PYTEST_", "GIT_")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        temporary = self.folder.with_name("tmp")
        temporary.mkdir(mode=0o700, exist_ok=True)
        return {
            **inherited,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "TMPDIR": str(temporary),
            "XDG_RUNTIME_DIR": str(temporary),
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self._index),
            "DLPERF_LOCK": f"mornings-{os.getpid()}",
            "DLPERF_SSH": self.hosts.ssh_command,
            "DLPERF_HOSTS": ",".join(f"{name}:1" for name in self.hosts.names),
            "DLPERF_SMTP": f"smtp://127.0.0.1:{self.mail.port}?from=dlperf@example.org",
        }

    def _git(self, repository: Path, *words: str, **environment: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(repository), *words],  # noqa: S607 - the user's git
            env={**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, **environment},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()


def identity(who: str) -> dict[str, str]:
    """Give the variables by which Git knows a person."""
    mail = f"{who}@example.org"
    return {
        "GIT_AUTHOR_NAME": PEOPLE[who],
        "GIT_AUTHOR_EMAIL": mail,
        "GIT_COMMITTER_NAME": PEOPLE[who],
        "GIT_COMMITTER_EMAIL": mail,
    }


def _earlier(at: str, by: timedelta) -> str:
    return (datetime.fromisoformat(at.replace("Z", "+00:00")) - by).isoformat()


def _scale(case: dict[str, Any], factor: float) -> None:
    """Multiply a case's throughput, and judge it by the tolerance as it would have been."""
    metric = case["metrics"]["throughput"]
    for run in case["runs"]:
        if "throughput" in run["metrics"]:
            run["metrics"]["throughput"] *= factor
    _set(metric, metric["median"] * factor)


def _follow_speedups(cases: list[dict[str, Any]]) -> None:
    medians = {case["id"]: case["metrics"]["throughput"]["median"] for case in cases}
    for case in cases:
        speedup = case["metrics"].get("speedup")
        alone = case["id"].replace("2n1g", "1n1g")
        if speedup and speedup["median"] is not None and alone != case["id"]:
            _set(speedup, medians[case["id"]] / medians[alone])


def _set(metric: dict[str, Any], median: float) -> None:
    if metric.get("mean"):
        metric["mean"] *= median / metric["median"]
    metric["median"] = median
    metric["explanation"] = None
    accepted = metric.get("accepted")
    if accepted is None:
        return
    percent = 100 * (median / accepted - 1)
    metric["difference_percent"] = percent
    metric["verdict"] = (
        "regressed" if percent < -TOLERANCE else "improved" if percent > TOLERANCE else "pass"
    )
    metric["reason"] = None
    if metric.get("gate"):
        metric["gate"] |= {"verdict": metric["verdict"], "measured": median, "decision": None}
