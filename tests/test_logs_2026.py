"""Real logs of trainers of today: read right by a format that a user would declare, or refused."""

from pathlib import Path
from textwrap import indent

import pytest
from judged_logs import judged

from pytest_dlperf.model.measurement import RunStatus

pytestmark = pytest.mark.in_process

DATA = Path(__file__).parent / "data" / "logs"
WINDOW = "warmup_steps: 5, measured_steps: 10"


def system_text(file, log_format, case, *, unit="samples/s", more="", window=WINDOW):  # noqa: PLR0913
    """Write a system file; ``log_format`` is what it says below ``log`` behind the name."""
    file.write_text(
        f"framework: trainer\nmodel: llama\nunit: {unit}\nlog:\n  name: run\n"
        f"{indent(log_format, '  ')}\nwindow: {{{window}}}\n{more}\ncases:\n  - {{{case}}}\n",
        encoding="utf-8",
    )


def read(tmp_path, log_format, case, *logs, **more):
    """What ``--dlperf-logs`` gives of a run: a log of each node, node 0's first."""
    system_text(tmp_path / "trainer.yaml", log_format, case, **more)
    return judged(tmp_path / "trainer.yaml", *logs)


HF_CASE = "precision: fp32, batch_per_device: 4, sequence_length: 128, topologies: [1n2g]"
HF_SECONDS = 2.751 - 0.8792
"""Between the ends of steps 5 and 15."""


@pytest.mark.parametrize(
    ("log", "log_format", "case", "expected"),
    [
        # With ``ThroughputMonitor``; after four steps there are more columns.
        (
            "lightning_1n1g_csv",
            "format: {csv: {step: step, elapsed_seconds: train/time}}",
            "precision: fp32, batch_per_device: 16, topologies: [1n1g]",
            10 * 16 / (2.2126391 - 0.7979958),
        ),
        # Its dicts say no step, and the speed in them is a mean since the start.
        (
            "hf_trainer_1n2g_tokens",
            "format: {json: {elapsed_seconds: train_runtime}, where: {loss: '*'}, step: count}",
            HF_CASE,
            10 * 8 / HF_SECONDS,
        ),
        (
            "hf_trainer_1n2g_tokens",
            (
                "format: {json: {tokens_per_second: train_tokens_per_second}, step: count, "
                "covers: since_start}"
            ),
            HF_CASE,
            10 * 8 / HF_SECONDS,
        ),
        # A bar is drawn again and again.
        (
            "hf_trainer_1n2g_bar",
            r"format: {record: '\| (?P<step>[0-9]+)/[0-9]+ \[(?P<elapsed_seconds>[0-9:]+)<'}",
            HF_CASE,
            "stands twice",
        ),
        (
            "accelerate_1n2g",
            "format: {record: 'step (?P<step>[0-9]+) took (?P<seconds>[0-9.]+) s'}",
            HF_CASE,
            "Accelerate example",
        ),
    ],
)
def test_a_real_log_is_read_or_refused(tmp_path, log, log_format, case, expected):
    run = read(tmp_path, log_format, case, DATA / f"{log}.log")
    if isinstance(expected, str):
        assert run.status is RunStatus.INVALID
        assert expected in run.reason
    else:
        assert run.status is RunStatus.OK, run.reason
        assert run.metrics["throughput"] == pytest.approx(expected, rel=2e-3)


MEGATRON = r"""node: last
format:
  record: 'iteration +(?P<step>[0-9]+)/.*time per iteration \(ms\): (?P<milliseconds>[0-9.]+) '
  covers: since_last
  facts: {global_batch: 'global batch size: +([0-9]+) '}"""


def test_megatron_of_several_nodes_prints_on_the_last(tmp_path):
    """The line of the memory comes from the first rank, that of the step from the last."""
    memory = "[Rank 0] (after 10 iterations) memory (MB) | max allocated: 9431.5 | reserved: 9900\n"
    steps = (
        f" [2026-05-18 16:04:46.338112] iteration {step:8}/     100 | consumed samples: {8 * step} "
        f"| elapsed time per iteration (ms): {400 + step % 2 * 200:.1f} | throughput per GPU "
        "(TFLOP/s/GPU): 239.8 | global batch size:     8 | lm loss: 1.825991E+00 |\n"
        for step in range(1, 22)
    )
    run = read(
        tmp_path,
        MEGATRON,
        "precision: bf16, global_batch: 8, sequence_length: 512, parallel: {tp: 8}, "
        "topologies: [2n8g], reference: none",
        memory,
        "".join(steps),
        unit="tokens/s",
        more="metrics:\n  peak_memory: {record: ' max allocated: (?P<value>[0-9.]+) ', "
        "node: first, unit: MB, better: lower, statistic: max, over: run}",
    )
    assert run.metrics["throughput"] == pytest.approx(8 * 512 / 0.5)
    assert run.metrics["peak_memory"] == 9431.5


def test_hugging_face_trainer_with_the_callback_of_this_package(tmp_path):
    """Two nodes: from step 5 to step 15, on rank 0's own clock."""
    nodes = [DATA / f"hf_trainer_2n1g_node{node}.log" for node in range(2)]
    case = "precision: fp32, global_batch: 8, topologies: [2n1g], reference: none"
    run = read(tmp_path, "format: dlperf", case, *nodes)
    text = nodes[0].read_text(encoding="utf-8")
    [begin, end] = (
        float(text.partition(f"rank=0 step={step} time=")[2].partition(" ")[0]) for step in (5, 15)
    )
    assert run.metrics["throughput"] == pytest.approx(10 * 8 / (end - begin))


@pytest.mark.end_to_end
def test_a_log_of_slurm_is_judged_under_its_own_name(suite):
    """The first run is measured; in the second, tensor parallelism is not that of the case."""
    system_text(
        suite.system_file(""),
        "format:\n  record: 'step: +(?P<step>[0-9]+) .*tps: (?P<tokens_per_second>[0-9.,]+)'\n"
        "  rate_scope: device\n  facts: {tp: 'parallelism: .*tp=([0-9]+)'}\n",
        "precision: fp32, batch_per_replica: 2, sequence_length: 128, parallel: {tp: 2}, "
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
