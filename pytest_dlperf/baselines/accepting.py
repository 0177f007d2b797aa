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
from pytest_dlperf.gate.accepting import why_too_scattered
from pytest_dlperf.gate.inputs import GateInput, MeasuredCase
from pytest_dlperf.gate.noise import pooled_noise
from pytest_dlperf.gate.repeats import ADDED_RUNS
from pytest_dlperf.gate.rule import Rule
from pytest_dlperf.gate.terms import Terms
from pytest_dlperf.model import numbers
from pytest_dlperf.model.baseline import (
    ROLLING_SESSIONS,
    SPREAD_SESSIONS,
    Acceptance,
    AcceptedSession,
    Baseline,
    PooledNoise,
    Spread,
)
from pytest_dlperf.model.case import SINGLE_DEVICE, Case
from pytest_dlperf.model.judgement import Judgement, Verdict
from pytest_dlperf.model.measurement import Fingerprint, Measurement
from pytest_dlperf.model.metric import Metric
from pytest_dlperf.model.results import CaseResult

_NAMED: Final = 3
"""Metrics that did not pass and are named where others are not accepted for them."""
_MAX_CARRIED_DOF: Final = 44
"""Noise from before an acceptance counts as much as that of a year's quarter of weekly sessions."""


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
        own = MeasuredCase(measurement, baselines_of(result.case))
        refused: set[Refusal] = set()
        # In the order of the system's metrics, as they are written.
        for known in result.metrics().values():
            if (judgement := known.judgement) is None:
                continue
            terms = terms_of(result.case, judgement.metric)
            gate_input = GateInput(judgement.metric, own, terms).without_control
            judged = _JudgedMetric(result, judgement, gate_input, bad, provenance)
            outcome = judged.outcome(settings)
            if outcome is not None and not (isinstance(outcome, Refusal) and outcome in refused):
                yield outcome
            if isinstance(outcome, Refusal):
                refused.add(outcome)


def _why_bad(result: CaseResult) -> str | None:
    failed = [
        f"{name} is {judgement.verdict.value}"
        for name, judgement in result.judgements.items()
        if not judgement.passes(strict=False)
    ]
    if not result.is_whole:
        failed.append("a test of it was lost")
    return numbers.named(failed, _NAMED) or None


def spread_after(kind: ChangeKind, rule: Rule, runs: Sequence[float]) -> Spread:
    """Return how sessions differ, with one that joins, or that is worse or better."""
    known, loss = rule.baseline.spread, rule.loss_of(runs)
    # Of several in a row that are worse or better, the first is kept.
    changed = known.changed or loss
    if kind is ChangeKind.NOTE:
        return replace(known, changed=changed)
    if kind is ChangeKind.EXTEND:
        new = filter(None, (known.changed, loss))
        # Twelve sessions show their noise themselves.
        is_known = len(rule.baseline.rolling) + 1 >= ROLLING_SESSIONS
        noise = None if is_known else known.noise
    else:
        # Only the level is new. What a person accepts as worse is other software; a gain may be
        # the session's.
        new = filter(None, (changed if changed and changed.percent < 0 else None,))
        noise = rule.noise
        if noise is not None:
            dof = min(noise.dof, _MAX_CARRIED_DOF)
            noise = PooledNoise(deviation=round(noise.deviation, 6), dof=dof)
    return Spread(losses=(*known.losses, *new)[-SPREAD_SESSIONS:], noise=noise)


def why_not_added(judgement: Judgement, gate_input: GateInput) -> str | None:
    """Return why the runs of a session that passes do not join; ``None`` if they do."""
    rule, runs = gate_input.rule, gate_input.runs
    if rule is None:
        return "it has no baseline"
    if judgement.verdict is Verdict.IMPROVED:
        return "it has improved: accept the number with --dlperf-update-baselines first"
    if rule.noise is None:
        return why_too_scattered(runs, tolerance_percent=gate_input.tolerance_percent)
    own = pooled_noise([runs])
    if own is None or not rule.is_noisy(runs):
        return None
    return (
        f"its runs differ by {numbers.variation(own.deviation)}, those of the baseline by "
        f"{numbers.variation(rule.noise.deviation)}"
    )


class _JudgedMetric(Struct, frozen=True):
    """One metric of a case, as the session has judged it; ``bad`` says what did not pass."""

    result: CaseResult
    judgement: Judgement
    gate_input: GateInput
    bad: Mapping[str, str]
    provenance: Acceptance

    @property
    def metric(self) -> Metric:
        return self.judgement.metric

    @property
    def measurement(self) -> Measurement:
        return self.gate_input.case.measurement

    @property
    def runs(self) -> dict[int, float]:
        """Its numbers by run number; a ratio has none."""
        name = self.metric.name
        return {run.run: run.metrics[name] for run in self.measurement.runs if name in run.metrics}

    def refusal(self, why: str, *, is_bad: bool = True) -> Refusal:
        return Refusal(self.result.case, self.metric.name, why, is_bad=is_bad)

    def outcome(self, settings: Settings) -> Change | Refusal | None:
        """Decide which change the judgement makes."""
        judged, baseline = self.judgement, self.gate_input.baseline
        # A failing test shows the reason itself; a passing one would hide it.
        if judged.refused is not None and judged.passes(strict=False):
            return self.refusal(judged.reason or judged.refused)
        if judged.recorded:
            kind = ChangeKind.CREATE if baseline is None else ChangeKind.ACCEPT
            return self.why_not_kept() or self.accepted(kind)
        is_known = judged.accepted is not None and self.metric.ratio_of is None
        if settings.extend_baselines and baseline is not None and is_known:
            return self._joined(baseline)
        return None

    def _joined(self, baseline: Baseline) -> Change | Refusal | None:
        verdict = self.judgement.verdict
        if verdict in (Verdict.REGRESSED, Verdict.IMPROVED):
            is_first = baseline.spread.changed is None
            return self.extended(baseline, ChangeKind.NOTE) if is_first else None
        if verdict is not Verdict.PASS:
            return None
        if (problem := self._why_not_new()) is not None:
            return Refusal(self.result.case, None, problem, is_bad=False)
        if (problem := why_not_added(self.judgement, self.gate_input)) is not None:
            return self.refusal(problem, is_bad=False)
        return self.why_not_kept() or self.extended(baseline, ChangeKind.EXTEND)

    def _why_not_new(self) -> str | None:
        if len(self.runs) < ADDED_RUNS:
            return f"it has {len(self.runs)} runs, and {ADDED_RUNS} are needed to be added"
        for name, baseline in self.gate_input.case.baselines.items():
            values = (run.metrics.get(name) for run in self.measurement.runs)
            runs = tuple(significant(value) for value in values if value is not None)
            # Runs that count twice would make the gate too sure. Equal numbers cannot be told from
            # those of another session.
            if len(set(runs)) > 1 and runs in baseline.rolling:
                return "these very runs have been added before"
        return None

    def why_not_kept(self) -> Refusal | None:
        """Refuse a number whose case did not pass as a whole, or whose reference is missing."""
        case, base, baseline = self.result.case, self.metric.ratio_of, self.gate_input.baseline
        over = case.reference if base is not None else None
        if case.id in self.bad:
            why = f"a part of the case did not pass ({self.bad[case.id]})"
            return Refusal(case, None, f"{why}; --dlperf-metric takes one metric alone")
        if over is not None and over.id in self.bad:
            return self.refusal(f"its reference {over.id} did not pass ({self.bad[over.id]})")
        if self.result.stored.get(self.metric.name) != (baseline and baseline.accepted):
            return self.refusal(
                "another session has changed its baseline meanwhile; run again to be judged "
                "against that"
            )
        judged = self.result.judgements.get(base or "")
        is_recorded = judged is not None and judged.recorded
        if base is not None and base not in self.gate_input.case.baselines and not is_recorded:
            return self.refusal(
                f"no {base} is accepted, by which its {self.metric.name} is judged; "
                f"--dlperf-metric {base},{self.metric.name} takes both"
            )
        if min([self.judgement.measured or 0.0, *self.runs.values()]) <= 0:
            return self.refusal("a number that is not above zero has no parts to lose")
        return None

    def _spread(self, kind: ChangeKind) -> Spread:
        rule = self.gate_input.rule
        is_known = rule is not None and self.metric.ratio_of is None and self.judgement.decision
        return spread_after(kind, rule, [*self.runs.values()]) if rule and is_known else Spread()

    def extended(self, known: Baseline, kind: ChangeKind) -> Change:
        """Add the session's runs, or note how far it lies from the others."""
        now = replace(known, spread=self._spread(kind))
        if kind is ChangeKind.EXTEND:
            runs = tuple(significant(value) for _, value in sorted(self.runs.items()))
            session = AcceptedSession(at=self.provenance.at, runs=runs)
            now = replace(now, sessions=(*known.sessions, session)[-ROLLING_SESSIONS:])
        return Change(kind=kind, case=self.result.case, metric=self.metric, known=known, now=now)

    def accepted(self, kind: ChangeKind) -> Change:
        """Take the session's number in place of what there was."""
        case, metric, known = self.result.case, self.metric, self.gate_input.baseline
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
            runs={run: significant(value) for run, value in sorted(self.runs.items())},
            note=known.note if known else None,
            spread=self._spread(kind),
            acceptance=replace(
                self.provenance,
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
