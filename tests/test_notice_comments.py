"""The one comment of a pull request: written, brought up to date, and never somebody else's."""

import json

import pytest
from msgspec.structs import replace
from notice_servers import Forge, Response, web_server
from noticed_sessions import CASE, HOSTILE, MARKUP, SECRET, green, red, without_code

from pytest_dlperf.notices.brief import notice_of
from pytest_dlperf.notices.comments import GitHubComments, GitLabComments
from pytest_dlperf.notices.notice import NoticeError, lines_of, send_all
from pytest_dlperf.report.session import session_report

BOT = {"id": 41, "login": "github-actions[bot]", "type": "Bot"}
STRANGER = {"id": 7, "login": "stranger", "type": "User"}
MARKER = "<!-- pytest-dlperf lab/ -->"


@pytest.fixture
def web(monkeypatch):
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with web_server() as web:
        yield web


@pytest.fixture
def forge(web):
    return Forge(web, BOT)


def on_github(web, label="", **more):
    environment = {
        "GITHUB_API_URL": f"{web.url}/api/v3",
        "GITHUB_GRAPHQL_URL": f"{web.url}/api/graphql",
        "GITHUB_REPOSITORY": "acme/widgets",
        "GITHUB_REF": "refs/pull/12/merge",
        "GITHUB_TOKEN": SECRET,
        **more,
    }
    return GitHubComments(label, environment)


def on_gitlab(web, label="", **more):
    environment = {
        "CI_API_V4_URL": f"{web.url}/api/v4",
        "CI_PROJECT_ID": "99",
        "CI_MERGE_REQUEST_PROJECT_ID": "5",
        "CI_MERGE_REQUEST_IID": "12",
        "GITLAB_TOKEN": SECRET,
        **more,
    }
    return GitLabComments(label, environment)


@pytest.mark.parametrize(
    ("where", "folder", "proof"),
    [
        (on_github, "/api/v3/repos/acme/widgets/issues/12/comments", f"Bearer {SECRET}"),
        (on_gitlab, "/api/v4/projects/5/merge_requests/12/notes", SECRET),
    ],
)
def test_there_is_one_comment_and_it_turns_green(web, forge, where, folder, proof):
    forge.add("Looks good to me", STRANGER)
    comments = where(web)
    assert comments.send(notice_of(session_report(red())))
    [_, comment] = forge.comments
    assert comment["body"].startswith(f"{MARKER}\n")
    assert CASE in comment["body"]
    assert "-9.9 %" in comment["body"]
    created = next(asked for asked in web.asked if asked.method == "POST" and folder in asked.path)
    assert proof in created.headers.values()

    assert comments.send(notice_of(session_report(green()), is_due=False))
    assert len(forge.comments) == 2
    assert comment["body"].startswith(f"{MARKER}\n")
    assert "the only case passes" in comment["body"]
    assert "-9.9 %" not in comment["body"]


def test_there_is_no_first_comment_before_one_is_due(web, forge):
    assert on_github(web).send(notice_of(session_report(green()), is_due=False)) is False
    assert forge.comments == []


def test_a_comment_of_somebody_else_is_not_changed(web, forge):
    false = forge.add(f"{MARKER}\nall is well", STRANGER)
    quoted = forge.add(f"> {MARKER}\nwhat is this?")
    assert on_github(web).send(notice_of(session_report(red())))
    assert (false["body"], quoted["body"]) == (
        f"{MARKER}\nall is well", f"> {MARKER}\nwhat is this?"
    )  # fmt: skip
    assert len(forge.comments) == 3


def test_it_is_found_behind_hundreds_of_others(web, forge):
    for number in range(230):
        forge.add(f"comment {number}", STRANGER)
    comment = forge.add(f"{MARKER}\nold")
    forge.add("one more", STRANGER)
    assert on_github(web).send(notice_of(session_report(red())))
    assert "-9.9 %" in comment["body"]
    assert len(forge.comments) == 232


def test_clusters_and_jobs_have_comments_of_their_own(web, forge):
    for label in ("", "a100", "a100"):
        assert on_github(web, label).send(notice_of(session_report(red())))
    assert on_github(web).send(notice_of(session_report(replace(red(), cluster="x --> <b>y"))))
    heads = [comment["body"].partition("\n")[0] for comment in forge.comments]
    assert heads == [
        MARKER,
        "<!-- pytest-dlperf lab/a100 -->",
        "<!-- pytest-dlperf x%20--%3E%20%3Cb%3Ey/ -->",
    ]


@pytest.mark.parametrize("reason", [HOSTILE, "x" * 100_000])
def test_what_a_log_says_is_text(web, forge, reason):
    assert on_github(web).send(notice_of(session_report(red(reason))))
    [comment] = forge.comments
    assert not MARKUP.search(without_code(comment["body"]))
    assert len(comment["body"]) < 60_001


def test_no_line_is_a_quick_action_of_gitlab(web, forge):
    notice = replace(
        notice_of(session_report(red())), markdown="first\n/merge\n  /approve x\nand / or\n" * 9999
    )
    assert on_gitlab(web).send(notice)
    [comment] = forge.comments
    assert comment["body"].splitlines()[1:5] == ["first", "\\/merge", "  \\/approve x", "and / or"]
    assert len(comment["body"]) == 60_000


# ------------------------------------------------------------------------ which pull request


def event(folder, data):
    file = folder / "event.json"
    file.write_text(json.dumps(data), encoding="utf-8")
    return {"GITHUB_REF": "refs/heads/main", "GITHUB_EVENT_PATH": str(file)}


@pytest.mark.parametrize(
    "data",
    [
        {"pull_request": {"number": 12}},
        {"issue": {"number": 12, "pull_request": {"url": "…"}}},
        {"workflow_run": {"pull_requests": [{"number": 12}]}},
        {
            "workflow_run": {
                "pull_requests": [],
                "head_branch": "faster steps",
                "head_sha": "c0ffee",
                "head_repository": {"owner": {"login": "forker"}},
            }
        },
    ],
)
def test_the_event_names_the_pull_request(web, forge, tmp_path, data):
    forge.pulls = [{"number": 11, "head": {"sha": "0"}}, {"number": 12, "head": {"sha": "c0ffee"}}]
    assert on_github(web, **event(tmp_path, data)).send(notice_of(session_report(red())))
    assert len(forge.comments) == 1
    assert any("/issues/12/comments" in asked.path for asked in web.asked)
    looked = [asked.path for asked in web.asked if "/pulls?" in asked.path]
    assert all("head=forker%3Afaster%20steps" in path for path in looked)


@pytest.mark.parametrize(
    "data", [{}, [], {"issue": {"number": 12}}, {"schedule": "17 1 * * *"}, {"workflow_run": {}}]
)
def test_a_run_of_no_pull_request_has_nobody_to_tell(web, forge, tmp_path, data):
    where = on_github(web, **event(tmp_path, data))
    assert where.send(notice_of(session_report(red()))) is False
    assert on_gitlab(web, CI_MERGE_REQUEST_IID="").send(notice_of(session_report(red()))) is False
    assert on_github(web, GITHUB_REPOSITORY="").send(notice_of(session_report(red()))) is False
    assert (
        forge.comments,
        list(lines_of(send_all([where], notice_of(session_report(red()))))),
    ) == (
        [],
        [],
    )


@pytest.mark.parametrize("is_named", [True, False])
def test_without_a_graphql_interface_the_user_is_asked_for(web, forge, *, is_named):
    """As with Gitea and Forgejo."""
    forge.has_graphql = False
    for _ in range(2):
        more = {} if is_named else {"GITHUB_GRAPHQL_URL": ""}
        assert on_github(web, **more).send(notice_of(session_report(red())))
    assert len(forge.comments) == 1


def test_a_token_of_nobody_changes_no_comment(web):
    forge = Forge(web, {"login": None})
    forge.add(f"{MARKER}\nof somebody who is gone")
    with pytest.raises(NoticeError, match="whose token"):
        on_github(web).send(notice_of(session_report(red())))
    assert "gone" in forge.comments[0]["body"]


def test_what_is_refused_is_told_without_the_token(web):
    web.answers(Response(403, b'{"message": "Resource not accessible by integration"}'))
    with pytest.raises(NoticeError) as error:
        on_github(web).send(notice_of(session_report(red())))
    assert str(error.value).endswith(" answers 403 Forbidden")
    web.answers(Response(401, json.dumps({"message": f"bad token {SECRET}"}).encode()))
    [line] = lines_of(send_all([on_gitlab(web)], notice_of(session_report(red()))))
    assert "401 Unauthorized" in line
    assert SECRET not in line
    [line] = lines_of(send_all([on_github(web, GITHUB_TOKEN="")], notice_of(session_report(red()))))
    assert "GITHUB_TOKEN is not set" in line
