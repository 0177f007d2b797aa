"""Decides which baselines a session changes, once all of it has been judged.

Nothing is written here. A judgement that is marked as recorded, and runs that are added to earlier
sessions, become a ``Change`` of their metric.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.baselines.reading import significant
from pytest_dlperf.baselines.recording import Change, ChangeKind
from pytest_dlperf.config.options import Settings
from pytest_dlperf.gate.accepting import (
    spread_after_acceptance,
    spread_with,
    spread_with_changed,
    why_not_added,
)
from pytest_dlperf.gate.inputs import GateInput, MeasuredCase
from pytest_dlperf.gate.repeats import ADDED_RUNS
from pytest_dlperf.gate.terms import Terms
from pytest_dlperf.model import numbers
from pytest_dlperf.model.baseline import (
    ROLLING_SESSIONS,
    Acceptance,
    AcceptedSession,
    Baseline,
    Spread,
)
from pytest_dlperf.model.case import SINGLE_DEVICE, Case
from pytest_dlperf.model.judgement import Judgement, Verdict
from pytest_dlperf.model.measurement import Fingerprint, Measurement
from pytest_dlperf.model.metric import Metric
from pytest_dlperf.model.results import CaseResult

_NAMED: Final = 3
"""Metrics that did not pass and are named where others are not accepted for them."""


class Refusal(Struct, frozen=True):
    """A number that a session does not accept, or runs that it does not add."""

    case: Case
    metric: str | None
    """``None`` for all metrics of the case."""
    why: str
    is_bad: bool = True
    """Whether the session fails, as it was asked for the change."""


def changes_of(
    results: Sequence[CaseResult],
    baselines_of: Callable[[Case], Mapping[str, Baseline]],
    terms_of: Callable[[Case, Metric], Terms],
    settings: Settings,
    provenance: Acceptance,
) -> Iterator[Change | Refusal]:
    """Yield the changes of baselines that the results make, and those that are refused.

    ``provenance`` is what the acceptances of all cases share: session, person, commit and reason.
    Each judged metric is decided on its own. But all metrics of a case rest on the same runs: if
    one does not pass, none is kept.
    """
    bad = {result.case.id: why for result in results if (why := _why_bad(result)) is not None}
    for result in sorted(results, key=lambda result: (result.case.variant, result.case.topology)):
        measurement = result.measurement
        if measurement is None or measurement.broken_runs:
            continue
        baselines = baselines_of(result.case)
        refused: set[Refusal] = set()
        # In the order of the system's metrics, as they are written.
        for known in result.metrics().values():
            if (judgement := known.judgement) is None:
                continue
            terms = terms_of(result.case, judgement.metric)
            judged = _JudgedMetric(result, measurement, judgement, baselines, terms)
            outcome = judged.outcome(settings, bad, provenance)
            if isinstance(outcome, Refusal):
                if outcome in refused:
                    continue
                refused.add(outcome)
            if outcome is not None:
                yield outcome


def _why_bad(result: CaseResult) -> str | None:
    failed = [
        f"{name} is {judgement.verdict.value}"
        for name, judgement in result.judgements.items()
        if not judgement.passes(strict=False)
    ]
    if not result.is_whole:
        failed.append("a test of it was lost")
    return numbers.named(failed, _NAMED) or None


class _JudgedMetric(Struct, frozen=True):
    """One metric of a case, as the session has judged it, and the baselines of the case."""

    result: CaseResult
    measurement: Measurement
    judgement: Judgement
    baselines: Mapping[str, Baseline]
    terms: Terms

    @property
    def metric(self) -> Metric:
        return self.judgement.metric

    @property
    def baseline(self) -> Baseline | None:
        return self.baselines.get(self.metric.name)

    @property
    def runs(self) -> dict[int, float]:
        """Its numbers by run number; a ratio has none."""
        name = self.metric.name
        return {run.run: run.metrics[name] for run in self.measurement.runs if name in run.metrics}

    def refusal(self, why: str, *, is_bad: bool = True) -> Refusal:
        return Refusal(self.result.case, self.metric.name, why, is_bad=is_bad)

    def outcome(
        self, settings: Settings, bad: Mapping[str, str], provenance: Acceptance
    ) -> Change | Refusal | None:
        """Decide which change the judgement makes; ``bad`` says what did not pass, by case."""
        judged, baseline = self.judgement, self.baseline
        # A failing test shows the reason itself; a passing one would hide it.
        if judged.refused is not None and judged.passes(strict=False):
            return self.refusal(judged.reason or judged.refused)
        if judged.recorded:
            kind = ChangeKind.CREATE if baseline is None else ChangeKind.ACCEPT
            return self.why_not_kept(bad) or self.change(kind, provenance)
        return self._extended(bad, provenance) if settings.extend_baselines else None

    def _extended(self, bad: Mapping[str, str], provenance: Acceptance) -> Change | Refusal | None:
        judged, baseline = self.judgement, self.baseline
        is_known = judged.accepted is not None and self.metric.ratio_of is None
        if baseline is None or not is_known:
            return None
        if judged.verdict in (Verdict.REGRESSED, Verdict.IMPROVED):
            is_first = baseline.spread.changed is None
            return self.change(ChangeKind.NOTE, provenance) if is_first else None
        if judged.verdict is not Verdict.PASS:
            return None
        if (problem := self._why_not_added()) is not None:
            return Refusal(self.result.case, None, problem, is_bad=False)
        if (problem := why_not_added(judged, self._input)) is not None:
            return self.refusal(problem, is_bad=False)
        return self.why_not_kept(bad) or self.change(ChangeKind.EXTEND, provenance)

    @property
    def _input(self) -> GateInput:
        case = MeasuredCase(self.measurement, self.baselines)
        return GateInput(self.metric, case, self.terms).without_control

    def _spread(self, kind: ChangeKind) -> Spread:
        """Return how sessions differ, with this one."""
        is_new = self.judgement.verdict is Verdict.NO_BASELINE or self.judgement.decision is None
        rule = self._input.rule
        if rule is None or is_new or self.metric.ratio_of is not None:
            return Spread()
        runs = tuple(self.runs.values())
        if kind is ChangeKind.EXTEND:
            return spread_with(rule, runs)
        if kind is ChangeKind.NOTE:
            return spread_with_changed(rule, runs)
        return spread_after_acceptance(rule, runs)

    def _why_not_added(self) -> str | None:
        if len(self.runs) < ADDED_RUNS:
            return f"it has {len(self.runs)} runs, and {ADDED_RUNS} are needed to be added"
        for name, baseline in self.baselines.items():
            values = (run.metrics.get(name) for run in self.measurement.runs)
            runs = tuple(significant(value) for value in values if value is not None)
            # Runs that count twice would make the gate too sure. Equal numbers cannot be told from
            # those of another session.
            if len(set(runs)) > 1 and runs in baseline.rolling:
                return "these very runs have been added before"
        return None

    def why_not_kept(self, bad: Mapping[str, str]) -> Refusal | None:
        """Refuse a number whose case did not pass as a whole, or whose reference is missing."""
        case = self.result.case
        over = case.reference if self.metric.ratio_of is not None else None
        if case.id in bad:
            why = f"a part of the case did not pass ({bad[case.id]})"
            return Refusal(case, None, f"{why}; --dlperf-metric takes one metric alone")
        if over is not None and over.id in bad:
            return self.refusal(f"its reference {over.id} did not pass ({bad[over.id]})")
        stored = self.result.stored.get(self.metric.name)
        baseline = self.baseline
        if stored != (baseline and baseline.accepted):
            return self.refusal(
                "another session has changed its baseline meanwhile; run again to be judged "
                "against that"
            )
        base = self.metric.ratio_of
        if base is not None and base not in self.baselines:
            judged = self.result.judgements.get(base)
            if judged is None or not judged.recorded:
                return self.refusal(
                    f"no {base} is accepted, by which its {self.metric.name} is judged; "
                    f"--dlperf-metric {base},{self.metric.name} takes both"
                )
        if min([self.judgement.measured or 0.0, *self.runs.values()]) <= 0:
            return self.refusal("a number that is not above zero has no parts to lose")
        return None

    def change(self, kind: ChangeKind, provenance: Acceptance) -> Change:
        case, metric, known = self.result.case, self.metric, self.baseline
        runs = {run: significant(value) for run, value in sorted(self.runs.items())}
        if known is not None and kind in (ChangeKind.EXTEND, ChangeKind.NOTE):
            now = replace(known, spread=self._spread(kind))
            if kind is ChangeKind.EXTEND:
                session = AcceptedSession(at=provenance.at, runs=tuple(runs.values()))
                now = replace(now, sessions=(*known.sessions, session)[-ROLLING_SESSIONS:])
            return Change(kind=kind, case=case, metric=metric, known=known, now=now)
        measured, reference = self.judgement.measured, self.result.reference
        if metric.better is None or measured is None:
            raise AssertionError(f"{metric.name} has no number to accept")
        taken_on = self.measurement.fingerprint or Fingerprint()
        now = Baseline(
            metric=metric.name,
            unit=metric.unit,
            better=metric.better,
            estimator=self.measurement.estimator,
            accepted=significant(measured),
            tolerance_percent=known.tolerance_percent if known else None,
            runs=runs,
            note=known.note if known else None,
            spread=self._spread(kind),
            acceptance=replace(
                provenance,
                hosts=taken_on.hosts,
                software=taken_on.software,
                commits=taken_on.commits,
                launch=taken_on.launch,
            ),
            machine=taken_on.machine,
        )
        if metric.ratio_of is not None and reference is not None:
            over = reference.samples(metric.ratio_of).median
            topology = str(case.reference_topology or SINGLE_DEVICE)
            now = replace(now, over=over and significant(over), reference=topology)
        return Change(kind=kind, case=case, metric=metric, known=known, now=now)
