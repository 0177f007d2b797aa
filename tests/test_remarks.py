"""Where a training lost, what is odd in its scaling, and what is to be expected of a night."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from results_makers import judged, measured_case, unmeasured_case, with_judgement

from pytest_dlperf.model.case import Topology
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.measurement import WitnessKind
from pytest_dlperf.night.remarks import oddities, suspicion_lines, to_be_expected, where_lost

ONE, TWO, FOUR = (f"paddle-resnet50-fp32-b128-1n{devices}g" for devices in (1, 2, 4))


def lost(over: str = "1n1g", /, **losses: float | None) -> str | None:
    """Topologies as ``t4n8g``: a keyword cannot begin with a digit."""
    of = {Topology.parse(name[1:]): loss for name, loss in losses.items()}
    return where_lost(of, smallest=Topology.parse(over))


def test_a_loss_of_all_topologies_is_in_the_computing() -> None:
    told = lost(t1n1g=9.3, t1n8g=9.1, t4n8g=8.9)
    assert told == "compute or data (every topology lost 8.9 to 9.3 %)"


def test_a_loss_of_all_but_the_single_device_is_inside_the_node() -> None:
    assert (
        lost(t1n1g=None, t1n2g=6.0, t1n8g=7.5, t2n8g=7.0)
        == "inside the node (from 2 devices on, lost 6.0 to 7.5 %)"
    )
    assert (
        lost(t1n1g=None, t1n2g=None, t1n4g=6.0, t1n8g=6.0)
        == "inside the node (from 4 devices on, lost 6.0 %)"
    )


def test_a_loss_of_several_nodes_only_is_between_them() -> None:
    assert (
        lost(t1n1g=None, t1n8g=None, t2n8g=5.0, t4n8g=11.0)
        == "between nodes (from 2 nodes on, lost 5.0 to 11.0 %)"
    )


@pytest.mark.parametrize(
    ("losses", "told"),
    [
        (
            {"t1n4g": 5.0, "t1n8g": 5.0},
            "compute or data or inside the node (from 4 devices on, lost 5.0 %; 1n1g not measured)",
        ),
        (
            {"t1n1g": None, "t2n8g": 5.0, "t4n8g": 5.0},
            "inside the node or between nodes (from 2 nodes on, lost 5.0 %; 1n8g not measured)",
        ),
        (
            {"t2n8g": 5.0, "t4n8g": 5.0},
            (
                "compute or data or inside the node or between nodes "
                "(from 2 nodes on, lost 5.0 %; 1n1g and 1n8g not measured)"
            ),
        ),
        (
            {"t1n1g": None, "t2n1g": 5.0, "t4n1g": 5.0},
            "between nodes (from 2 nodes on, lost 5.0 %)",
        ),
    ],
)
def test_what_was_not_measured_leaves_the_place_open(
    losses: dict[str, float | None], told: str
) -> None:
    assert lost(**losses) == told


@pytest.mark.parametrize(
    ("over", "losses", "told"),
    [
        ("1n8g", {"t1n8g": 5.0, "t4n8g": 6.0},
         "compute or data or inside the node (every topology lost 5.0 to 6.0 %)"),
        ("1n8g", {"t1n8g": None, "t2n8g": 5.0, "t4n8g": 9.0},
         "between nodes (from 2 nodes on, lost 5.0 to 9.0 %)"),
        ("1n8g", {"t2n8g": 5.0, "t4n8g": 5.0},
         ("compute or data or inside the node or between nodes "
         "(from 2 nodes on, lost 5.0 %; 1n8g not measured)")),
        ("1n2g", {"t1n2g": None, "t1n4g": 5.0, "t1n8g": 5.0},
         "inside the node (from 4 devices on, lost 5.0 %)"),
        ("2n8g", {"t2n8g": 5.0, "t4n8g": 5.0},
         "compute or data or inside the node or between nodes (every topology lost 5.0 %)"),
        ("2n8g", {"t4n8g": 5.0, "t8n8g": 5.0},
         ("compute or data or inside the node or between nodes "
         "(from 4 nodes on, lost 5.0 %; 2n8g not measured)")),
    ],
)  # fmt: skip
def test_a_loss_has_a_place_from_any_reference_topology(
    over: str, losses: dict[str, float | None], told: str
) -> None:
    assert lost(over, **losses) == told


def test_the_only_topology_of_several_nodes_or_devices_has_a_place_alone() -> None:
    assert (
        lost(t1n1g=None, t1n2g=None, t1n4g=None, t2n4g=9.0)
        == "between nodes (from 2 nodes on, lost 9.0 %)"
    )
    assert lost(t1n1g=None, t1n8g=9.0) == "inside the node (from 8 devices on, lost 9.0 %)"


def test_one_lost_topology_says_nothing_of_the_place() -> None:
    assert lost(t1n1g=None, t2n8g=None, t4n8g=9.0) is None
    assert lost(t1n1g=None, t1n2g=None, t1n8g=9.0) is None
    assert lost(t1n1g=9.0) is None
    assert lost() is None


def test_a_loss_that_larger_topologies_do_not_have_is_of_no_place() -> None:
    assert lost(t1n1g=5.0, t1n8g=5.0, t4n8g=None) is None


@pytest.mark.parametrize("is_recorded", [False, True])
def test_a_loss_that_was_accepted_has_no_place(is_recorded: bool) -> None:
    lost = judged(Verdict.REGRESSED, measured=80.0, accepted=100.0, difference_percent=-20.0)
    lost = replace(lost, recorded=is_recorded)
    slow = [with_judgement(measured_case(each, 80.0), lost) for each in (TWO, FOUR)]
    told = " ".join(suspicion_lines([measured_case(ONE, 100.0), *slow]))
    assert ("the loss of throughput comes from inside the node" in told) is not is_recorded


def test_odd_scaling_is_pointed_out() -> None:
    one, eight, many = Topology(1, 1), Topology(1, 8), Topology(4, 8)
    found = oddities({one: 100.0, eight: 850.0, many: 700.0}, {eight: 8.5, many: 7.0})
    assert len(found) == 2
    assert found[0].startswith("1n8g: speedup 8.50 over 1n1g is above the ideal 8 (super-linear)")
    assert found[1].startswith("4n8g: 700.00 is less than 1n8g reaches with fewer devices, 850.00")


def test_odd_scaling_is_told_in_the_unit() -> None:
    one, two = Topology(1, 1), Topology(1, 2)
    (found,) = oddities({one: 1132660.4, two: 9.87654}, {}, unit="images/s")
    assert found.startswith("1n2g: 9.877 images/s is less than 1n1g reaches")
    assert "1132660.40 images/s" in found


def test_usual_scaling_is_not_odd() -> None:
    one, eight, many = Topology(1, 1), Topology(1, 8), Topology(4, 8)
    assert oddities({one: 100.0, eight: 800.0, many: 2900.0}, {eight: 8.0, many: 29.0}) == []
    # Neither of these two is the larger one.
    assert oddities({Topology(1, 8): 800.0, Topology(4, 1): 380.0}, {}) == []


def test_the_ideal_is_the_ratio_of_devices_to_those_of_the_reference() -> None:
    one, node, many = Topology(1, 1), Topology(1, 8), Topology(4, 8)
    throughputs = {one: 110.0, node: 800.0, many: 3300.0}
    # One device reaches more than an eighth of a node: only what is larger can be super-linear.
    (found,) = oddities(throughputs, {one: 0.1375, many: 4.24}, reference=node)
    assert found.startswith("4n8g: speedup 4.24 over 1n8g is above the ideal 4 (super-linear)")
    assert oddities(throughputs, {one: 0.1375, many: 3.9}, reference=node) == []
    assert oddities(throughputs, {}, reference=None) == []


def test_a_speedup_a_little_above_the_ideal_is_odd_only_for_who_asks() -> None:
    eight, many = Topology(1, 8), Topology(4, 8)
    known = {eight: 100.0, many: 410.0}, {many: 4.1}
    assert oddities(*known, reference=eight) == []
    assert len(oddities(*known, reference=eight, super_linear=1.0)) == 1


def test_the_false_alarms_of_a_night_add_up() -> None:
    passed = measured_case(TWO, 100.0)
    known, unknown = (
        with_judgement(passed, judged(Verdict.PASS, false_alarm=chance)) for chance in (0.002, None)
    )
    failed = unmeasured_case(TWO, Verdict.FAILED, "exited with 3")
    (line,) = to_be_expected([known] * 100 + [unknown] * 15 + [failed] * 3)
    assert line == (
        "false alarms to expect, by the noise of runs and nights: 0.2 in a session with "
        "100 verdicts; 15 more have too few runs to say"
    )
    assert list(to_be_expected([failed])) == []


@pytest.mark.parametrize(("available", "is_told"), [(1, True), (None, False)])
def test_only_logs_that_exist_already_lack_a_second_witness(
    available: int | None, is_told: bool
) -> None:
    result = measured_case(TWO, 100.0)
    assert result.measurement is not None
    [run] = result.measurement.runs
    measurement = replace(
        result.measurement,
        runs=(replace(run, witness=WitnessKind.NONE),),
        available_runs=available,
    )
    lines = list(to_be_expected([replace(result, measurement=measurement)]))
    assert any("no second witness for 1 of the 1 runs" in line for line in lines) is is_told
