"""What holds for any log: growing, cut, disturbed, or made of arbitrary bytes."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import log_makers as make
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_dlperf.formats.log_format import custom_format
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS
from pytest_dlperf.logs.lines import LONGEST_LINE
from pytest_dlperf.logs.reading import LogReading, LogState
from pytest_dlperf.logs.tracks import LOOK_AHEAD
from pytest_dlperf.model.measurement import Estimator, RunStatus, Window

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


SELDOM = LOGS[7]
"""A log of every fourth step: too seldom for its published definition, and too short."""

EACH = [
    pytest.param(log, estimator, id=f"{number}-{log[0].name}-{estimator.value}")
    for number, log in enumerate(LOGS)
    for estimator in Estimator
    if estimator is Estimator.STEADY or (log[0].published is not None and log is not SELDOM)
]


class Growing:
    """A log on its way, and the reading that follows it."""

    def __init__(self, path, log, estimator, buffer_size=1 << 18):
        self.log_format, _, self.case, self.window = log
        self.path = path
        self.estimator = estimator
        self.reading = LogReading(
            path,
            number=1,
            case=self.case,
            log_format=self.log_format,
            window=self.window,
            estimator=estimator,
            buffer_size=buffer_size,
        )

    def grow(self, content):
        with self.path.open("ab") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        self.reading.advance()
        return self.reading.state

    def measured(self, limit=None):
        """What the log gives that is read at once."""
        return LogReading(
            self.path,
            number=1,
            case=self.case,
            log_format=self.log_format,
            window=self.window,
            estimator=self.estimator,
        ).finish(limit)


def of_format(
    path,
    name,
    *,
    case=ONE,
    estimator=Estimator.STEADY,
    window=WINDOW,
):
    return Growing(path / "run.log", (BUILTIN_FORMATS[name], "", case, window), estimator)


def pieces(content, data):
    """The log in pieces that end anywhere, also within a line."""
    cuts = data.draw(st.lists(st.integers(0, len(content)), max_size=12))
    begin = 0
    for cut in (*sorted(cuts), len(content)):
        yield content[begin:cut]
        begin = cut


def measured(content, log, estimator=Estimator.STEADY):
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


@pytest.mark.slow
@given(
    log=logs,
    estimator=st.sampled_from(Estimator),
    buffer_size=buffer_sizes,
    data=st.data(),
)
def test_however_a_log_grows_its_run_is_that_of_the_whole(log, estimator, buffer_size, data):
    if log[0].published is None:
        estimator = Estimator.STEADY
    content = changed(log[1].encode(), data)
    limit = data.draw(st.none() | st.integers(0, len(content) + 5))
    with tempfile.TemporaryDirectory() as folder:
        growing = Growing(Path(folder, "run.log"), log, estimator, buffer_size)
        reading = growing.reading
        state, reason, seen = LogState.GROWING, None, 0
        at_complete = None
        with growing.path.open("ab") as file:
            for piece in pieces(content, data):
                file.write(piece)
                file.flush()
                seen += len(piece)
                reading.advance(
                    limit
                    if limit is not None
                    else data.draw(st.sampled_from((None, seen, max(seen - 3, 0))))
                )
                before, state = state, reading.state
                # What is known is never taken back, but that a log may turn out to be broken.
                assert before is LogState.GROWING or state in {before, LogState.BROKEN}
                reason = reason or reading.reason
                if state is LogState.COMPLETE and before is LogState.GROWING:
                    at_complete = growing.measured(reading.position)
        run = reading.finish(limit)
        assert run == growing.measured(limit)
        assert reason is None or run.reason == reason
        assert at_complete is None or run.reason == reading.reason or run == at_complete


@pytest.mark.parametrize(("log", "estimator"), EACH)
def test_a_log_is_complete_with_the_line_that_its_number_needs_last(tmp_path, log, estimator):
    growing = Growing(tmp_path / "run.log", log, estimator)
    whole = Growing(tmp_path / "whole.log", log, estimator)
    whole.path.write_text(log[1])
    number = whole.measured().metrics.get("throughput")
    lines = log[1].splitlines(keepends=True)
    for line in lines:
        if growing.grow(line) is not LogState.GROWING:
            break
        if number is not None and log is not SELDOM:
            assert growing.measured().status is RunStatus.INVALID
    else:
        pytest.fail("the log was never complete")
    reading = growing.reading
    assert reading.steps.awaited == {}
    assert reading.position < len(log[1].encode())
    assert reading.steps.slowest >= reading.steps.window
    if estimator is Estimator.STEADY and log is not SELDOM:
        assert reading.steps.slowest == reading.steps.window
    assert reading.finish().metrics.get("throughput") == number


def test_a_rank_too_many_breaks_a_log_that_seemed_complete(tmp_path):
    growing = of_format(tmp_path, "pytorch_imagenet", case=TWO)
    records = [
        [make.pytorch_record(0, index, 5005, 0.2) + "\n" for index in range(20)] for _ in range(3)
    ]
    assert growing.grow("".join(records[0] + records[1])) is LogState.COMPLETE
    assert growing.grow("".join(records[2])) is LogState.BROKEN
    reason = growing.reading.reason
    assert reason.startswith("step 0 stands in the log more than 2 time(s)")
    assert reason.endswith("(line 41)")
    assert growing.reading.finish() == growing.measured()


def test_reading_stops_where_nothing_more_can_be_learnt(tmp_path):
    growing = of_format(tmp_path, "pytorch_imagenet", case=TWO)
    growing.grow(make.pytorch_imagenet([[0.2] * 20] * 2) + "x\n" * LOOK_AHEAD)
    assert growing.reading.state is LogState.COMPLETE
    position = growing.reading.position
    growing.grow("step after step\n" * 100)
    assert growing.reading.position == position
    assert growing.reading.finish() == growing.measured()


@pytest.mark.parametrize("content", [None, ""])
def test_a_log_without_anything_is_invalid_in_the_end(tmp_path, content):
    growing = of_format(tmp_path, "dllogger")
    if content is not None:
        growing.path.write_text(content)
    growing.reading.advance()
    run = growing.reading.finish()
    assert run == growing.measured()
    assert run.reason is not None
    assert ("the log is empty" if content == "" else "No such file") in run.reason


def test_a_log_of_other_batch_is_broken_with_its_first_step(tmp_path):
    growing = of_format(tmp_path, "dllogger")
    assert growing.grow(make.dllogger_header(batch=64, world_size=1)) is LogState.GROWING
    assert growing.grow(make.dllogger([0.5])) is LogState.BROKEN
    assert growing.reading.reason == (
        "the log says batch_size 64; the case framework-model-fp32-b128-1n1g has 128 (line 1)"
    )
    assert growing.reading.finish() == growing.measured()


def test_less_than_has_been_read_may_count(tmp_path):
    growing = of_format(tmp_path, "dllogger")
    content = make.dllogger([0.5] * 30)
    assert growing.grow(content) is LogState.COMPLETE
    limit = content.index("Iteration: 9 ")
    run = growing.reading.finish(limit)
    assert run.status is RunStatus.INVALID
    assert run == growing.measured(limit)


def test_a_bound_is_kept_and_told(tmp_path):
    growing = of_format(tmp_path, "dllogger")
    growing.path.write_text(make.dllogger([0.5] * 9))
    assert not growing.reading.advance(100)
    assert growing.reading.position == 100
    assert growing.reading.advance(100_000)
    assert growing.reading.steps.last == {"": 9}


def test_a_line_longer_than_any_is_cut_where_it_would_be_at_once(tmp_path):
    growing = of_format(tmp_path, "dllogger")
    record = make.dllogger([0.5] * 30)
    for piece in ("x" * LONGEST_LINE, "x" * (LONGEST_LINE - 20), record[:40], record[40:]):
        growing.grow(piece)
    assert growing.reading.finish() == growing.measured()


def test_ranks_that_name_themselves_are_followed_one_by_one(tmp_path):
    growing = of_format(tmp_path, "dlperf", case=TWO)
    reading = growing.reading

    def show(rank, *steps):
        growing.grow(
            "".join(f"dlperf step rank={rank} step={k} time={k}.5 loss=6.9\n" for k in steps)
        )

    assert reading.steps.window == 11
    show(0, 1, 2, 3)
    assert reading.steps.last == {"rank 0": 3}
    assert reading.steps.awaited == {"rank 0": 3, "": 0}
    assert (reading.steps.found, reading.steps.slowest) == (3, 0)
    show(1, 1, 2)
    assert reading.steps.last == reading.steps.awaited == {"rank 0": 3, "rank 1": 2}
    assert (reading.steps.found, reading.steps.slowest) == (3, 2)
    show(0, *range(4, 15))
    assert reading.steps.last == {"rank 0": 11, "rank 1": 2}
    assert reading.steps.awaited == {"rank 1": 2}
    show(1, *range(3, 12))
    assert reading.state is LogState.COMPLETE
    assert reading.steps.awaited == {}


def test_of_ranks_that_look_alike_the_slowest_and_the_furthest_are_known(tmp_path):
    growing = of_format(tmp_path, "pytorch_imagenet", case=TWO)
    reading = growing.reading
    growing.grow("".join(make.pytorch_record(0, k, 99, 0.2) + "\n" for k in range(12)))
    assert reading.steps.last == {"": 12}
    assert reading.steps.awaited == {"": 0}
    growing.grow("".join(make.pytorch_record(0, k, 99, 0.2) + "\n" for k in range(9)))
    assert reading.steps.last == {"": 12}
    assert reading.steps.awaited == {"": 9}
    assert reading.steps.slowest == 9


fragments = st.sampled_from(
    [piece for log in LOGS for line in log[1].splitlines()[:12] for piece in line.split(" ")]
).map(str.encode)


@given(
    log=logs,
    estimator=st.sampled_from(Estimator),
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
