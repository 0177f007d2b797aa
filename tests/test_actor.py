"""Who is behind a session: what CIs say, what Git says, and what is left without both."""

from __future__ import annotations

import getpass
import platform
import subprocess
from typing import TYPE_CHECKING

import pytest

from pytest_dlperf.files.actor import LONGEST_NAME, describe_actor

if TYPE_CHECKING:
    from pathlib import Path

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


@pytest.fixture
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository in which Git knows nobody."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "EMAIL"):
        monkeypatch.delenv(name, raising=False)
    git(tmp_path, "init", "-q")
    return tmp_path


def git(folder: Path, *arguments: str) -> None:
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
         f"{'x' * LONGEST_NAME} (GitHub Actions)"),
    ],
)  # fmt: skip
def test_a_ci_says_who_has_started_it(nobody: Path, given: dict[str, str], told: str) -> None:
    assert describe_actor(nobody, given) == told


def test_elsewhere_it_is_who_would_commit(nobody: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_without_git_and_without_a_name_of_the_account_nobody_is_named(
    nobody: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def has_no_name() -> str:
        raise KeyError("getpwuid(): uid not found: 1000710000")

    git(nobody, "config", "user.name", "Ana")
    git(nobody, "config", "user.email", "ana@example.org")
    monkeypatch.setenv("PATH", "/nowhere")
    assert describe_actor(nobody, {}) == f"{getpass.getuser()}@{platform.node()}"
    monkeypatch.setattr("getpass.getuser", has_no_name)
    assert describe_actor(nobody, {}) is None
