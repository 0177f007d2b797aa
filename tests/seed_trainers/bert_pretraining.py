# ruff: noqa: T201 - trainers print

"""In the place of ``run_pretraining.py`` in tensorflow/models, ``official/nlp/bert``.

And of what it is made of there: its strategy knows several workers by ``TF_CONFIG``, and a training
has XLA by the session's configuration, never by an option alone.
"""

from __future__ import annotations

import glob
import json
import os
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from seed_trainers.flags import Flags, divided, expect, switch
from seed_trainers.folders import emptied
from seed_trainers.meeting import Meeting, endpoint_of, visible_devices
from seed_trainers.pace import step_s

_SEVERAL_WORKERS = ("distribution_strategy", "worker_hosts", "task_index", "all_reduce_alg")


def main(_: object) -> None:
    """Train as many steps as it is told: one process for all devices of a node."""
    from official.utils.misc import distribution_utils

    given = flags.FLAGS
    strategy = distribution_utils.get_distribution_strategy(
        distribution_strategy=given.distribution_strategy,
        num_gpus=given.num_gpus,
        tpu_address="",
    )
    workers = [endpoint_of(text) for text in strategy.workers]
    for name in _SEVERAL_WORKERS:
        is_given = getattr(given, name) is not None
        expect(f"whether --{name} is given", is_given, len(workers) > 1)
    _check_environment(given, workers=len(workers))
    task = strategy.task
    replicas = len(workers) * given.num_gpus
    batch = divided("--train_batch_size", given.train_batch_size, replicas)
    emptied(given.model_dir)
    print("***** Number of cores used : ", replicas)
    meeting = Meeting.at_endpoints(task, workers)
    xla = "-xla" if _session.has_xla else ""
    case = f"{given.dtype}-b{batch}{xla}-{len(workers)}n{given.num_gpus}g"
    meeting.agree({"case": case}, place={"node": task, "device": visible_devices()})
    steps = given.num_steps_per_epoch * given.num_train_epochs
    now = datetime(2020, 2, 28, 23, 59, 18, 553769)  # noqa: DTZ001 - the log tells no zone
    for step in range(1, steps + 1):
        meeting.step()
        now += timedelta(seconds=step_s(step - 1, batch))
        sys.stderr.write(
            f"I{now:%m%d %H:%M:%S.%f} 140555885927296 model_training_utils.py:505] "
            f"Train Step: {step}/{steps}  / loss = 5.302196025848389  "
            "masked_lm_accuracy = 0.000000  lm_example_loss = 4.608097\n"
        )


_session = SimpleNamespace(has_xla=False)


def set_session_config(enable_xla: bool = False) -> None:
    """Turn XLA on, or leave it."""
    _session.has_xla = enable_xla


def configure_cluster(worker_hosts: str | None = None, task_index: int | None = None) -> None:
    """Tell TensorFlow of the workers, if there are several."""
    if worker_hosts:
        task = {"type": "worker", "index": task_index}
        cluster = {"worker": worker_hosts.split(",")}
        os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})


def get_distribution_strategy(
    distribution_strategy: str | None,
    num_gpus: int,
    tpu_address: str,
    all_reduce_alg: str | None = None,
) -> SimpleNamespace:
    """Find the workers, as the strategy of several does."""
    expect("the devices", num_gpus, len(visible_devices()))
    expect("the address of a TPU", tpu_address, "")
    is_several = distribution_strategy == "multi_worker_mirrored"
    expect("all_reduce_alg", all_reduce_alg, "nccl" if is_several else None)
    if not is_several:
        return SimpleNamespace(workers=["127.0.0.1:0"], task=0)
    told = json.loads(os.environ["TF_CONFIG"])
    return SimpleNamespace(workers=told["cluster"]["worker"], task=told["task"]["index"])


def _run(main: Callable[[list[str]], None]) -> None:
    flags.FLAGS = _parsed()
    main(sys.argv)


app = SimpleNamespace(run=_run)
"""In the place of absl's."""
flags = SimpleNamespace(FLAGS=None)


def _parsed() -> Any:
    flags = Flags()
    for name in ("input_files", "model_dir", "bert_config_file", "worker_hosts"):
        flags.add_argument(f"--{name}")
    for name in (
        "max_seq_length",
        "max_predictions_per_seq",
        "train_batch_size",
        "num_steps_per_epoch",
        "num_train_epochs",
        "train_summary_interval",
        "num_gpus",
        "datasets_num_private_threads",
        "task_index",
    ):
        flags.add_argument(f"--{name}", type=int)
    flags.add_argument("--warmup_steps", type=float)
    flags.add_argument("--use_next_sentence_label", type=switch)
    flags.add_argument("--enable_xla", type=switch)
    flags.add_argument("--dtype", choices=["fp16", "bf16", "fp32"])
    flags.add_argument("--optimizer_type", choices=["adamw", "lamb"])
    flags.add_argument("--distribution_strategy", choices=["mirrored", "multi_worker_mirrored"])
    flags.add_argument("--all_reduce_alg", choices=["ring", "nccl"])
    return flags.parse(sys.argv[1:], optional=_SEVERAL_WORKERS)


def _check_environment(given: Any, *, workers: int) -> None:
    expect("--num_gpus", given.num_gpus, len(visible_devices()))
    expect("whether there are records", bool(glob.glob(given.input_files)), True)  # noqa: PTH207
    config = json.loads(Path(given.bert_config_file).read_text(encoding="utf-8"))
    expect("the number of layers", config["num_hidden_layers"], 12)
    xla = "--tf_xla_cpu_global_jit" if given.enable_xla else None
    expect("TF_XLA_FLAGS", os.environ.get("TF_XLA_FLAGS"), xla)
    expect("NCCL_DEBUG", os.environ.get("NCCL_DEBUG"), "INFO" if workers > 1 else None)
