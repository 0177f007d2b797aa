"""Ids name cases: they read back exactly, and nothing else is an id."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dlperf.model.case import NAME_PATTERN, PRECISION_PATTERN, Case, Topology

names = st.from_regex(NAME_PATTERN, fullmatch=True)
topologies = st.builds(Topology, st.integers(1, 10_000), st.integers(1, 1_000))
cases = st.builds(
    Case,
    framework=names,
    model=names,
    precision=st.from_regex(PRECISION_PATTERN, fullmatch=True),
    batch_per_device=st.integers(1, 1_000_000),
    options=st.sets(names, max_size=4).map(lambda options: tuple(sorted(options))),
    topology=topologies,
)


@given(cases)
def test_an_id_reads_back_as_its_case(case: Case) -> None:
    assert Case.parse(case.id) == case


@given(cases, cases)
def test_different_cases_have_different_ids(one: Case, other: Case) -> None:
    assert (one.id == other.id) == (one == other)


@given(cases)
def test_hyphens_stand_only_between_the_axes(case: Case) -> None:
    assert case.id.count("-") == (5 if case.options else 4)


@given(st.text(max_size=60))
def test_no_text_but_an_id_is_read_as_a_case(text: str) -> None:
    try:
        case = Case.parse(text)
    except ValueError:
        return
    assert case.id == text


@given(topologies)
def test_a_topology_reads_back(topology: Topology) -> None:
    assert Topology.parse(str(topology)) == topology


@pytest.mark.parametrize(
    "text", ["", "4n8", "n8g", "0n8g", "4n0g", "04n8g", "4N8G", " 4n8g", "4n8g\n", "-1n1g"]
)
def test_other_text_is_no_topology(text: str) -> None:
    with pytest.raises(ValueError, match="4n8g"):
        Topology.parse(text)


@pytest.mark.parametrize(
    ("text", "nodes", "devices"), [("1n1g", 1, 1), ("16n8g", 16, 8), ("10n16g", 10, 16)]
)
def test_large_topologies_are_like_any_other(text: str, nodes: int, devices: int) -> None:
    topology = Topology.parse(text)
    assert (topology.nodes, topology.devices_per_node) == (nodes, devices)
    assert topology.world_size == nodes * devices


def test_a_case_says_what_it_is() -> None:
    case = Case.parse("pytorch-resnet50-fp32-b128-dali+workers8-2n4g")

    assert case.system == "pytorch-resnet50"
    assert case.options == ("dali", "workers8")
    assert case.variant == "fp32-b128-dali+workers8"
    assert case.global_batch == 1024
    assert case.single_device.id == "pytorch-resnet50-fp32-b128-dali+workers8-1n1g"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"framework": "Paddle"}, "framework 'Paddle' is out of form"),
        ({"model": "resnet-50"}, "model 'resnet-50' is out of form"),
        ({"precision": "fp_32"}, "precision 'fp_32' is out of form"),
        ({"batch_per_device": 0}, "at least 1, not 0"),
        ({"options": ("xla", "dali")}, "options are sorted"),
        ({"options": ("xla", "xla")}, "options are sorted"),
        ({"options": ("a b",)}, "option 'a b' is out of form"),
    ],
)
def test_a_case_that_has_no_id_cannot_be_made(change: dict[str, object], message: str) -> None:
    fields: dict[str, object] = {
        "framework": "paddle",
        "model": "resnet50",
        "precision": "fp32",
        "batch_per_device": 128,
        "topology": Topology(1, 1),
    }
    with pytest.raises(ValueError, match=message):
        Case(**{**fields, **change})  # type: ignore[arg-type]
