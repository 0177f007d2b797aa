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
from pytest_dlperf.model.measurement import PUBLISHED_DECIMALS, Estimator

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from pytest_dlperf.config.cluster import Cluster
    from pytest_dlperf.model.case import Case

SIGNIFICANT_DIGITS: Final = 6
"""Digits that a recorded number keeps: far finer than any training repeats itself."""


class ChangeKind(str, Enum):
    """Kinds of change to the accepted numbers of a case."""

    CREATE = "create"
    """An entry for a case that has none."""
    ACCEPT = "accept"
    """Another number in place of the one that stands; the sessions added to that one go."""
    SPEEDUP = "speedup"
    """A speedup for an entry that has none."""
    EXTEND = "extend"
    """The runs of one more session; the accepted number stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What one session has to change in the accepted numbers of one case.

    ``known`` is what the session was judged against, ``None`` where there was nothing.
    ``throughput`` (in the unit per second) and ``speedup`` are the new numbers; ``ACCEPT`` keeps
    the line of the one that is ``None``, ``CREATE`` needs a throughput, ``SPEEDUP`` a speedup,
    ``EXTEND`` neither. ``at`` is when the session began (ISO 8601 with its zone).
    """

    kind: ChangeKind
    case: Case
    known: Baseline | None = None
    throughput: float | None = None
    speedup: float | None = None
    runs: Mapping[int, float] = field(default_factory=dict)
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
    cluster: Cluster,
    system: str,
    unit: str,
    changes: Iterable[Change],
    *,
    provenance: Mapping[str, str],
) -> Recorded:
    """Make changes to a system's accepted numbers, all of them in one step.

    A change is refused where another session was quicker, so that what stands is no longer what
    this session was judged against. Lines that need no change keep their bytes. ``unit`` and
    ``provenance`` go into a file that has to be made.

    Raises:
        YamlError: The file that is there has mistakes or cannot be changed line by line.
        LockError: The cluster's lock cannot be had.
        OSError: The file or its folder cannot be written.
    """
    new_text = new_file(system, unit, cluster.estimator.value, provenance)
    done: list[Change] = []
    refused: list[tuple[Change, str]] = []
    with opened(cluster, system, new_text=new_text) as file:
        wanted = dict(file.standing)
        for change in changes:
            key = change.key
            # What counts is what stood before this session, which may change a case twice.
            judged = file.standing if change.known else wanted
            why = _why_not(change, judged.get(key), unit, cluster.estimator)
            if why is not None:
                refused.append((change, why))
                continue
            wanted[key] = _after(_as_kept(change), wanted.get(key), unit, cluster)
            done.append(change)
        if done:
            file.write(wanted, recorded=done[0].at[:10])
    return Recorded(done=tuple(done), refused=tuple(refused))


def delete(cluster: Cluster, system: str, keys: Collection[tuple[str, str]]) -> None:
    """Delete entries, by variant and topology; comments stay.

    Raises:
        YamlError: The file has mistakes or cannot be changed line by line.
        LockError: The cluster's lock cannot be had.
        OSError: The file cannot be written. After any error the old file stands.
    """
    with opened(cluster, system) as file:
        file.write({key: entry for key, entry in file.standing.items() if key not in keys})


def significant(value: float) -> float:
    """The number as a baseline file keeps it."""
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}")


# ------------------------------------------------------------------------ what is to be done


def _why_not(
    change: Change, standing: Baseline | None, unit: str, estimator: Estimator
) -> str | None:
    if standing is not None and (standing.unit, standing.estimator) != (unit, estimator):
        return (
            f"{standing.place} is {standing.estimator.value} in {standing.unit}, this session "
            f"measured {estimator.value} in {unit}"
        )
    if change.known is None:
        if standing is None:
            return None
        return (
            f"another session has recorded {standing.throughput:g} at {standing.place} meanwhile; "
            "run again to be held against it"
        )
    if standing is None:
        return (
            f"the entry that this session was judged against is gone from {change.known.place}; "
            "run again"
        )
    if not is_same(change.known, standing):
        return f"{standing.place} was changed meanwhile; run again to be held against it"
    return None


def _as_kept(change: Change) -> Change:
    acceptance = change.acceptance
    both = change.throughput is not None and change.speedup is not None
    if acceptance is not None:
        single = acceptance.single_device
        acceptance = Acceptance(
            at=acceptance.at,
            commit=_writable(acceptance.commit),
            reason=_writable(acceptance.reason),
            hosts=tuple(filter(None, map(_writable, acceptance.hosts))),
            software=_writable_facts(acceptance.software),
            logs=_writable(acceptance.logs),
            # What only one of the two was taken over would not explain the other.
            single_device=significant(single) if single is not None and both else None,
        )
    return replace(
        change,
        throughput=None if change.throughput is None else significant(change.throughput),
        speedup=None if change.speedup is None else significant(change.speedup),
        runs={run: significant(value) for run, value in sorted(change.runs.items())},
        acceptance=acceptance,
        machine=_writable_facts(change.machine),
    )


def _writable(text: str | None) -> str | None:
    """Text that can stand in a file, and says something; ``None`` else."""
    if text is None or not text.strip():
        return None
    # Names of files may hold bytes that are no text.
    return text.strip().encode("utf-8", "replace").decode("utf-8")


def _writable_facts(facts: Mapping[str, str]) -> dict[str, str]:
    kept = {key: _writable(text) for key, text in facts.items()}
    return {key: text for key, text in kept.items() if text is not None}


def _after(change: Change, standing: Baseline | None, unit: str, cluster: Cluster) -> Baseline:
    machine = change.machine or cluster.machine
    if standing is None:
        return Baseline(
            throughput=change.throughput or 0.0,
            speedup=change.speedup,
            unit=unit,
            estimator=cluster.estimator,
            tolerance_percent=None,
            mean=None,
            runs=change.runs,
            strays={},
            note=None,
            place="",
            accepted=change.acceptance,
            machine=_kept_machine(machine, cluster),
        )
    if change.kind is ChangeKind.EXTEND:
        session = AcceptedSession(at=change.at, runs=tuple(change.runs.values()))
        return replace(standing, sessions=(*standing.sessions, session)[-ROLLING_SESSIONS:])
    speedup = standing.speedup if change.speedup is None else change.speedup
    if change.kind is ChangeKind.SPEEDUP:
        return replace(standing, speedup=speedup)
    if change.throughput is None:
        accepted = _acceptance_of_speedup(change, standing)
        return replace(standing, speedup=speedup, accepted=accepted)
    return replace(
        standing,
        throughput=change.throughput,
        speedup=speedup,
        mean=None if standing.mean is None else _mean(change, standing.estimator),
        runs=change.runs,
        strays={},
        sessions=(),
        accepted=change.acceptance,
        machine=_kept_machine(machine, cluster),
    )


def _kept_machine(machine: Mapping[str, str], cluster: Cluster) -> Mapping[str, str]:
    """The machine, or the cluster's own, where that says all that is known of this one."""
    is_the_clusters = all(cluster.machine.get(name) == fact for name, fact in machine.items())
    return cluster.machine if is_the_clusters else machine


def _acceptance_of_speedup(change: Change, standing: Baseline) -> Acceptance | None:
    """Where the numbers come from once the speedup alone is another."""
    if change.acceptance is None:
        return None if standing.accepted is None else replace(standing.accepted, single_device=None)
    why = f"speedup of {change.acceptance.at}"
    if change.acceptance.reason:
        why = f"{why}: {change.acceptance.reason}"
    if standing.accepted is None:
        return replace(change.acceptance, reason=why, logs=None)
    return replace(standing.accepted, reason=why, single_device=None)


def _mean(change: Change, estimator: Estimator) -> float:
    mean = statistics.mean(tuple(change.runs.values()) or (change.throughput or 0.0,))
    if estimator is Estimator.PUBLISHED:
        mean = statistics.rounded(mean, PUBLISHED_DECIMALS)
    return significant(mean)
