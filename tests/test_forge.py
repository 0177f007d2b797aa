"""The address of a commit's page, by what a checkout's remote and the CI say."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from pytest_dlperf.files.forge import describe_commit_page

if TYPE_CHECKING:
    from pathlib import Path

COMMIT = "1a2b3c4d5e6f"
GITHUB = {"GITHUB_SERVER_URL": "https://git.example.org:8443"}
GITLAB = {"CI_SERVER_URL": "https://git.example.org"}


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
            GITLAB,
            "https://git.example.org/lab/bench/-/commit/",
        ),
        (
            "git@git.example.org:lab/bench",
            GITHUB,
            "https://git.example.org:8443/lab/bench/commit/",
        ),
        ("git@git.example.org:lab/bench", {}, None),
        ("/srv/git/bench.git", GITLAB, None),
        ("", GITLAB, None),
    ],
)
def test_a_commit_has_a_page_where_its_forge_is_known(
    tmp_path: Path, remote: str, environment: dict[str, str], page: str | None
) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)  # noqa: S607 - the machine's
    if remote:
        add = ["git", "-C", str(tmp_path), "remote", "add", "origin", remote]
        subprocess.run(add, check=True)
    expected = f"{page}{COMMIT}" if page else None
    assert describe_commit_page(tmp_path, COMMIT, environment) == expected
    assert describe_commit_page(tmp_path, f"{COMMIT}+changes", environment) == expected
    assert describe_commit_page(tmp_path, None, environment) is None
