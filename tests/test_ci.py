"""What CIs, Git and the machine say of a session: who is behind it, its run, its commit's page."""

import getpass
import platform
import subprocess

import pytest

from pytest_dlperf.files.checkouts import repository_at
from pytest_dlperf.files.ci import ci_run_page
from pytest_dlperf.files.environment import MAX_NAME_LENGTH, describe_actor
from pytest_dlperf.launch.preflight import checkout_here

GITHUB = {
    "GITHUB_ACTIONS": "true",
    "GITHUB_ACTOR": "ana",
    "GITHUB_TRIGGERING_ACTOR": "ana",
    "GITHUB_EVENT_NAME": "workflow_dispatch",
    "GITHUB_RUN_ATTEMPT": "1",
}
NIGHTLY = {**GITHUB, "GITHUB_EVENT_NAME": "schedule"}
GITLAB = {"GITLAB_CI": "true", "GITLAB_USER_LOGIN": "ana", "GITLAB_USER_NAME": "Ana Díaz"}
BUILDKITE = {"BUILDKITE": "true", "BUILDKITE_BUILD_AUTHOR": "Bo", "BUILDKITE_SOURCE": "ui"}
AZURE = {"TF_BUILD": "True", "BUILD_REQUESTEDFOR": "Ana Díaz", "BUILD_REASON": "Manual"}
JENKINS = {"JENKINS_URL": "https://ci.example.org/"}
TIMER = {"BUILD_USER": "Timer Trigger", "BUILD_USER_ID": "timer"}
COMMIT = "1a2b3c4d5e6f"
OWN_GITHUB = {"GITHUB_SERVER_URL": "https://git.example.org:8443"}
OWN_GITLAB = {"CI_SERVER_URL": "https://git.example.org"}


@pytest.fixture
def nobody(tmp_path, monkeypatch):
    """A repository in which Git knows nobody."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "EMAIL"):
        monkeypatch.delenv(name, raising=False)
    git(tmp_path, "init", "-q")
    return tmp_path


def git(folder, *arguments):
    subprocess.run(["git", *arguments], cwd=folder, check=True)  # noqa: S607 - the user's git


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (GITHUB, "ana (GitHub Actions)"),
        ({**GITHUB, "GITHUB_TRIGGERING_ACTOR": "bo"}, "bo (GitHub Actions)"),
        (NIGHTLY, "GitHub Actions, scheduled"),
        # Who runs the night again is somebody.
        ({**NIGHTLY, "GITHUB_RUN_ATTEMPT": "2", "GITHUB_TRIGGERING_ACTOR": "bo"},
         "bo (GitHub Actions)"),
        ({**GITHUB, "GITEA_ACTIONS": "true"}, "ana (Gitea Actions)"),
        ({**NIGHTLY, "GITEA_ACTIONS": "true", "FORGEJO_ACTIONS": "true"},
         "Forgejo Actions, scheduled"),
        (GITLAB, "Ana Díaz (GitLab CI)"),
        ({**GITLAB, "GITLAB_USER_NAME": " "}, "ana (GitLab CI)"),
        ({**GITLAB, "CI_PIPELINE_SOURCE": "schedule"}, "GitLab CI, scheduled"),
        ({**GITLAB, "CI_PIPELINE_SOURCE": "schedule", "CI_JOB_MANUAL": "true"},
         "Ana Díaz (GitLab CI)"),
        (BUILDKITE, "Bo (Buildkite)"),
        ({**BUILDKITE, "BUILDKITE_BUILD_CREATOR": "Ana"}, "Ana (Buildkite)"),
        ({**BUILDKITE, "BUILDKITE_SOURCE": "schedule"}, "Buildkite, scheduled"),
        (AZURE, "Ana Díaz (Azure Pipelines)"),
        ({**AZURE, "BUILD_REASON": "Schedule"}, "Azure Pipelines, scheduled"),
        ({"CIRCLECI": "true", "CIRCLE_USERNAME": "ana"}, "ana (CircleCI)"),
        ({**JENKINS, "BUILD_USER": "Ana Díaz", "BUILD_USER_ID": "ana"}, "Ana Díaz (Jenkins)"),
        ({**JENKINS, **TIMER}, "Jenkins, scheduled"),
        (JENKINS, "Jenkins"),
        # A name has one line, of a length that can be read.
        ({**GITHUB, "GITHUB_TRIGGERING_ACTOR": "a\n::error::<b>\tc"},
         "a ::error::<b> c (GitHub Actions)"),
        ({**GITHUB, "GITHUB_TRIGGERING_ACTOR": "x" * 10_000},
         f"{'x' * MAX_NAME_LENGTH} (GitHub Actions)"),
    ],
)  # fmt: skip
def test_a_ci_says_who_has_started_it(nobody, given, told):
    assert describe_actor(nobody, given) == told


def test_elsewhere_it_is_who_would_commit(nobody, monkeypatch):
    assert describe_actor(nobody, {}) == f"{getpass.getuser()}@{platform.node()}"

    git(nobody, "config", "user.name", "Ana\n <Díaz> ")
    git(nobody, "config", "user.email", "ana@example.org")
    assert describe_actor(nobody, {}) == "Ana Díaz <ana@example.org>"
    # A CI that names nobody may still have set it.
    assert describe_actor(nobody, JENKINS) == "Ana Díaz <ana@example.org>"

    # Where many share an account, each says so for a command, as for a commit.
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Bo")
    monkeypatch.setenv("GIT_AUTHOR_EMAIL", "bo@example.org")
    assert describe_actor(nobody, {}) == "Bo <bo@example.org>"


def test_without_git_and_without_a_name_of_the_account_nobody_is_named(nobody, monkeypatch):
    def has_no_name():
        raise KeyError("getpwuid(): uid not found: 1000710000")

    git(nobody, "config", "user.name", "Ana")
    git(nobody, "config", "user.email", "ana@example.org")
    monkeypatch.setenv("PATH", "/nowhere")
    assert describe_actor(nobody, {}) == f"{getpass.getuser()}@{platform.node()}"
    monkeypatch.setattr("getpass.getuser", has_no_name)
    assert describe_actor(nobody, {}) is None


@pytest.mark.parametrize(
    ("given", "page"),
    [
        (
            {
                **GITHUB,
                "GITHUB_SERVER_URL": "https://git.example.org",
                "GITHUB_REPOSITORY": "lab/bench",
                "GITHUB_RUN_ID": "7",
            },
            "https://git.example.org/lab/bench/actions/runs/7",
        ),
        ({**GITHUB, "GITHUB_SERVER_URL": "https://github.com"}, None),
        ({**GITLAB, "CI_JOB_URL": "https://ci/jobs/7"}, "https://ci/jobs/7"),
        ({**JENKINS, "BUILD_URL": "https://ci/job/n/7/"}, "https://ci/job/n/7/"),
        ({**BUILDKITE, "BUILDKITE_BUILD_URL": "https://b/7"}, "https://b/7"),
        (AZURE, None),
        ({"BUILD_URL": "https://ci/job/n/7/"}, None),
    ],
)
def test_a_run_has_a_page_where_its_ci_tells_it(given, page):
    assert ci_run_page(given) == page


@pytest.mark.parametrize(
    ("remote", "environment", "page"),
    [
        ("https://github.com/lab/bench.git", {}, "https://github.com/lab/bench/commit/"),
        ("git@github.com:lab/bench.git", {}, "https://github.com/lab/bench/commit/"),
        (
            "ssh://git@gitlab.com:22/lab/team/bench",
            {},
            "https://gitlab.com/lab/team/bench/-/commit/",
        ),
        (
            "https://robot:secret@git.example.org/lab/bench.git",
            OWN_GITLAB,
            "https://git.example.org/lab/bench/-/commit/",
        ),
        (
            "git@git.example.org:lab/bench",
            OWN_GITHUB,
            "https://git.example.org:8443/lab/bench/commit/",
        ),
        ("git@git.example.org:lab/bench", {}, None),
        ("/srv/git/bench.git", OWN_GITLAB, None),
        ("", OWN_GITLAB, None),
    ],
)
def test_a_commit_has_a_page_where_its_forge_is_known(remote, environment, page):
    repository = repository_at(remote, environment)
    assert (repository and repository.commit(COMMIT)) == (f"{page}{COMMIT}" if page else None)


def test_a_checkout_names_the_files_that_differ(nobody):
    """Files that Git does not track are none: they may be logs of this very session."""
    assert checkout_here(nobody)[0] is None
    for number in range(5):
        (nobody / f"own {number}.yaml").write_text(f"{number}", encoding="utf-8")
    git(nobody, "add", ".")
    git(nobody, "-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "-qm", "x")
    (nobody / "run.log").touch()
    commit, found = checkout_here(nobody)
    assert commit is not None
    assert len(commit) == len(COMMIT)
    assert (found.folder, found.name) == (str(nobody), nobody.name)
    git(nobody, "mv", "own 0.yaml", "new.yaml")
    assert checkout_here(nobody)[0] == f"{commit}+new.yaml"
    for number in range(1, 5):
        (nobody / f"own {number}.yaml").write_text("mine", encoding="utf-8")
    assert checkout_here(nobody)[0] == f"{commit}+new.yaml, own 1.yaml, own 2.yaml and 2 more"
