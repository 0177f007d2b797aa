"""The end of a session: baselines it changes, its results and its notes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from pytest_dlperf.baselines.accepting import Refusal, changes_of
from pytest_dlperf.baselines.recording import Change, ChangeKind, RecordOutcome, record
from pytest_dlperf.files.ci import ci_run_page
from pytest_dlperf.files.environment import describe_actor, describe_environment
from pytest_dlperf.files.locks import LockError
from pytest_dlperf.files.yamlfile import YamlError
from pytest_dlperf.gate.accepting import withdraw
from pytest_dlperf.model import numbers
from pytest_dlperf.model.baseline import Acceptance
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.metric import Metric
from pytest_dlperf.model.results import BaselineChange, CaseResult, IgnoredLog, Results
from pytest_dlperf.plugin.workers import SessionStart
from pytest_dlperf.report.reports import Note
from pytest_dlperf.report.status import NOTHING_MEASURED, case_counts
from pytest_dlperf.results.file import encodable

if TYPE_CHECKING:
    from pytest_dlperf.plugin.records import SessionRecords
    from pytest_dlperf.plugin.suite import Suite

_DONE: Final = (
    (
        ChangeKind.CREATE,
        "recorded the baselines of",
        "; sessions from now on are gated against them",
    ),
    (ChangeKind.ACCEPT, "accepted new numbers of", ""),
    (ChangeKind.EXTEND, "added this session's runs to the baselines of", ""),
    (ChangeKind.NOTE, "noted in the baselines how far this session differs, of", ""),
)
"""Kinds of changes, the words of their notes, and their consequences."""


def finish(  # noqa: PLR0913 - all that a session has come to, by name
    suite: Suite,
    records: SessionRecords,
    ignored_logs: Sequence[IgnoredLog],
    *,
    unfit_hosts: Mapping[str, tuple[str, ...]],
    session_start: SessionStart,
    any_report: bool,
    green_so_far: bool,
    interrupted: bool,
    selects_tests: bool,
) -> tuple[Results, list[Note]]:
    """Change the baselines if asked for; return the session's results and notes.

    ``any_report`` is false when no test has run: pytest was asked for something else, or stopped.
    ``green_so_far`` says that pytest saw no test fail, ``interrupted`` that it did not come to its
    end: by Ctrl-C, ``pytest.exit`` or an error of its own. ``selects_tests`` says that the user
    named single tests.
    """
    from pytest_dlperf.launch.preflight import checkout_here

    settings = suite.settings
    # Logs may be of any day and checkout: only a launch knows what it has run.
    commit, page = None, None
    if not settings.log_sources:
        commit, checkout = checkout_here(settings.systems_directories[0])
        if commit is not None and checkout.repository is not None:
            page = checkout.repository.commit(commit.partition("+")[0])
    results = records.results()
    notes = [
        Note(f"host {host} cannot be used: {'; '.join(faults)}")
        for host, faults in sorted(unfit_hosts.items())
    ]
    if any_report and _is_nothing_measured(results) and not interrupted:
        text = f"{NOTHING_MEASURED}: {case_counts(results)}"
        notes.append(Note(text, is_bad=True))
    bad = [r.case.id for r in results if r.status.fails(strict=settings.strict)]
    if green_so_far and bad:
        text = f"a test passed in spite of its verdict: {', '.join(bad)}"
        notes.append(Note(text, is_bad=True))
    if not (interrupted or selects_tests):
        notes += _not_judged(suite, results, records.deselected)
    if settings.strict and suite.cluster.systems is None:
        notes += _systems_not_run(results, suite.cluster.directory / "cluster.yaml")
    changes: list[BaselineChange] = []
    if settings.records_baselines and any_report:
        if interrupted:
            notes.append(Note("no baseline was changed: the session was interrupted"))
        else:
            more, changes = _change_baselines(suite, results, session_start.at, commit)
            notes += more
        results = [_as_written(result, changes) for result in results]
    origin = {
        "commit": commit,
        "commit_url": page,
        "ci_run": ci_run_page(),
    }
    whole = Results(
        session=session_start.session,
        cluster=suite.cluster.name,
        estimator=suite.cluster.estimator,
        started=session_start.at,
        ended=datetime.now().astimezone().isoformat(timespec="seconds"),
        interrupted=interrupted,
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
        unfit_hosts=unfit_hosts,
        ignored_logs=tuple(ignored_logs),
        baseline_changes=tuple(changes),
    )
    return encodable(whole), notes


def _is_nothing_measured(results: Sequence[CaseResult]) -> bool:
    judgements = [j for result in results for j in result.judgements.values()]
    skipped = all(judgement.verdict is Verdict.SKIPPED for judgement in judgements)
    return bool(results) and skipped and not any(result.measurement for result in results)


def _not_judged(
    suite: Suite, results: Iterable[CaseResult], deselected: AbstractSet[tuple[str, str]]
) -> Iterator[Note]:
    """Name metrics that are to be judged, and that no test has judged."""
    by_metric: dict[str, list[str]] = {}
    for result in results:
        if not result.is_whole:
            continue  # a report names the case
        judged = {one.metric.family or name for name, one in result.judgements.items()}
        for name in suite.judged_metrics(result.case):
            is_known = name in judged or name in result.unfinished
            if not is_known and (result.case.id, name) not in deselected:
                by_metric.setdefault(name, []).append(result.case.id)
    folder = os.path.relpath(suite.settings.systems_directories[0])
    for cases in dict.fromkeys(map(tuple, by_metric.values())):
        names = [name for name, lacking in by_metric.items() if lacking == [*cases]]
        text = f"no test judges {', '.join(names)} of {numbers.named(cases, 1)}"
        yield Note(f"{text}; 'pytest {folder}' does", is_bad=suite.settings.strict)


def _systems_not_run(results: Iterable[CaseResult], file: Path) -> Iterator[Note]:
    """Say how a strict session leaves out systems of which not one case could be run."""
    skipped: dict[str, bool] = {}
    for result in results:
        verdicts = {judgement.verdict for judgement in result.judgements.values()}
        all_skipped = verdicts == {Verdict.SKIPPED}  # none if the session ended before its test
        skipped[result.case.system] = skipped.get(result.case.system, True) and all_skipped
    if names := ", ".join(name for name, every in skipped.items() if every):
        yield Note(
            f"no case of {names} can be run here: if that is so for good, name the systems that "
            f"this cluster runs under 'systems' in {file}"
        )


def _change_baselines(
    suite: Suite, results: Sequence[CaseResult], started: str, commit: str | None
) -> tuple[list[Note], list[BaselineChange]]:
    """Write what the session accepts; say what, and what was refused."""
    settings = suite.settings
    accepts = settings.create_baselines or settings.update_baselines
    provenance = Acceptance(
        at=started,
        by=describe_actor(settings.systems_directories[0]) if accepts else None,
        commit=commit,
        reason=settings.reason,
    )
    notes: list[Note] = []
    changes: list[Change] = []
    for outcome in changes_of(results, suite.baselines, suite.terms, settings, provenance):
        if isinstance(outcome, Refusal):
            notes.append(_refused(outcome.case, outcome.metric, outcome.why, is_bad=outcome.is_bad))
        else:
            changes.append(outcome)
    folder = suite.cluster.directory
    try:
        recorded = (
            record(suite.cluster, changes, provenance=_source(suite))
            if changes
            else RecordOutcome()
        )
    except (YamlError, LockError, OSError) as error:
        notes.append(Note(f"no baseline was recorded in {folder}: {error}", is_bad=True))
        return notes, []
    notes += [_refused(change.case, change.metric.name, why) for change, why in recorded.refused]
    notes += _counted(folder, recorded.done)
    refused = any(one.refused for result in results for one in result.judgements.values())
    if settings.update_baselines and not (changes or notes or refused):
        notes.append(Note("no baseline was changed: there was no number to accept"))
    return notes, [_accepted(change) for change in recorded.done if change.is_accepted]


def _as_written(result: CaseResult, changes: Iterable[BaselineChange]) -> CaseResult:
    """Withdraw verdicts by which a number was recorded that was not."""
    written = {change.metric for change in changes if change.case_id == result.case.id}
    judgements = {
        metric: judgement if metric in written else withdraw(judgement)
        for metric, judgement in result.judgements.items()
    }
    return replace(result, judgements=judgements)


def _refused(case: Case, metric: str | None, why: str, *, is_bad: bool = True) -> Note:
    what = "baseline" if metric is None else f"accepted {metric}"
    return Note(f"the {what} of {case.id} stays as it is: {why}", is_bad=is_bad)


def _counted(folder: Path, done: Sequence[Change]) -> Iterator[Note]:
    for kind, said, then in _DONE:
        cases = {change.case for change in done if change.kind is kind}
        for system in dict.fromkeys(case.system for case in cases):
            count = numbers.counted(sum(case.system == system for case in cases), "case")
            yield Note(f"{said} {count} in {folder / f'{system}.yaml'}{then}")


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
