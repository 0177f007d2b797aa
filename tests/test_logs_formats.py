"""Formats that are declared in a few words, and the mistakes that can be made in them."""

import warnings

import pytest

from pytest_dlperf.formats.log_format import Ranks, custom_format
from pytest_dlperf.model.work import RateScope, Timing

RECORD = r"it (?P<step>\d+) (?P<seconds>[\d.]+)"


@pytest.mark.parametrize(
    "group", [timing.value for timing in Timing if timing is not Timing.ARRIVAL]
)
def test_a_declared_format_takes_its_timing_from_the_group(group):
    mine = custom_format(
        "mine",
        record=rf"it (?P<step>\d+) of (?P<epoch>\d+) by (?P<rank>\d+): (?P<{group}>.*)",
        first_step=1,
        ranks="local",
        rate_scope="node",
    )
    assert mine.timing.value == group
    assert (mine.ranks, mine.rate_scope) == (Ranks.LOCAL, RateScope.NODE)
    assert mine.labels_ranks
    assert mine.first_step == 1
    assert mine.published is None


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"record": "it (?P<step>"}, "is not a regular expression: missing"),
        ({"record": "(?P<step>x)*(?P<seconds>y)*"}, "matches the empty text"),
        ({"record": r"it (?P<seconds>\d+)"}, "no group 'step'; write"),
        (
            {"record": r"it (?P<step>\d+) (?P<seconds>\d+) (?P<timestamp>\d+)"},
            "has seconds and timestamp",
        ),
        ({"record": RECORD + "(?P<lost>.)"}, "unknown group lost .* known are step, epoch, rank, "),
    ],
)
def test_mistakes_are_named(declared, message):
    with pytest.raises(ValueError, match=message.replace("^", r"\^")) as caught:
        custom_format("mine", **declared)
    assert str(caught.value).startswith("log format 'mine': ")


def test_a_pattern_that_python_warns_of_is_a_mistake():
    actions = ("error", "ignore")
    for action in actions:
        with warnings.catch_warnings():
            warnings.simplefilter(action)
            with pytest.raises(ValueError, match=r"mine.*Possible nested set at position 1"):
                custom_format("mine", record=r"[[a]" + RECORD)
