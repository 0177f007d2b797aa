"""Change points are where Apache Otava finds them.

``otava_change_points.json`` has the indices that ``history.trends`` gave with the candidates of
Otava 0.8.0 (``compute_change_points`` with windows of 50 and p-values to 0.001) on these series.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from histories import days

from pytest_dlperf.history.trends import change_points

FOUND_BY_OTAVA = json.loads(
    (Path(__file__).parent / "data" / "otava_change_points.json").read_text(encoding="utf-8")
)
MIN_EQUAL = {"drift": 16, "alike": 19}
"""Series of 20 that have to agree. A slope has no level, so its steps are where the noise puts
them; in nights like their neighbours one step may lie some nights off."""


def places(values: Sequence[float]) -> list[int]:
    return [point.index for point in change_points(days([[value] for value in values]))]


def generated(kind: str, number: int) -> list[float]:
    """The nights of a series: of 40 to 200 days, unless they are short or a year."""
    draw = random.Random(f"{kind} {number}")  # noqa: S311 - the same series every time
    noise = draw.choice((0.002, 0.005, 0.01, 0.02))
    count = {"short": draw.randint(5, 30), "year": 366}.get(kind) or draw.randint(40, 200)
    levels = [400.0] * count

    def step(at: int) -> None:
        change = draw.choice((-1, 1)) * draw.choice((0.015, 0.03, 0.06, 0.1))
        levels[at:] = [level * (1 + change) for level in levels[at:]]

    if kind in {"step", "short", "year", "outliers", "alike"}:
        step(draw.randrange(2, count - 1))
    elif kind == "two steps":
        for at in sorted(draw.sample(range(8, count - 8), 2)):
            step(at)
    elif kind == "near steps":
        at = draw.randrange(8, count - 14)
        step(at)
        step(at + draw.randint(2, 10))
    elif kind == "drift":
        start = draw.randrange(count // 2)
        slope = draw.choice((-1, 1)) * draw.choice((0.0005, 0.002))
        levels = [level * (1 + slope * max(k - start, 0)) for k, level in enumerate(levels)]
    swing, correlation = 0.0, 0.6 if kind == "alike" else 0.0
    values = []
    for level in levels:
        swing = correlation * swing + draw.gauss(0, noise)
        value = level * (1 + swing)
        if kind == "outliers" and draw.random() < 0.06:
            value *= draw.uniform(0.5, 0.95)
        values.append(value)
    return values


@pytest.mark.parametrize("kind", FOUND_BY_OTAVA)
def test_change_points_are_those_that_otava_finds(kind: str) -> None:
    expected = FOUND_BY_OTAVA[kind]
    found = [places(generated(kind, number)) for number in range(len(expected))]
    equal = sum(ours == theirs for ours, theirs in zip(found, expected, strict=True))
    assert equal >= MIN_EQUAL.get(kind, len(expected)), (found, expected)


@pytest.mark.parametrize("level", [1e-3, 1.0, 1e9])
def test_a_step_without_noise_is_dated_to_the_night(level: float) -> None:
    assert places([level] * 20 + [0.9 * level] * 20) == [20]


def test_a_change_is_seen_from_its_fourth_night_on() -> None:
    values = [400.0 * (1 + 0.005 * (-1) ** k) for k in range(60)]
    slow = [0.9 * value for value in values]
    assert places([*values, *slow[:3]]) == []
    assert places([*values, *slow[:4]]) == [60]


def test_no_change_asks_for_no_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert places([400.0, 401.0] * 30) == []
    with pytest.raises(ImportError):
        places([400.0, 401.0] * 30 + [300.0] * 30)
