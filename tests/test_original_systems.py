"""The other systems of the original benchmark: real lines, and lines made by documented formats.

Each training that is made up has slow steps in front of the window and behind it, so that a window
that is off by one step has another number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import accumulate
from pathlib import Path
from typing import Final

import pytest
from judged_logs import judged

from pytest_dlperf.model.measurement import Run, RunStatus

pytestmark = pytest.mark.in_process

LOGS: Final = Path(__file__).parent / "data" / "logs"
STEP_S: Final = 0.5
"""Seconds of a measured step, in the mean."""
START: Final = datetime(2020, 9, 15, 23, 59, 30)  # noqa: DTZ001 - logs tell no zone


def read(tmp_path: Path, name: str, case: str, *logs: str | Path, more: str = "") -> Run:
    file = tmp_path / "own.yaml"
    text = f"extends: {name}\nmodel: own\ncases: [{{{case}, reference: none}}]\n{more}"
    file.write_text(text, encoding="utf-8")
    return judged(file, *logs)


@pytest.mark.parametrize(
    ("name", "log", "case", "window", "work", "took"),
    [
        # PaddlePaddle/Perf, ResNet50V1.5/OtherReports/MxNet; the last of 8 ranks counts.
        ("ngc_mxnet_resnet50", "ngc_mxnet_1n8g_b96.log",
         "precision: fp32, batch_per_device: 96, topologies: [1n8g]", (20, 100), 8 * 96,
         50.91225 - 25.358),  # means of the eight ranks
        ("ngc_mxnet_dllogger", "ngc_mxnet_dllogger_1n8g_b128.log",
         "precision: fp32, batch_per_device: 128, topologies: [1n8g]", (20, 100), 8 * 128,
         62.482337 - 28.084827),
        # … OtherReports/TensorFlow, from the step that is printed as 200 to that of 300
        ("ngc_tensorflow_resnet50", "ngc_tensorflow_resnet50_1n8g_b256.log",
         "precision: fp32, batch_per_device: 256, topologies: [1n8g]", (201, 100), 8 * 256,
         80.258406 - 17.895552),
        # … Bert/OtherReports: each step accumulates
        ("ngc_tensorflow_bert", "ngc_tensorflow_bert_1n8g.log",
         "precision: fp32, global_batch: 67584, topologies: [1n8g]", (4, 10), 8 * 32 * 264,
         11 * 60 + 35.222621 - 1.144561),
        ("ngc_pytorch_bert", "ngc_pytorch_bert_1n8g.log",
         "precision: fp32, global_batch: 67584, topologies: [1n8g]", (5, 10), 8 * 96 * 88,
         9 * 60 + 33.921199 - 25.084423),
        ("ngc_pytorch_bert", "ngc_pytorch_bert_4n8g_bars.log",
         "precision: fp32, global_batch: 270336, topologies: [4n8g]", (27, 2), 32 * 32 * 264,
         3 * 60 + 20.099197 - 10.910685),
    ],
)  # fmt: skip
def test_real_logs(  # noqa: PLR0913, PLR0917 - a log and what is true of it
    tmp_path: Path, name: str, log: str, case: str, window: tuple[int, int], work: int, took: float
) -> None:
    warmup, measured = window
    more = f"window: {{warmup_steps: {warmup}, measured_steps: {measured}}}"
    run = read(tmp_path, name, case, LOGS / log, more=more)
    assert run.status is RunStatus.OK, run.reason
    assert run.metrics["throughput"] == pytest.approx(work * measured / took)
    other = case.replace("fp32", "amp")
    if "bars" not in log:
        assert read(tmp_path, name, other, LOGS / log, more=more).status is RunStatus.INVALID


QUOTED: Final = {
    "tensorflow_resnet50": (
        (
            "I1105 21:21:53.864213 140672312903488 keras_utils.py:148] TimeHistory: 111.52 "
            "seconds, 28.69 examples/second between steps 0 and 100\n"
            "I1105 21:23:11.292150 140672312903488 keras_utils.py:148] TimeHistory: 77.43 seconds, "
            "41.33 examples/second between steps 100 and 200\n"
            "I1105 21:24:27.747459 140672312903488 keras_utils.py:148] TimeHistory: 76.45 seconds, "
            "41.86 examples/second between steps 200 and 300\n"
            "I1105 21:25:43.755411 140672312903488 keras_utils.py:148] TimeHistory: 76.01 seconds, "
            "42.10 examples/second between steps 300 and 400\n"
        ),
        (100, 300),
        300 * 32 / (3 * 60 + 103.755411 - 53.864213),
    ),
    "gluoncv": (
        (
            "INFO:root:Epoch[0] Batch [49]\tSpeed: 829.012392 samples/sec\taccuracy=0.172578\n"
            "INFO:root:Epoch[0] Batch [99]\tSpeed: 844.157227 samples/sec\taccuracy=0.206563\n"
            "INFO:root:Epoch[0] Batch [149]\tSpeed: 835.582445 samples/sec\taccuracy=0.230781\n"
            "INFO:root:[Epoch 0] training: accuracy=0.248027\n"
        ),
        (50, 100),
        2 / (1 / 844.157227 + 1 / 835.582445),
    ),
    "insightface_mxnet": (
        (
            "INFO:root:Epoch[0] Batch [0-20]\tSpeed: 520.85 samples/sec\tacc=0.572545\n"
            "INFO:root:Epoch[0] Batch [20-40]\tSpeed: 518.95 samples/sec\tacc=0.589844\n"
            "INFO:root:Epoch[0] Batch [40-60]\tSpeed: 516.86 samples/sec\tacc=0.603125\n"
        ),
        (21, 40),
        2 / (1 / 518.95 + 1 / 516.86),
    ),
    "hugectr": (
        (
            "[HUGECTR][02:51:59][INFO][RANK0]: Iter: 100 Time(100 iters): 0.315066s Loss: 0.125152 "
            "lr:0.001000\n"
            "[HUGECTR][02:51:59][INFO][RANK0]: Iter: 200 Time(100 iters): 0.213347s Loss: 0.106469 "
            "lr:0.001000\n"
        ),
        (100, 100),
        8 * 100 / 0.213347,
    ),
    "oneflow_wide_deep": (
        (
            "900 time 1602836863.5008075 loss 0.4933771666884422 \n"
            "1000 time 1602836866.4403477 loss 0.49211293876171114 \n"
            "1100 time 1602836869.3806155 loss 0.4920539349317551 \n"
        ),
        (900, 200),
        8 * 200 / (869.3806155 - 863.5008075),
    ),
    "oneflow_wide_deep, models": (
        (
            "[rank:0] iter: 100/1200, loss: 0.0831875279545784, latency(ms): 81.5818255022168159 | "
            "2021-12-01 13:19:02.625\n"
            "[rank:0] iter: 200/1200, loss: 0.0780148208141327, latency(ms): 2.2327776625752449 | "
            "2021-12-01 13:19:02.848\n"
        ),
        (100, 100),
        8 * 100 / (2.848 - 2.625),
    ),
    "oneflow_cnn": (
        (
            "train: epoch 0, iter 20, loss: 7.087004, top_1: 0.000000, top_k: 0.000000, "
            "samples/s: 3988.891 1597933942.9863544\n"
            "train: epoch 0, iter 120, loss: 1.050499, top_1: 1.000000, top_k: 1.000000, "
            "samples/s: 5917.583 1597933977.6064055\n"
        ),
        (20, 100),
        8 * 100 / (977.6064055 - 942.9863544),
    ),
    "oneflow_bert": (
        (
            "step: 19, total_loss: 9.725, mlm_loss: 8.960, nsp_loss: 0.766, throughput: 54.982 "
            "1598056519.8844702\n"
            "step: 119, total_loss: 8.010, mlm_loss: 7.331, nsp_loss: 0.679, throughput: 139.896 "
            "1598056537.0029895\n"
        ),
        (20, 100),
        8 * 100 / (537.0029895 - 519.8844702),
    ),
}
"""Lines that the benchmark or users quote, a window, and its samples/s for a batch of 8 or 32."""


@pytest.mark.parametrize("name", QUOTED)
def test_quoted_lines(tmp_path: Path, name: str) -> None:
    log, (warmup, measured), expected = QUOTED[name]
    batch = 32 if name == "tensorflow_resnet50" else 8
    case = f"precision: fp32, batch_per_device: {batch}, topologies: [1n1g]"
    more = f"window: {{warmup_steps: {warmup}, measured_steps: {measured}}}\n"
    if name == "insightface_mxnet":
        more += "metrics: {loss: }\n"  # of another of its trainers, which prints none
    run = read(tmp_path, name.partition(",")[0], case, log, more=more)
    assert run.status is RunStatus.OK, run.reason
    assert run.metrics["throughput"] == pytest.approx(expected)


# ------------------------------------------------------------------- lines by documented formats


class Training:
    """Steps of known times, of which every so manieth is printed."""

    def __init__(self, warmup: int, measured: int, every: int, first: int = 1) -> None:
        self.seconds = [3.0] * warmup + [0.4, 0.6] * (measured // 2) + [9.0] * 2 * every
        self.ends = list(accumulate(self.seconds))
        self.every, self.first = every, first

    def steps(self) -> Iterator[tuple[int, float, float]]:
        """Yield number, time and mean since the last record of the printed steps."""
        begin = 0
        for end in range(self.first, len(self.seconds) + 1, self.every):
            mean = sum(self.seconds[begin:end]) / (end - begin)
            yield end, self.ends[end - 1], mean
            begin = end

    def lines(self, line: Callable[[int, float, float], str], ranks: int = 1) -> str:
        return "".join((line(*step) + "\n") * ranks for step in self.steps())


def stamp(elapsed: float, form: str) -> str:
    return (START + timedelta(seconds=elapsed)).strftime(form)


ONEFLOW: Final = "batch_size_per_device = 32\ngpu_num_per_node = 8\nnum_nodes = 2\n"
BY_HAND: Final = {
    # A validation prints a speed, too.
    "oneflow_cnn": ONEFLOW + "val_batch_size_per_device = 50\n" + Training(20, 100, 20, 20).lines(
        lambda k, now, mean: f"train: epoch 0, iter {k}, loss: 7.087004, top_1: 0.000000, "
        f"top_k: 0.000000, samples/s: {512 / mean:.3f} {1597933942.9863544 + now}\n"
        "validation: epoch 0, iter 195, top_1: 0.773277, top_k: 0.936058, samples/s: 1578.325 1.5"
    ),
    "oneflow_bert": ONEFLOW + Training(20, 100, 20, 20).lines(
        lambda k, now, mean: f"step: {k - 1}, total_loss: 9.725, mlm_loss: 8.960, nsp_loss: 0.766, "
        f"throughput: {512 / mean:.3f} {1598056519.8844702 + now}"
    ),
    "oneflow_insightface": (
        "Called with argument:  Namespace(device_num_per_node=8, num_nodes=2, "
        "train_batch_size=512, use_fp16=False) {'batch_size': 1}\n"
    ) + Training(20, 100, 1).lines(
        lambda k, _, mean: f"train: iter {k}, loss 41.2, throughput: {512 / mean:.6f}"
    ),
    "oneflow_wide_deep": "batch_size = 512\n" + Training(100, 1000, 100, 100).lines(
        lambda k, now, _: f"{k} time {1602836839.6445205 + now} loss 0.5471092355251312 \n"
        f"{k} eval_loss 0.5 eval_auc 0.7"
    ),
    "oneflow_wide_deep, models": "batch_size_per_proc = 32\n" + Training(100, 1000, 100, 100).lines(
        lambda k, now, mean: f"[rank:0] iter: {k}/1200, loss: 0.0831875279545784, latency(ms): "
        f"{1000 * mean:.16f} | {stamp(now, '%Y-%m-%d %H:%M:%S.%f')[:-3]}\n"
        f"[rank:0] iter: {k}/1200, eval_auc: 0.7"
    ),
    "ngc_pytorch_bert": Training(20, 100, 1).lines(
        lambda k, now, _: "Iteration:   8%|▊         | 263/3443 [01:07<13:15,  4.00it/s]\r"
        f"DLL {stamp(now, '%Y-%m-%d %H:%M:%S.%f')} - Training Epoch: 0 Training Iteration: {k}  "
        "average_loss : 11.18  step_loss : 11.18  learning_rate : 4.2e-04 "
    ),
    # The first 20 steps, counted from 0, are not printed.
    "ngc_tensorflow_resnet50": Training(21, 100, 1, 21).lines(
        lambda k, now, _: f"DLL {stamp(now, '%Y-%m-%d %H:%M:%S.%f')} - (0, {k - 1}) imgs_per_sec : "
        "355.1  cross_entropy : 7.1  l2_loss : 0.5  total_loss : 7.6  learning_rate : 0.1 "
    ),
    "tensorflow_resnet50": Training(100, 500, 100, 100).lines(
        lambda k, now, mean: f"I{stamp(now, '%m%d %H:%M:%S.%f')} 140 keras_utils.py:133] "
        f"TimeHistory: {100 * mean:.2f} seconds, {512 / mean:.2f} examples/second between steps "
        f"{k - 100} and {k}\nINFO:tensorflow:TimeHistory: 1.00 seconds, 1.00 examples/second "
        f"between steps {k - 100} and {k}"
    ),
    "gluonnlp_bert": Training(100, 100, 1).lines(
        lambda k, _, mean: f"INFO:root:[step {k}]\tmlm_loss=9.24962\tmlm_acc=5.02\tnsp_loss= 0.69\t"
        f"nsp_acc=54.75\tthroughput=122.0K tks/s\tlr=0.0000025 time={mean:.2f}, latency="
        f"{1000 * mean:.1f} ms/batch", ranks=16,
    ),
    "gluoncv": Training(20, 100, 1).lines(
        lambda k, _, mean: f"INFO:root:Epoch[0] Batch[{k - 1}]\tSpeed: {512 / mean:.6f} samples/sec"
    ),
    "gluoncv, without horovod": Training(20, 100, 20, 20).lines(
        lambda k, _, mean: f"INFO:root:Epoch[0] Batch [{k - 1}]\tSpeed: {512 / mean:.6f} "
        "samples/sec\taccuracy=0.2\tlr=0.1"
    ),
    # A node has 256 samples; the first line ends the 21st step.
    "insightface_mxnet": Training(21, 100, 20, 21).lines(
        lambda k, _, mean: f"INFO:root:Epoch[0] Batch [{k - 21}-{k - 1}]\tSpeed: "
        f"{256 / mean:.6f} samples/sec\tacc=0.000000\tlossvalue=45.139"
    ),
    "partial_fc_mxnet": Training(20, 100, 20, 20).lines(
        lambda k, _, mean: f"Iter:{k} Rank:{32 / mean:.6f} it/sec Total:{512 / mean:.6f} it/sec "
        "[0][loss]:44.12 "
    ),
    # Both nodes' batches are counted.
    "paddle_bert": Training(20, 100, 1).lines(
        lambda k, _, mean: "feed_queue size: 70, current learning_rate: 0.000001\nepoch: 1, "
        f"progress: 1/1, step: {2 * k}, loss: 10.487363, ppl: 17796.216797, next_sent_acc: "
        f"0.560417, speed: {2 / mean:.6f} steps/s, file: x.gz\n"
        f"[validation_set] epoch: 1, step: {2 * k}, loss: 1.0, speed: 9.000000 steps/s"
    ),
    "hugectr": "batch_size = 512\n" + Training(100, 1000, 100, 100).lines(
        lambda k, now, mean: f"[HUGECTR][{stamp(now, '%H:%M:%S')}][INFO][RANK0]: Iter: {k} "
        f"Time(100 iters): {100 * mean:.6f}s Loss: 0.140601 lr:0.001000\n"
        f"[HUGECTR][{stamp(now, '%H:%M:%S')}][INFO][RANK0]: Eval Time for 20 iters: 0.007553s"
    ),
    "hugectr, since 3.5": "batch_size = 512\n" + Training(100, 1000, 100, 100).lines(
        lambda k, now, mean: f"[HCTR][{stamp(now, '%H:%M:%S')}][INFO][RK0][main]: Iter: {k} "
        f"Time(100 iters): {100 * mean:.4f}s Loss: 0.632464 lr:0.001"
    ),
    "megatron": Training(20, 100, 10, 10).lines(
        lambda k, _, mean: f" iteration {k:8d}/     130 | consumed samples: {512 * k:12d} | "
        f"elapsed time per iteration (ms): {1000 * mean:.1f} | learning rate: 1.500E-04 | "
        f"global batch size: {512:5d} | lm loss: {10 - k / 50:.6E} | loss scale: 32768.0 | "
        "number of skipped iterations:   0 | number of nan iterations:   0 |"
    ),
    "deepspeed_megatron": (
        "using world size: 16 and model-parallel size: 1 \n"
        "  batch_size ................... 32\n"
    ) + Training(100, 200, 100, 100).lines(
        lambda k, _, mean: f" iteration {k:8d}/  320000 | elapsed time per iteration (ms): "
        f"{1000 * mean:.1f} | learning rate 1.500E-04 | lm loss 7.1E+00 | loss scale 65536.0 |"
    ),
    "mindspore": Training(20, 100, 1).lines(
        lambda k, _, mean: f"epoch: {k} step: 1, loss is 7.01\nepoch time: {1000 * mean:.3f} ms, "
        f"per step time: {1000 * mean:.3f} ms", ranks=16,
    ),
    "mindspore, BERT": Training(20, 100, 1).lines(
        lambda k, _, mean: f"epoch: 0, current epoch percent: 0.012, step: {k}, outputs are "
        "(Tensor(shape=[], dtype=Float32, value= 7.01250), Tensor(shape=[], dtype=Bool, value= "
        f"False))\nepoch time: {1000 * mean:.6f} ms, per step time: {1000 * mean:.6f} ms", ranks=16,
    ),
}  # fmt: skip
"""Logs of two nodes of eight devices, each with a batch of 32; ranks print where they all do."""


def test_the_log_of_a_table(tmp_path: Path) -> None:
    """Steps 21 to 100 by the latencies of its eight last rows, each of ten steps."""
    case = (
        "precision: fp16, global_batch: 512, sequence_length: 2048, parallel: {tp: 4, pp: 4}, "
        "topologies: [4n8g]"
    )
    log = LOGS / "oneflow_gpt_4n8g.log"
    took = 13.12469 + 13.12390 + 13.12932 + 13.12500 + 13.11330 + 13.11041 + 13.11229 + 13.12494
    run = read(tmp_path, "oneflow_gpt", case, log)
    assert run.status is RunStatus.OK, run.reason
    assert run.metrics["throughput"] == pytest.approx(512 * 2048 * 8 / took)
    for said, other in (("pp: 4", "pp: 2"), ("4n8g", "2n8g"), ("2048", "1024"), ("fp16", "fp32")):
        wrong = case.replace(said, other)
        assert read(tmp_path, "oneflow_gpt", wrong, log).status is RunStatus.INVALID


@pytest.mark.parametrize("name", BY_HAND)
def test_lines_as_documented(tmp_path: Path, name: str) -> None:
    system, _, variant = name.partition(",")
    case = "precision: fp32, batch_per_device: 32, topologies: [2n8g]"
    if "megatron" in system:
        case += ", sequence_length: 1024"
    run = read(tmp_path, system, case, BY_HAND[name])
    assert run.status is RunStatus.OK, run.reason
    tokens = 1024 if "megatron" in system else 1
    # Stamps of milliseconds in the one that is newer.
    precision = 1e-5 if variant == " models" else 1e-6
    if variant == " BERT":
        assert run.metrics["loss"] == pytest.approx(7.0125)
    expected = 2 * 8 * 32 * tokens / STEP_S
    assert run.metrics["throughput"] == pytest.approx(expected, rel=precision)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("oneflow_cnn", "batch_size_per_device = 64\n"),
        ("oneflow_cnn", "num_nodes = 4\n"),
        ("oneflow_cnn", "use_fp16 = True\n"),
        ("hugectr", "batch_size = 1024\n"),
    ],
)
def test_what_is_printed_is_compared(tmp_path: Path, name: str, says: str) -> None:
    case = "precision: fp32, batch_per_device: 32, topologies: [2n8g]"
    assert read(tmp_path, name, case, says + BY_HAND[name]).status is RunStatus.INVALID


def test_a_lost_line_of_totals_is_noticed(tmp_path: Path) -> None:
    lines = BY_HAND["hugectr"].splitlines(keepends=True)
    log = "".join(line for line in lines if "Iter: 600 " not in line)
    case = "precision: fp32, batch_per_device: 32, topologies: [2n8g]"
    assert read(tmp_path, "hugectr", case, log).status is RunStatus.INVALID


def test_a_speed_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    log = BY_HAND["partial_fc_mxnet"].replace("Total:1024.000000", "Total:inf", 1)
    assert "inf" in log
    case = "precision: fp32, batch_per_device: 32, topologies: [2n8g]"
    run = read(tmp_path, "partial_fc_mxnet", case, log)
    assert run.status is RunStatus.INVALID
    assert "finite" in str(run.reason)
