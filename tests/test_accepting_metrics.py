"""Metrics of one case through the command line: accepted together, one by one, or not at all."""

import re
from contextlib import ExitStack

import pytest
import yaml
from nights import Nights
from sessions import in_background

pytestmark = [pytest.mark.slow, pytest.mark.in_process]

CREATE, UPDATE, EXTEND = (f"--dlperf-{word}-baselines" for word in ("create", "update", "extend"))
METRICS = """\
  peak_memory: {record: 'max allocated: (?P<value>[0-9.]+) MB', over: run, unit: MB, better: lower}
  loss: {record: 'loss=(?P<value>[0-9.na]+)'}
"""
JUDGED = ["throughput", "speedup", "peak_memory"]


@pytest.fixture
def nights(suite):
    """Nights of a system that judges its memory too, and looks at its loss."""
    made = Nights(suite)
    made.declare(METRICS)
    return made


def memory(megabytes):
    """What a log says of it."""
    return f"max allocated: {megabytes} MB\n"


def entries(nights):
    return dict(yaml.safe_load(nights.text)["entries"]["fp32-b4"])


def accepted(nights):
    """The numbers of two devices, by metric."""
    entry = entries(nights)["1n2g"]
    return {name: entry[name]["accepted"] for name in JUDGED if name in entry}


def test_metrics_are_recorded_together_and_say_once_where_they_come_from(suite, nights):
    result = suite.run(*nights.usual("first", printed=memory(1000)), CREATE)

    assert result.ret == 0
    assert yaml.safe_load(nights.text)["metrics"] == {
        "throughput": {"unit": "samples/s", "better": "higher"},
        "speedup": {"unit": "x", "better": "higher"},
        "peak_memory": {"unit": "MB", "better": "lower"},
    }
    both = entries(nights)
    assert [list(entry) for entry in both.values()] == [
        ["throughput", "peak_memory", "acceptance"],
        ["throughput", "speedup", "peak_memory", "acceptance"],
    ]
    assert both["1n2g"]["peak_memory"] == {
        "accepted": 1000.0,
        "runs": dict.fromkeys(range(1, 6), 1000.0),
    }
    assert both["1n2g"]["speedup"]["over"] == both["1n1g"]["throughput"]["accepted"]


@pytest.mark.parametrize(
    "chosen",
    [["--dlperf-metric", "peak_memory"], ["-k", "tiny and peak_memory"]],
    ids=["option", "name"],
)
def test_one_metric_is_accepted_alone(suite, nights, chosen):
    suite.run(*nights.usual("first", printed=memory(1000)), CREATE)
    before, text = accepted(nights), nights.text
    better = nights.usual("better", of_1n2g=1.3, printed=memory(800))

    result = suite.run(*better, UPDATE, *chosen)

    assert result.ret == 0
    after = accepted(nights)
    assert after == {**before, "peak_memory": 800.0}
    entry = entries(nights)["1n2g"]
    assert entry["peak_memory"]["acceptance"]["at"] > entry["acceptance"]["at"]
    gone = [line for line in text.splitlines() if line not in nights.text.splitlines()]
    assert all("1000.0" in line for line in gone)


def test_what_one_metric_lost_keeps_the_others_of_its_runs_from_being_accepted(suite, nights):
    suite.run(*nights.usual("first", printed=memory(1000)), CREATE)
    before = nights.text
    mixed = nights.usual("mixed", of_1n1g=1.3, of_1n2g=1.3, printed=memory(1100))

    refused = suite.run(*mixed, UPDATE)
    assert refused.ret == 1
    told = [line for line in refused.outlines if "(peak_memory is regressed)" in line]
    assert len(told) == 2
    assert nights.text == before

    # Whoever asks for one metric alone has decided.
    assert suite.run(*mixed, UPDATE, "--dlperf-metric", "throughput").ret == 0
    assert accepted(nights)["throughput"] > 900
    assert accepted(nights)["peak_memory"] == 1000.0


def test_a_metric_that_is_declared_later_joins_the_entries(suite, nights):
    nights.declare("  loss: {record: 'loss=(?P<value>[0-9.na]+)'}\n")
    first = nights.usual("first", printed=memory(1000))
    suite.run(*first, CREATE)
    before = accepted(nights)
    nights.declare(METRICS)

    assert suite.run(*first).ret == 1
    assert suite.run(*first, CREATE).ret == 0

    assert accepted(nights) == {**before, "peak_memory": 1000.0}
    assert suite.run(*first).ret == 0


def test_a_session_adds_the_runs_of_each_metric(suite, nights):
    suite.run(*nights.usual("first", printed=memory(1000)), CREATE)
    before = accepted(nights)

    assert suite.run(*nights.usual("second", printed=memory(1001)), EXTEND).ret == 0

    assert accepted(nights) == before
    entry = entries(nights)["1n2g"]
    [of_memory] = entry["peak_memory"]["sessions"]
    [of_speed] = entry["throughput"]["sessions"]
    assert of_memory == {"at": of_speed["at"], "runs": [1001.0] * 5}
    assert len(of_speed["runs"]) == 5
    # A ratio has no runs of its own.
    assert set(entry["speedup"]) == {"accepted", "over"}

    # That the very same runs come again shows in the metrics whose runs differ.
    before_again = nights.text
    again = suite.run(*nights.usual("second", printed=memory(1001)), EXTEND)
    assert len([line for line in again.outlines if "have been added before" in line]) == 2
    assert nights.text == before_again


def test_two_sessions_at_once_accept_two_metrics_of_a_case(suite, nights):
    suite.run(*nights.usual("first", printed=memory(1000)), CREATE)
    better = nights.usual("better", of_1n1g=1.3, of_1n2g=1.3, printed=memory(800))

    with ExitStack() as stack:
        sessions = [
            stack.enter_context(in_background(suite, *better, UPDATE, "--dlperf-metric", metric))
            for metric in ("throughput", "peak_memory")
        ]
        assert [session.result() for session in sessions] == [0, 0]

    numbers = accepted(nights)
    assert numbers["peak_memory"] == 800.0
    assert numbers["throughput"] == pytest.approx(760 * 1.3, rel=0.02)


def test_a_metric_of_another_unit_is_compared_with_nothing_and_replaces_nothing(suite, nights):
    first = nights.usual("first", printed=memory(1000))
    suite.run(*first, CREATE)
    before = nights.text
    nights.declare(METRICS.replace("unit: MB", "unit: GB, printed_in: MB"))

    for option in ([], [UPDATE]):
        result = suite.run(*first, "--dlperf-metric", "peak_memory", *option)
        assert result.ret == 1
        assert re.search(r"tiny-mlp\.yaml:\d+ has .*unit.* 'MB'", result.stdout.str())
        assert nights.text == before


def test_a_number_of_nothing_is_no_baseline(suite, nights):
    result = suite.run(*nights.usual("first", printed=memory(0)), CREATE)

    assert result.ret == 1
    assert "peak_memory" not in (nights.text if nights.file.exists() else "")
