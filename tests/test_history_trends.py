"""What many nights show of a case: changes of its level, drift, and its noise."""

from datetime import timedelta

import pytest
from histories import CASE, FIRST, add, case_result, days, drawn, drift_lines, fill, night, session
from msgspec.structs import replace
from results_makers import MEMORY, measured_case

from pytest_dlperf.history.case_history import drifts_of, histories_of
from pytest_dlperf.history.queries import all_series
from pytest_dlperf.history.series import AcceptedChange
from pytest_dlperf.history.store import History
from pytest_dlperf.history.trends import drift_of
from pytest_dlperf.model.baseline import Acceptance
from pytest_dlperf.model.case import Topology
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.measurement import Estimator
from pytest_dlperf.model.metric import Better, throughput

OTHER = "tiny-mlp-fp32-b4-1n2g"


@pytest.fixture
def file(tmp_path):
    return tmp_path / "history.sqlite3"


def known(file, results):
    return histories_of(file, results)[CASE]["throughput"]


def levels(*parts):
    """So many nights at each level."""
    return [level for count, level in parts for _ in range(count)]


# -------------------------------------------------------------------------- which nights


def test_a_history_is_of_the_cases_of_the_results_until_their_session(file):
    nights = [session(k, {CASE: [400.0 + k, 401.0 + k], OTHER: [760.0]}) for k in range(4)]
    add(file, *nights)
    tonight = replace(nights[2], cases=nights[2].cases[:1])
    histories = histories_of(file, tonight)
    assert list(histories) == [CASE]
    points = histories[CASE]["throughput"].points
    assert [point.started for point in points] == [night(0), night(1), night(2)]
    assert [(p.median, p.lowest, p.highest, p.runs) for p in points] == [
        (400.5 + k, 400.0 + k, 401.0 + k, 2) for k in range(3)
    ]


def test_nights_stand_in_the_order_of_time_whatever_their_zone_and_their_coming(
    file,
):
    starts = ["2026-03-01T01:00:00+09:00", "2026-02-28T17:00:00+00:00", "2026-02-28T13:00:00-05:00"]
    nights = [session(k, {CASE: [400.0 + k]}, started=start) for k, start in enumerate(starts)]
    add(file, *reversed(nights))
    assert [point.started for point in known(file, nights[2]).points] == starts


def test_other_clusters_estimators_and_units_are_other_histories(file):
    tonight = session(9, {CASE: [400.0]})
    images = case_result(CASE, [1.0], metric=throughput("images/s"))
    add(
        file,
        session(1, {CASE: [1.0]}, cluster="elsewhere"),
        session(2, {CASE: [1.0]}, estimator=Estimator.PUBLISHED),
        session(3, [images]),
        tonight,
    )
    assert [point.median for point in known(file, tonight).points] == [400.0]


def test_a_history_reaches_a_year_back_however_many_sessions_a_day_has(file):
    day = FIRST + timedelta(days=500)
    often = [day - timedelta(hours=8 * k) for k in range(450)]
    begun = [FIRST, *(day - timedelta(days=days) for days in (366, 365)), *reversed(often)]
    nights = [session(k, {CASE: [400.0]}, started=at.isoformat()) for k, at in enumerate(begun)]
    add(file, *nights)
    points = known(file, nights[-1]).points
    assert [point.started for point in points] == [at.isoformat() for at in begun[2:]]


def test_nights_without_a_measurement_leave_no_point(file):
    last = fill(file, [[400.0], [None], [402.0]])
    assert [point.median for point in known(file, last).points] == [400.0, 402.0]


def test_a_case_that_was_never_measured_has_no_history(file):
    last = fill(file, [[None]])
    assert histories_of(file, last) == {}


def test_logs_that_are_judged_again_show_once(file):
    def judged(number, logs):
        return session(number, [case_result(CASE, [400.0, 401.0], logs_digest=logs)])

    last = judged(4, "others")
    add(file, judged(0, "logs"), judged(1, "logs"), judged(2, None), judged(3, None), last)
    with History.open(file) as history:
        history.add(replace(last, session="elsewhere", started=night(5)))
    tonight = replace(last, started=night(5))
    assert [point.started for point in known(file, tonight).points] == [
        night(0), night(2), night(3), night(4)
    ]  # fmt: skip


# ------------------------------------------------------------------------- which metric


def of_memory(values, metric=MEMORY, number=0):
    return session(number, [case_result(CASE, values, metric=metric)])


def test_each_judged_metric_has_a_history_of_its_own(file):
    recorded = replace(MEMORY, name="data_time", unit="ms", is_judged=False)
    eight = "tiny-mlp-fp32-b4-1n8g"
    more = {MEMORY: [900.0, 901.0], recorded: [3.0, 4.0]}
    whole = measured_case(eight, 3000.0, 3010.0, unit="samples/s", speedup=7.5, more=more)
    tonight = session(0, [whole])
    add(file, tonight)
    histories = histories_of(file, tonight)
    assert list(histories) == [eight]
    assert {name: known.points[-1].median for name, known in histories[eight].items()} == {
        "throughput": 3005.0, "speedup": pytest.approx(7.5), "peak_memory": 900.5,
    }  # fmt: skip
    assert histories[eight]["peak_memory"].better is Better.LOWER


@pytest.mark.parametrize(
    "change", [{"unit": "GiB"}, {"better": Better.HIGHER}], ids=["unit", "direction"]
)
def test_a_metric_whose_meaning_has_changed_begins_anew(file, change):
    other = replace(MEMORY, **change)
    before = [of_memory([900.0], other, k) for k in range(30)]
    tonight = of_memory([100.0], number=30)
    add(file, *before, tonight)
    known = histories_of(file, tonight)[CASE]["peak_memory"]
    assert [point.median for point in known.points] == [100.0]
    with History.read(file) as history:
        series = all_series(history, "peak_memory")
    assert [(one.unit, one.better) for one in series] == sorted(
        [(other.unit, other.better), (MEMORY.unit, MEMORY.better)]
    )


def test_speedups_over_another_topology_begin_anew(file):
    before, after = (
        measured_case("tiny-mlp-fp32-b4-1n8g", level, unit="samples/s", speedup=level / 400.0)
        for level in (3000.0, 3010.0)
    )
    over_four = replace(after.case, reference_topology=Topology(1, 4))
    tonight = session(1, [replace(after, case=over_four)])
    add(file, session(0, [before]), tonight)
    known = histories_of(file, tonight)[over_four.id]
    assert {name: len(one.points) for name, one in known.items()} == {
        "throughput": 2, "speedup": 1,
    }  # fmt: skip


def test_a_creep_of_a_metric_of_which_less_is_better_is_found_alike(file):
    values = drawn([900.0 * (1 + 0.002 * k) for k in range(40)], noise=0.002)
    nights = [of_memory(runs, number=k) for k, runs in enumerate(values)]
    add(file, *nights)
    known = histories_of(file, nights[-1])[CASE]["peak_memory"]
    assert known.drift.percent == pytest.approx(7.8, abs=0.5)
    assert known.noise_percent == pytest.approx(0.2, abs=0.1)
    [(series, _)] = drifts_of(file, nights[-1])
    assert (series.case_id, series.metric) == (CASE, "peak_memory")


# -------------------------------------------------------------------- accepted numbers


def test_what_was_accepted_shows_in_the_next_night(file):
    tonight = session(1, [case_result(CASE, [380.0], baseline=380.0)])
    add(file, session(0, [case_result(CASE, [400.0], baseline=400.0)]), tonight)
    (told,) = known(file, tonight).accepted
    assert (told.at, told.old, told.new, told.why) == (night(1), 400.0, 380.0, "accepted")


def test_what_somebody_accepted_is_told_as_the_file_has_it(file):
    result = case_result(CASE, [380.0], baseline=380.0)
    source = Acceptance(at=night(0), by="Bo", reason="new rack", commit="4567")
    known_now = {"throughput": replace(result.accepted["throughput"], acceptance=source)}
    tonight = session(1, [replace(result, accepted=known_now)])
    add(file, session(0, [case_result(CASE, [400.0], baseline=400.0)]), tonight)
    (told,) = known(file, tonight).accepted
    assert told == AcceptedChange(
        at=night(0), old=400.0, new=380.0, why="new rack", by="Bo", commit="4567"
    )


# ------------------------------------------------------------------------ change points


@pytest.mark.parametrize("noise", [0.005, 0.01, 0.025])
@pytest.mark.parametrize("factor", [0.97, 1.03])
def test_a_change_of_the_level_is_dated(file, noise, factor):
    last = fill(file, drawn(levels((60, 400.0), (40, 400.0 * factor)), noise=noise))
    history = known(file, last)
    (point,) = history.change_points
    assert abs(point.index - 60) <= 2
    assert point.at == history.points[point.index].started
    assert point.difference_percent == pytest.approx(100 * factor - 100, abs=1.5)


@pytest.mark.parametrize("noise", [0.005, 0.01, 0.025])
def test_a_year_without_a_change_has_no_change_point(file, noise):
    last = fill(file, drawn([400.0] * 366, noise=noise))
    assert known(file, last).change_points == ()


def test_single_slow_nights_and_broken_ones_are_no_change(file):
    nights = [list(runs) for runs in drawn([400.0] * 80)]
    nights[30] = [None, None]
    nights[50] = [250.0, 260.0, 255.0]
    fill(file, nights)
    survived = session(80, [case_result(CASE, [200.0, None], verdict=Verdict.FAILED)])
    add(file, survived)
    history = known(file, survived)
    assert history.change_points == ()
    assert history.drift is None
    # A point for every night that has a number, also for those that say nothing of the level.
    assert [history.points[-1].median, len(history.points)] == [200.0, 80]


def test_the_index_of_a_change_point_counts_all_points(file):
    runs = drawn(levels((30, 400.0), (30, 380.0)))
    broken = (3, 10, 20)
    nights = [
        session(
            k,
            [case_result(CASE, r, verdict=Verdict.HUNG if k in broken else Verdict.PASS)],
        )
        for k, r in enumerate(runs)
    ]
    add(file, *nights)
    history = known(file, nights[-1])
    (point,) = history.change_points
    assert abs(point.index - 30) <= 1
    assert history.points[point.index].started == point.at


def test_an_accepted_change_keeps_the_change_point_where_the_level_changed(file):
    runs = drawn(levels((40, 400.0), (40, 388.0)))
    nights = [
        session(k, [case_result(CASE, r, baseline=400.0 if k <= 45 else 388.0)])
        for k, r in enumerate(runs)
    ]
    add(file, *nights)
    history = known(file, nights[-1])
    assert [abs(point.index - 40) <= 2 for point in history.change_points] == [True]
    assert [change.at for change in history.accepted] == [night(46)]


# ---------------------------------------------------------------------------------- drift


def drifting(count, per_night, *, flat=0):
    return [400.0] * flat + [400.0 * (1 - per_night * k) for k in range(count)]


def drift(values, *, noise=0.01, seed="drift"):
    return drift_of(days(drawn(values, noise=noise, seed=seed)))


@pytest.mark.parametrize(
    ("values", "since"),
    [
        (drifting(25, 0.002), 0),
        (drifting(25, 0.002, flat=60), 60),
        (drifting(60, 0.0007, flat=30), 30),
    ],
    ids=["from the start", "after a calm time", "very slow"],
)
def test_a_slow_loss_is_seen(file, values, since):
    last = fill(file, drawn(values, seed="creep"))
    found = known(file, last).drift
    assert abs(len(values) - found.days - since) <= 20
    assert found.percent_per_week == pytest.approx(700 * (values[-1] / values[-2] - 1), rel=0.5)
    (told,) = drift_lines(file, last)
    assert told == (
        f"{CASE} drifts {found.percent_per_week:+.1f} % a week since "
        f"{found.since[:10]} ({found.days} days), {found.percent:+.1f} % in all"
    )


@pytest.mark.parametrize(
    "values",
    [
        [400.0] * 90,
        levels((60, 400.0), (30, 388.0)),
        levels((80, 400.0), (10, 388.0)),
        levels((30, 400.0), (30, 388.0), (30, 376.0)),
    ],
    ids=["calm", "one step", "a late step", "two steps"],
)
def test_steps_and_noise_are_no_drift(values):
    seen = [drift(values, noise=0.007, seed=f"trial {trial}") for trial in range(20)]
    assert seen == [None] * 20


def test_drift_is_seen_most_of_the_time_and_hardly_ever_without(file):
    del file
    losing = [drift(drifting(20, 0.002, flat=50), seed=f"{k}") for k in range(40)]
    calm = [drift([400.0] * 90, seed=f"{k}") for k in range(40)]
    assert sum(found is not None for found in losing) >= 36
    assert sum(found is not None for found in calm) == 0


def test_drift_is_seen_however_many_sessions_a_day_has(file):
    begun = [FIRST + timedelta(hours=4 * k) for k in range(6 * 60)]
    levels_of_days = drawn([400.0 * (1 - 0.001 * (k // 6)) for k in range(6 * 60)], noise=0.002)
    nights = [
        session(k, {CASE: runs}, started=at.isoformat())
        for k, (at, runs) in enumerate(zip(begun, levels_of_days, strict=True))
    ]
    add(file, *nights)
    assert abs(known(file, nights[-1]).drift.days - 60) <= 2


def test_what_was_accepted_is_no_drift(file):
    values = drifting(30, 0.002)
    before = [
        session(number, [case_result(CASE, runs, baseline=400.0)])
        for number, runs in enumerate(drawn(values))
    ]
    tonight = session(30, [case_result(CASE, [376.0] * 5, baseline=376.0)])
    add(file, *before, tonight)
    assert known(file, tonight).drift is None
    assert drift_lines(file, tonight) == []


# ---------------------------------------------------------------------------------- noise


def test_too_few_nights_say_nothing_of_noise(file):
    history = known(file, fill(file, [[400.0]]))
    assert history.noise_percent is None
    assert history.drift is None
    assert not history.change_points
