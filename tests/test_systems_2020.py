"""The systems of ``examples/systems-2020``: each reads lines that its trainer printed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from judged_logs import judged

from pytest_dlperf.config.systems import load_systems
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS
from pytest_dlperf.model.measurement import RunStatus

pytestmark = pytest.mark.in_process

SYSTEMS = {
    file.stem: file
    for file in (Path(__file__).parent.parent / "examples/systems-2020").glob("*.yaml")
}
BATCH = 8


@dataclass(frozen=True, slots=True)
class Printed:
    """Lines around a window of one device, and how long its measured steps took."""

    lines: str
    warmup: int
    measured: int
    took_s: float
    more: str = ""
    """Further keys of the system."""


PRINTED = {
    "deepspeed_megatron": Printed(
        " iteration      100/  320000 | elapsed time per iteration (ms): 512.0 | "
        "learning rate 1.500E-04 | lm loss 7.1E+00 | loss scale 65536.0 |\n"
        " iteration      200/  320000 | elapsed time per iteration (ms): 510.0 | "
        "learning rate 1.500E-04 | lm loss 6.9E+00 | loss scale 65536.0 |\n",
        100, 100, 51.0,
    ),
    "gluoncv": Printed(
        "INFO:root:Epoch[0] Batch [49]\tSpeed: 829.012392 samples/sec\taccuracy=0.172578\n"
        "INFO:root:Epoch[0] Batch [99]\tSpeed: 844.157227 samples/sec\taccuracy=0.206563\n",
        50, 50, BATCH * 50 / 844.157227,
    ),
    "gluonnlp_bert": Printed(
        "INFO:root:[step 249]\tmlm_loss=9.24962\tmlm_acc=5.02\tnsp_loss= 0.69\tnsp_acc=54.75\t"
        "throughput=122.0K tks/s\tlr=0.0000025 time=163.24, latency=652.9 ms/batch\n"
        "INFO:root:[step 499]\tmlm_loss=8.24962\tmlm_acc=5.02\tnsp_loss= 0.69\tnsp_acc=54.75\t"
        "throughput=122.0K tks/s\tlr=0.0000050 time=162.50, latency=650.0 ms/batch\n",
        250, 250, 162.5,
    ),
    "hugectr": Printed(
        "[HUGECTR][02:51:59][INFO][RANK0]: Iter: 100 Time(100 iters): 0.315066s Loss: 0.125152 "
        "lr:0.001000\n"
        "[HUGECTR][02:51:59][INFO][RANK0]: Iter: 200 Time(100 iters): 0.213347s Loss: 0.106469 "
        "lr:0.001000\n",
        100, 100, 0.213347,
    ),
    "insightface_mxnet": Printed(
        "INFO:root:Epoch[0] Batch [0-20]\tSpeed: 520.85 samples/sec\tacc=0.572545\n"
        "INFO:root:Epoch[0] Batch [20-40]\tSpeed: 518.95 samples/sec\tacc=0.589844\n",
        21, 20, BATCH * 20 / 518.95,
        "metrics: {loss: }\n",  # of another of its trainers, which prints none
    ),
    "mindspore": Printed(
        "epoch: 1 step: 1, loss is 7.01\nepoch time: 205.123 ms, per step time: 205.123 ms\n"
        "epoch: 2 step: 1, loss is 6.91\nepoch time: 204.250 ms, per step time: 204.250 ms\n"
        "epoch: 3 step: 1, loss is 6.81\nepoch time: 204.500 ms, per step time: 204.500 ms\n",
        1, 2, 0.20425 + 0.2045,
    ),
    "ngc_mxnet_dllogger": Printed(
        "[1,0]<stdout>:DLL 2023-07-31 09:09:28.084827 - Epoch: 0 Iteration: 19  train.loss : "
        "6.988923716545105  train.ips : 1613.3267953346215 images/s train.lr : 0.1216 \n"
        "[1,0]<stdout>:DLL 2023-07-31 09:09:35.006230 - Epoch: 0 Iteration: 39  train.loss : "
        "6.811396431922913  train.ips : 2959.0795766286187 images/s train.lr : 0.2496 \n",
        20, 20, 35.006230 - 28.084827,
    ),
    "ngc_mxnet_resnet50": Printed(
        "[1,0]<stderr>:2020-12-16 08:09:25,363:INFO: Epoch[0] Batch [0-19]\t"
        "Speed: 499.6770393429501 samples/sec\tLR: 0.06948571428571429\n"
        "[1,0]<stderr>:2020-12-16 08:09:30,477:INFO: Epoch[0] Batch [20-39]\t"
        "Speed: 3003.924852488332 samples/sec\tLR: 0.14262857142857144\n",
        20, 20, 30.477 - 25.363,
    ),
    "ngc_pytorch_bert": Printed(
        "DLL 2023-07-28 14:05:25.084423 - Training Epoch: 0 Training Iteration: 5  average_loss : "
        "10.295801336115057  learning_rate : 0.004220893606543541  skipped_steps : 0 \n"
        "DLL 2023-07-28 14:06:19.981023 - Training Epoch: 0 Training Iteration: 6  average_loss : "
        "10.031684875488281  learning_rate : 0.005276117008179426  skipped_steps : 0 \n",
        5, 1, 60 + 19.981023 - 25.084423,
    ),
    "ngc_tensorflow_bert": Printed(
        "DLL 2020-12-17 13:47:35.222621 - Iteration: 14  throughput_train : 977.954 seq/s "
        "mlm_loss : 10.3743  nsp_loss : 0.7161  total_loss : 11.0903  avg_loss_step : 11.1352\n"
        "DLL 2020-12-17 13:48:44.660517 - Iteration: 15  throughput_train : 973.942 seq/s "
        "mlm_loss : 10.4191  nsp_loss : 0.6969  total_loss : 11.1160  avg_loss_step : 11.1203\n",
        14, 1, 60 + 44.660517 - 35.222621,
    ),
    "ngc_tensorflow_resnet50": Printed(
        "DLL 2022-11-24 04:07:20.258406 - (0, 300) total_ips : 3272.6153508544676 \n"
        "DLL 2022-11-24 04:07:26.498227 - (0, 310) total_ips : 3272.7861726588826 \n",
        301, 10, 26.498227 - 20.258406,
    ),
    "oneflow_bert": Printed(
        "step: 19, total_loss: 9.725, mlm_loss: 8.960, nsp_loss: 0.766, throughput: 54.982 "
        "1598056519.8844702\n"
        "step: 119, total_loss: 8.010, mlm_loss: 7.331, nsp_loss: 0.679, throughput: 139.896 "
        "1598056537.0029895\n",
        20, 100, 537.0029895 - 519.8844702,
    ),
    "oneflow_cnn": Printed(
        "train: epoch 0, iter 20, loss: 7.087004, top_1: 0.000000, top_k: 0.000000, "
        "samples/s: 3988.891 1597933942.9863544\n"
        "train: epoch 0, iter 120, loss: 1.050499, top_1: 1.000000, top_k: 1.000000, "
        "samples/s: 5917.583 1597933977.6064055\n",
        20, 100, 977.6064055 - 942.9863544,
    ),
    "oneflow_gpt": Printed(
        "| 90       | 2880            | 46080           | 39.04735   | 13.11229   | 6.95465    |\n"
        "| 100      | 3200            | 51200           | 39.00969   | 13.12494   | 6.82232    |\n",
        90, 10, 10 * 13.12494,
    ),
    "oneflow_insightface": Printed(
        "train: iter 12, loss 40.1, throughput: 3000.1\n"
        "train: iter 13, loss 39.1, throughput: 3010.5\n",
        12, 1, BATCH / 3010.5,
    ),
    "oneflow_wide_deep": Printed(
        "900 time 1602836863.5008075 loss 0.4933771666884422 \n"
        "1000 time 1602836866.4403477 loss 0.49211293876171114 \n",
        900, 100, 866.4403477 - 863.5008075,
    ),
    "tensorflow_resnet50": Printed(
        "I1105 21:21:53.864213 140672312903488 keras_utils.py:148] TimeHistory: 111.52 "
        "seconds, 28.69 examples/second between steps 0 and 100\n"
        "I1105 21:23:11.292150 140672312903488 keras_utils.py:148] TimeHistory: 77.43 seconds, "
        "41.33 examples/second between steps 100 and 200\n",
        100, 100, 60 + 71.292150 - 53.864213,
    ),
}  # fmt: skip


def test_they_are_systems_of_one_suite():
    systems = load_systems(SYSTEMS.values(), BUILTIN_FORMATS)
    assert {system.file for system in systems.values()} == {*SYSTEMS.values()}
    assert {*PRINTED} == {*SYSTEMS}


@pytest.mark.parametrize("name", sorted(SYSTEMS))
def test_what_its_trainer_printed_is_read(name, tmp_path):
    printed = PRINTED[name]
    file = tmp_path / "own.yaml"
    is_of_tokens = "unit: tokens/s\n" in SYSTEMS[name].read_text(encoding="utf-8")
    length = ", sequence_length: 1024" if is_of_tokens else ""
    file.write_text(
        f"extends: {SYSTEMS[name]}\nmodel: own\n{printed.more}"
        f"window: {{warmup_steps: {printed.warmup}, measured_steps: {printed.measured}}}\n"
        f"cases: [{{precision: fp32, batch_per_device: {BATCH}{length}, topologies: [1n1g]}}]\n",
        encoding="utf-8",
    )
    run = judged(file, printed.lines)
    assert run.status is RunStatus.OK, run.reason
    work = BATCH * (1024 if is_of_tokens else 1) * printed.measured
    assert run.metrics["throughput"] == pytest.approx(work / printed.took_s)
