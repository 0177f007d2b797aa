"""Which rule judges a case, and that as many runs are taken as that rule asks for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gate_values import EVEN, judge_throughput

from pytest_dlperf.gate.rules import RepeatsByRule, Terms, repeats_for, rule_for, rule_maker
from pytest_dlperf.model.baseline import AcceptedSession, Baseline
from pytest_dlperf.model.judgement import RuleName, Verdict
from pytest_dlperf.model.measurement import Estimator, Measurement, Run, RunStatus


def baseline(sessions: int = 6, runs: int = 5, own: float | None = None) -> Baseline:
    return Baseline(
        throughput=1000.0,
        speedup=None,
        unit="images/s",
        estimator=Estimator.STEADY,
        tolerance_percent=own,
        mean=None,
        runs=dict(enumerate(EVEN[:runs], 1)),
        strays={},
        note=None,
        place="baselines/x/y.yaml:7",
        sessions=tuple(AcceptedSession(at="", runs=EVEN[:runs]) for _ in range(sessions - 1)),
    )


def name_of(
    accepted: Baseline,
    *,
    tolerance: float = 5.0,
    forced: RuleName | None = None,
    repeats: int | None = None,
) -> RuleName:
    return rule_for(
        accepted, Terms(tolerance_percent=tolerance, forced=forced, repeats=repeats)
    ).name


@pytest.mark.parametrize(
    ("sessions", "runs", "expected"),
    [
        (6, 5, RuleName.SEQUENTIAL),
        (4, 5, RuleName.SEQUENTIAL),
        (5, 4, RuleName.SEQUENTIAL),
        (4, 4, RuleName.TOLERANCE),
        (3, 5, RuleName.TOLERANCE),
        (1, 5, RuleName.TOLERANCE),
    ],
)
def test_twenty_runs_of_four_sessions_make_it_sequential(
    sessions: int, runs: int, expected: RuleName
) -> None:
    assert name_of(baseline(sessions, runs)) is expected


def test_twenty_runs_of_three_sessions_do_not() -> None:
    seven = (*EVEN, *EVEN[:2])
    few = replace(
        baseline(),
        runs=dict(enumerate(seven, 1)),
        sessions=tuple(AcceptedSession(at="", runs=seven) for _ in range(2)),
    )
    assert name_of(few) is RuleName.TOLERANCE


def test_a_session_of_one_run_or_two_is_none() -> None:
    many = EVEN * 3
    assert name_of(of_sessions(many, EVEN[:1], EVEN[:2], EVEN[:2])) is RuleName.TOLERANCE
    assert name_of(of_sessions(many, EVEN[:3], EVEN[:3], EVEN[:2])) is RuleName.TOLERANCE
    assert name_of(of_sessions(many, EVEN[:3], EVEN[:3], EVEN[:3])) is RuleName.SEQUENTIAL


def of_sessions(*sessions: tuple[float, ...]) -> Baseline:
    accepted, *later = sessions
    return replace(
        baseline(),
        runs=dict(enumerate(accepted, 1)),
        sessions=tuple(AcceptedSession(at="", runs=runs) for runs in later),
    )


def test_a_tolerance_above_ten_percent_asks_for_the_tolerance_rule() -> None:
    assert name_of(baseline(), tolerance=10.0) is RuleName.SEQUENTIAL
    assert name_of(baseline(), tolerance=10.5) is RuleName.TOLERANCE
    assert name_of(baseline(own=10.5)) is RuleName.TOLERANCE
    assert name_of(baseline(own=3.0), tolerance=10.5) is RuleName.SEQUENTIAL


def test_fewer_than_three_fixed_runs_ask_for_the_tolerance_rule() -> None:
    assert name_of(baseline(), repeats=3) is RuleName.SEQUENTIAL
    assert name_of(baseline(), repeats=2) is RuleName.TOLERANCE


def test_a_rule_can_be_forced() -> None:
    assert name_of(baseline(), forced=RuleName.TOLERANCE) is RuleName.TOLERANCE
    assert name_of(baseline(1), forced=RuleName.SEQUENTIAL) is RuleName.SEQUENTIAL
    assert name_of(replace(baseline(1), runs={}), forced=RuleName.SEQUENTIAL) is RuleName.TOLERANCE


def test_the_rule_is_made_with_what_the_case_and_the_user_say() -> None:
    def verdict(accepted: Baseline, level: float, system: float = 5.0) -> Verdict | None:
        rule = rule_for(accepted, Terms(tolerance_percent=system))
        decision = rule.decide([level] * 9, is_last=True)
        return decision.verdict if decision else None

    assert verdict(baseline(), 970.0) is Verdict.REGRESSED
    assert verdict(baseline(own=4.0), 970.0) is Verdict.PASS
    crept = replace(baseline(), throughput=1045.0)
    assert verdict(crept, 1000.0) is Verdict.PASS
    assert verdict(crept, 1000.0, system=3.0) is Verdict.REGRESSED
    assert verdict(replace(crept, tolerance_percent=3.0), 1000.0) is Verdict.REGRESSED
    assert rule_for(baseline(), Terms(tolerance_percent=5.0, repeats=6)).at_most == 6
    assert rule_for(baseline(1), Terms(tolerance_percent=5.0, repeats=6)).at_most == 6
    assert rule_for(baseline(), Terms(tolerance_percent=5.0), available=6).at_most == 6


def repeats(
    accepted: Baseline | None, *, fixed: int | None = None, at_least: int | None = None
) -> tuple[int | None, list[int]]:
    """The largest number of runs, and after which of nine equal usual runs there are enough."""
    by = repeats_for(
        accepted,
        Terms(tolerance_percent=5.0, repeats=fixed, default_repeats=5),
        at_least=at_least,
    )
    return by.at_most, [count for count in range(1, 10) if by.is_enough([1000.0] * count)]


def test_the_system_says_how_many_runs_the_tolerance_takes() -> None:
    assert repeats(None) == (5, [5, 6, 7, 8, 9])
    assert repeats(baseline(1)) == (5, [5, 6, 7, 8, 9])


def test_the_sequential_rule_takes_three_to_nine() -> None:
    assert repeats(baseline()) == (9, [3, 4, 5, 6, 7, 8, 9])


def test_the_user_says_exactly_how_many() -> None:
    assert repeats(baseline(), fixed=6) == (6, [6, 7, 8, 9])
    assert repeats(baseline(1), fixed=2) == (2, [2, 3, 4, 5, 6, 7, 8, 9])
    assert repeats(baseline(), fixed=2, at_least=4) == (2, [2, 3, 4, 5, 6, 7, 8, 9])


def test_a_session_that_records_takes_at_least_so_many() -> None:
    assert repeats(baseline(), at_least=4) == (9, [4, 5, 6, 7, 8, 9])
    assert repeats(None, at_least=7) == (7, [7, 8, 9])


def test_over_logs_the_tolerance_takes_all_that_there_are() -> None:
    by = repeats_for(None, Terms(tolerance_percent=5.0))
    assert by.at_most is None
    assert not by.is_enough([1000.0] * 50)


@pytest.mark.parametrize("level", [900.0, 940.0, 970.0, 980.0, 985.0, 1000.0, 1040.0])
def test_the_rule_that_asked_for_the_runs_is_the_one_that_judges_them(level: float) -> None:
    accepted = baseline()
    by = RepeatsByRule(rule_for(accepted, Terms(tolerance_percent=5.0)))
    runs: list[float] = []
    while not by.is_enough(runs):
        runs.append(level * (1 + 0.004 * (-1) ** len(runs)))
    asked = by.rule.decide(runs, is_last=False)
    measurement = Measurement(
        case_id="paddle-resnet50-fp32-b128-1n8g",
        unit="images/s",
        estimator=Estimator.STEADY,
        runs=tuple(
            Run(run=number, throughput=run, status=RunStatus.OK)
            for number, run in enumerate(runs, 1)
        ),
    )
    judged = judge_throughput(measurement, accepted, tolerance_percent=5.0)
    assert asked is not None
    assert judged.verdict is asked.verdict
    assert judged.min_detectable_percent == asked.min_detectable_percent
    assert (judged.verdict is Verdict.REGRESSED) == (level < 975)


def test_a_made_rule_stays_of_its_kind_with_other_sessions() -> None:
    make = rule_maker(baseline(), Terms(tolerance_percent=5.0))
    assert make([EVEN, EVEN]).name is RuleName.SEQUENTIAL
    few = rule_maker(baseline(1), Terms(tolerance_percent=5.0, default_repeats=3))([EVEN])
    assert (few.name, few.at_most) == (RuleName.TOLERANCE, 3)
    decision = few.decide([940.0] * 3, is_last=False)
    assert decision is not None
    assert (decision.verdict, decision.reference) == (Verdict.REGRESSED, 1000.0)
