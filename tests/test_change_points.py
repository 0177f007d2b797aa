"""Change points are found as well as by Apache Otava.

``otava_change_points.json`` has the indices that ``history.trends`` gave with the candidates of
Otava 0.8.0 (``compute_change_points`` with windows of 50 and p-values to 0.001) on these series.
"""

import json
import random
from pathlib import Path

import pytest
from histories import days

from pytest_dlperf.history.trends import change_points

FOUND_BY_OTAVA = json.loads(
    (Path(__file__).parent / "data" / "otava_change_points.json").read_text(encoding="utf-8")
)


def places(values):
    return [point.index for point in change_points(days([[value] for value in values]))]


def generated(kind, number):
    """The nights of a series, of 40 to 200 days unless they are short or a year, and its steps."""
    draw = random.Random(f"{kind} {number}")  # noqa: S311 - the same series every time
    noise = draw.choice((0.002, 0.005, 0.01, 0.02))
    count = {"short": draw.randint(5, 30), "year": 366}.get(kind) or draw.randint(40, 200)
    levels = [400.0] * count
    steps = []

    def step(at):
        steps.append(at)
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
    swing, correlation = 0.0, 0.6 if kind == "alike" else 0.0
    values = []
    for level in levels:
        swing = correlation * swing + draw.gauss(0, noise)
        value = level * (1 + swing)
        if kind == "outliers" and draw.random() < 0.06:
            value *= draw.uniform(0.5, 0.95)
        values.append(value)
    return values, steps


def score(found, steps):
    """How many steps were found, to two nights and to the night, and minus those that are none."""
    near = exact = false = 0
    for places_found, there in zip(found, steps, strict=True):
        hits = [at for at in there if any(abs(place - at) <= 2 for place in places_found)]
        near += len(hits)
        exact += len(set(there) & set(places_found))
        false += len(places_found) - len(hits)
    return near, exact, -false


@pytest.mark.parametrize("kind", FOUND_BY_OTAVA)
def test_change_points_are_found_as_well_as_by_otava(kind):
    by_otava = FOUND_BY_OTAVA[kind]
    series = [generated(kind, number) for number in range(len(by_otava))]
    steps = [there for _, there in series]
    found = [places(values) for values, _ in series]
    ours, theirs = score(found, steps), score(by_otava, steps)
    assert all(mine >= its for mine, its in zip(ours, theirs, strict=True)), (ours, theirs)


@pytest.mark.parametrize("level", [1e-3, 1.0, 1e9])
def test_a_step_without_noise_is_dated_to_the_night(level):
    assert places([level] * 20 + [0.9 * level] * 20) == [20]


def test_a_change_is_seen_from_its_fourth_night_on():
    values = [400.0 * (1 + 0.005 * (-1) ** k) for k in range(60)]
    slow = [0.9 * value for value in values]
    assert places([*values, *slow[:3]]) == []
    assert places([*values, *slow[:4]]) == [60]
