"""What trainers of 2026 print: read right by a format that a user would declare, or refused.

Each test has a trainer's real line. Where no log of a whole run is at hand, lines are made of the
real one for a run whose numbers are known: see ``TIMES``.
"""

from datetime import datetime, timedelta
from itertools import accumulate
from pathlib import Path
from textwrap import indent

import pytest
from judged_logs import judged

from pytest_dlperf.model.measurement import RunStatus

pytestmark = pytest.mark.in_process

DATA = Path(__file__).parent / "data" / "logs"

TIMES = [2.0] * 5 + [0.4, 0.6] * 8
"""Seconds of steps 1 to 21.

Measured are steps 6 to 15. They take 5 s, so that a global batch of 8 makes 10 x 8 / 5 s = 16
samples/s, or with 512 tokens each 8192 tokens/s. The mean of their ten speeds is another number,
16.67 samples/s, and so is the mean since the start, at step 15 with its 15 s: 8 samples/s.
"""
ENDS = list(accumulate(TIMES))
START = datetime(2026, 5, 18, 16, 4, 46)  # noqa: DTZ001 - logs tell no zone
STAMPS = [START + timedelta(seconds=end) for end in ENDS]
BATCH = 8
SAMPLES = 16.0
TOKENS = 8192.0

WINDOW = "warmup_steps: 5, measured_steps: 10"
TWO_DEVICES = "precision: bf16, global_batch: 8, topologies: [1n2g]"
IN_TOKENS = "precision: bf16, global_batch: 8, sequence_length: 512, topologies: [1n2g]"


def read(  # noqa: PLR0913 - a system file has these sides
    tmp_path,
    log_format,
    *logs,
    case=TWO_DEVICES,
    window=WINDOW,
    unit="samples/s",
    more="",
):
    """What ``--dlperf-logs`` gives of a run: a log or a file of each node, node 0's first.

    ``log_format`` is what the system file says below ``log`` behind the name.
    """
    file = tmp_path / "trainer.yaml"
    system_text(file, log_format, case=case, window=window, unit=unit, more=more)
    return judged(file, *logs)


def system_text(  # noqa: PLR0913 - as above
    file, log_format, *, case, window, unit, more=""
):
    """Write a system file."""
    file.write_text(
        f"framework: trainer\nmodel: llama\nunit: {unit}\nlog:\n  name: run\n"
        f"{indent(log_format, '  ')}\nwindow: {{{window}}}\n{more}\ncases:\n  - {{{case}}}\n",
        encoding="utf-8",
    )


def record(pattern, **more):
    """Declare a format by the pattern of its records."""
    lines = (f"  {key}: {value}\n" for key, value in more.items())
    quoted = pattern.replace("'", "''")
    return f"format:\n  record: '{quoted}'\n{''.join(lines)}"


def throughput(run):
    assert run.status is RunStatus.OK, run.reason
    return run.metrics["throughput"]


def refusal(run):
    assert run.status is RunStatus.INVALID, run.metrics
    return str(run.reason)


def of_steps(line, every=1):
    """A log with a line for each step, or for every so many."""
    return "".join(f"{line(step)}\n" for step in range(every, len(TIMES) + 1, every))


def mean_since(step, every):
    """The mean time of the steps since the line before."""
    return sum(TIMES[step - every : step]) / every


# ------------------------------------------------------------------------------------ torchtitan


TITAN_TPS = record(
    "step: +(?P<step>[0-9]+) .*tps: (?P<tokens_per_second>[0-9.,]+)", rate_scope="device"
)


# ---------------------------------------------------------------------------- Megatron, NeMo


def megatron(step, every=1):
    took_ms = mean_since(step, every) * 1000
    return (
        f" [{STAMPS[step - 1]:%Y-%m-%d %H:%M:%S.%f}] iteration {step:8}/     100 | "
        f"consumed samples: {step * BATCH:12} | elapsed time per iteration (ms): {took_ms:.1f} | "
        "throughput per GPU (TFLOP/s/GPU): 239.8 | learning rate: 1.500000E-04 | "
        f"global batch size: {BATCH:5} | lm loss: 1.825991E+00 | grad norm: 1.234 | "
        "number of skipped iterations:   0 | number of nan iterations:   0 |"
    )


MEGATRON = record(
    r"iteration +(?P<step>[0-9]+)/.*time per iteration \(ms\): (?P<milliseconds>[0-9.]+) ",
    covers="since_last",
    facts="{global_batch: 'global batch size: +([0-9]+) '}",
)


def test_megatron_of_several_nodes_prints_on_the_last(tmp_path):
    """The line of the memory comes from the first rank, that of the step from the last."""
    memory = (
        "[Rank 0] (after 10 iterations) memory (MB) | allocated: 7000.0 | max allocated: 9431.5 | "
        "reserved: 9900.0 | max reserved: 9900.0\n"
    )
    run = read(
        tmp_path,
        f"node: last\n{MEGATRON}",
        memory,
        of_steps(megatron),
        case="precision: bf16, global_batch: 8, sequence_length: 512, parallel: {tp: 8}, "
        "topologies: [2n8g], reference: none",
        unit="tokens/s",
        more="metrics:\n  peak_memory: {record: ' max allocated: (?P<value>[0-9.]+) ', "
        "node: first, unit: MB, better: lower, statistic: max, over: run}",
    )
    assert throughput(run) == pytest.approx(TOKENS)
    assert run.metrics["peak_memory"] == 9431.5


# -------------------------------------------------------------------------------- Lightning


def lightning_bar(step):
    """With a bar of tqdm, whose speed is a moving mean and whose clock has seconds."""
    minutes, seconds = divmod(int(ENDS[step - 1] * 20), 60)
    return (
        f"\rEpoch 0: :   3%|▎    | {step}/301500 [{minutes:02}:{seconds:02}<55:37:46, 9.53it/s, "
        f"v_num=0, reduced_train_loss=3.12, train_step_timing in s={TIMES[step - 1] * 20:.3f}]"
    )


BAR_ELAPSED = record(r" (?P<step>[0-9]+)/[0-9]+ \[(?P<elapsed_seconds>[0-9:]+)<")


def test_a_bar_by_its_clock(tmp_path):
    """Twenty times as slow as ``TIMES``: both ends are at whole seconds, up to 1 s in 100 s."""
    run = read(tmp_path, BAR_ELAPSED, of_steps(lightning_bar))
    assert throughput(run) == pytest.approx(SAMPLES / 20, rel=0.01)


def test_lightning_writes_csv(tmp_path):
    """A real run with ``ThroughputMonitor``, whose file came into the log by ``launch.log_file``.

    After four steps there are more columns. Step 15 ended after 2.2126391 s, step 45 after
    5.6440144 s.
    """
    run = read(
        tmp_path,
        "format: {csv: {step: step, elapsed_seconds: train/time}}",
        DATA / "lightning_1n1g_csv.log",
        case="precision: fp32, batch_per_device: 16, topologies: [1n1g]",
        window="warmup_steps: 15, measured_steps: 30",
    )
    assert throughput(run) == pytest.approx(30 * 16 / (5.6440144 - 2.2126391))


# -------------------------------------------------------------------------------- DeepSpeed


DEEPSPEED = DATA / "deepspeed_1n2g.log"
DEEPSPEED_CASE = "precision: bf16, batch_per_device: 8, topologies: [1n2g]"
DEEPSPEED_SPEED = "global_step=(?P<step>[0-9]+), .*{}=(?P<samples_per_second>[0-9.]+)"
DEEPSPEED_WINDOW = "warmup_steps: 5, measured_steps: 15"


def test_deepspeed_prints_nothing_by_default(tmp_path):
    by_speed = record(DEEPSPEED_SPEED.format("CurrSamplesPerSec"))
    log = "DeepSpeed deepspeed.ops.comm.deepspeed_shm_comm_op built successfully\n"
    assert "no line of the log matches" in refusal(read(tmp_path, by_speed, log))


def test_deepspeed_by_its_stamps(tmp_path):
    """Step 5 ended at 14.609, step 15 at 14.956: 10 steps of 16 samples.

    The line of ``step=0`` counts as a step, so that the window ends before ``step=20``.
    """
    by_stamp = record(r"^\[(?P<timestamp>[0-9-]+ [0-9:,]+)\] .* step=(?P<step>[0-9]+), skipped=")
    run = read(tmp_path, by_stamp, DEEPSPEED, case=DEEPSPEED_CASE, window=DEEPSPEED_WINDOW)
    assert throughput(run) == pytest.approx(10 * 16 / 0.347)


# -------------------------------------------------------- Hugging Face: Trainer, Accelerate


HF_CASE = "precision: fp32, batch_per_device: 4, sequence_length: 128, topologies: [1n2g]"
HF_TOKENS = DATA / "hf_trainer_1n2g_tokens.log"


def test_hugging_face_trainer_by_its_running_time(tmp_path):
    """Its dicts say no step; step 5 ended after 0.8792 s, step 15 after 2.751 s."""
    by_time = "format: {json: {elapsed_seconds: train_runtime}, where: {loss: '*'}, step: count}"
    run = read(tmp_path, by_time, HF_TOKENS, case=HF_CASE)
    assert throughput(run) == pytest.approx(10 * 8 / (2.751 - 0.8792))


def test_hugging_face_trainer_s_speed_is_a_mean_since_the_start(tmp_path):
    """Tokens per second up to steps 5 and 15 give the time between, as far as 4 digits go."""
    by_speed = "format: {json: {tokens_per_second: train_tokens_per_second}, step: count}"
    case = {"case": HF_CASE, "unit": "tokens/s"}
    differenced = by_speed.replace("step: count", "step: count, covers: since_start")
    run = read(tmp_path, differenced, HF_TOKENS, **case)
    assert throughput(run) == pytest.approx(1024 * 10 / (2.751 - 0.8792), rel=2e-3)


def test_hugging_face_trainer_s_bar_is_no_measure(tmp_path):
    by_clock = record(r"\| (?P<step>[0-9]+)/[0-9]+ \[(?P<elapsed_seconds>[0-9:]+)<")
    run = read(tmp_path, by_clock, DATA / "hf_trainer_1n2g_bar.log")
    assert "stands twice" in refusal(run)


def test_hugging_face_trainer_with_the_callback_of_this_package(tmp_path):
    """Two nodes: from step 5, 1795300670.419, to step 15, on rank 0's own clock."""
    nodes = [DATA / f"hf_trainer_2n1g_node{node}.log" for node in range(2)]
    run = read(
        tmp_path,
        "format: dlperf",
        *nodes,
        case="precision: fp32, global_batch: 8, topologies: [2n1g], reference: none",
    )
    text = nodes[0].read_text(encoding="utf-8")
    [begin, end] = (
        float(text.partition(f"rank=0 step={step} time=")[2].partition(" ")[0]) for step in (5, 15)
    )
    assert throughput(run) == pytest.approx(10 * 8 / (end - begin))


def test_accelerate_prints_nothing_per_step(tmp_path):
    log_format = record("step (?P<step>[0-9]+) took (?P<seconds>[0-9.]+) s")
    assert "Accelerate example" in refusal(read(tmp_path, log_format, DATA / "accelerate_1n2g.log"))


# ----------------------------------------------------------------------------- JAX


def test_easylm_prints_a_dictionary_over_several_lines(tmp_path):
    """Where a line has both, it is a record; over several lines it is none."""
    by_step = "format: {json: {step: step, seconds: step_time}}"
    lines = [f"{{'step': {step},\n 'step_time': 0.5}}\n" for step in range(1, 22)]
    assert "no line of the log" in refusal(read(tmp_path, by_step, "".join(lines)))
    run = read(tmp_path, by_step, "".join(lines).replace(",\n", ","))
    assert throughput(run) == pytest.approx(8 / 0.5)


# ------------------------------------------------------------------------ Paddle, OneFlow


def test_paddleformers_by_tokens_and_device(tmp_path):
    log = of_steps(
        lambda step: (
            f"[{STAMPS[step - 1]:%Y-%m-%d %H:%M:%S},000] [    INFO] - loss: 1.07373798, "
            f"learning_rate: 8e-08, global_step: {step}, interval_runtime: {TIMES[step - 1]:.4f}, "
            f"interval_steps_per_second: {1 / TIMES[step - 1]:.4f}, "
            f"interval_tokens_per_second_per_device: {BATCH * 512 / TIMES[step - 1] / 2:.2f}"
        )
    )
    by_tokens = record(
        "global_step: (?P<step>[0-9]+), .*per_second_per_device: (?P<tokens_per_second>[0-9.]+)",
        rate_scope="device",
    )
    run = read(tmp_path, by_tokens, log, case=IN_TOKENS, unit="tokens/s")
    assert throughput(run) == pytest.approx(TOKENS, rel=1e-5)
    by_steps = record(
        "global_step: (?P<step>[0-9]+), .*steps_per_second: (?P<steps_per_second>[0-9.]+)"
    )
    assert throughput(read(tmp_path, by_steps, log)) == pytest.approx(SAMPLES, rel=1e-4)


# ------------------------------------------------------------------------ OLMo-core


def test_olmo_core_by_the_stamp_of_its_first_line(tmp_path):
    """Its numbers follow on lines of their own: metrics, not times."""
    log = of_steps(
        lambda step: (
            f"{STAMPS[step - 1]:%Y-%m-%d %H:%M:%S.%f}\thost:0\tolmo_core.train:1\tINFO\t"
            f"[step={step}/740,epoch=1,eta=3:12:01]\n    train/CE loss=3.2\n"
            f"    throughput/device/TPS={BATCH * 512 / TIMES[step - 1] / 2:,.0f}"
        )
    )
    by_stamp = record(r"^(?P<timestamp>[0-9-]+ [0-9:.]+)\t.*\[step=(?P<step>[0-9]+)/")
    run = read(
        tmp_path,
        by_stamp,
        log,
        case=IN_TOKENS,
        unit="tokens/s",
        more="metrics:\n  tps: {record: 'device/TPS=(?P<value>[0-9,]+)', unit: tokens/s, "
        "judged: false}",
    )
    assert throughput(run) == pytest.approx(TOKENS)
    assert run.metrics["tps"] == pytest.approx((5120 + 4096 / 0.6 / 2) / 2, rel=1e-3)


# ------------------------------------------------------------------------ the command line


@pytest.mark.end_to_end
def test_a_log_of_slurm_is_judged_under_its_own_name(suite):
    """The first run is measured; in the second, tensor parallelism is not that of the case."""
    system_text(
        suite.system_file(""),
        TITAN_TPS + "  facts: {tp: 'parallelism: .*tp=([0-9]+)'}\n",
        case="precision: fp32, batch_per_replica: 2, sequence_length: 128, parallel: {tp: 2}, "
        "topologies: [1n2g], reference: none",
        window="warmup_steps: 6, measured_steps: 14",
        unit="tokens/s",
    )
    case_id = "trainer-llama-fp32-b2-s128-tp2-1n2g"
    right = (DATA / "torchtitan_1n2g_tp2.log").read_text(encoding="utf-8")
    (suite.path / "slurm-4711.out").write_text(right, encoding="utf-8")
    wrong = right.replace("tp=2", "tp=1")
    (suite.path / "slurm-4712.out").write_text(wrong, encoding="utf-8")

    _, results = suite.judge(
        "-k", "trainer", "--dlperf-logs", f"{case_id}=slurm-*.out", cluster="local"
    )

    [case] = results["cases"]
    first, second = case["measurement"]["runs"]
    assert first["metrics"]["throughput"] == pytest.approx(14 * 256 / 20.560, rel=0.01)
    assert second["status"] == "invalid"
    assert "tp 1" in second["reason"]
