"""The comment of a pull or merge request: one for a cluster, which each session brings up to date.

It is known again by a hidden line.
"""

from __future__ import annotations

import json
import os
import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, final
from urllib.parse import quote, urlencode

from pytest_dlperf.config.notices import is_address
from pytest_dlperf.files.ci import GITHUB, GITLAB, Forge
from pytest_dlperf.notices.notice import Notice, NoticeError, Notifier
from pytest_dlperf.notices.posting import RefusedError, call, clipped, host_of

_LONGEST: Final = 60_000
"""Characters; GitHub takes 65,536 of them."""
_PAGE: Final = 100
_MAX_PAGES: Final = 30
_PULL_REQUEST: Final = re.compile(r"refs/pull/([0-9]+)/(?:merge|head)")
_QUICK_ACTION: Final = re.compile(r"^(\s*)(?=/[A-Za-z])", re.MULTILINE)


class Comments(Notifier):
    """Keeps one comment up to date, also when it turns green."""

    def __init__(
        self, kind: str, label: str = "", environment: Mapping[str, str] = os.environ
    ) -> None:
        self.name = kind
        self._label = label
        self._environment = environment

    def send(self, notice: Notice) -> bool:
        """Write the comment, or bring it up to date; there is no first one if it is not due."""
        base = self._base()
        if base is None:
            return False
        marker = _marker(notice.cluster, self._label)
        body = clipped(f"{marker}\n{self._safe(notice.markdown)}", _LONGEST)
        author = self._author()
        if author is None:  # which the author of a comment may be too, when they are gone
            raise NoticeError(f"{host_of(base)} does not say whose token it was given")
        known = self._known(base, marker, author)
        if known is not None:
            self._asked(self._update_method, self._address_of(base, known), {"body": body})
        elif notice.is_due:
            self._asked("POST", base, {"body": body})
        return known is not None or notice.is_due

    _forge: Forge
    _update_method: str

    @abstractmethod
    def _base(self) -> str | None:
        """Return the address of all comments; ``None`` where the run is not of a pull request."""

    @abstractmethod
    def _headers(self) -> Mapping[str, str]:
        """Return what proves who asks."""

    @abstractmethod
    def _author(self) -> object:
        """Return who asks. Others may write the hidden line too: their comments are not ours."""

    @abstractmethod
    def _author_of(self, comment: Mapping[str, Any]) -> object:
        """Return the author of a comment."""

    @abstractmethod
    def _address_of(self, base: str, comment: int) -> str:
        """Return the address of one comment."""

    def _safe(self, markdown: str) -> str:
        return markdown

    def _known(self, base: str, marker: str, author: object) -> int | None:
        for comment in self._listed(base):
            is_marked = str(comment.get("body", "")).startswith(marker)
            if is_marked and self._author_of(comment) == author:
                return int(comment["id"])
        return None

    def _listed(self, address: str) -> Iterator[Mapping[str, Any]]:
        """Yield all of a list, the oldest first."""
        for page in range(1, _MAX_PAGES + 1):
            # Where it is not known, ``sort`` is not heard; then the oldest come first anyway.
            asked = urlencode({"per_page": _PAGE, "page": page, "sort": "asc"})
            found = self._asked("GET", f"{address}{'&' if '?' in address else '?'}{asked}")
            if not isinstance(found, list):
                raise NoticeError(f"{host_of(address)} answers with no list")
            yield from (one for one in found if isinstance(one, dict))
            if len(found) < _PAGE:
                return

    def _object(self, method: str, address: str, payload: Any = None) -> Mapping[str, Any]:
        found = self._asked(method, address, payload)
        return found if isinstance(found, dict) else {}

    def _asked(self, method: str, address: str, payload: Any = None) -> Any:
        if not is_address(address):
            raise NoticeError("the CI names no address of its interface")
        answer = call(method, address, payload, headers=self._headers())
        try:
            return json.loads(answer) if answer else None
        except ValueError:
            raise NoticeError(f"{host_of(address)} does not answer with JSON") from None

    def _variable(self, *names: str) -> str:
        """Give the first of these variables that is set; the empty text if none is."""
        return next(filter(None, (self._environment.get(name, "").strip() for name in names)), "")

    def _token(self) -> str:
        names = self._forge.tokens
        if token := self._variable(*names):
            return token
        raise NoticeError(f"{names[0]} is not set")


@final
class GitHubComments(Comments):
    """Comments of GitHub, and of Gitea and Forgejo, which have its variables and its interface."""

    _forge = GITHUB
    _update_method = "PATCH"

    def _base(self) -> str | None:
        number = self._number() if self._variable(*GITHUB.repositories) else None
        return None if number is None else f"{self._repository()}/issues/{number}/comments"

    def _repository(self) -> str:
        api = self._variable(GITHUB.api) or "https://api.github.com"
        return f"{api}/repos/{self._variable(*GITHUB.repositories)}"

    def _number(self) -> int | None:
        found = _PULL_REQUEST.fullmatch(self._variable(GITHUB.pull_request))
        if found is not None:
            return int(found[1])
        event = self._event()
        issue = event.get("issue", {})
        pulls = [event.get("pull_request"), issue if issue.get("pull_request") else None]
        run = event.get("workflow_run", {})
        pulls += run.get("pull_requests") or (self._pulls_of(run) if run else [])
        numbers = (pull["number"] for pull in pulls if pull and "number" in pull)
        return next(numbers, None)

    def _pulls_of(self, run: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Find the pull request of another workflow's run: of a fork's, GitHub does not name it."""
        owner = ((run.get("head_repository") or {}).get("owner") or {}).get("login")
        head = quote(f"{owner}:{run.get('head_branch')}")
        open_ones = self._listed(f"{self._repository()}/pulls?state=open&head={head}")
        sha = run.get("head_sha")
        return [pull for pull in open_ones if (pull.get("head") or {}).get("sha") == sha]

    def _event(self) -> dict[str, Any]:
        file = self._variable(GITHUB.event)
        if not file:
            return {}
        try:
            event = json.loads(Path(file).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise NoticeError(f"the file of {GITHUB.event} cannot be read") from None
        return event if isinstance(event, dict) else {}

    def _headers(self) -> Mapping[str, str]:
        return {
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {self._token()}",
        }

    def _author(self) -> object:
        # The token of a job may not ask the REST interface who it is. Others have no such
        # interface, and some name one all the same.
        if graphql := self._variable(GITHUB.graphql):
            with suppress(RefusedError):
                found = self._object("POST", graphql, {"query": "query { viewer { login } }"})
                return ((found.get("data") or {}).get("viewer") or {}).get("login")
        api = self._repository().partition("/repos/")[0]
        return self._object("GET", f"{api}/user").get("login")

    def _author_of(self, comment: Mapping[str, Any]) -> object:
        return (comment.get("user") or {}).get("login")

    def _address_of(self, base: str, comment: int) -> str:
        del base
        return f"{self._repository()}/issues/comments/{comment}"


@final
class GitLabComments(Comments):
    """Notes of a merge request of GitLab."""

    _forge = GITLAB
    _update_method = "PUT"

    def _base(self) -> str | None:
        api, number = self._variable(GITLAB.api), self._variable(GITLAB.pull_request)
        project = self._variable(*GITLAB.repositories)
        if not (api and number and project):
            return None
        return f"{api}/projects/{quote(project, safe='')}/merge_requests/{number}/notes"

    def _safe(self, markdown: str) -> str:
        """Have no line begin a quick action, such as ``/merge``."""
        return _QUICK_ACTION.sub(r"\1\\", markdown)

    def _headers(self) -> Mapping[str, str]:
        return {"PRIVATE-TOKEN": self._token()}

    def _author(self) -> object:
        return self._object("GET", f"{self._variable(GITLAB.api)}/user").get("id")

    def _author_of(self, comment: Mapping[str, Any]) -> object:
        return (comment.get("author") or {}).get("id")

    def _address_of(self, base: str, comment: int) -> str:
        return f"{base}/{comment}"


def _marker(cluster: str | None, label: str) -> str:
    words = (quote(word, safe="") for word in (cluster or "", label))
    return f"<!-- pytest-dlperf {'/'.join(words)} -->"
