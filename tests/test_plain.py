"""Values become builtins and values again; what is of another form is named by its place."""

from __future__ import annotations

import json
from collections.abc import Mapping  # noqa: TC003 - plain reads the types of fields
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import pytest

from pytest_dlperf.model.case import SINGLE_DEVICE, Case, Topology
from pytest_dlperf.model.plain import FormError, from_plain, to_plain


class Colour(str, Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Painted:
    colour: Colour


@dataclass(frozen=True)
class Leaf:
    number: float | None


@dataclass(frozen=True, kw_only=True)
class Tree:
    name: str
    count: int = 0
    is_whole: bool = True
    case: Case | None = None
    topology: Topology = SINGLE_DEVICE
    leaf: Leaf | None = None
    leaves: tuple[Leaf, ...] = ()
    range: tuple[float, float] | None = None
    colours: Mapping[Colour, Leaf] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    branches: tuple[Tree, ...] = ()
    anything: Any = None
    length: int = field(init=False, default=7)


CASE = "paddle-resnet50-fp32-b128-4n8g"
TREE = Tree(
    name="oak\ud800",
    count=3,
    is_whole=False,
    case=replace(Case.from_id(CASE), reference_topology=Topology(2, 8)),
    topology=Topology(4, 8),
    leaf=Leaf(1),
    leaves=(Leaf(0.5), Leaf(None)),
    range=(-1.0, 2),
    colours={Colour.RED: Leaf(2.0)},
    texts={"a": "b"},
    branches=(Tree(name="twig"),),
    anything=[{"x": None}],
)


def test_a_value_survives_json() -> None:
    assert from_plain(Tree, json.loads(json.dumps(to_plain(TREE)))) == TREE


def test_the_form_is_that_of_the_types() -> None:
    plain = to_plain(TREE)
    del plain["branches"]
    assert plain == {
        "name": "oak\ud800",
        "count": 3,
        "is_whole": False,
        "case": {
            "framework": "paddle",
            "model": "resnet50",
            "precision": "fp32",
            "work": "b128",
            "options": [],
            "topology": "4n8g",
            "reference_topology": "2n8g",
            "flops_per_sample": None,
        },
        "topology": "4n8g",
        "leaf": {"number": 1},
        "leaves": [{"number": 0.5}, {"number": None}],
        "range": [-1.0, 2],
        "colours": {"red": {"number": 2.0}},
        "texts": {"a": "b"},
        "anything": [{"x": None}],
    }
    assert to_plain(None) is None


def test_what_is_missing_has_its_default_and_what_is_unknown_is_left_out() -> None:
    plain = {"name": "oak", "age": 7, "colours": {"green": 1, "blue": {"number": 3, "x": 1}}}
    assert from_plain(Tree, plain) == Tree(name="oak", colours={Colour.BLUE: Leaf(3)})


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ([], "found a list of 0; allowed: object"),
        ({}, "the key 'name' is missing"),
        ({"name": 7}, "$.name: found 7; allowed: string"),
        ({"name": "", "count": True}, "$.count: found true; allowed: integer"),
        ({"name": "", "count": None}, "$.count: found null; allowed: integer"),
        ({"name": "", "is_whole": 0}, "$.is_whole: found 0; allowed: boolean"),
        ({"name": "", "case": CASE}, f'$.case: found "{CASE}"; allowed: object'),
        ({"name": "", "topology": "x" * 99}, f'$.topology: found "{"x" * 59}...; write nodes '),
        ({"name": "", "topology": 4}, "$.topology: found 4; allowed: string"),
        ({"name": "", "leaf": "x"}, '$.leaf: found "x"; allowed: object'),
        ({"name": "", "leaves": [{"number": 1}, {}]}, "$.leaves[1]: the key 'number' is missing"),
        ({"name": "", "leaves": {}}, "$.leaves: found an object; allowed: array"),
        ({"name": "", "leaves": [{"number": "1"}]},
         '$.leaves[0].number: found "1"; allowed: number or null'),
        ({"name": "", "range": [1]}, "$.range: found a list of 1; allowed: array of 2"),
        ({"name": "", "colours": {"red": None}}, "$.colours.red: found null; allowed: object"),
        ({"name": "", "texts": {"a\nb": 1}}, '$.texts["a\\nb"]: found 1; allowed: string'),
        ({"name": "", "branches": [{"name": "", "branches": [{}]}]},
         "$.branches[0].branches[0]: the key 'name' is missing"),
    ],
)  # fmt: skip
def test_the_place_of_another_form_is_named(plain: Any, message: str) -> None:
    with pytest.raises(FormError) as caught:
        from_plain(Tree, plain)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("found", ["green", 1, None, []])
def test_an_unknown_member_is_named_with_those_that_are_known(found: object) -> None:
    with pytest.raises(FormError, match=r"^\$\.colour: found .*: red, blue$"):
        from_plain(Painted, {"colour": found})


def test_a_type_without_a_form_is_no_value() -> None:
    with pytest.raises(TypeError, match="has no plain form"):
        to_plain(object())
