"""What a search has done, a line of JSON each: one that was killed goes on from there.

And what searches have found, beside the history: later sessions tell it again.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, ValidationError, convert, to_builtins
from msgspec.structs import replace

from pytest_dlperf.culprit.search import Levels
from pytest_dlperf.files.checkouts import git
from pytest_dlperf.files.locks import HeldLock, LockError
from pytest_dlperf.files.writing import make_folder
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.judgement import FoundCulprit
from pytest_dlperf.model.results import parse_time

WORK: Final = ".dlperf/bisect"
"""Worktrees and runs are below this folder, unless the user names another."""
_DIGEST: Final = 12
_FOUND: Final = "found.jsonl"
_NAME: Final = "runs.jsonl"
_SITTING_S: Final = 3600.0
"""After so many seconds without a run, hosts may have another level."""


class Run(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run, or why there is none."""

    setting: int
    sitting: int
    value: float | None = None
    problem: str | None = None
    seconds: float = 0.0
    """With those of the build."""
    ended: float = 0.0
    """When it was over, in seconds of the Unix epoch."""
    hosts: tuple[str, ...] = ()
    is_built: bool = True


class Entry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line: the question, a run, or what the runs before have shown of both ends."""

    question: Any = None
    run: Run | None = None
    levels: Levels | None = None


def named_by(question: Mapping[str, Any]) -> str:
    """Name the folder of a question: the same question finds it again."""
    text = json.dumps(to_builtins(question), sort_keys=True)
    return sha256(text.encode()).hexdigest()[:_DIGEST]


class FoundCommit(Struct, frozen=True, kw_only=True):
    """A commit that changed a number."""

    repository: str
    """Path of its checkout."""
    name: str

    def is_lost(self) -> bool:
        """Whether the checkout has it no longer; of a shallow clone that is not known."""
        is_shallow = git(Path(self.repository), "rev-parse", "--is-shallow-repository")
        return is_shallow == "false" and not self.is_in("HEAD")

    def is_in(self, commit: str) -> bool:
        """Whether another commit has it: it is an ancestor, and was not reverted since."""
        folder, commit = Path(self.repository), commit.partition("+")[0]
        if not git(folder, "merge-base", self.name, commit).startswith(self.name):
            return False
        reverted = ("--fixed-strings", f"--grep=This reverts commit {self.name}")
        short = ("--abbrev=12", "--format=%h")
        reverts = git(folder, "log", *short, *reverted, f"{self.name}..{commit}", "--")
        return not any(replace(self, name=one).is_in(commit) for one in reverts.split())


class FoundEntry(Struct, frozen=True, kw_only=True):
    """What a search has found, for the explanations of later nights."""

    case_id: str
    metric: str
    at: str
    """When it was found, ISO 8601 with its zone."""
    found: FoundCulprit
    commits: tuple[FoundCommit, ...] = ()
    """The culprits, if they are commits."""

    def is_lost(self) -> bool:
        """Whether no checkout has any of the culprits any longer."""
        return bool(self.commits) and all(one.is_lost() for one in self.commits)

    def is_in(self, commits: Iterable[str]) -> bool:
        """Whether any of these commits has a culprit."""
        return any(one.is_in(commit) for one in self.commits for commit in commits)


def note_found(history: Path, found: FoundEntry) -> None:
    """Add a finding to those beside a history: it goes wherever later nights find that."""
    make_folder(history.parent)
    with history.with_name(_FOUND).open("a", encoding="utf-8") as file:
        file.write(json.dumps(to_builtins(found)) + "\n")


def found_since(history: Path, case_id: str, metric: str, since: str) -> list[FoundEntry]:
    """List what was found of a number since a time; lines that cannot be read are left out."""
    try:
        lines = history.with_name(_FOUND).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        with suppress(ValueError, ValidationError):
            entry = convert(json.loads(line), FoundEntry)
            is_about = (entry.case_id, entry.metric) == (case_id, metric)
            if is_about and parse_time(entry.at) >= parse_time(since):
                found.append(entry)
    return found


class Journal:
    """The lines of one search, in a folder that one process at a time may add to."""

    def __init__(self, folder: Path, question: Mapping[str, Any]) -> None:
        """Take the folder, and read what was done before.

        Raises:
            UsageError: Another process searches there, or a line cannot be read.
        """
        self.folder = folder.absolute()
        make_folder(self.folder)
        try:
            self._lock = HeldLock(self.folder / "lock")
        except LockError as error:
            raise UsageError(f"another process is at this search: {error}") from error
        self._file = self.folder / _NAME
        self._entries = self._read()
        if not self._entries:
            self.add(Entry(question=to_builtins(question)))
        last = self.runs[-1] if self.runs else Run(setting=0, sitting=0)
        is_new = bool(self.runs) and time.time() - last.ended > _SITTING_S
        self.sitting = last.sitting + is_new
        """The last one, where that was just now: a killed search is begun again at once."""
        self.hosts = () if is_new else last.hosts
        """Where its runs were."""

    @property
    def runs(self) -> list[Run]:
        """All runs, in their order."""
        return [one.run for one in self._entries if one.run is not None]

    @property
    def levels(self) -> tuple[Levels, int] | None:
        """What is known of both ends, and how many runs it took; ``None`` while it is open."""
        runs = 0
        for one in self._entries:
            runs += one.run is not None
            if one.levels is not None:
                return one.levels, runs
        return None

    def add(self, entry: Entry) -> None:
        """Append a line, and see it on the disk before anything else is done."""
        line = json.dumps(to_builtins(entry)) + "\n"
        with self._file.open("ab") as file:
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())
        self._entries.append(entry)

    def release(self) -> None:
        """Let another process go on."""
        self._lock.release()

    def _read(self) -> list[Entry]:
        if not self._file.exists():
            return []
        content = self._file.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:  # a kill, or a full disk, has cut the last line
            with self._file.open("r+b") as file:
                file.truncate(len(whole))
        try:
            return [convert(json.loads(line), Entry) for line in whole.splitlines()]
        except (ValueError, ValidationError) as error:
            raise UsageError(
                f"{self._file} is not what a search has written: {error}; move its folder away to "
                "search anew"
            ) from error
