"""The trainers of the shipped formats, as the fuzzer prints their logs."""

from __future__ import annotations

from typing import Final

from fuzz_training import Step, Trainer, Training, comma_stamp

from pytest_dlperf.formats.shipped import BUILTIN_FORMATS


def _batch(training: Training) -> int:
    return training.case.batch_per_replica or 0


def _paddle_line(step: Step) -> str:
    return (
        f"{comma_stamp(step)}-INFO: [Pass {step.epoch}, train batch {step.printed}] \tloss "
        f"6.92724, acc1 0.00000, acc5 0.00000, lr 0.00100, elapse {step.seconds:2.4f} sec"
    )


def _paddle_head(training: Training, rank: int) -> list[str]:
    del rank
    world = training.case.topology.world_size
    said = {
        "batch_size": _batch(training) * training.case.topology.devices_per_node,
        "test_batch_size": 8,
        "use_dali": False,
        "use_fp16": training.case.precision == "fp16",
    }
    stamp = f"{training.start:%Y-%m-%d %H:%M:%S},894-INFO:"
    return [
        f"PADDLE_TRAINERS_NUM {world} ",
        "PADDLE_TRAINER_ID 0 ",
        f"{stamp} -------------  Configuration Arguments -------------",
        *(f"{stamp} {name:>25} : {value}" for name, value in said.items()),
    ]


def _dllogger_line(step: Step) -> str:
    rate = step.training.case.global_batch / step.mean
    return (
        f"DLL {step.now} - Epoch: {step.epoch} Iteration: {step.printed}  train.loss : 6.67351  "
        f"train.total_ips : {rate:.2f} img/s"
    )


def _dllogger_head(training: Training, rank: int) -> list[str]:
    del rank
    case = training.case
    return [
        "=> creating model '('resnet50', 'classic', 1000)'",
        (
            f"DLL {training.start} - PARAMETER data : /imagenet  data_backend : dali-cpu  arch : "
            f"resnet50  workers : 5  batch_size : {_batch(training)}  optimizer_batch_size : -1  "
            f"lr : 0.1  print_freq : {training.interval}  fp16 : False  static_loss_scale : 128.0  "
            f"prof : 100  amp : {case.precision == 'amp'}  training_only : True  gpu : 0  "
            f"world_size : {case.topology.world_size} "
        ),
        "RUNNING EPOCHS FROM 0 TO 1",
    ]


def _pytorch_line(step: Step) -> str:
    total = step.epoch_length
    return (
        f"Epoch: [{step.epoch}][{step.printed:{len(str(total))}d}/{total}]\tTime "
        f"{step.seconds:6.3f} ({step.seconds * 1.1:6.3f})\tData  0.107 ( 0.094)\t"
        "Loss 5.3901e+00 (1.1786e+01)\tAcc@1   0.78 (  1.95)\tAcc@5  16.41 ( 11.77)"
    )


def _plsc_line(step: Step) -> str:
    training = step.training
    rate = f"{training.case.global_batch / (step.mean * (1 - training.waits)):.2f}"
    return (
        f"INFO {comma_stamp(step)} entry.py:1027] Pass:{step.epoch} batch:{step.printed} "
        f"lr:0.10000000 loss:44.003868 qps:{rate}"
    )


def _plsc_head(training: Training, rank: int) -> list[str]:
    stamp = f"INFO {training.start:%Y-%m-%d %H:%M:%S},491 entry.py"
    world, batch = training.case.topology.world_size, _batch(training)
    changed = batch % 3 == 1  # the program sets it, after its default has been printed
    return [
        f"{stamp}:154] =====================================",
        f"{stamp}:157] \ttrain_batch_size: {128 if changed else batch}",
        f"{stamp}:157] \ttest_batch_size: 120",
        f"{stamp}:157] \tloss_type: dist_arcface",
        f"{stamp}:159] trainer_id: {rank}, num_trainers: {world}",
        *([f"{stamp}:211] Set train batch size to {batch}."] if changed else []),
        f"{stamp}:203] Set log period to {training.interval}.",
    ]


def _bert_line(step: Step) -> str:
    return (
        f"I{step.now:%m%d %H:%M:%S.%f} 140555885927296 model_training_utils.py:505] "
        f"Train Step: {step.printed}/{len(step.training.seconds)}  / loss = 5.302196025848389  "
        "masked_lm_accuracy = 0.0  lm_example_loss = 4.608097"
    )


def _bert_foot(training: Training, rank: int) -> list[str]:
    del rank
    return [f"***** Number of cores used :  {training.case.topology.world_size}"]


def _dlperf_line(step: Step) -> str:
    time = 1000.0 * step.rank + 3.25 + step.elapsed
    return f"dlperf step rank={step.rank} step={step.printed} time={time:.6f} loss=6.9078"


def _dlperf_head(training: Training, rank: int) -> list[str]:
    topology = training.case.topology
    return [
        (
            f"dlperf run rank={rank} world_size={topology.world_size} nodes={topology.nodes} "
            f"devices_per_node={topology.devices_per_node} batch_per_device={_batch(training)} "
            f"precision={training.case.precision}"
        )
    ]


SHIPPED: Final = (
    Trainer(
        name="paddle_resnet",
        log_format=BUILTIN_FORMATS["paddle_resnet"],
        line=_paddle_line,
        head=_paddle_head,
        validation=(
            ("[Pass 0, test  batch 0] \tloss 6.90000, acc1 0.00, acc5 0.00000, elapse 0.0457 sec"),
            "[End pass 0]\ttrain_loss 2.61537, test_loss 2.1",
        ),
        tells=frozenset({"batch", "world", "precision"}),
        precisions=("fp32", "fp16"),
        first=0,
        least_seconds=0.1,
    ),
    Trainer(
        name="dllogger",
        log_format=BUILTIN_FORMATS["dllogger"],
        line=_dllogger_line,
        head=_dllogger_head,
        validation=(
            (
                "DLL 2020-09-15 14:29:18 - Epoch: 0  train.loss : 7.28801  train.total_ips : 364.2 "
                "img/s"
            ),
            (
                "DLL 2020-09-15 14:29:18 - Epoch: 0 Iteration: 150 Validation Iteration: 3  "
                "val.loss : 1.0"
            ),
        ),
        tells=frozenset({"batch", "world", "precision"}),
        precisions=("fp32", "amp"),
    ),
    Trainer(
        name="pytorch_imagenet",
        log_format=BUILTIN_FORMATS["pytorch_imagenet"],
        line=_pytorch_line,
        head=lambda _, rank: [f"Use GPU: {rank} for training", "=> creating model 'resnet50'"],
        validation=(
            "Test: [0/3]\tTime  0.299 ( 0.299)\tLoss 2.7237e+00 (2.7237e+00)",
            " * Acc@1 0.100 Acc@5 0.500",
        ),
        tells=frozenset({"devices"}),
        first=0,
        least_seconds=0.3,
    ),
    Trainer(
        name="plsc",
        log_format=BUILTIN_FORMATS["plsc"],
        line=_plsc_line,
        head=_plsc_head,
        validation=("INFO 2020-11-20 08:31:55,440 entry.py:1033] End pass 0, train_loss 44.0",),
        tells=frozenset({"batch", "world"}),
        intervals=(10, 10, 1, 5),
        epochs=False,
        waits=True,
        first=0,
        least_seconds=0.2,
    ),
    Trainer(
        name="tf_models_bert",
        log_format=BUILTIN_FORMATS["tf_models_bert"],
        line=_bert_line,
        foot=_bert_foot,
        validation=("I1120 08:32:30.228544 140555885927296 model_training_utils.py:510] ***",),
        tells=frozenset({"world"}),
        epochs=False,
    ),
    Trainer(
        name="dlperf",
        log_format=BUILTIN_FORMATS["dlperf"],
        line=_dlperf_line,
        head=_dlperf_head,
        foot=lambda _, rank: [f"dlperf end rank={rank}"],
        tells=frozenset({"batch", "world", "precision"}),
        precisions=("fp32", "amp"),
        epochs=False,
        intervals=(1,),
    ),
)
