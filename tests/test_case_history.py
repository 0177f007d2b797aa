"""Which sessions make a level: whole ones of one machine, each day and each log once."""

import random

import pytest
from histories import (
    CASE,
    FIRST,
    add,
    case_result,
    days,
    drawn,
    drift_lines,
    fill,
    measurement,
    night,
    session,
)
from msgspec.structs import replace

from pytest_dlperf.history.case_history import histories_of
from pytest_dlperf.history.trends import change_points, drift_of
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.judgement import Judgement, Verdict
from pytest_dlperf.model.measurement import Fingerprint
from pytest_dlperf.model.metric import SPEEDUP_METRIC
from pytest_dlperf.model.results import CaseResult
from pytest_dlperf.report import trends


@pytest.fixture
def file(tmp_path):
    return tmp_path / "history.sqlite3"


def known(file, nights):
    """The history of the last of these nights, which are put in."""
    add(file, *nights)
    return histories_of(file, nights[-1])[CASE]["throughput"]


def shows_nothing(history):
    return not history.change_points and history.drift is None


# ------------------------------------------------------------------------------ machines


def on(device, number, runs):
    """A night on a machine; on none, the runs are read from logs."""
    taken_on = Fingerprint(machine={"device": device}, hosts=(f"node{number}",)) if device else None
    result = case_result(CASE, runs)
    assert result.measurement is not None
    result = replace(result, measurement=replace(result.measurement, fingerprint=taken_on))
    return session(number, [result])


def test_another_machine_is_no_change_of_the_level(file):
    runs = drawn([400.0] * 40 + [640.0] * 30)
    history = known(file, [on("H200" if k < 40 else "B200", k, r) for k, r in enumerate(runs)])
    assert shows_nothing(history)
    assert len(history.points) == 70
    (other,) = history.other_machines
    assert trends.other_machine(other) == (
        "40 sessions from 2026-01-01 to 2026-02-09 on another machine (device H200, now B200): in "
        "no level, drift or noise"
    )


def test_two_machines_in_turn_are_no_noise(file):
    runs = drawn([400.0, 640.0] * 40)
    nights = [on(("H200", "B200")[k % 2], k, r) for k, r in enumerate(runs)]
    history = known(file, nights)
    assert shows_nothing(history)
    assert [(other.sessions, other.facts) for other in history.other_machines] == [
        (40, {"device": ("H200", "B200")})
    ]


def test_a_machine_that_drifts_is_not_hidden_by_another(file):
    levels = [level for k in range(40) for level in (400.0 * (1 - 0.002 * k), 640.0)]
    nights = [on(("H200", "B200")[k % 2], k, r) for k, r in enumerate(drawn(levels))][:-1]
    assert known(file, nights).drift is not None
    (told,) = drift_lines(file, nights[-1])
    assert " drifts -0.7 % a week " in told


def test_logs_of_which_nobody_knows_the_machine_are_one_series(file):
    runs = drawn([400.0] * 40 + [388.0] * 20)
    history = known(file, [on(None if k % 2 else "H200", k, r) for k, r in enumerate(runs)])
    assert len(history.change_points) == 1
    assert history.other_machines == ()


# -------------------------------------------------------------------------- broken runs


@pytest.mark.parametrize("judged", ["nothing", "the speedup", "inconclusive"])
def test_what_survived_of_broken_runs_is_no_level(file, judged):
    nights = []
    for number, runs in enumerate(drawn([400.0] * 40 + [300.0] * 20)):
        lost = [None, None] if number >= 40 else []
        result = case_result(CASE, [*runs[: 5 - len(lost)], *lost], verdict=Verdict.INCONCLUSIVE)
        if judged != "inconclusive":
            result = replace(result, judgements={})
        if judged == "the speedup":
            result = replace(
                result,
                judgements={
                    **result.judgements,
                    "speedup": Judgement(metric=SPEEDUP_METRIC, verdict=Verdict.FAILED),
                },
            )
        nights.append(session(number, [result]))
    history = known(file, nights)
    assert shows_nothing(history)
    assert len(history.points) == 60


def test_a_broken_reference_of_a_speedup_is_no_level(file):
    nights = []
    for number, runs in enumerate(drawn([400.0] * 40 + [300.0] * 20)):
        whole = case_result("tiny-mlp-fp32-b4-1n2g", [760.0] * 5)
        broken = [None] if number >= 40 else []
        whole = replace(whole, reference=measurement(CASE, [*runs, *broken]))
        nights.append(session(number, [whole]))
    tonight = session(60, {CASE: [400.0] * 5})
    assert shows_nothing(known(file, [*nights, tonight]))


def test_a_case_that_was_lost_with_its_worker_did_not_pass(file):
    lost = case_result(CASE, [400.0])
    lost = replace(lost, is_whole=False)
    alarm = case_result(CASE, [400.0], verdict=Verdict.REGRESSED)
    alarm = replace(alarm, is_whole=False)
    unheard = CaseResult(
        case=Case.from_id(CASE), measurement=measurement(CASE, [400.0]), is_whole=False
    )
    points = known(file, [session(k, [one]) for k, one in enumerate((lost, alarm, unheard))]).points
    assert [point.verdict_word for point in points] == ["lost", "regressed", "lost"]


# ------------------------------------------------------------------------------- days


def at_hours(levels, apart):
    return [
        session(k, {CASE: runs}, started=(FIRST + apart * k).isoformat())
        for k, runs in enumerate(drawn(levels))
    ]


def test_an_afternoon_of_sessions_is_one_day(file):
    calm = [session(k, {CASE: runs}) for k, runs in enumerate(drawn([400.0] * 40))]
    day = FIRST.replace(hour=12) + (FIRST.replace(day=2) - FIRST) * 40
    afternoon = [
        session(
            40 + k,
            {CASE: runs},
            started=day.replace(minute=5 * k).isoformat(),
        )
        for k, runs in enumerate(drawn([360.0] * 12))
    ]
    history = known(file, [*calm, *afternoon])
    assert shows_nothing(history)
    assert len(history.points) == 52


def test_a_level_of_many_sessions_a_day_is_dated_by_its_first_session(file):
    six_hours = (FIRST.replace(day=2) - FIRST) / 4
    history = known(file, at_hours([400.0] * 160 + [380.0] * 80, six_hours))
    (point,) = history.change_points
    assert abs(point.index - 160) <= 4
    assert history.points[point.index].started == point.at


# ------------------------------------------------------------------ logs judged again


def from_logs(number, runs, logs):
    return session(number, [case_result(CASE, runs, logs_digest=f"{logs}")])


def test_logs_judged_a_hundred_times_hide_no_night(file):
    runs = drawn([400.0] * 30)
    nights = [from_logs(k, r, logs=k) for k, r in enumerate(runs)]
    again = [from_logs(30 + k, runs[-1], logs=29) for k in range(400)]
    history = known(file, [*nights, *again])
    assert [point.started for point in history.points] == [night(k) for k in range(30)]
    assert history.noise_percent == pytest.approx(1.0, rel=0.25)


def test_other_logs_are_another_night_though_the_numbers_are_the_same(file):
    nights = [from_logs(k, [352.1] * 3, logs=k) for k in range(4)]
    assert len(known(file, nights).points) == 4


# ------------------------------------------------------------------------------- swings


def swinging(count, alike, seed):
    """Levels of nights that differ by 1 %, each alike the one before it."""
    draw = random.Random(seed)  # noqa: S311 - the same nights every time
    value, levels = draw.gauss(0, 1), []
    for _ in range(count):
        value = alike * value + (1 - alike**2) ** 0.5 * draw.gauss(0, 1)
        levels.append(400.0 * (1 + 0.01 * value))
    return levels


def test_nights_that_hang_together_are_hardly_ever_taken_for_a_change():
    found = 0
    for trial in range(30):
        known_days = days(drawn(swinging(150, 0.5, f"{trial}")))
        found += drift_of(known_days) is not None
        found += len(change_points(known_days))
    assert found <= 4  # of nights taken one by one as independent: 20


@pytest.mark.parametrize("seed", ["a", "b", "c", "d"])
@pytest.mark.parametrize("calm", [0, 30, 60])
def test_drift_is_told_once(file, seed, calm):
    levels = [400.0] * calm + [400.0 * (1 - 0.002 * k) for k in range(35)]
    last = fill(file, drawn(levels, noise=0.006, seed=seed))
    history = histories_of(file, last)[CASE]["throughput"]
    assert history.drift is not None
    assert history.change_points == ()


@pytest.mark.parametrize("seed", ["a", "b", "c"])
def test_a_drift_of_more_than_the_days_that_show_it_is_told_once(file, seed):
    levels = [400.0] * 150 + [400.0 * (1 - 0.002 * k) for k in range(120)]
    last = fill(file, drawn(levels, noise=0.002, seed=seed))
    history = histories_of(file, last)[CASE]["throughput"]
    assert history.drift.days == 90
    assert history.change_points == ()


def test_a_change_before_drift_keeps_its_date(file):
    levels = [420.0] * 40 + [400.0] * 40 + [400.0 * (1 - 0.002 * k) for k in range(30)]
    history = histories_of(file, fill(file, drawn(levels, noise=0.006)))[CASE]["throughput"]
    assert history.drift is not None
    assert [abs(point.index - 40) <= 2 for point in history.change_points] == [True]
