"""The end of a session: what it writes when all is judged, and what it tells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_dlperf.baselines.recording import NewBaseline, record_baselines
from pytest_dlperf.environment import describe_environment
from pytest_dlperf.locks import LockError
from pytest_dlperf.reports.json_file import SessionFacts, write_json
from pytest_dlperf.yamlfile import YamlError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime
    from pathlib import Path

    from pytest_dlperf.logs.tree import IgnoredLog
    from pytest_dlperf.session import CaseResult, SessionRecords
    from pytest_dlperf.suite import Suite

NOISY_SPREAD: Final = 0.1
"""Coefficient of variation between runs above which a first baseline deserves a second look."""


@dataclass(frozen=True, slots=True)
class Note:
    """Something to tell at the end of a session; a bad one makes the session fail."""

    text: str
    is_bad: bool = False


def finish(  # noqa: PLR0913 - all that a session has come to, by name
    suite: Suite,
    records: SessionRecords,
    ignored_logs: Sequence[IgnoredLog],
    *,
    started: datetime,
    any_report: bool,
    green_so_far: bool,
    interrupted: bool,
) -> Iterator[Note]:
    """Write what the session was asked to write, and yield what is to be told.

    ``any_report`` is false when no test has run: pytest was asked for something else, or stopped.
    ``green_so_far`` says that pytest saw no test fail, ``interrupted`` that it was ended by Ctrl-C.
    """
    settings = suite.settings
    results = records.results()
    for host, faults in sorted(records.host_faults.items()):
        yield Note(f"host {host} cannot be used: {'; '.join(faults)}")
    if any_report and records.nothing_measured and not interrupted:
        yield Note("nothing was measured: every selected case was skipped", is_bad=True)
    if green_so_far and records.bad_cases:
        cases = ", ".join(records.bad_cases)
        yield Note(f"a test passed in spite of its verdict: {cases}", is_bad=True)
    if settings.create_baselines:
        yield from _record_new_baselines(suite, results)
    if settings.json_file is not None:
        yield _write_results(settings.json_file, suite, results, ignored_logs, started=started)
    if settings.run_directory.exists() and not settings.log_sources:
        yield Note(f"logs: {settings.run_directory}")


def _record_new_baselines(suite: Suite, results: Sequence[CaseResult]) -> Iterator[Note]:
    """Record what passed for want of a baseline."""
    provenance = _provenance(suite)
    for name, new_ones in _new_baselines(results).items():
        file = suite.cluster.directory / f"{name}.yaml"
        try:
            added = record_baselines(
                suite.cluster, name, suite.systems[name].unit, new_ones, provenance=provenance
            )
        except (YamlError, LockError, OSError) as error:
            yield Note(f"no baseline was recorded in {file}: {error}", is_bad=True)
            continue
        if len(added) < len(new_ones):
            yield Note(
                f"another session has recorded baselines in {file} meanwhile; run again to be "
                "held against them",
                is_bad=True,
            )
        if added:
            cases = "case" if len(added) == 1 else "cases"
            yield Note(
                f"recorded the baselines of {len(added)} {cases} in {file}; sessions from now on "
                "are gated against them"
            )
            yield from _unsteady(added, results)


def _new_baselines(results: Sequence[CaseResult]) -> dict[str, list[NewBaseline]]:
    """What is worth recording, by system, in the order of the topologies."""
    bad = {
        result.case.id
        for result in results
        if not all(judgement.verdict.passes for judgement in result.judgements.values())
    }
    by_system: dict[str, list[NewBaseline]] = {}
    for result in sorted(results, key=lambda result: result.case.topology):
        new = _new_baseline(result)
        # A speedup over a reference that has failed is none to keep either.
        if new is not None and not {result.case.id, result.case.single_device.id} & bad:
            by_system.setdefault(result.case.system, []).append(new)
    return by_system


def _new_baseline(result: CaseResult) -> NewBaseline | None:
    measurement = result.measurement
    recorded = any(judgement.recorded for judgement in result.judgements.values())
    if not recorded or measurement is None or measurement.median is None:
        return None
    return NewBaseline(
        case=result.case,
        throughput=measurement.median,
        speedup=result.speedup,
        runs={run.run: run.throughput for run in measurement.runs if run.throughput is not None},
    )


def _provenance(suite: Suite) -> dict[str, str]:
    """Where numbers come from. Logs may be of any machine: only a launch tells its own."""
    if suite.settings.log_sources:
        return {"source": "logs judged with --dlperf-create-baselines"}
    environment = describe_environment()
    return {
        "source": "trained with --dlperf-create-baselines",
        "host": str(environment["host"]),
        "platform": str(environment["platform"]),
    }


def _unsteady(added: Sequence[NewBaseline], results: Sequence[CaseResult]) -> Iterator[Note]:
    """Warn of first baselines that rest on runs far apart."""
    recorded = {item.case.id for item in added}
    for result in results:
        spread = result.measurement.spread if result.measurement else None
        if result.case.id in recorded and spread is not None and spread > NOISY_SPREAD:
            yield Note(
                f"the runs of {result.case.id} lie far apart ({spread * 100:.0f} %): was the "
                "machine busy? Delete the entry and record again when it is quiet"
            )


def _write_results(
    file: Path,
    suite: Suite,
    results: Sequence[CaseResult],
    ignored_logs: Sequence[IgnoredLog],
    *,
    started: datetime,
) -> Note:
    facts = SessionFacts(
        cluster=suite.cluster.name,
        estimator=suite.cluster.estimator,
        started=started.isoformat(timespec="seconds"),
        environment=describe_environment(),
        units={system.id: system.unit for system in suite.systems.values()},
    )
    try:
        write_json(file, facts, results, ignored_logs)
    except OSError as error:
        text = f"the results could not be written to {file}: {error.strerror or error}"
        return Note(text, is_bad=True)
    return Note(f"results: {file}")
