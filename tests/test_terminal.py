"""The summary at the end of a session, as a reader sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from trainers import TinySystem

from pytest_dlperf.cases import Case
from pytest_dlperf.gate.verdict import Judgement, Quantity, Verdict
from pytest_dlperf.logs.tree import IgnoredLog
from pytest_dlperf.measurement import Estimator, Measurement, Run, RunStatus
from pytest_dlperf.reports.terminal import summary_lines
from pytest_dlperf.session import AcceptedNumbers, CaseResult

if TYPE_CHECKING:
    from suites import Suite

ID = "pytorch-resnet50-fp32-b128-dali+workers8-4n8g"


def result(
    verdict: Verdict,
    *,
    case_id: str = ID,
    throughputs: tuple[float | None, ...] = (8940.3, 8468.23, 8781.78),
    speedup: Verdict | None = None,
) -> CaseResult:
    runs = tuple(
        Run(
            run=number,
            throughput=value,
            status=RunStatus.OK if value else RunStatus.INVALID,
            reason=None if value else "too few\nsteps",
        )
        for number, value in enumerate(throughputs, 1)
    )
    judgements = {
        Quantity.THROUGHPUT: Judgement(
            quantity=Quantity.THROUGHPUT,
            verdict=verdict,
            measured=8781.78,
            baseline=9000.0,
            difference_percent=-2.42,
            tolerance_percent=5,
        )
    }
    if speedup is not None:
        judgements[Quantity.SPEEDUP] = Judgement(
            quantity=Quantity.SPEEDUP,
            verdict=speedup,
            measured=24.0,
            baseline=24.88,
            difference_percent=-3.54,
        )
    return CaseResult(
        case=Case.parse(case_id),
        measurement=Measurement(
            case_id=case_id, unit="images/s", estimator=Estimator.PUBLISHED, runs=runs
        ),
        speedup=24.0,
        accepted=AcceptedNumbers(throughput=9000.0, speedup=24.88, estimator="published"),
        judgements=judgements,
    )


def lines(*results: CaseResult, width: int = 160, with_runs: bool = True) -> list[str]:
    return [line.text for line in summary_lines(results, [], width=width, with_runs=with_runs)]


def test_a_row_has_all_numbers() -> None:
    head, row, runs = lines(result(Verdict.PASS, speedup=Verdict.PASS))

    assert head.split() == [
        "case", "runs", "median", "mean", "spread", "baseline", "diff", "speedup", "baseline",
        "diff", "verdict",
    ]  # fmt: skip
    assert row.split() == [
        ID, "3", "8781.78", "8730.10", "2.8", "%", "9000.00", "-2.4", "%", "24.00", "24.88", "-3.5",
        "%", "pass",
    ]  # fmt: skip
    assert runs.split() == ["images/s", "1:", "8940.30", "2:", "8468.23", "3:", "8781.78"]


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_the_table_keeps_to_the_terminal(width: int) -> None:
    many = result(Verdict.PASS, throughputs=tuple(8000.0 + n for n in range(30)))
    assert max(map(len, lines(many, width=width))) <= width


def test_the_worst_comes_first() -> None:
    order = [Verdict.PASS, Verdict.FAILED, Verdict.IMPROVED, Verdict.REGRESSED, Verdict.INVALID]
    rows = lines(*map(result, order), with_runs=False)[1:]
    assert [row.split()[-1] for row in rows] == [
        "failed", "invalid", "regressed", "improved", "pass",
    ]  # fmt: skip


def test_the_quantity_is_named_where_the_verdicts_differ() -> None:
    row = lines(result(Verdict.PASS, speedup=Verdict.REGRESSED), with_runs=False)[1]
    assert row.endswith("speedup regressed; throughput pass")


def test_broken_runs_are_counted_and_explained_on_one_line() -> None:
    text = lines(result(Verdict.INVALID, throughputs=(8940.3, None)))
    assert text[1].split()[1] == "1/2"
    assert text[2].split()[-2:] == ["2:", "invalid"]
    assert text[3] == "    run 2: too few steps"


def test_cases_that_were_never_reached_are_only_counted() -> None:
    text = lines(result(Verdict.PASS), *[CaseResult(case=Case.parse(ID))] * 95, with_runs=False)
    assert text[-1] == "95 of 96 cases were not judged"
    assert len(text) == 3


def test_a_measured_case_without_a_verdict_says_so() -> None:
    measured = result(Verdict.PASS)
    measured.judgements.clear()
    assert lines(measured, with_runs=False)[1].endswith("not judged")


def test_only_the_first_left_out_logs_are_listed() -> None:
    ignored = [IgnoredLog(f"{number}\n.log", "the reason") for number in range(30)]
    text = [line.text for line in summary_lines([], ignored, width=80)]
    assert text[0] == "30 logs were left out:"
    assert text[1] == r"  0\n.log: the reason"
    assert text[-1] == "  … and 10 more; --dlperf-json FILE has all of them"
    assert len(text) == 22


def test_quiet_leaves_the_single_runs_out(suite: Suite) -> None:
    TinySystem(suite)
    select = ["-k", "throughput and tiny and 1n1g", "--dlperf-create-baselines"]

    loud = suite.run(*select)
    quiet = suite.run(*select, "-q")

    loud.stdout.fnmatch_lines(
        ["*dlperf: cluster local, steady*", "    samples/s  1: 400.00  2: 400.00*"]
    )
    quiet.stdout.no_fnmatch_line("    samples/s  1:*")
    quiet.stdout.fnmatch_lines(["tiny-mlp-fp32-b4-1n1g  pass (sees *", "*400.00*"])
