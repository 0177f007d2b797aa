"""Expressions that users declare: what is refused, and how long any other may take."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dlperf.formats.expressions import Expression, compiled, texts_of


@pytest.mark.parametrize(
    "expression",
    [
        r"^(?:\w+\s*)+: iteration (?P<step>[0-9]+) #",
        r"(a+)+b",
        r"(?:(?P<step>[0-9]*)?,)*;",
        r"((?:x|y+?){2}z){3,}",
        r"x(?:\(*|[)])+?",
        r"(x)?(?:(?(1)a+|b)(c))*d",
    ],
)
def test_a_repetition_of_repetitions_is_refused(expression):
    with pytest.raises(ValueError, match="repeats a repetition") as refused:
        compiled(expression)
    assert repr(expression) in str(refused.value)


@pytest.mark.parametrize(
    "expression",
    [
        r"(?:\S+ +){12}(?P<step>[0-9]+)",
        r"(?:[0-9]+,)?[0-9]+ s",
        r"(?:a|b)+c",
        r"step [(+]+ (?P<step>[0-9]+)(?:/[0-9]{1,9})* ",
        r"(?:[0-9:]+ ){0,3}took",
        r"(?<![0-9])(?P<step>[0-9]+)(?= of)",
        r"([a-z])x\1",
    ],
)
def test_other_repetitions_are_taken(expression):
    assert compiled(expression).search(b"nothing of it") is None


@pytest.mark.parametrize("expression", [r"(a", r"[b-a]", r"a{4294967296}", r"x(?i)y", "[[a]b"])
def test_what_it_cannot_hold_is_refused_when_it_is_declared(expression):
    with pytest.raises(ValueError, match=re.escape(repr(expression))):
        compiled(expression)


@pytest.mark.parametrize("expression", [r"\b", r"(?P<step>\d*)\b", r"^", r"x?$", r"\B\s*?"])
def test_what_matches_nothing_at_all_is_refused(expression):
    with pytest.raises(ValueError, match="matches the empty text"):
        compiled(expression)


@pytest.mark.parametrize(
    "expression",
    [
        r"[(?=]x\\(?:1)",
        r"a\(\?=b",
        r"[]*+]x",
        r"loss\Sx",
        r"[\w.-]+@",
        r"(?i)Step",
        r"(?s:x.)y",
        r"█+x",
        r"a{2,3}?b",
    ],
)
def test_what_only_looks_like_it_is_taken(expression):
    assert compiled(expression).search(b"nothing of it") is None


@pytest.mark.parametrize(
    ("expression", "literal"),
    [
        (r" max allocated: (?P<value>[0-9.]+) ", " max allocated: "),
        (r"loss=(?P<value>[0-9.]+)", "loss="),
        (r"(?P<value>[0-9.]+) img/s", " img/s"),
        (r"a\.b\[c\]+ (?P<value>.)", "a.b[c"),
        (r"aa?bbb?cc*dd{0,2}e: (?P<value>.)", "e: "),
        (r"[]a]xyz[^]b]z(?P<value>.)", "xyz"),
        (r"memory(?:[)]|\)) (?P<value>.)", "memory"),
        (r"memory: (?P<value>.)|loss: ", ""),
        (r"\x1b1;3a\0a\101a (?P<value>.)", "1;3a"),
        (r"(?i:loss) (?P<value>.)", ""),
        (r"(l)?(?(1)oss) (?P<value>.)", ""),
        (r"(?<=loss)=(?!nan)(?P<value>.)", "="),
        (r"\d+\t(?P<value>.)", ""),
    ],
)
def test_the_text_that_every_match_has_is_found(expression, literal):
    assert Expression(expression).literal.decode() == literal


@given(st.from_regex(r"(ab|a\.|\[x\]|y[ab]|[^]a]|\\|b?|c{2}|(d)e|f+| : ){1,6}", fullmatch=True))
def test_no_match_lacks_that_text(expression):
    try:
        pattern = re.compile(expression)
    except re.error:
        return
    for text in ("ab: [x]ya", expression, "cc : deff", "cdeab.[x]yay"):
        for match in pattern.finditer(text):
            assert all(text.decode() in match[0] for text in texts_of(expression))
