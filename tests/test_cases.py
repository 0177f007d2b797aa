"""Ids name cases: they read back exactly, and nothing else is an id."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_dlperf.model.case import NAME_PATTERN, PRECISION_PATTERN, Case, Topology
from pytest_dlperf.model.work import Layout, Scaling, Work, is_reserved

names = st.from_regex(NAME_PATTERN, fullmatch=True)
topologies = st.builds(Topology, st.integers(1, 10_000), st.integers(1, 1_000))
few = st.integers(1, 16)


@st.composite
def cases(draw):
    """Any case: the layout divides the devices, and the batch the replicas."""
    tp, pp, cp = draw(st.tuples(few, few, few))
    layout = Layout(tp=tp, pp=pp, cp=cp, ep=draw(st.sampled_from([1, tp, tp * cp])))
    outside = draw(topologies)
    topology = Topology(outside.nodes, outside.devices_per_node * layout.devices)
    is_global = draw(st.booleans())
    return Case(
        framework=draw(names),
        model=draw(names),
        precision=draw(st.from_regex(PRECISION_PATTERN, fullmatch=True)),
        work=Work(
            batch=draw(few) * (outside.world_size if is_global else 1),
            is_global=is_global,
            sequence_length=draw(st.none() | few),
            layout=layout,
        ),
        options=tuple(sorted(draw(st.sets(names.filter(lambda name: not is_reserved(name)))))),
        topology=topology,
        reference_topology=None,
    )


@given(cases())
def test_an_id_reads_back_as_its_case(case):
    assert Case.from_id(case.id) == case


@given(cases(), cases())
def test_different_cases_have_different_ids(one, other):
    assert (one.id == other.id) == (one == other)


@given(cases())
def test_hyphens_stand_only_between_the_axes(case):
    said = (case.options, case.sequence_length, str(case.layout))
    assert case.id.count("-") == 4 + sum(map(bool, said))


@given(st.text(max_size=60))
def test_no_text_but_an_id_is_read_as_a_case(text):
    try:
        case = Case.from_id(text)
    except ValueError:
        return
    assert case.id == text


@given(topologies)
def test_a_topology_reads_back(topology):
    assert Topology.parse(str(topology)) == topology


@pytest.mark.parametrize(
    "text", ["", "4n8", "n8g", "0n8g", "4n0g", "04n8g", "4N8G", " 4n8g", "4n8g\n", "-1n1g"]
)
def test_other_text_is_no_topology(text):
    with pytest.raises(ValueError, match="4n8g"):
        Topology.parse(text)


def test_a_case_says_what_it_is():
    case = Case.from_id("pytorch-resnet50-fp32-b128-dali+workers8-2n4g")

    assert case.system == "pytorch-resnet50"
    assert case.options == ("dali", "workers8")
    assert case.variant == "fp32-b128-dali+workers8"
    assert case.global_batch == 1024
    assert str(case.reference) == "pytorch-resnet50-fp32-b128-dali+workers8-1n1g"
    assert case.is_scaled
    assert case.ideal_speedup == 8


@pytest.mark.parametrize(
    ("case_id", "counts", "tokens", "scaling"),
    [
        ("a-b-bf16-b128-4n8g", (32, 128, 4096), None, Scaling.WEAK),
        ("a-b-bf16-b2-s128-tp2-1n2g", (1, 2, 2), 256, Scaling.WEAK),
        ("a-b-bf16-gb128-s4096-tp2_pp4-4n8g", (4, 32, 128), 524_288, Scaling.STRONG),
        ("a-b-bf16-gb256-s8192-tp8-xla-64n8g", (64, 4, 256), 2_097_152, Scaling.STRONG),
        ("a-b-bf16-gb512-64n8g", (512, 1, 512), None, Scaling.STRONG),
        ("a-b-bf16-b1-s4096-tp2_cp2_ep4-2n8g", (4, 1, 4), 16_384, Scaling.WEAK),
        ("a-b-bf16-b3-s10-ep8-1n8g", (8, 3, 24), 240, Scaling.WEAK),
    ],
)
def test_work_is_counted_in_replicas_and_not_in_devices(case_id, counts, tokens, scaling):
    case = Case.from_id(case_id)

    assert case.id == case_id
    assert (case.replicas, case.batch_per_replica, case.global_batch) == counts
    assert case.scaling is scaling
    assert case.work_of_step("images/s") == case.global_batch
    if tokens is None:
        with pytest.raises(ValueError, match=f"{case_id} has no sequence_length"):
            case.work_of_step("tokens/s")
    else:
        assert case.work_of_step("tokens/s") == tokens


@pytest.mark.parametrize(
    ("case_id", "message"),
    [
        ("a-b-bf16-b1-tp7-4n8g", "layout tp7 takes 7 devices for a replica, which .* the 32 there"),
        ("a-b-bf16-b1-pp4_ep4-1n8g", "over 4 devices, which does not divide the 2 of a pipeline"),
        ("a-b-bf16-b1-ep5-4n8g", "spreads experts over 5 devices, which does not divide the 32"),
        ("a-b-bf16-gb256-64n8g", "global batch 256 does not divide by the 512 data-parallel repl"),
        ("a-b-bf16-gb6-tp2-1n8g", "global batch 6 does not divide by the 4 data-parallel replicas"),
        ("a-b-bf16-b1-pp4_tp2-4n8g", "'pp4_tp2' is not a layout; .* as in 'tp2_pp4'"),
        ("a-b-bf16-b1-tp1-4n8g", "'tp1' is not a layout"),
        ("a-b-bf16-b1-tp2_tp2-4n8g", "'tp2_tp2' is not a layout"),
        ("a-b-bf16-b1-s8-s9-4n8g", "option 's9' would be read as a batch, a sequence length or a"),
        ("a-b-bf16-b1-gb2-4n8g", "option 'gb2' would be read as"),
        ("a-b-bf16-b1-tp2-s4-4n8g", "option 's4' would be read as"),
        ("a-b-bf16-b1-dali+tp2_pp4-4n8g", "option 'tp2_pp4' would be read as"),
        ("a-b-bf16-s4096+b1-4n8g", "not a case id; the form is"),
    ],
)
def test_work_that_nobody_can_share_evenly_or_read_is_no_case(case_id, message):
    with pytest.raises(ValueError, match=message):
        Case.from_id(case_id)


def test_options_that_only_begin_like_a_layout_are_options():
    case = Case.from_id("a-b-fp32-b1-s8-tp2_pp4-s8_x+tp2_x-1n8g")
    assert case.options == ("s8_x", "tp2_x")
    assert (case.sequence_length, str(case.layout)) == (8, "tp2_pp4")


def test_a_case_names_what_its_speedups_are_taken_over():
    case = Case.from_id("a-b-bf16-gb128-s4096-tp2_pp4-4n8g")
    assert case.reference is None, "1n1g has not enough devices"
    assert not case.is_scaled
    assert case.ideal_speedup is None

    scaled = replace(case, reference_topology=Topology(1, 8))
    assert scaled == case, "what it is held against is no part of what it is"
    assert str(scaled.reference) == "a-b-bf16-gb128-s4096-tp2_pp4-1n8g"
    assert scaled.ideal_speedup == 4
    assert not scaled.reference.is_scaled
    with pytest.raises(ValueError, match=r"cannot be taken over 1n4g: .*; name another reference"):
        replace(case, reference_topology=Topology(1, 4))


@given(cases(), cases())
def test_works_sort_by_their_numbers(one, other):
    assert (one.training_work < other.training_work) + (
        other.training_work < one.training_work
    ) == (one.work != other.work)
    if one.training_work.batch < other.training_work.batch:
        assert one.training_work < other.training_work


def test_the_axes_are_the_values_that_markers_and_reports_carry():
    case = Case.from_id("a-b-bf16-gb128-s4096-tp2_pp4-xla-4n8g")
    assert case.axes() == {
        "system": "a-b",
        "framework": "a",
        "model": "b",
        "precision": "bf16",
        "batch_per_replica": 32,
        "global_batch": 128,
        "sequence_length": 4096,
        "parallel": "tp2_pp4",
        "options": "xla",
        "topology": "4n8g",
        "nodes": 4,
        "devices_per_node": 8,
    }
    assert [case.marker()[way] for way in ("tp", "pp", "cp", "ep")] == [2, 4, 1, 1]
    assert "tp" not in Case.from_id("nccl-tests-all_reduce-1n8g").marker()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"framework": "Paddle"}, "framework 'Paddle' is not valid"),
        ({"model": "resnet-50"}, "model 'resnet-50' is not valid"),
        ({"precision": "fp_32"}, "precision 'fp_32' is not valid"),
        ({"work": "b0"}, "'b0' is not the work of a step"),
        ({"work": "b1-s4-"}, "'b1-s4-' is not the work of a step"),
        ({"options": ("xla", "dali")}, "options are sorted"),
        ({"options": ("xla", "xla")}, "options are sorted"),
        ({"options": ("a b",)}, "option 'a b' is not valid"),
    ],
)
def test_a_case_that_has_no_id_cannot_be_made(change, message):
    fields = {
        "framework": "paddle",
        "model": "resnet50",
        "precision": "fp32",
        "work": "b128",
        "topology": Topology(1, 1),
        **change,
    }
    with pytest.raises(ValueError, match=message):
        Case(**{**fields, "work": Work.parse(str(fields["work"]))})


@pytest.mark.parametrize("change", [{"batch": 0}, {"batch": 1, "sequence_length": 0}])
def test_a_step_does_something(change):
    with pytest.raises(ValueError, match="batch and sequence length are at least 1, not 0"):
        Work(**change)
