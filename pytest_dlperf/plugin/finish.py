"""The end of a session: baselines it changes, its results and its notes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from pytest_dlperf.baselines.accepting import Refusal, changes_of
from pytest_dlperf.baselines.recording import Change, ChangeKind, RecordOutcome, record
from pytest_dlperf.files.environment import describe_actor, describe_environment
from pytest_dlperf.files.locks import LockError
from pytest_dlperf.files.yamlfile import YamlError
from pytest_dlperf.gate.accepting import withdraw
from pytest_dlperf.history.since import CurrentSession
from pytest_dlperf.model import numbers
from pytest_dlperf.model.baseline import Acceptance
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.metric import Metric
from pytest_dlperf.model.results import BaselineChange, CaseResult, Results
from pytest_dlperf.plugin.records import SessionRecords
from pytest_dlperf.plugin.suite import Suite
from pytest_dlperf.report.reports import Note
from pytest_dlperf.report.status import NOTHING_MEASURED, case_counts

_DONE: Final = {
    ChangeKind.CREATE: "recorded the baselines of {}; sessions from now on are gated against them",
    ChangeKind.ACCEPT: "accepted new numbers of {}",
    ChangeKind.EXTEND: "added this session's runs to the baselines of {}",
    ChangeKind.NOTE: "noted in the baselines how far this session differs, of {}",
}


def finish(  # noqa: PLR0913 - all that a session has come to, by name
    suite: Suite,
    records: SessionRecords,
    session: CurrentSession,
    *,
    is_green: bool,
    is_interrupted: bool,
    selects_tests: bool,
) -> tuple[Results, list[Note]]:
    """Change the baselines if asked for; return the session's results and notes.

    ``is_green`` says that pytest saw no test fail, ``is_interrupted`` that it did not come to its
    end: by Ctrl-C, ``pytest.exit`` or an error of its own. ``selects_tests`` says that the user
    named single tests.
    """
    settings, results, notes = suite.settings, records.results(), []
    skipped = all(
        result.measurement is None
        and all(one.verdict is Verdict.SKIPPED for one in result.judgements.values())
        for result in results
    )
    if records.has_any and not is_interrupted and skipped:
        notes.append(Note(f"{NOTHING_MEASURED}: {case_counts(results)}", is_bad=True))
    bad = [r.case.id for r in results if r.status.fails(strict=settings.strict)]
    if is_green and bad:
        text = f"a test passed in spite of its verdict: {', '.join(bad)}"
        notes.append(Note(text, is_bad=True))
    if not (is_interrupted or selects_tests):
        notes += _not_judged(suite, results, records)
    changes: list[BaselineChange] = []
    if settings.records_baselines and records.has_any:
        if is_interrupted:
            notes.append(Note("no baseline was changed: the session was interrupted"))
        else:
            changes = _change_baselines(suite, results, session, notes)
        results = [_as_written(result, changes) for result in results]
    commit, repository = session.commit, session.checkout.repository
    origin = {
        "commit": commit,
        "commit_url": repository.commit(commit.partition("+")[0])
        if commit and repository is not None
        else None,
        "ci_run": session.ci_run,
    }
    whole = Results(
        session=session.session,
        cluster=suite.cluster.name,
        estimator=suite.cluster.estimator,
        started=session.started,
        ended=datetime.now().astimezone().isoformat(timespec="seconds"),
        interrupted=is_interrupted,
        strict=settings.strict,
        environment={
            **describe_environment(),
            **{name: fact for name, fact in origin.items() if fact},
        },
        metrics={
            system.id: _with_members(system.metrics, system.id, results)
            for system in suite.systems.values()
        },
        log_names={system.id: system.log_name for system in suite.systems.values()},
        cases=tuple(results),
        baseline_changes=tuple(changes),
    )
    return whole, notes


def _not_judged(
    suite: Suite, results: Sequence[CaseResult], records: SessionRecords
) -> Iterator[Note]:
    """Name metrics that are to be judged, and that no test has judged."""
    by_metric: dict[str, list[str]] = {}
    for result in results:
        if not result.is_whole:
            continue  # a report names the case
        judged = {one.metric.family or name for name, one in result.judgements.items()}
        for name in suite.judged_metrics(result.case):
            is_known = name in judged or name in result.unfinished
            if not is_known and (result.case.id, name) not in records.deselected:
                by_metric.setdefault(name, []).append(result.case.id)
    folder = os.path.relpath(suite.settings.systems_directories[0])
    for cases in dict.fromkeys(map(tuple, by_metric.values())):
        names = [name for name, lacking in by_metric.items() if lacking == [*cases]]
        text = f"no test judges {', '.join(names)} of {numbers.named(cases, 1)}"
        yield Note(f"{text}; 'pytest {folder}' does", is_bad=suite.settings.strict)


def _change_baselines(
    suite: Suite, results: Sequence[CaseResult], session: CurrentSession, notes: list[Note]
) -> list[BaselineChange]:
    """Write what the session accepts; note what, and what was refused."""
    settings, folder = suite.settings, suite.cluster.directory
    accepts = settings.create_baselines or settings.update_baselines
    provenance = Acceptance(
        at=session.started,
        by=describe_actor(settings.systems_directories[0]) if accepts else None,
        commit=session.commit,
        reason=settings.reason,
    )
    found = [*changes_of(results, suite.baselines, suite.terms, settings, provenance)]
    changes = [one for one in found if isinstance(one, Change)]
    refusals = [one for one in found if isinstance(one, Refusal)]
    recorded = RecordOutcome()
    try:
        if changes:
            recorded = record(suite.cluster, changes, provenance=_source(suite))
    except (YamlError, LockError, OSError) as error:
        notes.append(Note(f"no baseline was recorded in {folder}: {error}", is_bad=True))
    refusals += [Refusal(one.case, one.metric.name, why) for one, why in recorded.refused]
    for one in refusals:
        what = "baseline" if one.metric is None else f"accepted {one.metric}"
        text = f"the {what} of {one.case.id} stays as it is: {one.why}"
        notes.append(Note(text, is_bad=one.is_bad))
    for kind, said in _DONE.items():
        cases = {change.case for change in recorded.done if change.kind is kind}
        for system in dict.fromkeys(case.system for case in cases):
            count = numbers.counted(sum(case.system == system for case in cases), "case")
            notes.append(Note(said.format(f"{count} in {folder / f'{system}.yaml'}")))
    refused = any(one.refused for result in results for one in result.judgements.values())
    if settings.update_baselines and not (found or refused):
        notes.append(Note("no baseline was changed: there was no number to accept"))
    return [_accepted(change) for change in recorded.done if change.is_accepted]


def _as_written(result: CaseResult, changes: Sequence[BaselineChange]) -> CaseResult:
    """Withdraw verdicts by which a number was recorded that was not."""
    written = {change.metric for change in changes if change.case_id == result.case.id}
    judgements = {
        metric: judgement if metric in written else withdraw(judgement)
        for metric, judgement in result.judgements.items()
    }
    return replace(result, judgements=judgements)


def _accepted(change: Change) -> BaselineChange:
    old = change.known.accepted if change.known else None
    source = change.now.acceptance
    reason = source.reason if source else None
    return BaselineChange(
        case_id=change.case.id,
        metric=change.metric.name,
        unit=change.metric.unit,
        old=old,
        new=change.now.accepted,
        why=reason or ("first number" if old is None else "accepted"),
        by=source.by if source else None,
        commit=source.commit if source else None,
    )


def _source(suite: Suite) -> dict[str, str]:
    """Say where numbers come from. Logs may be of any machine: only a launch tells its own."""
    if suite.settings.log_sources:
        return {"source": "logs that were judged"}
    environment = describe_environment()
    return {
        "source": "measured in a session",
        "host": str(environment["host"]),
        "platform": str(environment["platform"]),
    }


def _with_members(
    metrics: Sequence[Metric], system: str, results: Sequence[CaseResult]
) -> tuple[Metric, ...]:
    """Return a system's metrics, behind each family its members that a case has."""
    own = [result for result in results if result.case.system == system]
    known = {metric.name: metric for metric in metrics}
    found = (known for result in own for known in result.metrics().values() if known.metric.family)
    return tuple({**known, **{one.metric.name: one.metric for one in found}}.values())
