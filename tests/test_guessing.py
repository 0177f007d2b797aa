"""Guesses at lines of unknown trainers: which number is the step, which the time, what is asked."""

import re
from itertools import accumulate, islice
from pathlib import Path

import pytest
import yaml

from pytest_dlperf.survey.guess import guesses
from pytest_dlperf.survey.line_clusters import LineClusters, named_numbers, unit_of

TABLE = yaml.safe_load((Path(__file__).parent / "data" / "guesses.yaml").read_text("utf-8"))
NUMBERS = range(10, 40)


def guessed(*lines):
    """What is guessed of a log in which these lines stand between others."""
    text = "".join(f"{line}\nNCCL INFO Channel 00 : 0 1\n" for line in lines)
    found = guesses(LineClusters(text.encode()).repeated)
    return [each for each in found if "record" in each.format]


def groups(guess):
    return set(re.findall(r"\?P<(\w+)>", guess.format["record"]))


@pytest.mark.parametrize("row", TABLE, ids=[row["line"][:40] for row in TABLE])
def test_a_guess_finds_steps_and_their_time_and_asks_whether_it_did(row):
    lines = [
        row["line"].format(
            n=n, t=0.2 + n % 3 / 10, m=200 + n % 3, x=3 - n % 4, k=7000 + 17 * (n % 5), e=n * 250
        )
        for n in NUMBERS
    ]
    found = guessed(*lines)
    numbered = [each for each in found if each.format.get("step") != "count"]
    if row["groups"] == "none":
        assert not numbered
        assert all("log.format.record" in each.doubts for each in found)
        return
    guess = found[0]
    assert groups(guess) == {"step", *row["groups"]}
    said = guess.format
    assert {key: one for key, one in said.items() if key != "record"} == row.get("format", {})
    matches = [re.search(said["record"], line) for line in lines]
    assert [match and match["step"] for match in matches] == list(map(str, NUMBERS))
    assert "the number of a step?" in guess.doubts["log.format.record"]


def test_the_step_is_not_that_of_micro_batches_and_the_time_not_a_mean_of_all():
    guess, *_ = guessed(
        *(
            f"micro_step={4 * n}/global_step={n}, AvgSecondsPerStep=0.5{n}, step time 0.3{n} s"
            for n in range(1, 20)
        )
    )
    assert "global_step=(?P<step>" in guess.format["record"]
    assert "step time (?P<seconds>" in guess.format["record"]
    assert guess.others == ("AvgSecondsPerStep",)


@pytest.mark.parametrize(
    ("lines", "group"),
    [
        (
            [
                f"Epoch {epoch} batch {n}/20: {0.5 + n / 1000:.3f} sec"
                for epoch in range(3)
                for n in range(20)
                for _ in range(4)
            ],
            "epoch",
        ),
        ([f"[rank{r}] step {n} took 0.{n}s" for n in range(10, 40) for r in range(4)], "rank"),
        # Of an excerpt that ends within the second step: it does not take 23 lines for 23 steps.
        ([f"{step}\timages/sec: 47.{n} +/- 0.1" for step in (1, 10) for n in range(10, 26)], None),
    ],
)
def test_a_step_that_stands_there_several_times_is_asked_about(lines, group):
    guess, *_ = guessed(*lines)
    assert guess.format["ranks"] == "local"
    assert "log.format.ranks" in guess.doubts
    assert groups(guess) >= {"step", *filter(None, [group])}


def test_a_time_of_some_steps_is_asked_about():
    lines = (f"INFO: loss = 2.{n}, step = {n}5 (1.8{n % 3}5 sec)" for n in range(1, 40))
    guess, *_ = guessed(*lines)
    doubt = guess.doubts["log.format.record"]
    assert "of the 10 since the line before (covers: total_since_last)?" in doubt


@pytest.mark.parametrize(
    ("unit", "is_asked"), [("tokens/s/gpu", True), ("tokens/s", True), ("iterations/s", False)]
)
def test_a_speed_of_work_is_asked_whose_it_is(unit, is_asked):
    guess, *_ = guessed(*(f"step {n} {unit}: {4096 + n} loss {9 - n / 99:.3f}" for n in NUMBERS))
    doubt = guess.doubts["log.format.record"]
    assert ("of all devices, of a node" in doubt) is is_asked


def test_records_without_a_step_are_counted():
    guess, *_ = guessed(
        *(f"loss {3 - n / 9:.2f} runtime: {n / 4:.3f} tokens_per_second 5{n}" for n in range(20))
    )
    assert guess.format["step"] == "count"
    assert groups(guess) == {"elapsed_seconds"}


def test_an_epoch_that_has_ended_is_no_step():
    assert not guessed(*(f"300/300 - 1s - loss: 2.{n} - accuracy: 0.1" for n in range(40)))


def test_validation_and_progress_bars_are_no_steps():
    guess, *_ = guessed(
        *(
            text
            for n in range(1, 30)
            for text in (
                f"Test: [{n}/30] time 0.1{n}",
                f" {n}%|##  | {n}/30 [00:01<00:02,  5.{n}it/s]",
                f"train step {n} time 0.2{n} s",
            )
        )
    )
    assert "train step" in guess.format["record"]


def test_stamps_that_are_fine_come_before_printed_times():
    passed = islice(accumulate((0.5 + n % 5 / 20 for n in range(60)), initial=36_000.0), 1, None)
    clocks = [f"[{at // 3600:02.0f}:{at // 60 % 60:02.0f}:{at % 60:06.3f}]" for at in passed]
    lines = [f"{clock} step {n} time: 0.2{n % 7}" for n, clock in enumerate(clocks)]
    assert [groups(each) - {"step"} for each in guessed(*lines)] == [{"timestamp"}, {"seconds"}]


def test_numbers_have_names_and_units():
    clusters = LineClusters(
        b"step 1 | lm loss: 2.5E+00 | mem 9.4GiB(64%) | acc1 7.5 | 12.5 img/s | "
        b"number of nan iterations: 0 | loss: nan\n" * 3
    )
    [kind] = clusters.repeated
    assert [(name, unit_of(one)) for name, one in named_numbers(kind.columns()).items()] == [
        ("step", ""),
        ("lm loss", ""),
        ("mem", "GiB"),
        ("acc1", ""),
        ("img/s", "img/s"),
        ("number of nan iterations", ""),
        ("loss", ""),
    ]


def test_a_byte_that_stands_for_numbers_is_not_one():
    clusters = LineClusters(b"step N 5 loss 0.1\n" * 20 + b"step N \x01 loss 0.1\n" * 20)
    assert all(kind.columns() is not None for kind in clusters.repeated)
