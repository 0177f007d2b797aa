"""The comment of a pull or merge request: one for a cluster, which each session brings up to date.

It is known again by a hidden line.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from pytest_dlperf.config.notices import is_address
from pytest_dlperf.notices.notice import Notice, NoticeError, Notifier
from pytest_dlperf.notices.posting import call, clipped, host_of

_LONGEST: Final = 60_000
"""Characters; GitHub takes 65,536 of them."""
_PAGE: Final = 100
_MAX_PAGES: Final = 30
_PULL_REQUEST: Final = re.compile(r"refs/pull/([0-9]+)/(?:merge|head)")
_QUICK_ACTION: Final = re.compile(r"^(\s*)(?=/[A-Za-z])", re.MULTILINE)


class Comments(Notifier):
    """Keeps one comment up to date, also when it turns green."""

    tokens: tuple[str, ...]
    kind: str
    author_key: str
    author_name: str
    update_method: str

    def __init__(self, label: str = "", environment: Mapping[str, str] = os.environ) -> None:
        self.name = self.kind
        self._label = label
        self._environment = environment

    def send(self, notice: Notice) -> bool:
        """Write the comment, or bring it up to date; there is no first one if it is not due."""
        base = self._base()
        if base is None:
            return False
        cluster, label = (quote(word, safe="") for word in (notice.cluster or "", self._label))
        marker = f"<!-- pytest-dlperf {cluster}/{label} -->"
        body = {"body": clipped(f"{marker}\n{self._safe(notice.markdown)}", _LONGEST)}
        author = self._author()
        if author is None:  # which the author of a comment may be too, when they are gone
            raise NoticeError(f"{host_of(base)} does not say whose token it was given")
        for comment in self._listed(base):
            # Others may write the hidden line too: their comments are not ours.
            is_marked = str(comment.get("body", "")).startswith(marker)
            if is_marked and (comment.get(self.author_key) or {}).get(self.author_name) == author:
                self._asked(self.update_method, self._address_of(base, int(comment["id"])), body)
                return True
        if notice.is_due:
            self._asked("POST", base, body)
        return notice.is_due

    def _base(self) -> str | None:
        """Return the address of all comments; ``None`` where the run is not of a pull request."""
        raise NotImplementedError

    def _author(self) -> object:
        """Return who asks, as comments name their authors."""
        raise NotImplementedError

    def _headers(self, token: str) -> Mapping[str, str]:
        raise NotImplementedError

    def _address_of(self, base: str, comment: int) -> str:
        return f"{base}/{comment}"

    def _safe(self, markdown: str) -> str:
        return markdown

    def _listed(self, address: str) -> Iterator[Mapping[str, Any]]:
        for page in range(1, _MAX_PAGES + 1):
            # Where it is not known, ``sort`` is not heard; then the oldest come first anyway.
            asked = urlencode({"per_page": _PAGE, "page": page, "sort": "asc"})
            found = self._asked("GET", f"{address}{'&' if '?' in address else '?'}{asked}")
            if not isinstance(found, list):
                raise NoticeError(f"{host_of(address)} answers with no list")
            yield from (one for one in found if isinstance(one, dict))
            if len(found) < _PAGE:
                return

    def _asked(self, method: str, address: str, payload: Any = None) -> Any:
        if not is_address(address):
            raise NoticeError("the CI names no address of its interface")
        token = self._variable(*self.tokens)
        if not token:
            raise NoticeError(f"{self.tokens[0]} is not set")
        answer = call(method, address, payload, headers=self._headers(token))
        try:
            return json.loads(answer) if answer else None
        except ValueError:
            raise NoticeError(f"{host_of(address)} does not answer with JSON") from None

    def _variable(self, *names: str) -> str:
        return next(filter(None, (self._environment.get(name, "").strip() for name in names)), "")


class GitHubComments(Comments):
    """Comments of GitHub, and of Gitea and Forgejo, which have its variables and its interface."""

    tokens = "GITHUB_TOKEN", "GH_TOKEN"
    kind = "github"
    author_key = "user"
    author_name = "login"
    update_method = "PATCH"

    def _base(self) -> str | None:
        number = self._number() if self._variable("GITHUB_REPOSITORY") else None
        return None if number is None else f"{self._repository()}/issues/{number}/comments"

    def _repository(self) -> str:
        api = self._variable("GITHUB_API_URL") or "https://api.github.com"
        return f"{api}/repos/{self._variable('GITHUB_REPOSITORY')}"

    def _number(self) -> int | None:
        found = _PULL_REQUEST.fullmatch(self._variable("GITHUB_REF"))
        if found is not None:
            return int(found[1])
        event = self._event()
        issue, run = event.get("issue", {}), event.get("workflow_run", {})
        pulls = [event.get("pull_request"), issue if issue.get("pull_request") else None]
        pulls += run.get("pull_requests") or (self._pulls_of(run) if run else [])
        return next((pull["number"] for pull in pulls if pull and "number" in pull), None)

    def _pulls_of(self, run: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Find the pull request of another workflow's run: of a fork's, GitHub does not name it."""
        owner = ((run.get("head_repository") or {}).get("owner") or {}).get("login")
        head = quote(f"{owner}:{run.get('head_branch')}")
        open_ones = self._listed(f"{self._repository()}/pulls?state=open&head={head}")
        sha = run.get("head_sha")
        return [pull for pull in open_ones if (pull.get("head") or {}).get("sha") == sha]

    def _event(self) -> dict[str, Any]:
        file = self._variable("GITHUB_EVENT_PATH")
        if not file:
            return {}
        try:
            event = json.loads(Path(file).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise NoticeError("the file of GITHUB_EVENT_PATH cannot be read") from None
        return event if isinstance(event, dict) else {}

    def _author(self) -> object:
        # The token of a job may not ask the REST interface who it is. Gitea and Forgejo have no
        # other, though some name one all the same.
        if graphql := self._variable("GITHUB_GRAPHQL_URL"):
            with suppress(NoticeError):
                found = self._asked("POST", graphql, {"query": "query { viewer { login } }"}) or {}
                return ((found.get("data") or {}).get("viewer") or {}).get("login")
        api = self._repository().partition("/repos/")[0]
        return (self._asked("GET", f"{api}/user") or {}).get("login")

    def _headers(self, token: str) -> Mapping[str, str]:
        return {"Accept": "application/vnd.github+json", "Authorization": f"Bearer {token}"}

    def _address_of(self, base: str, comment: int) -> str:
        del base
        return f"{self._repository()}/issues/comments/{comment}"


class GitLabComments(Comments):
    """Notes of a merge request of GitLab."""

    tokens = ("GITLAB_TOKEN",)
    kind = "gitlab"
    author_key = "author"
    author_name = "id"
    update_method = "PUT"

    def _base(self) -> str | None:
        api, number = self._variable("CI_API_V4_URL"), self._variable("CI_MERGE_REQUEST_IID")
        # The pipeline of a fork has an id of its own.
        project = self._variable("CI_MERGE_REQUEST_PROJECT_ID", "CI_PROJECT_ID")
        if not (api and number and project):
            return None
        return f"{api}/projects/{quote(project, safe='')}/merge_requests/{number}/notes"

    def _safe(self, markdown: str) -> str:
        """Have no line begin a quick action, such as ``/merge``."""
        return _QUICK_ACTION.sub(r"\1\\", markdown)

    def _author(self) -> object:
        return (self._asked("GET", f"{self._variable('CI_API_V4_URL')}/user") or {}).get("id")

    def _headers(self, token: str) -> Mapping[str, str]:
        return {"PRIVATE-TOKEN": token}
