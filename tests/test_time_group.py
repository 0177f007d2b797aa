"""A number of another unit, or of less, than the group that takes it."""

import re

import pytest

from pytest_dlperf.formats.log_format import custom_format
from pytest_dlperf.logs.time_group import problems_of_group
from pytest_dlperf.model.case import Case

OF = Case.from_id("f-m-bf16-gb8-s512-1n4g")
STEP = "step (?P<step>[0-9]+) "


def problems(line, record, *, case=OF, **declared):
    log_format = custom_format("mine", record=record, **declared).of(case)
    return list(problems_of_group(log_format, line.encode()))


def of_text(text, group):
    """Make the record of a text in which ``{}`` is the number."""
    before, _, behind = text.partition("{}")
    return f"step 1 {before}12.5{behind}", STEP + f"{re.escape(before)}(?P<{group}>[0-9.]+)"


@pytest.mark.parametrize(
    ("text", "group", "unit", "write"),
    [
        ("time {}ms", "seconds", "ms", "milliseconds"),
        ("time {} ms,", "elapsed_seconds", "ms", "milliseconds"),
        ("elapsed time per iteration (ms): {} |", "seconds", "ms", "milliseconds"),
        ("time_ms={}", "timestamp", "ms", "milliseconds"),
        ("took {} sec", "milliseconds", "sec", "seconds"),
        ("train_step_timing in s: {} |", "milliseconds", "s", "seconds"),
        ("took {} us", "milliseconds", "us", "print seconds"),
        ("{}it/s", "samples_per_second", "it/s", "steps_per_second"),
        ("{}s/it", "steps_per_second", "s/it", "seconds_per_step"),
        ("tps: {} tflops", "samples_per_second", "tps", "tokens_per_second"),
        ("Tokens/s/device: {}, ", "samples_per_second", "Tokens/s", "tokens_per_second"),
        ("{} samples/s", "steps_per_second", "samples/s", "samples_per_second"),
        ("step_time_ms: {}", "seconds", "ms", "milliseconds"),
    ],
)
def test_another_unit_is_noticed(text, group, unit, write):
    said, *_ = problems(*of_text(text, group))
    assert repr(unit) in said
    assert write in said


@pytest.mark.parametrize(
    ("text", "scope", "write"),
    [
        ("Tokens/s/device: {}, ", "global", "device"),
        ("interval_tokens_per_second_per_device: {} ", "global", "device"),
        ("{} tokens/s/gpu", "global", "device"),
        ("throughput per GPU (tokens/s/GPU): {} |", "global", "device"),
        ("{} tok/s/node", "global", "node"),
        ("{} tok/s/device", "node", "device"),
    ],
)
def test_a_speed_of_a_part_is_not_taken_for_the_whole(text, scope, write):
    line, record = of_text(text, "tokens_per_second")
    case = Case.from_id("f-m-bf16-gb8-s512-2n2g")
    [said] = problems(line, record, case=case, rate_scope=scope)
    assert f"rate_scope: {write}" in said
    assert problems(line, record, case=case, rate_scope=write) == []
    alone = Case.from_id("f-m-bf16-gb8-s512-1n1g")
    assert problems(line, record, case=alone, rate_scope=scope) == []


@pytest.mark.parametrize(
    ("text", "group"),
    [
        ("loss: {}", "seconds"),
        ("elapsed: {} s", "seconds"),
        ("{} min: 3", "seconds"),
        ("steps {} msgs", "seconds"),
        ("{} s: 4", "milliseconds"),
        ("items/s {} s=3", "samples_per_second"),
        ("Time: {}/s", "seconds"),
        ("batch_cost: {} sec, ips: 12 images/sec", "seconds"),
        ("time {} (0.1 ms)", "seconds"),
        ("speed {} /s", "samples_per_second"),
        ("tokens: {} ", "seconds"),
        ("params {} ", "seconds"),
        ("tps: {} tflops/s/gpu: 3", "tokens_per_second"),
        ("tokens per device 3, tok/s {} tokens", "tokens_per_second"),
        ("tps: {} (2.5/gpu)", "tokens_per_second"),
    ],
)
def test_what_is_no_other_unit_is_none(text, group):
    assert problems(*of_text(text, group)) == []


@pytest.mark.parametrize(
    ("text", "group"),
    [("7,282", "[0-9.]+"), ("12.5", "[0-9]+"), ("1.5e+01", "[0-9.]+"), ("1.5K", "[0-9.]+")],
)
def test_a_part_of_a_number_is_not_taken(text, group):
    [said] = problems(f"step 1 tps: {text} mfu", STEP + f"tps: (?P<tokens_per_second>{group})")
    assert repr(text) in said


def test_a_list_is_no_number_with_thousands():
    """The expression itself takes the comma."""
    assert problems("1,0.25,123", "(?P<step>[0-9]+),(?P<seconds>[0-9.]+),") == []


def test_the_unit_of_a_key_is_noticed():
    keyed = custom_format("x", json={"step": "step", "seconds": "step_time_ms"})
    [said] = problems_of_group(keyed, b"{}")
    assert "milliseconds" in said


@pytest.mark.parametrize(
    ("line", "record", "reason"),
    [
        (" 1/ 9 | samples per second: 207.3 |", "second: {samples_per_second} ", None),
        (" 1/ 9 | samples per second: 207.3 |", "second: {seconds} ", "samples_per_second"),
        ("step 1: tokens per second: 5", "second: {tokens_per_second}$", None),
        ("step 1 took 5 tokens per second", " {seconds} ", "tokens_per_second"),
        (
            "step 1 Elements per Second: 131,388",
            ": {seconds}$",
            "it count? name the group samples_per_second, steps_per_second or tokens_per_second",
        ),
        ("step 1 Elements per Second: 131,388", ": {tokens_per_second}$", None),
        ("throughput/samples_per_sec: 12.5", "sec: {samples_per_second}$", None),
        ("throughput/samples_per_sec: 12.5", "sec: {seconds}$", "samples_per_second"),
        ("step 1 in 0.5 tokens per second 7,700", "in {seconds} ", None),
        ("step 1 time/s: 0.5", ": {seconds}$", None),
        ("step 1 took 12.65 s", "took [0-9]{seconds} s", "takes a part of '12.65'"),
        ("step 1 data_time: 0.01 s", ": {seconds} s", "takes 'data_time'"),
        ("step 1 data: 0.01", ": {seconds}$", "takes 'data'"),
        ("step 1 throughput: 12.5", ": {seconds}$", "name it samples_per_second"),
        ("step 1 step_time=0.5", "={samples_per_second}$", "takes 'step_time'; name it seconds"),
        ("step 1 of metadata: 0.01", ": {seconds}$", None),
        ("step 1 TFLOP/s: 12.65", ": {samples_per_second}$", "take a number of"),
    ],
)
def test_units_in_words_are_those_of_their_groups(line, record, reason):
    group = re.search(r"\{(\w+)\}", record)
    written = f"^.*{record.replace(group[0], f'(?P<{group[1]}>[0-9.,]+)')}"
    found = problems(line, written, step_every=1)
    assert found == [] if reason is None else reason in found[0]


@pytest.mark.parametrize(
    "line",
    [
        "step 1 tok/gpu/s: 90",
        "tokens per gpu per second (tgs): 90",
        "90 tokens/s/GPU",
        "throughput/gpu/tokens_per_sec: 90",
    ],
)
def test_a_speed_of_a_part_says_so(line):
    case = Case.from_id("f-m-fp32-b8-s16-1n2g")
    record = {"record": "(?P<tokens_per_second>90)", "step_every": 1, "case": case}
    assert "printed per gpu" in problems(line, **record, rate_scope="global")[0]
    assert problems(line, **record, rate_scope="device") == []
