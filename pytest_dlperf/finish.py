"""What a session writes when all is judged: new baselines and the results file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_dlperf.baselines import NewBaseline, record_baselines
from pytest_dlperf.environment import describe_environment
from pytest_dlperf.reports.json_file import SessionFacts, write_json
from pytest_dlperf.yamlfile import YamlError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime
    from pathlib import Path

    from pytest_dlperf.logs.tree import IgnoredLog
    from pytest_dlperf.session import CaseResult
    from pytest_dlperf.suite import Suite


def record_new_baselines(suite: Suite, results: Sequence[CaseResult]) -> Iterator[tuple[str, bool]]:
    """Record what passed for want of a baseline; yield what to tell, and whether it is bad."""
    by_system: dict[str, list[NewBaseline]] = {}
    # In the order of the topologies, as a reader looks for them.
    for result in sorted(results, key=lambda result: result.case.topology):
        new = _new_baseline(result)
        if new is not None:
            by_system.setdefault(result.case.system, []).append(new)
    environment = describe_environment()
    provenance = {
        "source": "recorded by --dlperf-create-baselines",
        "host": str(environment["host"]),
        "platform": str(environment["platform"]),
    }
    for name, new_ones in by_system.items():
        file = suite.cluster.directory / f"{name}.yaml"
        try:
            added = record_baselines(
                suite.cluster, name, suite.systems[name].unit, new_ones, provenance=provenance
            )
        except YamlError as error:
            yield f"no baseline was recorded in {file}: {error}", True
        except OSError as error:
            yield f"no baseline was recorded in {file}: {error.strerror or error}", True
        else:
            cases = "case" if len(added) == 1 else "cases"
            told = f"recorded the baselines of {len(added)} {cases} in {file}"
            yield f"{told}; sessions from now on are gated against them", False


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


def write_results(
    file: Path,
    suite: Suite,
    results: Sequence[CaseResult],
    ignored_logs: Sequence[IgnoredLog],
    *,
    started: datetime,
) -> tuple[str, bool]:
    """Write the results file; return what to tell, and whether it is bad."""
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
        return f"the results could not be written to {file}: {error.strerror or error}", True
    return f"results: {file}", False
