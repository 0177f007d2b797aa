"""The drawing of a case's nights: each by the date that its session wrote, each as it came out."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from histories import CASE

from pytest_dlperf.history.series import (
    AcceptedChange,
    CaseHistory,
    ChangePoint,
    Night,
    OtherMachine,
)
from pytest_dlperf.model.metric import Better
from pytest_dlperf.reports.html.history_chart import HistoryChart, history_chart


def point(started: str, word: str = "pass") -> Night:
    return Night(
        began=0.0,
        started=started,
        median=400.0,
        lowest=399.0,
        highest=401.0,
        runs=5,
        verdict_word=word,
    )


def history(points: Sequence[Night], **more: object) -> CaseHistory:
    return CaseHistory(
        case_id=CASE,
        metric="throughput",
        unit="images/s",
        better=Better.HIGHER,
        nights=tuple(points),
        **more,  # type: ignore[arg-type]
    )


def chart(points: Sequence[Night], **more: object) -> HistoryChart:
    drawn = history_chart(history(points, **more))
    assert drawn is not None
    return drawn


def path(drawn: HistoryChart, style: str) -> str:
    [found] = [shape.path for shape in drawn.chart.shapes if shape.style == style]
    return found


def test_sessions_at_one_place_keep_their_own_words() -> None:
    year = [point(f"2026-{month:02}-01T02:00:00+01:00") for month in range(1, 13)]
    hours = [
        point("2026-12-31T02:00:00+01:00", "regressed"),
        point("2026-12-31T02:20:00+01:00"),
        point("2026-12-31T02:40:00+01:00", "regressed"),
        point("2026-12-31T03:00:00+01:00", "lost"),
    ]
    shapes = chart([*year, *hours]).chart.shapes
    marks = {shape.data["word"]: shape.data["nights"] for shape in shapes if shape.data}
    assert marks == {"regressed": "12 14", "lost": "15"}


def test_the_axis_has_the_dates_that_the_sessions_wrote() -> None:
    """In UTC each of these began the day before."""
    drawn = chart([point(f"2026-03-{day:02}T00:30:00+09:00") for day in range(1, 8)])
    assert drawn.chart.data["days"] == "2026-03-01 1*6"
    labels = {tick.label: tick.at for tick in drawn.chart.along}
    first = int(path(drawn, "medians").removeprefix("m").split(" ")[0])
    assert labels["2026-03-01"] <= first < labels["2026-03-03"]


def test_a_number_accepted_at_no_time_is_told_without_a_place() -> None:
    drawn = chart(
        [point("2026-03-01T02:00:00+01:00")],
        accepted=(AcceptedChange(at="last spring", old=390.0, new=400.0, why="by hand"),),
    )
    assert "accepted-sign" not in {shape.style for shape in drawn.chart.shapes}
    assert "by hand" in drawn.accepted_changes[0]


def test_another_machine_is_told() -> None:
    other = OtherMachine(
        first="2026-03-01T02:00:00+01:00",
        last="2026-03-01T02:00:00+01:00",
        sessions=1,
        facts={"device": ("H200", "B200")},
    )
    drawn = chart([point("2026-03-01T02:00:00+01:00")], other_machines=(other,))
    assert any("another machine (device H200, now B200)" in fact for fact in drawn.facts)


def nights(*medians: float) -> tuple[Night, ...]:
    return tuple(
        Night(
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
def test_short_histories_have_a_chart(count: int) -> None:
    drawn = chart(nights(*[100.0] * count))
    assert drawn.facts[-1] == "no change point"
    assert path(drawn, "ranges").count("v") == count


def test_no_night_is_no_chart() -> None:
    assert history_chart(history(())) is None


def drawn_limits(*medians: float) -> tuple[float, float]:
    days = [100.0, 101.0, 102.0] * 30
    data = chart(nights_from(*days, *medians)).chart.data
    return float(data["low"]), float(data["high"])


def nights_from(*medians: float) -> tuple[Night, ...]:
    """Nights whose runs do not differ."""
    return tuple(
        point(f"2026-{1 + day // 28:02}-{1 + day % 28:02}T02:00:00+00:00")._replace(
            median=median, lowest=median, highest=median
        )
        for day, median in enumerate(medians)
    )


def test_a_few_nights_far_off_do_not_press_the_others_into_a_line() -> None:
    usual = [101.0] * 7
    low, high = drawn_limits(60.0, 100.0, 300.0, *usual)
    assert 99 < low < 100
    assert 102 < high < 103


def test_the_last_nights_are_always_within_the_chart() -> None:
    low, _ = drawn_limits(60.0, *[101.0] * 6)
    assert low < 60


def test_a_level_that_some_weeks_had_is_within_the_chart() -> None:
    low, _ = drawn_limits(*[60.0] * 10, *[101.0] * 7)
    assert low < 60


@pytest.mark.parametrize(
    ("points", "said"),
    [
        ((), "no change point"),
        (
            (
                ChangePoint(
                    index=20,
                    at="2026-01-21T02:00:00+00:00",
                    before=100.0,
                    after=80.0,
                    p_value=0.001,
                ),
            ),
            None,
        ),
    ],
    ids=["none", "one"],
)
def test_what_is_known_of_change_points_is_told(
    points: tuple[ChangePoint, ...], said: str | None
) -> None:
    drawn = chart(nights(*[100.0] * 20, *[80.0] * 8), change_points=points)
    assert [fact for fact in drawn.facts if "change point" in fact] == [said] * (said is not None)
    assert len(drawn.changes) == len(points)
