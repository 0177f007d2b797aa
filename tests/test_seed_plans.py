"""What the plans of the original benchmark's systems execute, held against its own settings."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_dlperf.config.launch_keys import Devices, StartOn, VariableKind
from pytest_dlperf.config.settings import parse_setting, resolve
from pytest_dlperf.config.systems import load_systems
from pytest_dlperf.files.masking import hide_variables, hide_words
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS
from pytest_dlperf.launch.hosts import Host, Node
from pytest_dlperf.launch.plan import plan_run
from pytest_dlperf.model.case import SINGLE_DEVICE, Case, Topology

FOLDER = Path(__file__).parent.parent / "bench_tests" / "systems"
TRAINERS = FOLDER.parent / "trainers"
SYSTEMS = load_systems(sorted(FOLDER.glob("*.yaml")), BUILTIN_FORMATS)
SEEDS = (
    "paddle-resnet50",
    "ngc_pytorch-resnet50",
    "pytorch-resnet50",
    "paddle-arcface_r50",
    "tensorflow-bert_base",
)
TOPOLOGIES = ("1n1g", "1n2g", "1n4g", "1n8g", "2n8g", "4n8g")
SET = {
    "paddle-resnet50": {"checkout": "/paddle", "data": "/imagenet", "dali_extra": "/dali"},
    "ngc_pytorch-resnet50": {"checkout": "/ngc", "data": "/imagenet"},
    "pytorch-resnet50": {"checkout": "/examples", "data": "/imagenet"},
    "paddle-arcface_r50": {"checkout": "/plsc"},
    "tensorflow-bert_base": {"checkout": "/tf", "data": "/wiki", "bert_config": "/bert.json"},
}
# The addresses of the original cluster; ports that differ show whose port is meant.
ADDRESSES = ("10.11.0.2", "10.11.0.3", "10.11.0.4", "10.11.0.5")


def nodes_of(case, addresses=ADDRESSES):
    return tuple(
        Node(
            host=Host(name=f"v100-{rank}", address=addresses[rank]),
            port=20000 + rank,
            first_port=25000,
            device_ids=tuple(range(case.topology.devices_per_node)),
            folder=f"/own/{rank}",
        )
        for rank in range(case.topology.nodes)
    )


def plan(
    case,
    *more,
    addresses=ADDRESSES,
    given_values=None,
):
    system = SYSTEMS[case.system]
    assert system.launch is not None
    values = SET[case.system] if given_values is None else given_values
    said = [f"{system.id}.{name}={value}" for name, value in values.items()]
    variables = resolve(
        system.launch, system.id, [[parse_setting(text) for text in (*said, *more)]], case=case
    )
    return plan_run(
        system.launch,
        case=case,
        window=system.window,
        settling_steps=system.log_format.settling_steps,
        system_directory=system.file.parent,
        run=1,
        nodes=nodes_of(case, addresses),
        variables=variables,
        python="/usr/bin/python3",
        log=Path(f"/runs/{case.id}_1.log"),
    )


def cases_of(system):
    """Every training of a system at every topology, published or not."""
    variants = dict.fromkeys(replace(case, topology=SINGLE_DEVICE) for case in system.cases)
    topologies = [Topology.parse(text) for text in TOPOLOGIES]
    return [replace(one, topology=topology) for one in variants for topology in topologies]


COMMANDS = {
    "paddle-resnet50-fp32-b128-4n8g": """
        CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 FLAGS_fraction_of_gpu_memory_to_use=0.98
        /usr/bin/python3 -m paddle.distributed.launch --started_port=25000
        --cluster_node_ips=10.11.0.2,10.11.0.3,10.11.0.4,10.11.0.5 --node_ip=10.11.0.5
        /paddle/train.py --data_format=NCHW --data_dir=/imagenet --total_images=1302936
        --class_dim=1000 --validate=False --model=ResNet50 --batch_size=1024 --print_step=1
        --save_step=10000 --reader_thread=8 --lr_strategy=piecewise_decay --lr=0.001
        --momentum_rate=0.875 --image_shape 3 224 224 --max_iter=120
        --model_save_dir=/own/3/scratch --l2_decay=0.000030518 --warm_up_epochs=1
        --use_mixup=False --use_label_smoothing=True --use_dali=false
        --label_smoothing_epsilon=0.1
    """,
    "paddle-resnet50-fp16-b196-dali-1n4g": """
        CUDA_VISIBLE_DEVICES=0,1,2,3 FLAGS_fraction_of_gpu_memory_to_use=0.8
        FLAGS_conv_workspace_size_limit=4000 FLAGS_cudnn_exhaustive_search=1
        FLAGS_cudnn_batchnorm_spatial_persistent=1 DALI_EXTRA_PATH=/dali /usr/bin/python3 -m
        paddle.distributed.launch --started_port=25000 /paddle/train.py --use_fp16=True
        --use_dynamic_loss_scaling=true --scale_loss=128.0 --fuse_elewise_add_act_ops=true
        --fuse_bn_act_ops=true --data_format=NHWC --data_dir=/imagenet
        --total_images=1302936 --class_dim=1000 --validate=False --model=ResNet50
        --batch_size=784 --print_step=1 --save_step=10000 --reader_thread=10
        --lr_strategy=cosine_decay --lr=0.001 --momentum_rate=0.875 --image_shape 3 224 224
        --max_iter=120 --model_save_dir=/own/0/scratch --l2_decay=0.000030518
        --warm_up_epochs=1 --use_mixup=False --use_label_smoothing=True --use_dali=true
        --label_smoothing_epsilon=0.1
    """,
    "ngc_pytorch-resnet50-fp32-b128-2n8g": """
        CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 /usr/bin/python3 /ngc/multiproc.py --nnodes 2
        --node_rank 1 --nproc_per_node 8 --master_addr 10.11.0.2 --master_port 20000
        /ngc/main.py --data-backend dali-cpu --raport-file /own/1/scratch/raport.json -j8 -p
        1 --lr 1.024 --optimizer-batch-size -1 --warmup 8 --arch resnet50 -c fanin
        --label-smoothing 0.1 --lr-schedule cosine --mom 0.125 --wd 3.0517578125e-05
        --workspace /own/1/scratch -b 128 --epochs 1 --prof 126 --training-only
        --no-checkpoints /imagenet
    """,
    "ngc_pytorch-resnet50-amp-b256-1n1g": """
        CUDA_VISIBLE_DEVICES=0 /usr/bin/python3 /ngc/multiproc.py --nnodes 1 --node_rank 0
        --nproc_per_node 1 --master_addr 10.11.0.2 --master_port 20000 /ngc/main.py
        --data-backend dali-cpu --raport-file /own/0/scratch/raport.json -j8 -p 1 --lr 0.256
        --optimizer-batch-size -1 --warmup 8 --arch resnet50 -c fanin --label-smoothing 0.1
        --lr-schedule cosine --mom 0.125 --wd 3.0517578125e-05 --workspace /own/0/scratch -b
        256 --epochs 1 --prof 126 --training-only --no-checkpoints --amp
        --dynamic-loss-scale /imagenet
    """,
    "pytorch-resnet50-fp32-b128-workers48-1n8g": """
        CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 /usr/bin/python3 /examples/main.py --arch
        resnet50 --epochs 1 --batch-size 1024 --lr 1.024 --workers 48 --momentum 0.125
        --print-freq 1 --multiprocessing-distributed --dist-backend nccl --dist-url
        tcp://10.11.0.2:20000 --world-size 1 --rank 0 /imagenet
    """,
    "pytorch-resnet50-fp32-b128-dali+workers8-2n8g": """
        CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 PYTHONPATH=/examples /usr/bin/python3
        TRAINERS/imagenet_dali.py --arch resnet50 --epochs 1 --batch-size 1024 --lr 1.024
        --workers 8 --momentum 0.125 --print-freq 1 --multiprocessing-distributed
        --dist-backend nccl --dist-url tcp://10.11.0.2:20000 --world-size 2 --rank 1
        /imagenet
    """,
    "paddle-arcface_r50-fp32-b128-1n1g": """
        CUDA_VISIBLE_DEVICES=0 PYTHONPATH=/plsc /usr/bin/python3 TRAINERS/plsc_train.py
        --loss_type=arcface
    """,
    "paddle-arcface_r50-fp32-b128-2n8g": """
        CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 PYTHONPATH=/plsc /usr/bin/python3 -m
        paddle.distributed.launch --cluster_node_ips=10.11.0.2,10.11.0.3 --node_ip=10.11.0.3
        --selected_gpus=0,1,2,3,4,5,6,7 --started_port=25000 TRAINERS/plsc_train.py
        --loss_type=dist_arcface
    """,
    "tensorflow-bert_base-fp16-b96-xla-2n8g": """
        CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 PYTHONPATH=/tf
        TF_XLA_FLAGS=--tf_xla_cpu_global_jit NCCL_DEBUG=INFO /usr/bin/python3
        TRAINERS/bert_pretraining.py --input_files=/wiki/*.tfrecord --max_seq_length=128
        --max_predictions_per_seq=20 --train_batch_size=1536 --num_steps_per_epoch=120
        --num_train_epochs=1 --warmup_steps=10000 --use_next_sentence_label=True
        --train_summary_interval=0 --optimizer_type=adamw --num_gpus=8
        --datasets_num_private_threads=8 --dtype=fp16 --enable_xla=true
        --model_dir=/own/1/scratch --bert_config_file=/bert.json
        --distribution_strategy=multi_worker_mirrored
        --worker_hosts=10.11.0.2:20000,10.11.0.3:20001 --task_index=1 --all_reduce_alg=nccl
    """,
    "tensorflow-bert_base-fp32-b48-1n8g": """
        CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 PYTHONPATH=/tf /usr/bin/python3
        TRAINERS/bert_pretraining.py --input_files=/wiki/*.tfrecord --max_seq_length=128
        --max_predictions_per_seq=20 --train_batch_size=384 --num_steps_per_epoch=120
        --num_train_epochs=1 --warmup_steps=10000 --use_next_sentence_label=True
        --train_summary_interval=0 --optimizer_type=adamw --num_gpus=8
        --datasets_num_private_threads=8 --dtype=fp32 --enable_xla=false
        --model_dir=/own/0/scratch --bert_config_file=/bert.json
    """,
}
"""What the last node of a case executes: its variables, then its command."""


@pytest.mark.parametrize("case_id", COMMANDS)
def test_a_seed_executes_what_the_original_did(case_id):
    node = plan(Case.from_id(case_id))[-1]
    variables = [f"{name}={value}" for name, value in node.environment.items()]
    words = [word.replace(str(TRAINERS), "TRAINERS") for word in (*variables, *node.arguments)]
    assert words == COMMANDS[case_id].split()


# ------------------------------------------------------------------------------ all of them


@pytest.mark.parametrize("name", SEEDS)
def test_nothing_of_a_command_is_taken_for_a_secret(name):
    for case in cases_of(SYSTEMS[name]):
        for command in plan(case):
            assert hide_words(command.arguments) == list(command.arguments)
            assert hide_variables(command.environment) == command.environment


def test_every_node_has_its_own_command_and_log():
    for case in (
        replace(SYSTEMS[name].cases[0], topology=Topology.parse("2n8g")) for name in SEEDS
    ):
        commands = plan(case)
        assert [command.node_rank for command in commands] == [0, 1]
        assert [command.host for command in commands] == ["v100-0", "v100-1"]
        assert len({command.log for command in commands}) == 2
        # Nothing is left in a checkout, which may be read-only: each runs in a folder of its own.
        assert [it.working_directory for it in commands] == ["/own/0/scratch", "/own/1/scratch"]


@pytest.mark.parametrize("name", SEEDS)
def test_a_seed_runs_on_gpus_of_every_node_with_pauses_as_long_as_the_original_s(name):
    spec = SYSTEMS[name].launch
    assert (spec.devices, spec.start_on) == (Devices.GPU, StartOn.EVERY_NODE)
    assert (spec.pause_s, spec.run_to_end, spec.retries) == (20, False, 0)


@pytest.mark.parametrize("name", SEEDS)
def test_folders_that_a_seed_needs_are_known_to_be_folders(name):
    system = SYSTEMS[name]
    assert system.launch.variables["checkout"].kind is VariableKind.FOLDER
    for case in system.cases:
        needed = system.launch.variables_of(case)
        # A program of the user's own needs no checkout around it.
        assert "checkout" in needed
        assert ("dali" in case.options) == any("dali" in variable for variable in needed)


@given(
    name=st.sampled_from(SEEDS),
    rough=st.text(st.characters(exclude_characters="\0", codec="utf-8")),
)
def test_no_text_at_all_gets_out_of_its_argument(name, rough):
    assert_same_shape(cases_of(SYSTEMS[name])[-1], rough)


def assert_same_shape(case, rough):
    """With ``rough`` in every value and address, each argument differs by this text alone."""
    mark = "MARK"

    def with_text(text):
        values = dict.fromkeys(SET[case.system], f"/{text}")
        return plan(
            case,
            addresses=[text] * 4,
            given_values=values,
        )

    for plain, changed in zip(with_text(mark), with_text(rough), strict=True):
        brackets = f"[{rough}]:" if ":" in rough else f"{rough}:"

        def expected(text, brackets=brackets):
            return text.replace(f"{mark}:", brackets).replace(mark, rough)

        assert changed.arguments == tuple(expected(text) for text in plain.arguments)
        assert changed.environment == {
            key: expected(text) for key, text in plain.environment.items()
        }


def test_the_smoke_training_runs_on_any_machines_and_takes_a_network_interface():
    system = SYSTEMS["pytorch-resnet18"]
    assert system.launch.devices is Devices.CPU
    case = Case.from_id("pytorch-resnet18-fp32-b8-2n1g")
    first, second = plan(case, "pytorch-resnet18.env.GLOO_SOCKET_IFNAME=eth0", given_values={})
    for node in (first, second):
        assert node.arguments[:3] == ("/usr/bin/python3", "-m", "torch.distributed.run")
        assert node.environment["GLOO_SOCKET_IFNAME"] == "eth0"
        assert "--master-addr=10.11.0.2" in node.arguments
    assert "--node-rank=1" in second.arguments
