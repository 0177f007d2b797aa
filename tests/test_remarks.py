"""Where a training lost."""

import pytest
from msgspec.structs import replace
from results_makers import judged, measured_case, with_judgement

from pytest_dlperf.model.case import Topology
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.report.overview import places_of_losses, where_lost

ONE, TWO, FOUR = (f"paddle-resnet50-fp32-b128-1n{devices}g" for devices in (1, 2, 4))


def lost(over="1n1g", /, **losses):
    """Topologies as ``t4n8g``: a keyword cannot begin with a digit."""
    of = {Topology.parse(name[1:]): loss for name, loss in losses.items()}
    return where_lost(of, smallest=Topology.parse(over))


def test_a_loss_of_all_topologies_is_in_the_computing():
    told = lost(t1n1g=9.3, t1n8g=9.1, t4n8g=8.9)
    assert told == "compute or data (every topology lost 8.9 to 9.3 %)"


def test_a_loss_of_all_but_the_single_device_is_inside_the_node():
    assert (
        lost(t1n1g=None, t1n2g=6.0, t1n8g=7.5, t2n8g=7.0)
        == "inside the node (from 2 devices on, lost 6.0 to 7.5 %)"
    )
    assert (
        lost(t1n1g=None, t1n2g=None, t1n4g=6.0, t1n8g=6.0)
        == "inside the node (from 4 devices on, lost 6.0 %)"
    )


def test_a_loss_of_several_nodes_only_is_between_them():
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
def test_what_was_not_measured_leaves_the_place_open(losses, told):
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
def test_a_loss_has_a_place_from_any_reference_topology(over, losses, told):
    assert lost(over, **losses) == told


def test_the_only_topology_of_several_nodes_or_devices_has_a_place_alone():
    assert (
        lost(t1n1g=None, t1n2g=None, t1n4g=None, t2n4g=9.0)
        == "between nodes (from 2 nodes on, lost 9.0 %)"
    )
    assert lost(t1n1g=None, t1n8g=9.0) == "inside the node (from 8 devices on, lost 9.0 %)"


def test_one_lost_topology_says_nothing_of_the_place():
    assert lost(t1n1g=None, t2n8g=None, t4n8g=9.0) is None
    assert lost(t1n1g=None, t1n2g=None, t1n8g=9.0) is None
    assert lost(t1n1g=9.0) is None
    assert lost() is None


def test_a_loss_that_larger_topologies_do_not_have_is_of_no_place():
    assert lost(t1n1g=5.0, t1n8g=5.0, t4n8g=None) is None


@pytest.mark.parametrize("is_recorded", [False, True])
def test_a_loss_that_was_accepted_has_no_place(is_recorded):
    lost = judged(Verdict.REGRESSED, measured=80.0, accepted=100.0, difference_percent=-20.0)
    lost = replace(lost, recorded=is_recorded)
    slow = [with_judgement(measured_case(each, 80.0), lost) for each in (TWO, FOUR)]
    told = " ".join(map(str, places_of_losses([measured_case(ONE, 100.0), *slow])))
    assert ("the loss of throughput comes from inside the node" in told) is not is_recorded
