"""The drawing of a case's nights: each by the date that its session wrote, each as it came out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from itertools import pairwise

import pytest
from histories import CASE

from pytest_dlperf.history.series import (
    AcceptedChange,
    CaseHistory,
    ChangePoint,
    Drift,
    Night,
    OtherMachine,
)
from pytest_dlperf.model.judgement import Explanation, PastNight
from pytest_dlperf.model.metric import Better
from pytest_dlperf.reports.html.history_chart import DATE_WIDTH, HistoryChart, history_chart


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


def test_the_axis_has_the_dates_that_the_sessions_wrote() -> None:
    """In UTC each of these began the day before."""
    drawn = chart([point(f"2026-03-{day:02}T00:30:00+09:00") for day in range(1, 8)])
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


# --------------------------------------------------------------------------- the axis


def days(count: int) -> list[Night]:
    first = date(2026, 3, 1)
    return [
        point(f"{first + timedelta(days=day)}T02:00:00+01:00")._replace(median=100.0 + day % 2)
        for day in range(count)
    ]


def explained(count: int, since: int, *, is_gradual: bool = False) -> HistoryChart:
    """The chart of so many days, with tonight's level since one of them."""
    nights = days(count)
    why = Explanation(since=PastNight(at=nights[since].started), is_gradual=is_gradual)
    drawn = history_chart(history(nights), explanation=why)
    assert drawn is not None
    return drawn


@pytest.mark.parametrize(
    ("since", "said"),
    [
        (20, ["2026-03-21", "2026-04-29"]),
        (58, ["2026-04-28 … 04-29"]),
        (59, ["2026-04-29"]),
    ],
)
def test_the_axis_has_tonight_and_the_change(since: int, said: list[str]) -> None:
    drawn = explained(60, since)
    ticks = {tick.at: tick.label for tick in drawn.chart.along}
    assert set(said) <= set(ticks.values())
    xs = [int(word) for word in path(drawn, "medians").removeprefix("m").split(" ")[:1]]
    assert max(ticks) > xs[0]
    labels = [label for label in ticks.values() if label]
    assert "2026-03-01" in labels


@pytest.mark.parametrize("count", [2, 9, 60, 400])
def test_dates_do_not_run_into_each_other(count: int) -> None:
    for since in range(0, count, max(count // 20, 1)):
        ends = []
        for tick in explained(count, since).chart.along:
            width = DATE_WIDTH * len(tick.label) // len("2026-03-01")
            end = tick.at if tick.style == "e" else tick.at + width // 2
            if tick.label:
                ends.append((end - width, end))
        assert all(one[1] <= other[0] + 10 for one, other in pairwise(ends)), (since, ends)


def test_without_a_verdict_the_axis_has_the_last_change_point() -> None:
    drawn = chart(days(60), change_points=(change_point("2026-03-25T02:00:00+01:00"),))
    assert "2026-03-25" in {tick.label for tick in drawn.chart.along}


# --------------------------------------------------------------------------- sentences below it


def change_point(at: str, p_value: float = 0.001) -> ChangePoint:
    return ChangePoint(index=20, at=at, before=100.0, after=80.0, p_value=p_value)


def about_change_points(drawn: HistoryChart) -> list[str]:
    return [fact for fact in drawn.facts if "change point" in fact]


@pytest.mark.parametrize(
    ("medians", "said"),
    [
        ([100.0, 100.2] * 14, "no change point"),
        ([100.0, 101.5] * 14, "no change point"),
        ([100.0, 100.2] * 7 + [70.0] + [100.0, 100.2] * 6, "no change point"),
        (
            [100.0, 100.2] * 10 + [80.0] * 8,
            "a step on 2026-01-21; no change point is certain",
        ),
        (
            [100.0, 100.2] * 10 + [102.0] * 2,
            "a step on 2026-01-21; a change point takes 4 sessions",
        ),
        ([100.0, 80.0], "no change point"),
    ],
    ids=["level", "noise", "an odd night", "a step", "two nights", "two nights in all"],
)
def test_no_change_point_never_stands_under_a_visible_step(medians: list[float], said: str) -> None:
    assert about_change_points(chart(nights(*medians))) == [said]


@pytest.mark.parametrize(
    ("p_value", "said"), [(0.0, "(p < 0.001)"), (0.0009, "(p < 0.001)"), (0.042, "(p = 0.042)")]
)
def test_change_points_are_listed_and_not_denied(p_value: float, said: str) -> None:
    points = (change_point("2026-01-21T02:00:00+00:00", p_value),)
    drawn = chart(nights(*[100.0] * 20, *[80.0] * 8), change_points=points)
    assert about_change_points(drawn) == []
    (line,) = drawn.changes
    assert line.startswith("2026-01-21: -20.0 %, from 100.00 to 80.00 ")
    assert line.endswith(f" {said}")


def test_a_step_that_the_verdict_knows_is_not_denied_and_a_drift_is_no_step() -> None:
    (said,) = about_change_points(explained(60, 40))
    assert said.startswith("a step on 2026-04-10; ")
    assert about_change_points(explained(60, 40, is_gradual=True)) == ["no change point"]


def test_what_is_not_drawn_is_told() -> None:
    few = history_chart(history(days(60)), max_points=10)
    assert few is not None
    assert "the last 10 are drawn" in few.facts
    assert not [fact for fact in chart(days(60)).facts if "drawn" in fact]
    odd = days(60)[10]._replace(lowest=1.0)
    far = chart([*days(60)[:10], odd, *days(60)[11:]])
    assert "runs of 1 point lie beyond the chart" in far.facts
    assert not [fact for fact in chart(days(60)).facts if "beyond" in fact]


def test_noise_and_drift_are_told_with_their_numbers() -> None:
    drift = Drift(since="2026-03-02", nights=30, percent=-4.0, percent_per_week=-1.0)
    known = chart(days(60), run_noise_percent=0.4, night_noise_percent=1.3, drift=drift)
    assert "drifts -1.0 % a week since 2026-03-02 (30 days), -4.0 % in all" in known.facts
    assert any("0.4 %" in fact and "1.3 %" in fact for fact in known.facts)
    assert known.chart.description == ". ".join(known.facts)
    assert known.facts[0] == "60 sessions since 2026-03-01"


def test_a_night_without_a_number_has_its_place() -> None:
    nights = days(3)
    drawn = chart(nights, without_number=("2026-03-02T03:00:00+01:00", "2026-03-04T02:00:00+01:00"))
    assert path(drawn, "missing") == drawn.missing
    assert drawn.missing.count("h0") == 2
    assert drawn.last == ""  # tonight is the last of them
    assert [tick.label for tick in drawn.chart.along][-1] == "2026-03-04"
    assert chart(nights).missing == ""
