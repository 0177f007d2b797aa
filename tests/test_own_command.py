"""What a user types to train becomes a launch: what differs between cases and nodes is found."""

import pytest

from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.survey.own_command import read_command


@pytest.mark.parametrize(
    ("text", "launcher", "nodes", "devices", "arguments"),
    [
        (
            "torchrun --nproc-per-node 2 train.py --batch 32",
            "torchrun",
            1,
            2,
            ["train.py", "--batch", "{batch_per_device}"],
        ),
        (
            (
                "srun -N 4 --ntasks-per-node=1 torchrun --nnodes 4 --nproc_per_node=8 --rdzv_id 1 "
                "--rdzv_backend c10d --rdzv_endpoint $HEAD:29500 --max-restarts=0 -m own.train"
            ),
            "torchrun",
            4,
            8,
            ["--max-restarts=0", "-m", "own.train"],
        ),
        (
            (
                "OMP_NUM_THREADS=2 /opt/bin/python3.11 -u -m torch.distributed.run --standalone "
                "--nproc-per-node=gpu train.py"
            ),
            "torchrun",
            1,
            None,
            ["train.py"],
        ),
        (
            (
                "accelerate launch --num_processes 8 --num_machines 2 --machine_rank 0 "
                "--main_process_ip head --mixed_precision bf16 train.py"
            ),
            "accelerate",
            2,
            4,
            ["--mixed_precision", "bf16", "train.py"],
        ),
        ("deepspeed --num_gpus 4 train.py --z '{\"a\": 1}'", "deepspeed", 1, 4, None),
        (
            "python -m paddle.distributed.launch --devices 0,1 --log_dir=out train.py --batch 8",
            "paddle",
            1,
            2,
            ["train.py", "--batch", "{batch_per_device}"],
        ),
        ("python train.py data.batch_size=4", "python", 1, 1, None),
        ("bash train.sh 4", "", 1, None, ["bash", "train.sh", "4"]),
        ("python -X dev -W ignore train.py", "python", 1, 1, ["train.py"]),
        ("python -Wignore -m own.train --lr 1", "python", 1, 1, ["-m", "own.train", "--lr", "1"]),
        (
            "srun --nodes 2 --ntasks-per-node 8 --exclusive python -X dev train.py",
            *("python", 2, 8, ["train.py"]),
        ),
    ],
)
def test_launchers_are_taken_off(text, launcher, nodes, devices, arguments):
    command = read_command(text)
    assert (command.launcher, command.nodes) == (launcher, nodes)
    assert command.devices_per_node == devices
    if arguments is not None:
        assert command.arguments == arguments


def test_what_a_case_says_is_replaced_and_the_rest_stays():
    command = read_command(
        "torchrun train.py --micro-batch-size 2 --global-batch-size=256 --training.seq_len 4096 "
        "--train-iters=500 --bf16 --lr 1e-4 --json '{\"a\": 1}' --seed=1"
    )
    assert command.arguments == [
        "train.py",
        *("--micro-batch-size", "2", "--global-batch-size={global_batch}"),
        *("--training.seq_len", "{sequence_length}", "--train-iters={steps}", "--bf16"),
        *("--lr", "1e-4", "--json", '{{"a": 1}}', "--seed=1"),
    ]
    assert (command.batch, command.batch_is_global) == (256, True)
    assert (command.sequence_length, command.steps, command.precision) == (4096, 500, "bf16")


def test_a_step_takes_all_that_is_accumulated_for_it():
    command = read_command(
        "torchrun t.py --per_device_train_batch_size 4 --gradient_accumulation_steps=8"
    )
    assert command.batch == 32
    assert command.batch_is_of_device
    assert command.arguments[1:3] == ["--per_device_train_batch_size", "{batch_per_device/8}"]


def test_the_layout_is_that_of_the_case():
    command = read_command(
        "torchrun pretrain.py --tensor-model-parallel-size 2 --pipeline-model-parallel-size=1 "
        "--micro-batch-size 4"
    )
    assert command.ways == {"tp": 2}
    assert command.arguments[1:] == [
        *("--tensor-model-parallel-size", "{tp}", "--pipeline-model-parallel-size={pp}"),
        *("--micro-batch-size", "{batch_per_replica}"),
    ]


@pytest.mark.parametrize(
    ("argument", "precision"),
    [
        ("--dtype=bfloat16", "bf16"),
        ("--fp16", "fp16"),
        ("--precision 16-mixed", "fp16"),
        ("--amp", "amp"),
        ("--precision=best", None),
    ],
)
def test_the_precision_is_known_by_its_names(argument, precision):
    assert read_command(f"torchrun train.py {argument}").precision == precision


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("torchrun train.py | tee log", "needs a shell"),
        ("cd x && python train.py", "needs a shell"),
        ("torchrun --nproc-per-node 2", "names no script"),
        ("A=1", "names no program"),
        ("srun --nodes 2", "names no program"),
        ("python -c 'import train'", "names no script"),
        ("python 'train.py", "No closing quotation"),
    ],
)
def test_what_is_no_command_is_refused_with_a_reason(text, part):
    with pytest.raises(UsageError, match=part):
        read_command(text)
