"""Changes accepted numbers on disk: under a lock, read back first, of all systems or of none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from pytest_dlperf.baselines.document import Document, LayoutError, as_text
from pytest_dlperf.baselines.reading import Definition, defined_as, read_contents
from pytest_dlperf.config.cluster import CLUSTER_FILE, Cluster
from pytest_dlperf.files.locks import locked
from pytest_dlperf.files.writing import SCHEMA_FOLDER, write_whole
from pytest_dlperf.files.yamlfile import YamlError, read_text
from pytest_dlperf.model.baseline import Baseline, BaselineKeys
from pytest_dlperf.model.case import SINGLE_DEVICE, Case
from pytest_dlperf.model.metric import SHARED, Metric

MAX_LOCK_WAIT_S: Final = 60.0
"""Seconds to wait for another session that writes; one takes a few milliseconds."""


class ChangeKind(StrEnum):
    """Kinds of change to the accepted number of a metric."""

    CREATE = "create"
    """A first number."""
    ACCEPT = "accept"
    """Another number; the sessions added to the old one go."""
    EXTEND = "extend"
    """The runs of one more session; the accepted number stays."""
    NOTE = "note"
    """How far a changed session lies from the others; nothing else changes."""


class Change(Struct, frozen=True, kw_only=True):
    """A session's change to the accepted number of one metric of one case."""

    kind: ChangeKind
    case: Case
    metric: Metric
    known: Baseline | None = None
    """What the session was judged against, if anything."""
    now: Baseline
    """As it shall stand."""

    @property
    def key(self) -> tuple[str, str]:
        """Variant and topology, the key in ``load_baselines``."""
        return self.case.variant, str(self.case.topology)

    @property
    def is_accepted(self) -> bool:
        """Whether the number is another one."""
        return self.kind in (ChangeKind.CREATE, ChangeKind.ACCEPT)


class RecordOutcome(Struct, frozen=True, kw_only=True):
    """A session's changes: those made, and those refused, with the reason."""

    done: tuple[Change, ...] = ()
    refused: tuple[tuple[Change, str], ...] = ()


def record(
    cluster: Cluster, changes: Iterable[Change], *, provenance: Mapping[str, str]
) -> RecordOutcome:
    """Change a cluster's accepted numbers, all in one step; after an error the old files stand.

    A change is refused if another session has changed the number that this session was judged
    against. ``provenance`` goes into new files.

    Raises:
        YamlError: A file that is there has mistakes or cannot be changed.
        LockError: The cluster's lock cannot be acquired.
        OSError: A file or its folder cannot be written.
    """
    refused: list[tuple[Change, str]] = []
    files: dict[str, _BaselineFile] = {}
    with locked(cluster.directory / ".lock", limit_s=MAX_LOCK_WAIT_S):
        for change in changes:
            system = change.case.system
            file = files.setdefault(system, _BaselineFile(cluster, system, provenance))
            if (why := file.why_not(change)) is None:
                file.changes.append(change)
            else:
                refused.append((change, why))
        changed = [file for file in files.values() if file.changes]
        _write(cluster, {file: file.new_text() for file in changed})
    done = tuple(change for file in changed for change in file.changes)
    return RecordOutcome(done=done, refused=tuple(refused))


def _write(cluster: Cluster, texts: Mapping[_BaselineFile, str]) -> None:
    folder = cluster.directory
    if any(f"../{SCHEMA_FOLDER}/" in text for text in texts.values()):
        from pytest_dlperf.baselines.schemas import write_schemas

        write_schemas(folder.parent / SCHEMA_FOLDER)
    if texts and not (folder / CLUSTER_FILE).exists():
        head = {
            "description": "this machine's own numbers, recorded by --dlperf-create-baselines",
            "estimator": cluster.estimator.value,
        }
        write_whole(folder / CLUSTER_FILE, _new_file("cluster", head))
    try:
        for one, text in texts.items():
            write_whole(one.file, text)
    except OSError:
        for one in texts:
            with suppress(OSError):
                if one.is_new:
                    one.file.unlink(missing_ok=True)
                else:
                    write_whole(one.file, one.text)
        raise


class _BaselineFile:
    """A system's file, and its changes."""

    def __init__(self, cluster: Cluster, system: str, provenance: Mapping[str, str]) -> None:
        self.file = cluster.directory / f"{system}.yaml"
        self.is_new = not self.file.exists()
        self.changes: list[Change] = []
        self._machine = cluster.machine
        estimator = cluster.estimator.value
        head: dict[str, Any] = {"system": system, "metrics": None, "estimator": estimator}
        head |= {"provenance": dict(provenance)} if provenance else {}
        head["entries"] = None
        self.text = _new_file("baselines", head) if self.is_new else read_text(self.file)
        self._contents = read_contents(self.file, self._machine, self.text)

    def why_not(self, change: Change) -> str | None:
        """Return why a change is refused; ``None`` if it is not."""
        contents, known = self._contents, change.known
        if contents.estimator is not change.now.estimator:
            return (
                f"{self.file} is {contents.estimator.value}, this session measured "
                f"{change.now.estimator.value}"
            )
        name, new = defined_as(change.metric.name), Definition.of(change.metric)
        is_used = any(name == defined_as(one) for its in contents.baselines.values() for one in its)
        if is_used and new != (defined := contents.metrics[name]):
            return (
                f"{contents.places[name]} has {change.metric.name} in {defined}, and this session "
                f"measured {new}; delete the metric from the file to record it anew"
            )
        standing = contents.baselines.get(change.key, {}).get(change.metric.name)
        if _without_place(standing) == _without_place(known):
            return None
        place = next((one.place for one in (standing, known) if one is not None), self.file)
        return f"another session has changed {place} meanwhile; run again to be judged against it"

    def new_text(self) -> str:
        """Return the text with all changes, as it is read back.

        Raises:
            YamlError: Something else would change with them.
        """
        contents, machine = self._contents, self._machine
        wanted = {key: dict(entry) for key, entry in contents.baselines.items()}
        for change in self.changes:
            wanted.setdefault(change.key, {})[change.metric.name] = change.now
        try:
            document, defined = Document(self.text), dict(contents.metrics)
            # An entry with more metrics than others knows best where each belongs.
            keys = [change.key for change in self.changes]
            for change in sorted(self.changes, key=lambda change: -keys.count(change.key)):
                name, definition = defined_as(change.metric.name), Definition.of(change.metric)
                if definition is not None and defined.get(name) != definition:
                    defined[name] = definition
                    document.define(name, _written(to_builtins(definition)))
            for key in dict.fromkeys(keys):
                old = _entry(contents.baselines.get(key, {}), machine)
                document.change(key, old, _entry(wanted[key], machine))
            text = document.text()
            read = read_contents(self.file, machine, text).baselines
        except (LayoutError, YamlError) as error:
            raise self._cannot_be_changed(str(error)) from error
        for key in {**wanted, **read}:
            if _entry(read.get(key, {}), machine) != _entry(wanted.get(key, {}), machine):
                raise self._cannot_be_changed(f"it would change what is read of {'-'.join(key)}")
        return text

    def _cannot_be_changed(self, why: str) -> YamlError:
        message = f"the file is laid out in a way that cannot be changed ({why}); do it by hand"
        return YamlError.at(self.file, message, path="$.entries")


def _without_place(baseline: Baseline | None) -> Baseline | None:
    return None if baseline is None else replace(baseline, place="")


def _entry(baselines: Mapping[str, Baseline], machine: Mapping[str, str]) -> dict[str, Any]:
    """Return what a file says of a case; what most of its metrics share is said once."""
    metrics: dict[str, dict[str, Any]] = {}
    for name, baseline in baselines.items():
        keys = to_builtins(baseline)
        metrics[name] = _written({key: keys[key] for key in BaselineKeys.__struct_fields__})
        if baseline.reference == str(SINGLE_DEVICE):
            del metrics[name]["reference"]
        # The cluster may know more facts than were found.
        if all(machine.get(fact) == found for fact, found in baseline.machine.items()):
            metrics[name].pop("machine", None)
    shared = {}
    for key in SHARED:
        values = [one.get(key) for one in metrics.values()]
        # A metric cannot unset a value of its entry.
        if values and None not in values:
            shared[key] = max(values[::-1], key=values.count)
            for one in metrics.values():
                if one[key] == shared[key]:
                    del one[key]
    return {**metrics, **shared}


def _written(value: Any) -> Any:
    """Return a value without what is left out, and in text that UTF-8 can hold."""
    if isinstance(value, str):
        # Names of files and variables may hold any bytes.
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        every = {_written(key): _written(one) for key, one in value.items()}
        return {key: one for key, one in every.items() if one not in (None, {}, [])}
    return [_written(one) for one in value] if isinstance(value, (list, tuple)) else value


def _new_file(schema: str, values: Mapping[str, Any]) -> str:
    return f"# yaml-language-server: $schema=../{SCHEMA_FOLDER}/{schema}.json\n{as_text(values)}"
