"""Which rule judges a case, and that as many runs are taken as that rule asks for."""

import pytest
from gate_values import EVEN, METRIC, TIME, accepted, end, judge, measured, mirrored, sound_run
from msgspec.structs import replace

from pytest_dlperf.gate.rules import (
    RepeatsByRule,
    Terms,
    last_decision,
    repeats_for,
    rule_for,
)
from pytest_dlperf.gate.verdicts import (
    GateInput,
    GateOptions,
    MeasuredCase,
    accept,
    decide,
)
from pytest_dlperf.model.baseline import AcceptedSession
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.measurement import Estimator
from pytest_dlperf.model.metric import RuleName, Source


def baseline(sessions=6, runs=5, own=None):
    return accepted(*[EVEN[:runs]] * sessions, number=1000.0, own=own)


def name_of(
    accepted,
    *,
    tolerance=5.0,
    forced=None,
    repeats=None,
):
    return rule_for(
        METRIC, accepted, Terms(tolerance_percent=tolerance, forced=forced, repeats=repeats)
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
def test_twenty_runs_of_four_sessions_make_it_sequential(sessions, runs, expected):
    assert name_of(baseline(sessions, runs)) is expected


def test_twenty_runs_of_three_sessions_do_not():
    seven = (*EVEN, *EVEN[:2])
    few = replace(
        baseline(),
        runs=dict(enumerate(seven, 1)),
        sessions=tuple(AcceptedSession(at="", runs=seven) for _ in range(2)),
    )
    assert name_of(few) is RuleName.TOLERANCE


def test_a_session_of_one_run_or_two_is_none():
    many = EVEN * 3
    assert name_of(of_sessions(many, EVEN[:1], EVEN[:2], EVEN[:2])) is RuleName.TOLERANCE
    assert name_of(of_sessions(many, EVEN[:3], EVEN[:3], EVEN[:2])) is RuleName.TOLERANCE
    assert name_of(of_sessions(many, EVEN[:3], EVEN[:3], EVEN[:3])) is RuleName.SEQUENTIAL


def of_sessions(*sessions):
    accepted, *later = sessions
    return replace(
        baseline(),
        runs=dict(enumerate(accepted, 1)),
        sessions=tuple(AcceptedSession(at="", runs=runs) for runs in later),
    )


def test_a_tolerance_above_ten_percent_asks_for_the_tolerance_rule():
    assert name_of(baseline(), tolerance=10.0) is RuleName.SEQUENTIAL
    assert name_of(baseline(), tolerance=10.5) is RuleName.TOLERANCE
    assert name_of(baseline(own=10.5)) is RuleName.TOLERANCE
    assert name_of(baseline(own=3.0), tolerance=10.5) is RuleName.SEQUENTIAL


def test_fewer_than_three_fixed_runs_ask_for_the_tolerance_rule():
    assert name_of(baseline(), repeats=3) is RuleName.SEQUENTIAL
    assert name_of(baseline(), repeats=2) is RuleName.TOLERANCE


def test_a_rule_can_be_forced():
    assert name_of(baseline(), forced=RuleName.TOLERANCE) is RuleName.TOLERANCE
    assert name_of(baseline(1), forced=RuleName.SEQUENTIAL) is RuleName.SEQUENTIAL
    assert name_of(replace(baseline(1), runs={}), forced=RuleName.SEQUENTIAL) is RuleName.TOLERANCE


def test_the_rule_is_made_with_what_the_case_and_the_user_say():
    def verdict(accepted, level, system=5.0):
        rule = rule_for(METRIC, accepted, Terms(tolerance_percent=system))
        decision = rule.decide([level] * 9, is_last=True)
        return decision.verdict if decision else None

    assert verdict(baseline(), 970.0) is Verdict.REGRESSED
    assert verdict(baseline(own=4.0), 970.0) is Verdict.PASS
    crept = replace(baseline(), accepted=1045.0)
    assert verdict(crept, 1000.0) is Verdict.PASS
    assert verdict(crept, 1000.0, system=3.0) is Verdict.REGRESSED
    assert verdict(replace(crept, tolerance_percent=3.0), 1000.0) is Verdict.REGRESSED
    assert rule_for(METRIC, baseline(), Terms(tolerance_percent=5.0, repeats=6)).at_most == 6
    assert rule_for(METRIC, baseline(1), Terms(tolerance_percent=5.0, repeats=6)).at_most == 6
    assert rule_for(METRIC, baseline(), Terms(tolerance_percent=5.0), available=6).at_most == 6


def repeats(accepted, *, fixed=None, at_least=None):
    """The largest number of runs, and after which of nine equal usual runs there are enough."""
    by = repeats_for(
        {METRIC.name: accepted} if accepted else {},
        {METRIC: Terms(tolerance_percent=5.0, repeats=fixed, default_repeats=5)},
        at_least=at_least,
    )
    return by.at_most, enough(by, lambda number: sound_run(number, 1000.0))


def enough(by, run):
    """After which of nine runs there are enough."""
    runs = [run(number) for number in range(1, 10)]
    return [count for count in range(1, 10) if by.is_enough(runs[:count])]


def test_the_system_says_how_many_runs_the_tolerance_takes():
    assert repeats(None) == (5, [5, 6, 7, 8, 9])
    assert repeats(baseline(1)) == (5, [5, 6, 7, 8, 9])


def test_the_sequential_rule_takes_three_to_nine():
    assert repeats(baseline()) == (9, [3, 4, 5, 6, 7, 8, 9])


def test_the_user_says_exactly_how_many():
    assert repeats(baseline(), fixed=6) == (6, [6, 7, 8, 9])
    assert repeats(baseline(1), fixed=2) == (2, [2, 3, 4, 5, 6, 7, 8, 9])
    assert repeats(baseline(), fixed=2, at_least=4) == (2, [2, 3, 4, 5, 6, 7, 8, 9])


def test_a_session_that_records_takes_at_least_so_many():
    assert repeats(baseline(1), at_least=4) == (5, [5, 6, 7, 8, 9])
    assert repeats(None, at_least=7) == (7, [7, 8, 9])


def test_over_logs_the_tolerance_takes_all_that_there_are():
    by = repeats_for({}, {METRIC: Terms(tolerance_percent=5.0)})
    assert by.at_most is None
    assert not by.is_enough(measured(*[1000.0] * 50).runs)


@pytest.mark.parametrize("level", [900.0, 940.0, 970.0, 980.0, 985.0, 1000.0, 1040.0])
def test_the_rule_that_asked_for_the_runs_is_the_one_that_judges_them(level):
    rule = rule_for(METRIC, baseline(), Terms(tolerance_percent=5.0))
    by = RepeatsByRule({METRIC.name: rule})
    values = []
    while not by.is_enough(measured(*values).runs):
        values.append(level * (1 + 0.004 * (-1) ** len(values)))
    asked = rule.decide(values, is_last=False)
    judged = judge(measured(*values), baseline(), tolerance_percent=5.0)
    assert judged.verdict is asked.verdict
    assert judged.decision.min_detectable_percent == asked.min_detectable_percent
    assert (judged.verdict is Verdict.REGRESSED) == (level < 975)


# --------------------------------------------------------------------------- several metrics

MEMORY = replace(TIME, name="peak_memory", unit="MB", source=Source.LOG)
USUAL = Terms(tolerance_percent=5.0, default_repeats=5)


def test_runs_are_taken_until_every_metric_has_decided():
    times = accepted(*[mirrored(EVEN)] * 6, metric=TIME)
    by = repeats_for({METRIC.name: baseline(), TIME.name: times}, {METRIC: USUAL, TIME: USUAL})

    def run(number, time_ms):
        both = {METRIC.name: 1000.0, TIME.name: time_ms}
        return replace(sound_run(number, 1000.0), metrics=both)

    assert enough(by, lambda number: run(number, 1000.0))[0] == 3
    assert enough(by, lambda number: run(number, 1030.0))[0] == 7
    assert by.may_be_fewer


def test_a_metric_without_baseline_takes_the_usual_runs():
    by = repeats_for({METRIC.name: baseline()}, {METRIC: USUAL, TIME: USUAL})
    assert enough(by, lambda number: sound_run(number, 1000.0))[0] == 5
    assert by.at_most == 9


def test_what_a_run_lacks_asks_for_no_more_of_them():
    by = repeats_for({METRIC.name: baseline()}, {METRIC: USUAL})
    assert by.is_enough(measured(970.0, metric=TIME).runs)


def test_a_metric_that_does_not_differ_from_run_to_run_is_judged_from_one():
    memory = accepted([23456.0, 23456.5, 23456.0], metric=MEMORY)
    by = repeats_for({MEMORY.name: memory}, {MEMORY: USUAL})
    assert enough(by, lambda number: sound_run(number, 23460.0, MEMORY))[0] == 1
    both = {METRIC.name: baseline(), MEMORY.name: memory}
    assert repeats_for(both, {METRIC: USUAL, MEMORY: USUAL}).at_most == 9
    many = accepted(*[[23456.0] * 5] * 6, metric=MEMORY)
    assert rule_for(MEMORY, many, USUAL).name is RuleName.TOLERANCE
    fixed = rule_for(MEMORY, many, replace(USUAL, repeats=4))
    assert fixed.at_most == 4


@pytest.mark.parametrize(
    "sessions",
    [
        ([1000.0, 1000.0],),
        ([1000.0, 1000.0, 1002.0],),
        ([1000.0] * 3, [1000.0, 1002.0]),
        ([1000.0], [1002.0], [1000.0]),
    ],
)
def test_it_takes_three_runs_that_are_alike_to_say_that_runs_do_not_differ(
    sessions,
):
    assert not rule_for(MEMORY, accepted(*sessions, metric=MEMORY), USUAL).may_be_fewer


def test_sessions_without_noise_may_differ_from_each_other():
    for sessions in ([[1000.0] * 3, [1010.0] * 3], [[1000.0]] * 3):
        assert rule_for(MEMORY, accepted(*sessions, metric=MEMORY), USUAL).may_be_fewer


def test_another_value_of_a_metric_without_noise_takes_the_usual_runs():
    known = accepted([1000.0] * 5, metric=MEMORY)
    rule = rule_for(MEMORY, known, USUAL)

    def judged(*runs):
        for count in range(1, len(runs)):
            assert rule.decide(runs[:count], is_last=False) is None
        decision = rule.decide(runs, is_last=False)
        assert decision is not None
        return decision

    assert judged(1000.0).verdict is Verdict.PASS
    assert judged(1100.0, 1000.0, 1000.0, 1000.0, 1000.0).verdict is Verdict.PASS
    second = judged(1100.0, 1000.0, 1000.0, 1100.0, 1000.0)
    assert second.verdict is Verdict.REGRESSED
    assert second.reason == "2 of 5 runs are worse by up to 10.0 %, which no accepted run is"


def test_a_median_in_the_worse_of_two_accepted_values_passes():
    known = accepted([40.0, 41.0, 40.0, 41.0, 40.0], metric=MEMORY)
    rule = rule_for(MEMORY, known, replace(USUAL, tolerance_percent=2.0))
    passed = last_decision(rule, [41.0] * 5)
    assert passed.verdict is Verdict.PASS
    assert ["two groups 2.4 % apart" in note for note in passed.standing_notes] == [True]
    assert last_decision(rule, [42.0] * 5).verdict is Verdict.REGRESSED


def test_a_loss_below_an_amount_passes_however_many_percent_it_is():
    terms = replace(USUAL, tolerance_percent=20.0, tolerance_at_least=2.0)
    seconds = replace(TIME, unit="s")

    def judged(accepted_number, tonight):
        known = accepted([accepted_number] * 5, metric=seconds)
        case = MeasuredCase(measured(*[tonight] * 5, metric=seconds), {seconds.name: known})
        return decide(GateInput(seconds, case, terms))

    assert judged(0.1, 2.05).verdict is Verdict.PASS
    assert judged(0.1, 2.05).notes == ("a loss of up to 2 s passes",)
    assert judged(0.1, 2.2).verdict is Verdict.REGRESSED
    # Of a large number the percentage is more.
    assert judged(100.0, 119.0).verdict is Verdict.PASS
    assert judged(100.0, 121.0).verdict is Verdict.REGRESSED
    assert judged(100.0, 119.0).notes == ()


def test_runs_that_do_not_differ_are_accepted_by_a_narrow_tolerance():
    exact = GateInput(METRIC, end(measured(*[1024.0] * 5)), replace(USUAL, tolerance_percent=0.3))
    recorded = accept(decide(exact), exact, GateOptions(creates=True), reference=None)
    assert recorded.recorded
    assert not recorded.notes


def test_times_that_agree_by_chance_are_no_metric_without_noise():
    time = accepted([1.5] * 5, metric=TIME)
    assert rule_for(TIME, time, USUAL).at_most == USUAL.default_repeats


def test_what_the_original_benchmark_did_not_print_is_not_rounded_as_it_did():
    wait = replace(TIME, name="data_time", unit="s", source=Source.LOG)
    known = replace(accepted([0.0044] * 5, metric=wait), estimator=Estimator.PUBLISHED)
    decision = last_decision(rule_for(wait, known, USUAL), [0.0049] * 5)
    assert decision.difference_percent == pytest.approx(11.36, abs=0.01)
    assert decision.verdict is Verdict.REGRESSED


def test_a_metric_names_its_rule_unless_the_user_does():
    own = replace(METRIC, rule=RuleName.TOLERANCE)
    assert rule_for(own, baseline(), USUAL).name is RuleName.TOLERANCE
    forced = replace(USUAL, forced=RuleName.SEQUENTIAL)
    assert rule_for(own, baseline(), forced).name is RuleName.SEQUENTIAL
    eager = replace(METRIC, rule=RuleName.SEQUENTIAL)
    assert rule_for(eager, baseline(1), USUAL).name is RuleName.SEQUENTIAL


def test_the_smallest_loss_that_counts_is_smaller_where_it_will_be_confirmed():
    quiet = accepted(*[[1000.0, 1001.0, 999.0, 1000.0, 1000.5]] * 6)

    def verdict(level, terms, *, own=None):
        metric = replace(METRIC, tolerance_percent=own)
        decision = rule_for(metric, quiet, terms).decide([level] * 9, is_last=True)
        return decision.verdict

    confirmed = replace(USUAL, min_loss_percent=1.2)
    assert verdict(985.0, USUAL) is Verdict.PASS
    assert verdict(985.0, confirmed) is Verdict.REGRESSED
    assert verdict(985.0, confirmed, own=3.0) is Verdict.PASS
    assert verdict(985.0, USUAL, own=1.0) is Verdict.REGRESSED
