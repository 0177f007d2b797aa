"""Writes baseline files: under a lock, read back before they are kept, in one step."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pytest_dlperf import config
from pytest_dlperf.baselines.document import Document, LayoutError, as_text
from pytest_dlperf.baselines.reading import read_baselines
from pytest_dlperf.config.cluster import CLUSTER_FILE
from pytest_dlperf.files.locks import locked, write_whole
from pytest_dlperf.files.yamlfile import YamlError, read_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_dlperf.baselines.reading import Baselines
    from pytest_dlperf.config.cluster import Cluster
    from pytest_dlperf.model.baseline import AcceptedSession, Baseline

LOCK_LIMIT_S: Final = 60.0
"""Seconds to wait for another session that writes; one takes a few milliseconds."""

SCHEMAS: Final = Path(config.__file__).parent / "schemas"
"""The JSON Schemas that ship with the package, for editors."""
SCHEMA_FOLDER: Final = ".schema"
"""The folder, beside those of the clusters, where editors find them for recorded files."""

_WRONG_SHOWN: Final = 3


class BaselineFile:
    """A system's file under the cluster's lock; ``standing`` is what it says."""

    def __init__(self, cluster: Cluster, system: str, new_text: str) -> None:
        """Read the file, or take ``new_text`` for one that is to be made."""
        self.file = cluster.directory / f"{system}.yaml"
        self._cluster = cluster
        self._system = system
        self._text = read_text(self.file) if self.file.exists() else new_text
        self.standing = self._read(self._text)

    def write(self, wanted: Baselines, *, recorded: str = "") -> None:
        """Have the file say what is wanted; lines that need no change keep their bytes.

        ``recorded`` is the day of new entries. The text is read back before it is kept; after any
        error the old file stands.
        """
        try:
            document = Document(self._text)
            for key in self.standing.keys() - wanted.keys():
                document.delete(key)
            for key, now in wanted.items():
                self._change(document, key, now, recorded)
            text = document.text()
        except LayoutError as error:
            raise self._cannot_be_changed(str(error)) from error
        self._read_back(text, wanted)
        folder = self._cluster.directory
        _write_schemas(folder, text)
        if not (folder / CLUSTER_FILE).exists():
            write_whole(folder / CLUSTER_FILE, _new_cluster_file(self._cluster))
        write_whole(self.file, text)

    def _change(
        self, document: Document, key: tuple[str, str], now: Baseline, recorded: str
    ) -> None:
        machine = self._cluster.machine
        before = self.standing.get(key)
        if before is None:
            new = {**_values(now, machine), "recorded": recorded}
            document.set(key, {name: value for name, value in new.items() if value is not None})
            return
        if now == before:
            return
        old, new = _values(before, machine), _values(now, machine)
        document.set(key, {name: new[name] for name in new if new[name] != old[name]})
        if now.sessions != before.sessions:
            kept = _overlap(before.sessions, now.sessions)
            more = [{"at": one.at, "runs": list(one.runs)} for one in now.sessions[kept:]]
            document.set_sessions(key, drop=len(before.sessions) - kept, more=more)

    def _read(self, text: str) -> Baselines:
        return read_baselines(self.file, self._system, self._cluster.machine, text=text)

    def _read_back(self, text: str, wanted: Baselines) -> None:
        try:
            now = self._read(text)
        except YamlError as error:
            message = f"it would not be read: {error.problems[0].message}"
            raise self._cannot_be_changed(message) from error
        wrong = [
            "-".join(key)
            for key in {**wanted, **now}
            if key not in now or key not in wanted or not is_same(now[key], wanted[key])
        ]
        if wrong:
            named = ", ".join(wrong[:_WRONG_SHOWN])
            raise self._cannot_be_changed(f"it would change what is read of {named}")

    def _cannot_be_changed(self, why: str) -> YamlError:
        message = (
            f"the file is laid out in a way that cannot be changed line by line ({why}); change "
            "the entries by hand"
        )
        return YamlError.at(self.file, message, path="$.entries")


@contextmanager
def opened(cluster: Cluster, system: str, *, new_text: str = "") -> Iterator[BaselineFile]:
    """Hold a system's file, so that nobody else changes it between reading and writing.

    ``new_text`` is that of a file that is to be made, where there is none.
    """
    with locked(cluster.directory / ".lock", limit_s=LOCK_LIMIT_S):
        yield BaselineFile(cluster, system, new_text)


def is_same(one: Baseline, other: Baseline) -> bool:
    """Whether two baselines say the same; they may stand on different lines."""
    return replace(one, place="") == replace(other, place="")


# ------------------------------------------------------------------------ an entry's values


def _values(baseline: Baseline, machine: Mapping[str, str]) -> dict[str, Any]:
    """An entry's values, but for those that people write; ``None`` where there is none."""
    accepted = asdict(baseline.accepted) if baseline.accepted else {}
    return {
        "throughput": baseline.throughput,
        "speedup": baseline.speedup,
        "mean": baseline.mean,
        "runs": dict(baseline.runs) or None,
        "strays": dict(baseline.strays) or None,
        "accepted": {name: fact for name, fact in accepted.items() if fact not in (None, (), {})}
        or None,
        "machine": None if baseline.machine == machine else dict(baseline.machine),
    }


def _overlap(before: tuple[AcceptedSession, ...], now: tuple[AcceptedSession, ...]) -> int:
    """How many sessions stay: the last of those before, which are the first of those now."""
    sizes = range(min(len(before), len(now)), 0, -1)
    return next((size for size in sizes if before[-size:] == now[:size]), 0)


# ------------------------------------------------------------------------------------ new files


def new_file(system: str, unit: str, estimator: str, provenance: Mapping[str, str]) -> str:
    """The text of a system's file without any entry."""
    head: dict[str, Any] = {"system": system, "unit": unit, "estimator": estimator}
    if provenance:
        head["provenance"] = dict(provenance)
    return f"{_schema_comment('baselines')}\n{as_text({**head, 'entries': None})}"


def _new_cluster_file(cluster: Cluster) -> str:
    return (
        f"{_schema_comment('cluster')}\n"
        "description: this machine's own numbers, recorded by --dlperf-create-baselines\n"
        f"estimator: {cluster.estimator.value}\n"
    )


def _schema_comment(name: str) -> str:
    return f"# yaml-language-server: $schema=../{SCHEMA_FOLDER}/{name}.json"


def _write_schemas(folder: Path, text: str) -> None:
    """Lay the schemas where a file of this text, if it names them, has them looked for."""
    if f"../{SCHEMA_FOLDER}/" not in text:
        return
    for shipped in sorted(SCHEMAS.glob("*.json")):
        file = folder.parent / SCHEMA_FOLDER / shipped.name
        wanted = shipped.read_text(encoding="utf-8")
        try:
            stands = file.read_text(encoding="utf-8") == wanted
        except (OSError, UnicodeDecodeError):
            stands = False
        if not stands:
            write_whole(file, wanted)
