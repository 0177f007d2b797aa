"""What a declared time is held against: all else that the same lines say of it."""

import re

import log_makers as make
import pytest

from pytest_dlperf.formats.log_format import custom_format
from pytest_dlperf.logs.cross_check import cross_check, problems_of_group
from pytest_dlperf.model.case import Case

CASE = make.case(batch=64)
STEP_S = 2.0
TOOK = r"step (?P<step>\d+) .*took (?P<seconds>[\d.]+)"
STAMPED = r"^(?P<timestamp>[\d:]+) step (?P<step>\d+) "


def told(  # noqa: PLR0913 - a log and how it is declared
    tmp_path, line, *, count=30, record=TOOK, case=CASE, every=1, **declared
):
    """Write ``line`` for each step, as it says of steps that take two seconds; check it."""
    lines = []
    for step in range(every, (count + 1) * every, every):
        seconds = int(step * STEP_S)
        stamp = f"10:{seconds // 60:02}:{seconds % 60:02}"
        jitter = 1 + step % 3 / 100
        lines.append(line(step, stamp, jitter))
    log = tmp_path / "log"
    log.write_text("\n".join(lines) + "\n")
    log_format = custom_format("mine", record=record, **declared)
    return cross_check(log, log_format, case)


@pytest.mark.parametrize("count", [3, 300])
@pytest.mark.parametrize(
    ("others", "said"),
    [
        ("", "agrees with the time stamps"),
        (", 32.1 samples/s", "agrees with samples/s"),
        (", speed: 32.1 [imgs / sec]", "agrees with speed imgs / sec"),
        (", 2.02 s/it", "agrees with s/it"),
        (", step time: 2010.5 ms", "agrees with step time ms"),
    ],
)
def test_other_numbers_of_a_line_confirm_it(tmp_path, others, said, count):
    found = told(
        tmp_path,
        lambda k, at, x: f"{at}.000 step {k} loss 2.1 took {2 * x:.3f}{others}",
        count=count,
    )
    assert any(each.startswith(said) for each in found.agreements), found
    assert found.contradictions == ()


@pytest.mark.parametrize("count", [3, 300])
@pytest.mark.parametrize(
    ("line", "declared"),
    [
        pytest.param("{at} step {k} took {micro:.3f}", {}, id="micro-batch, by stamps"),
        pytest.param("step {k} took {micro:.3f}, 32.1 samples/s", {}, id="micro-batch, by a rate"),
        pytest.param("step {k} took {micro:.3f}, 0.5 steps/s", {}, id="micro-batch, by steps/s"),
        pytest.param(
            "step {k} took {micro:.3f}, step_time: 2.01 s", {}, id="micro-batch, by a time"
        ),
        pytest.param("2024-05-02_10:{at} step {k} took {micro:.3f}", {}, id="stamps with _"),
        pytest.param("step {k} took {ms:.1f} ms", {}, id="milliseconds"),
        pytest.param("step {k} took {ms:.1f} [ms]", {}, id="milliseconds in brackets"),
        pytest.param("step {k} took {took:.1f}K", {}, id="prefix behind the group"),
    ],
)
def test_what_contradicts_a_declared_time_is_told(tmp_path, line, declared, count):
    def written(step, stamp, jitter):
        at = stamp[3:] if "_10" in line else stamp
        took = STEP_S * jitter
        return line.format(k=step, at=at, took=took, micro=took / 8, ms=took * 1000)

    found = told(tmp_path, written, count=count, **declared)
    assert found.contradictions, found


def test_a_step_number_that_counts_tokens_is_told_by_the_step_time(tmp_path):
    def written(step, stamp, jitter):
        return f"{stamp} step {step * 2048} step_time {2 * jitter:.2f} s"

    found = told(tmp_path, written, record=STAMPED)
    assert [each.partition(":")[0] for each in found.contradictions] == ["contradicts step_time s"]


def test_the_time_of_ten_steps_is_told_by_a_pace_between_the_lines(tmp_path):
    found = told(
        tmp_path,
        lambda k, _, x: f"loss 2.3, step {k} took {20 * x:.3f}\nglobal_step/sec: 0.5",
        every=10,
    )
    assert len(found.contradictions) == 1
    right = told(
        tmp_path,
        lambda k, _, x: f"loss 2.3, step {k} took {20 * x:.3f}\nglobal_step/sec: 0.5",
        every=10,
        covers="total_since_last",
    )
    assert right.contradictions == ()
    assert right.agreements


def test_a_mean_since_the_start_is_told(tmp_path):
    slow = lambda k, _, __: f"step {k} took {(60 + STEP_S * k) / k:.3f}"  # noqa: E731
    assert "since_start" in told(tmp_path, slow).contradictions[0]
    assert told(tmp_path, slow, covers="since_start").contradictions == ()


@pytest.mark.parametrize("pause", [0, 50])
def test_a_pause_or_a_slow_begin_contradicts_nothing(tmp_path, pause):
    def written(step, _, jitter):
        seconds = int(step * STEP_S + 40 + pause * (step > 17))
        return f"10:{seconds // 60:02}:{seconds % 60:02} step {step} took {2 * jitter:.3f}"

    found = told(tmp_path, written)
    assert found.contradictions == ()


def test_nothing_is_said_of_a_made_up_batch_or_a_log_without_records(tmp_path):
    log = tmp_path / "log"
    log.write_text("".join(f"step {k} took 2.0, 4000 samples/s\n" for k in range(20)))
    log_format = custom_format("mine", record=TOOK)
    assert cross_check(log, log_format, CASE).contradictions
    assert not cross_check(log, log_format, CASE, knows_batch=False).contradictions
    log.write_text("nothing\n")
    assert cross_check(log, log_format, CASE) == cross_check(tmp_path / "none", log_format, CASE)


# ---------------------------------------------------- a number of another unit, or a part of one


OF = Case.from_id("f-m-bf16-gb8-s512-2n2g")


def problems(text, group, *, number="12.5", digits="[0-9.]+", case=OF, **declared):
    """What is wrong with the group that takes the number at ``{}`` of a text."""
    before, _, behind = map(re.escape, text.partition("{}"))
    record = f"step (?P<step>[0-9]+) {before}(?P<{group}>{digits}){behind}"
    log_format = custom_format("mine", record=record, **declared).of(case)
    return list(problems_of_group(log_format, f"step 1 {text.format(number)}".encode()))


@pytest.mark.parametrize(
    ("text", "group", "unit", "write"),
    [
        ("time {} ms,", "elapsed_seconds", "ms", "milliseconds"),
        ("elapsed time per iteration (ms): {} |", "seconds", "ms", "milliseconds"),
        ("time_ms={}", "timestamp", "ms", "milliseconds"),
        ("took {} sec", "milliseconds", "sec", "seconds"),
        ("took {} us", "milliseconds", "us", "print seconds"),
        ("{}s/it", "steps_per_second", "s/it", "seconds_per_step"),
        ("tps: {} tflops", "samples_per_second", "tps", "tokens_per_second"),
        ("Tokens/s/device: {}, ", "samples_per_second", "Tokens/s", "tokens_per_second"),
        ("samples per second: {} |", "seconds", "samples per second", "samples_per_second"),
        ("data_time: {} s", "seconds", "data_time", "not the time of a whole step"),
    ],
)
def test_another_unit_is_noticed(text, group, unit, write):
    said, *_ = problems(text, group, rate_scope="device")
    assert repr(unit) in said
    assert write in said


@pytest.mark.parametrize(
    ("text", "scope", "write"),
    [
        ("Tokens/s/device: {}, ", "global", "device"),
        ("{} tokens/s/gpu", "global", "device"),
        ("tokens per gpu per second (tgs): {}", "global", "device"),
        ("{} tok/s/node", "global", "node"),
        ("{} tok/s/device", "node", "device"),
    ],
)
def test_a_speed_of_a_part_is_not_taken_for_the_whole(text, scope, write):
    [said] = problems(text, "tokens_per_second", rate_scope=scope)
    assert f"rate_scope: {write}" in said
    assert problems(text, "tokens_per_second", rate_scope=write) == []
    alone = Case.from_id("f-m-bf16-gb8-s512-1n1g")
    assert problems(text, "tokens_per_second", rate_scope=scope, case=alone) == []


@pytest.mark.parametrize(
    ("text", "group"),
    [
        ("loss: {}", "seconds"),
        ("elapsed: {} s", "seconds"),
        ("{} min: 3", "seconds"),
        ("{} s: 4", "milliseconds"),
        ("items/s {} s=3", "samples_per_second"),
        ("batch_cost: {} sec, ips: 12 images/sec", "seconds"),
        ("time {} (0.1 ms)", "seconds"),
        ("in {} tokens per second 7,700", "seconds"),
        ("of metadata: {}", "seconds"),
        ("tps: {} tflops/s/gpu: 3", "tokens_per_second"),
        ("tps: {} (2.5/gpu)", "tokens_per_second"),
    ],
)
def test_what_is_no_other_unit_is_none(text, group):
    assert problems(text, group) == []


@pytest.mark.parametrize(
    ("number", "digits"),
    [("7,282", "[0-9.]+"), ("12.5", "[0-9]+"), ("1.5e+01", "[0-9.]+"), ("1.5K", "[0-9.]+")],
)
def test_a_part_of_a_number_is_not_taken(number, digits):
    log_format = custom_format(
        "mine", record=f"(?P<step>[0-9]+) tps: (?P<tokens_per_second>{digits})"
    )
    [said] = problems_of_group(log_format.of(OF), f"step 1 tps: {number} mfu".encode())
    assert repr(number) in said
    # The next column of a list is none: the expression itself takes the comma.
    columns = custom_format("mine", record="(?P<step>[0-9]+),(?P<seconds>[0-9.]+),")
    assert list(problems_of_group(columns.of(OF), b"1,0.25,123")) == []


def test_the_unit_of_a_key_is_noticed():
    keyed = custom_format("x", json={"step": "step", "seconds": "step_time_ms"})
    [said] = problems_of_group(keyed, b"{}")
    assert "milliseconds" in said


@pytest.mark.in_process
def test_a_contradicted_number_is_judged_but_not_recorded_without_a_reason(suite):
    """The declared time is that of a micro-batch, of which the trainer prints one line a step."""
    file = suite.system_file(
        "framework: plain\nmodel: gpt\nunit: samples/s\n"
        "window: {warmup_steps: 2, measured_steps: 8}\n"
        "log: {name: gpt, format: {record: 'step (?P<step>[0-9]+) took (?P<seconds>[0-9.]+)'}}\n"
        "cases:\n  - {precision: bf16, batch_per_device: 4, topologies: [1n1g]}\n"
    )
    log = suite.path / "a.log"
    log.write_text("".join(f"step {k} took 0.25, 2.0 samples/s\n" for k in range(1, 20)))
    case = "plain-gpt-bf16-b4-1n1g"
    asked = ("-k", case, "--dlperf-logs", f"{case}={log}", "--dlperf-cluster", "local")
    refused = suite.run(*asked, "--dlperf-create-baselines")
    refused.stdout.fnmatch_lines(["*not accepted: contradicts samples/s: 0.25 s a step*2 s by*"])
    recorded = suite.path / "baselines/local/plain-gpt.yaml"
    assert (refused.ret, recorded.exists()) == (1, False)
    reasoned = suite.run(*asked, "--dlperf-update-baselines", "--dlperf-reason", "it is a mean")
    assert (reasoned.ret, recorded.exists()) == (0, True)
    log.write_text(log.read_text().replace("0.25", "0.26"))
    assert suite.run(*asked).ret == 0
    recorded.unlink()
    file.write_text(
        file.read_text().replace(
            "took (?P<seconds>[0-9.]+)", "took .*, (?P<samples_per_second>[0-9.]+)"
        )
    )
    log.write_text(log.read_text().replace("took 0.26", "took 2.0"))
    assert suite.run(*asked, "--dlperf-create-baselines").ret == 0
