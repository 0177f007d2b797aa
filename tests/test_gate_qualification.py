"""The gate tries itself out: what it finds of good rules, of blind ones and of turned ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from gate_values import EVEN, METRIC, TIME, Turned, accepted, drawn, mirrored
from msgspec.structs import replace

from pytest_dlperf.gate.qualification import Qualification, qualify
from pytest_dlperf.gate.rules import Rule, Terms, rule_maker
from pytest_dlperf.model.baseline import Baseline
from pytest_dlperf.model.judgement import Decision, Verdict
from pytest_dlperf.model.measurement import Estimator
from pytest_dlperf.model.metric import Metric, RuleName

pytestmark = pytest.mark.slow


def recorded(
    deviation: float, sessions: int = 6, *, nights: float = 0.0, own: float | None = None
) -> Baseline:
    return accepted(*drawn(deviation, sessions, nights=nights), own=own)


def qualified(baseline: Baseline, *, trials: int = 150, metric: Metric = METRIC) -> Qualification:
    return qualify(
        baseline.rolling,
        rule_maker(metric, baseline, Terms(tolerance_percent=5.0)),
        baseline.tolerance_percent or 5.0,
        trials=trials,
        seed=1,
    )


@dataclass(frozen=True)
class Blind(Turned):
    """A rule that passes everything."""

    def decide(self, values: Sequence[float], *, is_last: bool) -> Decision | None:
        decision = self.rule.decide(values, is_last=is_last)
        return replace(decision, verdict=Verdict.PASS) if decision else None


def test_a_quiet_case_is_qualified_with_what_its_gate_sees() -> None:
    found = qualified(recorded(0.01))
    assert found.fault is None
    assert (found.runs, found.sessions, found.rule) == (30, 6, RuleName.SEQUENTIAL)
    assert 0.8 < found.noise_percent < 1.3
    assert found.false_alarms <= 0.005
    half, once, twice = found.power
    assert half < once
    assert once > 0.99
    assert twice > 0.99
    assert found.min_detectable_percent == pytest.approx(2.6, abs=0.5)
    assert found.smallest_tolerance_percent < 2


def test_splitting_and_drawing_bring_no_noise_of_their_own() -> None:
    """What comes out is what the rule's formulas give for so many runs of this deviation."""
    found = qualified(accepted(*drawn(0.025, seed=8)), trials=1000)
    error = found.noise_percent * math.sqrt(1 / 30 + 1 / 9)
    assert found.smallest_tolerance_percent == pytest.approx(2.576 * error, rel=0.25)
    threshold = 3.25 * error
    assert found.min_detectable_percent == pytest.approx(threshold + 1.645 * error, rel=0.12)
    assert found.power[2] == 1.0
    assert found.false_alarms < 0.012


def test_few_runs_are_qualified_by_the_tolerance() -> None:
    found = qualified(recorded(0.01, sessions=1))
    assert found.rule is RuleName.TOLERANCE
    assert found.power[1] == pytest.approx(0.5, abs=0.15)
    assert found.min_detectable_percent == pytest.approx(6, abs=0.8)
    assert found.fault is None


def test_an_estimator_that_rounds_is_qualified_in_its_own_unit() -> None:
    steady = recorded(0.004, sessions=1)
    published = replace(steady, estimator=Estimator.PUBLISHED)
    assert qualified(published).smallest_tolerance_percent == pytest.approx(
        qualified(steady).smallest_tolerance_percent, abs=0.01
    )


def test_more_noise_is_seen_through_less() -> None:
    quiet, loud = qualified(recorded(0.003)), qualified(recorded(0.025))
    assert (loud.min_detectable_percent or 0) > (quiet.min_detectable_percent or 0) + 1
    assert loud.smallest_tolerance_percent > 3 * quiet.smallest_tolerance_percent


@pytest.mark.parametrize("sessions", [1, 6])
def test_a_tolerance_below_the_noise_is_refused(sessions: int) -> None:
    found = qualified(recorded(0.025, sessions, own=0.5))
    assert "the tolerance of 0.5 % is below what the noise allows: from " in (found.fault or "")
    assert found.smallest_tolerance_percent > 0.5


def test_a_baseline_that_decides_nothing_is_refused() -> None:
    found = qualified(recorded(0.08))
    assert "no loss below" in (found.fault or "")


@pytest.mark.parametrize("sessions", [1, 6])
def test_a_comparison_turned_round_is_refused(sessions: int) -> None:
    baseline = recorded(0.01, sessions)

    make = rule_maker(METRIC, baseline, Terms(tolerance_percent=5.0))

    def turned(sessions: Sequence[Sequence[float]]) -> Rule:
        return Turned(make([[1 / run for run in runs] for runs in sessions]))

    found = qualify(baseline.rolling, turned, 5.0, trials=200, seed=1)
    assert "the comparison is inverted" in (found.fault or "")


def test_a_rule_that_sees_nothing_is_refused() -> None:
    make = rule_maker(METRIC, recorded(0.01), Terms(tolerance_percent=5.0))
    found = qualify(recorded(0.01).rolling, lambda drawn: Blind(make(drawn)), 5.0, trials=100)
    assert found.min_detectable_percent is None
    assert "10 %, two tolerances, is seen in 0 % of nights" in (found.fault or "")


def test_runs_without_any_rhyme_are_refused() -> None:
    wild = (4.0, 400.0, 1.0, 2000.0, 30.0, 700.0)
    found = qualified(accepted(*[wild] * 5))
    assert found.fault is not None


def test_the_same_seed_gives_the_same_figures() -> None:
    assert qualified(recorded(0.02), trials=50) == qualified(recorded(0.02), trials=50)


def test_fewer_than_five_runs_cannot_be_split() -> None:
    make = rule_maker(METRIC, recorded(0.01), Terms(tolerance_percent=5.0))
    with pytest.raises(ValueError, match="4 runs"):
        qualify([(1.0, 2.0, 3.0, 4.0)], make, 5.0)


@pytest.mark.ci
def test_nights_that_differ_give_the_alarms_that_they_will_give() -> None:
    """A gate whose nights differ by 1 % gives 4.2 % of false alarms: gate_power.py says so."""
    found = [
        qualified(accepted(*drawn(0.01, nights=0.01, seed=seed)), trials=100) for seed in range(10)
    ]
    assert sum(each.false_alarms for each in found) / 10 == pytest.approx(0.042, abs=0.03)


def test_nights_that_differ_ask_for_a_larger_tolerance() -> None:
    sessions = drawn(0.01, seed=8)
    levels = (0.97, 1.01, 0.99, 1.02, 1.03, 0.98)
    shifted = [[run * level for run in runs] for runs, level in zip(sessions, levels, strict=True)]
    even, uneven = qualified(accepted(*sessions)), qualified(accepted(*shifted))
    assert even.false_alarms == 0
    assert uneven.false_alarms > 0.1
    assert uneven.smallest_tolerance_percent > 2 * even.smallest_tolerance_percent
    assert (uneven.min_detectable_percent or 0) > (even.min_detectable_percent or 0) + 1


def test_a_single_night_that_was_slow_is_held_out_as_a_whole() -> None:
    night, other = (990.0, 995.0, 1000.0, 1005.0, 1010.0), (940.0, 945.0, 950.0, 955.0, 960.0)
    found = qualified(accepted(night, night, night, other, night, night))
    # One night of six is 5 % slower than the others, and always an alarm.
    assert found.false_alarms == pytest.approx(1 / 6, abs=0.06)


@pytest.mark.parametrize(("metric", "worse"), [(METRIC, 950.0), (TIME, 1050.0)])
def test_the_least_tolerance_is_for_runs_that_are_worse_by_chance(
    metric: Metric, worse: float
) -> None:
    """One run in six lies 5 % off: three of tonight's five do in 3 nights of 100."""
    usual = EVEN * 5
    least = {
        stray: qualified(accepted((*usual, *[stray] * 5), metric=metric), metric=metric)
        for stray in (950.0, 1050.0)
    }
    one, other = least[worse], least[2000 - worse]
    assert one.smallest_tolerance_percent > other.smallest_tolerance_percent + 1


@pytest.mark.parametrize(("sessions", "tried"), [(1, False), (3, False), (4, True), (6, True)])
def test_fewer_than_four_sessions_tell_nothing_of_nights(sessions: int, tried: bool) -> None:
    found = qualified(recorded(0.01, sessions, nights=0.02), trials=20)
    assert found.has_nights is tried


def test_sessions_of_one_run_tell_nothing_of_nights() -> None:
    found = qualified(accepted(*[(1000.0 + night,) for night in range(6)]), trials=20)
    assert not found.has_nights


def test_what_is_better_the_lower_is_seen_as_well() -> None:
    sessions = drawn(0.01)
    up = qualified(accepted(*sessions))
    down = qualified(accepted(*map(mirrored, sessions), metric=TIME), metric=TIME)
    assert down.fault is None
    assert down.false_alarms <= 0.005
    assert down.power == pytest.approx(up.power, abs=0.06)
    assert down.min_detectable_percent == pytest.approx(up.min_detectable_percent, abs=0.2)
    assert down.smallest_tolerance_percent == pytest.approx(up.smallest_tolerance_percent, abs=0.2)


def test_what_does_not_differ_is_seen_to_its_tolerance() -> None:
    found = qualified(accepted([23456.0] * 5, [23500.0] * 5, metric=TIME), metric=TIME, trials=50)
    assert (found.fault, found.rule) == (None, RuleName.TOLERANCE)
    assert (found.noise_percent, found.false_alarms) == (0.0, 0.0)
    assert found.min_detectable_percent == pytest.approx(5.0, abs=0.25)
    assert found.smallest_tolerance_percent < 0.5
