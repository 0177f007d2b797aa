"""Who accepted a number, why and at which commit: in the file, and wherever the number is shown."""

import re
import subprocess

import pytest
import yaml
from nights import Nights
from trainers import TinySystem

from pytest_dlperf.command.main import main

pytestmark = pytest.mark.in_process

CREATE, UPDATE = "--dlperf-create-baselines", "--dlperf-update-baselines"
CASE = "tiny-mlp-fp32-b4-1n1g"
ANA = "Ana Díaz <ana@example.org>"
HOSTILE = "Bo\n::error::<script>alert(1)</script>"
WHY = "new loader ::error::<img src=x>" + " and so on" * 1000


@pytest.fixture
def repository(suite):
    """The suite in a repository whose commits are Ana's, outside any CI."""
    git(suite.path, "init", "-q")
    git(suite.path, "config", "user.name", "Ana Díaz")
    git(suite.path, "config", "user.email", "ana@example.org")
    return suite


def git(folder, *arguments):
    command = ["git", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def acceptance_of(file):
    entry = yaml.safe_load(file.read_text(encoding="utf-8"))["entries"]["fp32-b4"]["1n1g"]
    return entry["acceptance"]


def test_two_people_one_after_the_other_are_told_everywhere(repository, monkeypatch, capsys):
    suite, nights = repository, Nights(repository, ["1n1g"])
    first = suite.run(*nights.usual("first"), CREATE, "-v")
    first.stdout.re_match_lines([rf"{CASE} +throughput .* Ana Díaz +first number"])
    assert acceptance_of(nights.file)["by"] == ANA

    # The next one works in a CI, under a name that nobody should have, and says a lot.
    with monkeypatch.context() as in_ci:
        in_ci.setenv("GITLAB_CI", "true")
        in_ci.setenv("GITLAB_USER_NAME", HOSTILE)
        arguments = nights.usual("slower", of_1n1g=0.8)
        second, results = suite.judge(
            *arguments, UPDATE, "--dlperf-reason", WHY, "--dlperf-html=p.html", cluster="local"
        )
    assert second.ret == 0
    bo = f"{' '.join(HOSTILE.split())} (GitLab CI)"
    (change,) = results["baseline_changes"]
    assert (change["by"], change["why"]) == (bo, WHY)
    found = acceptance_of(nights.file)
    assert (found["by"], found["reason"]) == (bo, WHY)
    page = (suite.path / "p.html").read_text(encoding="utf-8")

    # A loss names who accepted what it is held against.
    tonight, results = suite.judge(
        *nights.usual("tonight", of_1n1g=0.6), "--dlperf-markdown=p.md",
        "--dlperf-html=p2.html", cluster="local",
    )  # fmt: skip
    assert tonight.ret == 1
    page += (suite.path / "p2.html").read_text(encoding="utf-8")
    told = next(line for line in tonight.outlines if line.lstrip().startswith("accepted "))
    assert "by Bo ::error::" in told
    assert "new loader" in told
    assert len(told) < 500
    markdown = (suite.path / "p.md").read_text(encoding="utf-8")
    assert "Bo" in markdown
    assert "<script>" not in re.sub(r"(`+).*?\1", "", markdown)  # code is shown as it is
    (case,) = results["cases"]
    assert case["accepted"]["throughput"]["acceptance"]["by"] == bo
    assert "Bo ::error::&lt;script&gt;" in page
    assert "<script>alert" not in page
    assert "<img src=x>" not in page

    monkeypatch.chdir(suite.path)
    capsys.readouterr()
    assert main(["history", "show", CASE]) == 0
    printed = capsys.readouterr().out
    changes = " ".join(printed.split()).split("accepted ")[1:]
    assert [by.partition(", by ")[2][:3] for by in changes] == ["Bo "]
    everything = "\n".join([*second.outlines, *tonight.outlines, printed])
    assert not [line for line in everything.split("\n") if line.lstrip().startswith("::error")]


def test_what_a_session_has_launched_is_accepted_with_its_commit_and_its_launch(
    repository,
):
    suite = repository
    TinySystem(suite, topologies=["1n1g"])
    git(suite.path, "add", ".")
    git(suite.path, "commit", "-qm", "A suite")

    result = suite.run("-k", "tiny", CREATE, "--dlperf-repeats", "2")

    assert result.ret == 0
    found = acceptance_of(suite.path / "baselines" / "local" / "tiny-mlp.yaml")
    assert found["by"] == ANA
    assert git(suite.path, "rev-parse", "HEAD").startswith(found["commit"])
    assert found["launch"]["launcher"] == "local"
    words = "{python} {checkout}/trainer/train.py 1 1 0 10 1"
    assert found["launch"]["arguments"] == words.split()
