"""Changes and deletes a system's accepted numbers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Final

from pytest_dlperf.baselines.writing import is_same, new_file, opened
from pytest_dlperf.model import statistics
from pytest_dlperf.model.baseline import (
    ROLLING_SESSIONS,
    Acceptance,
    AcceptedSession,
    Baseline,
)
from pytest_dlperf.model.case import SINGLE_DEVICE
from pytest_dlperf.model.measurement import LaunchFacts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from pytest_dlperf.config.cluster import Cluster
    from pytest_dlperf.model.case import Case
    from pytest_dlperf.model.measurement import Estimator
    from pytest_dlperf.model.metric import Metric

SIGNIFICANT_DIGITS: Final = 6
"""Digits that a recorded number keeps: far finer than any training repeats itself."""


class ChangeKind(str, Enum):
    """Kinds of change to what is accepted of a metric."""

    CREATE = "create"
    """A number where there is none."""
    ACCEPT = "accept"
    """Another number in place of the one that stands; the sessions added to that one go."""
    EXTEND = "extend"
    """The runs of one more session; the accepted number stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What one session has to change in what is accepted of one metric of one case.

    ``known`` is what the session was judged against, ``None`` where there was nothing. ``number``
    is the new one, ``None`` for ``EXTEND``; ``runs`` are those that it rests on, none for a ratio,
    which was taken ``over`` the reference topology's number. ``at`` is when the session began
    (ISO 8601 with its zone).
    """

    kind: ChangeKind
    case: Case
    metric: Metric
    known: Baseline | None = None
    number: float | None = None
    runs: Mapping[int, float] = field(default_factory=dict)
    over: float | None = None
    at: str
    acceptance: Acceptance | None = None
    machine: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        """Variant and topology, as ``load_baselines`` has them."""
        return self.case.variant, str(self.case.topology)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What became of a session's changes: those made, and those refused, with the reason."""

    done: tuple[Change, ...] = ()
    refused: tuple[tuple[Change, str], ...] = ()


def record(
    cluster: Cluster, system: str, changes: Iterable[Change], *, provenance: Mapping[str, str]
) -> Recorded:
    """Make changes to a system's accepted numbers, all of them in one step.

    A change is refused where another session was quicker, so that what stands is no longer what
    this session was judged against. Lines that need no change keep their bytes. ``provenance``
    goes into a file that has to be made.

    Raises:
        YamlError: The file that is there has mistakes or cannot be changed line by line.
        LockError: The cluster's lock cannot be had.
        OSError: The file or its folder cannot be written.
    """
    new_text = new_file(system, cluster.estimator.value, provenance)
    done: list[Change] = []
    refused: list[tuple[Change, str]] = []
    with opened(cluster, system, new_text=new_text) as file:
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
            file.write(wanted, recorded=done[0].at[:10])
    return Recorded(done=tuple(done), refused=tuple(refused))


def delete(
    cluster: Cluster,
    system: str,
    keys: Collection[tuple[str, str]],
    metrics: Collection[str] | None = None,
) -> None:
    """Delete entries, by variant and topology, or only these metrics of them; comments stay.

    Raises:
        YamlError: The file has mistakes or cannot be changed line by line.
        LockError: The cluster's lock cannot be had.
        OSError: The file cannot be written. After any error the old file stands.
    """
    with opened(cluster, system) as file:
        wanted = {
            key: {
                name: baseline
                for name, baseline in entry.items()
                if key not in keys or (metrics is not None and name not in metrics)
            }
            for key, entry in file.standing.items()
        }
        file.write({key: entry for key, entry in wanted.items() if entry})


def significant(value: float) -> float:
    """The number as a baseline file keeps it."""
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}")


# ------------------------------------------------------------------------ what is to be done


def _why_not(change: Change, standing: Baseline | None) -> str | None:
    if change.known is None:
        if standing is None:
            return None
        return (
            f"another session has recorded {standing.accepted:g} at {standing.place} meanwhile; "
            "run again to be held against it"
        )
    if standing is None:
        return (
            f"the number that this session was judged against is gone from {change.known.place}; "
            "run again"
        )
    if not is_same(change.known, standing):
        return f"{standing.place} was changed meanwhile; run again to be held against it"
    return None


def _as_kept(change: Change) -> Change:
    acceptance = change.acceptance
    if acceptance is not None:
        acceptance = Acceptance(
            at=acceptance.at,
            by=_writable(acceptance.by),
            commit=_writable(acceptance.commit),
            reason=_writable(acceptance.reason),
            hosts=tuple(filter(None, map(_writable, acceptance.hosts))),
            software=_writable_facts(acceptance.software),
            commits=_writable_facts(acceptance.commits),
            launch=None if acceptance.launch is None else _writable_launch(acceptance.launch),
            logs=_writable(acceptance.logs),
        )
    return replace(
        change,
        number=None if change.number is None else significant(change.number),
        runs={run: significant(value) for run, value in sorted(change.runs.items())},
        over=None if change.over is None else significant(change.over),
        acceptance=acceptance,
        machine=_writable_facts(change.machine),
    )


def _writable(text: str | None) -> str | None:
    """Text that can stand in a file, and says something; ``None`` else."""
    if text is None or not text.strip():
        return None
    return _as_text(text.strip())


def _writable_facts(facts: Mapping[str, str]) -> dict[str, str]:
    kept = {_as_text(key): _writable(text) for key, text in facts.items()}
    return {key: text for key, text in kept.items() if text is not None}


def _writable_launch(launch: LaunchFacts) -> LaunchFacts:
    """Make text of a launch, in which blanks count and a variable may be empty."""
    folder = launch.working_directory
    return LaunchFacts(
        launcher=_as_text(launch.launcher),
        arguments=tuple(map(_as_text, launch.arguments)),
        environment={_as_text(name): _as_text(fact) for name, fact in launch.environment.items()},
        working_directory=None if folder is None else _as_text(folder),
        options={_as_text(name): _as_text(fact) for name, fact in launch.options.items()},
    )


def _as_text(text: str) -> str:
    """Replace what is no text: names of files and variables may hold any bytes."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _reference(change: Change) -> str:
    over = change.case.reference_topology if change.metric.ratio_of is not None else None
    return str(over or SINGLE_DEVICE)


def _after(change: Change, standing: Baseline | None, cluster: Cluster) -> Baseline:
    if standing is not None and change.kind is ChangeKind.EXTEND:
        session = AcceptedSession(at=change.at, runs=tuple(change.runs.values()))
        return replace(standing, sessions=(*standing.sessions, session)[-ROLLING_SESSIONS:])
    metric = change.metric
    if metric.better is None or change.number is None:
        raise AssertionError(f"there is nothing to accept of {metric.name}")
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
        acceptance=change.acceptance,
        machine=_kept_machine(change.machine or cluster.machine, cluster),
    )


def _kept_machine(machine: Mapping[str, str], cluster: Cluster) -> Mapping[str, str]:
    """The machine, or the cluster's own, where that says all that is known of this one."""
    is_the_clusters = all(cluster.machine.get(name) == fact for name, fact in machine.items())
    return cluster.machine if is_the_clusters else machine


def _mean(change: Change, estimator: Estimator) -> float:
    mean = statistics.mean(tuple(change.runs.values()))
    return significant(statistics.rounded(mean, estimator.decimals_of(change.metric.name)))
