"""Other lines that known trainers print, of other versions or with other options."""

from __future__ import annotations

from typing import Final

from read_kinds_logs import ARRIVAL, OWN_STEPS
from read_kinds_training import Log

TORCHVISION: Final = (
    "Epoch: [0]  [{s.z:4d}/5005]  eta: 4:43:31  lr: 0.1  img/s: {s.quick_each}  loss: "
    "{s.loss:.4f} (6.9458)  acc1: 0.0000 (0.2103)  acc5: 0.0000 (0.9916)  time: {s.recent:.4f}  "
    "data: 0.0336  max mem: 3524"
)

VARIANTS: Final = (
    Log(
        kind="modded-nanogpt",
        variant="in seconds",
        line="step:{s.n}/3375 train_loss:{s.loss:.4f} train_time:{s.elapsed:.3f}s "
        "step_avg:{s.so_far_ms:.2f}ms",
    ),
    Log(
        kind="OLMo-core",
        variant="with stamps",
        advice=ARRIVAL,
        line="{s.comma}\tnode1:0\tolmo_core.train.callbacks.console_logger:96\tINFO\t"
        "[step={s.n}/1000,epoch=1]\n    optim/total grad norm=1.1\n"
        "    train/CE loss={s.loss:.4f}\n    throughput/device/TPS={s.tokens_each:,.0f}",
    ),
    Log(
        kind="Hugging Face's Trainer",
        variant="with its bar",
        advice=OWN_STEPS,
        every=10,
        end="",
        line="\r {s.percent:3.0f}%|███       | {s.n}/1500 [{s.bar}<08:00,  2.00it/s]{{'loss': "
        "'{s.loss:.4}', 'grad_norm': '0.7711', 'learning_rate': '1e-05', 'epoch': '0.03'}}\n",
    ),
    Log(
        kind="Hugging Face's Trainer",
        variant="without a bar",
        advice=OWN_STEPS,
        line="{{'loss': '{s.loss:.4}', 'grad_norm': '0.7711', 'learning_rate': '1e-05', 'epoch': "
        "'0.03'}}",
        foot="{'train_runtime': '90.1', 'train_samples_per_second': '426', "
        "'train_steps_per_second': '1.66', 'train_loss': '6.266', 'epoch': '0.03906'}\n",
    ),
    Log(
        kind="PaddleClas",
        variant="elapse, of its first versions",
        line="2020-08-14 {s.now:%H:%M:%S} INFO: epoch:0   train step:{s.z:<5d} lr: 0.100000, "
        "loss: {s.loss:.5f} top1: 0.0078 elapse: {s.last:.3f}s",
    ),
    Log(
        kind="NeMo",
        variant="every 10",
        every=10,
        line="Training epoch 0, iteration {s.z}/4999 | lr: 2.999e-07 | global_batch_size: "
        "{s.batch} | global_step: {s.z} | reduced_train_loss: {s.loss:.4} | "
        "train_step_timing in s: {s.mean:.4} | consumed_samples: {s.samples}",
    ),
    Log(
        kind="MaxText",
        variant="without its configuration",
        line="completed step: {s.z}, seconds: {s.last:.3f}, TFLOP/s/device: 134.924, "
        "Tokens/s/device: {s.tokens_each:.3f}, total_weights: 196608, loss: {s.loss:.3f}",
    ),
    Log(
        kind="litgpt",
        variant="without accumulation",
        advice=ARRIVAL,
        line="Epoch 1 | iter {s.n} step {s.n} | loss train: {s.loss:.3f}, val: n/a | "
        "iter time: {s.last_ms:.2f} ms (step) remaining time: 0:00:00",
    ),
    Log(
        kind="Hugging Face's Trainer",
        variant="its tokens are counted, every 10",
        every=10,
        line="{{'loss': '{s.loss:.4}', 'grad_norm': '0.7721', 'learning_rate': '5e-05', 'epoch': "
        "'0.0019', 'num_input_tokens_seen': {s.all_tokens}, 'train_runtime': '{s.elapsed:.4}', "
        "'train_tokens_per_second': '{s.tokens_so_far:.4}'}}",
    ),
    Log(
        kind="torchvision's references (MetricLogger)",
        variant="each step, a mean of 20",
        line=TORCHVISION,
    ),
    Log(
        kind="torchvision's references (MetricLogger)",
        variant="every 100, a mean of 20",
        every=100,
        first=1,
        line=TORCHVISION,
    ),
    Log(
        kind="MLPerf (MLLOG)",
        variant="steps count samples",
        line='0: :::MLLOG {{"namespace": "", "time_ms": {s.epoch_ms:.0f}, "event_type": '
        '"POINT_IN_TIME", "key": "tracked_stats", "value": {{"throughput": {s.rate}}}, '
        '"metadata": {{"lineno": 7, "step": {s.samples}}}}}',
    ),
    Log(
        kind="Keras 2's progress bar",
        variant="seconds",
        advice="measure more steps",
        seconds=6,
        line=" {s.n:3d}/200 [====>.........................] - ETA: 16:25 - {s.so_far:.0f}s/step"
        " - loss: {s.loss:.4f}",
    ),
    Log(
        kind="a progress bar (tqdm)",
        variant="fast steps",
        advice="measure more steps",
        seconds=0.1,
        every=5,
        end="",
        line="\r {s.percent:3.0f}%|███       | {s.n}/1500 [{s.bar}<08:00,  9.98it/s]",
    ),
)
