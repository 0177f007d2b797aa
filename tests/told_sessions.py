"""Made sessions, told in each form: what a person reads of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import results_makers as make
from explained import ACCEPTANCE, DELAY, MONDAY, SINCE_TUESDAY, TORCH, explained, moved_case
from gate_values import EVEN, METRIC, accepted, end, judge, measured
from msgspec.structs import replace

from pytest_dlperf.gate.inputs import GateInput
from pytest_dlperf.gate.terms import Terms
from pytest_dlperf.gate.verdicts import GateResult
from pytest_dlperf.history.series import Drift, Series
from pytest_dlperf.model.commits import Commit, CommitRange
from pytest_dlperf.model.judgement import (
    Companion,
    Difference,
    DifferenceKind,
    Explanation,
    FoundCulprit,
    PastSession,
    Verdict,
)
from pytest_dlperf.model.metric import Better
from pytest_dlperf.notices.brief import notice_of
from pytest_dlperf.report.failure import failure_message
from pytest_dlperf.report.github import annotation_lines
from pytest_dlperf.report.html.page import html_page
from pytest_dlperf.report.markdown import markdown_page
from pytest_dlperf.report.terminal import summary_lines

if TYPE_CHECKING:
    from pytest_dlperf.model.results import CaseResult, Results
    from pytest_dlperf.report.session import SessionReport

NOW: Final = PastSession(at=make.STARTED, commit="2b3c4d5e6f70")
RUN: Final = "https://ci.example/18"
ENVIRONMENT: Final = {"host": "pc", "python": "3.11.7", "commit": "2b3c4d5e6f70", "ci_run": RUN}
LOADER: Final = Commit(
    name="1a2b3c4d5e6f",
    at=MONDAY.at,
    author="Bo",
    title="Read records by mmap",
    address="https://git.example/1a2b",
)
EVERYTHING: Final = replace(
    SINCE_TUESDAY,
    red_since=PastSession(at="2026-11-15T22:00:00+01:00"),
    differences=(
        DELAY,
        TORCH,
        Difference(
            kind=DifferenceKind.COMMIT,
            name="working_directory",
            checkout="bench",
            accepted="7777777",
            last_good="9f8e7d6c5b4a",
            now="1a2b3c4d5e6f",
            came_with_it=True,
        ),
    ),
    commits=(
        CommitRange(
            checkout="bench", first="9f8e7d6c5b4a", last="1a2b3c4d5e6f", count=7, commits=(LOADER,),
            compare="https://git.example/9f8e...1a2b",
        ),
    ),
    found=FoundCulprit("3f2a91c, 99 % sure, 11 runs", {"commit": "3f2a91c: Fuse the norms"}),
    companions=(
        Companion(
            case_id="probe-allreduce-4n8g", resource="network", metric="bandwidth",
            verdict=Verdict.REGRESSED, difference_percent=-20.0, loss_percent=20.0, is_blamed=True,
        ),
        Companion(case_id="probe-gemm-4n8g", resource="compute", verdict=Verdict.PASS),
    ),
)  # fmt: skip
"""An explanation that has everything that can be known."""


def case_id(batch: int) -> str:
    return f"paddle-resnet50-fp32-b{batch}-4n8g"


def passing(count: int) -> list[CaseResult]:
    return [make.measured_case(case_id(batch), 1000.0) for batch in range(500, 500 + count)]


def failing(batch: int, verdict: Verdict, reason: str, why: Explanation | None) -> CaseResult:
    return explained(make.unmeasured_case(case_id(batch), verdict, reason), why)


def expected(result: CaseResult, why: str) -> CaseResult:
    judgements = {name: replace(one, expected=why) for name, one in result.judgements.items()}
    return replace(result, judgements=judgements)


def red() -> Results:
    """Each way to be bad, a cause that several cases share, and all that is told beside it."""
    new = replace(
        SINCE_TUESDAY,
        since=NOW,
        last_good=SINCE_TUESDAY.since,
        days=3,
        days_at_level=1,
        differences=(),
    )
    some = replace(SINCE_TUESDAY, differences=(DELAY, replace(TORCH, now="2.15")))
    hung = "run 1: hung after step 40\nstep 39\nstep 40"
    results = make.session(
        moved_case(case_id(1), -9.9, EVERYTHING),
        moved_case(case_id(2), -8.0),
        moved_case(case_id(3), -8.5),
        moved_case(case_id(4), -8.2, some),
        failing(5, Verdict.FAILED, f"{case_id(5)}, run 1: exited with 3", new),
        failing(6, Verdict.HUNG, hung, None),
        failing(7, Verdict.INVALID, "run 2: no loss in its log", None),
        failing(8, Verdict.NO_BASELINE, "", None),
        moved_case(case_id(9), 9.9, None, Verdict.IMPROVED),
        moved_case(case_id(10), -3.0, None, Verdict.ENVIRONMENT_SHIFT),
        expected(moved_case(case_id(12), -7.0), "the new fabric, #812, until 2026-12-01"),
        make.unmeasured_case(case_id(11), Verdict.SKIPPED, "needs 4 hosts, there are 2"),
        *(explained(one, Explanation(red_since=MONDAY)) for one in passing(1)),
        *passing(3)[1:],
        environment=ENVIRONMENT,
    )
    return replace(results, unfit_hosts={"node3": ("no GPU answers",)})


def green() -> Results:
    return make.session(*passing(2), environment=ENVIRONMENT)


SESSIONS: Final[Mapping[str, Callable[[], Results]]] = {"red": red, "green": green}


def session_report(results: Results) -> SessionReport:
    """A session in words; one of its metrics drifts."""
    case = results.cases[1].case
    series = Series(
        case_id=case.id, metric="throughput", unit="images/s", better=Better.HIGHER,
        reference_topology=None, cluster="office", estimator="steady",
    )  # fmt: skip
    drift = Drift(since="2026-10-20T22:00", days=30, percent=-4.0, percent_per_week=-0.9)
    return make.report(results, drifts=[(series, drift)] if len(results.cases) > 2 else ())


def failure(explanation: Explanation | None = EVERYTHING) -> str:
    """The message of a test that was accepted as 1000, by Ana."""
    runs = measured(*(0.9 * one for one in EVEN))
    runs = replace(runs, runs=tuple(replace(r, log=f"logs/last/{r.run}.log") for r in runs.runs))
    baseline = replace(accepted(EVEN, metric=METRIC), acceptance=ACCEPTANCE)
    gate_input = GateInput(METRIC, end(runs, baseline), Terms(tolerance_percent=5.0))
    judgement = judge(runs, baseline, tolerance_percent=5.0)
    settled = GateResult(input=gate_input, judgement=judgement)
    return failure_message(settled, explanation, make.STARTED)


def terminal(session: SessionReport) -> str:
    return "\n".join(line.text for line in summary_lines(session, width=120))


FORMS: Final[Mapping[str, Callable[[SessionReport], str]]] = {
    "terminal": terminal,
    "annotations": lambda session: "\n".join(annotation_lines(session)),
    "page.md": markdown_page,
    "notice": lambda session: (found := notice_of(session)).subject + "\n\n" + found.text,
    "comment.md": lambda session: notice_of(session).markdown,
    "page.html": html_page,
}
"""All forms of a session but the failure of a test, by the names of their golden files."""
