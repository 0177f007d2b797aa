"""The examples are what they say: their commands run, and write what is uploaded."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from trainers import SYSTEM, TinySystem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from clusters.slurm import Slurm
    from suites import Suite

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
GITHUB = ("github-nightly.yml", "github-pull-request.yml")
WORKFLOWS = (*GITHUB, "gitlab-ci.yml")
SCRIPTS = ("slurm-nightly.sh",)
BASH = shutil.which("bash") or "bash"

SLOWER = "0.02"
"""Seconds per step of one device: twice as many as usual."""
MAIN = "import sys; from pytest_dlperf.command.main import main; sys.exit(main())"


def load(name: str) -> dict[Any, Any]:
    document: dict[Any, Any] = yaml.safe_load((EXAMPLES / name).read_text(encoding="utf-8"))
    return document


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A part of a job that a shell runs, or that an action does."""

    name: str
    script: str = ""
    uses: str = ""
    given: Mapping[str, Any] = field(default_factory=dict)
    folder: str = "."
    condition: str = ""

    @property
    def installs(self) -> bool:
        return "pip install" in self.script


def github_jobs(name: str) -> dict[str, list[Step]]:
    return {
        job_name: [
            Step(
                name=step.get("name", ""),
                script=step.get("run", ""),
                uses=step.get("uses", ""),
                given=step.get("with", {}),
                folder=step.get("working-directory", "."),
                condition=step.get("if", ""),
            )
            for step in job["steps"]
        ]
        for job_name, job in load(name)["jobs"].items()
    }


def gitlab_job(name: str) -> dict[str, Any]:
    """A job with what it takes from the one it extends."""
    document = load("gitlab-ci.yml")
    job = document[name]
    return merged(document[job["extends"]], job) if "extends" in job else job


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """What GitLab makes of ``extends``: tables are merged, all else is replaced."""
    both = dict(below)
    for key, value in above.items():
        is_table = isinstance(value, dict) and isinstance(below.get(key), dict)
        both[key] = merged(below[key], value) if is_table else value
    return both


def scripts() -> Iterator[tuple[str, str]]:
    """Every script in the examples, with its file."""
    for name in GITHUB:
        for steps in github_jobs(name).values():
            yield from ((name, step.script) for step in steps if step.script)
    for job in load("gitlab-ci.yml").values():
        if isinstance(job, dict):
            for part in ("before_script", "script"):
                yield from (("gitlab-ci.yml", line) for line in job.get(part, ()))
    for name in SCRIPTS:
        yield name, (EXAMPLES / name).read_text(encoding="utf-8")
    for block in re.findall(r"```sh\n(.*?)```", (EXAMPLES / "README.md").read_text(), re.DOTALL):
        yield "README.md", block


def commands(program: str) -> list[tuple[str, list[str]]]:
    """The arguments of every call of a program in the examples, each with its file."""
    found = []
    for name, script in scripts():
        for line in script.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            places = [at for at, word in enumerate(words) if word.rpartition("/")[2] == program]
            # In "timeout … .venv/bin/pytest" as in "exec .venv/bin/pytest": what comes behind it.
            found += [(name, words[at + 1 :]) for at in places[:1] if not is_named_only(words)]
    return found


def is_named_only(words: Sequence[str]) -> bool:
    return "pip" in words


# --------------------------------------------------------------------- what stands in them


def test_every_example_is_listed_with_what_to_change() -> None:
    listed = re.findall(
        r"^\| \[`([^`]+)`\]\(\1\)", (EXAMPLES / "README.md").read_text(), re.MULTILINE
    )

    assert sorted(listed) == sorted((*WORKFLOWS, *SCRIPTS))
    assert sorted(file.name for file in EXAMPLES.iterdir()) == sorted((*listed, "README.md"))


def test_every_option_that_they_give_exists(suite: Suite) -> None:
    known = suite.run("--help").stdout.str()

    given = {word.partition("=")[0] for _, words in commands("pytest") for word in words}
    options = {word for word in given if word.startswith("--")}
    assert len(options) >= 8
    # pytest's help shows another form of one of its own.
    known = known.replace("--junit-xml", "--junitxml")
    assert [option for option in sorted(options) if f" {option}" not in known] == []
    for name, words in commands("pytest-dlperf"):
        help_text = subprocess.run(
            [sys.executable, "-c", MAIN, *words[: 1 + (words[0] == "history")], "--help"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        unknown = [word for word in words if word.startswith("--") and word not in help_text]
        assert unknown == [], name


@pytest.mark.parametrize("name", GITHUB)
def test_a_workflow_of_github_is_whole_and_takes_no_more_than_it_needs(name: str) -> None:
    document = load(name)

    # YAML 1.1 takes the word "on" for true.
    assert "workflow_dispatch" in document[True]
    assert document["permissions"] == {"contents": "read"}
    assert document["concurrency"]["group"].startswith("dlperf-")
    for job_name, job in document["jobs"].items():
        assert "runs-on" in job, job_name
        assert "permissions" not in job
        assert 0 < job["timeout-minutes"] <= 720
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step), step
            if "uses" in step:
                assert re.fullmatch(r"actions/[a-z/-]+@v[0-9]+", step["uses"])
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False
            # What others may choose, as the name of a branch, would be run as part of a script.
            assert "${{" not in step.get("run", "")
    assert not re.search(r"\$\{\{[^}]*secrets", (EXAMPLES / name).read_text(encoding="utf-8"))


def test_the_nightly_gate_comes_by_itself_one_at_a_time_and_is_strict() -> None:
    document = load("github-nightly.yml")

    [schedule] = document[True]["schedule"]
    assert re.fullmatch(r"[0-5]?[0-9] [0-9]+ \* \* \*", schedule["cron"])
    assert document["concurrency"]["cancel-in-progress"] is False
    [gate] = [words for file, words in commands("pytest") if file == "github-nightly.yml"]
    assert gate[:4] == ["bench_tests", "-n", "auto", "--dlperf-strict"]
    assert {"--dlperf-json", "--dlperf-html", "--junitxml"} <= set(gate)


def test_the_history_is_kept_of_red_nights_too_and_under_a_key_of_its_own() -> None:
    steps = github_jobs("github-nightly.yml")["gate"]
    [restore] = [step for step in steps if "cache/restore" in step.uses]
    [save] = [step for step in steps if "cache/save" in step.uses]

    assert save.condition == "always()"
    assert save.given["key"] == restore.given["key"]
    assert "github.run_id" in save.given["key"]
    assert save.given["key"].startswith(restore.given["restore-keys"])
    database = Path(load("github-nightly.yml")["env"]["DLPERF_HISTORY"])
    assert str(database.parent) == save.given["path"] == restore.given["path"]
    gitlab = gitlab_job("nightly")["cache"]
    assert gitlab["when"] == "always"
    assert gitlab["paths"] == [f"{database.parent}/"]
    assert load("gitlab-ci.yml")["variables"]["DLPERF_HISTORY"] == str(database)


def test_a_pull_request_gets_no_secrets_and_runs_when_somebody_says_so() -> None:
    triggers = load("github-pull-request.yml")[True]

    assert set(triggers) == {"pull_request", "workflow_dispatch"}
    assert triggers["pull_request"]["types"] == ["labeled"]
    [job] = load("github-pull-request.yml")["jobs"].values()
    assert "github.event.label.name == 'performance'" in job["if"]
    assert job["runs-on"] == "ubuntu-latest"  # a machine of one's own needs a condition more


def test_gitlab_shows_the_tests_and_the_page_also_of_red_jobs() -> None:
    for name in ("nightly", "merge-request"):
        job = gitlab_job(name)
        [words] = [
            shlex.split(line)[shlex.split(line).index(".venv/bin/pytest") :]
            for line in job["script"]
        ]
        artifacts = job["artifacts"]
        assert artifacts["when"] == "always"
        assert artifacts["reports"]["junit"] == words[words.index("--junitxml") + 1]
        [folder] = artifacts["paths"]
        assert words[words.index("--dlperf-html") + 1].startswith(folder)
        assert "*" not in folder
        assert "$" not in folder
        assert "expose_as" in artifacts
        assert job["resource_group"] == gitlab_job("nightly")["resource_group"]
    pages = gitlab_job("pages")
    assert pages["artifacts"]["paths"] == ["public"]
    assert pages["needs"] == ["nightly"]


def test_the_slurm_script_is_that_of_the_documentation() -> None:
    document = (ROOT / "docs" / "clusters.md").read_text(encoding="utf-8")
    shown = re.search(
        r"<!-- example: slurm-nightly.sh -->\n```sh\n(.*?)^```$", document, re.DOTALL | re.MULTILINE
    )

    assert shown is not None
    assert (EXAMPLES / "slurm-nightly.sh").read_text(encoding="utf-8") == shown[1]


@pytest.mark.parametrize(("name", "script"), list(scripts()), ids=lambda value: str(value)[:30])
def test_every_script_is_a_shell_s(name: str, script: str) -> None:
    checks = [[BASH, "-n"]]
    if shutil.which("shellcheck"):
        checks.append(["shellcheck", "--shell=bash", "-"])
    for check in checks:
        done = subprocess.run(check, input=script, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"


# -------------------------------------------------------------------------- they are run


class Checkout:
    """A repository with a tiny system alone, accepted on ``my-cluster`` and on this machine."""

    def __init__(self, suite: Suite) -> None:
        self.suite = suite
        systems = suite.path / "bench_tests" / "systems"
        shutil.rmtree(systems)
        systems.mkdir()
        self.tiny = TinySystem(suite, topologies=["1n1g", "1n2g"])
        self.path = suite.path
        own = systems / "own.yaml"
        own.write_text("marks: [smoke]\n" + own.read_text(encoding="utf-8"), encoding="utf-8")
        shutil.rmtree(suite.path / "baselines")
        (suite.path / "baselines").mkdir()

    def accept(self) -> None:
        """Accept how fast it is as the numbers of ``my-cluster``."""
        cluster = self.path / "baselines" / "my-cluster" / "cluster.yaml"
        cluster.parent.mkdir()
        cluster.write_text(f"estimator: steady\nsystems: [{SYSTEM}]\n", encoding="utf-8")
        names = ("--dlperf-create-baselines", "--dlperf-cluster", "my-cluster")
        assert self.suite.run(*names, "--dlperf-history", "none").ret == 0
        shutil.rmtree(self.path / ".dlperf")

    def install(self, folder: str = ".") -> None:
        """Do what installing does: have both programs in an environment of the checkout."""
        programs = self.path / folder / ".venv" / "bin"
        programs.mkdir(parents=True)
        for name, start in (("pytest", "-m pytest"), ("pytest-dlperf", f"-c {shlex.quote(MAIN)}")):
            program = programs / name
            program.write_text(f'#!/bin/sh\nexec {sys.executable} {start} "$@"\n', encoding="utf-8")
            program.chmod(0o755)

    def do(
        self, script: str, environment: Mapping[str, str], folder: str = "."
    ) -> subprocess.CompletedProcess[str]:
        """Run a script as a CI does."""
        return subprocess.run(
            [BASH, "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script],
            cwd=self.path / folder,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def work(self, name: str, environment: Mapping[str, str]) -> dict[str, int]:
        """Run the steps of a workflow as GitHub does; give the exit code of each that ran."""
        codes: dict[str, int] = {}
        document = load(name)
        given = {**document.get("env", {}), **environment}
        [steps] = github_jobs(name).values()
        self.printed = ""
        for step in steps:
            is_red = any(codes.values())
            if not step.script or step.installs or (is_red and not step.condition):
                continue
            done = self.do(step.script, given, step.folder)
            codes[step.name] = done.returncode
            self.printed += done.stdout + done.stderr
        return codes

    def artefacts(self, name: str) -> dict[str, list[str]]:
        """The files that each upload of a workflow finds."""
        [steps] = github_jobs(name).values()
        return {
            step.name: sorted(
                str(file.relative_to(self.path / step.given["path"]))
                for file in (self.path / step.given["path"]).rglob("*")
                if file.is_file()
            )
            for step in steps
            if "upload-artifact" in step.uses
        }


@pytest.fixture
def checkout(suite: Suite) -> Checkout:
    return Checkout(suite)


@pytest.fixture
def github(suite: Suite) -> dict[str, str]:
    """What GitHub sets for a step."""
    summary = suite.path / "summary.md"
    return {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary)}


def test_a_green_night_on_github(checkout: Checkout, github: dict[str, str]) -> None:
    checkout.accept()
    checkout.install()

    codes = checkout.work("github-nightly.yml", github)

    assert codes == {"Find mistakes before training for hours": 0, "Gate": 0}, checkout.printed
    files = checkout.artefacts("github-nightly.yml")
    assert files["Upload the results"] == ["junit.xml", "results.html", "results.json"]
    assert (checkout.path / "history" / "history.sqlite3").is_file()
    assert "::error" not in checkout.printed


def test_a_red_night_on_github_uploads_results_and_logs(
    checkout: Checkout, github: dict[str, str]
) -> None:
    checkout.accept()
    checkout.install()
    checkout.tiny.behave(SLOWER)

    codes = checkout.work("github-nightly.yml", github)

    assert codes["Gate"] == 1, checkout.printed
    files = checkout.artefacts("github-nightly.yml")
    assert files["Upload the results"] == ["junit.xml", "results.html", "results.json"]
    assert any(
        name.endswith("mlp_b4_fp32_1.log") for name in files["Upload the logs of a red night"]
    )
    assert "regressed" in Path(github["GITHUB_STEP_SUMMARY"]).read_text(encoding="utf-8")
    assert "::error" in checkout.printed


def test_a_night_with_a_case_that_cannot_run_is_red(
    checkout: Checkout, github: dict[str, str]
) -> None:
    checkout.accept()
    checkout.install()
    (checkout.path / "trainer" / "train.py").unlink()

    assert checkout.work("github-nightly.yml", github)["Gate"] == 1


def test_a_pull_request_that_slows_training_is_red_and_compared(
    checkout: Checkout, github: dict[str, str]
) -> None:
    path = checkout.path
    for side in ("base", "head"):
        checkout.install(side)
        shutil.copytree(path / "bench_tests", path / side / "bench_tests")
        shutil.copytree(path / "trainer", path / side / "trainer")
        shutil.copytree(path / "baselines", path / side / "baselines")
        shutil.copy(path / "tox.ini", path / side)
        system = path / side / "bench_tests" / "systems" / "own.yaml"
        text = system.read_text(encoding="utf-8")
        system.write_text(text.replace(f"{path}/trainer", f"{path}/{side}/trainer"), "utf-8")
    (path / "head" / "trainer" / "behaviour.txt").write_text(SLOWER, encoding="utf-8")

    codes = checkout.work("github-pull-request.yml", github)

    assert codes == {
        "Find mistakes": 0, "Train the base": 0, "Train the head": 1, "Compare": codes["Compare"],
    }, checkout.printed  # fmt: skip
    files = checkout.artefacts("github-pull-request.yml")["Upload the results"]
    assert files == [
        "base.json", "comparison.html", "comparison.md", "head.html", "head.json", "junit.xml",
    ]  # fmt: skip
    comparison = (path / "results" / "comparison.md").read_text(encoding="utf-8")
    assert Path(github["GITHUB_STEP_SUMMARY"]).read_text(encoding="utf-8").endswith(comparison)
    median = {
        side: json.loads((path / "results" / f"{side}.json").read_text())["cases"][0]["throughput"]
        for side in ("base", "head")
    }
    assert median["head"]["median"] == pytest.approx(median["base"]["median"] / 2, rel=1e-3)


@pytest.mark.parametrize("name", ["nightly", "merge-request"])
@pytest.mark.parametrize("is_red", [False, True], ids=["green", "red"])
def test_a_job_of_gitlab_leaves_what_it_shows(
    checkout: Checkout, name: str, *, is_red: bool
) -> None:
    checkout.accept()
    checkout.install()
    if is_red:
        checkout.tiny.behave(SLOWER)
    job = gitlab_job(name)
    variables = {**load("gitlab-ci.yml")["variables"], **job.get("variables", {})}

    lines = [line for line in (*job["before_script"], *job["script"]) if ".venv/bin/py" in line]
    done = [checkout.do(line, variables) for line in lines if " -m pip " not in line]

    assert [it.returncode for it in done] == [0, int(is_red)], done[-1].stdout
    assert (checkout.path / job["artifacts"]["reports"]["junit"]).is_file()
    for folder in job["artifacts"]["paths"]:
        assert any((checkout.path / folder).iterdir())
    assert (checkout.path / "history" / "history.sqlite3").exists() == (name == "nightly")
    [made, copied] = gitlab_job("pages")["script"]
    assert checkout.do(f"{made}\n{copied}", {}).returncode == 0
    assert (checkout.path / "public" / "index.html").is_file()


def test_the_history_is_made_again_from_the_artefacts(
    checkout: Checkout, github: dict[str, str]
) -> None:
    checkout.accept()
    checkout.install()
    checkout.work("github-nightly.yml", github)
    (checkout.path / "nights").mkdir()
    (checkout.path / "results").rename(checkout.path / "nights" / "dlperf-nightly-1-1")
    shutil.rmtree(checkout.path / "history")
    [words] = [words for name, words in commands("pytest-dlperf") if name == "README.md"]

    done = checkout.do(shlex.join([".venv/bin/pytest-dlperf", *words]), {})

    assert done.returncode == 0, done.stderr
    assert "1 session imported" in done.stdout
    assert (checkout.path / "history" / "history.sqlite3").is_file()


def test_the_slurm_job_is_green_or_red_as_the_night_is(checkout: Checkout, slurm: Slurm) -> None:
    checkout.accept()
    checkout.install()
    script = (EXAMPLES / "slurm-nightly.sh").read_text(encoding="utf-8")

    slurm.batch(script)

    [results] = checkout.path.glob("runs/*.json")
    verdicts = [case["verdict"] for case in json.loads(results.read_text())["cases"]]
    assert [verdict["throughput"] for verdict in verdicts] == ["pass", "pass"]
    assert results.with_suffix(".xml").is_file()
    assert results.with_suffix("").is_dir()

    checkout.tiny.behave(SLOWER)
    with pytest.raises(RuntimeError, match="ended with 1"):
        slurm.batch(script)
