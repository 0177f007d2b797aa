"""That as many runs are taken as the rules of all metrics ask for, and what the terms allow."""

from gate_values import EVEN, METRIC, TIME, accepted, judge, measured, mirrored, sound_run
from msgspec.structs import replace

from pytest_dlperf.gate.repeats import repeats_for
from pytest_dlperf.gate.terms import Terms
from pytest_dlperf.model.judgement import Verdict


def baseline(sessions=6, runs=5, own=None):
    return accepted(*[EVEN[:runs]] * sessions, number=1000.0, own=own)


def repeats(accepted, *, fixed=None, tolerance=5.0, records=False):
    """The largest number of runs, and after which of nine equal usual runs there are enough."""
    by = repeats_for(
        {METRIC.name: accepted} if accepted else {},
        {METRIC: Terms(tolerance_percent=tolerance, repeats=fixed, default_repeats=3)},
        records=records,
    )
    return by.at_most, enough(by, lambda number: sound_run(number, 1000.0))


def enough(by, run):
    """After which of nine runs there are enough."""
    runs = [run(number) for number in range(1, 10)]
    return [count for count in range(1, 10) if by.is_enough(runs[:count])]


def test_the_system_says_how_many_runs_are_taken_without_a_baseline():
    assert repeats(None) == (3, [3, 4, 5, 6, 7, 8, 9])


def test_the_rule_takes_three_to_nine():
    for sessions in (1, 6):
        assert repeats(baseline(sessions)) == (9, [3, 4, 5, 7, 9])


def test_the_user_says_exactly_how_many():
    assert repeats(baseline(), fixed=6) == (6, [6, 7, 8, 9])
    assert repeats(baseline(1), fixed=2) == (2, [2, 3, 4, 5, 6, 7, 8, 9])
    assert repeats(baseline(), fixed=2, records=True) == (2, [2, 3, 4, 5, 6, 7, 8, 9])


def test_a_session_that_records_takes_as_many_as_may_be_added():
    assert repeats(baseline(1), records=True) == (9, [4, 5, 7, 9])
    assert repeats(None, records=True) == (4, [4, 5, 6, 7, 8, 9])
    # With so wide a tolerance more runs would be for nothing.
    assert repeats(baseline(1), records=True, tolerance=20.0) == (9, [3, 4, 5, 7, 9])


# --------------------------------------------------------------------------- several metrics

USUAL = Terms(tolerance_percent=5.0, default_repeats=5)


def test_runs_are_taken_until_every_metric_has_decided():
    times = accepted(*[mirrored(EVEN)] * 6, metric=TIME)
    by = repeats_for({METRIC.name: baseline(), TIME.name: times}, {METRIC: USUAL, TIME: USUAL})

    def run(number, time_ms):
        both = {METRIC.name: 1000.0, TIME.name: time_ms}
        return replace(sound_run(number, 1000.0), metrics=both)

    assert enough(by, lambda number: run(number, 1000.0))[0] == 3
    assert enough(by, lambda number: run(number, 1060.0))[0] == 7
    assert by.may_be_fewer


def test_a_metric_without_baseline_takes_the_usual_runs():
    by = repeats_for({METRIC.name: baseline()}, {METRIC: USUAL, TIME: USUAL})
    assert enough(by, lambda number: sound_run(number, 1000.0))[0] == 5
    assert by.at_most == 9


def test_what_a_run_lacks_asks_for_no_more_of_them():
    by = repeats_for({METRIC.name: baseline()}, {METRIC: USUAL})
    assert by.is_enough(measured(970.0, metric=TIME).runs)


def test_a_loss_below_an_amount_passes_however_many_percent_it_is():
    seconds = replace(TIME, unit="s", tolerance_percent=20.0)

    def judged(accepted_number, tonight):
        known = accepted([accepted_number] * 5, metric=seconds)
        return judge(
            measured(*[tonight] * 5, metric=seconds),
            known,
            tolerance_percent=20.0,
            tolerance_at_least=2.0,
        )

    assert judged(0.1, 2.05).verdict is Verdict.PASS
    assert judged(0.1, 2.2).verdict is Verdict.REGRESSED
    # Of a large number the percentage is more.
    assert judged(100.0, 119.0).verdict is Verdict.PASS
    assert judged(100.0, 121.0).verdict is Verdict.REGRESSED
