"""What holds for any log: cut, disturbed, or made of arbitrary bytes."""

import math
import tempfile
from pathlib import Path

import log_makers as make
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_dlperf.formats.log_format import custom_format
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS
from pytest_dlperf.model.measurement import Estimator, RunStatus, Window

pytestmark = pytest.mark.slow

WINDOW = Window(warmup_steps=3, measured_steps=8)
PLSC_WINDOW = Window(warmup_steps=20, measured_steps=40)
ONE, TWO = make.case(), make.case("1n2g")

CUSTOM = custom_format(
    "seconds", record=r"^step (?P<step>\d+) took (?P<seconds>\d+(?:\.\d+)?)", first_step=1
)
CUSTOM_RANKS = custom_format(
    "shared", record=r"at (?P<timestamp>[\d.]+) ended (?P<step>\d+)", ranks="local"
)
TIMES = make.seconds(30)
RANKS = [[round(t, 3) for t in make.seconds(30, base=0.2 + r / 10)] for r in (0, 1)]
RATES = [[500.0, *(9000.0 + 31 * k + r for k in range(1, 9))] for r in (0, 1)]

# Of each format a log, the case it is of, and its window.
LOGS = (
    (
        BUILTIN_FORMATS["paddle_resnet"],
        make.paddle_resnet_header(batch_per_node=128, trainers=1)
        + make.paddle_resnet(TIMES, epoch_length=7, tests=True),
        ONE,
        WINDOW,
    ),
    (
        BUILTIN_FORMATS["dllogger"],
        make.dllogger_header(batch=128, world_size=1) + make.dllogger(TIMES),
        ONE,
        WINDOW,
    ),
    (BUILTIN_FORMATS["dllogger"], make.dllogger(TIMES, epoch_length=9), ONE, WINDOW),
    (BUILTIN_FORMATS["pytorch_imagenet"], make.pytorch_imagenet(RANKS), TWO, WINDOW),
    (
        BUILTIN_FORMATS["pytorch_imagenet"],
        make.pytorch_imagenet(RANKS, epoch_length=11, block=5),
        TWO,
        WINDOW,
    ),
    (
        BUILTIN_FORMATS["plsc"],
        make.plsc_header(batch=128, world_size=2) + make.plsc(RATES, block=2, global_batch=256),
        TWO,
        PLSC_WINDOW,
    ),
    (BUILTIN_FORMATS["tf_models_bert"], make.tf_models_bert(TIMES, copies=True), ONE, WINDOW),
    (BUILTIN_FORMATS["tf_models_bert"], make.tf_models_bert(TIMES, interval=4), ONE, WINDOW),
    (BUILTIN_FORMATS["dlperf"], make.dlperf_header(TWO) + make.dlperf(RANKS), TWO, WINDOW),
    (CUSTOM, "".join(f"step {k} took {t:.3f}\n" for k, t in enumerate(TIMES, 1)), ONE, WINDOW),
    (
        CUSTOM_RANKS,
        "".join(f"at {k / 3 + r:.2f} ended {k}\n" for k in range(1, 30) for r in (0, 1)),
        TWO,
        WINDOW,
    ),
)

logs = st.sampled_from(LOGS)
both = st.sampled_from(Estimator)
buffer_sizes = st.one_of(st.integers(1, 600), st.integers(600, 1 << 18))
noise = st.sampled_from(
    [
        b"",
        b"node1:101:2020 [0] NCCL INFO Channel 00/02 : 0 1 2 3\n",
        b"W0910 12:00:00.123456 20011 device_context.cc:252] device: 0\n",
        b"\n\n",
        b"\0" * 70,
        b"\xff\xfe\x80\n",
        "  8%|▊     | 263/3443\r".encode(),
        b"Test: [0/3]\tTime  0.299 ( 0.299)\n",
        b"[Pass 0, test  batch 0] \tloss 6.9, acc1 0.0, acc5 0.0, elapse 0.0457 sec\n",
        b"x" * 700 + b"\n",
        b"Traceback (most recent call last):\r\n",
    ]
)


def measured(
    content,
    log,
    estimator=Estimator.STEADY,
    buffer_size=1 << 18,
    limit=None,
):
    log_format, _, case, window = log
    if log_format.published is None:
        estimator = Estimator.STEADY
    with tempfile.TemporaryDirectory() as folder:
        run = make.measured(
            Path(folder),
            content,
            log_format,
            of=case,
            window=window,
            estimator=estimator,
            buffer_size=buffer_size,
            limit=limit,
        )
    assert run.log is not None
    return replace(run, log=None)


def check_sane(run):
    if run.status is RunStatus.OK:
        assert math.isfinite(run.metrics["throughput"])
        assert run.metrics["throughput"] > 0
        assert run.steps
    else:
        assert run.status is RunStatus.INVALID
        assert run.metrics.get("throughput") is None
        assert run.reason


def test_the_logs_used_here_are_good():
    for log in LOGS:
        assert measured(log[1].encode(), log).status is RunStatus.OK, log[0].name


def changed(content, data):
    """The log with some of its lines disturbed."""
    lines = content.splitlines(keepends=True)
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(lines)))
        change = data.draw(st.sampled_from(["insert", "drop", "double", "corrupt", "return"]))
        if change == "insert" or at == len(lines):
            lines.insert(at, data.draw(noise))
        elif change == "drop":
            lines[at] = b""
        elif change == "double":
            lines[at] *= 2
        elif change == "return":
            lines[at] = lines[at].replace(b"\n", data.draw(st.sampled_from([b"\r\n", b"\r"])))
        else:
            lines[at] = lines[at].replace(b"0", data.draw(st.sampled_from([b"9", b"x", b"\n"])))
    return b"".join(lines)


@settings(max_examples=150)
@given(log=logs, estimator=both, buffer_size=buffer_sizes, data=st.data())
def test_the_buffers_size_changes_nothing(
    log,
    estimator,
    buffer_size,
    data,
):
    content = changed(log[1].encode(), data)
    run = measured(content, log, estimator)
    check_sane(run)
    assert measured(content, log, estimator, buffer_size) == run


@pytest.mark.parametrize("buffer_size", [64, 1000, 1 << 18])
def test_a_unit_on_a_later_line_counts_alike_wherever_reads_end(tmp_path, buffer_size):
    lines = [f"step {step} took 0.5 s\n" for step in range(1, 130)]
    lines[39] = lines[39].replace(" s", " ms")
    log_format = custom_format("unit", record=r"step (?P<step>\d+) took (?P<seconds>[\d.]+) ")
    run = make.measured(tmp_path, "".join(lines), log_format, buffer_size=buffer_size)
    assert (run.status, run.reason) == (RunStatus.OK, None)


@settings(max_examples=150)
@given(log=logs, pieces=st.lists(noise, min_size=1, max_size=8), seed=st.integers(0, 1000))
def test_noise_between_records_changes_nothing(log, pieces, seed):
    clean = log[1].encode()
    noisy = b"".join(
        pieces[(k * 31 + seed) % len(pieces)] + line
        for k, line in enumerate(clean.splitlines(keepends=True))
    )
    assert measured(noisy, log) == measured(clean, log)


@settings(max_examples=100)
@given(log=logs.filter(lambda log: log[0].name in BUILTIN_FORMATS), every=st.integers(1, 9))
def test_records_may_be_glued(log, every):
    lines = log[1].splitlines()
    if log[0].name in {"paddle_resnet", "plsc", "dlperf", "dllogger"}:
        # Their headers are lines of their own.
        head = next(k for k, line in enumerate(lines) if log[0].record.search(line.encode()))
    else:
        head = 0
    glued = "".join(
        line + ("" if k >= head and k % every else "\n") for k, line in enumerate(lines)
    )
    glued += "\n"
    assert measured(glued.encode(), log) == measured(log[1].encode(), log)


fragments = st.sampled_from(
    [piece for log in LOGS for line in log[1].splitlines()[:12] for piece in line.split(" ")]
).map(str.encode)


@settings(max_examples=300)
@given(
    log=logs,
    estimator=both,
    content=st.one_of(
        st.binary(max_size=300),
        st.lists(st.one_of(fragments, st.binary(max_size=3)), max_size=80).map(b" ".join),
        st.lists(
            st.sampled_from([line.encode() for log in LOGS for line in log[1].splitlines()]),
            max_size=60,
        ).map(b"\n".join),
    ),
)
def test_arbitrary_bytes_never_make_a_number_that_is_none(log, estimator, content):
    check_sane(measured(content, log, estimator))


@settings(max_examples=150)
@given(log=logs, estimator=both, data=st.data())
def test_numbers_of_any_kind_never_make_one_that_is_none(log, estimator, data):
    lines = log[1].encode().splitlines(keepends=True)
    at = data.draw(st.integers(0, len(lines) - 1))
    number = data.draw(
        st.one_of(
            st.integers(-10, 10**20).map(str),
            st.floats().map(repr),
            st.sampled_from(["nan", "inf", "1e400", "9" * 39, "0.0", "00:00:00", "٣"]),
        )
    ).encode()
    import re

    found = list(re.finditer(rb"[0-9]+(?:\.[0-9]+)?", lines[at]))
    if found:
        match = found[data.draw(st.integers(0, len(found) - 1))]
        lines[at] = lines[at][: match.start()] + number + lines[at][match.end() :]
    check_sane(measured(b"".join(lines), log, estimator))


@settings(max_examples=300)
@given(log=logs, estimator=both, data=st.data())
def test_a_log_cut_anywhere_has_the_whole_ones_number_or_none(log, estimator, data):
    whole = log[1].encode()
    end = data.draw(st.integers(0, len(whole)))
    run = measured(whole[:end], log, estimator)
    check_sane(run)
    if run.status is RunStatus.OK:
        # What stands behind the window may confirm it.
        assert replace(run, reason=None) == replace(measured(whole, log, estimator), reason=None)


@settings(max_examples=150)
@given(log=logs, estimator=both, buffer_size=buffer_sizes, data=st.data())
def test_a_limit_is_where_the_log_ends(
    log,
    estimator,
    buffer_size,
    data,
):
    whole = log[1].encode()
    limit = data.draw(st.integers(0, len(whole) + 10))
    run = measured(whole, log, estimator, buffer_size, limit)
    assert run == measured(whole[:limit], log, estimator)
