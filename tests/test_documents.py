"""Numbers by key in whole documents: what is read, what is passed over, and what is told."""

import pytest

from pytest_dlperf.formats.keyed import CsvKeys, JsonKeys

BOM = "\ufeff"


def read(tree, text):
    """The values that are found, and the problems."""
    found = list(tree.find(text.encode()))
    values = [one.match["value"] or b"" for one in found if one.problem is None]
    return [value.decode() for value in values], [one.problem for one in found if one.problem]


BW = JsonKeys(keys={"value": "bw"})
SUM = JsonKeys(keys={"value": "bw"}, where={"op": "sum"})


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ('{"bw": 1}\n{"bw": 2}\n', ["1", "2"]),
        (f'{BOM}{{"bw": 1}}', ["1"]),
        (f'a line\n{BOM}{{\n "bw": 1\n}}\n', ["1"]),
        ("[INFO] begins\n{\"bw\": 1}\n[3/10] ends\n{not json\n{'bw': 3}\n[\n{\n", ["1"]),
        ('{"config": {"n": 3, ...}\n{"bw": 1}\n{"event": start, "n": 2}\n', ["1"]),
        # What came later is whole.
        ('{"bw": 1\n{"bw": 2}\n', ["2"]),
    ],
)
def test_lines_that_are_no_documents_are_passed_over(text, values):
    assert read(BW, text) == (values, [])


@pytest.mark.parametrize(
    "cut",
    [
        '{"bw"',
        '{"bw": 2',
        '{"bw": 2, "na',
        '{"bw": 2, "name": "x\n',
        '{"a": [{"b": 1},\n',
        '[{"a": 1}, {',
    ],
)
def test_a_last_document_that_is_cut_off_is_told(cut):
    values, [problem] = read(BW, f'{{"bw": 1}}\n{cut}')
    assert values == ["1"]
    assert "cut off" in problem


def test_a_document_that_is_looked_for_has_to_have_the_key():
    text = '{"op": "sum", "bw": 1}\n{"op": "max"}\n{"op": "sum", "gb": 2}\n'
    values, [problem] = read(SUM, text)
    assert values == ["1"]
    assert "has no 'bw', but op, gb" in problem


TABLE = CsvKeys(keys={"value": "bw", "size": "size"})


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("size,op,bw\n8,sum,1.5\nat last, done\n", ["1.5"]),
        ("size,op,bw\n8,sum,1.5\nand, now, for, all\n", ["1.5"]),
        (f"begins\n{BOM}size,op,bw\n8,sum,1.5", ["1.5"]),
    ],
)
def test_lines_that_are_no_rows_are_passed_over(text, values):
    assert read(TABLE, text) == (values, [])


def test_a_row_that_is_cut_off_is_told():
    values, [problem] = read(TABLE, "size,op,bw\n8,sum,1.5\n16,su")
    assert values == ["1.5"]
    assert problem == "a row has 2 cells, the line above it 3"
