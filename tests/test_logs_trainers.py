"""Known trainers: their logs are called by name, and their numbers are not misread."""

import re

import pytest

from pytest_dlperf.formats.expressions import compiled
from pytest_dlperf.formats.log_format import custom_format
from pytest_dlperf.formats.meanings import (
    known_trainer,
    known_trainers,
    trainers_in,
)
from pytest_dlperf.model.case import Case

LINES = {
    "torchtitan": (
        "[rank0]:[titan] 2026-05-18 16:04:46,338 - root - INFO - step: 14  loss:  3.24405  "
        "grad_norm:  0.8319  memory:  9.46GiB(64.99%)  tps: 7,282  tflops: 0.52  mfu: 0.17%"
    ),
    "Megatron-LM": (
        " [2024-04-06 02:59:36] iteration       43/     100 | consumed samples:         5504 | "
        "elapsed time per iteration (ms): 5444.9 | throughput per GPU (TFLOP/s/GPU): 239.8 | "
        "learning rate: 1.0E-05 | global batch size:   128 | lm loss: 1.825991E+00 |"
    ),
    "Megatron-Bridge's first rank": "Step Time : 14.26s GPU utilization: 58.2TFLOP/s/GPU",
    "NeMo": (
        "Training epoch 0, iteration 1/19 | lr: 2.999e-07 | global_batch_size: 512 | "
        "global_step: 1 | reduced_train_loss: 11.03 | train_step_timing in s: 7.549 | "
        "consumed_samples: 1024"
    ),
    "NeMo AutoModel": (
        "step 7 | epoch 0 | loss 2.1043 | grad_norm 1.2 | lr 1.00e-05 | mem 40.12 GiB | "
        "tps 5856.12(732.02/gpu) | num_label_tokens 4096"
    ),
    "PyTorch Lightning with rich": "Epoch 0/-2 ━━━━━━ 20/20 0:00:00 • 0:00:00 45.31it/s v_num: 0",
    "DeepSpeed": (
        "[2026-11-21 22:04:15,114] [INFO] [timer.py:264:stop] epoch=0/micro_step=20/"
        "global_step=20, RunningAvgSamplesPerSec=433.55, CurrSamplesPerSec=967.66, "
        "MemAllocated=1.0GB, MaxMemAllocated=1.0GB"
    ),
    "DeepSpeed's pipeline engine": (
        "steps: 10 loss: 9.2714 iter time (s): 0.735 samples/sec: 348.148"
    ),
    "Hugging Face's Trainer": (
        "{'loss': '6.253', 'grad_norm': '0.7721', 'learning_rate': '5e-05', 'epoch': '0.001953', "
        "'num_input_tokens_seen': 1024, 'train_runtime': '0.1761', "
        "'train_tokens_per_second': '5816'}"
    ),
    "Hugging Face's Accelerate example": "epoch 0: {'loss': 0.6926059126853943}",
    "timm": (
        "Train: 0 [  23/24 (100%)]  Loss: 1.40 (1.41)  Time: 0.632s,   12.65/s  "
        "(0.730s,   10.96/s)  LR: 1.000e-05  Data: 0.001 (0.010)"
    ),
    "torchvision's references (MetricLogger)": (
        "Epoch: [0]  [  10/1251]  eta: 0:12:51  lr: 0.1  img/s: 412.7  loss: 6.9 (6.9)  "
        "time: 0.6211  data: 0.0021  max mem: 9000"
    ),
    "MaxText": (
        "completed step: 9, seconds: 5.667, TFLOP/s/device: 134.924, "
        "Tokens/s/device: 8672.758, total_weights: 196608, loss: 10.374"
    ),
    "Levanter": (
        "Progress on:train 200it/1.00kit rate:6.2it/s remaining:02:09 elapsed:00:40 postfix:loss=5"
    ),
    "NVIDIA's dllogger as JSON (DLLL)": (
        'DLLL {"timestamp": "1570716916.143421", "elapsedtime": "1.2", "datetime": "2019-10-10", '
        '"type": "LOG", "step": [0, 5], "data": {"train.total_ips": 350.2}}'
    ),
    "NVIDIA's older trainers (NVLOG)": "NVLOG resnet50 1560000000.123 train_loss: 6.9",
    "MLPerf (MLLOG)": (
        '0: :::MLLOG {"namespace": "", "time_ms": 1721026805975, "event_type": "POINT_IN_TIME", '
        '"key": "tracked_stats", "value": {"throughput": 1.92}, "metadata": {"lineno": 7, '
        '"step": 3072}}'
    ),
    "nanoGPT": "iter 1631: loss 4.0863, time 561.94ms, mfu 3.21%",
    "modded-nanogpt": "step:125/3375 val_loss:4.85424 train_time:56129ms step_avg:449.03ms",
    "PaddleNLP or PaddleFormers": (
        "[2024-03-03 18:06:33,717] [    INFO] - loss: 1.07373798, learning_rate: 8e-08, "
        "global_step: 2, interval_runtime: 0.1491, interval_samples_per_second: 214.59, "
        "interval_steps_per_second: 6.70, epoch: 0.01"
    ),
    "OneFlow's LiBai": (
        "[09/19 14:39:40 lb.utils.events]:  eta: 22:07:18  iteration: 87/18660  "
        "consumed_samples: 704  total_loss: 10.36  time: 4.2893 s/iter  data_time: 0.0105 s/iter  "
        "total_throughput: 1.87 samples/s lr: 4.99e-05"
    ),
    "detectron2": (
        "[09/19 14:39:40 d2.utils.events]:  eta: 2:07:18  iter: 19  total_loss: 10.36  "
        "time: 0.3451  last_time: 0.2991  data_time: 0.0105  last_data_time: 0.01  lr: 0.01"
    ),
    "TensorFlow's Model Garden (orbit)": (
        "train | step:   1000 | steps/sec:    5.2 | output: {'training_loss': 1.2}"
    ),
    "OpenMMLab's MMEngine": (
        "11/21 10:00:00 - mmengine - INFO - Epoch(train)  [1][  50/7330]  lr: 9.9e-04  "
        "eta: 3:02:51  time: 0.4123  data_time: 0.0131  memory: 3500  loss: 1.2"
    ),
    "litgpt": (
        "Epoch 1 | iter 72 step 18 | loss train: 5.802, val: n/a | iter time: 369.65 ms (step) "
        "remaining time: 0:00:00"
    ),
    "OLMo-core": "2026-11-21 10:00:00 olmo_core INFO [step=10/1000,epoch=1]",
    "PaddleCV's later print format (batch_cost, ips)": (
        "INFO:utils.utility:[Pass 0, train batch 10]   loss 21.68535, acc1 0.00781, lr 0.10000, "
        "batch_cost 0.13110 sec, reader_cost 0.00069 sec, ips 976.32917 images/sec"
    ),
    "PaddleCV of 2019 (trainbatch)": "Pass 1, trainbatch 72, loss 6.9, acc1 0.0, time 0.92 sec",
    "PLSC 2.x": (
        "Training: 2021-10-03 07:36:36,401 - loss 43.6615, lr: 0.200000, epoch: 0, step: 400, "
        "eta: 6.58 hours, throughput: 6312.37 imgs/sec"
    ),
    "PaddleDetection": (
        "[07/28 22:27:11] ppdet.engine INFO: Epoch: [148] [ 20/791] learning_rate: 0.000010 "
        "loss: 4.587981 eta: 0:54:16 batch_cost: 1.7235 data_cost: 1.4684 ips: 4.6417 images/s"
    ),
    "PaddleClas": (
        "[Train][Epoch 1/120][Iter: 10/5005]lr(Cosine): 0.1, CELoss: 6.9, loss: 6.9, "
        "batch_cost: 0.41240s, reader_cost: 0.00110, ips: 310.37827 samples/s, eta: 2:51:00"
    ),
    "veRL": (
        "(TaskRunner pid=71) step:10 - actor/lr:1e-06 - perf/total_num_tokens:1520000 - "
        "perf/time_per_step:97.4 - perf/throughput:1950.7"
    ),
    "LLaMA-Factory (trainer_log.jsonl)": (
        '{"current_steps": 5, "total_steps": 200, "loss": 2.9867, "lr": 9.9e-05, "epoch": 0.04, '
        '"percentage": 2.5, "elapsed_time": "0:02:04", "remaining_time": "1:21:02", '
        '"throughput": 656.35, "total_tokens": 81920}'
    ),
    "Keras 2's progress bar": (
        "  3/150 [>.............................] - ETA: 16:25 - 6747ms/step - loss: 2.2900"
    ),
    "Keras 3's progress bar": (
        "  3/150 ━━━━━━━━━━━━━━━━━━━━ 16:25 6747ms/step - accuracy: 0.1111 - loss: 2.3000"
    ),
}
"""A real line of each."""

OTHER_LINES = {
    "modded-nanogpt": "step:125/3375 train_loss:4.85424 train_time:56129ms step_avg:449.03ms",
    "DeepSpeed": (
        "[2026-11-21 22:04:15,114] [INFO] [logging.py:123:log_dist] [Rank 0] step=20, skipped=0, "
        "lr=[0.001], mom=[(0.9, 0.999)]"
    ),
}
"""Lines that such a format takes, where they are not those that tell the trainer."""


@pytest.mark.parametrize("name", LINES)
def test_a_trainer_is_known_by_its_line(name):
    noise = b"node1:1:1 [0] NCCL INFO Launch mode Parallel\n"
    found = known_trainer(noise * 100 + LINES[name].encode() + b"\n")
    assert found.name == name


@pytest.mark.parametrize("name", LINES)
def test_a_trainer_s_own_format_reads_the_line(name):
    own_format = next(each.own_format for each in known_trainers() if each.name == name)
    if "record" in own_format:
        line = OTHER_LINES.get(name, LINES[name])
        found = compiled(own_format["record"]).search(line.encode())
        if "step" not in own_format:
            assert re.search(rf"\b{found['step'].decode()}\b", line)


@pytest.mark.parametrize("name", LINES)
def test_a_trainer_s_own_format_misreads_nothing(name):
    own_format = next(each.own_format for each in known_trainers() if each.name == name)
    if not own_format:
        return
    arguments = {"step": ("step_every", 1)}
    declared = dict(arguments.get(key, (key, value)) for key, value in own_format.items())
    line = OTHER_LINES.get(name, LINES[name])
    reason = misread(line, declared, "f-m-bf16-b8-s128-1n2g")
    assert reason is None


def misread(line, declared, of):
    """Say what a format wrongly takes for the time of a step; ``None`` where it does not."""
    log_format = custom_format("mine", **declared)
    line = line.encode()
    taken = next(iter(log_format.record.finditer(line)), None)
    if taken is None or log_format.timing.value not in log_format.record.groupindex:
        return None
    digits = re.sub(rb"\D", b"", taken[log_format.timing.value])
    for trainer in trainers_in(line):
        for span, number in trainer.numbers_on(line):
            is_right = number.is_read_rightly(log_format, Case.from_id(of))
            if re.sub(rb"\D", b"", line[slice(*span)]) == digits and not is_right:
                said = number.meaning or number.declared
                return f"{said} (a log of {trainer.name}); take {number.instead or number.declared}"
    return None


SEVERAL, ALONE = "f-m-bf16-b8-s128-2n2g", "f-m-bf16-b8-s128-1n1g"


@pytest.mark.parametrize(
    ("name", "record", "more", "said"),
    [
        (
            "torchtitan",
            r"step: +(?P<step>\d+) .* tps: (?P<tokens_per_second>[\d,]+) ",
            {},
            "a log of torchtitan); take the group tokens_per_second with 'rate_scope: device'",
        ),
        (
            "torchtitan",
            r"step: +(?P<step>\d+) .* tps: (?P<tokens_per_second>[\d,]+) ",
            {"rate_scope": "device"},
            None,
        ),
        (
            "DeepSpeed",
            r"global_step=(?P<step>\d+), .* CurrSamplesPerSec=(?P<samples_per_second>[\d.]+)",
            {},
            "of the last step alone",
        ),
        (
            "timm",
            r"Train: \d+ \[ +(?P<step>\d+)/.*\((?P<seconds>[\d.]+)s, +[\d.]+/s\)",
            {},
            "a mean since the epoch's start",
        ),
        (
            "torchvision's references (MetricLogger)",
            r"\[ +(?P<step>\d+)/\d+\] .* time: (?P<seconds>[\d.]+)",
            {},
            "a mean of the last 20 steps",
        ),
        (
            "modded-nanogpt",
            r"step:(?P<step>\d+)/.*train_time:(?P<milliseconds>[\d.]+)ms",
            {},
            "elapsed_milliseconds",
        ),
        (
            "PaddleNLP or PaddleFormers",
            r"global_step: (?P<step>\d+), interval_runtime: (?P<seconds>[\d.]+)",
            {},
            "covers: total_since_last",
        ),
    ],
)
def test_a_number_that_is_not_the_time_of_a_step_is_known(name, record, more, said):
    reason = misread(LINES[name], {"record": record, **more}, SEVERAL)
    if said is None:
        assert reason is None
    else:
        assert reason is not None
        assert said in reason
        assert f"a log of {name}" in reason


def test_a_speed_of_a_part_is_one_of_all_where_there_is_one_part():
    record = r"step: +(?P<step>\d+) .* tps: (?P<tokens_per_second>[\d,]+) "
    assert misread(LINES["torchtitan"], {"record": record}, ALONE) is None


def test_the_time_of_a_micro_batch_is_that_of_a_step_of_one():
    record = r"step (?P<step>\d+) \|.*iter time: (?P<milliseconds>[\d.]+) ms"
    line = LINES["litgpt"].replace("iter 72 step 18", "iter 18 step 18")
    assert misread(line, {"record": record}, ALONE) is None


def test_a_number_options_for_its_key_is_known_as_well():
    line = LINES["Hugging Face's Trainer"]
    taken = {
        "train_tokens_per_second": "tokens_per_second",
        "train_runtime": "elapsed_seconds",
    }
    reasons = [
        misread(line, {"json": {group: key}, "step_every": 1}, ALONE)
        for key, group in taken.items()
    ]
    assert reasons[0] is not None
    assert "covers: since_start" in reasons[0]
    assert reasons[1] is None


def test_a_bar_of_progress_tells_no_speed_and_no_name():
    line = "Epoch 0: :   3%|▎| 90/3015 [1:42:42<55:37:46,  1.46it/s, v_num=0]"
    record = r" (?P<step>\d+)/\d+ \[.*, +(?P<steps_per_second>[\d.]+)it/s"
    reason = misread(line, {"record": record}, ALONE)
    assert reason is not None
    assert "a moving mean of a progress bar" in reason
    # Many a trainer shows one while it loads its data.
    assert known_trainer(line.encode()) is None


def test_the_names_and_formats_of_the_catalogue():
    names = [trainer.name for trainer in known_trainers()]
    assert len(set(names)) == len(names)
    for trainer in known_trainers():
        assert (
            trainer.format
            or trainer.own_format
            or trainer.system
            or trainer.advice
            or "dllogger" in trainer.name
            or trainer.name == "PaddleClas"
        )
        assert all(literal.strip() for literal in trainer.literals)
