"""Writes baseline files: under a lock, read back before they are kept, in one step."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pytest_dlperf import config
from pytest_dlperf.baselines.document import Document, LayoutError, as_text
from pytest_dlperf.baselines.reading import Definition, Entry, read_contents
from pytest_dlperf.config.cluster import CLUSTER_FILE
from pytest_dlperf.files.locks import locked
from pytest_dlperf.files.writing import write_whole
from pytest_dlperf.files.yamlfile import YamlError, read_text
from pytest_dlperf.model.baseline import Acceptance, AcceptedSession
from pytest_dlperf.model.case import SINGLE_DEVICE
from pytest_dlperf.model.measurement import LaunchFacts
from pytest_dlperf.model.metric import SHARED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_dlperf.baselines.reading import Baselines, CaseKey
    from pytest_dlperf.config.cluster import Cluster
    from pytest_dlperf.model.baseline import Baseline
    from pytest_dlperf.model.metric import Metric

LOCK_LIMIT_S: Final = 60.0
"""Seconds to wait for another session that writes; one takes a few milliseconds."""

SCHEMAS: Final = Path(config.__file__).parent / "schemas"
"""The JSON Schemas that ship with the package, for editors."""
SCHEMA_FOLDER: Final = ".schema"
"""The folder, beside those of the clusters, where editors find them for recorded files."""

_WRONG_SHOWN: Final = 3
_PLAIN: Final = re.compile(r"[A-Za-z0-9_@%+=:,./{}-]+")


class BaselineFile:
    """A system's file under the cluster's lock; ``standing`` is what it says."""

    def __init__(self, cluster: Cluster, system: str, new_text: str) -> None:
        """Read the file, or take ``new_text`` for one that is to be made."""
        self.file = cluster.directory / f"{system}.yaml"
        self._cluster = cluster
        self._system = system
        self._text = read_text(self.file) if self.file.exists() else new_text
        self._contents = read_contents(self.file, system, text=self._text)
        self.standing = self._contents.baselines(cluster.machine)

    def why_other_kind(self, metric: Metric) -> str | None:
        """Say why the file can take no number of a metric: it has those of another kind."""
        estimator = self._cluster.estimator
        if self._contents.estimator is not estimator:
            return (
                f"{self.file} is {self._contents.estimator.value}, this session measured "
                f"{estimator.value}"
            )
        known, new = self._contents.metrics.get(metric.name), Definition.of(metric)
        is_free = not any(metric.name in entry for entry in self.standing.values())
        if known is None or known == new or is_free:
            return None
        return (
            f"{known.place} has {metric.name} in {known}, and this session measured {new}; "
            f"`pytest-dlperf baselines delete '{self._system}-*' --metric {metric.name}` makes room"
        )

    def write(self, wanted: Baselines, *, recorded: str = "") -> None:
        """Have the file say what is wanted; lines that need no change keep their bytes.

        ``recorded`` is the day of new entries. The text is read back before it is kept; after any
        error the old file stands.
        """
        try:
            document = Document(self._text)
            # An entry with more metrics than others knows best where each belongs.
            fullest = sorted(wanted.values(), key=len, reverse=True)
            used = {name: Definition.of(one) for entry in fullest for name, one in entry.items()}
            for name, definition in used.items():
                if definition != self._contents.metrics.get(name):
                    document.define(name, definition)
            for key in self.standing.keys() - wanted.keys():
                document.delete(key)
            for key, now in wanted.items():
                if now != self.standing.get(key):
                    self._change(document, key, now, recorded)
            # Of what kind the next number of a metric is, the last one that goes does not say.
            for name in {name for entry in self.standing.values() for name in entry} - used.keys():
                document.define(name, None)
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
        self, document: Document, key: CaseKey, now: Mapping[str, Baseline], recorded: str
    ) -> None:
        before = self._contents.entries.get(key, Entry({}, {}))
        after = _laid_out(now, self._cluster.machine, before)
        document.set(key, dict.fromkeys(before.metrics.keys() - now.keys()))
        for name, values in after.metrics.items():
            document.set(key, _changed(before.metrics.get(name, {}), values), metric=name)
        shared = _changed(before.shared, after.shared)
        document.set(key, shared if before.metrics else {**shared, "recorded": recorded})

    def _read_back(self, text: str, wanted: Baselines) -> None:
        try:
            contents = read_contents(self.file, self._system, text=text)
        except YamlError as error:
            message = f"it would not be read: {error.problems[0].message}"
            raise self._cannot_be_changed(message) from error
        now, then = (
            {(*key, name): one for key, entry in baselines.items() for name, one in entry.items()}
            for baselines in (contents.baselines(self._cluster.machine), wanted)
        )
        wrong = [
            " ".join(("-".join(key[:2]), key[2]))
            for key in {**then, **now}
            if key not in now or key not in then or not is_same(now[key], then[key])
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


def _laid_out(
    baselines: Mapping[str, Baseline], machine: Mapping[str, str], before: Entry
) -> Entry:
    """Lay out an entry by its keys, ``None`` where there is nothing, but for those of people.

    What most metrics share is said once for the entry; of two that are as frequent, what was said
    ``before`` stays.
    """
    metrics: dict[str, dict[str, Any]] = {
        name: {
            "accepted": baseline.accepted,
            "mean": baseline.mean,
            "over": baseline.over,
            "reference": None if baseline.reference == str(SINGLE_DEVICE) else baseline.reference,
            "runs": baseline.runs or None,
            "strays": baseline.strays or None,
            "sessions": baseline.sessions or None,
            "acceptance": baseline.acceptance,
            "machine": None if baseline.machine == machine else baseline.machine,
        }
        for name, baseline in baselines.items()
    }
    shared: dict[str, Any] = {}
    for key in SHARED:
        said = [values[key] for values in metrics.values()]
        stands = [one for one in [before.shared.get(key)] if one in said]
        # What is said for the entry cannot be taken back for one of its metrics.
        shared[key] = None if None in said else max(stands + said, key=said.count)
        for values in metrics.values():
            values[key] = None if values[key] == shared[key] else values[key]
    return Entry(metrics, shared)


def _changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Find what is said otherwise than before, as it is written; ``None`` where it goes."""
    return {
        name: _written(value) for name, value in new.items() if value != (old.get(name) or None)
    }


def _written(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_written(one) for one in value]
    if isinstance(value, (Acceptance, AcceptedSession, LaunchFacts)):
        facts = {field.name: getattr(value, field.name) for field in fields(value)}
        if isinstance(value, LaunchFacts):
            # As it is typed: people read it, and try it in a terminal.
            facts = {"launcher": value.launcher, "command": _command_line(value.arguments), **facts}
            del facts["arguments"]
        return {name: _written(fact) for name, fact in facts.items() if fact not in (None, (), {})}
    return dict(value) if isinstance(value, Mapping) else value


def _command_line(arguments: Iterable[str]) -> str:
    """Quote as a shell has it; what a run fills in, ``{python}``, needs no quotes."""
    return " ".join(one if _PLAIN.fullmatch(one) else shlex.quote(one) for one in arguments)


# ------------------------------------------------------------------------------------ new files


def new_file(system: str, estimator: str, provenance: Mapping[str, str]) -> str:
    """The text of a system's file without any entry."""
    head: dict[str, Any] = {"system": system, "metrics": None, "estimator": estimator}
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
