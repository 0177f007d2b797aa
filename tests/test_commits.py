"""The commits that came with a change: found where the trainer ran, listed, linked, escaped."""

import json
import re
import subprocess
import sys

import pytest
import results_makers as make
from explained import SINCE_TUESDAY, moved_case
from msgspec.structs import replace
from trainers import checkout

from pytest_dlperf.culprit.journal import FoundCommit
from pytest_dlperf.files.checkouts import described, repository_at
from pytest_dlperf.model.commits import Checkout, Commit, CommitRange, Repository, commits_between
from pytest_dlperf.node.checkouts import checkout_at
from pytest_dlperf.node.probe import look
from pytest_dlperf.notices.brief import notice_of
from pytest_dlperf.report.html.page import html_page
from pytest_dlperf.report.session import session_report
from pytest_dlperf.report.words import commit_texts

FORGE = Repository(address="https://github.com/lab/models", commits="commit")


def committed(folder, title, *words):
    git = ["git", "-C", str(folder), "-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", title, *words], check=True)
    head = [*git, "rev-parse", "--short=12", "HEAD"]
    return subprocess.run(head, check=True, capture_output=True, text=True).stdout.strip()


def found_at(**paths):
    found = {name: checkout_at(str(path)) for name, path in paths.items()}
    return {name: known for name, known in found.items() if known}


def test_a_checkout_tells_its_last_commits_and_where_it_was_cloned_from(tmp_path):
    folder = tmp_path / "code"
    first = checkout(folder)
    last = committed(folder, "Fuse the optimizer\n\nIn detail.")
    remote = "https://robot:secret@github.com/lab/models.git"
    add = ["git", "-C", str(folder), "remote", "add", "origin", remote]
    subprocess.run(add, check=True)

    known = described(found_at(code=folder)["code"])

    assert [(one.name, one.author, one.title) for one in known.commits] == [
        (last, "A", "Fuse the optimizer"),
        (first, "A", "Train"),
    ]
    assert known.repository == FORGE
    assert known.commits[0].address == f"https://github.com/lab/models/commit/{last}"
    assert "secret" not in str(known)


def test_an_editable_package_is_a_checkout(tmp_path):
    commit = checkout(tmp_path / "with blank")
    for name, said in {
        "own_models": {"url": (tmp_path / "with blank").as_uri(), "dir_info": {"editable": True}},
        "copied": {"url": tmp_path.as_uri(), "dir_info": {}},
    }.items():
        information = tmp_path / "site" / f"{name}-1.0.dist-info"
        information.mkdir(parents=True)
        text = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
        (information / "METADATA").write_text(text, encoding="utf-8")
        (information / "direct_url.json").write_text(json.dumps(said), encoding="utf-8")
    python = tmp_path / "python"
    added = f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r})"
    run = f'exec {sys.executable} -I -S -c "{added}\n$code" "$@"'
    python.write_text(f"#!/bin/sh\nshift\ncode=$1\nshift\n{run}\n", encoding="utf-8")
    python.chmod(0o755)

    found = look(
        {
            "folders": {},
            "files": {},
            "checkouts": {},
            "modules": [],
            "python": str(python),
            "inside": None,
            "lock": "none",
            "kind": None,
            "accelerators": False,
        }
    )

    assert {name: one["commit"] for name, one in found["checkouts"].items()} == {
        "own_models": commit
    }


# --------------------------------------------------------------------------- between two nights


def commit(number, title="Tidy up"):
    return Commit(name=f"{number:012x}", at="2026-11-17T12:00:00+01:00", author="Ana", title=title)


KNOWN = Checkout(commits=tuple(commit(number) for number in range(40, 0, -1)), repository=FORGE)


def between(first, last, known=KNOWN):
    return commits_between({"models": known}, "models", first, last)


def test_the_commits_after_the_last_good_one_are_listed_the_new_ones_first():
    found = between(commit(2).name, f"{commit(4).name}+train.py")
    assert found.commits == (commit(4), commit(3))
    assert found.count == 2
    assert found.compare == ("https://github.com/lab/models/compare/000000000002...000000000004")
    many = between(commit(1).name, commit(30).name)
    assert (len(many.commits), many.count) == (20, 29)


def test_of_commits_that_the_checkout_does_not_know_both_ends_are_told():
    found = between("f" * 12, commit(4).name)
    assert (found.commits, found.count) == ((), None)
    assert found.compare is not None
    unknown = between("f" * 12, commit(4).name, Checkout(commits=KNOWN.commits))
    assert unknown == CommitRange(checkout="models", first="f" * 12, last=commit(4).name)
    assert between(commit(4).name, f"{commit(4).name}+train.py") is None
    assert between(commit(4).name, commit(2).name) is None  # an older one is no news
    assert commits_between({}, "models", "1" * 12, "2" * 12) is None


@pytest.mark.parametrize(
    ("remote", "page"),
    [
        ("git@gitlab.com:lab/team/models.git", "lab/team/models/-/compare/aaa...bbb"),
        ("https://codeberg.org/lab/models", "lab/models/compare/aaa...bbb"),
        ("https://bitbucket.org/lab/models.git", "lab/models/branches/compare/bbb..aaa"),
    ],
)
def test_each_forge_has_its_own_page_of_a_comparison(remote, page):
    repository = repository_at(remote, {})
    assert (repository.compare("aaa", "bbb") or "").endswith(f"/{page}")


# --------------------------------------------------------------------------- found by bisect


def test_a_commit_that_was_found_is_lost_once_it_is_reverted_or_on_another_branch(
    tmp_path,
):
    folder = tmp_path / "code"
    first = checkout(folder)
    culprit = committed(folder, "Slow down")
    found = FoundCommit(repository=str(folder), name=culprit)
    assert not found.is_lost()
    revert = committed(folder, f"Revert it\n\nThis reverts commit {culprit}.")
    assert found.is_lost()
    assert (found.is_in(f"{culprit}+changes"), found.is_in(first)) == (True, False)
    committed(folder, f"Do it all the same\n\nThis reverts commit {revert}.")
    assert not found.is_lost()
    back = ["git", "-C", str(folder), "checkout", "-q", first]
    subprocess.run(back, check=True)
    assert found.is_lost()


def test_what_a_clone_does_not_know_is_not_lost(tmp_path):
    folder = tmp_path / "code"
    checkout(folder)
    culprit = committed(folder, "Slow down")
    committed(folder, "Go on")
    words = ["git", "clone", "-q", "--depth", "1", f"file://{folder}", str(tmp_path / "shallow")]
    subprocess.run(words, check=True)
    for name in ("shallow", "gone"):
        assert not FoundCommit(repository=str(tmp_path / name), name=culprit).is_lost()


# --------------------------------------------------------------------------- told


def test_what_a_commit_says_of_itself_is_text_of_others():
    evil = commit(2, "\x1b[31m::error::<script>alert(1)</script> [x](javascript:1)")
    found = CommitRange(
        checkout="models",
        first="9f8e7d6c5b4a",
        last="1a2b3c4d5e6f",
        commits=(replace(evil, address="javascript:alert(1)"),),
        count=7,
        compare="https://github.com/lab/models/compare/a...b",
    )
    why = replace(SINCE_TUESDAY, commits=(found,))
    results = make.session(moved_case("paddle-resnet50-fp32-b128-4n8g", -9.9, why))

    brief, page = notice_of(session_report(results)), html_page(session_report(results))

    _, more = commit_texts(why)
    ends = "and 6 more of models, 9f8e7d6 to 1a2b3c4"
    assert str(more) == f"{ends}: https://github.com/lab/models/compare/a...b"
    assert "\x1b" not in brief.text
    assert "\n::error" not in brief.text
    assert "0000000 of models, Ana: " in brief.text
    assert "<script>alert" not in page
    assert "javascript:alert" not in page
    (line,) = [line for line in brief.markdown.splitlines() if "<script>" in line]
    assert re.fullmatch(
        r" *- commits (`+)(?!`).*<script>alert\(1\)</script>.*\1", line
    )  # code alone
    assert "](https://github.com/lab/models/compare/a...b)" in brief.markdown
