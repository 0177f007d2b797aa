# ruff: noqa: DTZ001, PTH120, PTH123, PTH207, PTH208, T201 - a trainer writes as it likes

"""Stands in for the trainers of the original benchmark's systems.

One process a node prints what theirs print, as if each device trained 400 samples a second at the
batch that the command line gives it: a wrong batch gives a wrong throughput.
"""

import glob
import itertools
import os
import runpy
import sys
import time
from datetime import datetime, timedelta
from types import SimpleNamespace

SPEED = 400.0
START = datetime(2020, 9, 15, 23, 59, 18)


def option(name):
    """The value of an option, written ``--a=b`` or ``--a b``."""
    for argument, behind in zip(sys.argv, [*sys.argv[1:], ""], strict=True):
        if argument == name:
            return behind
        if argument.startswith(f"{name}="):
            return argument.partition("=")[2]
    raise SystemExit(f"{name} is missing")


def devices():
    """How many devices this node trains on."""
    return len(os.environ["CUDA_VISIBLE_DEVICES"].split(","))


def leave_a_checkpoint(folder):
    """Write as a trainer does, into a folder that no other node has."""
    assert os.listdir(folder) == []
    with open(f"{folder}/checkpoint", "w") as file:
        file.write("weights")


def paddle_launch():
    """As ``paddle.distributed.launch``: run the script of this node."""
    arguments = sys.argv[1:]
    while arguments[0].startswith("--"):
        arguments.pop(0)
    nodes = option("--cluster_node_ips").split(",") if "cluster" in str(sys.argv) else ["own"]
    rank = nodes.index(option("--node_ip")) if len(nodes) > 1 else 0
    os.environ["PADDLE_TRAINERS_NUM"] = str(len(nodes) * devices())
    os.environ["PADDLE_TRAINER_ID"] = str(rank * devices())
    sys.argv = arguments
    sys.path.insert(0, os.path.dirname(arguments[0]))
    runpy.run_path(arguments[0], run_name="__main__")


class Entry:
    """As PLSC's: it says what it is told, and trains for ever."""

    def __init__(self):
        self.said("\ttrain_batch_size: 128")

    def set_class_num(self, number):
        self.said(f"Set num_classes to {number}.")

    def set_loss_type(self, loss_type):
        self.said(f"Set loss_type to {loss_type}.")

    def set_log_period(self, period):
        self.said(f"Set log period to {period}.")

    def set_with_test(self, with_test):
        self.said(f"Set with_test to {with_test}.")

    def set_model_save_dir(self, directory):
        self.said(f"Set model_save_dir to {directory}.")

    def said(self, text, now=START):
        print(f"INFO {now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03} entry.py:1] {text}")

    def train(self):
        qps = SPEED * int(os.environ.get("PADDLE_TRAINERS_NUM", "1"))
        for batch in itertools.count(0, 10):
            for _ in range(devices()):
                self.said(
                    f"Pass:0 batch:{batch} lr:0.10000000 loss:44.003868 qps:{qps:.2f}",
                    START + timedelta(seconds=batch * 128 / SPEED),
                )
            sys.stdout.flush()
            time.sleep(0.005)


# What the program of the suite takes from TensorFlow's models, and from absl.
flags = SimpleNamespace(FLAGS=SimpleNamespace())
strategy = SimpleNamespace(has_xla=False, workers=[])


def _run(main):
    several = any(text.startswith("--worker_hosts") for text in sys.argv)
    flags.FLAGS = SimpleNamespace(
        enable_xla=option("--enable_xla") == "true",
        worker_hosts=option("--worker_hosts") if several else None,
        task_index=int(option("--task_index")) if several else None,
        all_reduce_alg=option("--all_reduce_alg") if several else None,
    )
    main(sys.argv)


app = SimpleNamespace(run=_run)


def set_session_config(*, enable_xla):
    strategy.has_xla = enable_xla


def configure_cluster(worker_hosts, task_index):
    del task_index
    strategy.workers = (worker_hosts or "own").split(",")


def get_distribution_strategy(*, all_reduce_alg):
    assert (all_reduce_alg == "nccl") == (len(strategy.workers) > 1)
    return strategy


def bert_pretraining(_):
    from official.utils.misc import distribution_utils

    found = distribution_utils.get_distribution_strategy()
    assert found.has_xla == flags.FLAGS.enable_xla
    assert glob.glob(option("--input_files"))
    leave_a_checkpoint(option("--model_dir"))
    batch = int(option("--train_batch_size")) / len(found.workers) / devices()
    for step in range(1, 121):
        now = START + timedelta(seconds=step * batch / SPEED)
        print(
            f"I{now:%m%d %H:%M:%S.%f} 140555885927296 model_training_utils.py:505] "
            f"Train Step: {step}/120  / loss = 5.302196025848389  "
            "masked_lm_accuracy = 0.000000  lm_example_loss = 4.608097"
        )
