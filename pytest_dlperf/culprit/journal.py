"""The runs of a search, a line of JSON each: one that was killed goes on from there.

And what searches have found, beside the history: later sessions tell it again.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import MsgspecError, Struct, json
from msgspec.structs import replace

from pytest_dlperf.files.checkouts import git_or_nothing
from pytest_dlperf.files.locks import LockError, locked
from pytest_dlperf.files.writing import make_folder
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.judgement import FoundCulprit
from pytest_dlperf.model.results import parse_time

WORK: Final = ".dlperf/bisect"
"""Worktrees and runs are below this folder, unless the user names another."""
_FOUND: Final = "found.jsonl"
_SITTING_S: Final = 3600.0
"""After so many seconds without a run, hosts may have another level."""


class Run(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run, or why there is none."""

    setting: int
    sitting: int
    is_end: bool = False
    """Whether it was to show that both ends differ."""
    value: float | None = None
    problem: str | None = None
    seconds: float = 0.0
    """With those of the build."""
    ended: float = 0.0
    """When it was over, in seconds of the Unix epoch."""
    hosts: tuple[str, ...] = ()


class Journal:
    """The runs of one search, in a folder that one process at a time may add to."""

    def __init__(self, folder: Path) -> None:
        """Take the folder, and read what was done before."""
        self.folder = folder.absolute()
        make_folder(self.folder)
        try:
            self._lock = locked(self.folder / "lock", limit_s=0)
        except LockError as error:
            raise UsageError(f"another process is at this search: {error}") from error
        self._file = self.folder / "runs.jsonl"
        self.runs = self._read()

    @property
    def is_stale(self) -> bool:
        """Whether hosts may have another level since the last run."""
        return bool(self.runs) and time.time() - self.runs[-1].ended > _SITTING_S

    def add(self, run: Run) -> None:
        """Append a run, and see it on the disk before anything else is done."""
        with self._file.open("ab") as file:
            file.write(json.encode(run) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.runs.append(run)

    def release(self) -> None:
        """Let another process go on."""
        self._lock.lock.release()

    def _read(self) -> list[Run]:
        if not self._file.exists():
            return []
        content = self._file.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:  # a kill, or a full disk, has cut the last line
            os.truncate(self._file, len(whole))
        try:
            return json.Decoder(Run).decode_lines(whole)
        except MsgspecError as error:
            raise UsageError(
                f"{self._file} is not what a search has written: {error}; move its folder away to "
                "search anew"
            ) from error


class FoundCommit(Struct, frozen=True, kw_only=True):
    """A commit that changed a number."""

    repository: str
    """Path of its checkout."""
    name: str

    def is_lost(self) -> bool:
        """Whether the checkout has it no longer; of a shallow clone that is not known."""
        shallow = git_or_nothing(Path(self.repository), "rev-parse", "--is-shallow-repository")
        return shallow == "false" and not self.is_in("HEAD")

    def is_in(self, commit: str) -> bool:
        """Whether another commit has it: it is an ancestor, and was not reverted since."""
        folder, commit = Path(self.repository), commit.partition("+")[0]
        if not git_or_nothing(folder, "merge-base", self.name, commit).startswith(self.name):
            return False
        words = ("log", "--abbrev=12", "--format=%h", "--fixed-strings")
        reverted = f"--grep=This reverts commit {self.name}"
        reverts = git_or_nothing(folder, *words, reverted, f"{self.name}..{commit}", "--")
        return not any(replace(self, name=one).is_in(commit) for one in reverts.split())


class FoundEntry(Struct, frozen=True, kw_only=True):
    """What a search has found, for the explanations of later sessions."""

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


def note_found(history: Path, found: FoundEntry) -> None:
    """Add a finding to those beside a history: it goes wherever later sessions find that."""
    make_folder(history.parent)
    with history.with_name(_FOUND).open("ab") as file:
        file.write(json.encode(found) + b"\n")


def found_since(history: Path, case_id: str, metric: str, since: str) -> list[FoundEntry]:
    """List what was found of a number since a time; lines that cannot be read are left out."""
    entries = []
    with suppress(OSError):
        for line in history.with_name(_FOUND).read_bytes().splitlines():
            with suppress(MsgspecError, UnicodeDecodeError):
                entries.append(json.decode(line, type=FoundEntry))
    about, began = (case_id, metric), parse_time(since)
    return [
        one for one in entries if (one.case_id, one.metric) == about and parse_time(one.at) >= began
    ]
