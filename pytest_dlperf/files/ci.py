"""What CI engines tell a job by variables: one table, a row per engine."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.files.masking import in_message

_VARIABLE: Final = re.compile(r"\{(\w+)\}")


class Engine(Struct, frozen=True, kw_only=True):
    """A CI engine, by names of variables that it sets for a job."""

    name: str
    mark: str
    """Set for its jobs; of several engines the first in the table counts."""
    actors: tuple[str, ...]
    """Who started the job: the first that is set."""
    scheduled: Mapping[str, str] = {}
    """Patterns that variables match, unset ones as empty, in a job that a schedule started.

    Its actor is the last person to change the schedule.
    """
    run_page: str = ""
    """The address of the run, with ``{VARIABLES}``."""
    server: str = ""
    """The address of the forge that has the job's repository."""
    commits: str = ""
    """Path of the commits' pages below a repository's own; no variable."""
    step_summary: str = ""
    """A file that the engine shows as the summary of the step."""
    annotates: bool = False
    """Whether it shows GitHub's workflow commands as annotations."""


_GITHUB_ACTIONS: Final = Engine(
    name="GitHub Actions",
    mark="GITHUB_ACTIONS",
    actors=("GITHUB_TRIGGERING_ACTOR", "GITHUB_ACTOR"),
    # A person runs it again.
    scheduled={"GITHUB_EVENT_NAME": "schedule", "GITHUB_RUN_ATTEMPT": "1?"},
    run_page="{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}/actions/runs/{GITHUB_RUN_ID}",
    server="GITHUB_SERVER_URL",
    commits="commit",
    step_summary="GITHUB_STEP_SUMMARY",
    annotates=True,
)
_GITEA_ACTIONS: Final = replace(
    _GITHUB_ACTIONS,
    name="Gitea Actions",
    mark="GITEA_ACTIONS",
    actors=("GITHUB_ACTOR",),
    scheduled={"GITHUB_EVENT_NAME": "schedule"},
)

ENGINES: Final = (
    Engine(
        name="GitLab CI",
        mark="GITLAB_CI",
        actors=("GITLAB_USER_NAME", "GITLAB_USER_LOGIN"),
        # A person starts a manual job, also in a scheduled pipeline.
        scheduled={"CI_PIPELINE_SOURCE": "schedule", "CI_JOB_MANUAL": "(?!true$).*"},
        run_page="{CI_JOB_URL}",
        server="CI_SERVER_URL",
        commits="-/commit",
    ),
    # Before GitHub's, whose variables these runners set too.
    replace(_GITEA_ACTIONS, name="Forgejo Actions", mark="FORGEJO_ACTIONS"),
    _GITEA_ACTIONS,
    _GITHUB_ACTIONS,
    Engine(
        name="Buildkite",
        mark="BUILDKITE",
        actors=("BUILDKITE_BUILD_CREATOR", "BUILDKITE_BUILD_AUTHOR"),
        scheduled={"BUILDKITE_SOURCE": "schedule"},
        run_page="{BUILDKITE_BUILD_URL}",
    ),
    Engine(
        name="Azure Pipelines",
        mark="TF_BUILD",
        actors=("BUILD_REQUESTEDFOR",),
        scheduled={"BUILD_REASON": "Schedule"},
    ),
    # It does not tell a job whether its pipeline was scheduled.
    Engine(name="CircleCI", mark="CIRCLECI", actors=("CIRCLE_USERNAME",)),
    # Its plugin build-user-vars names the person.
    Engine(
        name="Jenkins",
        mark="JENKINS_URL",
        actors=("BUILD_USER", "BUILD_USER_ID"),
        scheduled={"BUILD_USER_ID": "timer"},
        run_page="{BUILD_URL}",
    ),
)


def find_engine(environment: Mapping[str, str] = os.environ) -> Engine | None:
    """Find the engine that runs this job; ``None`` outside a CI."""
    running = (e for e in ENGINES if environment.get(e.mark, "") not in ("", "false"))
    return next(running, None)


def is_scheduled(engine: Engine, environment: Mapping[str, str]) -> bool:
    """Whether a schedule started the job."""
    return bool(engine.scheduled) and all(
        re.fullmatch(pattern, environment.get(name, ""))
        for name, pattern in engine.scheduled.items()
    )


def ci_run_page(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the address of the CI's run that this process is part of, if the CI tells it."""
    engine = find_engine(environment)
    names = _VARIABLE.findall(engine.run_page) if engine is not None else ()
    if engine is None or not names or not all(map(environment.get, names)):
        return None
    return in_message(engine.run_page.format_map(environment))


def step_summary(environment: Mapping[str, str]) -> str | None:
    """Return the file that the CI shows as the summary of the step."""
    texts = (environment.get(engine.step_summary, "").strip() for engine in ENGINES)
    return next(filter(None, texts), None)
