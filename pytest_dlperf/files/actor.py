"""Who is behind this session: the CI's actor, the identity that Git has, or the login.

Nobody proves who they are here: what Git puts into a commit is no proof either.
"""

from __future__ import annotations

import getpass
import os
import platform
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_dlperf.files.environment import git

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

LONGEST_NAME: Final = 200
"""Characters of a name that are kept."""


@dataclass(frozen=True, slots=True)
class _Engine:
    """A CI, by the variables that it sets for a job."""

    name: str
    mark: str
    """What it alone sets."""
    actors: tuple[str, ...]
    """What names who has started the job, the best first."""
    is_scheduled: Callable[[Mapping[str, str]], bool]
    """Whether nobody has: what stands there then is the last one to touch the schedule."""


_ENGINES: Final = (
    _Engine(
        "GitLab CI",
        "GITLAB_CI",
        ("GITLAB_USER_NAME", "GITLAB_USER_LOGIN"),
        # A manual job of a scheduled pipeline has the person who started it.
        lambda given: (
            given.get("CI_PIPELINE_SOURCE") == "schedule" and given.get("CI_JOB_MANUAL") != "true"
        ),
    ),
    # Before GitHub's: their runners set all of its variables too.
    _Engine(
        "Forgejo Actions",
        "FORGEJO_ACTIONS",
        ("GITHUB_ACTOR",),
        lambda given: given.get("GITHUB_EVENT_NAME") == "schedule",
    ),
    _Engine(
        "Gitea Actions",
        "GITEA_ACTIONS",
        ("GITHUB_ACTOR",),
        lambda given: given.get("GITHUB_EVENT_NAME") == "schedule",
    ),
    _Engine(
        "GitHub Actions",
        "GITHUB_ACTIONS",
        ("GITHUB_TRIGGERING_ACTOR", "GITHUB_ACTOR"),
        # Who runs it again is a person.
        lambda given: (
            given.get("GITHUB_EVENT_NAME") == "schedule"
            and given.get("GITHUB_RUN_ATTEMPT", "1") == "1"
        ),
    ),
    _Engine(
        "Buildkite",
        "BUILDKITE",
        ("BUILDKITE_BUILD_CREATOR", "BUILDKITE_BUILD_AUTHOR"),
        lambda given: given.get("BUILDKITE_SOURCE") == "schedule",
    ),
    _Engine(
        "Azure Pipelines",
        "TF_BUILD",
        ("BUILD_REQUESTEDFOR",),
        lambda given: given.get("BUILD_REASON") == "Schedule",
    ),
    # It does not tell a job whether its pipeline was scheduled.
    _Engine("CircleCI", "CIRCLECI", ("CIRCLE_USERNAME",), lambda _: False),
    # By its plugin build-user-vars; without that, it names nobody.
    _Engine(
        "Jenkins",
        "JENKINS_URL",
        ("BUILD_USER", "BUILD_USER_ID"),
        lambda given: given.get("BUILD_USER_ID") == "timer",
    ),
)


def describe_actor(folder: Path, environment: Mapping[str, str] = os.environ) -> str | None:
    """Name who is behind this session, for what is accepted in a folder.

    In a CI that is who has started the job, or the CI itself where its schedule has. Else it is who
    would be the author of a commit there (``Ana Diaz <ana@example.org>``), and where Git does not
    know that, the login (``ana@host``).
    """
    engine = next((one for one in _ENGINES if environment.get(one.mark)), None)
    if engine is not None:
        if engine.is_scheduled(environment):
            return f"{engine.name}, scheduled"
        named = filter(None, (_name(environment.get(one, "")) for one in engine.actors))
        if actor := next(named, None):
            return f"{actor} ({engine.name})"
    # Else Git would make an address up from the names of account and host.
    identity = git(folder, "-c", "user.useConfigOnly=true", "var", "GIT_AUTHOR_IDENT")
    name, _, rest = identity.rpartition(" <")
    if name:
        return f"{_name(name)} <{_name(rest.partition('>')[0])}>"
    return engine.name if engine is not None else _login()


def _login() -> str | None:
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a number without a name, as in containers
        return None
    return _name(f"{user}@{platform.node()}")


def _name(text: str) -> str:
    """Make a name one line of a reasonable length."""
    return " ".join(text.split())[:LONGEST_NAME].rstrip()
