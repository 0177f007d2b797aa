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
PYTHON3 = """#!/bin/sh
# A Python that makes environments of ours, and is the real one otherwise.
if [ "$1 $2" != "-m venv" ]; then exec {python} "$@"; fi
mkdir -p "$3/bin"
cat >"$3/bin/pytest" <<'END'
#!/bin/sh
exec {python} -m pytest "$@"
END
cat >"$3/bin/pytest-dlperf" <<'END'
#!/bin/sh
exec {python} -c {start} "$@"
END
cat >"$3/bin/python" <<'END'
#!/bin/sh
for last; do :; done
echo "$last" >>{noted}
END
chmod +x "$3"/bin/*
"""
GLAB = """#!/bin/sh
# GitLab's program: two pages of jobs, one whose artefacts are gone, and files.
for last; do :; done
case "$last" in
*"/jobs?"*)
    echo '[{"id": 9, "name": "nightly", "artifacts_file": {}}, {"id": 8, "name": "pages"}]'
    echo '[{"id": 7, "name": "nightly", "artifacts_file": {}}, {"id": 1, "name": "nightly"}]'
    ;;
*) echo "$last" ;;
esac
"""
ACCEPTED = f"""\
system: {SYSTEM}
metrics:
  throughput: {{unit: samples/s, better: higher}}
  speedup: {{unit: x, better: higher}}
estimator: steady
provenance: {{source: a test}}
entries:
  fp32-b4:
    1n1g:
      throughput: {{accepted: 400, runs: {{1: 400, 2: 400, 3: 400}}}}
      speedup: 1
    1n2g:
      throughput:
        accepted: {400 * 2 * 2**0.5}
        runs: {{1: {800 * 2**0.5}, 2: {800 * 2**0.5}, 3: {800 * 2**0.5}}}
      speedup: {2 * 2**0.5}
"""
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
        for line in script.replace("\\\n", " ").replace("|\n", "| ").splitlines():
            words = shlex.split(line.replace(")", " "), comments=True)
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
    for job in document["jobs"].values():
        assert "concurrency" not in job
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

    nights = [schedule["cron"] for schedule in document[True]["schedule"]]
    assert all(re.fullmatch(r"[0-5]?[0-9] [0-9]+ \* \* [0-9-]+", night) for night in nights)
    assert [night.split()[-1] for night in nights] == ["1-6", "0"]
    assert document["concurrency"]["cancel-in-progress"] is False
    [gate] = [words for file, words in commands("pytest") if file == "github-nightly.yml"]
    assert gate[:4] == ["bench_tests", "-n", "auto", "--dlperf-strict"]
    assert {"--dlperf-json", "--dlperf-html", "--junitxml"} <= set(gate)


def test_baselines_are_extended_in_one_night_of_the_week_or_by_hand() -> None:
    triggers = load("github-nightly.yml")[True]
    [gate] = [step for step in load("github-nightly.yml")["jobs"]["gate"]["steps"] if "env" in step]

    [asked] = triggers["workflow_dispatch"]["inputs"]
    weekly = triggers["schedule"][1]["cron"]
    assert f"github.event.schedule == '{weekly}' || inputs.{asked}" in gate["env"]["EXTEND"]
    assert load("gitlab-ci.yml")["variables"]["EXTEND_BASELINES"]["value"] == ""
    for text in ("github-nightly.yml", "gitlab-ci.yml"):
        assert "git push" not in (EXAMPLES / text).read_text(encoding="utf-8")


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
    # Another label's run, which skips the job, must not cut off a comparison.
    group = load("github-pull-request.yml")["concurrency"]["group"]
    assert "${{ github.event.label.name }}" in group
    assert job["runs-on"] == "ubuntu-latest"  # a machine of one's own needs a condition more


def test_gitlab_shows_the_tests_and_the_page_also_of_red_jobs() -> None:
    for name in ("nightly", "merge-request"):
        job = gitlab_job(name)
        artifacts = job["artifacts"]
        assert artifacts["when"] == "always"
        assert artifacts["paths"] == ["results/", "logs/"]
        assert "expose_as" in artifacts
        assert artifacts["reports"]["junit"].startswith("results/")
        assert job["resource_group"] == gitlab_job("nightly")["resource_group"]
    assert gitlab_job("merge-request")["variables"]["DLPERF_HISTORY"] == "none"
    pages = gitlab_job("pages")
    assert pages["artifacts"]["paths"] == ["public"]
    assert pages["needs"] == ["nightly"]


@pytest.mark.parametrize("name", ["github-nightly.yml", "gitlab-ci.yml"])
def test_nights_have_dated_change_points(name: str) -> None:
    installs = [
        line for file, script in scripts() if file == name for line in script.splitlines()
        if "pip install" in line and "smoke" not in line
    ]  # fmt: skip

    assert [shlex.split(line)[-1] for line in installs] == [".[change-points]"]


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
        # The lines of a GitLab job are one shell's, but stand here one by one: a variable may be
        # set in one and used in another.
        checks.append(["shellcheck", "--shell=bash", "--exclude=SC2034,SC2154", "-"])
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
        folder = self.path / "baselines" / "my-cluster"
        folder.mkdir()
        cluster = f"estimator: steady\nsystems: [{SYSTEM}]\n"
        (folder / "cluster.yaml").write_text(cluster, encoding="utf-8")
        (folder / f"{SYSTEM}.yaml").write_text(ACCEPTED, encoding="utf-8")
        self.git("init", "--quiet")
        self.commit("Accept")

    def git(self, *words: str) -> str:
        """Call Git in the checkout, as somebody."""
        who = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.org")
        return subprocess.run(
            ["git", *who, *words],  # noqa: S607 - Git is where the machine has it
            cwd=self.path, capture_output=True, text=True, check=True,
        ).stdout.strip()  # fmt: skip

    def commit(self, why: str) -> str:
        """Commit what is there; give the commit."""
        self.git("add", "bench_tests", "trainer", "baselines", "tox.ini")
        self.git("commit", "--quiet", "--message", why)
        return self.git("rev-parse", "HEAD")

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

    def gitlab(self, name: str, environment: Mapping[str, str]) -> int:
        """Run a job as GitLab does: one shell for it, one for what comes after. Give its code.

        Its ``python3 -m venv`` makes an environment with our programs, whose pip notes what it was
        to install.
        """
        programs = self.path.parent / f"{self.path.name}-programs"
        programs.mkdir(exist_ok=True)
        python3 = programs / "python3"
        python3.write_text(
            PYTHON3.format(
                python=shlex.quote(sys.executable),
                start=shlex.quote(MAIN),
                noted=shlex.quote(str(programs / "installed.txt")),
            ),
            encoding="utf-8",
        )
        python3.chmod(0o755)
        job = gitlab_job(name)
        variables = {**load("gitlab-ci.yml")["variables"], **job.get("variables", {})}
        given = {
            key: value["value"] if isinstance(value, dict) else str(value)
            for key, value in variables.items()
        }
        given |= {"PATH": f"{programs}:{os.environ['PATH']}", **environment}
        done = self.do("\n".join((*job["before_script"], *job["script"])), given)
        self.printed = done.stdout + done.stderr
        status = {"CI_JOB_STATUS": "failed" if done.returncode else "success"}
        assert self.do("\n".join(job["after_script"]), {**given, **status}).returncode == 0
        self.installed = (programs / "installed.txt").read_text(encoding="utf-8").splitlines()
        return done.returncode

    def uploads(self, name: str) -> list[str]:
        """The files in the archive that GitLab makes of a job."""
        return sorted(
            str(file.relative_to(self.path))
            for folder in gitlab_job(name)["artifacts"]["paths"]
            for file in (self.path / folder).rglob("*")
            if file.is_file()
        )

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


def test_a_green_night_on_github_leaves_what_its_history_is_made_of_again(
    checkout: Checkout, github: dict[str, str]
) -> None:
    checkout.accept()
    checkout.install()

    codes = checkout.work("github-nightly.yml", github)

    assert codes["Gate"] == 0, checkout.printed
    assert set(codes.values()) == {0}
    files = checkout.artefacts("github-nightly.yml")
    assert files["Upload the results"] == ["junit.xml", "results.html", "results.json"]
    assert (checkout.path / "history" / "history.sqlite3").is_file()
    assert "::error" not in checkout.printed

    (checkout.path / "nights").mkdir()
    (checkout.path / "results").rename(checkout.path / "nights" / "dlperf-nightly-1-1")
    shutil.rmtree(checkout.path / "history")
    [words] = [
        words
        for name, words in commands("pytest-dlperf")
        if name == "README.md" and words[0] == "history"
    ]
    done = checkout.do(shlex.join([".venv/bin/pytest-dlperf", *words]), {})
    assert done.returncode == 0, done.stderr
    assert "1 session imported" in done.stdout
    assert (checkout.path / "history" / "history.sqlite3").is_file()


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
        side: json.loads((path / "results" / f"{side}.json").read_text())["cases"][0]["metrics"][
            "throughput"
        ]
        for side in ("base", "head")
    }
    assert median["head"]["median"] == pytest.approx(median["base"]["median"] / 2, rel=1e-3)


def test_a_night_that_extends_shows_the_change_and_commits_nothing(
    checkout: Checkout, github: dict[str, str]
) -> None:
    checkout.accept()
    checkout.install()
    before = checkout.git("rev-parse", "HEAD")

    codes = checkout.work("github-nightly.yml", {**github, "EXTEND": "yes"})

    assert set(codes.values()) == {0}, checkout.printed
    assert "baselines.diff" in checkout.artefacts("github-nightly.yml")["Upload the results"]
    assert checkout.git("rev-parse", "HEAD") == before
    change = checkout.path / "results" / "baselines.diff"
    assert "+        sessions:" in change.read_text(encoding="utf-8")
    extended = checkout.git("diff")
    checkout.git("checkout", "--quiet", "--", "baselines")
    checkout.git("apply", "--3way", str(change))
    assert checkout.git("diff", "HEAD") == extended


@pytest.mark.parametrize("is_red", [False, True], ids=["a green week", "a red night"])
def test_gitlab_keeps_results_logs_if_red_and_what_the_baselines_would_become(
    checkout: Checkout, *, is_red: bool
) -> None:
    checkout.accept()
    if is_red:
        checkout.tiny.behave(SLOWER)
    extend = {} if is_red else {"EXTEND_BASELINES": "yes"}

    assert checkout.gitlab("nightly", extend) == int(is_red), checkout.printed

    files = checkout.uploads("nightly")
    results = [] if is_red else ["results/baselines.diff"]
    results += ["results/junit.xml", "results/results.html", "results/results.json"]
    assert [name for name in files if name.startswith("results/")] == results
    assert any(name.endswith("mlp_b4_fp32_1.log") for name in files) == is_red
    assert checkout.installed == [".[change-points]"]
    assert (checkout.path / "history" / "history.sqlite3").is_file()
    assert checkout.do("\n".join(gitlab_job("pages")["script"]), {}).returncode == 0
    assert (checkout.path / "public" / "index.html").is_file()


@pytest.mark.parametrize(("kind", "is_red"), [("detached", True), ("merged result", False)])
def test_a_merge_request_is_trained_and_compared_with_its_base(
    checkout: Checkout, kind: str, *, is_red: bool
) -> None:
    path = checkout.path
    origin = path.parent / f"{path.name}-origin.git"
    system = path / "bench_tests" / "systems" / "own.yaml"
    text = system.read_text(encoding="utf-8")
    checkout.git("init", "--quiet")
    # The trainer that a side trains with is its own.
    system.write_text(text.replace(f"{path}/trainer", f"{path}/base/trainer"), encoding="utf-8")
    base = checkout.commit("Base")
    system.write_text(text, encoding="utf-8")
    if is_red:
        checkout.tiny.behave(SLOWER)
    head = checkout.commit("Head")
    checkout.git("clone", "--quiet", "--bare", ".", str(origin))
    # A runner has the head alone.
    shutil.rmtree(path / ".git")
    checkout.git("init", "--quiet")
    checkout.git("remote", "add", "origin", f"file://{origin}")
    checkout.git("fetch", "--quiet", "--depth", "1", "origin", head)
    checkout.git("reset", "--quiet", head)
    detached = {"CI_MERGE_REQUEST_DIFF_BASE_SHA": base}
    result = {"CI_MERGE_REQUEST_DIFF_BASE_SHA": head, "CI_MERGE_REQUEST_TARGET_BRANCH_SHA": base}

    if kind == "merged result":
        # This runner has kept its checkout: Git remembers the folder that GitLab cleans away.
        checkout.git("worktree", "add", "--quiet", "--detach", "base")
        checkout.git("clean", "-ffdx", "--quiet")

    code = checkout.gitlab("merge-request", detached if kind == "detached" else result)

    assert code == int(is_red), checkout.printed
    assert checkout.installed == ["./base[smoke]", ".[smoke]"]
    files = checkout.uploads("merge-request")
    assert [name for name in files if name.startswith("results/")] == [
        f"results/{name}" for name in (
            "base.json", "comparison.html", "comparison.md", "head.html", "head.json", "junit.xml",
        )
    ]  # fmt: skip
    logs = {name.split("/")[1] for name in files if name.endswith("mlp_b4_fp32_1.log")}
    assert logs == ({"base", "head"} if is_red else set())
    assert not (path / "history").exists()
    comparison = (path / "results" / "comparison.md").read_text(encoding="utf-8")
    assert ("| 0.500 |" in comparison) is is_red
    assert "head" in comparison


@pytest.mark.skipif(
    shutil.which("jq") is None and os.environ.get("CI") != "true", reason="needs jq"
)
def test_nights_are_fetched_from_gitlab(checkout: Checkout) -> None:
    script = next(script for name, script in scripts() if "glab" in script and name == "README.md")
    glab = checkout.path / "glab"
    glab.write_text(GLAB, encoding="utf-8")
    glab.chmod(0o755)

    done = checkout.do(script, {"PATH": f"{checkout.path}:{os.environ['PATH']}"})

    assert done.returncode == 0, done.stderr
    fetched = {file.parent.name: file.read_text() for file in checkout.path.glob("nights/*/*.json")}
    assert fetched == {
        "7": "projects/:id/jobs/7/artifacts/results/results.json\n",
        "9": "projects/:id/jobs/9/artifacts/results/results.json\n",
    }


def test_the_slurm_job_is_green_or_red_as_the_night_is(checkout: Checkout, slurm: Slurm) -> None:
    checkout.accept()
    checkout.install()
    script = (EXAMPLES / "slurm-nightly.sh").read_text(encoding="utf-8")

    slurm.batch(script)

    [results] = checkout.path.glob("runs/*.json")
    metrics = [case["metrics"] for case in json.loads(results.read_text())["cases"]]
    assert [of_case["throughput"]["verdict"] for of_case in metrics] == ["pass", "pass"]
    assert results.with_suffix(".xml").is_file()
    assert results.with_suffix(".html").is_file()
    assert results.with_suffix("").is_dir()

    checkout.tiny.behave(SLOWER)
    with pytest.raises(RuntimeError, match="ended with 1"):
        slurm.batch(script)
