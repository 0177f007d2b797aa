"""Results whose verdicts are explained: since when, what differs, who accepted."""

from __future__ import annotations

import results_makers as make
from msgspec.structs import replace

from pytest_dlperf.model.baseline import Acceptance
from pytest_dlperf.model.judgement import (
    Difference,
    DifferenceKind,
    Explanation,
    PastSession,
    Verdict,
)
from pytest_dlperf.model.results import CaseResult

# By results_makers.STARTED, now is Friday.
TUESDAY = PastSession(
    at="2026-11-17T22:00:00+01:00", commit="1a2b3c4d5e6f", ci_run="https://ci.example/17"
)
MONDAY = PastSession(
    at="2026-11-16T22:00:00+01:00", commit="9f8e7d6c5b4a", ci_run="https://ci.example/16"
)
DELAY = Difference(
    kind=DifferenceKind.COMMAND,
    name="--step-delay-ms",
    accepted="-",
    last_good="-",
    now="1000",
    came_with_it=True,
)
TORCH = Difference(
    kind=DifferenceKind.SOFTWARE, name="torch", accepted="2.12", last_good="2.13", now="2.14"
)
SINCE_TUESDAY = Explanation(
    since=TUESDAY, last_good=MONDAY, days=4, days_at_level=4, differences=(DELAY, TORCH)
)
ACCEPTANCE = Acceptance(
    at="2026-11-03T22:00:00+01:00",
    by="Ana Diaz <ana@example.org>",
    commit="abcdef123456",
    reason="the new loader",
)


def moved_case(
    case_id: str,
    percent: float,
    explanation: Explanation | None = SINCE_TUESDAY,
    verdict: Verdict = Verdict.REGRESSED,
) -> CaseResult:
    """A case whose throughput lies so far from 1000, and why."""
    level = 1000 + 10 * percent
    judgement = make.judged(verdict, measured=level, accepted=1000.0, difference_percent=percent)
    result = make.measured_case(case_id, *[level] * 5, baseline=1000.0)
    return explained(make.with_judgement(result, judgement), explanation)


def explained(result: CaseResult, explanation: Explanation | None) -> CaseResult:
    """The case with this on its throughput, whose accepted number is Ana's."""
    accepted = make.baseline_of(1000.0, acceptance=ACCEPTANCE)
    return replace(
        result,
        accepted={**result.accepted, "throughput": accepted},
        explanations={} if explanation is None else {"throughput": explanation},
    )
