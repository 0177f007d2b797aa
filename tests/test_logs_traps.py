"""What real logs hold besides clean records, and what of it must not change a number."""

import re

import log_makers as make
import pytest

from pytest_dlperf.formats.log_format import custom_format
from pytest_dlperf.logs.lines import LONGEST_LINE
from pytest_dlperf.model.measurement import Estimator, RunStatus, Window

TIMES = make.seconds(150)
RANKS = [[round(time, 3) for time in make.seconds(150, base=0.2 + rank / 10)] for rank in (0, 1)]
RATES = [[500.0, *(9000.0 + 31 * k + rank for k in range(1, 17))] for rank in (0, 1)]

CUSTOM = custom_format("mine", record=r"it (?P<step>\d+) took (?P<milliseconds>[\d.]+) ms")
ANCHORED = custom_format("mine", record=r"^it (?P<step>\d+) took (?P<milliseconds>[\d.]+) ms")

LOGS = {
    "paddle_resnet": ("paddle_resnet", make.paddle_resnet(TIMES), make.case("4n8g"), make.WINDOW),
    "dllogger": (
        "dllogger",
        make.dllogger(TIMES, global_batch=4096),
        make.case("4n8g"),
        make.WINDOW,
    ),
    "pytorch_imagenet": (
        "pytorch_imagenet",
        make.pytorch_imagenet(RANKS),
        make.case("2n2g"),
        make.WINDOW,
    ),
    "plsc": ("plsc", make.plsc(RATES, global_batch=512), make.case("2n2g"), make.PLSC_WINDOW),
    "tf_models_bert": ("tf_models_bert", make.tf_models_bert(TIMES), make.case(), make.WINDOW),
    "dlperf": ("dlperf", make.dlperf(RANKS), make.case("2n2g"), make.WINDOW),
    "custom": (
        CUSTOM,
        "".join(f"it {k} took {time * 1000:.1f} ms\n" for k, time in enumerate(TIMES, 1)),
        make.case(),
        make.WINDOW,
    ),
    "anchored": (
        ANCHORED,
        "".join(f"it {k} took {time * 1000:.1f} ms\n" for k, time in enumerate(TIMES, 1)),
        make.case(),
        Window(warmup_steps=0, measured_steps=100),
    ),
}

MPI_TAG = "[1,0]<stdout>:"
MPI_DATED_TAG = "Fri Dec 18 20:01:23 2020[1,0]<stdout>:"
COLOURED = "\x1b[32m[2020-12-16 15:43:51,572] [    INFO]\x1b[0m - "
BAR = "Iteration:   8%|▊         | 263/3443 [01:07<13:15,  4.00it/s]\r"
NOISE = (
    "node1:101:2020 [0] NCCL INFO Channel 00/02 : 0 1 2 3",
    "W0910 12:00:00.123456 20011 device_context.cc:252] Please NOTE: device: 0, CUDA 70",
    "2026-11-20 08:32:15.768056: W tensorflow/stream_executor/platform/dso_loader.cc:59] none",
    "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0",
    "[Pass 0, test  batch 0] \tloss 6.9, acc1 0.0, acc5 0.0, elapse 0.0457 sec",
    "Test: [0/3]\tTime  0.299 ( 0.299)\tLoss 2.7237e+00 (2.7237e+00)",
    "DLL 2020-09-15 14:29:18 - Epoch: 0 Iteration: 150 Validation Iteration: 3  val.loss : 1.0",
    "DLL 2020-09-15 14:29:18 - Epoch: 0  train.loss : 7.28801  train.total_ips : 364.26 img/s",
    "!!! The CPU_NUM is not specified, you should set CPU_NUM",
    "",
)


def each_line(change):
    return lambda log: "".join(change(line) for line in log.splitlines(keepends=True)).encode()


TRAPS = {
    "line ends of windows": lambda log: log.replace("\n", "\r\n").encode(),
    "progress bars": each_line(lambda line: BAR * 3 + line),
    "only carriage returns": lambda log: log.replace("\n", "\r").encode(),
    "noise between": each_line(lambda line: "\n".join(NOISE) + "\n" + line),
    "no utf-8": lambda log: log.encode().replace(b"\n", b"\n\xff\xfe\x80 n\xf6ise\n"),
    "a hole from rotation": lambda log: log.encode().replace(b"\n", b"\n" + bytes(500)),
    "bars without an end": each_line(lambda line: BAR.rstrip() + line),
    "bars that go back": each_line(lambda line: f"1/2 ━━ 2s/step{chr(8) * 12}{line}"),
    "a byte order mark": lambda log: b"\xef\xbb\xbf" + log.encode(),
    "byte order marks of files that were joined": each_line(lambda line: f"\ufeff{line}"),
    "an impossible step": lambda log: f"{log}it {'1' * 5000} took 1.0 ms\n".encode(),
    "srun's labels": each_line(lambda line: f" 0: {line}"),
    "torchrun's tags": each_line(lambda line: f"[rank0]:{line}"),
    "mpirun's tags": each_line(lambda line: MPI_TAG + line),
    "mpirun's dated tags": each_line(lambda line: MPI_DATED_TAG + line),
    "ssh's warning": lambda log: (
        f"Warning: Permanently added '[127.0.0.2]:2222' (ED25519) to the list\r\n{log}".encode()
    ),
    "a stack at the end": lambda log: (
        f"{log}terminate called without an active exception\n"
        "Traceback (most recent call last):\n  File 'x'\nAttributeError: 'NoneType'\n".encode()
    ),
    "no line end at the end": lambda log: log.rstrip("\n").encode(),
    "a line of megabytes": lambda log: b"x" * (3 * LONGEST_LINE) + b"\n" + log.encode(),
    "a hole of megabytes": lambda log: log.encode().replace(b"\n", b"\n" + bytes(1 << 21), 1),
}


@pytest.mark.parametrize("trap", TRAPS)
@pytest.mark.parametrize("name", LOGS)
def test_the_number_stays_the_same(tmp_path, name, trap):
    log_format, log, case, window = LOGS[name]
    clean = make.measured(tmp_path, log, log_format, of=case, window=window)
    assert clean.status is RunStatus.OK
    trapped = TRAPS[trap](log)
    assert make.measured(tmp_path, trapped, log_format, of=case, window=window) == clean


@pytest.mark.parametrize("trap", TRAPS)
@pytest.mark.parametrize("name", ["dllogger", "pytorch_imagenet"])
def test_the_published_number_stays_the_same(tmp_path, name, trap):
    log_format, log, case, window = LOGS[name]
    runs = [
        make.measured(
            tmp_path, each, log_format, of=case, window=window, estimator=Estimator.PUBLISHED
        )
        for each in (log, TRAPS[trap](log))
    ]
    assert runs[0].status is RunStatus.OK
    assert runs[0] == runs[1]


@pytest.mark.parametrize("blank", ["", "\n"])
@pytest.mark.parametrize("name", ["pytorch_imagenet", "plsc", "paddle_resnet", "dllogger"])
def test_records_glued_on_a_line_are_all_there(tmp_path, name, blank):
    log_format, log, case, window = LOGS[name]
    lines = log.splitlines()
    glued = "".join(line + ("" if k % 3 else f"\n{blank}") for k, line in enumerate(lines))
    clean = make.measured(tmp_path, log, log_format, of=case, window=window)
    assert make.measured(tmp_path, glued, log_format, of=case, window=window) == clean


def test_a_block_may_be_glued_to_the_next_ranks_head(tmp_path):
    _, log, case, _ = LOGS["pytorch_imagenet"]
    blocks = make.pytorch_imagenet(RANKS, block=61)
    glued = re.sub(r"\nUse GPU: 1", "Use GPU: 1", blocks)
    assert glued != blocks
    clean = make.measured(tmp_path, log, "pytorch_imagenet", of=case)
    assert make.measured(tmp_path, glued, "pytorch_imagenet", of=case) == clean


@pytest.mark.parametrize("name", ["paddle_resnet", "plsc", "dllogger", "tf_models_bert"])
def test_colours_in_front_of_a_record(tmp_path, name):
    log_format, log, case, window = LOGS[name]
    coloured = log.replace("DLL ", "\x1b[36mDLL \x1b[0;1m").replace(" - Epoch", "\x1b[0m - Epoch")
    coloured = coloured.replace("Train Step", "\x1b[0mTrain Step").replace("[Pass", "\x1b[0m[Pass")
    lines = "".join(COLOURED + line for line in coloured.splitlines(keepends=True))
    clean = make.measured(tmp_path, log, log_format, of=case, window=window)
    assert make.measured(tmp_path, lines, log_format, of=case, window=window) == clean


@pytest.mark.parametrize(
    ("name", "needed", "cut"),
    [
        ("paddle_resnet", "batch 119]", "elapse 0.3"),
        ("plsc", "batch:150 ", "qps:9466.0"),
        ("pytorch_imagenet", "[125/150]", "Time  0"),
        ("tf_models_bert", "Step: 120/", "Step: 12"),
        ("dllogger", "Iteration: 125 ", "Iteration: 12"),
        ("dlperf", "step=120 ", "time=10"),
        ("custom", "it 120 ", "took 3"),
    ],
)
def test_a_number_that_is_cut_off_is_none(tmp_path, name, needed, cut):
    log_format, log, case, window = LOGS[name]
    end = log.index(cut, log.rindex(needed) - 60) + len(cut)
    run = make.measured(tmp_path, log[:end], log_format, of=case, window=window)
    assert run.status is RunStatus.INVALID
    assert run.reason is not None
    assert "too few steps" in run.reason


@pytest.mark.parametrize("estimator", Estimator)
@pytest.mark.parametrize("name", ["pytorch_imagenet", "plsc"])
def test_ranks_that_show_behind_the_window_are_seen(tmp_path, name, estimator):
    log_format, log, case, window = LOGS[name]
    more = log + log.replace("Use GPU: ", "Use GPU: 1")
    run = make.measured(tmp_path, more, log_format, of=case, window=window, estimator=estimator)
    assert run.status is RunStatus.INVALID
    assert run.reason is not None
    assert "more than 2" in run.reason


def test_a_window_of_many_steps_keeps_little_of_each(tmp_path):
    import tracemalloc

    steps = 15_000
    log = make.dllogger([0.25] * steps)
    window = Window(warmup_steps=20, measured_steps=steps - 25)
    tracemalloc.start()
    try:
        run = make.measured(tmp_path, log, "dllogger", window=window)
        base = len(log) * 2  # what the test itself holds while it writes the file
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert run.metrics.get("throughput") == 512
    assert peak < base + (4 << 20) + 500 * steps
