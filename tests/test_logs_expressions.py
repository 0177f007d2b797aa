"""Expressions that users declare: matched in linear time, and as Python's syntax says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from clusters.processes import LONG_S
from growth import processor_time_limit
from hypothesis import given
from hypothesis import strategies as st

from pytest_dlperf.formats.expressions import (
    TOKENS,
    Expression,
    compiled,
    is_one_pass,
    may_be,
    texts_of,
)

# With an engine that backtracks, each of these takes minutes at least, most of them for ever.
HANGING = {
    "nested repetitions": (r"^(?:\w+\s*)+: iteration (?P<step>[0-9]+) #", "word " * 9000),
    "one step after the other": (
        r".*step (?P<step>[0-9]+) .*took .*took [0-9.]+ #",
        "step 1 " * 1200 + "\n" + "step 2 " * 1200,
    ),
    "any text but a character": (r"[^;]*step (?P<step>[0-9]+) #", "x step 1\n" * 5000),
    "a match at each byte": (r"x(?:.*y)?(?P<step>[0-9])?", "x" * 1_000_000),
}
READS = """
import sys
from log_makers import case
from pytest_dlperf.formats.declared import Over, declared_metric
from pytest_dlperf.formats.log_format import custom_format
from pytest_dlperf.logs.throughput import LogReading
from pytest_dlperf.model.measurement import Estimator, Window
from pytest_dlperf.model.metric import Better, Metric, Source, Statistic

path, expression, what = sys.argv[1:]
memory = Metric(name="m", unit="", better=Better.LOWER, source=Source.LOG, statistic=Statistic.MAX)
declared = []
facts = {}
record = "it (?P<step>[0-9]+) (?P<seconds>[0-9.]+) s"
if what == "record":
    record = expression
elif what == "metric":
    value = expression.replace("?P<step>", "?P<value>")
    declared = [declared_metric(memory, record=value, over=Over.RUN)]
else:
    facts = {"tp": expression.replace("?P<step>", "")}
run = LogReading(
    path,
    number=1,
    case=case(),
    log_format=custom_format("x", record=record, facts=facts),
    window=Window(warmup_steps=2, measured_steps=6),
    estimator=Estimator.STEADY,
    declared=declared,
).finish()
print(run.status.value, run.reason, run.missing)
"""


@pytest.mark.parametrize("what", ["record", "metric", "fact"])
@pytest.mark.parametrize(("expression", "noise"), HANGING.values(), ids=HANGING)
def test_no_expression_hangs(tmp_path: Path, expression: str, noise: str, what: str) -> None:
    log = tmp_path / "run.log"
    steps = "".join(f"it {k} 0.5 s\n" for k in range(1, 20))
    log.write_text(f"{noise}\n{steps}{noise}\n", encoding="ascii")
    done = subprocess.run(
        [sys.executable, "-c", READS, log, expression, what],
        cwd="tests",
        capture_output=True,
        text=True,
        timeout=LONG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    if what == "record":
        assert done.stdout.startswith("invalid")


@pytest.mark.parametrize(
    ("expression", "token", "remedy"),
    [
        (r"step (?=x)x", "(?=", "the text itself"),
        (r"(?<![0-9])step", "(?<!", "the text itself"),
        (r"([a-z])x\1", r"\1", "a second time"),
        ("(a)" * 10 + r"\10", r"\10", "a second time"),
        (r"(?P<a>x)(?P=a)", "(?P=", "a second time"),
        (r"(x)?(?(1)a|b)c", "(?(", "alternatives"),
        (r"(?>x+)y", "(?>", "(?:…)"),
        (r"x*+y", "*+", "without the last +"),
        (r"x{1,3}+y", "{1,3}+", "without the last +"),
        (r"(?#why)step", "(?#", "into the file"),
        (r"(?x) step", "(?x", "without it"),
        (r"step$\Z", r"\Z", "$, the end"),
        (r"\Astep", r"\A", "^, the begin"),
        (r"x{,3}y", "{,3}", "{0,…}"),
    ],
)
def test_what_the_engine_lacks_is_refused(expression: str, token: str, remedy: str) -> None:
    with pytest.raises(ValueError, match=re.escape(token)) as refused:
        compiled(expression)
    assert repr(expression) in str(refused.value)
    assert remedy in str(refused.value)


@pytest.mark.parametrize(
    "expression", [r"a{1001}", r"(?:a{500}){500}", r"[\b]x", r"(?:a{90}){90}b"]
)
def test_what_it_cannot_hold_is_refused_when_it_is_declared(expression: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(expression))):
        compiled(expression)


@pytest.mark.parametrize("expression", [r"\b", r"(?P<step>\d*)\b", r"^", r"x?$", r"\B\s*?"])
def test_what_matches_nothing_at_all_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match="matches the empty text"):
        compiled(expression)


def test_no_expression_is_checked_for_ever() -> None:
    slow = r"(?P<step>(?:\s*|[a-z]?|[0-9]*){40};)"
    with processor_time_limit():
        assert may_be(slow, "step", b"1;")
        assert not may_be(slow, "step", b"1,")
        assert compiled(slow).search(b"1;") is not None


def test_letters_whose_case_is_not_known_are_refused() -> None:
    with pytest.raises(ValueError, match="write both letters"):
        compiled("(?i)durée")


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
def test_what_only_looks_like_it_is_taken(expression: str) -> None:
    assert compiled(expression).search(b"nothing of it") is None


def test_nothing_is_found_across_lines() -> None:
    expression = compiled(r"a[^;]*\s(?:.|\n)*b$")
    assert [match.span() for match in expression.finditer(b"a\nb\na\tb\nax b")] == [(4, 7), (8, 12)]


@pytest.mark.parametrize(
    ("expression", "is_one"),
    [
        (r"loss: (?P<value>[-+.0-9EeNnaif,]+) ", True),
        (r"train.loss : (?P<value>[-+.0-9A-Za-z]+)", True),
        (r"DLL (?P<a>[-0-9]+ [:.0-9]+) - Iteration: (?P<step>\d+) ", True),
        (r"loss[:=] ?(?:\t)?x", False),
        (r"loss[:=] ?(?P<value>[0-9.]+)", True),
        (r"loss .*", True),
        (r"step (?P<step>[0-9]+)/.*took", False),  # any character may be a slash or a t
        (r"step(?P<step>[0-9]+)[0-9]x", False),
        (r"st[^;]*;", False),  # each s begins another attempt
        (r"sb*b", False),
        (r"sb?bc", False),
        (r"s\s+b", False),  # over lines' ends
        (r"(s)+b", False),
        (r"s(?:b|c)", False),
        (r"^s", False),
        (r"[st]tep", False),
        (r"s+t", False),
        (r"sé+b", False),
    ],
)
def test_what_cannot_backtrack_is_known(expression: str, is_one: bool) -> None:
    assert is_one_pass(TOKENS.findall(expression)) is is_one


@given(
    st.from_regex(r"a(b|\[ab\]|\[^a\]|\.| |\\d|\(|\)|\*|\+|\?){1,7}", fullmatch=True),
    st.sampled_from(["a", "ab", "b ", "1a", "aab"]),
)
def test_it_takes_python_no_longer_than_the_text_is(expression: str, text: str) -> None:
    """Were it square, it would take a minute."""
    try:
        compiled(expression)
    except ValueError:
        return
    if is_one_pass(TOKENS.findall(expression)):
        for _ in re.finditer(expression, text * 20_000):
            pass


TEXTS = (
    b"step 1, took 0.5 s",
    b"ab: [x]ya  cc\tdeff",
    b"cdeab.[x]yay \xff\xe2\x96\x88 1234",
    b"Step -1.5e+10 nan;;",
)


@given(
    st.from_regex(
        r"(a|b|\.|\\d|\\w|\\s|\\b|\[^a\]|\[0-9.\]|\^|\$|\||\(|\(\?:|\(\?P<g>|\)"
        r"|\*|\+|\?|\*\?|\{2\}| |e){1,9}",
        fullmatch=True,
    ),
    st.sampled_from(TEXTS),
)
def test_the_same_is_found_as_by_python(expression: str, text: bytes) -> None:
    try:
        ours = compiled(expression)
    except ValueError:
        return
    theirs = re.compile(expression.encode(), re.MULTILINE)
    assert ours.groups == theirs.groups
    found = [match.span() for match in ours.finditer(text)]
    assert found == [match.span() for match in theirs.finditer(text)]


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
        (r"\d+\t(?P<value>.)", ""),
    ],
)
def test_the_text_that_every_match_has_is_found(expression: str, literal: str) -> None:
    assert Expression(expression, {}, 0).literal.decode() == literal


@given(st.from_regex(r"(ab|a\.|\[x\]|y[ab]|[^]a]|\\|b?|c{2}|(d)e|f+| : ){1,6}", fullmatch=True))
def test_no_match_lacks_that_text(expression: str) -> None:
    try:
        pattern = re.compile(expression)
    except re.error:
        return
    for text in ("ab: [x]ya", expression, "cc : deff", "cdeab.[x]yay"):
        for match in pattern.finditer(text):
            assert all(text.decode() in match[0] for text in texts_of(expression))
