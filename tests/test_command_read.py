"""``pytest-dlperf read``: what a log is, what it holds, and a system file to begin with."""

import gzip
import io
import os
import random
import re
import shlex
import subprocess
from contextlib import redirect_stderr, redirect_stdout
from datetime import datetime, timedelta
from itertools import accumulate, islice
from pathlib import Path

import log_makers
import pytest
import yaml
from growth import bytes_read

from pytest_dlperf.command.main import main
from pytest_dlperf.config.systems import load_systems, system_of_text
from pytest_dlperf.formats.expressions import compiled
from pytest_dlperf.formats.log_format import Ranks
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS
from pytest_dlperf.model.case import Case
from pytest_dlperf.survey.expressions import stated_facts
from pytest_dlperf.survey.head import REACH, HeadOfLog
from pytest_dlperf.survey.identify import identify

ROOT = Path(__file__).parent.parent
LOGS = ROOT / "tests" / "data" / "logs"
EXPECTED = yaml.safe_load((LOGS.parent / "read.yaml").read_text(encoding="utf-8"))
OWN = """
framework: own
model: net
unit: samples/s
log:
  name: net
  format:
    record: 'it (?P<step>[0-9]+) took (?P<seconds>[0-9.]+) s'
    facts: {global_batch: 'global batch ([0-9]+)'}
window: {warmup_steps: 1, measured_steps: 4}
cases:
  - {precision: fp32, global_batch: 8, topologies: [1n1g]}
  - {precision: fp32, global_batch: 16, topologies: [1n1g]}
"""
OWN_LOG = "global batch 16\n" + "".join(f"it {step} took 0.5 s\n" for step in range(1, 8))


def identified(log, case=None):
    return identify(HeadOfLog(log), {}, BUILTIN_FORMATS, case)


def read(folder, *arguments):
    """Run the command in this process, and in that folder."""
    out, err, before = io.StringIO(), io.StringIO(), Path.cwd()
    os.chdir(folder)
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = main(["read", *map(str, arguments)])
    except SystemExit as ended:  # the parser's
        code = int(ended.code or 0)
    finally:
        os.chdir(before)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def rows(output):
    """The rows of one log by their labels, broken lines joined."""
    found = {}
    label = ""
    for line in output.splitlines()[1:]:
        label = line[2:14].strip() or label
        found[label] = f"{found.get(label, '')} {line[14:]}".strip()
    return found


# ------------------------------------------------------------------------ logs that are known


@pytest.mark.parametrize("name", EXPECTED)
def test_a_log_is_read_and_what_is_written_reads_it_again(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    log = LOGS / f"{name}.log"
    done = read(tmp_path, log, "--write", "own.yaml")
    kind, *expected = EXPECTED[name]
    found = rows(done.stdout)
    if not expected:
        assert (done.returncode, done.stdout.partition("\n")[0]) == (2, f"{log}: {kind}")
        assert re.search("extends: (?:accelerate|huggingface|lightning)'", found["next"])
        assert "nothing was found" in done.stderr
        return
    case, time, steps, throughput = expected
    assert done.stdout.startswith(f"{log}: a log of {kind}\n")
    assert found["time"].startswith(time)
    assert found["steps"].startswith(f"{steps}, ")
    assert found["throughput"].startswith(throughput)
    text = (tmp_path / "own.yaml").read_text(encoding="utf-8")
    assert ("extends: " in text) != ("\nlog:\n" in text)
    again = system_of_text(text, Path("own.yaml"), BUILTIN_FORMATS)
    assert [each.id for each in again.cases] == [case]
    assert HeadOfLog(log).steps(again.log_format) is not None
    assert main(["check", "--systems", str(tmp_path)]) == 0


def test_precision_and_options_of_a_log_are_those_of_its_case():
    found = identified(LOGS / "dllogger_1n8g_b128.log")
    assert found.case.precision == "amp"
    assert found.case.options == ("dali", "static_loss_scale")
    assert "precision: the log agrees with amp, fp16" in found.unsure


def test_a_case_may_be_given():
    case = Case.from_id("own-net-bf16-gb256-s64-2n8g")
    found = identified(LOGS / "timm_1n2g_b4.log", case)
    assert found.case.id == case.id
    assert "--case" in found.batch_source


def test_the_systems_of_the_project_come_first(tmp_path):
    (tmp_path / "own.yaml").write_text(OWN, encoding="utf-8")
    log = tmp_path / "slurm-1.out"
    log.write_text(OWN_LOG, encoding="utf-8")
    systems = load_systems([tmp_path / "own.yaml"], BUILTIN_FORMATS)

    found = identify(HeadOfLog(log), systems, BUILTIN_FORMATS, None)

    assert found.system.id == "own-net"
    assert [case.id for case in found.cases] == ["own-net-fp32-gb16-1n1g"]
    assert found.case == found.cases[0]
    assert found.draft is None


def test_steps_are_counted_over_epochs_and_ranks(tmp_path):
    log = tmp_path / "a.log"
    seconds = log_makers.seconds(60)
    log.write_text(
        log_makers.pytorch_imagenet([seconds, seconds], epoch_length=20), encoding="utf-8"
    )
    steps = HeadOfLog(log).steps(BUILTIN_FORMATS["pytorch_imagenet"])
    assert (steps.epochs, steps.printers, steps.interval) == (3, 2, 1)
    assert (steps.first, steps.last, steps.records) == (0, 19, 120)


def test_a_clock_of_twelve_hours_is_guessed(tmp_path):
    """A step takes two seconds; midnight passes, and so does the end of a month."""
    begin = datetime(2026, 11, 30, 23, 59, 30)  # noqa: DTZ001 - logs tell no zone
    now = (begin + timedelta(seconds=2 * k) for k in range(1, 61))
    (tmp_path / "us.log").write_text(
        "".join(f"{at:%m/%d/%y %I:%M:%S %p} step {k} loss 3.5\n" for k, at in enumerate(now, 1))
    )
    said = rows(read(tmp_path, "us.log", "--case", "own-net-fp32-gb64-1n1g").stdout)
    assert said["steps"].startswith("1 to 60, ")
    assert said["throughput"].startswith("32.00 samples/s")


# ----------------------------------------------------------------------------------- guesses


def ms_swift():
    """Lines as ms-swift prints them, with a mean so far: the first step took 40 s, others 1.2."""
    for step in range(5, 501, 5):
        passed = 40 + 1.2 * (step - 1)
        clock = f"{passed // 60:.0f}m {int(passed % 60)}s"
        yield (
            f"{{'loss': {3 - step / 500:.8f}, 'epoch': {step / 900:.2f}, 'global_step/max_steps': "
            f"'{step}/500', 'percentage': '{step / 5:.2f}%', 'elapsed_time': '{clock}', "
            f"'remaining_time': '1m 2s', 'train_speed(iter/s)': {step / passed:.6f}}}\n"
        )


@pytest.mark.parametrize(
    ("lines", "form", "steps"),
    [
        (
            [f'{{"step": {n}, "perf": 1, "step_time": 0.{n % 3 + 1}}}\n' for n in range(1, 30)],
            {"json": {"step": "step", "seconds": "step_time"}},
            (1, 29),
        ),
        (
            ms_swift(),
            {
                "json": {
                    "step": "global_step/max_steps",
                    "steps_per_second": "train_speed(iter/s)",
                },
                "covers": "since_start",
            },
            (5, 500),
        ),
        (
            [
                "step,epoch,step_time,train/loss\n",
                *(f"{n},{n // 20},0.{n % 3 + 1},3.5\n{n},,,\n" for n in range(40)),
            ],
            {"csv": {"step": "step", "seconds": "step_time"}},
            (0, 39),
        ),
    ],
)
def test_objects_and_tables_are_read_by_key(tmp_path, lines, form, steps):
    log = tmp_path / "metrics"
    log.write_text("".join(lines), encoding="utf-8")
    found = identified(log)
    assert found.draft.keys["log"]["format"] == form
    assert (found.steps.first, found.steps.last) == steps


# ------------------------------------------------- numbers, held against the rest of their lines


SECONDS = [0.5 + n % 5 / 20 for n in range(120)]
"""Of steps: 0.6 s on average, so that 256 samples a step are 426.67 a second."""


def stamped(lines, seconds):
    """Put the time of day in front of lines, each so many seconds after the one before."""
    passed = accumulate(seconds, initial=36_000.0)
    return [
        f"[{int(at) // 3600:02}:{int(at) // 60 % 60:02}:{at % 60:06.3f}] {line}"
        for line, at in zip(lines, islice(passed, 1, None), strict=True)
    ]


PART = [f"step {n} time: {s / 2:.4f}" for n, s in enumerate(SECONDS)]


def test_records_that_are_counted_and_means_of_trainers_are_marked_and_differenced(
    tmp_path,
):
    """LLaMA-Factory prints a mean since the start, every some steps, and numbers none."""
    passed = list(accumulate(SECONDS))
    text = "".join(
        f"{{'loss': 9.1, 'learning_rate': 1e-05, 'epoch': 0.01, 'throughput': {1e5 * n / t:.4f}}}\n"
        for n, t in enumerate(passed, 1)
    )
    (tmp_path / "a.log").write_text(text, encoding="utf-8")
    found = rows(read(tmp_path, "a.log", "--write", "own.yaml").stdout)
    value, _, words = found["throughput"].partition(" ")
    assert float(value) == pytest.approx(1e5 / 0.6, rel=1e-4)
    assert words == "tokens/s (as printed)"
    assert "step: count  # ? " in (tmp_path / "own.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("step {n} tokens/s: 409{d}", "4094.20 tokens/s (as printed)"),
        (
            "step {n} tokens/s/gpu: 409{d} world_size=8",
            "32753.60 tokens/s (8 times what is printed)",
        ),
        ("step {n} samples/s: 20{d}", "204.20 samples/s (as printed)"),
    ],
)
def test_a_speed_needs_neither_batch_nor_length(tmp_path, line, said):
    """By hand: the harmonic mean of x0 … x9 over 100 steps."""
    text = "".join(line.format(n=n, d=n % 10) + "\n" for n in range(1, 200))
    (tmp_path / "a.log").write_text(text, encoding="utf-8")
    value, _, rest = rows(read(tmp_path, "a.log").stdout)["throughput"].partition(" ")
    expected, _, words = said.partition(" ")
    assert float(value) == pytest.approx(float(expected), rel=2e-3)
    assert rest == words


def test_steps_that_count_samples_are_no_steps_per_second(tmp_path):
    """The warm-up is of steps, too: the first ten are slow."""
    passed = accumulate([3.0] * 10 + SECONDS)
    text = "".join(
        f':::MLLOG {{"namespace": "", "time_ms": {1726752206000 + int(t * 1000)}, "event_type": '
        f'"POINT_IN_TIME", "key": "tracked_stats", "value": {{"throughput": 1.9}}, "metadata": '
        f'{{"step": {256 * n}}}}}\n'
        for n, t in enumerate(passed, 1)
    )
    (tmp_path / "a.log").write_text(text, encoding="utf-8")
    found = rows(read(tmp_path, "a.log").stdout)
    value, _, words = found["throughput"].partition(" ")
    assert float(value) == pytest.approx(256 / 0.6, rel=1e-4)
    assert words == "samples/s (steps are samples)"
    assert found["window"].startswith("steps 5121 to 30720,")


SLOW_FIRST = [2.0] * 10 + [0.5] * 140
CODE = """\
def send(x):
    # Handle world_size=1: nothing is sent then
    pass
class Attention:
    def __init__(self):
        self.block_size = 128
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        # An excerpt: its window lies within it.
        (
            "".join(f"step:{n}/20000 took 2.1{n % 7} s\n" for n in range(11350, 11500)),
            {"window": "steps 11370 to 11469,", "throughput": "0.4"},
        ),
        # What a trainer prints of its source says nothing of the run.
        (
            CODE + "".join(f"step {n} took 0.5{n % 7} s\n" for n in range(60)),
            {"facts": "none", "unsure": "topologies: how many nodes and devices"},
        ),
        (
            "  nproc_per_node   : 8\nnnodes=2\nglobal_batch_size: 64\n"
            + "".join(f"step {n} took 0.5 s\n" for n in range(60)),
            {"facts": "global_batch 64; devices_per_node 8; nodes 2", "throughput": "128.00"},
        ),
        # Validation repeats the number of a step, and the time.
        (
            "".join(
                f"step:{n}/200 val_loss:9.1 train_time:{33 * n}ms step_avg:33.05ms\n" * (n == 50)
                + f"step:{n}/200 train_time:{33 * n}ms step_avg:33.05ms\n"
                for n in range(1, 201)
            ),
            {"steps": "1 to 200, each printed; 200 records", "throughput": "30.3 steps/s"},
        ),
        # A record without a time has the stamp that its line begins with.
        (
            "".join(
                f"2026-11-20 10:{n // 60:02}:{n % 60:02}.500\thost:0\t[step={n}/900,epoch=1]\n"
                "    train/CE loss=9.5\n"
                for n in range(1, 200)
            ),
            {"time": "timestamp:", "throughput": "1 steps/s"},
        ),
        # A bar is drawn before the first step.
        (
            "".join(
                f"{n}%|#| {n}/101 [00:{20 * (n > 0) + 8 * n:02}<34:51, 9.9s/it]\r" for n in range(5)
            ),
            {"steps": "1 to 4,", "throughput": "0.125 steps/s"},
        ),
        # The time of ten steps stands beside the number of the tenth; another line has the speed.
        (
            "".join(
                f"INFO: global_step/sec: 5.3{n % 9}\n"
                f"INFO: loss = 2.3, step = {10 * n + 5} (1.8{n % 9} s)\n"
                for n in range(1, 60)
            ),
            {"throughput": "5.3"},
        ),
        (
            "".join(
                f"Epoch: [0]  [{n:4d}/5005]  eta: 4:43:31  lr: 0.1  img/s: 76.3  loss: 2.0 (6.9)  "
                f"time: {sum(SLOW_FIRST[max(n - 19, 0) : n + 1]) / min(n + 1, 20):.4f}  data: 0.0\n"
                for n in range(150)
            ),
            {"unsure": "its time is a mean of the last 20 steps: print every 20th"},
        ),
        # The bare throughput of LLaMA-Factory is of tokens since the start; the time needs neither.
        (
            "".join(
                f'{{"current_steps": {n}, "total_steps": 200, "loss": {3 - n / 100}, '
                f'"elapsed_time": "0:{2 + n // 60:02}:{n % 60:02}", '
                f'"throughput": {4096 * n / (120 + n)}}}\n'
                for n in range(5, 201, 5)
            ),
            {"throughput": "1 steps/s"},
        ),
    ],
)
def test_of_a_log_is_said_what_stands_in_it(tmp_path, text, said):
    (tmp_path / "a.log").write_text(text, encoding="utf-8")
    found = rows(read(tmp_path, "a.log").stdout)
    for label, part in said.items():
        assert part in found[label], (label, found[label])


@pytest.mark.parametrize(
    ("lines", "marked"),
    [
        # Ten steps in five seconds by six lines, which call two and a half the time of one.
        (
            [
                f"[2020/11/16 11:{11 + n // 12}:{5 * n % 60:02}] root INFO: iter: {10 * n}, "
                f"loss: 0.6, batch_cost: 2.5{n % 3} s\n"
                for n in range(1, 7)
            ],
            "record: .*# [?].*contradicts the time stamps: 2[.]5",
        ),
        # A counter that counts tokens, where samples are expected.
        (
            [
                '":::MLLOG {"key": "global_batch_size", "value": 2048}\n',
                ':::MLLOG {"key": "max_sequence_length", "value": 2048}\n',
                *(
                    f':::MLLOG {{"namespace": "", "time_ms": {1728322870879 + 18470 * n}, '
                    '"event_type": "POINT_IN_TIME", "key": "tracked_stats", "value": '
                    f'{{"train_step_timing in s": 18.4{n % 7}}}, "metadata": {{"step": '
                    f"{4194304 * n}}}}}\n"
                    for n in range(1, 41)
                ),
            ],
            "global_batch: 2048  # [?] contradicts train_step_timing in s",
        ),
    ],
)
def test_a_number_that_the_log_contradicts_is_marked(tmp_path, lines, marked):
    (tmp_path / "a.log").write_text("".join(lines), encoding="utf-8")
    read(tmp_path, "a.log", "--write", "own.yaml")
    assert re.search(marked, (tmp_path / "own.yaml").read_text(encoding="utf-8"))


OF_ALL_RANKS = """\
framework: mine
model: own
unit: samples/s
log:
  name: own
  format:
    record: 'per step time: (?P<milliseconds>[0-9.]+) ms'
    step: count
    ranks: all
window: {warmup_steps: 20, measured_steps: 100}
cases: [{precision: fp32, batch_per_device: 4, topologies: [1n1g, 1n8g]}]
"""


def test_how_many_ranks_print_records_without_a_number_is_asked_for(tmp_path):
    (tmp_path / "bench_tests/systems").mkdir(parents=True)
    (tmp_path / "bench_tests/systems/own.yaml").write_text(OF_ALL_RANKS, encoding="utf-8")
    lines = (f"per step time: {1000 * s:.3f} ms\n" for s in SLOW_FIRST for _ in range(8))
    (tmp_path / "a.log").write_text("".join(lines), encoding="utf-8")
    assert "every rank prints" in rows(read(tmp_path, "a.log").stdout)["unsure"]
    said = rows(read(tmp_path, "a.log", "--case", "mine-own-fp32-b4-1n8g").stdout)["throughput"]
    assert float(said.partition(" samples/s")[0]) == 2 * 4 * 8


@pytest.mark.parametrize(
    ("line", "first", "every", "window"),
    [
        ("Iter:{n} Rank:1 it/sec Total:{v} it/sec [0][loss]:9 ", 20, 20, "steps 21 to 220,"),
        ("Epoch[0] Batch [{p}-{n}]\tSpeed: {v} samples/sec\tacc=0", 20, 20, "steps 22 to 221,"),
        ("2020-11-05 10:{t} step {n} loss {v}", 1, 10, "steps 21 to 120,"),
    ],
)
def test_the_window_goes_from_one_record_to_another(tmp_path, line, first, every, window):
    """Also where steps are counted from 0, or the first ones are not printed."""
    numbers = [*range(first, first + 120 * every, every)]
    if first == 1:  # as trainers that print the first, and then every tenth
        numbers[1:] = [number - 1 for number in numbers[1:]]
    text = "".join(
        line.format(n=n, p=n - every, v=512, t=f"{i // 60:02}:{i % 60:02}.5") + "\n"
        for i, n in enumerate(numbers)
    )
    (tmp_path / "a.log").write_text(text, encoding="utf-8")
    found = rows(read(tmp_path, "a.log").stdout)
    assert found["window"].startswith(window)
    assert not found["throughput"].startswith("none")


@pytest.mark.parametrize(
    ("line", "base", "throughput"),
    [
        (
            "completed step: {n}, seconds: 0.500, TFLOP/s/device: 134.9, Tokens/s/device: 8672.758",
            *("maxtext", "2 steps/s"),
        ),
        (
            "global_step: {n}, interval_runtime: 1, interval_samples_per_second: 214.59",
            *("paddleformers", "214.59 samples/s"),
        ),
    ],
)
def test_a_shipped_metric_that_is_not_printed_takes_no_speed_away(tmp_path, line, base, throughput):
    text = "".join(line.format(n=n) + "\n" for n in range(150))
    (tmp_path / "a.log").write_text(text, encoding="utf-8")
    said = rows(read(tmp_path, "a.log", "--write", "own.yaml").stdout)
    assert said["throughput"].startswith(throughput)
    written = (tmp_path / "own.yaml").read_text(encoding="utf-8")
    assert f"extends: {base}\n" in written
    assert "  loss: ~\n" in written


def bar(step):
    passed = 30 + step // 2
    return f"{passed // 60:02}:{passed % 60:02}<05:00"


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (
            "train:   0%|███       | {n}/600 [{bar},  {v}it/s]\r",
            "a log of a progress bar (tqdm)",
        ),
        (
            "train  Epoch   0:    0%|███       | {n}/600 [{bar},  {v}ba/s, loss=9]\r",
            "a log of a progress bar (tqdm)",
        ),
        (
            "{n:3}/600 [>....] - ETA: 16:25 - {mean:.0f}ms/step - loss: 2.2900\n",
            "a log of Keras 2's progress bar",
        ),
        (
            "\x1b[1m{n:3}/600\x1b[0m \x1b[32m━\x1b[0m\x1b[37m━\x1b[0m 9s {mean:.0f}ms/step\b\b\r",
            "a log of Keras 3's progress bar",
        ),
    ],
)
def test_a_bar_is_read_where_there_is_nothing_else(tmp_path, line, kind):
    """The first step takes 30 s, and others half a second; Keras prints the mean of them all."""
    text = "".join(
        line.format(n=n, v=2, bar=bar(n), mean=(30_000 + 500 * (n - 1)) / n) for n in range(1, 601)
    )
    (tmp_path / "a.log").write_text(text, encoding="utf-8")
    found = read(tmp_path, "a.log").stdout
    assert found.startswith(f"a.log: {kind}\n")
    said = rows(found)
    assert said["steps"].startswith("1 to 600, each printed")
    assert re.match(r"(?:2(?:\.00\d)?|1\.99\d) steps/s", said["throughput"])


@pytest.mark.parametrize(
    ("line", "throughput"),
    [
        ("completed step: {n}, seconds: 0.500, TFLOP/s/device: 134.9, loss: 9.0", "64.00 samples"),
        ("step {n} took 0.5 s, tokens/s: 8,192", "64.00 samples"),
    ],
)
def test_a_case_that_is_given_makes_samples_of_steps_of_any_length(tmp_path, line, throughput):
    text = "".join(line.format(n=n) + "\n" for n in range(150))
    (tmp_path / "a.log").write_text(text, encoding="utf-8")
    case = "own-net-fp32-gb32-1n1g"
    said = rows(read(tmp_path, "a.log", "--case", case, "--write", "own.yaml").stdout)
    assert said["throughput"].startswith(f"{throughput}/s (global batch 32, as --case says)")
    if "loss" in line:
        assert "loss: ~" not in (tmp_path / "own.yaml").read_text(encoding="utf-8")


@pytest.mark.in_process
def test_nothing_is_recorded_of_a_number_in_doubt(suite, capsys):
    log = suite.path / "a.log"
    text = "global batch size: 256\n" + "\n".join(PART) + "\n"
    log.write_text(text, encoding="utf-8")
    file = suite.path / "bench_tests" / "systems" / "own-model.yaml"
    assert read(suite.path, "a.log", "--write", file).returncode == 0
    case = "own-model-fp32-gb256-1n1g"
    asked = ("-k", case, "--dlperf-logs", f"{case}={log}", "--dlperf-create-baselines")
    remark = "record is in doubt: is 'step' the number of a step? is 'time' the time of one whole"

    assert main(["check", "--systems", str(file.parent)]) == 0
    assert f"own-model.yaml:9: note: {remark}" in capsys.readouterr().out
    refused = suite.run(*asked, "--dlperf-cluster", "local")
    assert refused.ret == 1
    refused.stdout.fnmatch_lines([f"*own-model.yaml:9: {remark}*"])
    assert not (suite.path / "baselines/local/own-model.yaml").exists()
    assert suite.run("-k", case, "--dlperf-logs", f"{case}={log}").ret == 1

    file.write_text(re.sub("(record: .*)  # [?].*", r"\1", file.read_text()), encoding="utf-8")
    assert suite.run(*asked, "--dlperf-cluster", "local").ret == 0
    assert (suite.path / "baselines/local/own-model.yaml").exists()


@pytest.mark.in_process
def test_a_window_of_which_most_is_a_pause_is_not_recorded_without_a_reason(suite):
    """The clock is set forward by ten minutes; nothing but the stamps tells of the time."""
    seconds = [each + 600 * (n == 70) for n, each in enumerate(SECONDS)]
    lines = stamped([f"step {n}" for n in range(120)], seconds)
    log = suite.path / "a.log"
    log.write_text("global batch size: 256\n" + "\n".join(lines) + "\n", encoding="utf-8")
    file = suite.path / "bench_tests" / "systems" / "own-model.yaml"
    assert read(suite.path, "a.log", "--write", file).returncode == 0
    file.write_text(re.sub(" # [?].*", "", file.read_text()), encoding="utf-8")
    case = "own-model-fp32-gb256-1n1g"
    asked = ("-k", case, "--dlperf-logs", f"{case}={log}", "--dlperf-cluster", "local")
    assert suite.run(*asked).ret == 1
    refused = suite.run(*asked, "--dlperf-create-baselines")
    assert refused.ret == 1
    refused.stdout.fnmatch_lines(
        ["*not accepted: most of a run's time is one pause, which needs *"]
    )
    assert not (suite.path / "baselines/local/own-model.yaml").exists()
    accepts = ("--dlperf-update-baselines", "--dlperf-reason", "a checkpoint")
    assert suite.run(*asked, *accepts).ret == 0
    assert (suite.path / "baselines/local/own-model.yaml").exists()


# --------------------------------------------------------------------------- the command line


@pytest.mark.end_to_end
def test_a_session_measures_what_was_read(suite):
    """From a log of a trainer that the project does not know to a test of it, in two commands."""
    log = shlex.quote(str(LOGS / "torchtitan_1n2g_tp2.log"))
    first = rows(read(suite.path, LOGS / "torchtitan_1n2g_tp2.log").stdout)
    assert first["next"].endswith(" --write bench_tests/systems/torchtitan-model.yaml")

    written = read(suite.path, *shlex.split(first["next"])[2:])
    _, _, command = rows(written.stdout)["next"].partition("pytest bench_tests ")
    _, results = suite.judge(*shlex.split(command), "-k", "torchtitan", cluster="local")

    assert command.endswith(log)
    [run] = results["cases"][0]["measurement"]["runs"]
    assert first["throughput"].startswith(f"{run['metrics']['throughput']:.2f} tokens/s")


def test_a_flat_loss_of_a_trainer_that_ships_need_not_fall(tmp_path):
    """Random data: the system file that ships has the loss fall, which this one cannot."""
    noise = random.Random(4711)  # noqa: S311 - no secret
    text = (LOGS / "torchtitan_1n2g_tp2.log").read_text(encoding="utf-8")
    flat = re.sub(r"(?<=loss:  )[0-9.]+", lambda _: f"{noise.gauss(8, 0.02):.5f}", text)
    (tmp_path / "flat.log").write_text(flat, encoding="utf-8")

    read(tmp_path, "flat.log", "--write", "flat.yaml")
    read(tmp_path, LOGS / "torchtitan_1n2g_tp2.log", "--write", "falls.yaml")

    text = (tmp_path / "flat.yaml").read_text()
    assert "  loss: {sanity: finite}\n  peak_memory: ~\n" in text.partition("\nmetrics:")[2]
    assert "loss" not in (tmp_path / "falls.yaml").read_text()


def test_all_that_is_known_of_a_log_is_printed(tmp_path):
    systems = tmp_path / "bench_tests" / "systems"
    systems.mkdir(parents=True)
    (systems / "own.yaml").write_text(OWN, encoding="utf-8")
    (tmp_path / "slurm 1.out").write_text(OWN_LOG, encoding="utf-8")

    done = read(tmp_path, "slurm 1.out")

    assert done.returncode == 0
    found = rows(done.stdout)
    assert found["steps"].startswith(
        "1 to 7, each printed; 7 records looked at, the first on line 2"
    )
    assert found["ranks"] == "one process prints"
    assert found["time"].startswith("seconds: ")
    assert found["window"].startswith("steps 2 to 5")
    assert found["throughput"].startswith("32.00 samples/s (global batch 16, ")
    assert found["facts"] == "global_batch 16"
    assert "took 0.5 … 0.5 s" in found["numbers"]
    case = "own-net-fp32-gb16-1n1g"
    assert found["next"] == f"pytest bench_tests -k {case} --dlperf-logs {case}='slurm 1.out'"


def test_a_log_is_held_to_the_case_that_is_given(tmp_path):
    systems = tmp_path / "bench_tests" / "systems"
    systems.mkdir(parents=True)
    (systems / "own.yaml").write_text(OWN, encoding="utf-8")
    (tmp_path / "a.out").write_text(OWN_LOG, encoding="utf-8")

    other = rows(read(tmp_path, "a.out", "--case", "own-net-fp32-gb8-1n1g").stdout)
    none = rows(read(tmp_path, "a.out", "--case", "own-net-fp32-gb32-1n1g").stdout)

    assert other["throughput"].startswith("none: the log says global_batch 16; the case ")
    assert "own-net-fp32-gb8-1n1g=a.out" in other["next"]
    assert none["throughput"].startswith("none: the log says global_batch 16; the case ")
    assert none["next"].endswith("own.yaml has no case of what the log is of; add one")


@pytest.mark.parametrize(
    "other",
    [
        "group_rank=0 group_world_size=1 role_world_sizes=[4, 4, 4, 4]",
        "min_world_size: 1",
        "rollout_tensor_parallel_size=2",
        "grad_dtype: fp32",
        "ftp: 21",
    ],
)
def test_the_size_of_something_else_is_no_fact(other):
    own = "world_size=4\ntensor_parallel_size=4\ndtype: bf16\ntp: 4\n"
    assert not stated_facts(other.encode())
    found = stated_facts(f"{other}\n{own}".encode())
    assert {name: each.value for name, each in found.items()} == {
        "world_size": "4",
        "tp": "4",
        "precision": "bf16",
    }
    for each in found.values():
        assert compiled(each.record).search(other.encode()) is None


def test_of_an_unknown_log_is_said_what_was_tried(tmp_path):
    (tmp_path / "a.log").write_text("Epoch: [0] begins\n" * 20, encoding="utf-8")

    done = read(tmp_path, "a.log")

    assert done.returncode == 1
    found = rows(done.stdout)
    assert "dllogger" in found["tried"]
    assert "dlperf step rank=" in found["next"]


@pytest.mark.parametrize("label", ["", "{}: "])
def test_one_process_of_each_node_may_print(tmp_path, label):
    """As torchtitan's own script has them print into ``slurm-%j.out``: steps of two seconds."""
    head = "[titan] 2026-11-20 10:00:00,000 - root - INFO - Trainer is initialized with local batch"
    log = tmp_path / "slurm-1.out"
    log.write_text(
        f"{head} size 2, global batch size 64, sequence length 8192, total steps 20\n"
        + "".join(
            f"{label.format(node)}[rank{8 * node}]:[titan] 2026-11-20 10:00:{2 * step:02},00{node} "
            f"- root - INFO - step: {step:2}  loss: {9 - step / 9:8.5f}  memory:  9.46GiB(64.99%)  "
            "tps: 8,192  tflops: 10.1  mfu: 3.1%\n"
            for step in range(1, 21)
            for node in range(4)
        ),
        encoding="utf-8",
    )
    found = identified(log)
    assert found.system.log_format.ranks is Ranks.NODES
    assert found.case.topology.nodes == 4
    assert "\n    ranks: nodes  # ? a step stands there 4 times" in found.draft.text()
    said = io.StringIO()
    with redirect_stdout(said):
        assert main(["read", str(log)]) == 0
    assert f"throughput  {64 * 8192 / 2:.2f} tokens/s" in said.getvalue()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere.log"], "nowhere.log: No such file"),
        (["emtpy.log"], "did you mean 'empty.log'?"),
        (["x" * 300], "x: File name too long"),
        (["a.log", "--write", f"{'x' * 300}.yaml"], "File name too long"),
        (["a.log", "--systems", "x" * 300], "there is no folder"),
        (["folder"], "folder is a folder"),
        (["pipe"], "written to a file first"),
        (["empty.log"], "it is empty"),
        (["mark.log"], "it is empty"),
        (["packed.log"], "it is not text; unpack it"),
        (["utf16.log"], "it is not text"),
        (["a.log", "a.log", "--write", "new.yaml"], "name one"),
        (["a.log", "--write", "a.log"], "a.log exists"),
        (["a.log", "--write", "new.txt"], ".yaml"),
        (["a.log", "--case", "own-net"], "is not a case id"),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path, arguments, said):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty.log").touch()
    (tmp_path / "mark.log").write_bytes(b"\xef\xbb\xbf")
    (tmp_path / "a.log").write_text(OWN_LOG, encoding="utf-8")
    (tmp_path / "packed.log").write_bytes(gzip.compress(OWN_LOG.encode()))
    (tmp_path / "utf16.log").write_bytes(OWN_LOG.encode("utf-16"))

    done = read(tmp_path, *arguments)

    assert done.returncode == 2
    assert said in done.stderr
    assert not (tmp_path / "new.yaml").exists()


def test_of_a_large_log_the_head_and_the_end_are_read(tmp_path):
    log = tmp_path / "large.log"
    noise = "node0:1:2 [0] NCCL INFO Channel 00/32 : 0 1 2 3 4 5 6 7 via P2P 0x7f16ab\n" * 19
    with log.open("w", encoding="utf-8") as file:
        for step in range(1, 8000):
            file.write(f"{noise}it {step} took 0.500 s\n")
        file.truncate(10**9)
        file.seek(10**9)
        file.write("\nit 700000 took 0.500 s\n")

    before = bytes_read()
    done = read(tmp_path, log)
    read_of_all = bytes_read() - before

    found = rows(done.stdout)
    assert found["read"].startswith(f"the first {REACH:,} of its 1,000,0")
    assert found["steps"].startswith("1 to 700000, ")
    assert found["throughput"].startswith("2 steps/s")
    # Beside the log, what Python imports.
    assert REACH < read_of_all < REACH + 10**8
