"""The second witness: what a log prints against when its lines came, or the stamps they bear."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

import pytest
from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.formats.log_format import custom_format
from pytest_dlperf.logs.arrivals import Arrivals, ArrivalsWriter, arrivals_of
from pytest_dlperf.logs.throughput import LogReading
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import Estimator, RunStatus, Window
from pytest_dlperf.model.metric import THROUGHPUT

pytestmark = pytest.mark.in_process

CASE = Case.from_id("plain-gpt-bf16-b4-1n1g")
SECONDS = custom_format("plain", record=r"step (?P<step>[0-9]+) took (?P<seconds>[0-9.]+) s")
BARE = custom_format("bare", record=r"step (?P<step>[0-9]+) done")
RATE = custom_format("rate", record=r"step (?P<step>[0-9]+) at (?P<samples_per_second>[0-9.]+)")
STEP_S = 0.1


class Written(Struct, frozen=True):
    """A log, and when its pieces came: seconds since whenever."""

    lines: Sequence[str]
    came: Sequence[float] = ()
    in_front: str = ""

    def write(self, log):
        text = [f"{line}\n".encode() for line in self.lines]
        log.write_bytes(self.in_front.encode() + b"".join(text))
        end = 0
        arrivals = []
        for line, seconds in zip(text, self.came, strict=False):
            end += len(line)
            if arrivals and arrivals[-1][1] == int(seconds * 1e6):
                arrivals.pop()
            arrivals.append((end, int(seconds * 1e6), 0))
        if arrivals:
            ArrivalsWriter(log).add(arrivals, b"".join(text)[:64].decode())


def measured(
    log,
    log_format=SECONDS,
    *,
    case=CASE,
    window=(2, 18),
):
    return LogReading(
        log,
        number=1,
        case=case,
        log_format=log_format,
        window=Window(warmup_steps=window[0], measured_steps=window[1]),
        estimator=Estimator.STEADY,
    ).finish()


def training(*, printed=1.0, steps=20, front=""):
    """Steps of the same length; a record's time is so many times what it took."""
    return Written(
        [f"{front}step {step} took {printed * STEP_S:.4f} s" for step in range(1, steps + 1)],
        [100 + step * STEP_S for step in range(1, steps + 1)],
    )


@pytest.fixture
def log(tmp_path):
    return tmp_path / "run_1.log"


# ---------------------------------------------------------------------- by arrivals


@pytest.mark.parametrize("printed", [0.25, 0.8, 1.2, 1000.0])
def test_a_time_that_did_not_pass_is_invalid_and_both_numbers_are_told(log, printed):
    training(printed=printed).write(log)
    run = measured(log)
    assert run.status is RunStatus.INVALID
    assert run.reason is not None
    assert f"{4 / STEP_S / printed:.6g} samples/s" in run.reason
    assert f"{4 / STEP_S:.6g} samples/s" in run.reason
    assert "micro-batch" in run.reason


@pytest.mark.parametrize("printed", [0.95, 1.0, 1.05])
def test_a_time_that_passed_is_right(log, printed):
    training(printed=printed).write(log)
    assert measured(log).metrics[THROUGHPUT] == pytest.approx(40 / printed, rel=1e-3)


def in_bursts(written, size):
    """The same lines, of which so many come at once, with the last of them."""
    came = list(written.came)
    ends = [came[min((at // size + 1) * size, len(came)) - 1] for at in range(len(came))]
    return replace(written, came=ends)


@pytest.mark.parametrize("size", [2, 7, 40, 1000])
@pytest.mark.parametrize("printed", [0.95, 1.05])
def test_output_that_was_held_back_is_no_contradiction(log, size, printed):
    in_bursts(training(printed=printed, steps=200), size).write(log)
    assert measured(log, window=(20, 150)).status is RunStatus.OK


@pytest.mark.parametrize("warmup", [5, 20])
def test_even_in_bursts_a_quarter_of_the_time_is_seen(log, warmup):
    in_bursts(training(printed=0.25, steps=200), 7).write(log)
    assert measured(log, window=(warmup, 150)).status is RunStatus.INVALID


def test_a_pause_in_output_that_came_in_few_pieces_is_no_contradiction(log):
    lines = training(steps=200)
    came = [at + 4 * (at > 106) + 4.1 * (at > 110) for at in lines.came]
    came = [5.0 * math.ceil(at / 5) for at in came]
    replace(lines, came=came).write(log)
    assert measured(log, window=(20, 100)).status is RunStatus.OK


def test_a_log_that_came_all_at_once_has_no_witness(log):
    lines = training(printed=0.25)
    replace(lines, came=[100 + 0.03 * at for at, _ in enumerate(lines.lines)]).write(log)
    assert measured(log).status is RunStatus.OK


def test_what_a_launcher_prints_in_front_shifts_nothing(log):
    written = replace(training(printed=0.25), in_front="Warning: added the host's key\n" * 3)
    written.write(log)
    assert measured(log).status is RunStatus.INVALID
    replace(written, lines=training().lines).write(log)
    assert measured(log).status is RunStatus.OK


def test_arrivals_of_another_log_count_nothing(log):
    training(printed=0.25).write(log)
    log.write_text("".join(f"{line}\n" for line in training(front="> ", printed=0.25).lines))
    assert measured(log).status is RunStatus.OK


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace(b"\n", b"\nx 1\n", 3),
        lambda text: b"\0" * len(text),
        lambda text: text + b"-5 -5\n1 2 3 4 5\n",
        lambda _: b"",
        lambda _: b"[]\n1 1\n",
        lambda text: text.replace(b"{", b'{"anchor": 5}\n{'),
        lambda text: b"[" * 100_000 + b"\n" + text,
        lambda text: text + b"1 %d\n1 1\n" % 10**30,
        lambda text: text + b"%d 1\n1 1\n" % 10**18,
        lambda text: text + b"1 1\n1 -%d\n" % 10**18,
    ],
)
def test_a_damaged_file_of_arrivals_breaks_no_reading(log, spoil):
    training().write(log)
    file = arrivals_of(log)
    file.write_bytes(spoil(file.read_bytes()))
    assert measured(log).status is RunStatus.OK


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_of_arrivals_is_not_read(log, make):
    training().write(log)
    arrivals_of(log).unlink()
    make(arrivals_of(log))
    assert measured(log).status is RunStatus.OK


@pytest.mark.parametrize(("printed", "status"), [(1.0, RunStatus.OK), (0.25, RunStatus.INVALID)])
def test_pauses_between_epochs_are_no_steps(log, printed, status):
    with_epochs = custom_format(
        "epochs", record=r"epoch (?P<epoch>[0-9]+) step (?P<step>[0-9]+) took (?P<seconds>[0-9.]+)"
    )
    step_s = 0.2
    lines, came, now = [], [], 0.0
    for epoch in range(4):
        now += 5
        for step in range(1, 11):
            now += step_s
            lines.append(f"epoch {epoch} step {step} took {printed * step_s} s")
            came.append(now)
    Written(lines, came).write(log)
    assert measured(log, with_epochs, window=(5, 30)).status is status


@pytest.mark.parametrize(("printed", "status"), [(1.0, RunStatus.OK), (0.25, RunStatus.INVALID)])
@pytest.mark.parametrize("size", [1, 20])
def test_a_few_pauses_within_the_window_are_no_steps(log, printed, status, size):
    lines = training(printed=printed, steps=300)
    came = [at + 5 * (at > 112) + 9 * (at > 118) for at in lines.came]
    in_bursts(replace(lines, came=came), size).write(log)
    assert measured(log, window=(20, 250)).status is status


@pytest.mark.parametrize(("printed", "status"), [(1.0, RunStatus.OK), (0.25, RunStatus.INVALID)])
def test_a_log_that_ends_before_the_windows_last_step_is_printed_is_seen(log, printed, status):
    lines = training(printed=printed, steps=60)
    Written(lines.lines[9::10], lines.came[9::10]).write(log)
    assert measured(log, window=(12, 50)).status is status


def test_a_line_of_another_buffer_says_nothing_of_records_that_are_held_back(log):
    one = in_bursts(training(steps=60), 15)
    lines, came = [], []
    for line, at in zip(one.lines, one.came, strict=True):
        if at not in came:
            lines.append("a warning")
            came.append(at - 0.05)
        lines.append(line)
        came.append(at)
    Written(lines, came).write(log)
    assert measured(log, window=(14, 17)).status is RunStatus.OK


def test_a_record_that_comes_alone_out_of_a_buffer_may_be_old(log):
    lines = training(steps=50)
    came = [103.0] * 20 + [105.0] * 25 + [114.0] + [119.0] * 4
    replace(lines, came=came).write(log)
    assert measured(log, window=(20, 26)).status is RunStatus.OK


def test_ranks_without_names_have_buffers_of_their_own(log):
    local = custom_format(
        "local", record=r"step (?P<step>[0-9]+) took (?P<seconds>[0-9.]+) s", ranks="local"
    )
    steps = training(steps=60).lines
    pieces = [  # each of two ranks flushes every 3 s, one of them soon after the other
        (100.9, steps[:9]),
        (101.0, steps[:10]),
        (103.9, steps[9:39]),
        (104.0, steps[10:40]),
        (106.9, steps[39:]),
        (107.0, steps[40:]),
    ]
    lines = [line for _, part in pieces for line in part]
    came = [at for at, part in pieces for _ in part]
    Written(lines, came).write(log)
    case = Case.from_id("plain-gpt-bf16-b4-1n2g")
    assert measured(log, local, case=case, window=(8, 33)).status is RunStatus.OK


def test_ranks_that_print_at_once_are_one_step(log):
    local = custom_format(
        "local", record=r"step (?P<step>[0-9]+) took (?P<seconds>[0-9.]+) s", ranks="local"
    )
    one = training()
    lines = [line for line in one.lines for _ in range(4)]
    came = [seconds for seconds in one.came for _ in range(4)]
    case = Case.from_id("plain-gpt-bf16-b4-1n4g")
    Written(lines, came).write(log)
    assert measured(log, local, case=case).status is RunStatus.OK
    Written([line.replace("0.1", "0.025") for line in lines], came).write(log)
    assert measured(log, local, case=case).status is RunStatus.INVALID


# ---------------------------------------------------------------------- by stamps


def stamped(written, *, of="2026-03-03 18:{m:02d}:{s:06.3f}: ", grain=0.001):
    """The lines with stamps of when they came, and no arrivals."""
    lines = []
    for line, seconds in zip(written.lines, written.came, strict=True):
        rounded = seconds // grain * grain if grain >= 1 else seconds
        minutes, rest = divmod(rounded, 60)
        lines.append(of.format(m=int(minutes), s=rest, i=int(rest)) + line)
    return Written(lines)


STAMPS = {
    "dated": "[2026-03-03 18:{m:02d}:{s:06.3f}] [INFO] - ",
    "glog": "I0303 18:{m:02d}:{s:09.6f} 4711 train.cc:12] ",
    "time of day": "18:{m:02d}:{s:06.3f} INFO ",
}


@pytest.mark.parametrize("of", STAMPS.values(), ids=STAMPS)
def test_stamps_in_front_of_the_lines_are_a_witness(log, of):
    stamped(training(printed=0.25), of=of).write(log)
    run = measured(log)
    assert run.status is RunStatus.INVALID
    assert "160 samples/s" in str(run.reason)
    assert "40 samples/s" in str(run.reason)
    stamped(training(printed=1.05), of=of).write(log)
    assert measured(log).status is RunStatus.OK


WHOLE_SECONDS = "2026-03-03 18:{m:02d}:{i:02d} "


@pytest.mark.parametrize(("printed", "status"), [(0.25, "invalid"), (1.0, "ok")])
def test_whole_seconds_are_a_witness_of_a_long_window(log, printed, status):
    long = training(printed=printed, steps=400)
    stamped(long, of=WHOLE_SECONDS, grain=1.0).write(log)
    assert measured(log, window=(20, 350)).status.value == status
    assert measured(log, window=(20, 30)).status is RunStatus.OK


@pytest.mark.parametrize(("printed", "status"), [(1.0, RunStatus.OK), (0.25, RunStatus.INVALID)])
def test_stamps_know_a_pause_from_slow_steps(log, printed, status):
    lines = training(printed=printed, steps=300)
    came = [at + 15 * (at > 112) for at in lines.came]
    stamped(replace(lines, came=came)).write(log)
    assert measured(log, window=(20, 250)).status is status


@pytest.mark.parametrize("size", [5, 80])
def test_stamps_that_a_collector_gave_to_held_back_lines_are_none(log, size):
    held = in_bursts(training(printed=0.5, steps=300), size)
    stamped(held).write(log)
    assert measured(log, window=(20, 60)).status is RunStatus.OK


def test_rates_are_held_against_stamps_too(log):
    times = training().came
    lines = [f"step {step} at 400.0" for step in range(1, 21)]
    stamped(Written(lines, times)).write(log)
    assert measured(log, RATE).status is RunStatus.INVALID


def test_a_time_that_is_left_in_front_is_no_stamp(log):
    written = training(printed=0.25)
    lines = [
        f" 50%|##| {at}/20 [01:00:{59 - at:02d}<00:00:{59 - at:02d}] {line}"
        for at, line in enumerate(written.lines)
    ]
    Written(lines).write(log)
    assert measured(log).status is RunStatus.OK


# ---------------------------------------------------------------------- records without a time


def bare(came):
    times = list(came)
    return Written([f"step {step} done" for step in range(1, len(times) + 1)], times)


def test_a_record_without_a_time_counts_when_it_came(log):
    bare(training().came).write(log)
    assert measured(log, BARE).metrics[THROUGHPUT] == pytest.approx(40, rel=1e-3)


def test_without_arrivals_a_record_without_a_time_is_invalid_and_says_what_to_do(
    log,
):
    bare(training().came).write(log)
    arrivals_of(log).unlink()
    run = measured(log, BARE)
    assert run.status is RunStatus.INVALID
    assert str(arrivals_of(log)) in str(run.reason)
    assert "seconds" in str(run.reason)


def test_block_buffered_records_without_a_time_are_told_and_not_measured(log):
    in_bursts(bare(training(steps=200).came), 80).write(log)
    run = measured(log, BARE, window=(20, 150))
    assert run.status is RunStatus.INVALID
    assert "PYTHONUNBUFFERED=1" in str(run.reason)
    assert "flush=True" in str(run.reason)


def test_a_log_whose_arrivals_are_late_is_read_when_they_are_there(log):
    written = bare(training().came)
    written.write(log)
    arrivals = arrivals_of(log).read_bytes()
    half = arrivals[: len(arrivals) // 2]
    arrivals_of(log).write_bytes(half)
    reading = LogReading(
        log,
        number=1,
        case=CASE,
        log_format=BARE,
        window=Window(warmup_steps=2, measured_steps=18),
        estimator=Estimator.STEADY,
    )
    reading.advance()
    assert 0 < reading.steps.found < 20
    arrivals_of(log).write_bytes(arrivals)
    reading.advance()
    assert reading.steps.found == 20
    assert reading.finish() == measured(log, BARE)


def test_what_came_is_known_by_its_place(log):
    written = bare([1.0, 1.5, 1.5, 4.0])
    replace(written, in_front="hello\n").write(log)
    arrivals = Arrivals(log)
    assert (arrivals.known, arrivals.at(6)) == (0, None)
    arrivals.refresh()
    assert arrivals.known == log.stat().st_size
    places = [0, 6, 17, 18, 41, 42, arrivals.known]
    seconds = [None, 1.0, 1.0, 1.5, 1.5, 4.0, None]
    found = [arrivals.at(place) for place in places]
    assert [at if at is None else at / 1e9 for at in found] == seconds


# ---------------------------------------------------------------------- launched runs

TRAINER = """\
import os, sys, time
behaviour, steps = sys.argv[1], int(sys.argv[2])
out = open(1, "w", buffering=8192) if behaviour == "buffered" else sys.stdout
factor = {"micro-batch": 0.25}.get(behaviour, 1)
last = time.monotonic()
for step in range(1, steps + 1):
    time.sleep(0.1)
    now = time.monotonic()
    print(f"step {step} took {(now - last) * factor:.4f} s", file=out)
    last = now
out.flush()
"""
SYSTEM = """\
framework: plain
model: gpt
unit: samples/s
log:
  name: gpt
  format: {{record: '{record}'}}
window: {{warmup_steps: 2, measured_steps: 14}}
repeats: 1
launch:
  devices: cpu
  command: ["{{python}}", "{trainer}", "{behaviour}", "{{steps}}"]
cases:
  - {{precision: bf16, batch_per_device: 4, topologies: [1n1g]}}
"""
TIMED = "step (?P<step>[0-9]+) took (?P<seconds>[0-9.]+) s"
UNTIMED = "step (?P<step>[0-9]+) "


def launched(suite, behaviour, record=TIMED):
    """Launch the only case, and give its only run."""
    trainer = suite.path / "train.py"
    trainer.write_text(TRAINER, encoding="utf-8")
    suite.system_file(SYSTEM.format(record=record, trainer=trainer, behaviour=behaviour))
    _, results = suite.judge("-k", "gpt", "--dlperf-run-dir", suite.path / "night", cluster="local")
    return results["cases"][0]["measurement"]["runs"][0]


@pytest.mark.slow
def test_a_trainer_that_prints_the_time_of_a_micro_batch_is_invalid(suite):
    run = launched(suite, "micro-batch")
    assert run["status"] == "invalid"
    assert "micro-batch" in run["reason"]


@pytest.mark.slow
@pytest.mark.parametrize("behaviour", ["honest", "buffered"])
def test_a_sound_trainer_is_ok(suite, behaviour):
    run = launched(suite, behaviour)
    assert (run["status"], run["reason"]) == ("ok", None)


@pytest.mark.slow
def test_a_trainer_that_prints_no_time_is_measured_live_and_later_from_its_log(
    suite,
):
    run = launched(suite, "honest", UNTIMED)
    assert run["status"] == "ok"
    assert 10 < run["metrics"]["throughput"] < 60  # 40 without any other load
    _, results = suite.judge(
        "-k", "gpt", "--dlperf-logs", f"plain-gpt={suite.path / 'night'}", cluster="local"
    )
    [case] = results["cases"]
    [again] = case["measurement"]["runs"]
    assert again["metrics"]["throughput"] == run["metrics"]["throughput"]


def test_runs_of_existing_logs_say_what_was_their_witness(suite):
    suite.system_file(SYSTEM.format(record=TIMED, trainer="train.py", behaviour="honest"))
    folder = suite.path / "logs" / "1n1g"
    folder.mkdir(parents=True)
    for run, written in enumerate((training(), training(), stamped(training())), start=1):
        written.write(folder / f"gpt_b4_bf16_{run}.log")
    arrivals_of(folder / "gpt_b4_bf16_2.log").unlink()
    _, results = suite.judge(
        "-k", "gpt", "--dlperf-logs", f"plain-gpt={folder.parent}", "--dlperf-repeats", "3",
        cluster="local",
    )  # fmt: skip
    runs = results["cases"][0]["measurement"]["runs"]
    assert [run["witness"] for run in runs] == ["arrivals", "none", "stamps"]
