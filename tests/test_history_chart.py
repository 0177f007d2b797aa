"""The drawing of a case's nights: each by the date that its session wrote, each as it came out."""

import re
from datetime import date, timedelta
from itertools import pairwise

import pytest
from histories import CASE

from pytest_dlperf.history.series import (
    AcceptedChange,
    CaseHistory,
    ChangePoint,
    Drift,
    OtherMachine,
    Point,
)
from pytest_dlperf.model.metric import Better
from pytest_dlperf.report.html.charts import HISTORY, history_chart

DATE_WIDTH = 200
"""Units of the drawing that a date takes on a telephone."""


def point(started):
    return Point(
        began=0.0,
        started=started,
        median=400.0,
        lowest=399.0,
        highest=401.0,
        runs=5,
        verdict_word="pass",
    )


def history(points, **more):
    return CaseHistory(
        case_id=CASE,
        metric="throughput",
        unit="images/s",
        better=Better.HIGHER,
        points=tuple(points),
        **more,
    )


def chart(points, **more):
    drawn = history_chart(history(points, **more))
    assert drawn is not None
    return drawn


def path(drawn, style):
    [found] = [shape.path for shape in drawn.chart.shapes if shape.style == style]
    return found


def test_the_axis_has_the_dates_that_the_sessions_wrote():
    """In UTC each of these began the day before."""
    drawn = chart([point(f"2026-03-{day:02}T00:30:00+09:00") for day in range(1, 8)])
    labels = {tick.label: tick.at for tick in drawn.chart.along}
    first = int(path(drawn, "medians").removeprefix("m").split(" ")[0])
    assert labels["2026-03-01"] <= first < labels["2026-03-03"]


def test_a_number_accepted_at_no_time_is_told_without_a_place():
    drawn = chart(
        [point("2026-03-01T02:00:00+01:00")],
        accepted=(AcceptedChange(at="last spring", old=390.0, new=400.0, why="by hand"),),
    )
    assert not path(drawn, "accepted-sign")
    assert "by hand" in drawn.accepted_changes[0]


def test_another_machine_is_told():
    other = OtherMachine(
        first="2026-03-01T02:00:00+01:00",
        last="2026-03-01T02:00:00+01:00",
        sessions=1,
        facts={"device": ("H200", "B200")},
    )
    drawn = chart([point("2026-03-01T02:00:00+01:00")], other_machines=(other,))
    assert any("another machine (device H200, now B200)" in fact for fact in drawn.facts)


def nights(*medians):
    return tuple(
        Point(
            began=0.0,
            started=f"2026-01-{day:02d}T02:00:00+00:00",
            median=median,
            lowest=median - 1,
            highest=median + 1,
            runs=3,
            verdict_word="regressed" if median < 90 else "pass",
        )
        for day, median in enumerate(medians, 1)
    )


@pytest.mark.parametrize("count", [1, 2, 28])
def test_short_histories_have_a_chart(count):
    drawn = chart(nights(*[100.0] * count))
    assert path(drawn, "ranges").count("v") == count


def test_a_verdict_of_another_version_costs_its_mark_alone():
    usual = nights(100.0, 100.0)
    odd = (usual[0]._replace(verdict_word="splendid"), usual[1])
    assert chart(odd) == chart(usual)


def test_no_night_is_no_chart():
    assert history_chart(history(())) is None


def test_an_odd_run_does_not_press_the_nights_into_a_line():
    usual = nights(*[100.0, 102.0] * 14)
    odd = (usual[0]._replace(lowest=1.0, highest=400.0), *usual[1:])
    assert path(chart(odd), "medians") == path(chart(usual), "medians")
    [top, bottom] = [
        int(y) for y in re.findall(r"^m\d+ (\d+)v(\d+)", path(chart(odd), "ranges"))[0]
    ]
    assert HISTORY.top <= top < top + bottom <= HISTORY.bottom


# --------------------------------------------------------------------------- the axis


def days(count):
    first = date(2026, 3, 1)
    return [
        point(f"{first + timedelta(days=day)}T02:00:00+01:00")._replace(median=100.0 + day % 2)
        for day in range(count)
    ]


@pytest.mark.parametrize("count", [1, 2, 9, 60, 400])
def test_dates_do_not_run_into_each_other(count):
    ticks = chart(days(count)).chart.along
    assert [ticks[0].label, ticks[-1].label] == [
        "2026-03-01", str(date(2026, 3, 1) + timedelta(days=count - 1))
    ]  # fmt: skip
    ends = [
        (tick.at - DATE_WIDTH, tick.at)
        if tick.style == "e"
        else (tick.at - DATE_WIDTH // 2, tick.at + DATE_WIDTH // 2)
        for tick in ticks
    ]
    assert all(one[1] <= other[0] for one, other in pairwise(ends)), ends


# --------------------------------------------------------------------------- sentences below it


def change_point(at):
    return ChangePoint(index=20, previous=19, at=at, before=100.0, after=80.0)


def test_change_points_are_listed():
    points = (change_point("2026-01-21T02:00:00+00:00"),)
    drawn = chart(nights(*[100.0] * 20, *[80.0] * 8), change_points=points)
    assert drawn.changes == ("2026-01-21: -20.0 %, from 100.00 to 80.00",)


def test_what_is_not_drawn_is_told():
    few = history_chart(history(days(60)), max_points=10)
    assert "the last 10 are drawn" in few.facts
    assert not [fact for fact in chart(days(60)).facts if "drawn" in fact]


def test_noise_and_drift_are_told_with_their_numbers():
    drift = Drift(since="2026-03-02", days=30, percent=-4.0, percent_per_week=-1.0)
    known = chart(days(60), noise_percent=0.4, drift=drift)
    assert "drifts -1.0 % a week since 2026-03-02 (30 days), -4.0 % in all" in known.facts
    assert "noise of runs: 0.4 %" in known.facts
    assert known.chart.description == ". ".join(known.facts)
    assert known.facts[0] == "60 sessions since 2026-03-01"


def test_a_night_without_a_number_has_its_place():
    nights = days(3)
    drawn = chart(nights, without_number=("2026-03-02T03:00:00+01:00", "2026-03-04T02:00:00+01:00"))
    assert path(drawn, "missing") == drawn.missing
    assert drawn.missing.count("h0") == 2
    assert drawn.last == ""  # that of now is the last
    assert [tick.label for tick in drawn.chart.along][-1] == "2026-03-04"
    assert chart(nights).missing == ""
