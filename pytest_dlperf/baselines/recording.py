"""Changes a system's accepted numbers: under a lock, in one step, read back first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import partial
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import asdict, replace

from pytest_dlperf.baselines.document import (
    Document,
    LayoutError,
    as_text,
    changed_values,
    entry_of,
)
from pytest_dlperf.baselines.reading import (
    Baselines,
    CaseKey,
    Definition,
    Entry,
    defined_as,
    read_contents,
    significant,
)
from pytest_dlperf.config.cluster import CLUSTER_FILE, Cluster
from pytest_dlperf.files.locks import locked
from pytest_dlperf.files.writing import SCHEMA_FOLDER, write_whole
from pytest_dlperf.files.yamlfile import YamlError, read_text
from pytest_dlperf.model import statistics
from pytest_dlperf.model.baseline import (
    ROLLING_SESSIONS,
    Acceptance,
    AcceptedSession,
    Baseline,
    Spread,
)
from pytest_dlperf.model.case import SINGLE_DEVICE, Case
from pytest_dlperf.model.measurement import Estimator, LaunchFacts
from pytest_dlperf.model.metric import Metric

MAX_LOCK_WAIT_S: Final = 60.0
"""Seconds to wait for another session that writes; one takes a few milliseconds."""

_MAX_SHOWN: Final = 3


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
    """A session's change to the accepted number of one metric of one case.

    ``known`` is the baseline that the session was judged against, if any. ``number`` is the new
    one, ``None`` for ``EXTEND`` and ``NOTE``. ``runs`` are the runs that it rests on; a ratio has
    none, but was taken ``over`` the reference topology's number. ``at`` is the start of the session
    (ISO 8601 with its zone).
    """

    kind: ChangeKind
    case: Case
    metric: Metric
    known: Baseline | None = None
    number: float | None = None
    runs: Mapping[int, float] = {}
    over: float | None = None
    at: str
    acceptance: Acceptance | None = None
    spread: Spread = Spread()
    """How sessions differ, with this one."""
    machine: Mapping[str, str] = {}

    @property
    def key(self) -> tuple[str, str]:
        """Variant and topology, the key in ``load_baselines``."""
        return self.case.variant, str(self.case.topology)


class RecordOutcome(Struct, frozen=True, kw_only=True):
    """A session's changes: those made, and those refused, with the reason."""

    done: tuple[Change, ...] = ()
    refused: tuple[tuple[Change, str], ...] = ()


def record(
    cluster: Cluster, system: str, changes: Iterable[Change], *, provenance: Mapping[str, str]
) -> RecordOutcome:
    """Change a system's accepted numbers, all in one step.

    A change is refused if another session has changed the number that this session was judged
    against. Unchanged lines keep their bytes. ``provenance`` goes into a new file.

    Raises:
        YamlError: The file that is there has mistakes or cannot be changed line by line.
        LockError: The cluster's lock cannot be acquired.
        OSError: The file or its folder cannot be written.
    """
    new_text = new_file(system, cluster.estimator.value, provenance)
    done: list[Change] = []
    refused: list[tuple[Change, str]] = []
    with locked(cluster.directory / ".lock", limit_s=MAX_LOCK_WAIT_S):
        file = BaselineFile(cluster, system, new_text)
        wanted = {key: dict(entry) for key, entry in file.standing.items()}
        for change in changes:
            standing = file.standing.get(change.key, {}).get(change.metric.name)
            why = file.why_other_kind(change.metric) or _why_not(change, standing)
            if why is not None:
                refused.append((change, why))
                continue
            now = _after(_as_kept(change), standing, cluster)
            wanted.setdefault(change.key, {})[change.metric.name] = now
            done.append(change)
        if done:
            file.write(wanted)
    return RecordOutcome(done=tuple(done), refused=tuple(refused))


class BaselineFile:
    """A system's file under the cluster's lock; ``standing`` are its baselines."""

    def __init__(self, cluster: Cluster, system: str, new_text: str) -> None:
        self.file = cluster.directory / f"{system}.yaml"
        self._cluster = cluster
        self._system = system
        self._text = read_text(self.file) if self.file.exists() else new_text
        self._contents = read_contents(self.file, system, text=self._text)
        self.standing = self._contents.baselines(cluster.machine)

    def why_other_kind(self, metric: Metric) -> str | None:
        """Return why the file's numbers of a metric are of another kind; ``None`` if not."""
        estimator = self._cluster.estimator
        if self._contents.estimator is not estimator:
            return (
                f"{self.file} is {self._contents.estimator.value}, this session measured "
                f"{estimator.value}"
            )
        name = defined_as(metric.name)
        known, new = self._contents.metrics.get(name), Definition.of(metric)
        is_free = all(name != defined_as(one) for entry in self.standing.values() for one in entry)
        if known is None or known.is_same(new) or is_free:
            return None
        return (
            f"{known.place} has {metric.name} in {known}, and this session measured {new}; "
            "delete the metric from the file to record it anew"
        )

    def write(self, wanted: Baselines) -> None:
        """Write the wanted baselines; unchanged lines keep their bytes.

        The text is read back first; after any error the old file stands.
        """
        try:
            document = Document(self._text)
            # An entry with more metrics than others knows best where each belongs.
            fullest = sorted(wanted.values(), key=len, reverse=True)
            used = {
                defined_as(name): Definition.of(one)
                for entry in fullest
                for name, one in entry.items()
            }
            for name, definition in used.items():
                if definition and not definition.is_same(self._contents.metrics.get(name)):
                    document.define(name, definition)
            for key, now in wanted.items():
                if now != self.standing.get(key):
                    self._change(document, key, now)
            text = document.text()
        except LayoutError as error:
            raise self._cannot_be_changed(str(error)) from error
        self._read_back(text, wanted)
        folder = self._cluster.directory
        if f"../{SCHEMA_FOLDER}/" in text:
            from pytest_dlperf.baselines.schemas import write_schemas

            write_schemas(folder.parent / SCHEMA_FOLDER)
        if not (folder / CLUSTER_FILE).exists():
            write_whole(folder / CLUSTER_FILE, _new_cluster_file(self._cluster))
        write_whole(self.file, text)

    def _change(self, document: Document, key: CaseKey, now: Mapping[str, Baseline]) -> None:
        before = self._contents.entries.get(key, Entry({}, {}))
        after = entry_of(now, self._cluster.machine, before)
        for name, values in after.metrics.items():
            document.set(key, changed_values(before.metrics.get(name, {}), values), metric=name)
        document.set(key, changed_values(before.shared, after.shared))

    def _read_back(self, text: str, wanted: Baselines) -> None:
        try:
            contents = read_contents(self.file, self._system, text=text)
        except YamlError as error:
            message = f"it would not be read: {error.diagnostics[0].message}"
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
            named = ", ".join(wrong[:_MAX_SHOWN])
            raise self._cannot_be_changed(f"it would change what is read of {named}")

    def _cannot_be_changed(self, why: str) -> YamlError:
        message = (
            f"the file is laid out in a way that cannot be changed line by line ({why}); change "
            "the entries by hand"
        )
        return YamlError.at(self.file, message, path="$.entries")


def is_same(one: Baseline, other: Baseline) -> bool:
    """Whether two baselines are equal, wherever they stand."""
    return replace(one, place="") == replace(other, place="")


# ---------------------------------------------------------------------------- changes


def _why_not(change: Change, standing: Baseline | None) -> str | None:
    if change.known is None:
        if standing is None:
            return None
        return (
            f"another session has recorded {standing.accepted:g} at {standing.place} meanwhile; "
            "run again to be judged against it"
        )
    if standing is None:
        return (
            f"the number that this session was judged against is gone from {change.known.place}; "
            "run again"
        )
    if not is_same(change.known, standing):
        return f"{standing.place} was changed meanwhile; run again to be judged against it"
    return None


def _as_kept(change: Change) -> Change:
    """Make a change as the file keeps it: six digits, and text that UTF-8 can hold."""
    return replace(
        change,
        number=None if change.number is None else significant(change.number),
        runs={run: significant(value) for run, value in sorted(change.runs.items())},
        over=None if change.over is None else significant(change.over),
        acceptance=_writable(change.acceptance),
        machine=_writable(change.machine),
    )


def _writable(value: Any, *, may_be_blank: bool = False) -> Any:
    """Clean the texts in a value; without ``may_be_blank`` blank ones become ``None`` and go."""
    if isinstance(value, str):
        # Names of files and variables may hold any bytes.
        text = value.encode("utf-8", "replace").decode("utf-8")
        return text if may_be_blank else text.strip() or None
    # Blanks count in a launch, and a variable may be empty.
    clean = partial(_writable, may_be_blank=may_be_blank or isinstance(value, LaunchFacts))
    if isinstance(value, tuple):
        return tuple(one for one in map(clean, value) if one is not None)
    if isinstance(value, Mapping):
        pairs = ((_writable(key, may_be_blank=True), clean(one)) for key, one in value.items())
        return {key: one for key, one in pairs if one is not None}
    if isinstance(value, Struct):
        return replace(value, **{name: clean(one) for name, one in asdict(value).items()})
    return value


def _reference(change: Change) -> str:
    over = change.case.reference_topology if change.metric.ratio_of is not None else None
    return str(over or SINGLE_DEVICE)


def _after(change: Change, standing: Baseline | None, cluster: Cluster) -> Baseline:
    if standing is not None and change.kind is ChangeKind.NOTE:
        return replace(standing, spread=change.spread)
    if standing is not None and change.kind is ChangeKind.EXTEND:
        session = AcceptedSession(at=change.at, runs=tuple(change.runs.values()))
        sessions = (*standing.sessions, session)[-ROLLING_SESSIONS:]
        return replace(standing, sessions=sessions, spread=change.spread)
    metric = change.metric
    if metric.better is None or change.number is None:
        raise AssertionError(f"{metric.name} has no number to accept")
    has_mean = standing is not None and standing.mean is not None and change.runs
    return Baseline(
        metric=metric.name,
        unit=metric.unit,
        better=metric.better,
        estimator=cluster.estimator,
        accepted=change.number,
        tolerance_percent=standing.tolerance_percent if standing else None,
        mean=_mean(change, cluster.estimator) if has_mean else None,
        runs=change.runs,
        over=change.over,
        reference=_reference(change),
        note=standing.note if standing else None,
        spread=change.spread,
        acceptance=change.acceptance,
        machine=_kept_machine(change.machine or cluster.machine, cluster),
    )


def _kept_machine(machine: Mapping[str, str], cluster: Cluster) -> Mapping[str, str]:
    """Return the cluster's machine if it covers all facts of this one."""
    is_the_clusters = all(cluster.machine.get(name) == fact for name, fact in machine.items())
    return cluster.machine if is_the_clusters else machine


def _mean(change: Change, estimator: Estimator) -> float:
    mean = statistics.mean(tuple(change.runs.values()))
    return significant(statistics.rounded(mean, estimator.decimals_of(change.metric.name)))


# ------------------------------------------------------------------------------------ new files


def new_file(system: str, estimator: str, provenance: Mapping[str, str]) -> str:
    """Return the text of a system's file without entries."""
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
