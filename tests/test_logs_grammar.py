"""The words of declared formats: times of all kinds, by expression and by key, counted or not."""

import json
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_makers import case, measured

from pytest_dlperf.formats.keyed import JsonKeys
from pytest_dlperf.formats.log_format import custom_format
from pytest_dlperf.formats.printed import stamp_of
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import Estimator, RunStatus, Window
from pytest_dlperf.model.work import Timing

TIMES = [8.0] * 5 + [0.5, 1.5] * 8
"""Seconds of steps 1 to 21. Measured are steps 6 to 15, which take 10 s."""
ENDS = list(accumulate(TIMES))
SECONDS = 10.0
WINDOW = Window(warmup_steps=5, measured_steps=10)
BATCH = 8
LLM = Case.from_id(f"trainer-gpt-bf16-gb{BATCH}-s512-tp2-2n4g")
"""Four replicas of two devices each."""
SAMPLES = BATCH * 10 / SECONDS


def run(
    path,
    line,
    log_format,
    *,
    of=LLM,
    buffer_size=1 << 18,
    **given,
):
    """Measure a log of a line for each step: its number, how long it took, and when it ended."""
    if isinstance(log_format, str):
        log_format = custom_format("trainer", record=log_format, **given)
    content = (
        line
        if isinstance(line, str)
        else "".join(line(k, TIMES[k - 1], ENDS[k - 1]) + "\n" for k in range(1, 22))
    )
    return measured(path, content, log_format, of=of, window=WINDOW, buffer_size=buffer_size)


def throughput(result):
    assert result.status is RunStatus.OK, result.reason
    return result.metrics["throughput"]


def reason(result):
    assert result.status is RunStatus.INVALID
    assert result.reason is not None
    return result.reason


def clock(seconds, decimals=0):
    minutes, rest = divmod(round(seconds, decimals), 60)
    hours, minutes = divmod(int(minutes), 60)
    text = f"{minutes:02d}:{rest:0{2 + decimals + bool(decimals)}.{decimals}f}"
    return f"{hours}:{text}" if hours else text


STEP = "step (?P<step>[0-9]+) "
TIMINGS = {
    "seconds": ("took (?P<seconds>[0-9.]+) s", lambda k, s, _: f"step {k} took {s} s"),
    "milliseconds": (
        r"(?P<milliseconds>[0-9.,]+)ms",
        lambda k, s, _: f"step {k} {1000 * s:,.1f}ms",
    ),
    "seconds per step": (
        r"\[.*, (?P<seconds_per_step>[0-9.]+)s/it",
        lambda k, s, e: f"step {k} [{clock(e)}<01:02, {s:.2f}s/it]",
    ),
    "samples per second": (
        r"ips: (?P<samples_per_second>[0-9.,]+) samples/s",
        lambda k, s, _: f"step {k} ips: {BATCH / s:,.4f} samples/s",
    ),
    "tokens per second": (
        r"tps: (?P<tokens_per_second>[0-9,.]+)",
        lambda k, s, _: f"step {k} tps: {BATCH * 512 / s:,.3f}  tflops: 0.52",
    ),
    "thousands of tokens": (
        r"(?P<tokens_per_second>[0-9.]+[kK]?) tok/s",
        lambda k, s, _: f"step {k} {BATCH * 512 / s / 1000:.6f}K tok/s",
    ),
    "steps per second": (
        r".*, (?P<steps_per_second>[0-9.]+)it/s",
        lambda k, s, e: f"step {k} [{clock(e)}<01:02, {1 / s:.6f}it/s]",
    ),
    "time of day": (
        r"at (?P<timestamp>[0-9:.]+)",
        lambda k, _, e: (
            f"step {k} at 23:59:{e:06.3f}" if e < 60 else f"step {k} at 00:{clock(e - 60, 3)}"
        ),
    ),
    "milliseconds since 1970": (
        '"time_ms": (?P<epoch_milliseconds>[0-9]+)',
        lambda k, _, e: f'step {k} "time_ms": {1721026805975 + round(1000 * e)},',
    ),
    "seconds since the run began": (
        r"train_time:(?P<elapsed_seconds>[0-9.]+)s",
        lambda k, _, e: f"step {k} train_time:{e:.3f}s step_avg:1ms",
    ),
    "minutes since the run began": (
        r"\[(?P<elapsed_seconds>[0-9:.]+)<",
        lambda k, _, e: f"step {k} [{clock(3580 + e, 2)}<01:02, 1.2it/s]",
    ),
    "days since the run began": (
        r"after (?P<elapsed_seconds>[^|]+) \|",
        lambda k, _, e: f"step {k} after 1 day, 0:{clock(e, 6)} |",
    ),
    "milliseconds since the run began": (
        r"train_time:(?P<elapsed_milliseconds>[0-9,]+)ms",
        lambda k, _, e: f"step {k} train_time:{1000 * e:,.0f}ms",
    ),
}


@pytest.mark.parametrize(("record", "line"), TIMINGS.values(), ids=TIMINGS)
def test_times_of_all_kinds(tmp_path, record, line):
    assert throughput(run(tmp_path, line, STEP + record)) == pytest.approx(SAMPLES, rel=1e-4)


@pytest.mark.parametrize(
    ("scope", "parts"), [("global", 1), ("node", 2), ("rank", 4), ("device", 8)]
)
def test_a_speed_is_of_a_part(tmp_path, scope, parts):
    result = run(
        tmp_path,
        lambda k, s, _: f"step {k} tps: {BATCH * 512 / s / parts:.6f}",
        STEP + "tps: (?P<tokens_per_second>[0-9.]+)",
        rate_scope=scope,
    )
    assert throughput(result) == pytest.approx(SAMPLES)


def test_tokens_need_a_sequence_length(tmp_path):
    line = TIMINGS["tokens per second"]
    result = run(tmp_path, line[1], STEP + line[0], of=case("2n4g", batch=1))
    assert "sequence_length" in reason(result)


@pytest.mark.parametrize(
    ("text", "group", "write"),
    [
        ("1721026805975", "timestamp", "epoch_milliseconds"),
        ("1721026805", "epoch_milliseconds", "timestamp"),
    ],
)
def test_seconds_and_milliseconds_since_1970_are_told_apart(tmp_path, text, group, write):
    result = run(tmp_path, lambda k, *_: f"step {k} at {text}", STEP + f"at (?P<{group}>[0-9]+)")
    assert write in reason(result)


# ---------------------------------------------------------------------------------- colours


@pytest.mark.parametrize("buffer_size", [64, 1 << 18])
def test_colours_are_no_part_of_a_line(tmp_path, buffer_size):
    def line(k, s, _):
        red, off = "\x1b[38;2;180;60;0m", "\x1b[0m"
        step = f"{red}st{off}ep: {k:2d}  {red}tps: {4096 / s:,.2f}{off}"
        return f"\x1b[31mnoise\x1b[2K\n[{red}titan{off}] {step}"

    record = r"\] step: +(?P<step>[0-9]+)  tps: (?P<tokens_per_second>[0-9,.]+)$"
    result = run(tmp_path, line, record, buffer_size=buffer_size)
    assert throughput(result) == pytest.approx(SAMPLES, rel=1e-4)


# ----------------------------------------------------------------- steps without a number


@pytest.mark.parametrize("buffer_size", [40, 1 << 18])
def test_records_without_a_number_are_counted(tmp_path, buffer_size):
    result = run(
        tmp_path,
        lambda _, __, e: f"{{'loss': '6.256'}} noise\n{e:.4f} done",
        r"^(?P<elapsed_seconds>[0-9.]+) done",
        step_every=1,
        buffer_size=buffer_size,
    )
    assert throughput(result) == pytest.approx(SAMPLES)
    assert result.steps == 10


def test_a_record_may_stand_for_several_steps(tmp_path):
    content = "".join(f"{ENDS[k - 1]} done\n" for k in range(5, 22, 5))
    result = run(tmp_path, content, r"^(?P<elapsed_seconds>[0-9.]+) done", step_every=5)
    assert throughput(result) == pytest.approx(SAMPLES)


@pytest.mark.parametrize(
    "given",
    [
        {"record": "step (?P<step>[0-9]+)"},
        {"record": "epoch (?P<epoch>[0-9]+)"},
        {"record": "done", "ranks": "local"},
        {"record": "at (?P<timestamp>[0-9.]+)", "ranks": "local"},
    ],
)
def test_not_all_records_can_be_counted(given):
    with pytest.raises(ValueError, match="counted only"):
        custom_format("x", step_every=1, **given)


def test_records_of_several_ranks_are_counted_together(tmp_path):
    """Each step has one of each rank, in any order."""
    line = lambda _, s, __: "\n".join([f"took {s:.4f}"] * 8)  # noqa: E731
    result = run(tmp_path, line, "took (?P<seconds>[0-9.]+)", step_every=1, ranks="all")
    assert throughput(result) == pytest.approx(SAMPLES)
    assert result.steps == 10


def test_steps_may_be_counted_in_samples(tmp_path):
    record = "samples (?P<step>[0-9,]+) at (?P<elapsed_seconds>[0-9.]+)"
    line = lambda k, _, e: f"samples {k * BATCH:,} at {e}"  # noqa: E731
    result = run(tmp_path, line, record, steps_in="samples")
    assert throughput(result) == pytest.approx(SAMPLES)
    other = lambda k, _, e: f"samples {k * BATCH + 4} at {e}"  # noqa: E731
    assert "12 is said to count samples" in reason(run(tmp_path, other, record, steps_in="samples"))


# ------------------------------------------------------------------------------ JSON and CSV


def test_json_by_key(tmp_path):
    keyed = custom_format("x", json={"step": "train.step", "seconds": "perf.time"})

    def line(k, s, _):
        of_step = {"perf": {"time": s, "others": [1, {"x": None}]}, "train": {"step": k}}
        return f'[rank0] {{"event": "eval", "time": 7}}{json.dumps(of_step)} and more'

    assert throughput(run(tmp_path, line, keyed)) == pytest.approx(SAMPLES)


def test_json_of_one_kind_of_event(tmp_path):
    """MLPerf's: steps in samples, and milliseconds since 1970."""
    keyed = custom_format(
        "x",
        json={"step": "metadata.step", "epoch_milliseconds": "time_ms"},
        where={"key": "tracked_stats"},
        steps_in="samples",
    )

    def line(k, _, e):
        event = {
            "time_ms": 1721026805975 + round(1000 * e),
            "key": "tracked_stats",
            "value": {"throughput": 1.9},
            "metadata": {"file": "train.py", "lineno": 3, "step": k * BATCH},
        }
        other = {**event, "key": "eval_accuracy", "time_ms": 1}
        return f"0: :::MLLOG {json.dumps(other)}\n0: :::MLLOG {json.dumps(event)}"

    assert throughput(run(tmp_path, line, keyed)) == pytest.approx(SAMPLES)


def test_keys_that_hold_dots_and_numbers_of_lists(tmp_path):
    keyed = custom_format(
        "x", json={"step": "step.1", "samples_per_second": "data.train.total_ips"}
    )
    line = lambda k, s, _: 'DLLL {"step": [0, %d], "data": {"train.total_ips": %r}}' % (k, 8 / s)  # noqa: E731, UP031
    assert throughput(run(tmp_path, line, keyed)) == pytest.approx(SAMPLES)


@pytest.mark.parametrize("buffer_size", [64, 1 << 18])
def test_dictionaries_of_python(tmp_path, buffer_size):
    """As the Trainer of Hugging Face prints them, between its bars."""
    keyed = custom_format(
        "x",
        json={"elapsed_seconds": "elapsed"},
        where={"loss": "*"},
        step_every=1,
    )

    def line(k, _, e):
        bar = f"\r {k}%|███  | {k}/21 [00:01<00:00,  9.18it/s]"
        said = f"{{'loss': '6.2', 'grad_norm': nan, 'elapsed': '{e}'}}"
        return f"{bar}{said}{bar}\n{{'eval': 1, 'elapsed': 3}}"

    result = run(tmp_path, line, keyed, buffer_size=buffer_size)
    assert throughput(result) == pytest.approx(SAMPLES)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("buffer_size", [32, 1 << 18])
def test_csv_by_column(tmp_path, delimiter, buffer_size):
    keyed = custom_format("x", csv={"step": "step", "seconds": "train/time"})
    rows = [["epoch", "step", "val", '"train/time"']]
    for k, s in enumerate(TIMES, 1):
        rows += [["0", str(k), "", f"{s}"], ["0", str(k), "0.5", ""], ["a", "b", "c", "d"]]
    content = "noise, 1, 2, 3\n" + "".join(delimiter.join(row) + "\nnoise\n" for row in rows)
    result = run(tmp_path, content, keyed, buffer_size=buffer_size)
    assert throughput(result) == pytest.approx(SAMPLES)


def test_a_log_without_records_says_what_was_looked_for(tmp_path):
    keyed = custom_format("x", json={"step": "step", "seconds": "time"}, where={"kind": "train"})
    said = reason(run(tmp_path, '{"step": 1, "time": 2, "kind": "test"}\n', keyed))
    assert "JSON with step, time, kind = train" in said
    columns = custom_format("x", csv={"step": "step", "seconds": "time"})
    assert "CSV with step, time" in reason(run(tmp_path, "a,b\n1,2\n", columns))


@pytest.mark.parametrize(
    "text", ["{" * 60_000, "{'" * 30_000, '{"a": [' * 9_000, '{"step"' * 9_000]
)
def test_broken_objects_cost_little(tmp_path, text):
    keyed = custom_format("x", json={"step": "step", "seconds": "a"})
    assert reason(run(tmp_path, f"{text} step a\n" * 10, keyed))


SCALARS = st.one_of(
    st.integers(-(10**12), 10**12),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.text("abc {}[]:,'()\\", min_size=1).filter(str.strip),
)
OBJECTS = st.dictionaries(
    st.text("ab ", min_size=1),
    st.recursive(
        SCALARS,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text("ab{,'", min_size=1), inner, max_size=3)
        ),
        max_leaves=8,
    ),
    max_size=4,
)


@given(OBJECTS, st.sampled_from(["", "noise {", "[rank0]: ", "{'a': 1} "]), st.booleans())
def test_a_key_leads_to_what_json_and_python_read(of_step, front, in_python):
    """Whatever else there is, in both spellings."""
    whole = {**of_step, "perf": [of_step, {"seconds": 0.5}], "step": {"now": 7}}
    text = repr(whole) if in_python else json.dumps(whole)
    record = JsonKeys(keys={"step": "step.now", "seconds": "perf.1.seconds"})
    found = [(one["step"], one["seconds"]) for one in record.finditer(f"{front}{text}".encode())]
    assert (b"7", b"0.5") in found


def test_a_record_is_of_one_kind():
    with pytest.raises(ValueError, match="one of 'record', 'json' and 'csv'"):
        custom_format("x")
    with pytest.raises(ValueError, match="one of 'record', 'json' and 'csv'"):
        custom_format("x", record=STEP, json={"step": "a"})
    with pytest.raises(ValueError, match="'where' is of 'json' and 'csv'"):
        custom_format("x", record=STEP, where={"a": "b"})


def test_the_estimator_of_the_original_knows_none_of_them(tmp_path):
    keyed = custom_format("x", json={"step": "step", "seconds": "time"})
    with pytest.raises(ValueError, match="no published definition"):
        measured(tmp_path, "", keyed, estimator=Estimator.PUBLISHED)


def test_a_step_that_is_printed_with_a_fraction_counts_only_if_it_is_whole(tmp_path):
    record = "step (?P<step>[0-9.]+) took (?P<seconds>[0-9.]+) s"
    whole = run(tmp_path, lambda k, s, _: f"step {k}.0 took {s} s", record)
    assert throughput(whole) == pytest.approx(SAMPLES)
    assert "12.5" in reason(run(tmp_path, "step 12.5 took 1 s\n", record))


def test_milliseconds_become_seconds_of_as_many_decimals():
    printed = (b"7", b"500", b"1,250.5")
    stamps = [stamp_of(Timing.ELAPSED_MILLISECONDS, text, 0) for text in printed]
    assert stamps == [b"0.007", b"0.500", b"1.2505"]


def test_a_comma_in_a_step_s_time_is_refused_as_it_may_be_a_point(tmp_path):
    result = run(
        tmp_path, lambda k, *_: f"step {k} took 1,230 s", STEP + "took (?P<seconds>[0-9,]+)"
    )
    assert "'1,230'" in reason(result)
