"""The lines that each known trainer prints of its steps, for ``read_kinds.py``."""

from __future__ import annotations

from typing import Final

from read_kinds_training import BATCH, LENGTH, Log

DLL: Final = "DLL {s.now:%Y-%m-%d %H:%M:%S.%f} - "
ARRIVAL: Final = "known of launches only"
PRINT: Final = "have each rank print a line a step"
OWN_STEPS: Final = "has it print its steps"

LOGS: Final = (
    Log(
        kind="PaddleCV's later print format (batch_cost, ips)",
        line="INFO:utils.utility:[Pass 0, train batch {s.z}] \tloss {s.loss:.5f}, acc1 0.00781, "
        "acc5 0.00781, lr 0.10000, batch_cost {s.mean:.5f} sec, reader_cost 0.00069 sec, "
        "ips {s.rate:.5f} images/sec",
    ),
    Log(
        kind="PaddleCV of 2019 (trainbatch)",
        line="Pass 0, trainbatch {s.z}, loss {s.loss:.6f}, acc1 0.0, acc5 0.0, lr 0.1, "
        "time {s.last:.2f} sec",
    ),
    Log(
        kind="PLSC 2.x",
        every=10,
        line="Training: {s.comma} - loss {s.loss:.4f}, lr: 0.200000, epoch: 0, step: {s.n}, "
        "eta: 6.58 hours, throughput: {s.rate:.2f} imgs/sec",
    ),
    Log(
        kind="PaddleDetection",
        every=20,
        first=1,
        line="[{s.now:%m/%d %H:%M:%S}] ppdet.engine INFO: Epoch: [0] [{s.z:4d}/7917] "
        "learning_rate: 0.000010 loss: {s.loss:.6f} eta: 0:54:16 batch_cost: {s.mean:.4f} "
        "data_cost: 0.0004 ips: {s.rate_each:.4f} images/s",
    ),
    Log(
        kind="PaddleClas",
        every=10,
        first=1,
        line="[{s.now:%Y/%m/%d %H:%M:%S}] ppcls INFO: [Train][Epoch 1/120][Iter: {s.z}/5005]"
        "lr(Cosine): 0.1, CELoss: {s.loss:.5f}, loss: {s.loss:.5f}, batch_cost: {s.so_far:.5f}s, "
        "reader_cost: 0.00110, ips: {s.rate_each:.5f} samples/s, eta: 2:51:00",
    ),
    Log(
        kind="NVIDIA's PyTorch image classification",
        line=DLL + "Epoch: 0 Iteration: {s.n}  train.loss : {s.loss:.5f}  train.total_ips : "
        "{s.rate:.2f} img/s",
    ),
    Log(
        kind="the PyTorch example for ImageNet",
        ranks=8,
        line="Epoch: [0][{s.z:4d}/5005]\tTime {s.last:6.3f} ({s.so_far:6.3f})\tData  0.002 ( 0.010)"
        "\tLoss {s.loss:.4e} ({s.loss:.4e})\tAcc@1   0.00 (  0.12)\tAcc@5   0.78 (  0.51)",
    ),
    Log(
        kind="PLSC 1.x",
        every=10,
        first=1,
        ranks=8,
        head="INFO 2026-03-14 15:09:20,440 entry.py:157] \ttrain_batch_size: 32\n"
        "INFO 2026-03-14 15:09:20,440 entry.py:159] trainer_id: 0, num_trainers: 8\n",
        line="INFO {s.comma} entry.py:1027] Pass:0 batch:{s.z} lr:0.10000000 loss:{s.loss:.6f} "
        "qps:{s.quick:.2f}",
    ),
    Log(
        kind="torchtitan",
        every=10,
        also=(1,),
        line="[rank0]:[titan] {s.comma} - root - INFO - step: {s.n:2}  loss: {s.loss:8.5f}  "
        "grad_norm:  0.8319  memory:  9.46GiB(64.99%)  tps: {s.tokens_each:,.0f}  tflops: 0.52  "
        "mfu: 0.17%",
    ),
    Log(
        kind="veRL",
        line="(TaskRunner pid=71) step:{s.n} - actor/lr:1e-06 - actor/pg_loss:{s.loss:.4f} - "
        "perf/total_num_tokens:{s.some_tokens} - perf/time_per_step:{s.last} - "
        "perf/throughput:{s.some_speed}",
    ),
    Log(
        kind="Megatron-LM",
        every=10,
        line=" [{s.now:%Y-%m-%d %H:%M:%S}] iteration {s.n:8d}/    5000 | consumed samples: "
        "{s.samples:12d} | elapsed time per iteration (ms): {s.mean_ms:.1f} | throughput per GPU "
        "(TFLOP/s/GPU): 239.8 | learning rate: 1.0E-05 | global batch size: {s.batch:5d} | "
        "lm loss: {s.loss:.6E} | loss scale: 1.0 | grad norm: 0.704 | number of skipped "
        "iterations:   0 | number of nan iterations:   0 |",
    ),
    Log(
        kind="Megatron-Bridge's first rank",
        line="Step Time : {s.mean:.2f}s GPU utilization: 58.2TFLOP/s/GPU",
        seconds=14.2,
    ),
    Log(
        kind="NeMo",
        line="Training epoch 0, iteration {s.z}/4999 | lr: 2.999e-07 | global_batch_size: "
        "{s.batch} | global_step: {s.z} | reduced_train_loss: {s.loss:.4} | "
        "train_step_timing in s: {s.mean:.4} | consumed_samples: {s.samples}",
    ),
    Log(
        kind="NeMo AutoModel",
        line="2026-08-10 15:55:20 | INFO | root | step {s.z} | epoch 0 | loss {s.loss:.4f} | "
        "grad_norm 1.5436 | lr 1.00e-05 | mem 40.12 GiB | tps {s.tokens:.2f}({s.tokens_each:.2f}"
        "/gpu) | num_label_tokens 21541",
        head="  global_batch_size: 256\n2026-08-10 15:55:20 | INFO | root | World size: 8\n",
    ),
    Log(
        kind="DeepSpeed",
        every=10,
        line="[{s.comma}] [INFO] [logging.py:123:log_dist] [Rank 0] step={s.n}, skipped=0, "
        "lr=[0.001], mom=[(0.9, 0.999)]\n[{s.comma}] [INFO] [timer.py:264:stop] epoch=0/micro_step="
        "{s.n}/global_step={s.n}, RunningAvgSamplesPerSec={s.quick}, CurrSamplesPerSec={s.quick}, "
        "MemAllocated=1.0GB, MaxMemAllocated=1.0GB",
    ),
    Log(
        kind="DeepSpeed's pipeline engine",
        every=10,
        line="steps: {s.n} loss: {s.loss:.4f} iter time (s): {s.mean:.3f} samples/sec: "
        "{s.rate:.3f}",
    ),
    Log(
        kind="MaxText",
        head="I0314 15:09:19.222304 1400 pyconfig.py:591] Config param "
        f"global_batch_size_to_train_on: {BATCH}\nI0314 15:09:19.230233 1400 pyconfig.py:591] "
        f"Config param max_target_length: {LENGTH}\nI0314 15:09:19.441303 1400 "
        "maxtext_utils.py:2098] Num_devices: 8, shape (1, 1, 1, 8, 1, 1, 1, 1, 1, 1, 1, 1)\n",
        line="I{s.now:%m%d %H:%M:%S.%f} 1400 metric_logger.py:265] completed step: {s.z}, seconds: "
        "{s.last:.3f}, TFLOP/s/device: 134.924, Tokens/s/device: {s.tokens_each:.3f}, "
        "total_weights: 196608, loss: {s.loss:.3f}, lm_loss: {s.loss:.3f}, perplexity: 827.159",
    ),
    Log(
        kind="modded-nanogpt",
        line="step:{s.n}/3375 train_loss:{s.loss:.4f} train_time:{s.elapsed_ms:.0f}ms "
        "step_avg:{s.so_far_ms:.2f}ms",
    ),
    Log(
        kind="nanoGPT",
        every=10,
        first=1,
        line="iter {s.z}: loss {s.loss:.4f}, time {s.last_ms:.2f}ms, mfu 3.21%",
    ),
    Log(
        kind="litgpt",
        advice=ARRIVAL,
        line="Epoch 1 | iter {s.micros} step {s.n} | loss train: {s.loss:.3f}, val: n/a | "
        "iter time: {s.micro_ms:.2f} ms (step) remaining time: 0:00:00",
    ),
    Log(
        kind="OLMo-core",
        advice=ARRIVAL,
        line="[step={s.n}/1000,epoch=1]\n    optim/total grad norm=1.1\n"
        "    train/CE loss={s.loss:.4f}\n    throughput/device/TPS={s.tokens_each:,.0f}",
    ),
    Log(
        kind="Levanter",
        every=30,
        advice="its numbers go to its tracker",
        line="Progress on:train {s.n}it/50.0kit rate:2.0it/s remaining:02:09 elapsed:{s.bar} "
        "postfix:loss={s.loss:.2f}",
    ),
    Log(
        kind="Hugging Face's Trainer",
        variant="its tokens are counted",
        line="{{'loss': '{s.loss:.4}', 'grad_norm': '0.7721', 'learning_rate': '5e-05', 'epoch': "
        "'0.0019', 'num_input_tokens_seen': {s.all_tokens}, 'train_runtime': '{s.elapsed:.4}', "
        "'train_tokens_per_second': '{s.tokens_so_far:.4}'}}",
    ),
    Log(
        kind="LLaMA-Factory (trainer_log.jsonl)",
        every=5,
        line='{{"current_steps": {s.n}, "total_steps": 2000, "loss": {s.loss:.4f}, "lr": 9.9e-05, '
        '"epoch": 0.04, "percentage": 2.5, "elapsed_time": "0:{s.bar}", "remaining_time": '
        '"1:21:02", "throughput": {s.tokens_so_far:.2f}, "total_tokens": {s.all_tokens}}}',
    ),
    Log(
        kind="Hugging Face's Accelerate example",
        advice="print a line per step",
        line="epoch {s.z}: {{'accuracy': 0.68, 'f1': {s.loss}}}",
    ),
    Log(
        kind="PyTorch Lightning with rich",
        advice="print a line per step",
        every=15000,
        line="Epoch 0/-2 ━━━━━━━━━━━━━━━━━ {s.n}/{s.n} 0:00:00 • 0:00:00 2.00it/s v_num: 0",
    ),
    Log(
        kind="timm",
        every=50,
        first=1,
        line="Train: 0 [{s.z:>4d}/9000 ({s.percent:>3.0f}%)]  Loss: {s.loss:#.3g} (6.9)  Time: "
        "{s.last:.3f}s, {s.last_rate:>7.2f}/s  ({s.so_far:.3f}s, {s.rate_so_far:>7.2f}/s)  "
        "LR: 1.000e-05  Data: 0.001 (0.010)",
    ),
    Log(
        kind="torchvision's references (MetricLogger)",
        advice=ARRIVAL,
        every=10,
        first=1,
        line="Epoch: [0]  [{s.z:4d}/5005]  eta: 4:43:31  lr: 0.1  img/s: {s.quick_each}  loss: "
        "{s.loss:.4f} (6.9458)  acc1: 0.0000 (0.2103)  acc5: 0.0000 (0.9916)  time: {s.mean:.4f}  "
        "data: 0.0336  max mem: 3524",
    ),
    Log(
        kind="OpenMMLab's MMEngine",
        every=50,
        line="{s.now:%m/%d %H:%M:%S} - mmengine - INFO - Epoch(train)  [1][{s.n:4d}/9999]  "
        "lr: 9.9e-04  eta: 3:02:51  time: {s.mean:.4f}  data_time: 0.0131  memory: 3500  "
        "loss: {s.loss:.4f}",
    ),
    Log(
        kind="OneFlow's LiBai",
        every=20,
        line="[{s.now:%m/%d %H:%M:%S} lb.utils.events]:  eta: 22:07:18  iteration: {s.n}/18660  "
        "consumed_samples: {s.samples}  total_loss: {s.loss:.4}  time: {s.so_far:.4f} s/iter  "
        "data_time: 0.0105 s/iter total_throughput: {s.rate_so_far:.2f} samples/s lr: 4.99e-05",
    ),
    Log(
        kind="detectron2",
        every=20,
        line="[{s.now:%m/%d %H:%M:%S} d2.utils.events]:  eta: 2:07:18  iter: {s.z}  total_loss: "
        "{s.loss:.4}  time: {s.so_far:.4f}  last_time: {s.last:.4f}  data_time: 0.0105  "
        "last_data_time: 0.01  lr: 0.01  max_mem: 3000M",
    ),
    Log(
        kind="TensorFlow's Model Garden (orbit)",
        every=100,
        line="train | step: {s.n:6d} | steps/sec: {s.steps:6.1f} | output: \n    "
        "{{'training_loss': {s.loss}}}",
        seconds=0.02,
    ),
    Log(
        kind="PaddleNLP or PaddleFormers",
        every=10,
        line="[{s.comma}] [    INFO] - loss: {s.loss:.8f}, learning_rate: 8e-08, global_step: "
        "{s.n}, interval_runtime: {s.total:.4f}, interval_samples_per_second: {s.rate:.4f}, "
        "interval_tokens_per_second_per_device: {s.tokens_each:.4f}, interval_steps_per_second: "
        "{s.steps:.4f}, progress_or_epoch: 0.01",
    ),
    Log(
        kind="MLPerf (MLLOG)",
        head=':::MLLOG {"namespace": "", "time_ms": 1773500966000, "event_type": "POINT_IN_TIME", '
        '"key": "global_batch_size", "value": 256, "metadata": {"lineno": 7}}\n',
        line=':::MLLOG {{"namespace": "", "time_ms": {s.epoch_ms:.0f}, "event_type": '
        '"POINT_IN_TIME", "key": "tracked_stats", "value": {{"train_step_time": {s.last}, '
        '"reduced_train_loss": {s.loss}}}, "metadata": {{"file": "train.py", "lineno": 14, '
        '"samples_count": {s.samples}}}}}',
    ),
    Log(
        kind="NVIDIA's dllogger as JSON (DLLL)",
        line='DLLL {{"timestamp": "{s.epoch:.6f}", "elapsedtime": "{s.elapsed:.6f}", "datetime": '
        '"{s.now}", "type": "LOG", "step": [0, {s.n}], "data": {{"train.loss": {s.loss}, '
        '"train.total_ips": {s.rate}}}}}',
    ),
    Log(
        kind="NVIDIA's older trainers (NVLOG)",
        advice="declare the record of yours",
        line="NVLOGv0.2.2 resnet50 {s.epoch:.6f} (train.py:120) train_loss: {s.loss:.5f}",
    ),
    Log(
        kind="NVIDIA's PyTorch image classification before its first step",
        every=15000,
        advice=PRINT,
        line=DLL + "PARAMETER data : /imagenet  data_backend : dali-cpu  arch : resnet50  "
        "batch_size : 32  world_size : 8 ",
    ),
    Log(
        kind="another trainer, by dllogger",
        line=DLL + "Training iteration: {s.n}  loss : {s.loss:.5f}  step_time : {s.last:.4f} s",
    ),
    Log(
        kind="Keras 2's progress bar",
        line=" {s.n:3d}/200 [====>.........................] - ETA: 16:25 - {s.so_far_ms:.0f}ms/"
        "step - loss: {s.loss:.4f}",
    ),
    Log(
        kind="Keras 3's progress bar",
        line=" {s.n:3d}/200 ━━━━━━━━━━━━━━━━━━━━ 16:25 {s.so_far_ms:.0f}ms/step - accuracy: 0.1111 "
        "- loss: {s.loss:.4f}",
    ),
    Log(
        kind="a progress bar (tqdm)",
        seconds=4,
        end="",
        line="\r {s.percent:3.0f}%|███       | {s.n}/1500 [{s.bar}<08:00,  3.99s/it]",
    ),
)
"""One of each, as it is printed by default, or with the options that its users know."""
