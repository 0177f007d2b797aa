"""The examples are what they say: their commands run, and write what is uploaded."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from clusters.processes import wait_until
from notice_servers import Forge, web_server
from noticed_sessions import red
from trainers import SYSTEM, TinySystem

from pytest_dlperf.results.file import write_json

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
COMMENT, WATCH = "github-pull-request-comment.yml", "github-watch.yml"
BISECT = "github-bisect.yml"
GITHUB = ("github-nightly.yml", "github-pull-request.yml", COMMENT, WATCH, BISECT)
PIPELINES = (*GITHUB, "gitlab-ci.yml")
SCRIPTS = ("slurm-nightly.sh",)
REPORTS = ("report_mlflow.py", "report_wandb.py")
PLUGINS = ("ray_launcher.py", *REPORTS)
BASH = shutil.which("bash") or "bash"
TIMEOUT = shutil.which("timeout") or "timeout"

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
if [ "$1 $2 $3" = "-m pip install" ]; then shift 4; echo "$*" >>{noted}; exit; fi
exec {python} "$@"
END
chmod +x "$3"/bin/*
"""
GH = """#!/bin/sh
# GitHub's program: what it is asked to write it notes, and what it lists is in a file of that name.
# It has the pull requests of one commit, and knows no other.
case "$1 $2" in
*" list") cat "{folder}/$1.json" ;;
"api "*/0123456789ab/*) jq -r "$4" "{folder}/pulls.json" ;;
"api "*) exit 1 ;;
*) echo "$@" >>"{folder}/gh.txt" ;;
esac
"""
SIDES = ("base", "head")
TRAINED = """\
framework: pytorch
model: resnet18
unit: images/s
log: {name: r18, format: dlperf}
window: {warmup_steps: 1, measured_steps: 4}
repeats: 1
tolerance_percent: 15
launch:
  devices: cpu
  command: ["{python}", trainer/train.py, --image-size=33,
    "--batch-per-device={batch_per_device}", "--warmup-steps={warmup_steps}",
    "--measured-steps={measured_steps}"]
cases:
  - {precision: fp32, batch_per_device: 2, topologies: [1n1g]}
"""
TRAIN = """\
import sys, time
from torch.optim.optimizer import register_optimizer_step_post_hook
from pytest_dlperf.trainers.resnet import main
register_optimizer_step_post_hook(lambda *_: time.sleep({delay_ms} / 1000))
main(sys.argv[1:])
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


def load(name):
    return yaml.safe_load((EXAMPLES / name).read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A part of a job that a shell runs, or that an action does."""

    name: str
    script: str = ""
    uses: str = ""
    given: Mapping[str, Any] = field(default_factory=dict)
    folder: str = "."
    condition: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


def github_jobs(name):
    return {
        job_name: [
            Step(
                name=step.get("name", ""),
                script=step.get("run", ""),
                uses=step.get("uses", ""),
                given=step.get("with", {}),
                folder=step.get("working-directory", "."),
                condition=step.get("if", ""),
                environment={
                    name: str(value)
                    for name, value in step.get("env", {}).items()
                    if "${{" not in str(value)
                },
            )
            for step in job["steps"]
        ]
        for job_name, job in load(name)["jobs"].items()
    }


def gitlab_job(name):
    """A job with what it takes from the one it extends."""
    document = load("gitlab-ci.yml")
    job = document[name]
    return merged(document[job["extends"]], job) if "extends" in job else job


def merged(below, above):
    """What GitLab makes of ``extends``: tables are merged, all else is replaced."""
    both = dict(below)
    for key, value in above.items():
        is_table = isinstance(value, dict) and isinstance(below.get(key), dict)
        both[key] = merged(below[key], value) if is_table else value
    return both


def scripts():
    """Every script in the examples, with its file."""
    for name in GITHUB:
        for steps in github_jobs(name).values():
            yield from ((name, step.script) for step in steps if step.script)
    for job in load("gitlab-ci.yml").values():
        if isinstance(job, dict):
            for part in ("before_script", "script", "after_script"):
                yield from (("gitlab-ci.yml", line) for line in job.get(part, ()))
    for name in SCRIPTS:
        yield name, (EXAMPLES / name).read_text(encoding="utf-8")
    for block in re.findall(r"```sh\n(.*?)```", (EXAMPLES / "README.md").read_text(), re.DOTALL):
        yield "README.md", block


def commands(program):
    """The arguments of every call of a program in the examples, each with its file."""
    found = []
    for name, script in scripts():
        for line in script.replace("\\\n", " ").replace("|\n", "| ").splitlines():
            if program not in line:
                continue
            words = shlex.split(line.replace(")", " "), comments=True)
            places = [at for at, word in enumerate(words) if word.rpartition("/")[2] == program]
            # In "timeout … .venv/bin/pytest" as in "exec .venv/bin/pytest": what comes behind it.
            found += [(name, words[at + 1 :]) for at in places[:1] if not is_named_only(words)]
    return found


def is_named_only(words):
    return "pip" in words


# --------------------------------------------------------------------- what stands in them


def test_every_example_is_listed_with_what_to_change():
    listed = re.findall(
        r"^\| \[`([^`]+)`\]\(\1\)", (EXAMPLES / "README.md").read_text(), re.MULTILINE
    )

    assert sorted(listed) == sorted((*PIPELINES, *SCRIPTS, *PLUGINS))
    assert sorted(file.name for file in EXAMPLES.iterdir() if file.is_file()) == sorted(
        (*listed, "README.md")
    )


@pytest.mark.ci
def test_every_option_that_they_give_exists(suite):
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
def test_a_workflow_of_github_is_whole_and_takes_no_more_than_it_needs(name):
    document = load(name)
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    # YAML 1.1 takes the word "on" for true.
    assert ("workflow_dispatch" in document[True]) is (name not in (COMMENT, BISECT))
    writes = {
        COMMENT: {"actions": "read", "pull-requests": "write"},
        WATCH: {"actions": "read", "issues": "write"},
        "tell": {"actions": "read", "issues": "write", "pull-requests": "write"},
    }
    reads = {"bisect": {"contents": "read", "actions": "read"}}
    assert document["permissions"] == ({} if name in writes else {"contents": "read"})
    assert document["concurrency"]["group"].startswith("dlperf-")
    with_secrets = []
    named = re.compile(r"\$\{\{[^}]*secrets")
    for who, job in document["jobs"].items():
        own = writes.get(who, writes.get(name))
        assert job.get("permissions") == (own or reads.get(who))
        assert "concurrency" not in job
        assert "runs-on" in job
        assert 0 < job["timeout-minutes"] <= 720
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step), step
            if step.get("uses", "").startswith("actions/checkout@"):
                assert own is None, "what may write runs no code of others"
                assert step["with"]["persist-credentials"] is False
            # What others may choose, as the name of a branch, would be run as part of a script.
            assert "${{" not in step.get("run", "")
        # What trains runs the code of a branch: the step that tells of it has secrets of its own.
        with_secrets += [step["name"] for step in job["steps"] if named.search(str(step))]
    assert len(named.findall(text)) == len(with_secrets)
    assert with_secrets == (["Tell the team"] if name == GITHUB[0] else [])


def test_actions_are_pinned_one_commit_each_with_its_version():
    text = "".join((EXAMPLES / name).read_text(encoding="utf-8") for name in GITHUB)
    uses = re.findall(r"uses: (.*)", text)
    pinned = [
        re.fullmatch(r"(actions/[a-z-]+)(?:/[a-z]+)?@([0-9a-f]{40} # v[\d.]+)", one) for one in uses
    ]

    assert None not in pinned
    commits = {pin[1]: pin[2] for pin in pinned if pin is not None}
    assert {(pin[1], pin[2]) for pin in pinned if pin is not None} == set(commits.items())
    assert len(commits) == 4


def test_the_nightly_gate_comes_by_itself_one_at_a_time_and_is_strict():
    document = load("github-nightly.yml")

    nights = [schedule["cron"] for schedule in document[True]["schedule"]]
    assert all(re.fullmatch(r"[0-5]?[0-9] [0-9]+ \* \* [0-9-]+", night) for night in nights)
    assert [night.split()[-1] for night in nights] == ["1-6", "0"]
    assert document["concurrency"]["cancel-in-progress"] is False
    for name in ("github-nightly.yml", "gitlab-ci.yml", *SCRIPTS):
        gate = next(words for file, words in commands("pytest") if file == name)
        assert gate[:3] == ["bench_tests", "-n", "auto"]
        assert {"--dlperf-strict", "--dlperf-json", "--dlperf-html", "--junitxml"} <= set(gate)


WAITS = """\
import pathlib, subprocess, sys, time

TRAINER = '''
import pathlib, signal, time
signal.signal(signal.SIGINT, lambda *_: pathlib.Path("told.txt").touch())
pathlib.Path("ready.txt").touch()
time.sleep(60)
'''

def test_waits():
    with subprocess.Popen([sys.executable, "-c", TRAINER]) as trainer:
        try:
            time.sleep(60)
        finally:
            time.sleep(0.5)
            trainer.kill()
"""


@pytest.mark.parametrize("name", ["github-nightly.yml", "gitlab-ci.yml"])
def test_the_limit_of_a_nightly_gate_interrupts_the_session_alone(suite, name):
    """What timeout sends to all processes, the session is sent twice, and its workers too."""
    [limit] = [
        re.search(r"timeout ([^\n]*) 11h", script)
        for file, script in scripts()
        if file == name and "timeout" in script
    ]
    (suite.path / "test_waits.py").write_text(WAITS, encoding="utf-8")
    with subprocess.Popen(
        [TIMEOUT, *limit[1].split(), "60", sys.executable, "-m", "pytest", "test_waits.py"],
        cwd=suite.path,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as session:
        wait_until((suite.path / "ready.txt").exists, what="the session")
        session.send_signal(signal.SIGALRM)  # as if the time was up
        output, _ = session.communicate()
    assert "KeyboardInterrupt" in output
    assert session.returncode == 124
    assert not (suite.path / "told.txt").exists()


def test_baselines_are_extended_in_one_night_of_the_week_or_by_hand():
    triggers = load("github-nightly.yml")[True]
    steps = load("github-nightly.yml")["jobs"]["gate"]["steps"]
    [gate] = [step for step in steps if step.get("name") == "Gate"]

    [asked] = triggers["workflow_dispatch"]["inputs"]
    weekly = triggers["schedule"][1]["cron"]
    assert f"github.event.schedule == '{weekly}' || inputs.{asked}" in gate["env"]["EXTEND"]
    assert load("gitlab-ci.yml")["variables"]["EXTEND_BASELINES"]["value"] == ""
    for text in ("github-nightly.yml", "gitlab-ci.yml"):
        assert "git push" not in (EXAMPLES / text).read_text(encoding="utf-8")


def test_the_history_is_kept_of_red_nights_too_and_under_a_key_of_its_own():
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


def test_a_pull_request_gets_no_secrets_and_runs_when_somebody_says_so():
    triggers = load("github-pull-request.yml")[True]

    assert set(triggers) == {"pull_request", "workflow_dispatch"}
    assert triggers["pull_request"]["types"] == ["labeled"]
    [job] = load("github-pull-request.yml")["jobs"].values()
    assert "github.event.label.name == 'performance'" in job["if"]
    # Another label's run, which skips the job, must not cut off a comparison.
    group = load("github-pull-request.yml")["concurrency"]["group"]
    assert "${{ github.event.label.name }}" in group
    assert job["runs-on"] == "ubuntu-latest"  # a machine of one's own needs a condition more


def test_gitlab_shows_the_tests_and_the_page_also_of_red_jobs():
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


def test_a_comment_belongs_to_the_workflow_that_it_tells_of():
    assert load(COMMENT)[True]["workflow_run"]["workflows"] == [load(GITHUB[1])["name"]]
    [upload] = [step for step in github_jobs(GITHUB[1])["compare"] if "upload" in step.uses]
    [download] = [step for step in github_jobs(COMMENT)["comment"] if "download" in step.uses]
    assert upload.given["name"] == download.given["name"]
    assert load(WATCH)["jobs"]["watch"]["steps"][0]["env"]["NIGHTLY"] == load(GITHUB[0])["name"]


def test_every_script_is_a_shell_s():
    checks = [[BASH, "-n"]]
    if shutil.which("shellcheck"):
        # The lines of a GitLab job are one shell's, but stand here one by one: a variable may be
        # set in one and used in another.
        checks.append(["shellcheck", "--shell=bash", "--exclude=SC2034,SC2154", "-"])
    for name, script in scripts():
        for check in checks:
            done = subprocess.run(check, input=script, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"


# -------------------------------------------------------------------------- they are run


class Checkout:
    """A repository with a tiny system alone, accepted on ``my-cluster`` and on this machine."""

    def __init__(self, suite):
        self.suite = suite
        systems = suite.path / "bench_tests" / "systems"
        shutil.rmtree(systems)
        systems.mkdir()
        self.tiny = TinySystem(suite, topologies=["1n1g", "1n2g"])
        self.path = suite.path
        self.programs = suite.path.parent / f"{suite.path.name}-programs"
        own = systems / "own.yaml"
        own.write_text("marks: [smoke]\n" + own.read_text(encoding="utf-8"), encoding="utf-8")
        shutil.rmtree(suite.path / "baselines")
        (suite.path / "baselines").mkdir()

    def accept(self):
        """Accept how fast it is as the numbers of ``my-cluster``."""
        folder = self.path / "baselines" / "my-cluster"
        folder.mkdir()
        cluster = f"estimator: steady\nsystems: [{SYSTEM}]\n"
        (folder / "cluster.yaml").write_text(cluster, encoding="utf-8")
        (folder / f"{SYSTEM}.yaml").write_text(ACCEPTED, encoding="utf-8")
        self.git("init", "--quiet")
        self.commit("Accept")

    def git(self, *words):
        """Call Git in the checkout, as somebody."""
        who = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.org")
        return subprocess.run(
            ["git", *who, *words],  # noqa: S607 - Git is where the machine has it
            cwd=self.path, capture_output=True, text=True, check=True,
        ).stdout.strip()  # fmt: skip

    def commit(self, why):
        """Commit what is there; give the commit."""
        self.git("add", "bench_tests", "trainer", "baselines", "tox.ini")
        self.git("commit", "--quiet", "--allow-empty", "--message", why)
        return self.git("rev-parse", "HEAD")

    def start_in_the_checkout(self):
        """Have the system file name the training's script as that of a repository does."""
        own = self.path / "bench_tests" / "systems" / "own.yaml"
        text = own.read_text(encoding="utf-8").replace(f"{self.path}/trainer", "trainer")
        own.write_text(text, encoding="utf-8")

    def commits(self, change):
        """Commit what is there, make a change, and commit that too."""
        self.git("init", "--quiet")
        base = self.commit("Base")
        change()
        return base, self.commit("Head")

    def sides(self, change):
        """Check out the base of a change and its head, as a workflow's first steps do."""
        for side, commit in zip(SIDES, self.commits(change), strict=True):
            self.git("worktree", "add", "--quiet", "--detach", side, commit)

    def fetch_only(self, head):
        """Leave a runner's checkout: the head alone, with all else where it was fetched from."""
        origin = self.path.parent / f"{self.path.name}-origin.git"
        self.git("clone", "--quiet", "--bare", ".", str(origin))
        shutil.rmtree(self.path / ".git")
        self.git("init", "--quiet")
        self.git("remote", "add", "origin", f"file://{origin}")
        self.git("fetch", "--quiet", "--depth", "1", "origin", head)
        self.git("reset", "--quiet", head)

    def with_gh(self, **lists):
        """Have GitHub's program, with what it lists."""
        assert self.path_to_programs
        self.program("gh", GH.format(folder=self.programs))
        for name, listed in {"issue": [], **lists}.items():
            (self.programs / f"{name}.json").write_text(json.dumps(listed), encoding="utf-8")

    def gh(self):
        """What GitHub's program was asked to write."""
        noted = self.programs / "gh.txt"
        return noted.read_text(encoding="utf-8").splitlines() if noted.exists() else []

    def install(self, folder="."):
        """Do what installing does: have both programs in an environment of the checkout."""
        programs = self.path / folder / ".venv" / "bin"
        programs.mkdir(parents=True)
        starts = {"python": "", "pytest": "-m pytest", "pytest-dlperf": f"-c {shlex.quote(MAIN)}"}
        for name, start in starts.items():
            program = programs / name
            program.write_text(f'#!/bin/sh\nexec {sys.executable} {start} "$@"\n', encoding="utf-8")
            program.chmod(0o755)

    def do(self, script, environment, folder="."):
        """Run a script as a CI does."""
        return subprocess.run(
            [BASH, "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script],
            cwd=self.path / folder,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    @property
    def path_to_programs(self):
        """A PATH whose ``python3 -m venv`` makes environments with our programs.

        Their pip notes what it was to install.
        """
        if not self.programs.exists():
            self.programs.mkdir()
            self.program(
                "python3",
                PYTHON3.format(
                    python=shlex.quote(sys.executable),
                    start=shlex.quote(MAIN),
                    noted=shlex.quote(str(self.programs / "installed.txt")),
                ),
            )
        return f"{self.programs}:{os.environ['PATH']}"

    def program(self, name, script):
        """Put one more program where the scripts find it."""
        (self.programs / name).write_text(script, encoding="utf-8")
        (self.programs / name).chmod(0o755)

    @property
    def installed(self):
        return (self.programs / "installed.txt").read_text(encoding="utf-8").splitlines()

    def work(self, name, environment):
        """Run the steps of a workflow as GitHub does; give the exit code of each that ran."""
        codes = {}
        given = {**load(name).get("env", {}), **environment, "PATH": self.path_to_programs}
        [steps] = github_jobs(name).values()
        self.printed = ""
        for step in steps:
            is_red = any(codes.values())
            if not step.script or (is_red and not step.condition):
                continue
            done = self.do(step.script, {**step.environment, **given}, step.folder)
            codes[step.name] = done.returncode
            self.printed += done.stdout + done.stderr
        return codes

    def gitlab(self, name, environment):
        """Run a job as GitLab does: one shell for it, one for what comes after. Give its code."""
        job = gitlab_job(name)
        variables = {**load("gitlab-ci.yml")["variables"], **job.get("variables", {})}
        given = {
            key: value["value"] if isinstance(value, dict) else str(value)
            for key, value in variables.items()
        }
        given |= {"PATH": self.path_to_programs, **environment}
        done = self.do("\n".join((*job["before_script"], *job["script"])), given)
        self.printed = done.stdout + done.stderr
        status = {"CI_JOB_STATUS": "failed" if done.returncode else "success"}
        assert self.do("\n".join(job["after_script"]), {**given, **status}).returncode == 0
        return done.returncode

    def uploads(self, name):
        """The files in the archive that GitLab makes of a job."""
        return sorted(
            str(file.relative_to(self.path))
            for folder in gitlab_job(name)["artifacts"]["paths"]
            for file in (self.path / folder).rglob("*")
            if file.is_file()
        )

    def artefacts(self, name):
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
def checkout(suite):
    return Checkout(suite)


@pytest.fixture
def github(suite):
    """What GitHub sets for a step."""
    summary = suite.path / "summary.md"
    return {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary)}


def test_a_green_night_on_github_leaves_what_its_history_is_made_of_again(checkout, github):
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
        if name == "README.md" and words[:2] == ["history", "import"]
    ]
    done = checkout.do(shlex.join([".venv/bin/pytest-dlperf", *words]), {})
    assert done.returncode == 0, done.stderr
    assert "1 session imported" in done.stdout
    assert (checkout.path / "history" / "history.sqlite3").is_file()


def test_a_red_night_on_github_uploads_results_and_logs(checkout, github):
    checkout.accept()
    checkout.install()
    checkout.tiny.behave(SLOWER)

    with web_server() as web:
        hook = {"SLACK_WEBHOOK": f"{web.url}/x".replace("http", "json")}
        codes = checkout.work("github-nightly.yml", {**github, **hook})

    assert codes["Gate"] == 1, checkout.printed
    assert codes["Tell the team"] == 0, checkout.printed
    assert "got slower" in web.asked[0].json["title"]
    files = checkout.artefacts("github-nightly.yml")
    assert files["Upload the results"] == ["junit.xml", "results.html", "results.json"]
    assert any(
        name.endswith("mlp_b4_fp32_1.log") for name in files["Upload the logs of a red night"]
    )
    assert "regressed" in Path(github["GITHUB_STEP_SUMMARY"]).read_text(encoding="utf-8")
    assert "::error" in checkout.printed


@pytest.mark.nightly
def test_a_night_with_a_case_that_cannot_run_is_red(checkout, github):
    checkout.accept()
    checkout.install()
    (checkout.path / "trainer" / "train.py").unlink()

    assert checkout.work("github-nightly.yml", github)["Gate"] == 1


@pytest.mark.nightly
@pytest.mark.alone
@pytest.mark.minutes(2)
@pytest.mark.training
def test_a_pull_request_that_costs_half_of_the_speed_is_red(checkout, github):
    """Trained for real: base and head differ in how long a step waits for its data.

    So long that what a busy machine adds to a step is little.
    """
    path = checkout.path
    (path / "bench_tests" / "systems" / "own.yaml").write_text(TRAINED, encoding="utf-8")
    train = path / "trainer" / "train.py"
    train.write_text(TRAIN.format(delay_ms=400), encoding="utf-8")
    checkout.sides(lambda: train.write_text(TRAIN.format(delay_ms=1200), encoding="utf-8"))

    codes = checkout.work("github-pull-request.yml", github)

    head = "Train the head, and the base beside it"
    assert codes.pop(head) == 1, checkout.printed
    assert set(codes.values()) == {0}
    files = checkout.artefacts("github-pull-request.yml")["Upload the results"]
    assert files == ["base.json", "head.html", "head.json", "junit.xml"]
    [case] = json.loads((path / "results" / "head.json").read_text(encoding="utf-8"))["cases"]
    assert case["metrics"]["throughput"]["verdict"] == "regressed"
    assert "confirmed by the control arm" in case["metrics"]["throughput"]["reason"]
    assert len(case["interleaved"]["control"]["runs"]) >= 4
    summary = Path(github["GITHUB_STEP_SUMMARY"]).read_text(encoding="utf-8")
    assert "interleaved, the candidate is" in summary


@pytest.mark.nightly
def test_a_pull_request_that_costs_nothing_is_green(checkout, github):
    checkout.start_in_the_checkout()
    checkout.sides(lambda: None)

    codes = checkout.work("github-pull-request.yml", github)

    assert set(codes.values()) == {0}, checkout.printed
    assert checkout.installed == [f"pytest-dlperf -r {side}/requirements.txt" for side in SIDES]
    [case] = json.loads((checkout.path / "results" / "head.json").read_text())["cases"]
    assert case["metrics"]["throughput"]["verdict"] == "pass"


@pytest.mark.nightly
def test_its_comment_goes_to_the_pull_request_of_that_commit(checkout, github):
    path = checkout.path
    run = {"head_branch": "b", "head_sha": "b" * 40, "head_repository": {"owner": {"login": "f"}}}
    (path / "event.json").write_text(json.dumps({"workflow_run": run}), encoding="utf-8")
    with web_server() as web:
        forge = Forge(web)
        forge.pulls = [{"number": n, "head": {"sha": sha * 40}} for n, sha in ((7, "a"), (8, "b"))]
        given = {
            **github,
            "GITHUB_API_URL": web.url,
            "GITHUB_REPOSITORY": "acme/widgets",
            "GITHUB_REF": "refs/heads/main",
            "GITHUB_EVENT_PATH": str(path / "event.json"),
            "GITHUB_TOKEN": "t",
            "RUN": "https://example.org/run/1",
        }
        assert checkout.work(COMMENT, given) == {"Install": 0, "Comment": 0}
        assert web.asked == []  # a job that broke before it measured has nothing to tell

        (path / "results").mkdir()
        write_json(path / "results" / "head.json", red())
        for _ in range(2):
            codes = checkout.work(COMMENT, given)
            assert codes == {"Install": 0, "Comment": 0}, checkout.printed
    [comment] = forge.comments
    assert "/issues/8/comments" in next(a.path for a in web.asked if b'"body"' in a.body)
    assert "regressed" in comment["body"]
    assert "(https://example.org/run/1)" in comment["body"]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("hours", "conclusion", "is_told", "told"),
    [
        (10, "success", False, []),
        (10, "success", True, ["issue close 3 --comment The last night is green."]),
        (10, "failure", False, ["issue create", "The night is red (failure): https://a/1"]),
        (10, "failure", True, ["issue comment 3 --body The night is red (failure): https://a/1"]),
        (30, "success", False, ["issue create", "No night since 20"]),
        (10, None, False, ["issue create", "The night has not ended: https://a/1"]),
        (None, None, False, ["issue create", "No night has come yet."]),
    ],
)
def test_a_night_that_is_red_or_did_not_come_is_told(  # noqa: PLR0913 - a table of nights
    checkout,
    github,
    *,
    hours,
    conclusion,
    is_told,
    told,
):
    began = datetime.now(UTC) - timedelta(hours=hours or 0)
    night = {
        "conclusion": conclusion or "",
        "status": "completed" if conclusion else "in_progress",
        "url": "https://a/1",
        "createdAt": f"{began:%Y-%m-%dT%H:%M:%SZ}",
    }
    checkout.with_gh(run=[] if hours is None else [night], issue=[{"number": 3}] * is_told)

    assert checkout.work(WATCH, github) == {"Look at the last night": 0}, checkout.printed

    done = [line for line in checkout.gh() if not line.startswith("label create dlperf-night ")]
    assert len(done) == bool(told)
    assert all(words in line for words in told for line in done)


@pytest.mark.nightly
def test_a_night_that_extends_shows_the_change_and_commits_nothing(checkout, github):
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


@pytest.mark.nightly
@pytest.mark.parametrize("is_red", [False, True], ids=["a green week", "a red night"])
def test_gitlab_keeps_results_logs_if_red_and_what_the_baselines_would_become(checkout, *, is_red):
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
    assert checkout.installed == ["pytest-dlperf[notify] -r requirements.txt"]
    assert (checkout.path / "history" / "history.sqlite3").is_file()
    assert checkout.do("\n".join(gitlab_job("pages")["script"]), {}).returncode == 0
    assert (checkout.path / "public" / "index.html").is_file()


@pytest.mark.nightly
@pytest.mark.parametrize(("kind", "is_red"), [("detached", True), ("merged result", False)])
def test_a_merge_request_is_trained_in_turn_with_its_base(checkout, kind, *, is_red):
    path = checkout.path
    checkout.start_in_the_checkout()
    base, head = checkout.commits(lambda: checkout.tiny.behave(SLOWER) if is_red else None)
    checkout.fetch_only(head)
    detached = {"CI_MERGE_REQUEST_DIFF_BASE_SHA": base}
    result = {"CI_MERGE_REQUEST_DIFF_BASE_SHA": head, "CI_MERGE_REQUEST_TARGET_BRANCH_SHA": base}

    if kind == "merged result":
        # This runner has kept its checkout: Git remembers the folder that GitLab cleans away.
        checkout.git("worktree", "add", "--quiet", "--detach", "base")
        checkout.git("clean", "-ffdx", "--quiet")

    code = checkout.gitlab("merge-request", detached if kind == "detached" else result)

    assert code == int(is_red), checkout.printed
    assert checkout.installed == [
        "pytest-dlperf -r base/requirements.txt", "pytest-dlperf -r requirements.txt",
    ]  # fmt: skip
    files = checkout.uploads("merge-request")
    assert [name for name in files if name.startswith("results/")] == [
        f"results/{name}" for name in (
            "base.json", "head.html", "head.json", "head.md", "junit.xml",
        )
    ]  # fmt: skip
    logs = {name.split("/")[1] for name in files if name.endswith("mlp_b4_fp32_1.log")}
    assert logs == ({"base", "head"} if is_red else set())
    assert not (path / "history").exists()
    seen = "interleaved, the candidate is 50.0 % worse"
    assert (seen in (path / "results" / "head.md").read_text(encoding="utf-8")) is is_red


@pytest.mark.nightly
@pytest.mark.skipif(
    shutil.which("jq") is None and os.environ.get("CI") != "true", reason="needs jq"
)
def test_each_number_that_got_worse_is_asked_about_the_worst_first(tmp_path):
    steps = load(BISECT)["jobs"]["bisect"]["steps"]
    script = next(step["run"] for step in steps if step.get("name") == "Search what differs")
    red, green = {"verdict": "regressed"}, {"verdict": "pass", "difference_percent": -0.1}
    cases = [
        {"id": "a", "metrics": {"throughput": {**red, "difference_percent": -4.0}, "mfu": green}},
        {"id": "b", "metrics": {"peak_memory": {**red, "difference_percent": 9.0}}},
        {"id": "c", "metrics": {}},
    ]
    results = tmp_path / "night" / "dlperf-nightly-1" / "results.json"
    results.parent.mkdir(parents=True)
    results.write_text(json.dumps({"cases": cases}), encoding="utf-8")
    command = tmp_path / ".venv" / "bin" / "pytest-dlperf"
    command.parent.mkdir(parents=True)
    command.write_text('#!/bin/sh\necho "$@" >>asked\nexit 1\n', encoding="utf-8")
    command.chmod(0o755)

    shell = ["bash", "-eo", "pipefail", "-c", script]
    subprocess.run(shell, cwd=tmp_path, check=True)

    asked = (tmp_path / "asked").read_text(encoding="utf-8").splitlines()
    assert [line.split()[2:5] for line in asked] == [
        ["b", "--metric", "peak_memory"], ["a", "--metric", "throughput"],
    ]  # fmt: skip


@pytest.mark.nightly
@pytest.mark.skipif(
    shutil.which("jq") is None and os.environ.get("CI") != "true", reason="needs jq"
)
@pytest.mark.parametrize("commit", ["0123456789ab", "ffffffffffff", None])
def test_what_was_found_stands_in_the_night_s_issue_and_in_the_pull_request(checkout, commit):
    """A commit may be of another repository, and where none was found there is none to comment."""
    environment = {"PATH": checkout.path_to_programs, "GH_REPO": "a/b", "RUN": "1"}
    checkout.with_gh(issue=[{"number": 3}], pulls=[{"number": 7}])
    found = checkout.path / "found" / "dlperf-bisect-1-1" / "a.md"
    found.parent.mkdir(parents=True)
    fact = "- suspects: x (60 %)" if commit is None else f"- commit {commit}: Wait (Ana)"
    found.write_text(f"**a** found\n\n{fact}\n", encoding="utf-8")
    [step] = load(BISECT)["jobs"]["tell"]["steps"]

    done = checkout.do(step["run"], environment)

    assert done.returncode == 0, done.stderr
    comments = [line for line in checkout.gh() if " comment " in line]
    body = "--body-file comment.md"
    is_pull = [f"pr comment 7 {body}"] * (commit == "0123456789ab")
    assert comments == [f"issue comment 3 {body}", *is_pull]
    assert fact in (checkout.path / "comment.md").read_text(encoding="utf-8")


def test_the_slurm_job_is_green_or_red_as_the_night_is(checkout, slurm):
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


@pytest.mark.nightly
def test_jobs_for_one_topology_each_are_one_history(checkout, slurm, command):
    checkout.accept()
    checkout.install()
    script = (EXAMPLES / "slurm-nightly.sh").read_text(encoding="utf-8")
    for topology in ("1n1g", "1n2g"):
        slurm.batch(script, nodes=1, words=("-k", topology))

    nights = (checkout.path / "runs").glob("*.json")
    imported = command("history", "import", *nights, "--history", "all.sqlite3")
    shown = command("history", "show", "--cluster", "my-cluster", "--history", "all.sqlite3")

    assert (imported.ret, shown.ret) == (0, 0)
    for topology in ("1n1g", "1n2g"):
        shown.stdout.fnmatch_lines([f"*{topology}*"])


@pytest.mark.nightly
def test_a_job_that_slurm_requeues_begins_anew(checkout, slurm):
    checkout.accept()
    checkout.install()
    checkout.tiny.behave("0.01 wait")
    job = slurm.submit((EXAMPLES / "slurm-nightly.sh").read_text(encoding="utf-8"))
    wait_until(checkout.tiny.starts, what="the first training")

    slurm.requeue(job)
    (checkout.path / "trainer" / "go").touch()
    slurm.end_of(job)

    runs = checkout.path / "runs"
    assert {file.name for file in runs.glob("*.json")} == {f"{job}.json"}
    folders = {folder.name for folder in runs.iterdir() if folder.is_dir()}
    assert folders == {str(job), f"{job}.interrupted1"}
