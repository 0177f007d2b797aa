"""Text tables and wrapped lines."""

from pytest_dlperf.model.numbers import named
from pytest_dlperf.report.printing import aligned, columns, padded, stacked, wrapped

ROWS = [("case", "median", "verdict"), ("one", "399.98", "pass"), ("another", "7", "regressed")]


def test_columns_stand_to_their_side():
    assert aligned(ROWS, "lrl") == [
        "case     median  verdict",
        "one      399.98  pass",
        "another       7  regressed",
    ]


def test_the_last_side_holds_for_what_follows():
    assert aligned([("a", "bb", "ccc"), ("aa", "b", "c")], "lr") == ["a   bb  ccc", "aa   b    c"]


def test_a_narrow_terminal_has_two_lines_a_row():
    assert stacked(ROWS, "lrl", names=1, width=26) == [(line,) for line in aligned(ROWS, "lrl")]
    assert stacked(ROWS, "lrl", names=1, width=25)[1:] == [
        ("one", "  399.98  pass"),
        ("another", "       7  regressed"),
    ]


def test_wide_characters_take_two_columns():
    lines = aligned([("训练", "1"), ("step", "22")], "lr")
    assert columns(lines[0]) == columns(lines[1])


def test_cells_are_filled_within_bounds():
    assert padded([("a", "long")], "l", min_width=3, max_width=3) == [["a  ", "long"]]


def test_a_sentence_keeps_options_and_percentages_whole():
    assert wrapped("a loss of 5 % with --dlperf-strict", 12, indent=2) == [
        "a loss of",
        "  5 % with",
        "  --dlperf-strict",
    ]


def test_no_line_is_a_command_to_what_runs_the_session():
    assert not any(line.startswith("::") for line in wrapped("what ends in ::error::it", 14))


def test_of_many_things_the_first_are_named():
    assert named(["a", "b", "c"], 2) == "a, b and 1 more"
    assert named(["a", "b"], 2) == "a, b"
